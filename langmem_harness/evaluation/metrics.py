"""Retrieval metrics of one question. Pure.

`ranked` are keys, best first; a key that comes twice counts where it comes first. `gold` are the keys that answer the
question, each equally good. `k` counts from the first result, 1 or more.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from langmem_harness.errors import ConfigurationError


def recall_at_k(ranked: Sequence[str], gold: Collection[str], k: int) -> float:
    """Share of the gold keys among the first k results, 0 to 1."""
    return len(_top(ranked, gold, k) & set(gold)) / len(set(gold))


def hit_at_k(ranked: Sequence[str], gold: Collection[str], k: int) -> float:
    """1.0 if any gold key is among the first k results, else 0.0."""
    return float(bool(_top(ranked, gold, k) & set(gold)))


def reciprocal_rank_at_k(ranked: Sequence[str], gold: Collection[str], k: int) -> float:
    """1 / rank of the first gold key among the first k results; 0.0 if there is none. Its mean is MRR@k."""
    _check(gold, k)
    for rank, key in enumerate(_distinct(ranked)[:k], start=1):
        if key in gold:
            return 1 / rank
    return 0.0


def ndcg_at_k(ranked: Sequence[str], gold: Collection[str], k: int) -> float:
    """Normalised discounted cumulative gain with gain 1 for a gold key, 0 to 1 (Järvelin and Kekäläinen, 2002).

    A gold key at rank r gains 1 / log2(r + 1); the sum is divided by that of the best possible order of k results.
    """
    _check(gold, k)
    gain = sum(1 / math.log2(rank + 1) for rank, key in enumerate(_distinct(ranked)[:k], start=1) if key in gold)
    best = sum(1 / math.log2(rank + 1) for rank in range(1, min(k, len(set(gold))) + 1))
    return gain / best


def _top(ranked: Sequence[str], gold: Collection[str], k: int) -> set[str]:
    _check(gold, k)
    return set(_distinct(ranked)[:k])


def _distinct(ranked: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(ranked))


def _check(gold: Collection[str], k: int) -> None:
    if not gold:
        raise ConfigurationError("a question without gold keys cannot be scored; leave it out")
    if k < 1:
        raise ConfigurationError(f"k must be 1 or more, not {k!r}")
