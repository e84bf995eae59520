"""Threads to a file and back: an archive never takes the place of another file, nor of what came after it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langmem_harness.errors import (
    CorruptionError,
    NotFoundError,
    RecordError,
    StorageUnavailableError,
    TurnConflictError,
)
from langmem_harness.threads import tombstones
from langmem_harness.threads.checkpointer import SqliteCheckpointer
from langmem_harness.threads.dump import checkpoint_rows, dump_lines, load_checkpoints, parse_lines
from langmem_harness.threads.events import TurnEvent
from langmem_harness.threads.log import ThreadLog


@dataclass(frozen=True, kw_only=True)
class RestoreReport:
    """What `restore_archive` did.

    Attributes:
        thread_id: The thread of the archive.
        rows: Rows that were put back; 0 when all of it was there.
    """

    thread_id: str
    rows: int


def write_archive(
    thread_id: str,
    path: str | os.PathLike[str],
    *,
    checkpointer: SqliteCheckpointer,
    thread_log: ThreadLog,
    overwrite: bool,
) -> int:
    """See `Retention.archive`."""
    target = Path(path)
    unfinished = target.with_name(target.name + ".unfinished")
    with checkpointer.database.read() as connection:
        events = thread_log.events(thread_id)
        if not events and next(checkpoint_rows(connection, thread_id), None) is None:
            raise NotFoundError(f"there is no thread {thread_id!r}")
        if not overwrite and target.exists():
            raise StorageUnavailableError(
                f"{str(target)!r} is there already: name another file, or replace it with overwrite=True (--force)"
            )
        lines = 0
        try:
            descriptor = os.open(unfinished, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
            with open(descriptor, "w", encoding="utf-8", newline="\n") as file:
                for line in dump_lines(thread_id, events, connection):
                    file.write(line)
                    lines += 1
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(target)
        except OSError as error:
            unfinished.unlink(missing_ok=True)
            raise StorageUnavailableError(f"{str(target)!r} cannot be written: {error.strerror}") from error
    return lines


def restore_archive(
    path: str | os.PathLike[str], *, checkpointer: SqliteCheckpointer, thread_log: ThreadLog
) -> RestoreReport:
    """See `Retention.restore`; this one also says whether anything was missing."""
    try:
        with open(path, encoding="utf-8", newline="\n") as file:
            records = parse_lines(file)
    except OSError as error:
        raise StorageUnavailableError(f"{os.fspath(path)!r} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RecordError("not an archive of a thread") from error
    thread_id = str(records[0]["thread_id"])
    events = [TurnEvent.from_dict(record["event"]) for record in records if record["kind"] == "event"]
    archived = {_identity(record) for record in records if record["kind"] in ("checkpoint", "write")}
    with checkpointer.database.write() as connection:
        tombstones.check_not_erased(connection, thread_id)
        before = connection.total_changes
        thread_log.restore_events(events)
        if len(thread_log.events(thread_id, after=len(events))) or not all(
            _identity(row) in archived for row in checkpoint_rows(connection, thread_id)
        ):
            raise TurnConflictError(
                f"thread {thread_id!r} has gone on since it was archived; nothing was restored: restore it into "
                "another folder, or delete the thread first"
            )
        load_checkpoints(connection, thread_id, records)
        if not checkpointer.verify(thread_id).is_intact or not thread_log.verify(thread_id).is_intact:
            raise CorruptionError("the archive is not complete; nothing was restored")
        return RestoreReport(thread_id=thread_id, rows=connection.total_changes - before)


def _identity(record: dict[str, Any]) -> str:
    return json.dumps(record, sort_keys=True)
