"""Memory for LangChain and LangGraph agents that can be trusted.

Start with `open_memory`; every piece also works alone. Fakes for tests are in `langmem_harness.testing`, typed events
in `langmem_harness.events`, the tree of errors in `langmem_harness.errors`.

Names are loaded when they are first used, so that importing the package costs next to nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

from langmem_harness._version import __version__

if TYPE_CHECKING:
    from langmem_harness.embeddings import LocalEmbeddings
    from langmem_harness.errors import LangMemHarnessError
    from langmem_harness.events import MemoryEvent
    from langmem_harness.memory import LongTermMemory, MemoryContext, MemoryScope
    from langmem_harness.middleware.compaction import HistoryCompactionMiddleware
    from langmem_harness.middleware.long_term import LongTermMemoryMiddleware
    from langmem_harness.middleware.tool_originals import original_content
    from langmem_harness.middleware.tool_output import ToolOutputSummarizationMiddleware
    from langmem_harness.middleware.turns import DurableTurnsMiddleware
    from langmem_harness.pairing import AgentMemory, open_memory
    from langmem_harness.redaction import RedactionPolicy, Redactor
    from langmem_harness.store import FaissStore, IndexProvenance, RecallItem, RecallResult
    from langmem_harness.summaries import (
        ExtractiveSummarizer,
        HeadTailSummarizer,
        ModelSummarizer,
        SummaryLedger,
        SummaryRecord,
        summarize_thread,
    )
    from langmem_harness.threads import SqliteCheckpointer, ThreadLog
    from langmem_harness.window.effective import effective_messages

_HOMES = {
    "AgentMemory": "pairing",
    "DurableTurnsMiddleware": "middleware.turns",
    "ExtractiveSummarizer": "summaries",
    "FaissStore": "store",
    "HeadTailSummarizer": "summaries",
    "HistoryCompactionMiddleware": "middleware.compaction",
    "IndexProvenance": "store",
    "LangMemHarnessError": "errors",
    "LocalEmbeddings": "embeddings",
    "LongTermMemory": "memory",
    "LongTermMemoryMiddleware": "middleware.long_term",
    "MemoryContext": "memory",
    "MemoryEvent": "events",
    "MemoryScope": "memory",
    "ModelSummarizer": "summaries",
    "RecallItem": "store",
    "RecallResult": "store",
    "RedactionPolicy": "redaction",
    "Redactor": "redaction",
    "SqliteCheckpointer": "threads",
    "SummaryLedger": "summaries",
    "SummaryRecord": "summaries",
    "ThreadLog": "threads",
    "ToolOutputSummarizationMiddleware": "middleware.tool_output",
    "effective_messages": "window.effective",
    "open_memory": "pairing",
    "original_content": "middleware.tool_originals",
    "summarize_thread": "summaries",
}

__all__ = [
    "AgentMemory",
    "DurableTurnsMiddleware",
    "ExtractiveSummarizer",
    "FaissStore",
    "HeadTailSummarizer",
    "HistoryCompactionMiddleware",
    "IndexProvenance",
    "LangMemHarnessError",
    "LocalEmbeddings",
    "LongTermMemory",
    "LongTermMemoryMiddleware",
    "MemoryContext",
    "MemoryEvent",
    "MemoryScope",
    "ModelSummarizer",
    "RecallItem",
    "RecallResult",
    "RedactionPolicy",
    "Redactor",
    "SqliteCheckpointer",
    "SummaryLedger",
    "SummaryRecord",
    "ThreadLog",
    "ToolOutputSummarizationMiddleware",
    "__version__",
    "effective_messages",
    "open_memory",
    "original_content",
    "summarize_thread",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'langmem_harness' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"langmem_harness.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
