"""Which threads were erased, so that a late write cannot bring one back.

A tombstone holds a hash of the thread's id and a time, nothing else: it must be possible to keep it.
"""

from __future__ import annotations

import hashlib
import sqlite3
import time

from langmem_harness.errors import ThreadErasedError
from langmem_harness.sqlite import Database

COMPONENT = "tombstones"
MIGRATIONS = (
    """
    CREATE TABLE erased_threads (
        thread_hash BLOB PRIMARY KEY,
        erased_at INTEGER NOT NULL
    ) WITHOUT ROWID;
    """,
)


def prepare(database: Database) -> None:
    """Create the table if it is not there."""
    database.migrate(COMPONENT, MIGRATIONS)


def bury(connection: sqlite3.Connection, thread_id: str) -> None:
    """Refuse every later write to this thread. Burying twice keeps the first time."""
    connection.execute(
        "INSERT OR IGNORE INTO erased_threads (thread_hash, erased_at) VALUES (?, ?)",
        (_hash(thread_id), time.time_ns() // 1_000_000),
    )


def is_erased(connection: sqlite3.Connection, thread_id: str) -> bool:
    """Whether the thread was erased."""
    row = connection.execute("SELECT 1 FROM erased_threads WHERE thread_hash = ?", (_hash(thread_id),)).fetchone()
    return row is not None


def check_not_erased(connection: sqlite3.Connection, thread_id: str) -> None:
    """Guard of every write.

    Raises:
        ThreadErasedError: The thread was erased.
    """
    if is_erased(connection, thread_id):
        raise ThreadErasedError("this thread was erased; start a new one under another thread_id")


def _hash(thread_id: str) -> bytes:
    return hashlib.sha256(thread_id.encode("utf-8", "surrogatepass")).digest()
