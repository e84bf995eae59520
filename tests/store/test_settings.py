"""A shared embedding cache, a sweep that comes by itself, a place without faiss."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.embeddings import Embeddings
from langchain_core.stores import InMemoryByteStore
from langgraph.store.base import PutOp

from langmem_harness.events import MemoryEvent, RetrievalDegraded
from langmem_harness.sqlite import Database
from langmem_harness.store import FaissStore
from langmem_harness.store.vectors import load_faiss
from langmem_harness.testing import DeterministicEmbeddings
from tests.conftest import Face

# -- embedding_cache --------------------------------------------------------------------------------------------------


class BrokenByteStore(InMemoryByteStore):
    def mget(self, keys: Sequence[str]) -> list[bytes | None]:
        raise ConnectionError("the cache is away")

    def mset(self, key_value_pairs: Sequence[tuple[str, bytes]]) -> None:
        raise ConnectionError("the cache is away")


def cached(location: Any, embeddings: Embeddings, cache: Any) -> FaissStore:
    return FaissStore(location, index={"embed": embeddings, "fields": ["text"]}, embedding_cache=cache)


def texts_asked(embeddings: DeterministicEmbeddings) -> list[str]:
    """Item texts the model was given; the probe, which finds out who it is, is asked of every process."""
    return [text for call in embeddings.document_calls for text in call if " tea" in text]


def test_a_text_that_another_store_embedded_is_not_embedded_again(face: Face, tmp_path: Path) -> None:
    cache, first, second = InMemoryByteStore(), DeterministicEmbeddings(64), DeterministicEmbeddings(64)
    with cached(tmp_path / "one.sqlite", first, cache) as store:
        face(store, "put", ("a",), "k", {"text": "green tea"})
        face(store, "search", ("a",), query="green tea?")
        expected = face(store, "recall", ("a",), query="green tea?").items[0].legs["semantic"]
    with cached(tmp_path / "two.sqlite", second, cache) as store:
        face(store, "batch", [PutOp(("b",), "k", {"text": "green tea"}), PutOp(("b",), "l", {"text": "black tea"})])
        found = face(store, "recall", ("b",), query="green tea?").items[0]
        assert store.verify().problems == ()
    assert (texts_asked(first), texts_asked(second)) == (["green tea"], ["black tea"])
    assert (first.query_calls, second.query_calls) == (["green tea?"], [])
    assert (found.key, found.legs["semantic"].score) == ("k", expected.score)


def test_vectors_of_another_model_are_not_taken_from_the_cache(tmp_path: Path) -> None:
    cache, first, second = InMemoryByteStore(), DeterministicEmbeddings(64), DeterministicEmbeddings(64, name="other")
    with cached(tmp_path / "one.sqlite", first, cache) as store:
        store.put(("a",), "k", {"text": "green tea"})
    with cached(tmp_path / "two.sqlite", second, cache) as store:
        store.put(("a",), "k", {"text": "green tea"})
        assert store.recall(("a",), query="green tea").items[0].legs["semantic"].score == pytest.approx(1, abs=1e-6)
    assert texts_asked(second) == ["green tea"]


def test_a_cache_that_is_away_costs_no_write_and_no_search(face: Face) -> None:
    embeddings = DeterministicEmbeddings(64)
    with cached(":memory:", embeddings, BrokenByteStore()) as store:
        face(store, "put", ("a",), "k", {"text": "green tea"})
        result = face(store, "recall", ("a",), query="green tea")
        assert (result.items[0].key, result.retrieval, result.degraded) == ("k", "hybrid", None)
        assert store.pending_embeddings() == 0


# -- sweep_interval_minutes -------------------------------------------------------------------------------------------


def minutes(**settings: float) -> Any:
    """A `TTLConfig`; LangGraph's type allows whole minutes only for some of its fields."""
    return settings


def wait_until(condition: Callable[[], bool], seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def sweepers() -> int:
    return sum(thread.name == "langmem-sweeper" for thread in threading.enumerate())


def test_expired_items_are_swept_by_themselves(tmp_path: Path) -> None:
    ttl = minutes(default_ttl=0.001, sweep_interval_minutes=0.001)
    with FaissStore(tmp_path / "m.sqlite", ttl=ttl) as store:
        store.put(("a",), "short", {"text": "green tea"})
        store.put(("a",), "kept", {"text": "black tea"}, ttl=60)
        assert wait_until(lambda: store.stats().items == 1)
        assert store.get(("a",), "kept") is not None
        assert store.verify().problems == ()
    assert wait_until(lambda: not sweepers())


def test_no_interval_means_no_sweeping(tmp_path: Path) -> None:
    before = sweepers()
    with FaissStore(tmp_path / "m.sqlite", ttl=minutes(default_ttl=0.0001)) as store:
        store.put(("a",), "k", {"text": "green tea"})
        assert sweepers() == before
        time.sleep(0.1)
        assert (store.stats().items, store.get(("a",), "k"), store.sweep()) == (1, None, 1)


def test_a_sweeper_does_not_keep_its_store_alive(tmp_path: Path) -> None:
    database = Database(tmp_path / "m.sqlite")
    assert wait_until(lambda: not sweepers())
    store = FaissStore(database, ttl=minutes(sweep_interval_minutes=0.001))
    assert sweepers() == 1
    del store
    gc.collect()
    assert wait_until(lambda: not sweepers())
    database.close()


def test_a_sweep_that_fails_says_so_and_goes_on(tmp_path: Path) -> None:
    events: list[MemoryEvent] = []
    other = FaissStore(tmp_path / "m.sqlite")
    with FaissStore(
        tmp_path / "m.sqlite",
        ttl=minutes(default_ttl=0.001, sweep_interval_minutes=0.001),
        busy_timeout_seconds=0.0,
        on_event=events.append,
    ) as store:
        store.put(("a",), "k", {"text": "green tea"})
        with other._database.write():
            assert wait_until(lambda: any(isinstance(event, RetrievalDegraded) for event in events))
        assert wait_until(lambda: store.stats().items == 0)
    other.close()
    said = [event for event in events if isinstance(event, RetrievalDegraded)]
    assert {(event.leg, event.reason) for event in said} == {("ttl", "sweep failed: StorageBusyError")}


# -- without faiss ----------------------------------------------------------------------------------------------------


@pytest.fixture
def without_faiss(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "faiss", None)  # what Python itself does for a module that must not be found
    load_faiss.cache_clear()
    yield
    monkeypatch.undo()
    load_faiss.cache_clear()


class RandomEmbeddings(Embeddings):
    """Vector number n for the text that begins with n."""

    def __init__(self) -> None:
        self.matrix = np.random.default_rng(3).standard_normal((400, 32))
        self.matrix /= np.linalg.norm(self.matrix, axis=1, keepdims=True)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        number = text.split()[0]
        return list(map(float, self.matrix[int(number) if number.isdecimal() else -1]))


def test_every_answer_is_exact_without_faiss(face: Face, without_faiss: None) -> None:
    embeddings = RandomEmbeddings()
    index = {"embed": embeddings, "fields": ["text"]}
    with FaissStore(":memory:", index=index, exact_limit=50, retrieval="semantic") as store:
        store.batch([PutOp(("a",), str(n), {"text": f"{n} tea", "even": n % 2 == 0}) for n in range(300)])
        for n in range(100):
            store.delete(("a",), str(n))
        face(store, "put", ("a",), "299", {"text": "350 tea"})
        left = {**{str(n): n for n in range(100, 299)}, "299": 350}
        for query in (7, 120, 350, 399):
            cosines = {key: float(embeddings.matrix[n] @ embeddings.matrix[query]) for key, n in left.items()}
            expected = sorted(cosines, key=lambda key: (-cosines[key], key))
            found = face(store, "search", ("a",), query=f"{query} tea", limit=300)
            assert [item.key for item in found] == expected
            assert [item.score for item in found] == pytest.approx([cosines[key] for key in expected], abs=1e-6)
            even = face(store, "search", ("a",), query=f"{query} tea", filter={"even": True}, limit=5)
            assert [item.key for item in even] == [key for key in expected if left[key] % 2 == 0 and key != "299"][:5]
        assert store.stats().vector_search == "numpy"
        assert store.verify().problems == ()


def test_the_whole_store_works_without_faiss(face: Face, without_faiss: None, tmp_path: Path) -> None:
    index = {"embed": DeterministicEmbeddings(64), "fields": ["text"]}
    with FaissStore(tmp_path / "m.sqlite", index=index, exact_limit=20) as store:
        store.batch([PutOp(("a", str(n % 3)), str(n), {"text": f"green tea number {n}"}) for n in range(60)])
        assert face(store, "search", ("a", "1"), query="number 7 tea")[0].key == "7"
    with FaissStore(tmp_path / "m.sqlite", index=index, exact_limit=20) as store:
        result = face(store, "recall", ("a",), query="number 31", top_k=3, mmr_lambda=0.5, threshold=0.1)
        assert (result.items[0].key, result.retrieval) == ("31", "hybrid")
        assert face(store, "reindex") == 60
        assert face(store, "recall", (), query="number 31").items[0].key == "31"


def test_a_process_that_cannot_import_faiss_answers_as_one_that_can(tmp_path: Path) -> None:
    """The whole package, from its first import on, in a process of its own; with and without give one answer."""
    script = textwrap.dedent(
        """
        import sys
        if sys.argv[2] == "without":
            sys.modules["faiss"] = None
        from langmem_harness import FaissStore
        from langmem_harness.testing import DeterministicEmbeddings
        with FaissStore(sys.argv[1], index={"embed": DeterministicEmbeddings(64), "fields": ["text"]}) as store:
            for number in range(40):
                store.put(("a",), str(number), {"text": f"green tea number {number}"})
            print([(item.key, round(item.score, 5)) for item in store.search(("a",), query="number 7", limit=5)])
            print(store.stats().vector_search)
        """
    )
    answers = [
        subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / f"{kind}.sqlite"), kind],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout.splitlines()
        for kind in ("with", "without")
    ]
    assert answers[0][0] == answers[1][0]
    assert [answer[1] for answer in answers] == ["faiss", "numpy"]
