"""Puts and deletes inside one write transaction.

Writes are collected and applied together when something is read or the transaction ends, so that a batch costs a few
statements for each namespace instead of a few for each item. The last write of a key wins.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from langmem_harness.errors import ItemValueError
from langmem_harness.store import database as tables
from langmem_harness.store.namespaces import Namespace, encode_namespace
from langmem_harness.store.provenance import add_to_corpus, hash_item
from langmem_harness.store.texts import POSITION_BITS, Indexing

MAX_TOUCHED = 20_000
"""Deletions listed for other processes; beyond that the older half goes, and who has not seen them reads anew."""


class PlannedPut(NamedTuple):
    """A checked put, everything worked out before the transaction; a plain tuple, because a batch makes thousands.

    Attributes:
        namespace: Where.
        key: Encoded key.
        value: Encoded value; None deletes.
        indexing: The ``index`` argument.
        ttl_minutes: Time to live, or None.
        terms: Packed terms of all texts.
        texts: What the embedder reads, one for each indexed text; None for a blank one.
    """

    namespace: Namespace
    key: bytes
    value: str | None
    indexing: Indexing = None
    ttl_minutes: float | None = None
    terms: bytes = b""
    texts: tuple[str | None, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Embedded:
    """Vectors for the texts of a transaction.

    Attributes:
        generation: The index they belong to; 0 for none.
        vectors: (text hash, unit vector) by text; a text that is missing here makes its item wait.
    """

    generation: int = 0
    vectors: Mapping[str, tuple[bytes, NDArray[np.float32]]] = field(default_factory=dict)


class ItemWriter:
    """Collects writes of one transaction.

    Args:
        connection: Inside a write transaction.
        now: Epoch milliseconds, the time of every write.
        tokenizer: Number of the tokenizer that made the terms.
        embedded: Vectors of the planned texts.
    """

    def __init__(self, connection: sqlite3.Connection, *, now: int, tokenizer: int, embedded: Embedded) -> None:
        self._connection = connection
        self._now = now
        self._tokenizer = tokenizer
        self._embedded = embedded
        self._head = tables.read_head(connection)
        self._changed = self._head.changed
        self._waiting: dict[tuple[Namespace, bytes], tuple[PlannedPut, int, bool]] = {}
        self._added: list[bytes] = []
        self._removed: list[bytes] = []
        self._logged = 0
        self.touched: set[Namespace] = set()
        self.pending = 0

    def write(self, put: PlannedPut) -> None:
        """Put or delete, applied with the next `flush`."""
        self._changed += 1
        place = (put.namespace, put.key)
        earlier = self._waiting.pop(place, None)
        # put after delete in one batch is a new item: its created_at starts again
        renewed = earlier is not None and (earlier[2] or earlier[0].value is None)
        self._waiting[place] = (put, self._changed, renewed)
        self.touched.add(put.namespace)

    def flush(self) -> None:
        """Apply what was collected."""
        if not self._waiting:
            return
        groups: dict[Namespace, list[tuple[PlannedPut, int, bool]]] = defaultdict(list)
        for entry in self._waiting.values():
            groups[entry[0].namespace].append(entry)
        self._waiting = {}
        for namespace, entries in groups.items():
            self._apply(namespace, entries)

    def finish(self) -> None:
        """Apply the rest and number the transaction."""
        self.flush()
        if self._changed == self._head.changed:
            return
        corpus = add_to_corpus(self._head.corpus, added=self._added, removed=self._removed)
        touched, pruned = self._head.touched + self._logged, self._head.touched_from
        if touched > MAX_TOUCHED:
            touched, pruned = self._prune_touched()
        self._connection.execute(
            "UPDATE store_head SET changed = ?, corpus = ?, touched = ?, touched_from = ?",
            (self._changed, corpus, touched, pruned),
        )

    def delete_items(self, item_ids: Sequence[int]) -> int:
        """Delete by number (for the sweep); how many were there."""
        deleted = 0
        for chunk in tables.chunks(item_ids):
            rows = self._connection.execute(
                "SELECT item_id, content_hash, embedding, namespace_id FROM store_items "
                f"WHERE item_id IN ({tables.marks(chunk)})",
                list(chunk),
            ).fetchall()
            by_namespace: dict[int, list[tuple[int, bytes, int, int]]] = defaultdict(list)
            for item_id, content_hash, embedding, namespace_id in rows:
                self._changed += 1
                by_namespace[namespace_id].append((item_id, content_hash, embedding, self._changed))
            for namespace_id, doomed in by_namespace.items():
                self._delete(namespace_id, doomed)
            deleted += len(rows)
        return deleted

    def add_vectors(
        self, item_id: int, vectors: Sequence[tuple[int, bytes, NDArray[np.float32]]], *, complete: bool
    ) -> None:
        """Vectors that come later than their item: (position, text hash, vector). The item keeps its place in time."""
        self._changed += 1
        namespace_id = item_id >> tables.LOCAL_BITS
        self._connection.executemany(
            f"INSERT OR REPLACE INTO {tables.vectors_table(self._head.generation)} VALUES (?, ?, ?)",
            [(item_id << POSITION_BITS | position, text, vector.tobytes()) for position, text, vector in vectors],
        )
        if complete:
            self._connection.execute(
                "UPDATE store_items SET embedding = ? WHERE item_id = ?", (tables.EMBEDDED, item_id)
            )
        self._log(namespace_id, [(self._changed, item_id)])

    # -- one namespace ------------------------------------------------------------------------------------------

    def _apply(self, namespace: Namespace, entries: list[tuple[PlannedPut, int, bool]]) -> None:
        row = self._namespace(namespace, create=any(put.value is not None for put, _, _ in entries))
        if row is None:
            return
        namespace_id, next_local = row
        existing = self._existing(namespace_id, [put.key for put, _, _ in entries])
        doomed: list[tuple[int, bytes, int, int]] = []
        rows: list[tuple[Any, ...]] = []
        vectors: list[tuple[int, bytes, bytes]] = []
        outdated: list[int] = []
        path = encode_namespace(namespace)
        for put, changed, renewed in entries:
            found = existing.get(put.key)
            if put.value is None:
                if found is not None:
                    doomed.append((found[0], found[3], found[4], changed))
                continue
            created_at = self._now
            if found is None:
                item_id = namespace_id << tables.LOCAL_BITS | next_local
                next_local += 1
                if next_local > tables.MAX_LOCAL:
                    raise ItemValueError("this namespace has used up its item numbers; start another one")
            else:
                item_id = found[0]
                if not renewed and (found[2] is None or found[2] > self._now):
                    created_at = found[1]
                self._removed.append(found[3])
                if found[4] != tables.NOTHING_TO_EMBED:
                    outdated.append(item_id)
            embedding = self._collect_vectors(put, item_id, vectors)
            rows.append(self._row(put, path, item_id, namespace_id, created_at, changed, embedding))
        self._connection.execute(
            "UPDATE store_namespaces SET next_local = ?, changed = ? WHERE namespace_id = ?",
            (next_local, entries[-1][1], namespace_id),
        )
        if doomed:
            self._delete(namespace_id, doomed)
        self._drop_vectors(outdated)
        if rows:
            self._connection.executemany(
                f"INSERT OR REPLACE INTO store_items VALUES ({tables.marks(rows[0])})",
                rows,
            )
        if vectors:
            self._connection.executemany(
                f"INSERT INTO {tables.vectors_table(self._embedded.generation)} VALUES (?, ?, ?)", vectors
            )

    def _row(
        self,
        put: PlannedPut,
        path: bytes,
        item_id: int,
        namespace_id: int,
        created_at: int,
        changed: int,
        embedding: int,
    ) -> tuple[Any, ...]:
        assert put.value is not None  # noqa: S101 - deletes took another way
        indexing = None if put.indexing is None else json.dumps(put.indexing)
        content_hash = hash_item(path, put.key, put.value, indexing)
        self._added.append(content_hash)
        if embedding == tables.PENDING:
            self.pending += 1
        expires_at = None if put.ttl_minutes is None else self._now + int(put.ttl_minutes * 60_000)
        return (
            item_id,
            namespace_id,
            put.key,
            created_at,
            self._now,
            put.ttl_minutes,
            expires_at,
            changed,
            indexing,
            embedding,
            content_hash,
            self._tokenizer,
            put.terms,
            put.value,
        )

    def _collect_vectors(self, put: PlannedPut, item_id: int, rows: list[tuple[int, bytes, bytes]]) -> int:
        state = tables.NOTHING_TO_EMBED
        for position, text in enumerate(put.texts):
            if text is None:
                continue
            known = self._embedded.vectors.get(text)
            if known is None or not self._embedded.generation:
                state = tables.PENDING
                continue
            rows.append((item_id << POSITION_BITS | position, known[0], known[1].tobytes()))
            state = max(state, tables.EMBEDDED)
        return state

    def _namespace(self, namespace: Namespace, *, create: bool) -> tuple[int, int] | None:
        path = encode_namespace(namespace)
        row: tuple[int, int] | None = self._connection.execute(
            "SELECT namespace_id, next_local FROM store_namespaces WHERE path = ?", (path,)
        ).fetchone()
        if row is not None or not create:
            return row
        number = self._connection.execute(
            "INSERT INTO store_namespaces (path, next_local, changed) VALUES (?, 0, ?)", (path, self._changed)
        ).lastrowid
        assert number is not None  # noqa: S101 - an insert has a row number
        if number >= tables.MAX_NAMESPACES:
            raise ItemValueError("this file has used up its namespace numbers; start another one")
        return number, 0

    def _existing(self, namespace_id: int, keys: list[bytes]) -> dict[bytes, tuple[int, int, int | None, bytes, int]]:
        found: dict[bytes, tuple[int, int, int | None, bytes, int]] = {}
        for chunk in tables.chunks(keys):
            rows = self._connection.execute(
                "SELECT key, item_id, created_at, expires_at, content_hash, embedding FROM store_items "
                f"WHERE namespace_id = ? AND key IN ({tables.marks(chunk)})",
                [namespace_id, *chunk],
            )
            found.update((row[0], row[1:]) for row in rows)
        return found

    def _delete(self, namespace_id: int, doomed: list[tuple[int, bytes, int, int]]) -> None:
        self._connection.executemany("DELETE FROM store_items WHERE item_id = ?", [(entry[0],) for entry in doomed])
        self._drop_vectors([entry[0] for entry in doomed if entry[2] != tables.NOTHING_TO_EMBED])
        self._log(namespace_id, [(changed, item_id) for item_id, _, _, changed in doomed])
        self._removed += [entry[1] for entry in doomed]

    def _log(self, namespace_id: int, entries: list[tuple[int, int]]) -> None:
        self._connection.executemany(
            "INSERT INTO store_touched (namespace_id, changed, item_id) VALUES (?, ?, ?)",
            [(namespace_id, changed, item_id) for changed, item_id in entries],
        )
        self._connection.execute(
            "UPDATE store_namespaces SET changed = max(changed, ?) WHERE namespace_id = ?",
            (entries[-1][0], namespace_id),
        )
        self._logged += len(entries)

    def _drop_vectors(self, item_ids: Iterable[int]) -> None:
        if self._head.generation and item_ids:
            self._connection.executemany(
                f"DELETE FROM {tables.vectors_table(self._head.generation)} WHERE vector_id BETWEEN ? AND ?",
                [tables.vector_range(item_id, item_id) for item_id in item_ids],
            )

    def _prune_touched(self) -> tuple[int, int]:
        (middle,) = self._connection.execute(
            "SELECT changed FROM store_touched ORDER BY changed DESC LIMIT 1 OFFSET ?", (MAX_TOUCHED // 2,)
        ).fetchone()
        self._connection.execute("DELETE FROM store_touched WHERE changed <= ?", (middle,))
        (left,) = self._connection.execute("SELECT count(*) FROM store_touched").fetchone()
        return left, middle
