"""The store: a LangGraph `BaseStore` whose truth is SQLite and whose indexes are caches."""

from langmem_harness.store.faiss_store import FaissStore
from langmem_harness.store.keywords import KeywordIndex, Tokenizer
from langmem_harness.store.provenance import IndexProvenance
from langmem_harness.store.records import LegScore, RecallItem, RecallResult, StoreReport, StoreStats

__all__ = [
    "FaissStore",
    "IndexProvenance",
    "KeywordIndex",
    "LegScore",
    "RecallItem",
    "RecallResult",
    "StoreReport",
    "StoreStats",
    "Tokenizer",
]
