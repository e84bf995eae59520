"""What lies under one namespace prefix, in memory: vectors, postings, and how to catch up with SQLite.

A partition is a cache. It is read from SQLite when it is first searched, remembers the number of the newest write it
has seen, and before each search reads what changed since, whoever wrote it. A search of one user loads that user's rows
and nothing else; a search over a prefix of many namespaces has a partition of its own over all of them.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langmem_harness.store import database as tables
from langmem_harness.store.database import Head
from langmem_harness.store.keywords import KeywordIndex
from langmem_harness.store.namespaces import Namespace
from langmem_harness.store.texts import POSITION_BITS, unpack_items
from langmem_harness.store.values import decode_key
from langmem_harness.store.vectors import VectorIndex

_BYTES_A_ROW = 350  # keys, field names and dictionary entries of one row, measured on CPython 3.11
_BYTES_A_PARTITION = (
    4_500  # an empty one, measured on CPython 3.11: searches of namespaces that do not exist must not add up unseen
)
_MIN_DEAD = 1_000
_COLUMNS = "item_id, key, tokenizer, terms, embedding, ttl_minutes IS NOT NULL"

TermsAgain = Callable[[sqlite3.Connection, int], bytes]
"""Makes the terms of an item anew, when another tokenizer made the stored ones."""


class Partition:
    """Rows of everything at or below a prefix. One row is one indexed text of one item; an item's rows follow each
    other.

    Args:
        prefix: The namespace prefix.
        generation: Vector index to read; 0 for none.
        vectors: Empty, of the right size.
        keywords: Empty.
        tokenizer: Number of the tokenizer in use.
        terms_again: See `TermsAgain`.
    """

    def __init__(
        self,
        prefix: Namespace,
        *,
        generation: int,
        vectors: VectorIndex,
        keywords: KeywordIndex,
        tokenizer: int,
        terms_again: TermsAgain,
    ) -> None:
        self.prefix = prefix
        self.generation = generation
        self.lock = ReadWriteLock()
        self.seen = -1
        self.vectors = vectors
        self._tokenizer = tokenizer
        self._terms_again = terms_again
        self._keywords = keywords
        self._unread_terms: dict[int, bytes] = {}
        self.namespaces: dict[int, Namespace] = {}
        self.item_of: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self.first_row: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self.fields: list[str] = []
        self.order_keys: list[str] = []
        self._rows: dict[int, tuple[int, int]] = {}
        self._live_rows = 0
        self.pending: set[int] = set()
        self.mortal: set[int] = set()
        self.several_texts = False

    def __len__(self) -> int:
        return self._live_rows

    @property
    def nbytes(self) -> int:
        """Memory held, estimated."""
        unread = sum(map(len, self._unread_terms.values()))
        rows = _BYTES_A_ROW * len(self.fields)
        return _BYTES_A_PARTITION + self.vectors.nbytes + self._keywords.nbytes + unread + rows

    @property
    def size(self) -> int:
        """Rows ever added, removed ones included."""
        return len(self.fields)

    def keywords(self) -> KeywordIndex:
        """The postings; call under the write lock first when `has_unread_terms`."""
        return self._keywords

    @property
    def has_unread_terms(self) -> bool:
        """Whether the postings still have to be built: that waits for the first search by words."""
        return bool(self._unread_terms)

    def read_terms(self) -> None:
        """Build the postings."""
        self._keywords.add_packed(list(self._unread_terms), list(self._unread_terms.values()))
        self._unread_terms = {}

    def rows_of(self, item_ids: Sequence[int]) -> NDArray[np.int64]:
        """Rows of these items, ascending; unknown items are left out."""
        spans = [self._rows[item_id] for item_id in item_ids if item_id in self._rows]
        if not self.several_texts:
            return np.sort(np.fromiter((first for first, _ in spans), dtype=np.int64, count=len(spans)))
        return np.sort(np.array([row for first, stop in spans for row in range(first, stop)], dtype=np.int64))

    def live_rows(self) -> NDArray[np.int64]:
        """Every row of an item that is there."""
        return self.rows_of(list(self._rows))

    @property
    def has_dead_rows(self) -> bool:
        """Whether some rows belong to removed items."""
        return self._live_rows != self.size

    # -- catching up --------------------------------------------------------------------------------------------

    def catch_up(self, connection: sqlite3.Connection, head: Head) -> None:
        """Read everything (the first time) or what changed since; call under the write lock.

        Interrupted in the middle, the partition says it has seen nothing and reads everything the next time.
        """
        seen, self.seen = self.seen, -1
        spaces = tables.read_namespaces(connection, self.prefix, seen)
        dead = self.size - self._live_rows
        if seen < 0 or seen < head.touched_from or dead > max(_MIN_DEAD, self._live_rows):
            self._clear()
            spaces = tables.read_namespaces(connection, self.prefix) if seen >= 0 else spaces
            seen = -1
        for namespace_id, namespace in spaces:
            self.namespaces[namespace_id] = namespace
            self._read(connection, namespace_id, seen)
        self.vectors.prepare()
        self.seen = head.changed

    def _clear(self) -> None:
        self.vectors = self.vectors.emptied()
        self._keywords = KeywordIndex(self._keywords.k1, self._keywords.b)
        self._unread_terms = {}
        self.item_of = self.first_row = np.empty(0, dtype=np.int64)
        self.fields, self.order_keys = [], []
        self._rows, self._live_rows = {}, 0
        self.pending, self.mortal = set(), set()
        self.several_texts = False

    def _remove(self, item_id: int) -> None:
        self.pending.discard(item_id)
        self.mortal.discard(item_id)
        first, stop = self._rows.pop(item_id, (0, 0))
        if first == stop:
            return
        if self.generation:
            self.vectors.remove(first, stop)
        for row in range(first, stop):
            if self._unread_terms.pop(row, None) is None:
                self._keywords.remove(row)
        self._live_rows -= stop - first

    def _read(self, connection: sqlite3.Connection, namespace_id: int, seen: int) -> None:
        first, last = tables.item_range(namespace_id)
        if seen < 0:
            found = connection.execute(
                f"SELECT {_COLUMNS} FROM store_items WHERE item_id BETWEEN ? AND ?", (first, last)
            ).fetchall()
        else:
            found = self._find_changed(connection, namespace_id, seen)
        if found:
            vector_ids = self._add_rows(connection, namespace_id, found)
            if self.generation and vector_ids:
                self._add_vectors(connection, vector_ids, whole=(first, last) if seen < 0 else None)

    def _find_changed(self, connection: sqlite3.Connection, namespace_id: int, seen: int) -> list[Any]:
        """Rows written since, and rows that got their vectors since; what they were before is removed."""
        since = (namespace_id, seen)
        changed = connection.execute(
            f"SELECT {_COLUMNS} FROM store_items WHERE namespace_id = ? AND changed > ?", since
        ).fetchall()
        touched = connection.execute(
            "SELECT DISTINCT item_id FROM store_touched WHERE namespace_id = ? AND changed > ?", since
        ).fetchall()
        found = {row[0]: row for row in changed}
        again = [item_id for (item_id,) in touched if item_id not in found]
        for chunk in tables.chunks(again):
            rows = connection.execute(
                f"SELECT {_COLUMNS} FROM store_items WHERE item_id IN ({tables.marks(chunk)})", list(chunk)
            )
            found.update((row[0], row) for row in rows)
        for item_id in (*found, *again):
            self._remove(item_id)
        return list(found.values())

    def _add_rows(self, connection: sqlite3.Connection, namespace_id: int, found: list[Any]) -> list[int]:
        path = "\0".join(self.namespaces[namespace_id])
        stored: list[bytes] = []
        for item_id, _, tokenizer, terms, embedding, is_mortal in found:
            if embedding == tables.PENDING:
                self.pending.add(item_id)
            if is_mortal:
                self.mortal.add(item_id)
            stale = tokenizer != self._tokenizer and terms
            stored.append(self._terms_again(connection, item_id) if stale else terms)
        counts, fields, packed = unpack_items(stored)
        first_row = self.size
        self._unread_terms.update(zip(range(first_row, first_row + len(packed)), packed, strict=True))
        self.fields += fields
        sizes = np.array(counts, dtype=np.int64)
        stops = first_row + np.cumsum(sizes)
        item_ids = np.fromiter((row[0] for row in found), dtype=np.int64, count=len(found))
        spans = zip(item_ids.tolist(), (stops - sizes).tolist(), stops.tolist(), strict=True)
        self._rows.update((item_id, (first, stop)) for item_id, first, stop in spans if stop > first)
        for row, count in zip(found, counts, strict=True):
            if count:
                self.order_keys += [_order_key(decode_key(row[1]), path)] * count
        items, firsts = np.repeat(item_ids, sizes), np.repeat(stops - sizes, sizes)
        positions = np.arange(first_row, first_row + len(packed)) - firsts
        self.several_texts = self.several_texts or bool((sizes > 1).any())
        self._live_rows += len(packed)
        self.item_of = np.concatenate([self.item_of, items])
        self.first_row = np.concatenate([self.first_row, firsts])
        if len(self._keywords) and len(packed) < _MIN_DEAD:
            self.read_terms()
        vector_ids: list[int] = (items << POSITION_BITS | positions).tolist()
        return vector_ids

    def _add_vectors(
        self, connection: sqlite3.Connection, vector_ids: list[int], *, whole: tuple[int, int] | None
    ) -> None:
        table = tables.vectors_table(self.generation)
        stored: list[tuple[int, bytes]] = []
        if whole is not None:
            stored = connection.execute(
                f"SELECT vector_id, vector FROM {table} WHERE vector_id BETWEEN ? AND ?", tables.vector_range(*whole)
            ).fetchall()
        else:
            for chunk in tables.chunks(vector_ids):
                stored += connection.execute(
                    f"SELECT vector_id, vector FROM {table} WHERE vector_id IN ({tables.marks(chunk)})", list(chunk)
                ).fetchall()
        size = 4 * self.vectors.dims
        place = {vector_id: row for row, vector_id in enumerate(vector_ids)}
        usable = [(place[number], vector) for number, vector in stored if number in place and len(vector) == size]
        block = np.zeros((len(vector_ids), self.vectors.dims), dtype=np.float32)
        if usable:
            numbers = np.frombuffer(b"".join(vector for _, vector in usable), dtype="<f4")
            block[[row for row, _ in usable]] = numbers.reshape(len(usable), self.vectors.dims)
        self.vectors.append(block)


def _order_key(key: str, path: str) -> str:
    """Sorts as (key, labels) would; `path` is the labels joined by NUL, which no label holds and which sorts first."""
    escaped = key.replace("\0", "\0\1") if "\0" in key else key
    return f"{escaped}\0\0{path}"


class PartitionCache:
    """Partitions of this process, the least recently used dropped when they outgrow the bound.

    Args:
        max_bytes: Bound of all partitions together. A single larger one is used and not kept.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._partitions: OrderedDict[tuple[Namespace, int], tuple[Partition, int]] = OrderedDict()
        self._lock = threading.Lock()
        self._bytes = 0

    def get(self, prefix: Namespace, generation: int, create: Callable[[], Partition]) -> Partition:
        """The partition of a prefix, new and empty when there is none."""
        place = (prefix, generation)
        with self._lock:
            entry = self._partitions.get(place)
            if entry is None:
                entry = self._partitions[place] = (create(), 0)
            else:
                self._partitions.move_to_end(place)
            return entry[0]

    def note_size(self, partition: Partition) -> None:
        """After a partition grew: keep the bound."""
        place = (partition.prefix, partition.generation)
        size = partition.nbytes
        with self._lock:
            entry = self._partitions.get(place)
            if entry is None or entry[0] is not partition:
                return
            self._bytes += size - entry[1]
            self._partitions[place] = (partition, size)
            while self._bytes > self.max_bytes and self._partitions:
                _, (_, dropped) = self._partitions.popitem(last=False)
                self._bytes -= dropped

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._partitions.clear()
            self._bytes = 0

    @property
    def count(self) -> int:
        """Partitions kept."""
        return len(self._partitions)

    @property
    def nbytes(self) -> int:
        """Their size, estimated."""
        return self._bytes


class ReadWriteLock:
    """Many readers or one writer; a waiting writer goes before new readers."""

    def __init__(self) -> None:
        self._condition = threading.Condition(threading.Lock())
        self._readers = 0
        self._writing = False
        self._waiting = 0

    @contextlib.contextmanager
    def read(self) -> Iterator[None]:
        """Held together with other readers."""
        with self._condition:
            while self._writing or self._waiting:
                self._condition.wait()
            self._readers += 1
        try:
            yield
        finally:
            with self._condition:
                self._readers -= 1
                if not self._readers:
                    self._condition.notify_all()

    @contextlib.contextmanager
    def write(self) -> Iterator[None]:
        """Held alone."""
        with self._condition:
            self._waiting += 1
            try:
                while self._writing or self._readers:
                    self._condition.wait()
            finally:
                self._waiting -= 1
            self._writing = True
        try:
            yield
        finally:
            with self._condition:
                self._writing = False
                self._condition.notify_all()
