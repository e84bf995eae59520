"""Items that wait for their vectors get them, the longest waiting first; what the model refuses holds up nobody."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from langmem_harness.embeddings.fingerprint import PROBE_TEXT
from langmem_harness.store import database as tables
from langmem_harness.store.embedder import EmbedAnswer, EmbedRequest
from langmem_harness.store.indexing import Indexer, hash_text
from langmem_harness.store.steps import Call, Steps
from langmem_harness.store.writer import Embedded, ItemWriter

_BATCH_ITEMS = 64
_FEW_FAILURES = 3

_Place = tuple[int, int]
"""(number of the write, item number): the order of waiting."""

_START: _Place = (-1, -1)


class _Waiting(NamedTuple):
    """One item, and what of it has to be embedded; None: nothing at that position."""

    item_id: int
    changed: int
    texts: list[str | None]

    @property
    def place(self) -> _Place:
        return (self.changed, self.item_id)


class PendingItems:
    """The queue of items without vectors, which lies in the database; only where to go on is kept here.

    Args:
        indexer: Embeds.
    """

    def __init__(self, indexer: Indexer) -> None:
        self._indexer = indexer
        self._database = indexer.database
        self._next = _START

    def embed_all(self) -> Steps[int]:
        """Embed what waits, asking the model even if it failed a moment ago; how many items got all their vectors.

        Items whose text the model refuses go on waiting. One that refuses the probe text too is down: that ends it.
        """
        if (yield from self._indexer.probe(forced=True)) is not None:
            return 0
        done, last = 0, _START
        while waiting := (yield Call(partial(self._read, last, _BATCH_ITEMS))):
            embedded, tried, is_down = yield from self._embed(waiting, is_patient=True)
            done += yield Call(partial(self._keep, waiting[:tried], embedded))
            if is_down:
                break
            last = waiting[-1].place
        return done

    def embed_some(self) -> Steps[int]:
        """Embed a few along with a healthy write; how many items got all their vectors.

        Gives up after a few refusals and goes on behind them the next time, from the start again after the last.
        """
        waiting = yield Call(partial(self._read, self._next, _BATCH_ITEMS))
        if not waiting and self._next != _START:
            self._next = _START
            waiting = yield Call(partial(self._read, _START, _BATCH_ITEMS))
        if not waiting:
            return 0
        embedded, tried, _ = yield from self._embed(waiting, is_patient=False)
        self._next = waiting[max(tried, 1) - 1].place
        done: int = yield Call(partial(self._keep, waiting[:tried], embedded))
        return done

    def _embed(self, waiting: Sequence[_Waiting], *, is_patient: bool) -> Steps[tuple[Embedded, int, bool]]:
        """Vectors, how many of the items were tried, and whether the model seems to be down."""
        texts = list(dict.fromkeys(text for item in waiting for text in item.texts if text is not None))
        embedded, problem = yield from self._indexer.embed(texts, forced=is_patient)
        if not texts or embedded.vectors or problem is None:
            return embedded, len(waiting), False
        if not embedded.generation:
            return embedded, 0, True  # the index is another model's
        return (yield from self._embed_one_by_one(waiting, embedded.generation, is_patient=is_patient))

    def _embed_one_by_one(
        self, waiting: Sequence[_Waiting], generation: int, *, is_patient: bool
    ) -> Steps[tuple[Embedded, int, bool]]:
        found: dict[str, tuple[bytes, NDArray[np.float32]]] = {}
        refused: set[str] = set()
        failures = 0
        for place, item in enumerate(waiting):
            for text in item.texts:
                if text is None or text in found or text in refused:
                    continue
                answer: EmbedAnswer = yield EmbedRequest(texts=(text,), forced=is_patient)
                if answer.vectors:
                    found[text] = (hash_text(text), answer.vectors[text])
                    failures = 0
                    continue
                refused.add(text)
                failures += 1
                if failures < _FEW_FAILURES:
                    continue
                failures = 0
                if not is_patient:
                    return Embedded(generation=generation, vectors=found), place + 1, False
                health: EmbedAnswer = yield EmbedRequest(texts=(PROBE_TEXT,), forced=True)
                if not health.vectors:
                    return Embedded(generation=generation, vectors=found), place + 1, True
        return Embedded(generation=generation, vectors=found), len(waiting), False

    def _read(self, after: _Place, size: int) -> list[_Waiting]:
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT item_id, changed, value, indexing FROM store_items "
                "WHERE embedding = 2 AND (changed, item_id) > (?, ?) ORDER BY changed, item_id LIMIT ?",
                (*after, size),
            ).fetchall()
        return [
            _Waiting(item_id, changed, self._indexer.plan_stored(value, indexing)[1])
            for item_id, changed, value, indexing in rows
        ]

    def _keep(self, waiting: Sequence[_Waiting], embedded: Embedded) -> int:
        done = 0
        with self._database.write() as connection:
            if tables.read_head(connection).generation != embedded.generation:
                return 0
            writer = ItemWriter(connection, now=0, tokenizer=self._indexer.tokenizer_number, embedded=embedded)
            for item in waiting:
                unchanged = connection.execute(
                    "SELECT 1 FROM store_items WHERE item_id = ? AND changed = ? AND embedding = 2",
                    (item.item_id, item.changed),
                ).fetchone()
                if unchanged is None:
                    continue
                vectors = [
                    (position, *embedded.vectors[text])
                    for position, text in enumerate(item.texts)
                    if text is not None and text in embedded.vectors
                ]
                complete = len(vectors) == sum(text is not None for text in item.texts)
                if vectors or complete:
                    writer.add_vectors(item.item_id, vectors, complete=complete)
                done += complete
            writer.finish()
        return done
