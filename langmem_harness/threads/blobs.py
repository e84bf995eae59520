"""Rows and nodes of checkpoints in SQLite: insert what is missing, load what is needed, collect what is not.

Nodes belong to one thread. Nothing is shared between threads, so deleting a thread deletes its text, and what one
thread stores says nothing about another. Inside a thread the rule that makes everything else cheap is: **if a node is
there, so is everything below it**. A parent is inserted in the same transaction as its missing children, and only what
cannot be reached is ever collected.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from langmem_harness.threads.nodes import Node, reachable, split_hashes

_T = TypeVar("_T")
_BATCH = 500  # values per statement, below every limit SQLite was ever compiled with


@dataclass(frozen=True, slots=True)
class CheckpointKey:
    """Which checkpoint: row number and id of the thread, namespace, id."""

    thread: int
    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str


@dataclass(frozen=True, slots=True)
class WriteRow:
    """One pending write; `root` names its value."""

    task_id: str
    channel: str
    root: bytes


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """One stored checkpoint; `root` names its value, `writes` are in the order they are applied."""

    key: CheckpointKey
    parent_checkpoint_id: str | None
    root: bytes
    metadata: str
    writes: Sequence[WriteRow]

    def roots(self) -> Iterator[bytes]:
        """Names of all values of this row."""
        yield self.root
        for write in self.writes:
            yield write.root


def read_rows(connection: sqlite3.Connection, keys: Iterable[CheckpointKey]) -> list[CheckpointRow]:
    """The rows of these checkpoints, in the same order; those that are gone are left out."""
    rows = []
    for key in keys:
        where = (key.thread, key.checkpoint_ns, key.checkpoint_id)
        row = connection.execute(
            "SELECT parent_checkpoint_id, root, metadata FROM checkpoints "
            "WHERE thread = ? AND checkpoint_ns = ? AND checkpoint_id = ?",
            where,
        ).fetchone()
        if row is None:
            continue
        writes = connection.execute(
            "SELECT task_id, channel, root FROM checkpoint_writes "
            "WHERE thread = ? AND checkpoint_ns = ? AND checkpoint_id = ? ORDER BY task_path, task_id, idx",
            where,
        )
        rows.append(
            CheckpointRow(key, row[0], bytes(row[1]), row[2], [WriteRow(w[0], w[1], bytes(w[2])) for w in writes])
        )
    return rows


def find_thread(connection: sqlite3.Connection, thread_id: str) -> int | None:
    """Row number of a thread, or None when nothing of it is stored."""
    row = connection.execute("SELECT thread FROM thread_keys WHERE thread_id = ?", (thread_id,)).fetchone()
    return None if row is None else int(row[0])


def ensure_thread(connection: sqlite3.Connection, thread_id: str) -> int:
    """Row number of a thread, given one if it has none."""
    thread = find_thread(connection, thread_id)
    if thread is None:
        cursor = connection.execute("INSERT INTO thread_keys (thread_id) VALUES (?)", (thread_id,))
        thread = int(cursor.lastrowid or 0)
    return thread


def insert_missing(connection: sqlite3.Connection, thread: int, root: bytes, node_of: Callable[[bytes], Node]) -> None:
    """Store a root and whatever below it is not there yet, looking only below what is missing."""
    frontier = [root]
    while frontier:
        present = {
            bytes(row[0])
            for batch in _batched(frontier, _BATCH)
            for row in connection.execute(
                f"SELECT hash FROM checkpoint_nodes WHERE thread = ? AND hash IN ({_marks(batch)})", (thread, *batch)
            )
        }
        missing = [node_of(name) for name in frontier if name not in present]
        connection.executemany(
            "INSERT INTO checkpoint_nodes (thread, hash, kind, type, value, children) VALUES (?, ?, ?, ?, ?, ?)",
            [(thread, node.hash, node.kind, node.type, node.value, node.children) for node in missing],
        )
        below = dict.fromkeys(name for node in missing for name in split_hashes(node.children))
        frontier = list(below)


def load_nodes(
    connection: sqlite3.Connection, thread: int, roots: Iterable[bytes], known: Callable[[bytes], bool]
) -> dict[bytes, Node]:
    """The nodes below and including the roots, by name. What is known already is left out; what is missing, too."""
    loaded: dict[bytes, Node] = {}
    asked: set[bytes] = set()
    frontier = list(dict.fromkeys(roots))
    while frontier:
        below: dict[bytes, None] = {}
        wanted = [name for name in frontier if name not in asked and not known(name)]
        asked.update(wanted)
        for batch in _batched(wanted, _BATCH):
            for row in connection.execute(
                "SELECT hash, kind, type, value, children FROM checkpoint_nodes "
                f"WHERE thread = ? AND hash IN ({_marks(batch)})",
                (thread, *batch),
            ):
                node = Node._make(row)
                loaded[node.hash] = node
                if node.children:
                    below.update(dict.fromkeys(split_hashes(node.children)))
        frontier = list(below)
    return loaded


def copy_nodes(connection: sqlite3.Connection, source: int, target: int) -> None:
    """Give one thread every node of another that it does not have."""
    connection.execute(
        "INSERT OR IGNORE INTO checkpoint_nodes (thread, hash, kind, type, value, children) "
        "SELECT ?, hash, kind, type, value, children FROM checkpoint_nodes WHERE thread = ? ORDER BY node",
        (target, source),
    )


def collect_garbage(connection: sqlite3.Connection, thread: int, roots: Iterable[bytes]) -> int:
    """Delete the nodes of a thread that no root leads to; returns how many."""
    children = {
        bytes(row[0]): bytes(row[1])
        for row in connection.execute("SELECT hash, children FROM checkpoint_nodes WHERE thread = ?", (thread,))
    }
    alive, _ = reachable(roots, children.get)
    garbage = [name for name in children if name not in alive]
    connection.executemany(
        "DELETE FROM checkpoint_nodes WHERE thread = ? AND hash = ?", [(thread, name) for name in garbage]
    )
    return len(garbage)


def all_nodes(connection: sqlite3.Connection, thread: int) -> Iterator[Node]:
    """Every node of a thread, oldest first."""
    for row in connection.execute(
        "SELECT hash, kind, type, value, children FROM checkpoint_nodes WHERE thread = ? ORDER BY node", (thread,)
    ):
        yield Node._make(row)


def _batched(values: Sequence[_T] | Collection[_T], size: int) -> Iterator[list[_T]]:
    iterator = iter(values)
    while batch := list(islice(iterator, size)):
        yield batch


def _marks(values: Sequence[object]) -> str:
    return ",".join("?" * len(values))
