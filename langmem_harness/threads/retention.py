"""Keeping, archiving and forgetting threads: prune, archive, restore, erase.

Everything a thread leaves behind is found from its id: checkpoints, log, claims, what the store keeps below
``layout.thread_namespace`` (summaries, raw tool outputs, links), and the memories that cite it.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.store.base import BaseStore, PutOp

from langmem_harness.errors import (
    ConfigurationError,
    CorruptionError,
    NotFoundError,
    RecordError,
    StorageBusyError,
    StorageUnavailableError,
)
from langmem_harness.events import DataErased, EventCallback, emit
from langmem_harness.layout import thread_namespace
from langmem_harness.memory.scope import AGENT_KEYS, DEFAULT_TENANT, TENANT_KEYS, USER_KEYS, MemoryScope
from langmem_harness.receipts import ErasureReceipt
from langmem_harness.sqlite import Database
from langmem_harness.threads import tombstones
from langmem_harness.threads.checkpointer import SqliteCheckpointer
from langmem_harness.threads.dump import dump_lines, load_checkpoints, parse_lines
from langmem_harness.threads.events import TurnEvent
from langmem_harness.threads.log import ThreadLog

_PAGE = 500
_TABLES = {
    "log_events": "SELECT count(*) FROM thread_events WHERE thread_id = ?",
    "checkpoints": "SELECT count(*) FROM checkpoints JOIN thread_keys USING (thread) WHERE thread_id = ?",
    "checkpoint_nodes": "SELECT count(*) FROM checkpoint_nodes JOIN thread_keys USING (thread) WHERE thread_id = ?",
}


class ThreadMemories(Protocol):
    """Forgets what was learnt from threads. Implemented by `LongTermMemory`; `Retention.erase` relies on it."""

    def erase_thread(self, thread_id: str) -> ErasureReceipt:
        """Take a thread out of every memory that cites it."""
        ...

    def forget_all(self, scope: MemoryScope) -> ErasureReceipt:
        """Forget every memory of a scope."""
        ...


@runtime_checkable
class Vacuumable(Protocol):
    """A store that can rewrite its file without what was deleted. Implemented by `FaissStore`."""

    def vacuum(self) -> None:
        """Rewrite the file."""
        ...


@dataclass(frozen=True, kw_only=True)
class PruneReport:
    """What `Retention.prune` did.

    Attributes:
        threads: Threads looked at.
        checkpoints_before: Checkpoints they had.
        checkpoints_after: Checkpoints they have now.
    """

    threads: int
    checkpoints_before: int
    checkpoints_after: int


class Retention:
    """Prunes, archives and erases threads of one place.

    Args:
        checkpointer: The checkpoints.
        thread_log: The log, in the same file.
        store: Where summaries and raw tool outputs of threads are kept, or None.
        memory: Long-term memory that may cite threads, or None.
        on_event: Gets a `DataErased` for every erasure.

    Raises:
        ConfigurationError: Checkpointer and log do not share one `Database`.
    """

    def __init__(
        self,
        *,
        checkpointer: SqliteCheckpointer,
        thread_log: ThreadLog,
        store: BaseStore | None = None,
        memory: ThreadMemories | None = None,
        on_event: EventCallback | None = None,
    ) -> None:
        if checkpointer.database is not thread_log.database:
            raise ConfigurationError(
                "checkpointer and thread_log must share one Database: ThreadLog(checkpointer.database)"
            )
        self._checkpointer = checkpointer
        self._log = thread_log
        self._database = checkpointer.database
        self._store = store
        self._memory = memory
        self._on_event = on_event

    # -- prune --------------------------------------------------------------------------------------------------

    def prune(
        self,
        thread_ids: Sequence[str] | None = None,
        *,
        keep_last: int = 1,
        older_than: datetime | None = None,
    ) -> PruneReport:
        """Delete old checkpoints, and read back that the newest state of every namespace is what it was.

        The log, summaries and raw outputs stay: history can still be read there. What a kept checkpoint needs to
        rebuild a ``DeltaChannel`` stays, too.

        Args:
            thread_ids: Which threads; None for all.
            keep_last: Newest checkpoints to keep in every namespace, 1 or more.
            older_than: Delete only checkpoints made before this aware time; None for any age.

        Raises:
            CorruptionError: A state reads differently afterwards.
            ConfigurationError: An argument is out of range.
        """
        names = list(self._checkpointer.thread_ids() if thread_ids is None else thread_ids)
        before_count = after_count = 0
        for name in names:
            before, count = self._newest(name)
            self._checkpointer.prune([name], keep_last=keep_last, older_than=older_than)
            after, left = self._newest(name)
            before_count, after_count = before_count + count, after_count + left
            for checkpoint_ns, state in before.items():
                # A run may have gone on meanwhile: then the newest is another one, and there is nothing to compare.
                now = after.get(checkpoint_ns)
                if now is None or (now[0] == state[0] and now != state):
                    raise CorruptionError("a checkpoint reads differently after pruning; stop and restore a backup")
        return PruneReport(threads=len(names), checkpoints_before=before_count, checkpoints_after=after_count)

    def _newest(self, thread_id: str) -> tuple[dict[str, tuple[str, Any]], int]:
        """Id and state of the newest checkpoint by namespace, delta channels rebuilt, and the number of checkpoints."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT checkpoint_ns, max(checkpoint_id), count(*) FROM checkpoints JOIN thread_keys USING (thread) "
                "WHERE thread_id = ? GROUP BY checkpoint_ns",
                (thread_id,),
            ).fetchall()
        states = {}
        for checkpoint_ns, checkpoint_id, _ in rows:
            config: RunnableConfig = {
                "configurable": {
                    "thread_id": thread_id,
                    "checkpoint_ns": checkpoint_ns,
                    "checkpoint_id": checkpoint_id,
                }
            }
            found = self._checkpointer.get_tuple(config)
            if found is not None:
                states[checkpoint_ns] = (checkpoint_id, self._state(found))
        return states, sum(row[2] for row in rows)

    def _state(self, found: CheckpointTuple) -> Any:
        channels = sorted(found.metadata.get("counters_since_delta_snapshot") or {})
        history = self._checkpointer.get_delta_channel_history(config=found.config, channels=channels)
        return found.checkpoint, found.pending_writes, history

    # -- archive ------------------------------------------------------------------------------------------------

    def archive(self, thread_id: str, path: str | os.PathLike[str]) -> int:
        """Write a thread's log and checkpoints to a JSON lines file with owner-only permissions.

        The file is written beside its place and moved there when it is complete. Nothing is deleted.

        Returns:
            Number of lines.

        Raises:
            NotFoundError: There is no such thread.
            StorageUnavailableError: The file cannot be written.
        """
        target = Path(path)
        unfinished = target.with_name(target.name + ".unfinished")
        with self._database.read() as connection:
            events = self._log.events(thread_id)
            if not events and not any(count for count in self._left(thread_id).values()):
                raise NotFoundError(f"there is no thread {thread_id!r}")
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

    def restore(self, path: str | os.PathLike[str]) -> str:
        """Put an archived thread back as it was, all or nothing. Doing it twice changes nothing.

        Returns:
            The thread's id.

        Raises:
            CorruptionError: The archive is cut off or was changed.
            RecordError: It is not an archive.
            TurnConflictError: The thread has other log entries already.
            ThreadErasedError: The thread was erased.
            StorageUnavailableError: The file cannot be read.
        """
        try:
            with open(path, encoding="utf-8", newline="\n") as file:
                records = parse_lines(file)
        except OSError as error:
            raise StorageUnavailableError(f"{os.fspath(path)!r} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise RecordError("not an archive of a thread") from error
        thread_id = str(records[0]["thread_id"])
        events = [TurnEvent.from_dict(record["event"]) for record in records if record["kind"] == "event"]
        with self._database.write() as connection:
            tombstones.check_not_erased(connection, thread_id)
            self._log.restore_events(events)
            load_checkpoints(connection, thread_id, records)
            if not self._checkpointer.verify(thread_id).is_intact or not self._log.verify(thread_id).is_intact:
                raise CorruptionError("the archive is not complete; nothing was restored")
        return thread_id

    # -- erase --------------------------------------------------------------------------------------------------

    def erase(
        self, *, thread_id: str | None = None, scope: MemoryScope | None = None, secure: bool = False
    ) -> ErasureReceipt:
        """Erase a thread, or everything of a scope, from every place.

        A tombstone comes first, so that late writes are refused; then memories, summaries and raw outputs, then log and
        checkpoints. Each step can be done again: after a failure, call it again. Erasing what is not there is fine.

        For a scope, its threads are those whose checkpoints name the user in their metadata, which is the case when
        the user comes from ``config["configurable"]``; erase others by their id.

        Args:
            thread_id: The conversation to forget.
            scope: The owner to forget. Exactly one of the two is given.
            secure: Rewrite the files afterwards, so that nothing is left in their free space either. Takes time and
                disk space for one copy of each file, and wants no other process to be reading.

        Returns:
            What was erased, by place, and what a search afterwards still found.

        Raises:
            ConfigurationError: Neither or both are given.
            StorageBusyError: With `secure`, another process kept the files from being rewritten. The data is deleted;
                call again to finish.
        """
        if (thread_id is None) == (scope is None):
            raise ConfigurationError("give either thread_id or scope")
        if thread_id is not None:
            receipt = self._erase_thread(thread_id)
        else:
            owner = cast(MemoryScope, scope)
            receipt = ErasureReceipt(target=owner.to_dict())
            for name in self._threads_of(owner):
                receipt = receipt.merged(self._erase_thread(name))
            if self._memory is not None:
                receipt = receipt.merged(self._memory.forget_all(owner))
        if secure:
            self._rewrite_files()
        emit(DataErased(thread_id=thread_id, receipt_id=receipt.id, counts=receipt.counts), self._on_event)
        return receipt

    def _erase_thread(self, thread_id: str) -> ErasureReceipt:
        with self._database.write() as connection:
            tombstones.bury(connection, thread_id)
        counts: Counter[str] = Counter()
        remaining: Counter[str] = Counter()
        if self._memory is not None:  # first: the links to its memories lie below the thread's namespace
            forgotten = self._memory.erase_thread(thread_id)
            counts.update(forgotten.counts)
            remaining.update(forgotten.remaining)
        if self._store is not None:
            counts.update(self._erase_from_store(self._store, thread_id))
            remaining.update(Counter(place for place, _, _ in self._stored(self._store, thread_id)))
        counts.update(self._left(thread_id))
        with self._database.write() as connection:
            self._log.delete_thread(thread_id)
            if _has_table(connection, "turn_steps"):
                connection.execute("DELETE FROM turn_steps WHERE thread_id = ?", (thread_id,))
            self._checkpointer.delete_thread(thread_id)
        self._checkpointer.forget_cached()
        remaining.update(self._left(thread_id))
        return ErasureReceipt(
            target={"thread_id": thread_id},
            counts={place: count for place, count in counts.items() if count},
            remaining={place: count for place, count in remaining.items() if count},
        )

    def _erase_from_store(self, store: BaseStore, thread_id: str) -> Counter[str]:
        found = list(self._stored(store, thread_id))
        for start in range(0, len(found), _PAGE):
            store.batch([PutOp(namespace, key, None) for _, namespace, key in found[start : start + _PAGE]])
        return Counter(place for place, _, _ in found)

    def _stored(self, store: BaseStore, thread_id: str) -> Iterator[tuple[str, tuple[str, ...], str]]:
        """Place (the label below the thread), namespace and key of everything the store keeps for a thread."""
        prefix = thread_namespace(thread_id)
        offset = 0
        while items := store.search(prefix, limit=_PAGE, offset=offset):
            for item in items:
                place = item.namespace[len(prefix)] if len(item.namespace) > len(prefix) else "items"
                yield place, item.namespace, item.key
            offset += len(items)

    def _left(self, thread_id: str) -> dict[str, int]:
        with self._database.read() as connection:
            return {name: connection.execute(query, (thread_id,)).fetchone()[0] for name, query in _TABLES.items()}

    def _threads_of(self, scope: MemoryScope) -> list[str]:
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT DISTINCT thread_id, metadata FROM checkpoints JOIN thread_keys USING (thread)"
            )
            return sorted({thread_id for thread_id, metadata in rows if _names(json.loads(metadata), scope)})

    def _rewrite_files(self) -> None:
        self._database.vacuum()
        if isinstance(self._store, Vacuumable):
            self._store.vacuum()
        _check_journal_is_empty(self._database)

    # -- async twins --------------------------------------------------------------------------------------------

    async def aprune(
        self,
        thread_ids: Sequence[str] | None = None,
        *,
        keep_last: int = 1,
        older_than: datetime | None = None,
    ) -> PruneReport:
        """Async twin of `prune`."""
        return await asyncio.to_thread(self.prune, thread_ids, keep_last=keep_last, older_than=older_than)

    async def aarchive(self, thread_id: str, path: str | os.PathLike[str]) -> int:
        """Async twin of `archive`."""
        return await asyncio.to_thread(self.archive, thread_id, path)

    async def arestore(self, path: str | os.PathLike[str]) -> str:
        """Async twin of `restore`."""
        return await asyncio.to_thread(self.restore, path)

    async def aerase(
        self, *, thread_id: str | None = None, scope: MemoryScope | None = None, secure: bool = False
    ) -> ErasureReceipt:
        """Async twin of `erase`."""
        return await asyncio.to_thread(self.erase, thread_id=thread_id, scope=scope, secure=secure)


def _names(metadata: Mapping[str, Any], scope: MemoryScope) -> bool:
    """Whether the metadata of a checkpoint says that the run was for exactly this scope."""

    def first(keys: Sequence[str]) -> Any:
        return next((metadata[key] for key in keys if metadata.get(key) is not None), None)

    user, tenant, agent = first(USER_KEYS), first(TENANT_KEYS), first(AGENT_KEYS)
    return (
        user is not None
        and str(user) == scope.user
        and str(DEFAULT_TENANT if tenant is None else tenant) == scope.tenant
        and (None if agent is None else str(agent)) == scope.agent
    )


def _has_table(connection: Any, name: str) -> bool:
    row = connection.execute("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", (name,)).fetchone()
    return row is not None


def _check_journal_is_empty(database: Database) -> None:
    journal = Path(f"{database.location}-wal")
    if not database.in_memory and journal.exists() and journal.stat().st_size > 0:
        raise StorageBusyError(
            f"{database.location}: everything is deleted, but another process is reading and keeps the old journal; "
            "erase again when it is closed"
        )
