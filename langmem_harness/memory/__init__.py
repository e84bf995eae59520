"""Long-term memory over any LangGraph store: scoped to one owner, filled by rules, recalled as data."""

from langmem_harness.memory.admission import AdmissionPolicy
from langmem_harness.memory.backing import StoreCapabilities
from langmem_harness.memory.episodes import Episode, EpisodeIndex, EpisodeResult, Utterance, utterances_of
from langmem_harness.memory.export import ImportReport, MemoryExport
from langmem_harness.memory.found import MemoryRecall, RecalledMemory
from langmem_harness.memory.idle import IdlePromoter
from langmem_harness.memory.options import UpsertResult
from langmem_harness.memory.promotion import Promoter, PromotionReport
from langmem_harness.memory.records import MemoryRecord, MemorySource
from langmem_harness.memory.scope import MemoryContext, MemoryScope, scope_from_runtime
from langmem_harness.memory.service import LongTermMemory

__all__ = [
    "AdmissionPolicy",
    "Episode",
    "EpisodeIndex",
    "EpisodeResult",
    "IdlePromoter",
    "ImportReport",
    "LongTermMemory",
    "MemoryContext",
    "MemoryExport",
    "MemoryRecall",
    "MemoryRecord",
    "MemoryScope",
    "MemorySource",
    "Promoter",
    "PromotionReport",
    "RecalledMemory",
    "StoreCapabilities",
    "UpsertResult",
    "Utterance",
    "scope_from_runtime",
    "utterances_of",
]
