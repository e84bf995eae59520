"""What was said: the checkpointer, the thread log, retention and erasure."""

from langmem_harness.threads.checkpointer import SqliteCheckpointer
from langmem_harness.threads.events import TurnEvent, TurnRecord
from langmem_harness.threads.log import ThreadLog
from langmem_harness.threads.log_report import LogReport
from langmem_harness.threads.maintenance import CheckpointReport

__all__ = ["CheckpointReport", "LogReport", "SqliteCheckpointer", "ThreadLog", "TurnEvent", "TurnRecord"]
