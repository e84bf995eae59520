"""Search in one partition: which items, in which order, and what each leg said. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from langmem_harness.store.keywords import KeywordHits
from langmem_harness.store.partition import Partition
from langmem_harness.store.ranking import (
    LAMBDA_MULT,
    Leg,
    best_field,
    fuse,
    plan_ranks,
    select_diverse,
    select_top,
    within_threshold,
)
from langmem_harness.store.records import LegScore, Retrieval, ScoreKind

Rows = NDArray[np.int64]
Floats = NDArray[np.float32]

_POOL = 400  # candidates of a leg that does not score every row; enough for recall_at_10 of 0.99 on random vectors
_POOL_PER_RESULT = 8
_POOL_GROWTH = 16  # a pool that was too small is seldom too small by a little: hundreds of equal scores, or of chunks


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked of a partition.

    Attributes:
        limit: Results wanted, counted from the best one (a page is cut out later).
        vector: Unit query vector for the semantic leg; None to leave it out.
        terms: Query terms for the keyword leg; None to leave it out.
        dense_weight: Share of the semantic leg in a fused score.
        threshold: Smallest cosine, inclusive; None for none.
        lambda_mult: MMR when not None.
        fetch_k: How many of the best MMR puts into another order; those behind them keep theirs. Does not depend on
            `limit`, or the pages of one search would not fit together.
        field_weights: Weight by field path; None scores an item by its best field.
    """

    limit: int
    vector: Floats | None
    terms: Sequence[str] | None
    dense_weight: float
    threshold: float | None = None
    lambda_mult: float | None = None
    fetch_k: int = 0
    field_weights: Mapping[str, float] | None = None


class Found(NamedTuple):
    """One item."""

    item_id: int
    score: float
    legs: dict[str, LegScore]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Items best first, what the order was made from, and how many items each leg found."""

    found: list[Found] = field(default_factory=list)
    retrieval: Retrieval
    score_kind: ScoreKind | None = None
    leg_sizes: dict[str, int] = field(default_factory=dict)


class _OrderKeys(Sequence[str]):
    """Sort keys of some rows, looked up only where scores are equal."""

    def __init__(self, keys: list[str], rows: Rows) -> None:
        self._keys = keys
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, position: int) -> str: ...
    @overload
    def __getitem__(self, position: slice) -> Sequence[str]: ...
    def __getitem__(self, position: int | slice) -> str | Sequence[str]:
        if isinstance(position, slice):
            return [self._keys[row] for row in self._rows[position].tolist()]
        return self._keys[int(self._rows[position])]


def search_partition(partition: Partition, question: Question, allowed: Rows | None) -> Answer:
    """Rank the items of a partition.

    Args:
        partition: Read-locked, with its postings built if the question has terms.
        question: At least one of `vector` and `terms`.
        allowed: Rows that may answer, ascending; None for all.

    Returns:
        At most `limit` items; equal scores by key, then namespace.
    """
    wanted = question.limit if question.lambda_mult is None else max(question.limit, question.fetch_k)
    dense_rows, cosines, floor, hits = _candidates(partition, question, allowed, wanted)
    if question.threshold is not None and question.vector is not None:
        dense_rows, cosines, hits = _apply_threshold(partition, question, dense_rows, cosines, hits)
    legs = _legs(partition, question, *_with_waiting(partition, dense_rows, cosines, hits), floor, hits)
    names = {leg.name.partition(":")[0] for leg in legs if len(leg.rows)}
    if not names:
        return Answer(retrieval=_asked(question))
    if len(names) == 1 and question.field_weights is None:
        (leg,) = (leg for leg in legs if len(leg.rows))
        rows, scores = leg.rows.astype(np.int64), leg.scores.astype(np.float64)
        kind: ScoreKind = "cosine" if leg.name == "semantic" else "bm25"
    else:
        fused = fuse(legs)
        rows, scores, kind = fused.rows, fused.scores, "fused"
    order = select_top(scores, _OrderKeys(partition.order_keys, rows), wanted)
    if question.lambda_mult is not None:
        order = _diversify(partition, question, rows, scores, order)
    retrieval: Retrieval = "hybrid" if len(names) == 2 else "semantic" if "semantic" in names else "keyword"
    said = _what_legs_said(partition, dense_rows, cosines, hits, rows[order])
    return Answer(
        found=[
            Found(item_id=item_id, score=score, legs=legs_of_row)
            for item_id, score, legs_of_row in zip(
                partition.item_of[rows[order]].tolist(), scores[order].tolist(), said, strict=True
            )
        ],
        retrieval=retrieval,
        score_kind=kind,
        leg_sizes={name: sum(len(leg.rows) for leg in legs if leg.name.startswith(name)) for name in sorted(names)},
    )


def _asked(question: Question) -> Retrieval:
    if question.vector is None:
        return "keyword"
    return "semantic" if question.terms is None else "hybrid"


class _Candidates(NamedTuple):
    """What the legs found: rows with their exact cosines, the cosine that is worth nothing (None: the lowest of them),
    and what words found. Rows ascend in both."""

    rows: Rows
    cosines: Floats
    floor: float | None
    hits: KeywordHits | None


def _candidates(partition: Partition, question: Question, allowed: Rows | None, wanted: int) -> _Candidates:
    """Candidates of both legs, more of them as long as those a leg left out could be among the best `wanted`."""
    pool = max(_POOL, _POOL_PER_RESULT * wanted)
    while True:
        rows, cosines, floor = _semantic(partition, question, allowed, pool)
        hits = _keyword(partition, question, allowed, pool, rows)
        if hits is not None and not partition.vectors.is_exact:
            rows, cosines = _complete(partition, question, rows, cosines, hits)
        found = _Candidates(rows, cosines, floor, hits)
        if _sees_all(partition, question, pool) or _are_enough(partition, found, pool, wanted):
            return found
        pool *= _POOL_GROWTH


def _sees_all(partition: Partition, question: Question, pool: int) -> bool:
    """Whether no leg stops at the pool: a search by words alone is cut off later than a search by codes."""
    return len(partition) <= 4 * pool if question.vector is None else partition.vectors.is_exact


def _are_enough(partition: Partition, found: _Candidates, pool: int, wanted: int) -> bool:
    """Whether nothing that was left out can belong to the best `wanted` items.

    Many rows may be texts of a few items; and of equal scores at the end of a leg the ones left out may come first by
    key. With two legs a fused score says nothing about what both left out: there the pool is the approximation.
    """
    legs: list[tuple[Rows, NDArray[np.floating[Any]]]] = [(found.rows, found.cosines)] if len(found.rows) else []
    if found.hits is not None and len(found.hits):
        legs.append((found.hits.rows, found.hits.scores))
    if not wanted or all(len(rows) < pool for rows, _ in legs):
        return True
    if partition.several_texts:
        legs = [(best.rows, best.scores) for best in (best_field([(partition.first_row[r], s)]) for r, s in legs)]
        if len(np.unique(np.concatenate([rows for rows, _ in legs]))) < wanted:
            return False
    if len(legs) == 2:
        return True
    ((rows, scores),) = legs
    place = len(rows) - wanted
    return place > 0 and bool(np.partition(scores, place)[place] > scores.min())


def _semantic(
    partition: Partition, question: Question, allowed: Rows | None, pool: int
) -> tuple[Rows, Floats, float | None]:
    """Rows, their exact cosines, and the cosine that is worth nothing (None: the lowest of them)."""
    vectors = partition.vectors
    if question.vector is None or not len(vectors):
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32), None
    if allowed is not None:
        rows = allowed[vectors.usable[allowed]]
        if not vectors.is_exact and len(rows) > len(vectors) // 2:
            near = vectors.nearest(question.vector, 2 * pool)
            near = np.intersect1d(near, rows, assume_unique=True)
            if len(near) >= pool:
                return near, vectors.cosines(question.vector, near), _floor(question, partition)
        return rows, vectors.cosines(question.vector, rows), None
    if not vectors.is_exact:
        rows = np.sort(vectors.nearest(question.vector, pool))
        return rows, vectors.cosines(question.vector, rows), _floor(question, partition)
    cosines = vectors.cosines(question.vector)
    if len(vectors) == partition.size:
        return np.arange(partition.size, dtype=np.int64), cosines, None
    rows = np.flatnonzero(vectors.usable)
    return rows, cosines[rows], None


def _floor(question: Question, partition: Partition) -> float | None:
    """Only a fused score needs to know which cosine is worth nothing."""
    if question.terms is None or question.vector is None:
        return None
    return partition.vectors.lowest(question.vector)


def _keyword(
    partition: Partition, question: Question, allowed: Rows | None, pool: int, dense_rows: Rows
) -> KeywordHits | None:
    """Rows ascending: the best by words, and what words say about the candidates of the semantic leg."""
    if question.terms is None:
        return None
    limit = None if _sees_all(partition, question, pool) or len(partition) <= 4 * pool else pool
    return partition.keywords().match(
        question.terms, rows=allowed, limit=limit, also=None if limit is None else dense_rows
    )


def _complete(
    partition: Partition, question: Question, rows: Rows, cosines: Floats, hits: KeywordHits
) -> tuple[Rows, Floats]:
    """Give the candidates of the keyword leg their cosines, where the semantic leg stopped at its pool."""
    if question.vector is None:
        return rows, cosines
    extra = np.setdiff1d(hits.rows, rows, assume_unique=True)
    extra = extra[partition.vectors.usable[extra]]
    rows = np.concatenate([rows, extra])
    order = np.argsort(rows)
    return rows[order], np.concatenate([cosines, partition.vectors.cosines(question.vector, extra)])[order]


def _apply_threshold(
    partition: Partition, question: Question, rows: Rows, cosines: Floats, hits: KeywordHits | None
) -> tuple[Rows, Floats, KeywordHits | None]:
    """Leave out items whose best cosine is below the threshold, in both legs; items without a vector cannot be judged
    and stay where words found them."""
    best = best_field([(partition.first_row[rows], cosines)])
    good = best.rows[within_threshold(best.scores, question.threshold)]
    kept = np.isin(partition.first_row[rows], good)
    if hits is not None:
        judged = np.isin(partition.first_row[hits.rows], best.rows)
        stays = ~judged | np.isin(partition.first_row[hits.rows], good)
        hits = KeywordHits(rows=hits.rows[stays], scores=hits.scores[stays], coverage=hits.coverage[stays])
    return rows[kept], cosines[kept], hits


def _with_waiting(partition: Partition, rows: Rows, cosines: Floats, hits: KeywordHits | None) -> tuple[Rows, Floats]:
    """Rows that words found and that wait for their vectors take part as if their meaning agreed with their words:
    an item written a moment ago must not sink because the embedder was down."""
    if hits is None or not len(hits) or not len(rows):
        return rows, cosines
    waiting = ~partition.vectors.usable[hits.rows]
    if not waiting.any():
        return rows, cosines
    lowest, best = float(cosines.min()), float(cosines.max())
    share = hits.scores[waiting] / hits.scores.max()
    imagined = (lowest + share * (best - lowest)).astype(np.float32)
    return np.concatenate([rows, hits.rows[waiting]]), np.concatenate([cosines, imagined])


def _legs(
    partition: Partition,
    question: Question,
    rows: Rows,
    cosines: Floats,
    floor: float | None,
    hits: KeywordHits | None,
) -> list[Leg]:
    """Legs over items, each standing for an item by its first row."""
    found = {"semantic": (rows, cosines, floor, question.dense_weight)}
    if hits is not None:
        found["keyword"] = (hits.rows, hits.scores, 0.0, 1.0 - question.dense_weight)
    legs: list[Leg] = []
    for name, (leg_rows, scores, worthless, weight) in found.items():
        if question.field_weights is None:
            legs.append(_best_leg(partition, name, leg_rows, scores, worthless, weight))
            continue
        names = [partition.fields[row] for row in leg_rows.tolist()]
        for path, share in question.field_weights.items():
            of_field = np.fromiter((name_ == path for name_ in names), dtype=np.bool_, count=len(names))
            leg = _best_leg(
                partition, f"{name}:{path}", leg_rows[of_field], scores[of_field], worthless, weight * share
            )
            legs.append(leg)
    return legs


def _best_leg(partition: Partition, name: str, rows: Rows, scores: Floats, floor: float | None, weight: float) -> Leg:
    if not partition.several_texts:
        return Leg(name=name, weight=weight, rows=rows, scores=scores, floor=floor)
    best = best_field([(partition.first_row[rows], scores)])
    return Leg(name=name, weight=weight, rows=best.rows, scores=best.scores, floor=floor)


def _diversify(
    partition: Partition, question: Question, rows: Rows, scores: NDArray[np.float64], order: NDArray[np.intp]
) -> NDArray[np.intp]:
    """The first `fetch_k` of the order, the different ones first; the rest follows as it was."""
    pool = order[: question.fetch_k]
    if not len(pool) or not len(partition.vectors):
        return order[: question.limit]
    relevance = scores[pool]
    spread = relevance.max() - relevance.min()
    relevance = (relevance - relevance.min()) / spread if spread > 0 else np.ones(len(relevance))
    lambda_mult = LAMBDA_MULT if question.lambda_mult is None else question.lambda_mult
    matrix = partition.vectors.matrix[rows[pool]]
    chosen = select_diverse(relevance, matrix, top_k=question.limit, lambda_mult=lambda_mult)
    return np.concatenate([pool[chosen], order[len(pool) :]])[: question.limit]


def _what_legs_said(
    partition: Partition, rows: Rows, cosines: Floats, hits: KeywordHits | None, chosen: Rows
) -> list[dict[str, LegScore]]:
    """`LegScore` by leg of each chosen item, its best text counted. Rows of both legs ascend."""
    said: list[dict[str, LegScore]] = [{} for _ in chosen]
    if len(rows):
        _note_leg(partition, said, "semantic", rows, cosines, None, chosen)
    if hits is not None and len(hits):
        _note_leg(partition, said, "keyword", hits.rows, hits.scores, hits.coverage, chosen)
    return said


def _note_leg(
    partition: Partition,
    said: list[dict[str, LegScore]],
    name: str,
    rows: Rows,
    scores: Floats,
    coverage: Floats | None,
    chosen: Rows,
) -> None:
    firsts, best, shares = rows, scores, coverage
    if partition.several_texts:
        of_item = partition.first_row[rows]
        order = np.lexsort((scores, of_item))
        order = order[np.append(of_item[order][1:] != of_item[order][:-1], True)]  # the best text of each item
        firsts, best, shares = of_item[order], scores[order], None if coverage is None else coverage[order]
    places = np.minimum(np.searchsorted(firsts, chosen), len(firsts) - 1)
    found = np.flatnonzero(firsts[places] == chosen)
    places = places[found]
    told = zip(
        found.tolist(),
        plan_ranks(best, best[places]).tolist(),
        best[places].tolist(),
        repeat(None) if shares is None else shares[places].tolist(),
        strict=False,
    )
    for position, rank, score, share in told:
        said[position][name] = LegScore(rank=rank, score=score, coverage=share)
