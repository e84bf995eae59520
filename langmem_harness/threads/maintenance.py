"""Operations on whole threads of checkpoints: delete, copy, prune, verify."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from langmem_harness.errors import ConfigurationError
from langmem_harness.sqlite import Database
from langmem_harness.threads import tombstones
from langmem_harness.threads.blobs import all_nodes, collect_garbage, copy_nodes, ensure_thread, find_thread
from langmem_harness.threads.nodes import reachable
from langmem_harness.threads.owners import copy_owners

_TABLES = ("checkpoint_writes", "checkpoints", "checkpoint_nodes", "thread_owners", "thread_keys")
_STRATEGIES = ("keep_latest", "delete")


@dataclass(frozen=True, kw_only=True)
class CheckpointReport:
    """What `SqliteCheckpointer.verify` found.

    Attributes:
        threads: Threads looked at.
        checkpoints: Checkpoints looked at.
        nodes: Stored nodes looked at.
        damaged: Short names of nodes whose content does not give their name.
        missing: Short names of nodes that are referred to and not there.
        unused: Number of nodes nothing refers to: leftovers of replaced writes, collected by the next prune.
    """

    threads: int
    checkpoints: int
    nodes: int
    damaged: tuple[str, ...]
    missing: tuple[str, ...]
    unused: int

    @property
    def is_intact(self) -> bool:
        """Whether every checkpoint can be read as it was written."""
        return not self.damaged and not self.missing


class Maintenance:
    """Works on the tables of a checkpointer; each call is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def checkpoint_counts(self) -> dict[str, int]:
        """Every thread that has a checkpoint, in order of first use, with the number of them."""
        with self._database.read() as connection:
            return dict(
                connection.execute(
                    "SELECT thread_id, count(*) FROM checkpoints JOIN thread_keys USING (thread) "
                    "GROUP BY thread ORDER BY thread"
                ).fetchall()
            )

    def delete_thread(self, thread_id: str) -> None:
        """Delete every row of a thread."""
        with self._database.write() as connection:
            thread = find_thread(connection, thread_id)
            if thread is not None:
                _delete_all(connection, thread)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of these runs, in every thread."""
        with self._database.write() as connection:
            doomed: dict[int, set[tuple[str, str]]] = {}
            for run_id in run_ids:
                for thread, checkpoint_ns, checkpoint_id in connection.execute(
                    "SELECT thread, checkpoint_ns, checkpoint_id FROM checkpoints WHERE run_id = ?", (run_id,)
                ):
                    doomed.setdefault(thread, set()).add((checkpoint_ns, checkpoint_id))
            for thread, names in doomed.items():
                _delete_checkpoints(connection, thread, names)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy every row of a thread."""
        if source_thread_id == target_thread_id:
            return
        with self._database.write() as connection:
            tombstones.check_not_erased(connection, target_thread_id)
            source = find_thread(connection, source_thread_id)
            if source is None:
                return
            target = ensure_thread(connection, target_thread_id)
            copy_nodes(connection, source, target)
            copy_owners(connection, source, target)
            connection.execute(
                "INSERT OR REPLACE INTO checkpoints (thread, checkpoint_ns, checkpoint_id, parent_checkpoint_id, "
                "run_id, created_at, root, metadata) SELECT ?, checkpoint_ns, checkpoint_id, parent_checkpoint_id, "
                "run_id, created_at, root, metadata FROM checkpoints WHERE thread = ?",
                (target, source),
            )
            connection.execute(
                "INSERT OR REPLACE INTO checkpoint_writes (thread, checkpoint_ns, checkpoint_id, task_id, task_path, "
                "idx, channel, root) SELECT ?, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, root "
                "FROM checkpoint_writes WHERE thread = ?",
                (target, source),
            )

    def prune(self, thread_ids: Sequence[str], *, strategy: str, keep_last: int, older_than: datetime | None) -> None:
        """Delete old checkpoints of these threads."""
        if strategy not in _STRATEGIES:
            raise ConfigurationError(f"strategy must be one of {_STRATEGIES}, not {strategy!r}")
        if keep_last < 1:
            raise ConfigurationError(f"keep_last must be 1 or more, not {keep_last!r}; use strategy='delete' for all")
        if older_than is not None and older_than.tzinfo is None:
            raise ConfigurationError(f"older_than must be an aware time, not {older_than!r}")
        limit = None if older_than is None else int(older_than.timestamp() * 1000)
        for thread_id in thread_ids:
            with self._database.write() as connection:  # one transaction per thread: others need not wait for all
                thread = find_thread(connection, str(thread_id))
                if thread is None:
                    continue
                if strategy == "delete":
                    _delete_all(connection, thread)
                else:
                    _delete_checkpoints(connection, thread, _find_old(connection, thread, keep_last, limit))

    def verify(self, thread_id: str | None) -> CheckpointReport:
        """Re-derive every name and follow every reference."""
        checkpoints = nodes = unused = 0
        damaged: list[str] = []
        missing: list[str] = []
        with self._database.read() as connection:
            threads = [
                row[0]
                for row in connection.execute(
                    "SELECT thread FROM thread_keys WHERE :thread_id IS NULL OR thread_id = :thread_id ORDER BY thread",
                    {"thread_id": thread_id},
                )
            ]
            for thread in threads:
                children: dict[bytes, bytes] = {}
                for node in all_nodes(connection, thread):
                    children[node.hash] = node.children
                    if not node.is_intact():
                        damaged.append(node.hash.hex()[:16])
                alive, gone = reachable(_roots(connection, thread), children.get)
                missing += sorted(name.hex()[:16] for name in gone)
                nodes += len(children)
                unused += len(children.keys() - alive)
                checkpoints += connection.execute(
                    "SELECT count(*) FROM checkpoints WHERE thread = ?", (thread,)
                ).fetchone()[0]
        return CheckpointReport(
            threads=len(threads),
            checkpoints=checkpoints,
            nodes=nodes,
            damaged=tuple(damaged),
            missing=tuple(missing),
            unused=unused,
        )


def _roots(connection: sqlite3.Connection, thread: int) -> list[bytes]:
    return [
        bytes(row[0])
        for row in connection.execute(
            "SELECT root FROM checkpoints WHERE thread = ? UNION SELECT root FROM checkpoint_writes WHERE thread = ?",
            (thread, thread),
        )
    ]


def _delete_all(connection: sqlite3.Connection, thread: int) -> None:
    for table in _TABLES:
        connection.execute(f"DELETE FROM {table} WHERE thread = ?", (thread,))


def _find_old(connection: sqlite3.Connection, thread: int, keep_last: int, limit: int | None) -> set[tuple[str, str]]:
    """Namespace and id of the checkpoints beyond the newest of their namespace and, if a limit is given, older."""
    rows = connection.execute(
        "SELECT checkpoint_ns, checkpoint_id FROM (SELECT checkpoint_ns, checkpoint_id, created_at, row_number() OVER "
        "(PARTITION BY checkpoint_ns ORDER BY checkpoint_id DESC) AS age FROM checkpoints WHERE thread = ?) "
        "WHERE age > ? AND (? IS NULL OR created_at < ?)",
        (thread, keep_last, limit, limit),
    )
    return {(row[0], row[1]) for row in rows}


def _delete_checkpoints(connection: sqlite3.Connection, thread: int, doomed: set[tuple[str, str]]) -> None:
    """Delete checkpoints, their writes and nodes, but none that a surviving checkpoint is rebuilt from."""
    doomed = doomed - _needed_by_others(connection, thread, doomed)
    for table in ("checkpoint_writes", "checkpoints"):
        connection.executemany(
            f"DELETE FROM {table} WHERE thread = ? AND checkpoint_ns = ? AND checkpoint_id = ?",
            [(thread, *name) for name in doomed],
        )
    collect_garbage(connection, thread, _roots(connection, thread))
    remaining = connection.execute(
        "SELECT 1 FROM checkpoints WHERE thread = ? UNION ALL SELECT 1 FROM checkpoint_writes WHERE thread = ?",
        (thread, thread),
    ).fetchone()
    if remaining is None:
        _delete_all(connection, thread)


def _needed_by_others(
    connection: sqlite3.Connection, thread: int, doomed: Iterable[tuple[str, str]]
) -> set[tuple[str, str]]:
    """Checkpoints that survivors need to rebuild their delta channels.

    A ``DeltaChannel`` stores its value only now and then; in between, LangGraph replays what the ancestors wrote. The
    metadata counts, per channel, the steps since the value was last stored: as long as a channel is counted, the parent
    is needed as well.
    """
    parents: dict[tuple[str, str], tuple[str, str]] = {}
    counted: dict[tuple[str, str], set[str]] = {}
    for checkpoint_ns, checkpoint_id, parent_id, metadata in connection.execute(
        "SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id, metadata FROM checkpoints WHERE thread = ?",
        (thread,),
    ):
        counters = json.loads(metadata).get("counters_since_delta_snapshot") or {}
        counted[checkpoint_ns, checkpoint_id] = set(counters)
        if parent_id is not None:
            parents[checkpoint_ns, checkpoint_id] = (checkpoint_ns, parent_id)
    needed: set[tuple[str, str]] = set()
    doomed = set(doomed)
    for survivor in counted.keys() - doomed:
        name, channels, seen = survivor, counted[survivor], {survivor}
        while channels and (parent := parents.get(name)) in counted and parent not in seen:
            name = parent
            seen.add(name)
            needed.add(name)
            channels = channels & counted[name]
    return needed & doomed
