"""How scores of several legs become one order. Pure: arrays in, arrays out, nothing changed in place.

Scores are better when bigger. Rows are integers that stand for items. Every order is total: by score, descending, then
by key, ascending, whatever order the input came in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langmem_harness.errors import ConfigurationError

DENSE_WEIGHT = 0.7
"""Weight of the semantic leg; the keyword leg has the rest. Measured, see ``docs/retrieval.md``."""

LAMBDA_MULT = 0.7
"""MMR when it is asked for: 1.0 is relevance only, 0.0 is variety only."""

THRESHOLD_TOLERANCE = 1e-6
"""Rounding of float32: the cosine of a vector with itself may come out this much below 1."""

Floats = NDArray[np.floating[Any]]
Rows = NDArray[np.integer[Any]]


@dataclass(frozen=True, kw_only=True)
class Leg:
    """What one leg found in one field.

    Attributes:
        name: Distinguishes legs of one query (``"semantic"``, ``"keyword:title"``); fusion does not depend on their
            order, because they are added up by name.
        weight: Share in the fused score, 0 or more. Weights of the legs that found something are scaled to sum to 1.
        rows: shape (n,), unique, 0 or more; fusing takes memory for the biggest of them.
        scores: shape (n,), finite; same order as `rows`.
        floor: The score that is worth nothing. None: the lowest of `scores`. The keyword leg passes 0.0, the BM25
            score of the documents it did not return. A semantic leg that returns only its nearest items may pass
            the lowest cosine of the namespace.
    """

    name: str
    weight: float
    rows: Rows
    scores: Floats
    floor: float | None = None


@dataclass(frozen=True, kw_only=True)
class FusedScores:
    """Fused score of every row that some leg found.

    Attributes:
        rows: int64, shape (n,), unique, ascending.
        scores: float64, shape (n,), 0 to 1.
    """

    rows: NDArray[np.int64]
    scores: NDArray[np.float64]


def normalize_min_max(scores: Floats, *, floor: float | None = None) -> NDArray[np.float64]:
    """Scores moved to 0..1: the best becomes 1, `floor` (or the lowest) becomes 0.

    When nothing tells the scores apart (one score, or all equal to each other) each becomes 1: the leg did find them.
    With a floor that they do not exceed, each becomes 0.

    Args:
        scores: shape (n,), finite.
        floor: What is worth nothing; scores below it count as 0. None: the lowest score.

    Returns:
        shape (n,); empty for empty input.
    """
    values = np.array(scores, dtype=np.float64)
    if not len(values):
        return values
    best = values.max()
    lowest = values.min() if floor is None else floor
    if best <= lowest:
        return np.full(len(values), 1.0 if floor is None else 0.0)
    values -= lowest
    values /= best - lowest
    return values if floor is None else np.clip(values, 0.0, 1.0, out=values)


def fuse(legs: Sequence[Leg]) -> FusedScores:
    """Weighted sum of the normalised scores of all legs.

    A row that a leg did not find has 0 from that leg. Legs that found nothing, or weigh nothing, take no part and the
    others share their weight: with one leg left, the fused order is that leg's order. Several fields are simply more
    legs, each with the product of its field's weight and its leg's weight.

    Raises:
        ConfigurationError: A weight is negative or not finite.
    """
    for leg in legs:
        if not 0 <= leg.weight < float("inf"):
            raise ConfigurationError(f"the weight of {leg.name!r} must be a number of 0 or more, not {leg.weight!r}")
    taking_part = sorted((leg for leg in legs if len(leg.rows) and leg.weight > 0), key=lambda leg: leg.name)
    if not taking_part:
        return FusedScores(rows=np.empty(0, dtype=np.int64), scores=np.empty(0, dtype=np.float64))
    total_weight = sum(leg.weight for leg in taking_part)
    scores = np.zeros(1 + max(int(leg.rows.max()) for leg in taking_part))
    found = np.zeros(len(scores), dtype=np.bool_)
    for leg in taking_part:
        found[leg.rows] = True
        scores[leg.rows] += leg.weight / total_weight * normalize_min_max(leg.scores, floor=leg.floor)
    rows = np.flatnonzero(found)
    return FusedScores(rows=rows, scores=np.minimum(scores[rows], 1.0))


def best_field(fields: Sequence[tuple[Rows, Floats]]) -> FusedScores:
    """Best score of each row over several fields, as it is (not normalised).

    Args:
        fields: (rows, scores) of each field; rows may repeat, also within a field.
    """
    filled = [(rows, scores) for rows, scores in fields if len(rows)]
    if not filled:
        return FusedScores(rows=np.empty(0, dtype=np.int64), scores=np.empty(0, dtype=np.float64))
    all_rows = np.concatenate([rows for rows, _ in filled]).astype(np.int64, copy=False)
    all_scores = np.concatenate([scores for _, scores in filled]).astype(np.float64, copy=False)
    rows, positions = np.unique(all_rows, return_inverse=True)
    best = np.full(len(rows), -np.inf)
    np.maximum.at(best, positions, all_scores)
    return FusedScores(rows=rows, scores=best)


def within_threshold(cosines: Floats, threshold: float | None) -> NDArray[np.bool_]:
    """Which cosines are at or above the threshold, give or take the rounding of float32; all, when it is None.

    Thresholds apply to cosines only: fused and keyword scores mean nothing outside their query.
    """
    values = np.asarray(cosines)
    if threshold is None:
        return np.ones(len(values), dtype=np.bool_)
    kept: NDArray[np.bool_] = values >= threshold - THRESHOLD_TOLERANCE
    return kept


def select_top(scores: Floats, keys: Rows | Sequence[str], limit: int | None = None) -> NDArray[np.intp]:
    """Positions of the best scores, best first; equal scores by key, ascending.

    Args:
        scores: shape (n,), finite.
        keys: n different keys: an array of integers, or strings in any sequence.
        limit: How many at most, 0 or more; None for all.
    """
    count = len(scores)
    if limit is not None and limit < count:
        if limit <= 0:
            return np.empty(0, dtype=np.intp)
        smallest = np.partition(scores, count - limit)[count - limit]
        candidates = np.flatnonzero(scores >= smallest)  # more than limit when the last places are tied
    else:
        candidates, limit = np.arange(count), count
    if isinstance(keys, np.ndarray):
        order = np.lexsort((keys[candidates], -scores[candidates]))
        return candidates[order[:limit]]
    order = np.argsort(-scores[candidates], kind="stable")
    ranked = candidates[order]
    best_first = scores[ranked]
    if len(ranked) > 1 and (best_first[1:] == best_first[:-1]).any():  # keys are only asked for where scores are tied
        by_score = zip((-best_first).tolist(), ranked.tolist(), strict=True)
        ranked = np.array([place for _, _, place in sorted((s, keys[p], p) for s, p in by_score)], dtype=np.intp)
    return ranked[:limit]


def plan_ranks(scores: Floats, chosen: Floats) -> NDArray[np.intp]:
    """Rank of each chosen score among all: 1 plus how many are better.

    Args:
        scores: shape (n,).
        chosen: shape (m,).
    """
    ascending = np.sort(scores)
    ranks: NDArray[np.intp] = 1 + len(ascending) - np.searchsorted(ascending, chosen, side="right")
    return ranks


def select_diverse(
    relevance: Floats,
    vectors: NDArray[np.float32],
    *,
    top_k: int,
    lambda_mult: float = LAMBDA_MULT,
) -> list[int]:
    """Greedy maximal marginal relevance: good answers that differ from the ones already chosen.

    Each step takes the candidate with the highest
    ``lambda_mult * relevance - (1 - lambda_mult) * (highest cosine to a chosen one)``; ties go to the earlier
    position, so pass candidates in their final order. Carbonell and Goldstein, SIGIR 1998. It costs recall
    (``docs/retrieval.md``): it is for variety, on request.

    Args:
        relevance: shape (n,), 0 to 1.
        vectors: shape (n, dims), unit length.
        top_k: How many to choose at most, 0 or more.
        lambda_mult: 0 to 1; 1.0 keeps the order of relevance.

    Returns:
        Chosen positions, in the order chosen; the first is the most relevant.

    Raises:
        ConfigurationError: `lambda_mult` is out of range.
    """
    if not 0 <= lambda_mult <= 1:
        raise ConfigurationError(f"lambda_mult must be from 0 to 1, not {lambda_mult!r}")
    count = len(relevance)
    if not count or top_k <= 0:
        return []
    relevance = np.asarray(relevance, dtype=np.float64)
    first = int(np.argmax(relevance))
    chosen = [first]
    is_open = np.ones(count, dtype=np.bool_)
    is_open[first] = False
    nearest = (vectors @ vectors[first]).astype(np.float64)
    while len(chosen) < min(top_k, count):
        marginal = np.where(is_open, lambda_mult * relevance - (1 - lambda_mult) * nearest, -np.inf)
        position = int(np.argmax(marginal))
        chosen.append(position)
        is_open[position] = False
        np.maximum(nearest, vectors @ vectors[position], out=nearest)
    return chosen


def plan_fetch_k(top_k: int, fetch_k: int | None = None) -> int:
    """Size of the pool that MMR chooses from: `fetch_k`, by default three times `top_k`, and never below `top_k`."""
    return max(top_k, 3 * top_k if fetch_k is None else fetch_k)
