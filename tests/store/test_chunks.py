"""Long texts in chunks: nothing is left out, nothing is too long, and one vector stands for all of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langmem_harness.embeddings.parts import PartEmbeddings, join_parts, split_parts
from langmem_harness.errors import ConfigurationError
from langmem_harness.store import FaissStore
from langmem_harness.store.chunks import _TOKEN, MAX_CHUNKS, check_chunk_tokens, join_chunks, split_chunks
from langmem_harness.store.indexing import _batches
from langmem_harness.store.texts import FieldPaths
from langmem_harness.testing import DeterministicEmbeddings
from tests.conftest import Face


def count(text: str) -> int:
    return len(_TOKEN.findall(text))


@given(st.text(st.sampled_from("ab cdefghij.,\n東京\u0e01\u0301😀"), max_size=400), st.integers(16, 60))
@settings(max_examples=100)
def test_chunks_cover_the_text_and_none_is_too_long(text: str, chunk_tokens: int) -> None:
    chunks = split_chunks(text, chunk_tokens)
    if count(text) <= chunk_tokens:
        assert chunks == [text]
        return
    sizes = list(map(count, chunks))
    assert max(sizes) <= chunk_tokens
    assert len(chunks) == 1 or min(sizes) * 2 >= max(sizes)
    first, *others = (_TOKEN.findall(chunk) for chunk in chunks)
    assert first + [token for tokens in others for token in tokens[chunk_tokens // 8 :]] == _TOKEN.findall(text)


@pytest.mark.parametrize(
    "text", ["x" * 5_000_000, "東" * 5_000_000, "word " * 1_000_000, " " * 5_000_000, "\ud800" * 99]
)
def test_any_text_gives_a_bounded_number_of_chunks(text: str) -> None:
    chunks = split_chunks(text, 256)
    assert 1 <= len(chunks) <= MAX_CHUNKS
    assert len(split_parts(join_chunks(text, 256))) <= MAX_CHUNKS


def test_a_short_text_and_a_text_of_short_parts_stay_as_they_are() -> None:
    assert join_chunks("green tea", 16) == "green tea"
    assert join_chunks("", 16) == ""
    parts = join_parts(["green tea", "black tea"])
    assert join_chunks(parts, 16) == parts
    long = " ".join(["tea"] * 20)
    assert split_parts(join_chunks(join_parts(["green", long]), 16)) == ["green", *split_chunks(long, 16)]


@pytest.mark.parametrize("wrong", [0, -1, 15, 256.0, "256", True])
def test_chunk_tokens_that_cannot_work_are_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError):
        check_chunk_tokens(wrong)
    with pytest.raises(ConfigurationError):
        FieldPaths(["text"], chunk_tokens=wrong)


def test_what_lies_beyond_the_window_takes_part_in_the_vector_and_the_words_stay_whole() -> None:
    text = " ".join(["tea"] * 60 + ["zeppelin"] * 6)
    (entry,) = FieldPaths(["text"], chunk_tokens=32).texts({"text": text})
    assert entry.words == text
    model = DeterministicEmbeddings(64)
    (vector,) = PartEmbeddings(model).embed_documents([entry.text])
    chunks = split_chunks(text, 32)
    assert [sorted(call) for call in model.document_calls] == [sorted(set(chunks))]
    mean = np.sum([model.embed_query(chunk) for chunk in chunks], axis=0)
    assert vector == pytest.approx((mean / np.linalg.norm(mean)).tolist(), abs=1e-6)
    assert np.dot(vector, model.embed_query("zeppelin")) > 0.1
    assert FieldPaths(["text"]).texts({"text": text})[0].text == text


def test_a_store_embeds_long_texts_in_chunks_and_reindex_brings_it_to_older_ones(face: Face, tmp_path: Path) -> None:
    model = DeterministicEmbeddings(64)
    index = {"embed": model, "fields": ["text"]}
    long = " ".join(["tea"] * 60 + ["zeppelin"] * 6)
    with FaissStore(tmp_path / "m.sqlite", index=index) as store:
        face(store, "put", ("a",), "old", {"text": long})
        assert long in model.document_calls[-1]
    with FaissStore(tmp_path / "m.sqlite", index=index, chunk_tokens=32) as store:
        face(store, "put", ("a",), "new", {"text": long})
        assert max(count(text) for text in model.document_calls[-1]) <= 32
        assert "another text" in store.verify().problems[0]  # the older one is of the whole text
        model.document_calls.clear()
        assert face(store, "reindex") == 2
        assert long not in [text for call in model.document_calls for text in call]
        one, other = face(store, "recall", ("a",), query="zeppelin").items
        assert one.legs["semantic"].score == other.legs["semantic"].score > 0.1
        assert store.verify().problems == ()


def test_one_call_of_the_embedder_gets_so_many_chunks_and_no_more() -> None:
    texts = [join_parts([f"{number} {part}" for part in range(60)]) for number in range(10)] + ["short"] * 300
    batches = list(_batches(texts))
    assert [text for batch in batches for text in batch] == texts
    assert max(sum(len(split_parts(text)) for text in batch) for batch in batches) <= 256
    assert len(batches) == 4
    assert list(_batches([])) == []
    assert list(_batches([join_parts(map(str, range(900)))])) == [(join_parts(map(str, range(900))),)]
