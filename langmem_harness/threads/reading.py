"""Reading checkpoints back: one, a list of them, and what delta channels are rebuilt from.

Rows and nodes are fetched in one read transaction and decoded after it, so that a slow reader holds nobody up.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    PendingWrite,
    get_checkpoint_id,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.sqlite.utils import search_where

from langmem_harness.sqlite import Database
from langmem_harness.threads.blobs import CheckpointKey, CheckpointRow, find_thread, load_nodes, read_rows
from langmem_harness.threads.facts import config_of, namespace_of, thread_id_of
from langmem_harness.threads.message_cache import MessageCache
from langmem_harness.threads.nodes import Node, ValueDecoder

_PAGE = 32  # checkpoints decoded at a time while listing


class CheckpointReader:
    """Reads the tables of a checkpointer.

    Args:
        database: The file.
        messages: Messages this process knows already.
        serde: What the values were written with.
    """

    def __init__(self, database: Database, messages: MessageCache, serde: SerializerProtocol) -> None:
        self._database = database
        self._messages = messages
        self._serde = serde

    def newest(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint named by the config, or the newest of its thread and namespace; None when there is none."""
        thread_id, checkpoint_ns = thread_id_of(config), namespace_of(config)
        with self._database.read() as connection:
            thread = find_thread(connection, thread_id)
            if thread is None:
                return None
            checkpoint_id = get_checkpoint_id(config) or _newest_id(connection, thread, checkpoint_ns)
            if checkpoint_id is None:
                return None
            found = self._read(connection, [CheckpointKey(thread, thread_id, checkpoint_ns, str(checkpoint_id))])
        return next(self._decode(*found), None)

    def pages(
        self,
        config: RunnableConfig | None,
        filter: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> Iterator[Sequence[CheckpointTuple]]:
        """Checkpoints that match, newest first, a page at a time."""
        where, values = search_where(config, filter, before)
        query = (
            "SELECT thread, thread_id, checkpoint_ns, checkpoint_id FROM checkpoints JOIN thread_keys USING (thread) "
            f"{where} ORDER BY checkpoint_id DESC, thread_id, checkpoint_ns LIMIT ?"
        )
        with self._database.read() as connection:
            keys = [
                CheckpointKey(*row)
                for row in connection.execute(query, (*values, -1 if limit is None else max(0, limit)))
            ]
        for start in range(0, len(keys), _PAGE):
            with self._database.read() as connection:
                found = self._read(connection, keys[start : start + _PAGE])
            yield tuple(self._decode(*found))

    def _read(
        self, connection: sqlite3.Connection, keys: Sequence[CheckpointKey]
    ) -> tuple[Sequence[CheckpointRow], dict[int, dict[bytes, Node]]]:
        """Rows and nodes of checkpoints, in one read transaction; decoding happens after it."""
        rows = read_rows(connection, keys)
        nodes: dict[int, dict[bytes, Node]] = {}
        for thread in {row.key.thread for row in rows}:
            roots = [root for row in rows if row.key.thread == thread for root in row.roots()]
            nodes[thread] = load_nodes(connection, thread, roots, self._messages.__contains__)
        return rows, nodes

    def _decoder(self, thread: int, nodes: Mapping[bytes, Node]) -> ValueDecoder:
        def fetch(name: bytes) -> Node | None:
            if (node := nodes.get(name)) is not None:
                return node
            # The cache had it while the nodes were read, and dropped it since.
            with self._database.read() as connection:
                return load_nodes(connection, thread, [name], lambda _: False).get(name)

        return ValueDecoder(self._serde, self._messages, fetch)

    def _decode(
        self, rows: Sequence[CheckpointRow], nodes: Mapping[int, Mapping[bytes, Node]]
    ) -> Iterator[CheckpointTuple]:
        for row in rows:
            decoder = self._decoder(row.key.thread, nodes[row.key.thread])
            yield CheckpointTuple(
                config=config_of(row.key, row.key.checkpoint_id),
                checkpoint=cast(Checkpoint, decoder.decode(row.root)),
                metadata=cast(CheckpointMetadata, json.loads(row.metadata)),
                parent_config=config_of(row.key, row.parent_checkpoint_id) if row.parent_checkpoint_id else None,
                pending_writes=[(write.task_id, write.channel, decoder.decode(write.root)) for write in row.writes],
            )

    def delta_history(self, config: RunnableConfig, channels: Sequence[str]) -> Mapping[str, DeltaChannelHistory]:
        """What the ancestors of a checkpoint wrote to these channels, back to the nearest stored value of each."""
        newest_first: dict[str, list[PendingWrite]] = {channel: [] for channel in channels}
        seeds: dict[str, Any] = {}
        remaining = set(channels)
        for ancestor in self._ancestors(config) if channels else ():
            for write in reversed(ancestor.pending_writes or []):
                if write[1] in remaining:
                    newest_first[write[1]].append(write)
            values = ancestor.checkpoint["channel_values"]
            for channel in remaining & values.keys():
                seeds[channel] = values[channel]
            remaining -= values.keys()
            if not remaining:
                break
        result: dict[str, DeltaChannelHistory] = {}
        for channel in channels:
            result[channel] = {"writes": newest_first[channel][::-1]}
            if channel in seeds:
                result[channel]["seed"] = seeds[channel]
        return result

    def _ancestors(self, config: RunnableConfig) -> Iterator[CheckpointTuple]:
        """Ancestors of a checkpoint, nearest first, read a page at a time."""
        thread_id, checkpoint_ns = thread_id_of(config), namespace_of(config)
        with self._database.read() as connection:
            thread = find_thread(connection, thread_id)
            if thread is None:
                return
            chain = _parent_chain(
                connection,
                thread,
                checkpoint_ns,
                get_checkpoint_id(config) or _newest_id(connection, thread, checkpoint_ns),
            )
        for start in range(0, len(chain), _PAGE):
            keys = [CheckpointKey(thread, thread_id, checkpoint_ns, name) for name in chain[start : start + _PAGE]]
            with self._database.read() as connection:
                found = self._read(connection, keys)
            yield from self._decode(*found)


def _newest_id(connection: sqlite3.Connection, thread: int, checkpoint_ns: str) -> str | None:
    row = connection.execute(
        "SELECT max(checkpoint_id) FROM checkpoints WHERE thread = ? AND checkpoint_ns = ?", (thread, checkpoint_ns)
    ).fetchone()
    return cast("str | None", row[0])


def _parent_chain(
    connection: sqlite3.Connection, thread: int, checkpoint_ns: str, checkpoint_id: str | None
) -> Sequence[str]:
    """Ids of the ancestors of a checkpoint, nearest first, ending where a parent is gone or comes again."""
    chain: list[str] = []
    seen: set[str | None] = {None}
    while checkpoint_id not in seen:
        seen.add(checkpoint_id)
        row = connection.execute(
            "SELECT parent_checkpoint_id FROM checkpoints WHERE thread = ? AND checkpoint_ns = ? AND checkpoint_id = ?",
            (thread, checkpoint_ns, checkpoint_id),
        ).fetchone()
        if row is None:
            break
        if checkpoint_id is not None and len(seen) > 2:
            chain.append(checkpoint_id)
        checkpoint_id = row[0]
    return chain
