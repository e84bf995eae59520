"""Answers one search inside a transaction: which vector index may answer, which partition, which rows of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from langmem_harness.store import database as tables
from langmem_harness.store.database import Head, ItemRow
from langmem_harness.store.keywords import KeywordIndex, Tokenizer
from langmem_harness.store.namespaces import Namespace
from langmem_harness.store.partition import Partition, PartitionCache
from langmem_harness.store.plan import PlannedSearch, plan_stored
from langmem_harness.store.provenance import IndexProvenance
from langmem_harness.store.ranking import plan_fetch_k
from langmem_harness.store.records import LegScore, RecallItem, Retrieval, ScoreKind
from langmem_harness.store.retrieval import Question, search_partition
from langmem_harness.store.texts import FieldPaths
from langmem_harness.store.values import decode_key, decode_value, parse_indexing
from langmem_harness.store.vectors import VectorIndex
from langmem_harness.store.writer import Embedded


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """What a store was opened with.

    Attributes:
        dense_weight: Share of the semantic leg in fused scores.
        k1: BM25.
        b: BM25.
        exact_limit: Rows below which the semantic leg is exact.
    """

    dense_weight: float
    k1: float
    b: float
    exact_limit: int


class Model(NamedTuple):
    """The embedder as far as comparing goes: None for a store without one, or one that did not answer yet."""

    name: str
    digest: str
    dims: int


@dataclass(frozen=True, kw_only=True)
class Vectors:
    """What embedding gave for a batch.

    Attributes:
        documents: Vectors of item texts.
        queries: Unit vector by query text; a missing one means the semantic leg has nothing to ask with.
        problem: Why queries are missing.
        model: The embedder that made them.
    """

    documents: Embedded = field(default_factory=Embedded)
    queries: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    problem: str | None = None
    model: Model | None = None


@dataclass(frozen=True, kw_only=True)
class SearchOutcome:
    """One answered search."""

    items: list[RecallItem]
    retrieval: Retrieval
    legs: Mapping[str, int] = field(default_factory=dict)
    degraded: str | None = None


class SnapshotMovedError(Exception):
    """Another thread moved the partition past this transaction's snapshot."""


class Searcher:
    """Answers searches from the partitions of this process.

    Args:
        paths: The store's fields.
        tokenizer: For queries, and for stored terms of another tokenizer.
        tokenizer_number: Its number.
        settings: See `SearchSettings`.
        cache: Partitions of this process.
        has_embedder: Whether a semantic leg can be expected at all.
    """

    def __init__(
        self,
        *,
        paths: FieldPaths,
        tokenizer: Tokenizer,
        tokenizer_number: int,
        settings: SearchSettings,
        cache: PartitionCache,
        has_embedder: bool,
    ) -> None:
        self.cache = cache
        self._paths = paths
        self._tokenizer = tokenizer
        self._tokenizer_number = tokenizer_number
        self._settings = settings
        self._has_embedder = has_embedder
        self._passports: dict[int, IndexProvenance | None] = {}
        self._mismatches: dict[tuple[int, Model], str | None] = {}

    def forget(self) -> None:
        """Drop everything in memory."""
        self._passports, self._mismatches = {}, {}
        self.cache.clear()

    def after_fork(self) -> None:
        """In a child process: the parent's partitions may be locked by threads that are not here."""
        self.cache = PartitionCache(self.cache.max_bytes)

    def search(
        self,
        connection: sqlite3.Connection,
        op: PlannedSearch,
        vectors: Vectors,
        now: int,
        *,
        is_private: bool,
    ) -> tuple[SearchOutcome, list[ItemRow]]:
        """The answer, and the rows it was made of.

        Args:
            connection: Inside a transaction.
            op: What is asked.
            vectors: Vectors of the queries.
            now: Epoch milliseconds.
            is_private: Whether this transaction sees what others must not: uncommitted rows would stay in the shared
                partition after a rollback.

        Raises:
            SnapshotMovedError: The shared partition is ahead of this transaction; ask again in a newer one.
        """
        if op.query is None:
            rows = self._newest(connection, op, now)
            namespaces = tables.read_paths(connection, (row.namespace_id for row in rows))
            items = _items(namespaces, rows, [(None, {})] * len(rows), "recent", None, None)
            return SearchOutcome(items=items, retrieval="recent"), rows
        head = tables.read_head(connection)
        generation, dims, problem = self._choose_index(connection, head, op, vectors)
        if is_private:
            partition = self._new_partition(op.prefix, generation, dims)
            partition.catch_up(connection, head)
            return self._ask(connection, partition, op, vectors, problem, now)
        partition = self.cache.get(op.prefix, generation, lambda: self._new_partition(op.prefix, generation, dims))
        needs_terms = op.mode != "semantic" or generation == 0
        while True:
            with partition.lock.read():
                if partition.seen > head.changed:
                    raise SnapshotMovedError
                if partition.seen == head.changed and not (needs_terms and partition.has_unread_terms):
                    return self._ask(connection, partition, op, vectors, problem, now)
            with partition.lock.write():
                if partition.seen < head.changed:
                    partition.catch_up(connection, head)
                if needs_terms and partition.has_unread_terms:
                    partition.read_terms()
            self.cache.note_size(partition)

    def _choose_index(
        self, connection: sqlite3.Connection, head: Head, op: PlannedSearch, vectors: Vectors
    ) -> tuple[int, int, str | None]:
        """Vector index that may answer (0: none), its vectors' length, and why a wanted semantic leg is missing."""
        if op.text is None:
            return 0, 0, None
        if not self._has_embedder:
            return 0, 0, "the store has no embedder" if op.mode == "semantic" else None
        if op.text not in vectors.queries or vectors.model is None:
            return 0, 0, vectors.problem or "the embedder gave no usable vector"
        passports, mismatches = self._passports, self._mismatches  # `forget` in another thread replaces them
        if head.generation not in passports:  # what a generation was built from never changes
            passports[head.generation] = tables.read_passport(connection, head)
        passport = passports[head.generation]
        if passport is None:
            return 0, 0, None
        compared = (head.generation, vectors.model)
        if compared not in mismatches:
            mismatches[compared] = passport.find_mismatch(
                model_digest=vectors.model.digest, embedding_model=vectors.model.name, dims=vectors.model.dims
            )
        mismatch = mismatches[compared]
        return (head.generation, passport.dims, None) if mismatch is None else (0, 0, mismatch)

    def _new_partition(self, prefix: Namespace, generation: int, dims: int) -> Partition:
        return Partition(
            prefix,
            generation=generation,
            vectors=VectorIndex(dims, exact_limit=self._settings.exact_limit),
            keywords=KeywordIndex(self._settings.k1, self._settings.b),
            tokenizer=self._tokenizer_number,
            terms_again=self._terms_again,
        )

    def _terms_again(self, connection: sqlite3.Connection, item_id: int) -> bytes:
        value, indexing = connection.execute(
            "SELECT value, indexing FROM store_items WHERE item_id = ?", (item_id,)
        ).fetchone()
        return plan_stored(value, parse_indexing(indexing), self._paths, self._tokenizer)[0]

    def _ask(
        self,
        connection: sqlite3.Connection,
        partition: Partition,
        op: PlannedSearch,
        vectors: Vectors,
        problem: str | None,
        now: int,
    ) -> tuple[SearchOutcome, list[ItemRow]]:
        if partition.has_unread_terms and (op.mode != "semantic" or not partition.generation):
            partition.read_terms()  # a private partition: nobody else has it
        assert op.query is not None  # noqa: S101 - the caller checked
        vector = vectors.queries.get(op.text) if op.text is not None and partition.generation else None
        by_words = op.mode != "semantic" or vector is None
        question = Question(
            limit=op.offset + op.limit,
            vector=vector,
            terms=self._tokenizer.query_terms(op.query) if by_words else None,
            dense_weight=self._settings.dense_weight,
            threshold=op.threshold,
            lambda_mult=op.lambda_mult,
            fetch_k=plan_fetch_k(op.limit, op.fetch_k),
            field_weights=op.field_weights,
        )
        answer = search_partition(partition, question, self._allowed(connection, partition, op, now))
        if problem is None and partition.pending and op.text is not None and self._has_embedder:
            waiting = len(partition.pending)
            problem = f"{waiting} items wait for their vectors" if waiting > 1 else "1 item waits for its vectors"
        page = answer.found[op.offset :]
        stored = tables.read_items(connection, [found.item_id for found in page])
        kept = [found for found in page if found.item_id in stored]
        rows = [stored[found.item_id] for found in kept]
        said = [(found.score, found.legs) for found in kept]
        items = _items(partition.namespaces, rows, said, answer.retrieval, answer.score_kind, problem)
        outcome = SearchOutcome(items=items, retrieval=answer.retrieval, legs=answer.leg_sizes, degraded=problem)
        return outcome, rows

    def _allowed(
        self, connection: sqlite3.Connection, partition: Partition, op: PlannedSearch, now: int
    ) -> NDArray[np.int64] | None:
        """Rows that may answer; None for all."""
        allowed: NDArray[np.int64] | None = None
        if op.predicate is not None:
            candidates = tables.iterate_values(connection, op.prefix, op.sql)
            matching = [item_id for item_id, value in candidates if op.predicate(decode_value(value))]
            allowed = partition.rows_of(matching)
        if partition.mortal:
            expired = partition.mortal.intersection(tables.read_expired(connection, now))
            if expired:
                live = partition.live_rows() if allowed is None else allowed
                allowed = np.setdiff1d(live, partition.rows_of(list(expired)), assume_unique=True)
        return allowed

    def _newest(self, connection: sqlite3.Connection, op: PlannedSearch, now: int) -> list[ItemRow]:
        rows: list[ItemRow] = []
        if not op.limit:
            return rows
        skipped = 0
        for row in tables.iterate_newest(connection, op.prefix, op.sql, now):
            if op.predicate is not None and not op.predicate(decode_value(row.value)):
                continue
            if skipped < op.offset:
                skipped += 1
                continue
            rows.append(row)
            if len(rows) == op.limit:
                break
        return rows


def _items(
    namespaces: Mapping[int, Namespace],
    rows: Sequence[ItemRow],
    said: Sequence[tuple[float | None, Mapping[str, LegScore]]],
    retrieval: Retrieval,
    score_kind: ScoreKind | None,
    degraded: str | None,
) -> list[RecallItem]:
    items: list[RecallItem] = []
    for row, (score, legs) in zip(rows, said, strict=True):
        updated_at = tables.to_datetime(row.updated_at)
        item = RecallItem(
            namespaces[row.namespace_id],
            decode_key(row.key),
            decode_value(row.value),
            updated_at if row.created_at == row.updated_at else tables.to_datetime(row.created_at),
            updated_at,
            score,
            retrieval=retrieval,
            legs=legs,
            score_kind=score_kind,
            degraded=degraded,
        )
        items.append(item)
    return items
