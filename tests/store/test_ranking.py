"""Fusion: bounds, order, and the answer when a leg has nothing to say."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langmem_harness.errors import ConfigurationError
from langmem_harness.store.ranking import (
    DENSE_WEIGHT,
    Leg,
    best_field,
    fuse,
    normalize_min_max,
    plan_fetch_k,
    select_diverse,
    select_top,
    within_threshold,
)

SCORE = st.floats(-1e6, 1e6, width=32)


def leg(name: str, weight: float, scores: dict[int, float], floor: float | None = None) -> Leg:
    return Leg(
        name=name,
        weight=weight,
        rows=np.array(list(scores), dtype=np.int64),
        scores=np.array(list(scores.values()), dtype=np.float32),
        floor=floor,
    )


def as_dict(legs: list[Leg]) -> dict[int, float]:
    fused = fuse(legs)
    return dict(zip(fused.rows.tolist(), fused.scores.tolist(), strict=True))


@st.composite
def some_legs(draw: st.DrawFn) -> list[Leg]:
    names = draw(st.lists(st.sampled_from("abcd"), unique=True, min_size=1))
    return [
        leg(
            name,
            draw(st.floats(0, 10)),
            draw(st.dictionaries(st.integers(0, 9), SCORE)),
            draw(st.sampled_from([None, 0.0])),
        )
        for name in names
    ]


@pytest.mark.parametrize(
    ("scores", "floor", "normalized"),
    [
        ([], None, []),
        ([0.3], None, [1.0]),
        ([-0.2], None, [1.0]),
        ([0.4, 0.4], None, [1.0, 1.0]),
        ([1.0, 3.0, 2.0], None, [0.0, 1.0, 0.5]),
        ([2.0, 4.0], 0.0, [0.5, 1.0]),
        ([5.0], 0.0, [1.0]),
        ([-1.0, 4.0], 0.0, [0.0, 1.0]),
        ([0.0], 0.0, [0.0]),
    ],
)
def test_min_max(scores: list[float], floor: float | None, normalized: list[float]) -> None:
    assert normalize_min_max(np.array(scores, dtype=np.float32), floor=floor).tolist() == pytest.approx(normalized)


def test_weighted_sum_by_hand() -> None:
    legs = [
        leg("semantic", DENSE_WEIGHT, {1: 0.8, 2: 0.2, 3: 0.5}),
        leg("keyword", 1 - DENSE_WEIGHT, {2: 6.0, 4: 3.0}, floor=0.0),
    ]
    assert as_dict(legs) == pytest.approx({1: 0.7, 2: 0.3, 3: 0.35, 4: 0.15})


def test_several_fields_are_more_legs() -> None:
    legs = [
        leg("semantic:title", 0.7 * 3, {1: 1.0, 2: 0.0}),
        leg("semantic:text", 0.7, {1: 0.0, 2: 1.0}),
        leg("keyword:title", 0.3 * 3, {2: 2.0}, floor=0.0),
    ]
    assert as_dict(legs) == pytest.approx({1: 2.1 / 3.7, 2: 1.6 / 3.7})


def test_an_empty_leg_leaves_the_order_of_the_other() -> None:
    semantic = leg("semantic", 0.7, {5: 0.1, 1: 0.9, 3: 0.4})
    nothing = leg("keyword", 0.3, {}, floor=0.0)
    assert as_dict([semantic, nothing]) == as_dict([semantic]) == pytest.approx({1: 1.0, 3: 0.375, 5: 0.0})
    assert as_dict([nothing]) == as_dict([]) == {}
    assert as_dict([semantic, replace(semantic, name="off", weight=0.0)]) == as_dict([semantic])


@given(some_legs())
@settings(max_examples=100)
def test_fused_scores_are_bounded_and_hold_every_row_once(legs: list[Leg]) -> None:
    fused = fuse(legs)
    expected = {row for part in legs if part.weight > 0 for row in part.rows.tolist()}
    assert fused.rows.tolist() == sorted(expected)
    assert ((fused.scores >= 0) & (fused.scores <= 1)).all()


@given(some_legs(), st.randoms(use_true_random=False))
@settings(max_examples=100)
def test_fusion_does_not_depend_on_the_order_of_anything(legs: list[Leg], random: object) -> None:
    shuffled = []
    for part in legs:
        order = list(range(len(part.rows)))
        random.shuffle(order)  # type: ignore[attr-defined]
        shuffled.append(replace(part, rows=part.rows[order], scores=part.scores[order]))
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert as_dict(shuffled) == as_dict(legs)


@given(some_legs(), st.integers(0, 3), st.integers(0, 9), st.floats(1, 100, width=32))
@settings(max_examples=100)
def test_a_better_score_raises_its_row_and_no_other(legs: list[Leg], which: int, position: int, more: float) -> None:
    chosen = legs[which % len(legs)]
    if not len(chosen.rows):
        return
    position %= len(chosen.rows)
    scores = chosen.scores.copy()
    scores[position] += np.float32(more)
    before = as_dict(legs)
    after = as_dict([replace(part, scores=scores) if part is chosen else part for part in legs])
    for row in before:
        if row == chosen.rows[position]:
            assert after[row] >= before[row] - 1e-9
        else:
            assert after[row] <= before[row] + 1e-9


@pytest.mark.parametrize("weight", [-0.1, math.nan, math.inf])
def test_weights_out_of_range_are_refused(weight: float) -> None:
    with pytest.raises(ConfigurationError, match="'semantic'"):
        fuse([leg("semantic", weight, {1: 1.0})])


def test_best_field_takes_the_best_of_each_row() -> None:
    rows, scores = np.array([1, 2, 1]), np.array([0.2, -0.5, 0.6], dtype=np.float32)
    best = best_field([(rows, scores), (np.array([2]), np.array([-0.1])), (np.array([], dtype=np.int64), np.array([]))])
    assert best.rows.tolist() == [1, 2]
    assert best.scores.tolist() == pytest.approx([0.6, -0.1])
    assert best_field([]).rows.tolist() == []


@given(st.lists(st.tuples(st.sampled_from([0.0, -0.0, 0.5, 1.0]), st.integers(0, 999)), unique_by=lambda pair: pair[1]))
@settings(max_examples=100)
def test_the_order_is_total_and_a_limit_is_a_prefix(pairs: list[tuple[float, int]]) -> None:
    scores = np.array([score for score, _ in pairs])
    keys = [f"k{key:03}" for _, key in pairs]
    everything = [keys[position] for position in select_top(scores, keys)]
    by_key = dict(zip(keys, scores.tolist(), strict=True))
    assert everything == sorted(keys, key=lambda key: (-by_key[key], key))
    for limit in range(len(pairs) + 2):
        assert [keys[position] for position in select_top(scores, keys, limit)] == everything[:limit]
        numbers = np.array([key for _, key in pairs], dtype=np.int64)
        assert [keys[position] for position in select_top(scores, numbers, limit)] == everything[:limit]


def test_the_threshold_is_inclusive_up_to_float32() -> None:
    cosines = np.array([np.nextafter(np.float32(1), np.float32(0)), 0.5, 0.49, -1.0], dtype=np.float32)
    assert within_threshold(cosines, 1.0).tolist() == [True, False, False, False]
    assert within_threshold(cosines, 0.5).tolist() == [True, True, False, False]
    assert within_threshold(cosines, None).all()
    assert within_threshold(np.array([]), 0.5).tolist() == []


def unit_vectors(count: int, dims: int = 8) -> np.ndarray:
    vectors = np.random.default_rng(7).normal(size=(count, dims)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_mmr_prefers_the_different_answer() -> None:
    vectors = np.array([[1, 0], [0.999, 0.045], [0, 1]], dtype=np.float32)
    relevance = np.array([1.0, 0.95, 0.6])
    assert select_diverse(relevance, vectors, top_k=2, lambda_mult=0.5) == [0, 2]
    assert select_diverse(relevance, vectors, top_k=2, lambda_mult=1.0) == [0, 1]


@given(st.lists(st.floats(0, 1), max_size=15), st.integers(0, 20), st.floats(0, 1))
@settings(max_examples=60)
def test_each_step_of_mmr_takes_the_best_of_the_rest(relevance: list[float], top_k: int, lambda_mult: float) -> None:
    vectors = unit_vectors(len(relevance))
    chosen = select_diverse(np.array(relevance), vectors, top_k=top_k, lambda_mult=lambda_mult)
    assert len(set(chosen)) == len(chosen) == min(top_k, len(relevance))
    if chosen:
        assert chosen[0] == relevance.index(max(relevance))
    for step in range(1, len(chosen)):
        rest = [position for position in range(len(relevance)) if position not in chosen[:step]]
        nearest = {position: max(vectors[position] @ vectors[other] for other in chosen[:step]) for position in rest}
        worth = {
            position: lambda_mult * relevance[position] - (1 - lambda_mult) * nearest[position] for position in rest
        }
        assert worth[chosen[step]] >= max(worth.values()) - 1e-6


def test_mmr_of_nothing_and_bad_lambda() -> None:
    assert select_diverse(np.array([]), np.empty((0, 4), dtype=np.float32), top_k=3) == []
    assert select_diverse(np.array([1.0]), unit_vectors(1), top_k=0) == []
    with pytest.raises(ConfigurationError):
        select_diverse(np.array([1.0]), unit_vectors(1), top_k=1, lambda_mult=1.5)


def test_the_pool_of_mmr() -> None:
    assert [plan_fetch_k(5), plan_fetch_k(5, 8), plan_fetch_k(5, 2)] == [15, 8, 5]
