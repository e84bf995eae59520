"""Tables of the checkpointer."""

from __future__ import annotations

import sqlite3

from langmem_harness.errors import ConfigurationError
from langmem_harness.sqlite import Migration
from langmem_harness.threads import owners

COMPONENT = "checkpoints"


def _refuse_foreign_tables(connection: sqlite3.Connection) -> None:
    """The table names are LangGraph's as well: a file of its saver must be imported, not written into."""
    found = connection.execute("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'checkpoints'").fetchone()
    if found is not None:
        raise ConfigurationError(
            "this file was written by LangGraph's own SQLite saver: take it over with "
            "'langmem-harness threads import OLD.sqlite' into another file"
        )


MIGRATIONS: tuple[Migration, ...] = (
    _refuse_foreign_tables,
    """
    CREATE TABLE thread_keys (
        thread INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used again, so a cached number cannot mean another thread
        thread_id TEXT NOT NULL UNIQUE
    );
    CREATE TABLE checkpoint_nodes (
        node INTEGER PRIMARY KEY,
        thread INTEGER NOT NULL REFERENCES thread_keys (thread),
        hash BLOB NOT NULL,
        kind INTEGER NOT NULL,
        type TEXT NOT NULL,
        value BLOB NOT NULL,
        children BLOB NOT NULL
    );
    CREATE UNIQUE INDEX checkpoint_nodes_by_hash ON checkpoint_nodes (thread, hash);
    CREATE TABLE checkpoints (
        thread INTEGER NOT NULL REFERENCES thread_keys (thread),
        checkpoint_ns TEXT NOT NULL,
        checkpoint_id TEXT NOT NULL,
        parent_checkpoint_id TEXT,
        run_id TEXT,
        created_at INTEGER NOT NULL,
        root BLOB NOT NULL,
        metadata TEXT NOT NULL,
        PRIMARY KEY (thread, checkpoint_ns, checkpoint_id)
    ) WITHOUT ROWID;
    CREATE INDEX checkpoints_by_run ON checkpoints (run_id) WHERE run_id IS NOT NULL;
    CREATE TABLE checkpoint_writes (
        thread INTEGER NOT NULL REFERENCES thread_keys (thread),
        checkpoint_ns TEXT NOT NULL,
        checkpoint_id TEXT NOT NULL,
        task_id TEXT NOT NULL,
        task_path TEXT NOT NULL,
        idx INTEGER NOT NULL,
        channel TEXT NOT NULL,
        root BLOB NOT NULL,
        PRIMARY KEY (thread, checkpoint_ns, checkpoint_id, task_id, idx)
    ) WITHOUT ROWID;
    """,
    owners.TABLE,
    owners.note_owners_in_metadata,
)
