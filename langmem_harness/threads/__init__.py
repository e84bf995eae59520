"""What was said: the checkpointer, the thread log, retention and erasure."""

from langmem_harness.threads.checkpointer import SqliteCheckpointer
from langmem_harness.threads.erasing import ScopeThreads
from langmem_harness.threads.events import TurnEvent, TurnRecord
from langmem_harness.threads.importing import ImportReport, import_langgraph_file
from langmem_harness.threads.log import ThreadLog
from langmem_harness.threads.log_report import LogReport
from langmem_harness.threads.maintenance import CheckpointReport
from langmem_harness.threads.retention import PruneReport, Retention

__all__ = [
    "CheckpointReport",
    "ImportReport",
    "LogReport",
    "PruneReport",
    "Retention",
    "ScopeThreads",
    "SqliteCheckpointer",
    "ThreadLog",
    "TurnEvent",
    "TurnRecord",
    "import_langgraph_file",
]
