"""Items that wait for their vectors: their order, and what a model that refuses some texts holds up."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from langgraph.store.base import PutOp

from langmem_harness.store import FaissStore
from langmem_harness.testing import DeterministicEmbeddings
from tests.conftest import Face


class Particular(DeterministicEmbeddings):
    """Refuses every call with a text that has a bad word in it; down: every call."""

    def __init__(self) -> None:
        super().__init__(32)
        self.is_down = False
        self.calls = 0

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.calls += 1
        if self.is_down or any("bad" in text for text in texts):
            raise ValueError("not this")
        return super().embed_documents(texts)


def waiting(embeddings: Particular, *batches: list[str]) -> FaissStore:
    """A store whose batches all wait for their vectors."""
    store = FaissStore(":memory:", index={"embed": embeddings, "dims": 32}, embedding_timeout_seconds=None)
    store.put(("first",), "healthy", {"text": "so that the model is known"})
    embeddings.is_down = True
    for number, texts in enumerate(batches):
        store.batch([PutOp((f"ns{number}",), f"{place:03}", {"text": text}) for place, text in enumerate(texts)])
    embeddings.is_down = False
    return store


def test_refused_items_hold_up_nobody(face: Face) -> None:
    embeddings = Particular()
    bad = [f"bad number {number}" for number in range(150)]
    with contextlib.closing(waiting(embeddings, bad, ["a good one"])) as store:
        assert store.pending_embeddings() == 151
        assert face(store, "embed_pending") == 1
        assert store.pending_embeddings() == 150
        assert face(store, "recall", ("ns1",), query="a good one").retrieval == "hybrid"
        assert face(store, "recall", ("ns0",), query="bad number 7", mode="keyword").items[0].key == "007"


def test_a_model_that_is_down_is_not_asked_for_every_item(face: Face) -> None:
    embeddings = Particular()
    with contextlib.closing(waiting(embeddings, [f"text {number}" for number in range(200)])) as store:
        embeddings.is_down = True
        embeddings.calls = 0
        assert face(store, "embed_pending") == 0
        assert embeddings.calls <= 6
        embeddings.is_down = False
        assert face(store, "embed_pending") == 200


def test_the_longest_waiting_come_first() -> None:
    embeddings = Particular()
    texts = [[f"of batch {batch} item {number}" for number in range(40)] for batch in range(3)]
    with contextlib.closing(waiting(embeddings, *texts)) as store:
        store.put(("ns0",), "000", {"text": "of batch 0 item 0, changed"})  # a healthy write takes some along
        assert store.pending_embeddings() == 120 - 1 - 64
        left = [len(store.recall((f"ns{batch}",), query="item", mode="keyword").items) for batch in range(3)]
        assert left == [10, 10, 10]
        degraded = [store.recall((f"ns{batch}",), query="item").degraded for batch in range(3)]
        assert degraded[0] is None
        assert degraded[1] is not None
        assert degraded[2] is not None


def test_healthy_writes_go_round_refused_items() -> None:
    embeddings = Particular()
    bad = [f"bad number {number}" for number in range(70)]
    with contextlib.closing(waiting(embeddings, bad, ["a good one"])) as store:
        for number in range(40):
            embeddings.calls = 0
            store.put(("other",), str(number), {"text": f"healthy {number}"})
            assert embeddings.calls <= 5
        assert store.pending_embeddings() == 70


@pytest.mark.anyio
async def test_a_reindex_cancelled_at_its_beginning_can_be_started_again() -> None:
    embeddings = Particular()
    with contextlib.closing(waiting(embeddings, ["one", "two"])) as store:
        for turns in range(40):
            task: asyncio.Task[Any] = asyncio.ensure_future(store.areindex())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await asyncio.sleep(0.05)
        assert await store.areindex() == 3
        assert store.verify().problems == ()
