"""Passages of long texts: nothing is lost, everything fits."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langmem_harness.errors import ConfigurationError
from langmem_harness.memory.chunks import passage_spans, split_passages
from langmem_harness.window.tokens import estimate_text_tokens


@settings(max_examples=100)
@given(
    st.text(st.characters(codec="utf-8"), max_size=400) | st.text("ab .\n", max_size=400),
    st.integers(4, 60),
    st.integers(0, 1),
)
def test_passages_cover_the_text_in_order_and_fit(text: str, size: int, overlap: int) -> None:
    spans = passage_spans(text, passage_tokens=size, overlap_tokens=overlap, token_counter=estimate_text_tokens)
    assert spans[0][0] == 0
    assert spans[-1][1] == len(text)
    for (start, end), (next_start, next_end) in itertools.pairwise(spans):
        assert start < next_start <= end < next_end, "forward, and without a gap"
    assert all(estimate_text_tokens(text[start:end]) <= size or end - start <= 1 for start, end in spans)


def test_a_text_that_fits_is_one_passage() -> None:
    assert split_passages("") == [""]
    assert split_passages("A short text.") == ["A short text."]


def test_passages_overlap_and_end_at_sentences() -> None:
    text = " ".join(f"Sentence number {number} has six words." for number in range(400))
    first, second, *_ = split_passages(text, passage_tokens=200, overlap_tokens=40)
    assert first.rstrip().endswith("words.")
    shared = next(size for size in range(len(second), 0, -1) if first.endswith(second[:size]))
    assert 0 < estimate_text_tokens(second[:shared]) <= 40


def test_a_huge_text_is_split_quickly() -> None:
    text = "lorem ipsum dolor " * 60_000
    started = time.perf_counter()
    assert len(split_passages(text)) > 50
    assert time.perf_counter() - started < 10


@pytest.mark.parametrize("sizes", [(1, 0), (10, 5), (10, -1)])
def test_sizes_that_cannot_work(sizes: tuple[int, int]) -> None:
    with pytest.raises(ConfigurationError):
        split_passages("text", passage_tokens=sizes[0], overlap_tokens=sizes[1])
