"""How texts get their vectors: for a batch, and for a whole new index."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langmem_harness.embeddings.parts import PART_SEPARATOR
from langmem_harness.errors import EmbeddingError, StorageBusyError
from langmem_harness.sqlite import Database
from langmem_harness.store import database as tables
from langmem_harness.store.embedder import EmbedAnswer, EmbedRequest, StoreEmbedder
from langmem_harness.store.keywords import Tokenizer
from langmem_harness.store.plan import plan_stored
from langmem_harness.store.provenance import CHUNKER_VERSION, IndexProvenance
from langmem_harness.store.searching import Model, Vectors
from langmem_harness.store.steps import Call, Steps
from langmem_harness.store.texts import POSITION_BITS, FieldPaths
from langmem_harness.store.values import parse_indexing
from langmem_harness.store.writer import Embedded

Vector = NDArray[np.float32]
Progress = Callable[[int, int], None]
"""Called with (items done, items in all) as `reindex` goes on."""

_BATCH_TEXTS = 256
_BATCH_ITEMS = 64
_CATCH_UP_ROUNDS = 5


def hash_text(text: str) -> bytes:
    """16 bytes that stand for a text in the vector table."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


@dataclass
class _Build:
    """What a reindex has begun, so that it can be taken back wherever it is stopped."""

    generation: int = 0
    is_stopped: bool = False


class Indexer:
    """Gives texts their vectors, over one embedder and one database.

    Args:
        database: Where.
        embedder: The model.
        paths: The store's fields.
        tokenizer: For terms that are made anew.
        tokenizer_number: Its number.
        clock: Aware UTC time.
    """

    def __init__(
        self,
        database: Database,
        embedder: StoreEmbedder,
        *,
        paths: FieldPaths,
        tokenizer: Tokenizer,
        tokenizer_number: int,
        clock: Callable[[], datetime],
    ) -> None:
        self.database = database
        self._embedder = embedder
        self._paths = paths
        self._tokenizer = tokenizer
        self.tokenizer_number = tokenizer_number
        self._clock = clock
        self._known: tuple[int, IndexProvenance] | None = None

    @property
    def model(self) -> Model | None:
        """The embedder, once it has answered the probe."""
        embedder = self._embedder
        if embedder.digest is None or embedder.dims is None:
            return None
        return Model(name=embedder.name, digest=embedder.digest, dims=embedder.dims)

    def prepare(self, documents: Sequence[str], queries: Sequence[str]) -> Steps[Vectors]:
        """Vectors for a batch; whatever the embedder does, there is an answer."""
        if not documents and not queries:
            return Vectors(model=self.model)
        problem = yield from self.probe()
        if problem is not None:
            return Vectors(problem=problem)
        found: dict[str, Vector] = self._embedder.remembered(queries, is_query=True)
        for query in queries:
            if query not in found:
                answer: EmbedAnswer = yield EmbedRequest(texts=(query,), is_query=True)
                found.update(answer.vectors)
                problem = answer.problem or problem
        embedded, document_problem = yield from self.embed(documents)
        return Vectors(documents=embedded, queries=found, problem=problem or document_problem, model=self.model)

    def plan_stored(self, value: str, indexing: str | None) -> tuple[bytes, list[str | None]]:
        """Terms and embeddable texts of a stored item, made anew."""
        return plan_stored(value, parse_indexing(indexing), self._paths, self._tokenizer)

    def probe(self, *, forced: bool = False) -> Steps[str | None]:
        """Find out which model this is, once per process; why it could not be found out, or None."""
        if self._embedder.digest is not None:
            return None
        answer: EmbedAnswer = yield replace(self._embedder.probe_request(), forced=forced)
        return None if self._embedder.digest is not None else answer.problem or "the embedder gave no usable vector"

    def embed(self, texts: Sequence[str], *, forced: bool = False) -> Steps[tuple[Embedded, str | None]]:
        """Vectors of item texts: from memory, from items that hold the same text, from the model."""
        if not texts:
            return Embedded(), None
        hashes = {text: hash_text(text) for text in texts}
        found = self._embedder.remembered(texts, is_query=False)
        missing = [text for text in texts if text not in found]
        generation, stored, problem = yield Call(lambda: self._look_up([hashes[text] for text in missing]))
        if not generation:
            return Embedded(), problem
        found.update((text, stored[hashes[text]]) for text in missing if hashes[text] in stored)
        missing = [text for text in missing if text not in found]
        problem = yield from self._ask(missing, found, forced=forced)
        vectors = {text: (hashes[text], vector) for text, vector in found.items()}
        return Embedded(generation=generation, vectors=vectors), problem

    def _ask(self, texts: Sequence[str], found: dict[str, Vector], *, forced: bool) -> Steps[str | None]:
        problem: str | None = None
        for batch in _batches(texts):
            answer: EmbedAnswer = yield EmbedRequest(texts=batch, forced=forced)
            found.update(answer.vectors)
            problem = answer.problem or problem
            if not answer.vectors:
                break
        return problem

    def _look_up(self, hashes: Sequence[bytes]) -> tuple[int, dict[bytes, Vector], str | None]:
        """Index these texts go into (0: none), and the vectors it has already."""
        model = self.model
        assert model is not None  # noqa: S101 - probed before
        with self.database.read() as connection:
            head = tables.read_head(connection)
            passport = self._passport(connection, head)
            if passport is not None:
                mismatch = passport.find_mismatch(
                    model_digest=model.digest, embedding_model=model.name, dims=model.dims
                )
                if mismatch is None:
                    return head.generation, tables.find_vectors(connection, head.generation, hashes), None
                if tables.count_vectors(connection, head.generation):
                    return 0, {}, mismatch
        return self._begin_first(model), {}, None

    def _passport(self, connection: sqlite3.Connection, head: tables.Head) -> IndexProvenance | None:
        """Those of a generation never change, so the newest is read once."""
        if self._known is None or self._known[0] != head.generation:
            passport = tables.read_passport(connection, head)
            if passport is None:
                return None
            self._known = (head.generation, passport)
        return self._known[1]

    def _begin_first(self, model: Model) -> int:
        """An index for a file that has none, or an empty one of another model."""
        with self.database.write() as connection:
            head = tables.read_head(connection)
            if head.generation:
                if tables.count_vectors(connection, head.generation):
                    return 0  # another process was faster; the next look decides
                tables.drop_generation(connection, head.generation)
            generation = self._create(connection, head.next_generation, model)
            connection.execute("UPDATE store_head SET generation = ?", (generation,))
            return generation

    def _create(self, connection: sqlite3.Connection, generation: int, model: Model) -> int:
        tables.create_vectors_table(connection, generation)
        passport = IndexProvenance(
            corpus_sha256="",
            embedding_model=model.name,
            model_digest=model.digest,
            chunker_version=CHUNKER_VERSION,
            dims=model.dims,
            chunk_count=0,
            built_at=self._clock(),
        )
        connection.execute(
            "INSERT INTO store_indexes VALUES (?, ?, ?)", (generation, json.dumps(passport.to_dict()), _seconds())
        )
        connection.execute("UPDATE store_head SET next_generation = ?", (generation + 1,))
        return generation

    # -- a whole new index --------------------------------------------------------------------------------------

    def reindex(self, progress: Progress | None) -> Steps[int]:
        """Build a complete new index beside the old one and switch in one transaction; how many vectors it has.

        Readers and writers go on meanwhile. What is written during the build is embedded in further rounds; what is
        left then waits as pending.

        Raises:
            EmbeddingError: The embedder failed. The old index is still in use, nothing changed.
            StorageBusyError: Another process builds one.
        """
        problem = yield from self.probe(forced=True)
        model = self.model
        if problem is not None or model is None:
            raise EmbeddingError(f"reindex needs the embedder: {problem}")
        build = _Build()
        try:
            generation, total = yield Call(lambda: self._begin_build(model, build))
            seen, done = -1, 0
            incomplete: set[int] = set()
            for _ in range(_CATCH_UP_ROUNDS):
                last = -1
                upto = yield Call(self._changed)
                while True:
                    rows = yield Call(partial(self._read_changed, seen, last))
                    if not rows:
                        break
                    last = rows[-1][0]
                    incomplete -= {row[0] for row in rows}
                    incomplete |= yield from self._build(generation, rows)
                    done += len(rows)
                    if progress is not None:
                        progress(min(done, total), total)
                if upto == seen or (yield Call(self._changed)) == upto:
                    seen = upto
                    break
                seen = upto
            count: int = yield Call(lambda: self._switch(generation, seen, incomplete))
        except BaseException:
            build.is_stopped = True
            with self.database.write() as connection:
                if build.generation and tables.read_head(connection).generation != build.generation:
                    tables.drop_generation(connection, build.generation)  # not switched to yet
            raise
        return count

    def _begin_build(self, model: Model, build: _Build) -> tuple[int, int]:
        with self.database.write() as connection:
            if build.is_stopped:  # cancelled before this thread got its turn; nobody waits for the answer
                return 0, 0
            head = tables.read_head(connection)
            if tables.drop_abandoned(connection, head, _seconds()):
                raise StorageBusyError("another process is rebuilding the index; try again when it is done")
            (total,) = connection.execute("SELECT count(*) FROM store_items").fetchone()
            build.generation = self._create(connection, head.next_generation, model)
            return build.generation, total

    def _changed(self) -> int:
        with self.database.read() as connection:
            return tables.read_head(connection).changed

    def _read_changed(self, seen: int, after: int) -> list[Any]:
        with self.database.read() as connection:
            return connection.execute(
                "SELECT item_id, changed, value, indexing FROM store_items "
                "WHERE item_id > ? AND changed > ? ORDER BY item_id LIMIT ?",
                (after, seen, _BATCH_ITEMS),
            ).fetchall()

    def _build(self, generation: int, rows: list[Any]) -> Steps[set[int]]:
        plans = [(item_id, changed, *self.plan_stored(value, indexing)) for item_id, changed, value, indexing in rows]
        texts = list(dict.fromkeys(text for plan in plans for text in plan[3] if text is not None))
        found: dict[str, Vector] = {}
        problem = yield from self._ask(texts, found, forced=True)
        if len(found) < len(texts) and not found:
            raise EmbeddingError(f"reindex stopped, the old index is still in use: {problem}")
        yield Call(lambda: self._keep_built(generation, plans, found))
        return {plan[0] for plan in plans if any(text is not None and text not in found for text in plan[3])}

    def _keep_built(self, generation: int, plans: list[Any], found: dict[str, Vector]) -> None:
        table = tables.vectors_table(generation)
        with self.database.write() as connection:
            for item_id, changed, terms, texts in plans:
                connection.execute(
                    f"DELETE FROM {table} WHERE vector_id BETWEEN ? AND ?", tables.vector_range(item_id, item_id)
                )
                connection.executemany(
                    f"INSERT INTO {table} VALUES (?, ?, ?)",
                    [
                        (item_id << POSITION_BITS | position, hash_text(text), found[text].tobytes())
                        for position, text in enumerate(texts)
                        if text is not None and text in found
                    ],
                )
                connection.execute(
                    "UPDATE store_items SET terms = ?, tokenizer = ? WHERE item_id = ? AND changed = ?",
                    (terms, self.tokenizer_number, item_id, changed),
                )
            connection.execute("UPDATE store_indexes SET touched_at = ? WHERE generation = ?", (_seconds(), generation))

    def _switch(self, generation: int, seen: int, incomplete: set[int]) -> int:
        table = tables.vectors_table(generation)
        with self.database.write() as connection:
            head = tables.read_head(connection)
            connection.execute(
                f"DELETE FROM {table} WHERE (vector_id >> {POSITION_BITS}) NOT IN "
                "(SELECT item_id FROM store_items WHERE changed <= ?)",
                (seen,),
            )
            built = f"(SELECT DISTINCT vector_id >> {POSITION_BITS} FROM {table})"
            old = "UPDATE store_items SET embedding = ? WHERE changed <= ? AND embedding != ?"
            connection.execute(f"{old} AND item_id IN {built}", (tables.EMBEDDED, seen, tables.EMBEDDED))
            connection.execute(
                f"{old} AND item_id NOT IN {built}", (tables.NOTHING_TO_EMBED, seen, tables.NOTHING_TO_EMBED)
            )
            connection.executemany(
                "UPDATE store_items SET embedding = ? WHERE item_id = ? AND changed <= ?",
                [(tables.PENDING, item_id, seen) for item_id in incomplete],
            )
            connection.execute(
                "UPDATE store_items SET embedding = ? WHERE changed > ? AND embedding = ?",
                (tables.PENDING, seen, tables.EMBEDDED),
            )
            connection.execute("UPDATE store_head SET generation = ?", (generation,))
            if head.generation:
                tables.drop_generation(connection, head.generation)
            return tables.count_vectors(connection, generation)


def _batches(texts: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Texts for one call of the embedder each; a text of several parts is that many texts to it."""
    batch: list[str] = []
    size = 0
    for text in texts:
        parts = text.count(PART_SEPARATOR) + 1
        if batch and size + parts > _BATCH_TEXTS:
            yield tuple(batch)
            batch, size = [], 0
        batch.append(text)
        size += parts
    if batch:
        yield tuple(batch)


def _seconds() -> int:
    return int(time.time())
