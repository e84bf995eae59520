"""Metrics against values worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langmem_harness.errors import ConfigurationError
from langmem_harness.evaluation.metrics import hit_at_k, ndcg_at_k, recall_at_k, reciprocal_rank_at_k

RANKED = ["a", "b", "c", "d", "e"]
METRICS = [recall_at_k, hit_at_k, reciprocal_rank_at_k, ndcg_at_k]


@pytest.mark.parametrize(
    ("gold", "k", "recall", "hit", "reciprocal", "ndcg"),
    [
        ({"a"}, 1, 1.0, 1.0, 1.0, 1.0),
        ({"b"}, 1, 0.0, 0.0, 0.0, 0.0),
        ({"b"}, 5, 1.0, 1.0, 0.5, 1 / math.log2(3)),
        ({"b", "d"}, 3, 0.5, 1.0, 0.5, (1 / math.log2(3)) / (1 + 1 / math.log2(3))),
        ({"b", "d", "z"}, 5, 2 / 3, 1.0, 0.5, (1 / math.log2(3) + 1 / math.log2(5)) / (1 + 1 / math.log2(3) + 0.5)),
        ({"c", "x"}, 1, 0.0, 0.0, 0.0, 0.0),
        ({"a", "b"}, 1, 0.5, 1.0, 1.0, 1.0),
        ({"z"}, 5, 0.0, 0.0, 0.0, 0.0),
    ],
)
def test_by_hand(gold: set[str], k: int, recall: float, hit: float, reciprocal: float, ndcg: float) -> None:
    assert [metric(RANKED, gold, k) for metric in METRICS] == pytest.approx([recall, hit, reciprocal, ndcg])


@pytest.mark.parametrize("metric", METRICS)
def test_a_key_counts_once_where_it_comes_first(metric: Callable[..., float]) -> None:
    assert metric(["a", "a", "a", "b"], {"b"}, 2) == metric(["a", "b"], {"b"}, 2) > 0


@pytest.mark.parametrize("metric", METRICS)
def test_what_cannot_be_scored(metric: Callable[..., float]) -> None:
    assert metric([], {"a"}, 10) == 0.0
    with pytest.raises(ConfigurationError):
        metric(RANKED, set(), 10)
    with pytest.raises(ConfigurationError):
        metric(RANKED, {"a"}, 0)


@given(st.lists(st.sampled_from("abcdefgh")), st.sets(st.sampled_from("abcdefgh"), min_size=1), st.integers(1, 9))
@settings(max_examples=100)
def test_bounds_and_perfection(ranked: list[str], gold: set[str], k: int) -> None:
    for metric in METRICS:
        assert 0 <= metric(ranked, gold, k) <= 1
    assert ndcg_at_k(sorted(gold), gold, k) == pytest.approx(1.0)
    assert recall_at_k(ranked, gold, k) <= recall_at_k(ranked, gold, k + 1)
    assert recall_at_k(ranked, gold, k) <= hit_at_k(ranked, gold, k)
