"""Taking over the threads of a file of LangGraph's own SQLite saver."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.sqlite import SqliteSaver

from langmem_harness.errors import CorruptionError, RecordError, StorageUnavailableError
from langmem_harness.threads.checkpointer import SqliteCheckpointer

Progress = Callable[[str, int], None]
"""Called for every thread taken over, with its id and its number of checkpoints."""


@dataclass(frozen=True, kw_only=True)
class ImportReport:
    """What `import_langgraph_file` took over.

    Attributes:
        threads: Number of threads.
        checkpoints: Number of checkpoints, each read back and compared.
        writes: Number of pending writes among them.
    """

    threads: int
    checkpoints: int
    writes: int


def import_langgraph_file(
    path: str | os.PathLike[str],
    checkpointer: SqliteCheckpointer,
    *,
    thread_ids: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> ImportReport:
    """Copy every thread of a LangGraph SQLite saver file into a checkpointer, and compare what was copied.

    The old file is only read (from a copy, so that not even its journal changes). Doing it twice gives the same.

    Args:
        path: The old file.
        checkpointer: Where to. Its serializer must be able to read the old file's values.
        thread_ids: Only these threads; None for all.
        progress: Called after each thread.

    Raises:
        StorageUnavailableError: The file cannot be read.
        RecordError: It is no file of LangGraph's SQLite saver.
        CorruptionError: A checkpoint reads back differently.
    """
    checkpoints = writes = 0
    with _open_copy(Path(path)) as connection:
        old = SqliteSaver(connection, serde=checkpointer.serde)
        names = [row[0] for row in connection.execute("SELECT DISTINCT thread_id FROM checkpoints ORDER BY 1")]
        names = [name for name in names if thread_ids is None or name in thread_ids]
        for name in names:
            config: RunnableConfig = {"configurable": {"thread_id": name}}
            copied = 0
            for found in old.list(config):
                rows = _writes(connection, found.config)
                _copy(found, rows, checkpointer)
                _compare(found, checkpointer.get_tuple(found.config))
                copied += 1
                writes += len(rows)
            checkpoints += copied
            if progress is not None:
                progress(name, copied)
    return ImportReport(threads=len(names), checkpoints=checkpoints, writes=writes)


def _copy(found: CheckpointTuple, rows: Sequence[tuple[Any, ...]], checkpointer: SqliteCheckpointer) -> None:
    configurable = dict(found.config["configurable"])
    configurable["checkpoint_id"] = (found.parent_config or {"configurable": {}})["configurable"].get("checkpoint_id")
    checkpointer.put({"configurable": configurable}, found.checkpoint, found.metadata, {})
    for task_id, task_path, position, channel, type_, stored in rows:
        value = checkpointer.serde.loads_typed((type_, stored))
        checkpointer.put_write_at(found.config, channel, value, task_id, task_path, position)


def _compare(found: CheckpointTuple, copied: CheckpointTuple | None) -> None:
    if (
        copied is None
        or copied.checkpoint != found.checkpoint
        or dict(copied.metadata) != dict(found.metadata)
        or copied.parent_config != found.parent_config
        or copied.pending_writes != found.pending_writes
    ):
        name = found.config["configurable"]["checkpoint_id"]
        raise CorruptionError(f"checkpoint {name!r} reads back differently; the old file is unchanged, keep using it")


def _writes(connection: sqlite3.Connection, config: RunnableConfig) -> list[tuple[Any, ...]]:
    where = config["configurable"]
    columns = {row[1] for row in connection.execute("PRAGMA table_info(writes)")}
    task_path = "task_path" if "task_path" in columns else "''"  # files of older savers do not have it
    return connection.execute(
        f"SELECT task_id, {task_path} AS path, idx, channel, type, value FROM writes "
        "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ? ORDER BY path, task_id, idx",
        (where["thread_id"], where["checkpoint_ns"], where["checkpoint_id"]),
    ).fetchall()


@contextmanager
def _open_copy(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection to a private copy of a file and its journal."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "old.sqlite"
        try:
            shutil.copyfile(path, copy)
            if (journal := path.with_name(path.name + "-wal")).exists():
                shutil.copyfile(journal, copy.with_name(copy.name + "-wal"))
        except OSError as error:
            raise StorageUnavailableError(f"{str(path)!r} cannot be read: {error.strerror}") from error
        connection = sqlite3.connect(copy, check_same_thread=False)
        try:
            _check_tables(connection, path)
            SqliteSaver(connection).setup()  # adds columns that old versions did not have, in the copy only
            yield connection
        finally:
            connection.close()


def _check_tables(connection: sqlite3.Connection, path: Path) -> None:
    try:
        columns = {row[1] for row in connection.execute("PRAGMA table_info(checkpoints)")}
    except sqlite3.DatabaseError as error:
        raise RecordError(f"{str(path)!r} is not a SQLite file") from error
    if not {"thread_id", "checkpoint", "metadata"} <= columns:
        raise RecordError(f"{str(path)!r} was not written by LangGraph's SQLite saver")
