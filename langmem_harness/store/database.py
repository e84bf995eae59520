"""The tables of the store in one SQLite file, and the statements that read them.

Every item has one number, ``namespace_id << 28 | place in the namespace``, and every vector one,
``item_id << 10 | position of its text``: both are rowids, so the rows of a namespace lie together on disk and are read
as one range. Vectors lie in a table per index generation (``store_vectors_3``), so that a rebuilt index replaces the
old one in one transaction. ``changed`` numbers every write of the file; the newest number of a namespace is its
generation, by which another process notices what it has not seen.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from langmem_harness.errors import CorruptionError, RecordError
from langmem_harness.store.namespaces import Namespace, decode_namespace, encode_namespace, plan_prefix_range
from langmem_harness.store.provenance import EMPTY_CORPUS, IndexProvenance
from langmem_harness.store.texts import POSITION_BITS

COMPONENT = "store"
LOCAL_BITS = 28
MAX_LOCAL = 1 << LOCAL_BITS
MAX_NAMESPACES = 1 << (63 - LOCAL_BITS - POSITION_BITS)
"""16 million namespaces with 268 million keys each, over the life of a file."""

ABANDONED_SECONDS = 120
"""A rebuild that has not written for so long has died."""

NOTHING_TO_EMBED, EMBEDDED, PENDING = 0, 1, 2

MIGRATIONS = (
    f"""
    CREATE TABLE store_head (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        changed INTEGER NOT NULL,            -- number of the newest write
        generation INTEGER NOT NULL,         -- index in use; 0: none yet
        next_generation INTEGER NOT NULL,
        corpus BLOB NOT NULL,
        touched INTEGER NOT NULL,            -- entries of store_touched
        touched_from INTEGER NOT NULL     -- entries of store_touched up to this number are gone
    );
    INSERT INTO store_head VALUES (1, 0, 0, 1, x'{EMPTY_CORPUS.hex()}', 0, 0);
    CREATE TABLE store_namespaces (
        namespace_id INTEGER PRIMARY KEY AUTOINCREMENT,
        path BLOB NOT NULL UNIQUE,
        next_local INTEGER NOT NULL,
        changed INTEGER NOT NULL
    );
    CREATE INDEX store_namespaces_changed ON store_namespaces (changed);
    CREATE TABLE store_items (
        item_id INTEGER PRIMARY KEY,
        namespace_id INTEGER NOT NULL,
        key BLOB NOT NULL,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        ttl_minutes REAL,
        expires_at INTEGER,
        changed INTEGER NOT NULL,
        indexing TEXT,                       -- the index argument as JSON; NULL: the store's fields
        embedding INTEGER NOT NULL,          -- 0 nothing to embed, 1 embedded, 2 pending
        content_hash BLOB NOT NULL,
        tokenizer INTEGER NOT NULL,          -- which tokenizer made the terms
        terms BLOB NOT NULL,
        value TEXT NOT NULL                  -- last, so that a long one is not read with the rest
    );
    CREATE UNIQUE INDEX store_items_key ON store_items (namespace_id, key);
    CREATE INDEX store_items_changed ON store_items (namespace_id, changed);
    CREATE INDEX store_items_expiry ON store_items (expires_at) WHERE expires_at IS NOT NULL;
    CREATE INDEX store_items_pending ON store_items (item_id) WHERE embedding = 2;
    CREATE TABLE store_touched (         -- items that were deleted, or got their vectors later
        namespace_id INTEGER NOT NULL,
        changed INTEGER NOT NULL,
        item_id INTEGER NOT NULL,
        PRIMARY KEY (namespace_id, changed)
    ) WITHOUT ROWID;
    CREATE TABLE store_indexes (
        generation INTEGER PRIMARY KEY,
        passport TEXT NOT NULL,
        touched_at INTEGER NOT NULL
    );
    """,
)

_LIVE = "(expires_at IS NULL OR expires_at > ?)"
ITEM_COLUMNS = "item_id, namespace_id, key, value, created_at, updated_at, ttl_minutes"


@dataclass(frozen=True, kw_only=True, slots=True)
class Head:
    """The state of the file one transaction sees."""

    changed: int
    generation: int
    next_generation: int
    corpus: bytes
    touched: int
    touched_from: int


class ItemRow(NamedTuple):
    """One stored item: `ITEM_COLUMNS`."""

    item_id: int
    namespace_id: int
    key: bytes
    value: str
    created_at: int
    updated_at: int
    ttl_minutes: float | None


def to_milliseconds(moment: datetime) -> int:
    """Epoch milliseconds."""
    return round(moment.timestamp() * 1000)


def to_datetime(milliseconds: int) -> datetime:
    """Aware UTC time."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def read_head(connection: sqlite3.Connection) -> Head:
    """State of the file in this transaction.

    Raises:
        CorruptionError: The row is gone.
    """
    row = connection.execute(
        "SELECT changed, generation, next_generation, corpus, touched, touched_from FROM store_head"
    ).fetchone()
    if row is None:
        raise CorruptionError("the store's head row is missing; restore the file from a backup")
    return Head(
        changed=row[0],
        generation=row[1],
        next_generation=row[2],
        corpus=row[3],
        touched=row[4],
        touched_from=row[5],
    )


def vectors_table(generation: int) -> str:
    """Name of the table of an index generation; safe as SQL text, it is a number of ours."""
    return f"store_vectors_{int(generation)}"


def create_vectors_table(connection: sqlite3.Connection, generation: int) -> None:
    """A new, empty generation."""
    table = vectors_table(generation)
    connection.execute(
        f"CREATE TABLE {table} (vector_id INTEGER PRIMARY KEY, text_hash BLOB NOT NULL, vector BLOB NOT NULL)"
    )
    connection.execute(f"CREATE INDEX {table}_text ON {table} (text_hash)")


def drop_generation(connection: sqlite3.Connection, generation: int) -> None:
    """A generation with its passport, if it is there."""
    connection.execute(f"DROP TABLE IF EXISTS {vectors_table(generation)}")
    connection.execute("DELETE FROM store_indexes WHERE generation = ?", (generation,))


def drop_abandoned(connection: sqlite3.Connection, head: Head, now_seconds: int) -> bool:
    """Unfinished generations whose process died; whether another one is still being built."""
    others = connection.execute(
        "SELECT generation, touched_at FROM store_indexes WHERE generation != ?", (head.generation,)
    ).fetchall()
    is_building = False
    for generation, touched_at in others:
        if now_seconds - touched_at < ABANDONED_SECONDS:
            is_building = True
        else:
            drop_generation(connection, generation)
    return is_building


def read_passport(connection: sqlite3.Connection, head: Head) -> IndexProvenance | None:
    """Passport of the generation in use, without `chunk_count` (0), which takes a count; None when there is no index.

    Vectors whose passport is missing or damaged must not be compared with anything: they have `IndexProvenance.lost`.
    """
    if not head.generation:
        return None
    row = connection.execute("SELECT passport FROM store_indexes WHERE generation = ?", (head.generation,)).fetchone()
    try:
        known = json.loads(row[0])
        return IndexProvenance.from_dict({**known, "corpus_sha256": head.corpus.hex(), "chunk_count": 0})
    except (RecordError, TypeError, ValueError):
        return IndexProvenance.lost()


def count_vectors(connection: sqlite3.Connection, generation: int) -> int:
    """Vectors of a generation."""
    if not generation:
        return 0
    return int(connection.execute(f"SELECT count(*) FROM {vectors_table(generation)}").fetchone()[0])


def find_vectors(
    connection: sqlite3.Connection, generation: int, text_hashes: Sequence[bytes]
) -> dict[bytes, NDArray[np.float32]]:
    """Stored vectors of texts that some item holds already, by text hash."""
    found: dict[bytes, NDArray[np.float32]] = {}
    for chunk in chunks(text_hashes):
        rows = connection.execute(
            f"SELECT text_hash, vector FROM {vectors_table(generation)} WHERE text_hash IN ({marks(chunk)})", chunk
        )
        for text_hash, vector in rows:
            found[text_hash] = np.frombuffer(vector, dtype="<f4")
    return found


def namespace_clause(prefix: Namespace) -> tuple[str, list[Any]]:
    """A condition on ``namespace_id`` for a prefix, and its parameters; ``"1"`` for the empty prefix."""
    planned = plan_prefix_range(prefix)
    if planned is None:
        return "1", []
    clause = "namespace_id IN (SELECT namespace_id FROM store_namespaces WHERE path = ? OR (path > ? AND path < ?))"
    return clause, list(planned)


def read_namespaces(connection: sqlite3.Connection, prefix: Namespace, since: int = -1) -> list[tuple[int, Namespace]]:
    """Namespaces at or below a prefix that changed after `since`: (number, labels)."""
    clause, parameters = namespace_clause(prefix)
    rows = connection.execute(
        f"SELECT namespace_id, path FROM store_namespaces WHERE changed > ? AND {clause}", [since, *parameters]
    )
    return [(namespace_id, decode_namespace(path)) for namespace_id, path in rows]


def read_live_namespaces(connection: sqlite3.Connection, prefix: Namespace, now: int) -> list[Namespace]:
    """Namespaces at or below a prefix that hold an item which has not expired."""
    clause, parameters = namespace_clause(prefix)
    rows = connection.execute(
        f"SELECT path FROM store_namespaces AS space WHERE {clause} AND EXISTS "
        f"(SELECT 1 FROM store_items WHERE item_id >= space.namespace_id << {LOCAL_BITS} "
        f"AND item_id < (space.namespace_id + 1) << {LOCAL_BITS} AND {_LIVE})",
        [*parameters, now],
    )
    return [decode_namespace(path) for (path,) in rows]


def read_item(connection: sqlite3.Connection, namespace: Namespace, key: bytes, now: int) -> ItemRow | None:
    """One item, unless it has expired."""
    row = connection.execute(
        f"SELECT {ITEM_COLUMNS} FROM store_items "
        "WHERE namespace_id = (SELECT namespace_id FROM store_namespaces WHERE path = ?) "
        f"AND key = ? AND {_LIVE}",
        (encode_namespace(namespace), key, now),
    ).fetchone()
    return None if row is None else ItemRow._make(row)


def read_items(connection: sqlite3.Connection, item_ids: Sequence[int]) -> dict[int, ItemRow]:
    """Items by number; missing ones are left out."""
    found: dict[int, ItemRow] = {}
    for chunk in chunks(item_ids):
        rows = connection.execute(
            f"SELECT {ITEM_COLUMNS} FROM store_items WHERE item_id IN ({marks(chunk)})", list(chunk)
        )
        found.update((row[0], ItemRow._make(row)) for row in rows)
    return found


def read_paths(connection: sqlite3.Connection, namespace_ids: Iterable[int]) -> dict[int, Namespace]:
    """Labels by namespace number."""
    found: dict[int, Namespace] = {}
    for chunk in chunks(sorted(set(namespace_ids))):
        rows = connection.execute(
            f"SELECT namespace_id, path FROM store_namespaces WHERE namespace_id IN ({marks(chunk)})", list(chunk)
        )
        found.update((namespace_id, decode_namespace(path)) for namespace_id, path in rows)
    return found


def iterate_newest(
    connection: sqlite3.Connection, prefix: Namespace, sql: tuple[str, list[Any]], now: int
) -> Iterable[ItemRow]:
    """Items that have not expired, the one written last first."""
    clause, parameters = namespace_clause(prefix)
    narrowed = f" AND {sql[0]}" if sql[0] else ""
    rows = connection.execute(
        f"SELECT {ITEM_COLUMNS} FROM store_items WHERE {clause} AND {_LIVE}{narrowed} ORDER BY changed DESC",
        [*parameters, now, *sql[1]],
    )
    return map(ItemRow._make, rows)


def iterate_values(
    connection: sqlite3.Connection, prefix: Namespace, sql: tuple[str, list[Any]]
) -> Iterable[tuple[int, str]]:
    """(item number, value) of every item that may match, expired ones included, in no order."""
    clause, parameters = namespace_clause(prefix)
    narrowed = f" AND {sql[0]}" if sql[0] else ""
    rows: Iterable[tuple[int, str]] = connection.execute(
        f"SELECT item_id, value FROM store_items WHERE {clause}{narrowed}", [*parameters, *sql[1]]
    )
    return rows


def read_expired(connection: sqlite3.Connection, now: int) -> list[int]:
    """Numbers of items that have expired and were not swept yet."""
    return [row[0] for row in connection.execute("SELECT item_id FROM store_items WHERE expires_at <= ?", (now,))]


def count_pending(connection: sqlite3.Connection) -> int:
    """Items that wait for vectors."""
    return int(connection.execute("SELECT count(*) FROM store_items WHERE embedding = 2").fetchone()[0])


def has_pending(connection: sqlite3.Connection) -> bool:
    """Whether any item waits for vectors."""
    return connection.execute("SELECT 1 FROM store_items WHERE embedding = 2 LIMIT 1").fetchone() is not None


def refresh_expiry(connection: sqlite3.Connection, item_ids: Iterable[int], now: int) -> None:
    """Start the time to live of these items again, unless it has run out."""
    connection.executemany(
        "UPDATE store_items SET expires_at = ? + CAST(ttl_minutes * 60000 AS INTEGER) "
        "WHERE item_id = ? AND ttl_minutes IS NOT NULL AND expires_at > ?",
        [(now, item_id, now) for item_id in item_ids],
    )


def item_range(namespace_id: int) -> tuple[int, int]:
    """First and last item number of a namespace."""
    return namespace_id << LOCAL_BITS, ((namespace_id + 1) << LOCAL_BITS) - 1


def vector_range(first_item: int, last_item: int) -> tuple[int, int]:
    """First and last vector number of a run of items."""
    return first_item << POSITION_BITS, ((last_item + 1) << POSITION_BITS) - 1


def chunks(values: Sequence[Any], size: int = 500) -> Iterable[Sequence[Any]]:
    """Pieces short enough for one statement."""
    for start in range(0, len(values), size):
        yield values[start : start + size]


def marks(values: Sequence[Any]) -> str:
    """As many question marks."""
    return ",".join("?" * len(values))
