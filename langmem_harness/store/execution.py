"""Performs a checked plan against SQLite: one transaction, no embedder, no choice left to make."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from langgraph.store.base import Item

from langmem_harness.sqlite import Database
from langmem_harness.store import database as tables
from langmem_harness.store.keywords import Tokenizer
from langmem_harness.store.namespaces import is_below, select_namespaces
from langmem_harness.store.partition import PartitionCache
from langmem_harness.store.plan import BatchPlan, PlannedGet, PlannedListing, PlannedSearch
from langmem_harness.store.searching import Searcher, SearchSettings, SnapshotMovedError, Vectors
from langmem_harness.store.texts import FieldPaths
from langmem_harness.store.values import decode_key, decode_value
from langmem_harness.store.writer import Embedded, ItemWriter, PlannedPut

_ATTEMPTS = 3  # a snapshot that is still behind then is held by somebody around us and will stay behind


@dataclass(kw_only=True)
class BatchOutcome:
    """Results in the order of the operations, and what the transaction left to do."""

    results: list[Any] = field(default_factory=list)
    to_refresh: list[int] = field(default_factory=list)
    pending: int = 0
    others_wait: bool = False


class Executor:
    """Runs plans.

    Args:
        database: Where.
        paths: The store's fields.
        tokenizer: The store's.
        settings: See `SearchSettings`.
        cache: Partitions of this process.
        has_embedder: Whether a semantic leg can be expected at all.
    """

    def __init__(
        self,
        database: Database,
        *,
        paths: FieldPaths,
        tokenizer: Tokenizer,
        settings: SearchSettings,
        cache: PartitionCache,
        has_embedder: bool,
    ) -> None:
        self._database = database
        self.tokenizer_number = number_of(tokenizer.fingerprint)
        self._searcher = Searcher(
            paths=paths,
            tokenizer=tokenizer,
            tokenizer_number=self.tokenizer_number,
            settings=settings,
            cache=cache,
            has_embedder=has_embedder,
        )

    @property
    def cache(self) -> PartitionCache:
        """Partitions of this process."""
        return self._searcher.cache

    def run(self, plan: BatchPlan, vectors: Vectors, now: int) -> BatchOutcome:
        """All operations in order, in one transaction; a failure leaves nothing of them."""
        is_inside = self._database.writes_in_this_thread()  # the caller's transaction, which may still be undone
        if plan.writes:
            with self._database.write() as connection:
                return self._write(connection, plan, vectors, now, is_private=is_inside)
        for attempt in count():
            try:
                with self._database.read() as connection:
                    outcome = BatchOutcome()
                    for op in plan.operations:
                        is_private = is_inside or attempt >= _ATTEMPTS
                        found = self._read(connection, op, vectors, now, outcome, None, is_private=is_private)
                        outcome.results.append(found)
                    return outcome
            except SnapshotMovedError:
                continue
        raise AssertionError("unreachable: a private partition moves with its transaction")

    def refresh(self, item_ids: Sequence[int], now: int) -> None:
        """Start the time to live of items that were read again."""
        with self._database.write() as connection:
            tables.refresh_expiry(connection, item_ids, now)

    def forget(self) -> None:
        """Drop everything in memory."""
        self._searcher.forget()

    def after_fork(self) -> None:
        """In a child process: see `Searcher.after_fork`."""
        self._searcher.after_fork()

    # -- one operation ------------------------------------------------------------------------------------------

    def _write(
        self, connection: sqlite3.Connection, plan: BatchPlan, vectors: Vectors, now: int, *, is_private: bool
    ) -> BatchOutcome:
        documents = vectors.documents
        if documents.generation != tables.read_head(connection).generation:
            documents = Embedded()  # the index was replaced meanwhile: these items wait for the new one's vectors
        writer = ItemWriter(connection, now=now, tokenizer=self.tokenizer_number, embedded=documents)
        outcome = BatchOutcome()
        for op in plan.operations:
            if isinstance(op, PlannedPut):
                writer.write(op)
                outcome.results.append(None)
            else:
                writer.flush()
                outcome.results.append(self._read(connection, op, vectors, now, outcome, writer, is_private=is_private))
        writer.finish()
        if outcome.to_refresh:
            tables.refresh_expiry(connection, outcome.to_refresh, now)
            outcome.to_refresh = []
        outcome.pending = writer.pending
        outcome.others_wait = tables.has_pending(connection)
        return outcome

    def _read(
        self,
        connection: sqlite3.Connection,
        op: PlannedPut | PlannedGet | PlannedListing | PlannedSearch,
        vectors: Vectors,
        now: int,
        outcome: BatchOutcome,
        writer: ItemWriter | None,
        *,
        is_private: bool,
    ) -> Any:
        match op:
            case PlannedGet():
                row = tables.read_item(connection, op.namespace, op.key, now)
                if row is None:
                    return None
                if op.refresh_ttl and row.ttl_minutes is not None:
                    outcome.to_refresh.append(row.item_id)
                return Item(
                    value=decode_value(row.value),
                    key=decode_key(row.key),
                    namespace=op.namespace,
                    created_at=tables.to_datetime(row.created_at),
                    updated_at=tables.to_datetime(row.updated_at),
                )
            case PlannedListing():
                found = tables.read_live_namespaces(connection, op.prefix, now)
                return select_namespaces(found, op.conditions, max_depth=op.max_depth, limit=op.limit, offset=op.offset)
            case PlannedSearch():
                sees_own_writes = writer is not None and any(
                    is_below(namespace, op.prefix) for namespace in writer.touched
                )
                answer, rows = self._searcher.search(
                    connection, op, vectors, now, is_private=is_private or sees_own_writes
                )
                if op.refresh_ttl:
                    outcome.to_refresh += [row.item_id for row in rows if row.ttl_minutes is not None]
                return answer
        raise AssertionError("unreachable: writes go to the writer")


def number_of(fingerprint: str) -> int:
    """A small number for a tokenizer's fingerprint, for a column of its own in every item."""
    return zlib.crc32(fingerprint.encode())
