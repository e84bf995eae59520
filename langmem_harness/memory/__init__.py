"""Long-term memory over any LangGraph store: scoped to one owner, filled by rules, recalled as data."""

from langmem_harness.memory.admission import AdmissionPolicy
from langmem_harness.memory.found import RecalledMemory, RecallResult
from langmem_harness.memory.options import UpsertResult
from langmem_harness.memory.records import MemoryRecord, MemorySource
from langmem_harness.memory.scope import MemoryContext, MemoryScope, scope_from_runtime
from langmem_harness.memory.service import LongTermMemory

__all__ = [
    "AdmissionPolicy",
    "LongTermMemory",
    "MemoryContext",
    "MemoryRecord",
    "MemoryScope",
    "MemorySource",
    "RecallResult",
    "RecalledMemory",
    "UpsertResult",
    "scope_from_runtime",
]
