"""Embedders as they come: odd answers, odd errors, one face only, and the pauses of the circuit breaker."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from langchain_core.embeddings import Embeddings

from langmem_harness.store import FaissStore
from langmem_harness.store.embedder import EmbedRequest, StoreEmbedder
from langmem_harness.testing import DeterministicEmbeddings
from tests.conftest import Face

UNIT = [0.6, 0.8]


class Scripted(Embeddings):
    """Answers what it is told to, sync and async."""

    def __init__(self, answer: Callable[[list[str]], Any]) -> None:
        self.answer = answer
        self.calls = 0

    def embed_documents(self, texts: list[str]) -> Any:
        self.calls += 1
        return self.answer(texts)

    def embed_query(self, text: str) -> Any:
        return self.embed_documents([text])[0]

    async def aembed_documents(self, texts: list[str]) -> Any:
        return self.embed_documents(texts)

    async def aembed_query(self, text: str) -> Any:
        return self.embed_query(text)


def fail(error: BaseException) -> Callable[[list[str]], Any]:
    def answer(texts: list[str]) -> Any:
        raise error

    return answer


ODD_ANSWERS: list[Any] = [
    None, 5, "text", {}, [], [None], [5], ["ab"], [[]], [[[0.6, 0.8]]], [[None, 1.0]], [[0.6, 0.8]] * 9, object(),
    (vector for vector in [UNIT]), [{"a": 1}], [[float("inf"), 0.0]], np.zeros((1, 2)), [[1e-320 * 0, 0.0]], [b"ab"],
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD_ANSWERS, ids=range(len(ODD_ANSWERS)))
def test_an_odd_answer_is_a_missing_vector(face: Face, odd: Any) -> None:
    with FaissStore(":memory:", index={"embed": Scripted(lambda texts: odd), "fields": ["text"]}) as store:
        face(store, "put", ("a",), "k", {"text": "tea"})
        answer = face(store, "recall", ("a",), query="tea")
        assert (answer.retrieval, len(answer)) == ("keyword", 1)
        assert answer.degraded
        assert store.pending_embeddings() == 1


@pytest.mark.parametrize("odd", [None, 5, ["ab", "cd"], [UNIT, [1.0]], [UNIT, None], [UNIT]], ids=repr)
def test_an_odd_answer_after_good_ones_is_a_missing_vector(face: Face, odd: Any) -> None:
    embeddings = Scripted(lambda texts: [UNIT for _ in texts])
    with FaissStore(":memory:", index={"embed": embeddings, "fields": ["text[*]"]}) as store:
        face(store, "put", ("a",), "good", {"text": ["tea"]})
        embeddings.answer = lambda texts: odd
        face(store, "put", ("a",), "odd", {"text": ["black tea", "green tea"]})
        assert store.pending_embeddings() == 1
        embeddings.answer = lambda texts: [UNIT for _ in texts]
        assert face(store, "embed_pending") == 1
        assert store.verify().problems == ()


@pytest.mark.parametrize("kind", ["arrays", "matrix", "tuples", "float16", "integers"])
def test_vectors_of_any_kind_of_number_are_vectors(face: Face, kind: str) -> None:
    made: dict[str, Callable[[list[str]], Any]] = {
        "arrays": lambda texts: [np.array(UNIT) for _ in texts],
        "matrix": lambda texts: np.array([UNIT for _ in texts], dtype=np.float32),
        "tuples": lambda texts: tuple(tuple(UNIT) for _ in texts),
        "float16": lambda texts: np.array([UNIT for _ in texts], dtype=np.float16),
        "integers": lambda texts: [[3, 4] for _ in texts],
    }
    with FaissStore(":memory:", index={"embed": Scripted(made[kind]), "fields": ["text"]}) as store:
        face(store, "put", ("a",), "k", {"text": "tea"})
        (found,) = face(store, "recall", ("a",), query="tea", mode="semantic")
        assert found.score == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_what_must_end_the_process_is_not_swallowed(error: BaseException) -> None:
    embeddings = Scripted(lambda texts: [UNIT for _ in texts])
    with FaissStore(":memory:", index={"embed": embeddings, "fields": ["text"]}) as store:
        store.put(("a",), "k", {"text": "tea"})
        embeddings.answer = fail(error)
        with pytest.raises(type(error)):
            store.put(("a",), "k2", {"text": "black tea"})
        with pytest.raises(type(error)):
            store.search(("a",), query="coffee")
        assert store.stats().items == 1
        embeddings.answer = lambda texts: [UNIT for _ in texts]
        assert len(store.search(("a",), query="coffee")) == 1


@pytest.mark.parametrize(
    "error",
    [asyncio.CancelledError(), StopIteration(), TimeoutError(), RecursionError(), RuntimeError("user text")],
    ids=repr,
)
def test_whatever_else_an_embedder_raises_is_its_failure(face: Face, error: BaseException) -> None:
    embeddings = Scripted(fail(error))
    with FaissStore(":memory:", index={"embed": embeddings, "fields": ["text"]}) as store:
        face(store, "put", ("a",), "k", {"text": "tea"})
        answer = face(store, "recall", ("a",), query="tea")
        assert len(answer) == 1
        assert "user text" not in answer.degraded
        assert "within" not in answer.degraded  # only our own time limit is called one


def test_an_async_only_embedder_is_healthy_whatever_sync_calls_do() -> None:
    model = DeterministicEmbeddings(64)

    async def embed(texts: list[str]) -> list[list[float]]:
        return model.embed_documents(texts)

    with FaissStore(":memory:", index={"embed": embed, "fields": ["text"]}) as store:
        for number in range(9):
            store.put(("a",), str(number), {"text": "tea"})
        assert store.recall(("a",), query="tea").retrieval == "keyword"

        async def use() -> None:
            await store.aput(("a",), "last", {"text": "green tea"})
            assert (await store.arecall(("a",), query="tea")).degraded is None

        asyncio.run(use())
        assert store.pending_embeddings() == 0


def test_a_sync_only_embedder_serves_both_faces(face: Face) -> None:
    with FaissStore(":memory:", index={"embed": DeterministicEmbeddings(8).embed_documents}) as store:
        face(store, "put", ("a",), "k", {"text": "tea"})
        assert face(store, "recall", ("a",), query="tea").retrieval == "hybrid"


def test_the_pauses_double_and_one_success_ends_them() -> None:
    now = [0.0]
    model = Scripted(fail(ValueError()))
    embedder = StoreEmbedder(model, dims=2, timeout_seconds=1, clock=lambda: now[0])

    def ask(**options: Any) -> str | None:
        return embedder.embed(EmbedRequest(texts=("tea",), **options)).problem

    for _ in range(5):
        assert ask() == "the embedder raised ValueError"
    for pause in (1, 2, 4, 8, 16, 32, 60, 60):
        calls = model.calls
        now[0] += pause - 0.01
        assert "asked again" in str(ask())
        assert model.calls == calls
        now[0] += 0.02
        assert ask() == "the embedder raised ValueError"
        assert model.calls == calls + 1
    model.answer = lambda texts: [UNIT for _ in texts]
    assert ask(forced=True) is None
    model.answer = fail(ValueError())
    assert ask() == "the embedder raised ValueError"  # closed again: asked at once
    embedder.close()


def test_threads_of_a_closed_embedder_end_also_the_busy_one() -> None:
    release = threading.Event()

    def answer(texts: list[str]) -> Any:
        release.wait(5)
        return [UNIT for _ in texts]

    embedder = StoreEmbedder(Scripted(answer), dims=2, timeout_seconds=0.05)
    before = threading.active_count()
    assert "within" in str(embedder.embed(EmbedRequest(texts=("tea",))).problem)
    embedder.close()
    release.set()
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before


@pytest.mark.parametrize(("timeout_seconds", "is_same"), [(None, True), (5.0, False)])
def test_without_a_time_limit_the_model_is_asked_in_the_calling_thread(
    timeout_seconds: float | None, is_same: bool
) -> None:
    threads = set[int]()

    def answer(texts: list[str]) -> Any:
        threads.add(threading.get_ident())
        return [UNIT] * len(texts)

    with FaissStore(
        ":memory:", index={"embed": Scripted(answer), "dims": 2}, embedding_timeout_seconds=timeout_seconds
    ) as store:
        store.put(("ns",), "k", {"text": "tea"})
        assert store.recall(("ns",), query="tea", mode="semantic").retrieval == "semantic"
    assert (threads == {threading.get_ident()}) is is_same


def test_without_a_time_limit_an_interrupt_goes_through() -> None:
    store = FaissStore(
        ":memory:", index={"embed": Scripted(fail(KeyboardInterrupt())), "dims": 2}, embedding_timeout_seconds=None
    )
    with store, pytest.raises(KeyboardInterrupt):
        store.put(("ns",), "k", {"text": "tea"})
