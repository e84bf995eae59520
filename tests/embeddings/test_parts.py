"""Texts of several parts: mean of the parts, each part embedded once; of a query only the first part."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.embeddings import Embeddings

from langmem_harness.embeddings import PartEmbeddings, embedding_model_name, join_parts, split_parts
from langmem_harness.errors import ConfigurationError, EmbeddingError
from langmem_harness.store import FaissStore
from langmem_harness.testing import DeterministicEmbeddings
from tests.conftest import Face


class Counting(Embeddings):
    """Remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._model = DeterministicEmbeddings(dims=32)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.asked += texts
        return [[7.0 * number for number in vector] for vector in self._model.embed_documents(texts)]

    def embed_query(self, text: str) -> list[float]:
        self.asked.append(text)
        return self._model.embed_query(text)


def unit(vector: Sequence[float]) -> np.ndarray:
    return np.asarray(vector) / np.linalg.norm(vector)


def test_a_document_is_the_mean_direction_of_its_parts(face: Face) -> None:
    model = Counting()
    embeddings = PartEmbeddings(model)
    pump, seal, both = face(
        embeddings, "embed_documents", ["red pump", "grey seal", join_parts(["red pump", "grey seal"])]
    )
    assert sorted(model.asked) == ["grey seal", "red pump"], "each part once"
    np.testing.assert_allclose(both, unit(unit(pump) + unit(seal)), atol=1e-6)
    assert np.linalg.norm(pump) == pytest.approx(7.0), "a text of one part comes back as long as the model gave it"
    face(embeddings, "embed_documents", [join_parts(["grey seal", "new lid"])])
    assert model.asked[2:] == ["new lid"]


def test_calls_without_parts_go_to_the_model_as_they_are(face: Face) -> None:
    calls: list[list[str]] = []
    answer = [[1.0]]

    class Watched(Counting):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            calls.append(texts)
            return answer

    texts = ["a", "a", "b"]
    assert face(PartEmbeddings(Watched()), "embed_documents", texts) is answer
    assert calls[0] is texts


def test_of_a_query_only_the_first_part_is_embedded(face: Face) -> None:
    model = Counting()
    embeddings = PartEmbeddings(model)
    vector = face(embeddings, "embed_query", join_parts(["what did eat", "Mel"]))
    assert vector == model.embed_query("what did eat")


@given(parts=st.lists(st.text(max_size=10), max_size=6))
def test_joined_parts_come_apart_again(parts: list[str]) -> None:
    clean = [part.replace("\x1e", " ") for part in parts]
    kept = [part for part in clean if part.strip()]
    assert split_parts(join_parts(parts)) == (kept or [""])


def test_what_the_model_gets_wrong_is_seen() -> None:
    class Short(Counting):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return []

    class Zero(Counting):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [[0.0] * 4 for _ in texts]

    with pytest.raises(EmbeddingError):
        PartEmbeddings(Short()).embed_documents([join_parts(["a", "b"])])
    assert not np.isfinite(PartEmbeddings(Zero()).embed_documents([join_parts(["a", "b"])])[0]).any()
    with pytest.raises(ConfigurationError):
        PartEmbeddings(Counting(), max_entries=-1)


def test_it_keeps_its_bound_and_the_name_of_the_model() -> None:
    model = Counting()
    embeddings = PartEmbeddings(model, max_entries=1)
    for _ in range(2):
        embeddings.embed_documents([join_parts(["a", "b"])])
    assert model.asked == ["a", "b", "a"]
    assert embedding_model_name(embeddings) == embedding_model_name(model)
    assert PartEmbeddings.around(embeddings) is embeddings


def test_a_store_searches_a_field_of_parts_by_meaning_and_all_its_words(tmp_path: Path) -> None:
    index = {"embed": DeterministicEmbeddings(dims=256), "fields": ["text"]}
    with FaissStore(tmp_path / "memory.sqlite", index=index) as store:
        store.put(("a",), "both", {"text": join_parts(["red pump", "grey seal"])})
        store.put(("a",), "other", {"text": "green lid"})
        found = store.recall(("a",), query=join_parts(["grey seal", "pump"])).items[0]
        assert found.key == "both"
        assert found.legs["keyword"].coverage == 1.0
        assert found.legs["semantic"].score == pytest.approx(2**-0.5, abs=0.1)
        assert asyncio.run(store.areindex()) == 2
        assert store.recall(("a",), query="grey seal", mode="semantic").items[0].key == "both"


def test_a_users_text_with_a_separator_is_no_error_and_found_by_its_words(face: Face) -> None:
    plain = DeterministicEmbeddings(dims=64)
    with FaissStore(":memory:", index={"embed": plain, "fields": ["text"]}) as store:
        for number, text in enumerate(["\x1e", "\x1e\x1e ", "zebra\x1e", "\x1ezebra crossing", "a \x1e heron\x1e"]):
            face(store, "put", ("a",), str(number), {"text": text})
        assert {item.key for item in face(store, "search", ("a",), query="zebra") if item.score > 0.5} == {"2", "3"}
        assert face(store, "search", ("a",), query="\x1eheron\x1e")[0].key == "4"
        assert face(store, "search", ("a",), query="\x1e") is not None
        provenance = store.provenance()
        assert provenance is not None
        assert provenance.embedding_model == embedding_model_name(plain)
        assert face(store, "reindex") == store.provenance().chunk_count  # type: ignore[union-attr]
