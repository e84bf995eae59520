"""What was said: the checkpointer, the thread log, retention and erasure."""

from langmem_harness.threads.checkpointer import SqliteCheckpointer
from langmem_harness.threads.maintenance import CheckpointReport

__all__ = ["CheckpointReport", "SqliteCheckpointer"]
