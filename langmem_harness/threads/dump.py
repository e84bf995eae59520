"""Threads as JSON lines: everything the checkpointer and the log hold of one thread, and back.

One object per line: a header, the log entries, the checkpoint rows with their nodes, and a closing line with the number
of lines and the SHA-256 of everything before it, so that a cut-off or changed file shows.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from langmem_harness.errors import CorruptionError, RecordError
from langmem_harness.threads.blobs import all_nodes, ensure_thread, find_thread
from langmem_harness.threads.events import TurnEvent
from langmem_harness.threads.nodes import Node

FORMAT = "langmem_harness_thread"
FORMAT_VERSION = 1

_CHECKPOINT = ("checkpoint_ns", "checkpoint_id", "parent_checkpoint_id", "run_id", "created_at", "metadata")
_WRITE = ("checkpoint_ns", "checkpoint_id", "task_id", "task_path", "idx", "channel")
_OWNER = ("scope_hash", "person_hash")


def dump_lines(thread_id: str, events: Iterable[TurnEvent], connection: sqlite3.Connection) -> Iterator[str]:
    """The lines of an archive, each with its line end."""
    digest, count = hashlib.sha256(), 0
    header = {"kind": "header", "format": FORMAT, "format_version": FORMAT_VERSION, "thread_id": thread_id}
    entries = ({"kind": "event", "event": event.to_dict()} for event in events)
    for record in (header, *entries, *_dump_checkpoints(connection, thread_id)):
        line = json.dumps(record, sort_keys=True) + "\n"
        digest.update(line.encode())
        count += 1
        yield line
    yield json.dumps({"kind": "end", "lines": count, "sha256": digest.hexdigest()}) + "\n"


def parse_lines(lines: Iterable[str]) -> list[dict[str, Any]]:
    """The records of an archive, its header first, checked against its closing line.

    Raises:
        RecordError: It is not an archive of ours, or a newer one.
        CorruptionError: It is cut off or was changed.
    """
    digest = hashlib.sha256()
    records: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except ValueError as error:
            raise RecordError(f"line {number} of the archive is not JSON") from error
        if not isinstance(record, dict) or (number == 1 and record.get("format") != FORMAT):
            raise RecordError("not an archive of a thread")
        if number == 1 and int(record.get("format_version", 0)) > FORMAT_VERSION:
            raise RecordError(f"the archive has format version {record['format_version']!r}: upgrade langmem-harness")
        if record.get("kind") == "end":
            if record.get("lines") != len(records) or record.get("sha256") != digest.hexdigest():
                raise CorruptionError("the archive was changed after it was written")
            return records
        records.append(record)
        digest.update(line.encode())
    raise CorruptionError("the archive is cut off: its closing line is missing")


def load_checkpoints(connection: sqlite3.Connection, thread_id: str, records: Iterable[Mapping[str, Any]]) -> int:
    """Put the checkpoint rows and nodes of an archive into the tables; returns the number of checkpoints.

    A row that is there stays: the caller has made sure that it is the archive's.

    Raises:
        CorruptionError: A node is damaged.
    """
    thread: int | None = None
    checkpoints = 0
    for record in records:
        if record["kind"] not in ("node", "checkpoint", "write", "owner"):
            continue
        thread = ensure_thread(connection, thread_id) if thread is None else thread
        if record["kind"] == "node":
            node = Node(
                hash=_bytes(record["hash"]),
                kind=record["node_kind"],
                type=record["type"],
                value=_bytes(record["value"]),
                children=_bytes(record["children"]),
            )
            node.check()
            connection.execute(
                "INSERT OR IGNORE INTO checkpoint_nodes (thread, hash, kind, type, value, children) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (thread, *node),
            )
            continue
        if record["kind"] == "owner":
            connection.execute(
                "INSERT OR IGNORE INTO thread_owners VALUES (?, ?, ?)", (thread, *(record[column] for column in _OWNER))
            )
            continue
        checkpoints += record["kind"] == "checkpoint"
        table, columns = (
            ("checkpoints", _CHECKPOINT) if record["kind"] == "checkpoint" else ("checkpoint_writes", _WRITE)
        )
        connection.execute(
            f"INSERT OR IGNORE INTO {table} (thread, root, {', '.join(columns)}) VALUES (?, ?{', ?' * len(columns)})",
            (thread, _bytes(record["root"]), *(record[column] for column in columns)),
        )
    return checkpoints


def checkpoint_rows(connection: sqlite3.Connection, thread_id: str) -> Iterator[dict[str, Any]]:
    """The records of a thread's checkpoints and pending writes, as they are in an archive; their nodes are not here."""
    thread = find_thread(connection, thread_id)
    if thread is None:
        return
    for kind, table, columns in (
        ("checkpoint", "checkpoints", _CHECKPOINT),
        ("write", "checkpoint_writes", _WRITE),
    ):
        for root, *values in connection.execute(
            f"SELECT root, {', '.join(columns)} FROM {table} WHERE thread = ?", (thread,)
        ):
            yield {"kind": kind, "root": _text(root), **dict(zip(columns, values, strict=True))}


def _dump_checkpoints(connection: sqlite3.Connection, thread_id: str) -> Iterator[dict[str, Any]]:
    thread = find_thread(connection, thread_id)
    if thread is None:
        return
    for node in all_nodes(connection, thread):
        yield {
            "kind": "node",
            "hash": _text(node.hash),
            "node_kind": node.kind,
            "type": node.type,
            "value": _text(node.value),
            "children": _text(node.children),
        }
    yield from checkpoint_rows(connection, thread_id)
    for values in connection.execute(f"SELECT {', '.join(_OWNER)} FROM thread_owners WHERE thread = ?", (thread,)):
        yield {"kind": "owner", **dict(zip(_OWNER, values, strict=True))}


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
