"""Checking and tidying a store: verify, stats, sweep, vacuum. None of it needs the embedder."""

from __future__ import annotations

import hashlib
import sqlite3
import time
from typing import cast

import numpy as np

from langmem_harness.errors import CorruptionError, LangMemHarnessError
from langmem_harness.sqlite import Database
from langmem_harness.store import database as tables
from langmem_harness.store.execution import Executor
from langmem_harness.store.keywords import Tokenizer
from langmem_harness.store.namespaces import decode_namespace
from langmem_harness.store.plan import plan_stored
from langmem_harness.store.provenance import EMPTY_CORPUS, LOST, IndexProvenance, add_to_corpus, hash_item
from langmem_harness.store.records import StoreReport, StoreStats
from langmem_harness.store.terms import unpack_terms
from langmem_harness.store.texts import POSITION_BITS, FieldPaths, Indexing, unpack_item_terms
from langmem_harness.store.values import parse_indexing
from langmem_harness.store.writer import Embedded, ItemWriter

_MAX_PROBLEMS = 100
_SWEEP_ITEMS = 500
_DAMAGE = (LangMemHarnessError, ValueError, TypeError, AttributeError)
"""What reading a row raises that somebody changed behind our back: SQLite stores any type in any column."""


def sweep(database: Database, now: int) -> int:
    """Delete what has expired, in short transactions; how many items."""
    swept = 0
    while True:
        with database.write() as connection:
            expired = connection.execute(
                "SELECT item_id FROM store_items WHERE expires_at <= ? LIMIT ?", (now, _SWEEP_ITEMS)
            ).fetchall()
            writer = ItemWriter(connection, now=now, tokenizer=0, embedded=Embedded())
            swept += writer.delete_items([item_id for (item_id,) in expired])
            writer.finish()
        if len(expired) < _SWEEP_ITEMS:
            return swept


def vacuum(database: Database) -> None:
    """Forget empty namespaces, deletions and indexes whose rebuild died, and give free pages back to the disk."""
    with database.write() as connection:
        head = tables.read_head(connection)
        tables.drop_abandoned(connection, head, int(time.time()))
        connection.execute(
            "DELETE FROM store_namespaces WHERE NOT EXISTS "
            "(SELECT 1 FROM store_items WHERE store_items.namespace_id = store_namespaces.namespace_id)"
        )
        connection.execute("DELETE FROM store_touched")
        # numbered as a write of its own, so that every partition, here and elsewhere, is read anew
        connection.execute(
            "UPDATE store_head SET changed = changed + 1, touched = 0, touched_from = ?", (head.changed + 1,)
        )
    database.vacuum()


def read_stats(database: Database, executor: Executor, now: int, vector_search: str) -> StoreStats:
    """Sizes, counted in one snapshot."""
    with database.read() as connection:
        head = tables.read_head(connection)
        (items,) = connection.execute("SELECT count(*) FROM store_items").fetchone()
        (expired,) = connection.execute("SELECT count(*) FROM store_items WHERE expires_at <= ?", (now,)).fetchone()
        (namespaces,) = connection.execute(
            "SELECT count(*) FROM store_namespaces WHERE EXISTS "
            "(SELECT 1 FROM store_items WHERE store_items.namespace_id = store_namespaces.namespace_id)"
        ).fetchone()
        vectors = tables.count_vectors(connection, head.generation)
        pending = tables.count_pending(connection)
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        (page_size,) = connection.execute("PRAGMA page_size").fetchone()
    return StoreStats(
        namespaces=namespaces,
        items=items,
        expired=expired,
        vectors=vectors,
        pending_embeddings=pending,
        file_bytes=pages * page_size,
        cached_partitions=executor.cache.count,
        cached_bytes=executor.cache.nbytes,
        vector_search=vector_search,
    )


def read_provenance(database: Database) -> IndexProvenance | None:
    """Passport of the index in use, with its counts; None for a store without vectors.

    Raises:
        CorruptionError: It is lost or damaged.
    """
    with database.read() as connection:
        head = tables.read_head(connection)
        passport = tables.read_passport(connection, head)
        if passport is None:
            return None
        if passport.is_lost:
            raise CorruptionError(LOST)
        body = passport.to_dict()
        body["chunk_count"] = tables.count_vectors(connection, head.generation)
        return IndexProvenance.from_dict(body)


def verify(database: Database, paths: FieldPaths, tokenizer: Tokenizer, tokenizer_number: int) -> StoreReport:
    """Derive again everything that can be derived, in one snapshot, and compare."""
    check = _Check()
    with database.read() as connection:
        for (line,) in connection.execute("PRAGMA integrity_check(20)"):
            if line != "ok":
                check.note(f"SQLite: {line}")
        head = tables.read_head(connection)
        items = _verify_items(connection, head.corpus, head.changed, paths, tokenizer, tokenizer_number, check)
        vectors = _verify_vectors(connection, head, paths, tokenizer, check)
    return StoreReport(items=items, vectors=vectors, problems=tuple(check.problems), problem_count=check.count)


class _Check:
    def __init__(self) -> None:
        self.problems: list[str] = []
        self.count = 0

    def note(self, problem: str) -> None:
        self.count += 1
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(problem)


def _verify_items(
    connection: sqlite3.Connection,
    corpus: bytes,
    changed_head: int,
    paths: FieldPaths,
    tokenizer: Tokenizer,
    tokenizer_number: int,
    check: _Check,
) -> int:
    spaces: dict[int, tuple[bytes, int, int]] = {
        row[0]: row[1:]
        for row in connection.execute("SELECT namespace_id, path, next_local, changed FROM store_namespaces")
    }
    total, count = EMPTY_CORPUS, 0
    rows = connection.execute(
        "SELECT item_id, namespace_id, key, CAST(value AS BLOB), indexing, content_hash, changed, tokenizer, terms, "
        "created_at, updated_at FROM store_items"
    )
    for row in rows:
        count += 1
        item_id, namespace_id, key, blob, indexing, stored, changed, number, terms, created, updated = row
        space = spaces.get(namespace_id)
        if space is None or item_id >> tables.LOCAL_BITS != namespace_id:
            check.note(f"item {item_id}: its namespace is missing or another one")
            continue
        try:
            total = add_to_corpus(total, added=[stored], removed=[])
            if item_id & (tables.MAX_LOCAL - 1) >= space[1] or changed > space[2] or changed > changed_head:
                check.note(f"item {item_id}: its number is ahead of its namespace")
            value = blob.decode()
            if hash_item(space[0], key, value, indexing) != stored:
                check.note(f"item {item_id}: its content is not what was written")
            if updated < created:
                check.note(f"item {item_id}: updated before it was created")
            made = plan_stored(value, _index_of(indexing, terms), paths, tokenizer)[0]
            kept = [unpack_terms(packed) for _, packed in unpack_item_terms(terms)]
            if number == tokenizer_number and [unpack_terms(part) for _, part in unpack_item_terms(made)] != kept:
                check.note(f"item {item_id}: its terms are not those of its value and the store's fields")
        except _DAMAGE as error:
            check.note(f"item {item_id}: cannot be read, {type(error).__name__}")
    for namespace_id, (path, _, _) in spaces.items():
        try:
            decode_namespace(path)
        except _DAMAGE:
            check.note(f"namespace {namespace_id}: its path cannot be read")
    if total != corpus:
        check.note("the corpus hash is not the sum of the items")
    return count


def _index_of(indexing: str | None, terms: bytes) -> Indexing:
    """The fields an item was indexed by: this process may have been told others than the one that wrote it."""
    if indexing is not None:
        return cast(Indexing, parse_indexing(indexing))
    return list(dict.fromkeys(field for field, _ in unpack_item_terms(terms))) or False


def _verify_vectors(
    connection: sqlite3.Connection, head: tables.Head, paths: FieldPaths, tokenizer: Tokenizer, check: _Check
) -> int:
    passport = tables.read_passport(connection, head)
    if passport is None:
        return 0
    if passport.is_lost:
        check.note(LOST)
        return tables.count_vectors(connection, head.generation)
    texts_of: dict[int, list[bytes | None]] = {}
    for item_id, blob, indexing, terms in connection.execute(
        "SELECT item_id, CAST(value AS BLOB), indexing, terms FROM store_items WHERE embedding = 1"
    ):
        try:
            texts = plan_stored(blob.decode(), _index_of(indexing, terms), paths, tokenizer)[1]
        except _DAMAGE:
            continue  # reported with the items
        texts_of[item_id] = [
            None if text is None else hashlib.blake2b(text.encode(), digest_size=16).digest() for text in texts
        ]
    count, seen = 0, dict.fromkeys(texts_of, 0)
    pending = {row[0] for row in connection.execute("SELECT item_id FROM store_items WHERE embedding = 2")}
    for vector_id, text_hash, blob in connection.execute(
        f"SELECT vector_id, text_hash, vector FROM {tables.vectors_table(head.generation)}"
    ):
        count += 1
        item_id, position = vector_id >> POSITION_BITS, vector_id & ((1 << POSITION_BITS) - 1)
        is_whole = isinstance(blob, bytes) and len(blob) == 4 * passport.dims
        vector = np.frombuffer(blob, dtype="<f4") if is_whole else None
        if vector is None or not np.isfinite(vector).all() or abs(float(np.linalg.norm(vector)) - 1) > 1e-3:
            check.note(f"vector {vector_id}: not a unit vector of {passport.dims} numbers; run reindex()")
        if item_id in pending:
            continue
        texts_known = texts_of.get(item_id)
        if texts_known is None:
            check.note(f"vector {vector_id}: its item is gone; run reindex()")
        elif position >= len(texts_known) or texts_known[position] != text_hash:
            check.note(f"vector {vector_id}: made from another text than its item has; run reindex()")
        else:
            seen[item_id] += 1
    for item_id, texts_known in texts_of.items():
        missing = sum(text is not None for text in texts_known) - seen[item_id]
        if missing > 0:
            check.note(f"item {item_id}: {missing} vectors are missing; run reindex()")
    return count
