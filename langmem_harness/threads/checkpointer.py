"""A LangGraph checkpointer over SQLite that serves ``invoke`` and ``ainvoke`` and grows with the thread.

LangGraph's SQLite saver writes the whole state again at every step, so a thread of n messages costs n² bytes. Here a
checkpoint is the name of a tree of content-addressed nodes (`nodes.py`) kept in one table (`blobs.py`): every message
of a thread is stored once, however many checkpoints, pending writes and ``Send`` arguments mention it. That holds for
any graph and any channel type.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Self, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.sqlite import SqliteSaver

from langmem_harness.errors import ConfigurationError
from langmem_harness.sqlite import Database
from langmem_harness.threads import tombstones
from langmem_harness.threads.blobs import CheckpointKey, ensure_thread, insert_missing
from langmem_harness.threads.facts import config_of, created_at_of, namespace_of, owner_of, thread_id_of
from langmem_harness.threads.maintenance import CheckpointReport, Maintenance
from langmem_harness.threads.message_cache import MessageCache
from langmem_harness.threads.nodes import ValueEncoder
from langmem_harness.threads.owners import note_owner
from langmem_harness.threads.reading import CheckpointReader
from langmem_harness.threads.schema import COMPONENT, MIGRATIONS


class SqliteCheckpointer(BaseCheckpointSaver[str]):
    """Checkpoints in one SQLite file; one object for ``invoke``, ``ainvoke`` and every thread of the process.

    Safe to share between threads, event loops and processes. The async methods run the same code in a worker thread;
    a cancelled ``await`` may still finish its write, which is all or nothing and harmless to repeat.

    Args:
        location: Path of the file (its folder must exist), ``":memory:"``, or an open `Database` to share, which then
            stays the caller's to close.
        serde: LangGraph serializer; the default is LangGraph's own. It must be able to write ``bytes``.
        cache_bytes: Encoded size of the messages remembered in this process, 0 or more; 0 remembers nothing.

    Raises:
        SchemaVersionError: The file was written by a newer version of this package.
        StorageUnavailableError: The file cannot be opened, or is new and cannot be written.
        ConfigurationError: The file is one of LangGraph's own SQLite saver, or `cache_bytes` is negative.

    Example:
        >>> checkpointer = SqliteCheckpointer(":memory:")
        >>> list(checkpointer.list(None))
        []
        >>> checkpointer.close()
    """

    def __init__(
        self,
        location: str | os.PathLike[str] | Database,
        *,
        serde: SerializerProtocol | None = None,
        cache_bytes: int = 64 * 2**20,
    ) -> None:
        super().__init__(serde=serde)
        if cache_bytes < 0:
            raise ConfigurationError(f"cache_bytes must be 0 or more, not {cache_bytes!r}")
        self._owns_database = not isinstance(location, Database)
        self._database = location if isinstance(location, Database) else Database(location)
        self._messages = MessageCache(max_bytes=cache_bytes)
        try:
            tombstones.prepare(self._database)
            self._database.migrate(COMPONENT, MIGRATIONS)
        except BaseException:
            self.close()
            raise
        self._maintenance = Maintenance(self._database)

    @property
    def database(self) -> Database:
        """The file, to share with a `ThreadLog`."""
        return self._database

    def close(self) -> None:
        """Forget cached messages and close the file, unless it was given open. Safe to call twice."""
        self._messages.clear()
        if self._owns_database:
            self._database.close()

    def forget_cached(self) -> None:
        """Drop the messages remembered in this process; they are read from the file when they are needed again."""
        self._messages.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    # -- reading ------------------------------------------------------------------------------------------------

    @property
    def _reader(self) -> CheckpointReader:
        return CheckpointReader(self._database, self._messages, self.serde)  # a clone may have another serializer

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint named by the config, or the newest of its thread and namespace; None when there is none.

        Raises:
            CorruptionError: Part of the checkpoint is damaged or missing.
        """
        return self._reader.newest(config)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints that match, newest first. Which ones is decided when iteration starts.

        Args:
            config: Thread, and if given namespace and checkpoint id; None lists every thread.
            filter: Metadata values that must be equal.
            before: Only checkpoints with an id below this config's.
            limit: At most this many; None for all.
        """
        for page in self._reader.pages(config, filter, before, limit):
            yield from page

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Async twin of `list`."""
        pages = self._reader.pages(config, filter, before, limit)
        while (page := await asyncio.to_thread(next, pages, None)) is not None:
            for found in page:
                yield found

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """What the ancestors of a checkpoint wrote to these channels, back to the nearest stored value of each.

        Same answer as LangGraph's default, which reads one ancestor at a time.
        """
        return self._reader.delta_history(config, channels)

    # -- writing ------------------------------------------------------------------------------------------------

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint as a child of the one the config names; the same id again replaces it.

        Whom the run is for (its runtime context, else its config) is noted as a hash, so that `Retention.erase` finds
        all threads of an owner.

        Returns:
            Config of the saved checkpoint.

        Raises:
            ThreadErasedError: The thread was erased.
            StorageError: It could not be written; nothing was.
        """
        thread_id, checkpoint_ns = thread_id_of(config), namespace_of(config)
        encoder = ValueEncoder(self.serde, self._messages)
        root = encoder.encode(checkpoint)
        stored_metadata = get_checkpoint_metadata(config, metadata)
        run_id = stored_metadata.get("run_id")
        owner = owner_of(config, stored_metadata)
        with self._database.write() as connection:
            tombstones.check_not_erased(connection, thread_id)
            thread = ensure_thread(connection, thread_id)
            if owner is not None:
                note_owner(connection, thread, owner)
            insert_missing(connection, thread, root, encoder.node)
            connection.execute(
                "INSERT OR REPLACE INTO checkpoints (thread, checkpoint_ns, checkpoint_id, parent_checkpoint_id, "
                "run_id, created_at, root, metadata) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    thread,
                    checkpoint_ns,
                    checkpoint["id"],
                    get_checkpoint_id(config),
                    None if run_id is None else str(run_id),
                    created_at_of(checkpoint),
                    root,
                    json.dumps(stored_metadata),
                ),
            )
        return config_of(CheckpointKey(thread, thread_id, checkpoint_ns, checkpoint["id"]), checkpoint["id"])

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Save what a task wrote after a checkpoint. A write that is there already stays, except the special ones.

        Raises:
            ThreadErasedError: The thread was erased.
            StorageError: They could not be written; none was.
        """
        replaces = all(channel in WRITES_IDX_MAP for channel, _ in writes)
        placed = [
            (WRITES_IDX_MAP.get(channel, position), channel, value) for position, (channel, value) in enumerate(writes)
        ]
        self._put_writes(config, placed, task_id, task_path, replaces=replaces)

    def put_write_at(
        self, config: RunnableConfig, channel: str, value: Any, task_id: str, task_path: str, position: int
    ) -> None:
        """Save one write under a given position, replacing what is there: for taking over threads of other savers."""
        self._put_writes(config, [(position, channel, value)], task_id, task_path, replaces=True)

    def _put_writes(
        self,
        config: RunnableConfig,
        placed: Sequence[tuple[int, str, Any]],
        task_id: str,
        task_path: str,
        *,
        replaces: bool,
    ) -> None:
        thread_id, checkpoint_ns = thread_id_of(config), namespace_of(config)
        encoder = ValueEncoder(self.serde, self._messages)
        encoded = [(position, channel, encoder.encode(value)) for position, channel, value in placed]
        with self._database.write() as connection:
            tombstones.check_not_erased(connection, thread_id)
            thread = ensure_thread(connection, thread_id)
            for position, channel, root in encoded:
                insert_missing(connection, thread, root, encoder.node)
                connection.execute(
                    f"INSERT OR {'REPLACE' if replaces else 'IGNORE'} INTO checkpoint_writes (thread, checkpoint_ns, "
                    "checkpoint_id, task_id, task_path, idx, channel, root) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        thread,
                        checkpoint_ns,
                        str(config["configurable"]["checkpoint_id"]),
                        task_id,
                        task_path,
                        position,
                        channel,
                        root,
                    ),
                )

    def get_next_version(self, current: str | None, channel: None) -> str:
        """The version after this one, as LangGraph's SQLite saver counts: so imported threads go on."""
        return SqliteSaver.get_next_version(cast(SqliteSaver, self), current, channel)

    # -- whole threads ------------------------------------------------------------------------------------------

    def delete_thread(self, thread_id: str) -> None:
        """Delete every checkpoint and write of a thread. An unknown thread is fine."""
        self._maintenance.delete_thread(str(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints made by these runs, with their writes.

        What a surviving checkpoint needs to rebuild a ``DeltaChannel`` stays.
        """
        self._maintenance.delete_for_runs([str(run_id) for run_id in run_ids])

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy every checkpoint and write of a thread to another. An unknown source copies nothing.

        Raises:
            ThreadErasedError: The target was erased.
        """
        self._maintenance.copy_thread(str(source_thread_id), str(target_thread_id))

    def prune(
        self,
        thread_ids: Sequence[str],
        *,
        strategy: str = "keep_latest",
        keep_last: int = 1,
        older_than: datetime | None = None,
    ) -> None:
        """Delete old checkpoints of these threads.

        Args:
            thread_ids: The threads.
            strategy: ``"keep_latest"``, or ``"delete"`` for all checkpoints.
            keep_last: Newest checkpoints to keep in every namespace, 1 or more.
            older_than: Delete only checkpoints made before this aware time; None for any age.

        What a kept checkpoint needs to rebuild a ``DeltaChannel`` stays as well.

        Raises:
            ConfigurationError: Unknown strategy, `keep_last` below 1, or a time without time zone.
        """
        self._maintenance.prune(thread_ids, strategy=strategy, keep_last=keep_last, older_than=older_than)

    def thread_ids(self) -> Sequence[str]:
        """Every thread that has a checkpoint, in order of first use."""
        return list(self._maintenance.checkpoint_counts())

    def checkpoint_counts(self) -> Mapping[str, int]:
        """Every thread that has a checkpoint, in order of first use, with the number of its checkpoints."""
        return self._maintenance.checkpoint_counts()

    def verify(self, thread_id: str | None = None) -> CheckpointReport:
        """Re-derive the name of every stored node and follow every reference, of one thread or of all."""
        return self._maintenance.verify(thread_id)

    # -- async twins --------------------------------------------------------------------------------------------

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Async twin of `get_tuple`."""
        return await asyncio.to_thread(self.get_tuple, config)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Async twin of `get_delta_channel_history`."""
        return await asyncio.to_thread(self.get_delta_channel_history, config=config, channels=channels)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Async twin of `put`."""
        return await asyncio.to_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Async twin of `put_writes`."""
        await asyncio.to_thread(self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        """Async twin of `delete_thread`."""
        await asyncio.to_thread(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Async twin of `delete_for_runs`."""
        await asyncio.to_thread(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Async twin of `copy_thread`."""
        await asyncio.to_thread(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(
        self,
        thread_ids: Sequence[str],
        *,
        strategy: str = "keep_latest",
        keep_last: int = 1,
        older_than: datetime | None = None,
    ) -> None:
        """Async twin of `prune`."""
        await asyncio.to_thread(self.prune, thread_ids, strategy=strategy, keep_last=keep_last, older_than=older_than)

    async def averify(self, thread_id: str | None = None) -> CheckpointReport:
        """Async twin of `verify`."""
        return await asyncio.to_thread(self.verify, thread_id)

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> BaseCheckpointSaver[str]:
        """The same checkpointer, whose serializer may also rebuild these types."""
        return super().with_allowlist(extra_allowlist)
