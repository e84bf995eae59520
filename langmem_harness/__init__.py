"""Memory for LangChain and LangGraph agents that can be trusted.

Start with `open_memory`; every piece also works alone. Fakes for tests are in `langmem_harness.testing`, typed events
in `langmem_harness.events`, the tree of errors in `langmem_harness.errors`.
"""

from langmem_harness._version import __version__
from langmem_harness.embeddings import LocalEmbeddings
from langmem_harness.errors import LangMemHarnessError
from langmem_harness.events import MemoryEvent
from langmem_harness.memory import LongTermMemory, MemoryContext, MemoryScope
from langmem_harness.middleware.compaction import HistoryCompactionMiddleware
from langmem_harness.middleware.long_term import LongTermMemoryMiddleware
from langmem_harness.middleware.tool_output import ToolOutputSummarizationMiddleware
from langmem_harness.middleware.turns import DurableTurnsMiddleware
from langmem_harness.pairing import AgentMemory, open_memory
from langmem_harness.redaction import RedactionPolicy, Redactor
from langmem_harness.store import FaissStore, IndexProvenance, RecallItem, RecallResult
from langmem_harness.threads import SqliteCheckpointer, ThreadLog

__all__ = [
    "AgentMemory",
    "DurableTurnsMiddleware",
    "FaissStore",
    "HistoryCompactionMiddleware",
    "IndexProvenance",
    "LangMemHarnessError",
    "LocalEmbeddings",
    "LongTermMemory",
    "LongTermMemoryMiddleware",
    "MemoryContext",
    "MemoryEvent",
    "MemoryScope",
    "RecallItem",
    "RecallResult",
    "RedactionPolicy",
    "Redactor",
    "SqliteCheckpointer",
    "ThreadLog",
    "ToolOutputSummarizationMiddleware",
    "__version__",
    "open_memory",
]
