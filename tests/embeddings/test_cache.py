"""Every text is embedded once, and nothing wrong is ever kept."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from langchain_core.stores import InMemoryByteStore

from langmem_harness.embeddings import CachedEmbeddings
from langmem_harness.errors import ConfigurationError, EmbeddingError, StorageBusyError
from langmem_harness.testing import DeterministicEmbeddings, Fault
from tests.conftest import Face


class DictTier:
    """A second tier that can break."""

    def __init__(self) -> None:
        self.entries: dict[str, bytes] = {}
        self.is_broken = False

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        if self.is_broken:
            raise StorageBusyError("locked")
        return [self.entries.get(key) for key in keys]

    def put_many(self, entries: Mapping[str, bytes]) -> None:
        if self.is_broken:
            raise StorageBusyError("locked")
        self.entries.update(entries)


@pytest.fixture
def model() -> DeterministicEmbeddings:
    return DeterministicEmbeddings(16, query_differs=True)


def cached(model: DeterministicEmbeddings, **settings: object) -> CachedEmbeddings:
    return CachedEmbeddings(model, **{"fingerprint": "m", "dims": 16, **settings})  # type: ignore[arg-type]


def close(vector: list[float]) -> object:
    return pytest.approx(vector, abs=1e-6)


def test_identical_texts_are_embedded_once(model: DeterministicEmbeddings, face: Face) -> None:
    cache = cached(model)
    vectors = face(cache, "embed_documents", ["a", "b", "a", "a"])
    assert model.document_calls == [["a", "b"]]
    assert vectors[0] == vectors[2] == vectors[3] == close(DeterministicEmbeddings(16).embed_query("a"))
    assert face(cache, "embed_documents", ["b", "c"])[0] == vectors[1]
    assert model.document_calls == [["a", "b"], ["c"]]
    assert face(cache, "embed_documents", []) == []
    assert face(cache, "embed_documents", ["c"])
    assert len(model.document_calls) == 2


def test_queries_and_documents_are_kept_apart(model: DeterministicEmbeddings, face: Face) -> None:
    cache = cached(model, tier=DictTier())
    document = face(cache, "embed_documents", ["a"])[0]
    query = face(cache, "embed_query", "a")
    assert query != document
    assert face(cache, "embed_query", "a") == query
    assert model.query_calls == ["a"]


@pytest.mark.parametrize("make_tier", [DictTier, InMemoryByteStore])
def test_the_second_tier_outlives_the_object(model: DeterministicEmbeddings, face: Face, make_tier: type) -> None:
    tier = make_tier()
    first = face(cached(model, tier=tier), "embed_documents", ["a", "\ud800", ""])
    again = face(cached(model, tier=tier, max_entries=0), "embed_documents", ["", "a", "\ud800"])
    assert again == [first[2], first[0], first[1]]
    assert len(model.document_calls) == 1
    face(cached(model, tier=tier, fingerprint="another"), "embed_documents", ["a"])
    assert len(model.document_calls) == 2


def test_the_least_recently_used_go_first(model: DeterministicEmbeddings) -> None:
    cache = cached(model, max_entries=2)
    cache.embed_documents(["a", "b"])
    cache.embed_documents(["a"])
    cache.embed_documents(["c"])  # b goes
    cache.embed_documents(["a", "c"])
    assert model.document_calls == [["a", "b"], ["c"]]
    cache.embed_documents(["b"])
    assert model.document_calls[-1] == ["b"]


@pytest.mark.parametrize("fault", ["nan", "zero", "wrong_length"])
def test_unusable_vectors_are_handed_back_but_not_kept(
    model: DeterministicEmbeddings, face: Face, fault: Fault
) -> None:
    tier = DictTier()
    cache = cached(model, tier=tier)
    model.fault = fault
    assert len(face(cache, "embed_documents", ["a"])) == 1
    assert tier.entries == {}
    model.fault = None
    assert face(cache, "embed_documents", ["a"])[0] == close(DeterministicEmbeddings(16).embed_query("a"))


def test_too_few_vectors_are_an_error(model: DeterministicEmbeddings, face: Face) -> None:
    model.fault = "too_few"
    with pytest.raises(EmbeddingError, match="1 vectors for 2 texts"):
        face(cached(model), "embed_documents", ["a", "b"])


def test_errors_of_the_model_pass_through_and_leave_nothing(model: DeterministicEmbeddings, face: Face) -> None:
    cache = cached(model)
    model.fault = "raise"
    for _ in range(2):
        with pytest.raises(RuntimeError, match="down"):
            face(cache, "embed_query", "a")
    assert model.query_calls == ["a", "a"]


def test_damaged_entries_are_embedded_anew(model: DeterministicEmbeddings, face: Face) -> None:
    tier = DictTier()
    expected = cached(model, tier=tier).embed_documents(["a"])
    for damaged in (b"", b"short", b"\0" * 64, b"\xff" * 64):
        tier.entries = dict.fromkeys(tier.entries, damaged)
        assert face(cached(model, tier=tier), "embed_documents", ["a"]) == expected
        assert set(tier.entries.values()) != {damaged}


def test_a_broken_second_tier_costs_time_not_answers(
    model: DeterministicEmbeddings, face: Face, caplog: pytest.LogCaptureFixture
) -> None:
    tier = DictTier()
    tier.is_broken = True
    with caplog.at_level(logging.WARNING, "langmem_harness"):
        assert face(cached(model, tier=tier), "embed_documents", ["a secret"])
    assert "StorageBusyError" in caplog.text
    assert "secret" not in caplog.text


def test_the_model_works_without_a_lock() -> None:
    barrier = threading.Barrier(2, timeout=10)

    class Meeting(DeterministicEmbeddings):
        def embed_query(self, text: str) -> list[float]:
            barrier.wait()  # passes only when two calls are inside at once
            return super().embed_query(text)

    cache = cached(Meeting(16))
    with ThreadPoolExecutor(2) as pool:
        assert len(list(pool.map(cache.embed_query, ["a", "b"]))) == 2


@pytest.mark.parametrize("wrong", [{"dims": 0}, {"max_entries": -1}])
def test_numbers_out_of_range_are_refused(model: DeterministicEmbeddings, wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError):
        cached(model, **wrong)
