"""Keeping, archiving and forgetting threads: prune, archive, restore, erase.

Everything a thread leaves behind is found from its id: checkpoints, log, claims, what the store keeps below
``layout.thread_namespace`` (summaries, raw tool outputs, links), and the memories that cite it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.store.base import BaseStore

from langmem_harness.errors import ConfigurationError, CorruptionError
from langmem_harness.events import DataErased, EventCallback, emit
from langmem_harness.memory.scope import MemoryScope
from langmem_harness.receipts import ErasureReceipt
from langmem_harness.threads.archiving import restore_archive, write_archive
from langmem_harness.threads.checkpointer import SqliteCheckpointer
from langmem_harness.threads.erasing import Eraser, ScopeThreads, ThreadMemories
from langmem_harness.threads.facts import as_stored
from langmem_harness.threads.log import ThreadLog


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
        self._eraser = Eraser(checkpointer=checkpointer, thread_log=thread_log, store=store, memory=memory)
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

    def archive(self, thread_id: str, path: str | os.PathLike[str], *, overwrite: bool = False) -> int:
        """Write a thread's log and checkpoints to a JSON lines file with owner-only permissions.

        The file is written beside its place and moved there when it is complete. Nothing is deleted.

        Args:
            thread_id: The conversation.
            path: Where to; its folder must exist.
            overwrite: A file that is there already is replaced: it may be the only copy of a thread.

        Returns:
            Number of lines.

        Raises:
            NotFoundError: There is no such thread.
            IdentityError: The id cannot be stored, so that no thread can have it.
            StorageUnavailableError: The file cannot be written, or is there already.
        """
        return write_archive(
            as_stored(thread_id), path, checkpointer=self._checkpointer, thread_log=self._log, overwrite=overwrite
        )

    def restore(self, path: str | os.PathLike[str]) -> str:
        """Put an archived thread back as it was, all or nothing. Doing it twice changes nothing.

        Into a thread that was pruned, what is missing is put back. A thread that has gone on since it was archived is
        left as it is.

        Returns:
            The thread's id.

        Raises:
            CorruptionError: The archive is cut off or was changed.
            RecordError: It is not an archive.
            TurnConflictError: The thread has other or newer log entries, or checkpoints that are not in the archive.
            ThreadErasedError: The thread was erased.
            StorageUnavailableError: The file cannot be read.
        """
        return restore_archive(path, checkpointer=self._checkpointer, thread_log=self._log).thread_id

    # -- erase --------------------------------------------------------------------------------------------------

    def erase(
        self, *, thread_id: str | None = None, scope: MemoryScope | None = None, secure: bool = False
    ) -> ErasureReceipt:
        """Erase a thread, or everything of a scope, from every place.

        A tombstone comes first, so that late writes are refused; then memories, summaries and raw outputs, then log and
        checkpoints. Each step can be done again: after a failure, call it again. Of a thread id that nobody knows the
        receipt says ``found=False``, and the id stays usable: it may be mistyped.

        For a scope, its threads are those whose runs named it, in their runtime context or their config, and those its
        memories and episodes cite. Threads that other people take part in as well are left: the receipt counts them
        as ``remaining["shared_threads"]``. Threads that name nobody are counted as `unattributed_threads`. `threads_of`
        lists both; erase those by their id.

        Args:
            thread_id: The conversation to forget.
            scope: The owner to forget. Exactly one of the two is given.
            secure: Rewrite the files afterwards, so that nothing is left in their free space either. Takes time and
                disk space for one copy of each file, and wants no other process to be reading.

        Returns:
            What was erased, by place, and what a search afterwards still found.

        Raises:
            ConfigurationError: Neither or both are given; or `secure`, and the store cannot rewrite its file. Nothing
                was deleted.
            IdentityError: The id cannot be stored, so that no thread can have it.
            StorageBusyError: With `secure`, another process kept the files from being rewritten. The data is deleted;
                call again to finish.
        """
        if (thread_id is None) == (scope is None):
            raise ConfigurationError("give either thread_id or scope")
        if secure:
            self._eraser.check_can_rewrite()
        if thread_id is not None:
            receipt = self._eraser.erase_thread(as_stored(thread_id))
        else:
            receipt = self._eraser.erase_scope(cast(MemoryScope, scope))
        if secure:
            self._eraser.rewrite_files()
        if receipt.found:
            emit(DataErased(thread_id=thread_id, receipt_id=receipt.id, counts=receipt.counts), self._on_event)
        return receipt

    def threads_of(self, scope: MemoryScope) -> ScopeThreads:
        """The threads of an owner: what ``erase(scope=...)`` erases, and what it leaves for you to decide."""
        return self._eraser.threads_of(scope)

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

    async def aarchive(self, thread_id: str, path: str | os.PathLike[str], *, overwrite: bool = False) -> int:
        """Async twin of `archive`."""
        return await asyncio.to_thread(self.archive, thread_id, path, overwrite=overwrite)

    async def arestore(self, path: str | os.PathLike[str]) -> str:
        """Async twin of `restore`."""
        return await asyncio.to_thread(self.restore, path)

    async def athreads_of(self, scope: MemoryScope) -> ScopeThreads:
        """Async twin of `threads_of`."""
        return await asyncio.to_thread(self.threads_of, scope)

    async def aerase(
        self, *, thread_id: str | None = None, scope: MemoryScope | None = None, secure: bool = False
    ) -> ErasureReceipt:
        """Async twin of `erase`."""
        return await asyncio.to_thread(self.erase, thread_id=thread_id, scope=scope, secure=secure)
