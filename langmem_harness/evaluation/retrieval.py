"""Retrieval runs: ask every question of a data set, score the answers, average."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median

from langmem_harness.errors import ConfigurationError
from langmem_harness.evaluation.datasets import Collection, Dataset
from langmem_harness.evaluation.metrics import hit_at_k, ndcg_at_k, recall_at_k, reciprocal_rank_at_k

Search = Callable[[str, int], Sequence[str]]
"""(question, how many) -> keys, best first."""

System = Callable[[Collection], Search]
"""Indexes a collection and gives the function that searches it."""

CUTS = (1, 5, 10)
_DEEPEST = max(CUTS)


@dataclass(frozen=True, kw_only=True)
class RetrievalReport:
    """Means over all questions of a data set, each question counting the same; shares from 0 to 1.

    Attributes:
        dataset: Name of the data set.
        system: Name of what was measured.
        question_count: How many questions were asked.
        recall_at: Share of the gold items among the first 1, 5 and 10.
        hit_at: Share of questions with any gold item among the first 1, 5 and 10.
        mrr_at_10: Mean reciprocal rank.
        ndcg_at_10: Mean normalised discounted cumulative gain.
        recall_at_10_by_category: Mean of `recall_at[10]` in each category.
        search_milliseconds: Median time of one search, embedding of the question included.
    """

    dataset: str
    system: str
    question_count: int
    recall_at: dict[int, float]
    hit_at: dict[int, float]
    mrr_at_10: float
    ndcg_at_10: float
    recall_at_10_by_category: dict[str, float]
    search_milliseconds: float

    def to_dict(self) -> dict[str, object]:
        """Plain JSON values."""
        return asdict(self)


def measure_retrieval(dataset: Dataset, system: System, *, name: str) -> RetrievalReport:
    """Run all questions of a data set through a system.

    Args:
        dataset: At least one question.
        system: Called once for each collection, in order.
        name: Of the system, for the report.

    Raises:
        ConfigurationError: The data set has no question.
    """
    if not dataset.question_count:
        raise ConfigurationError(f"{dataset.name} has no question to ask")
    rankings: list[Sequence[str]] = []
    seconds: list[float] = []
    for collection in dataset.collections:
        search = system(collection)
        for question in collection.questions:
            start = time.perf_counter()
            rankings.append(search(question.text, _DEEPEST))
            seconds.append(time.perf_counter() - start)
    questions = [question for collection in dataset.collections for question in collection.questions]
    answered = list(zip(rankings, questions, strict=True))
    by_category = {
        category: fmean(recall_at_k(ranked, q.gold, _DEEPEST) for ranked, q in answered if q.category == category)
        for category in sorted({question.category for question in questions})
    }
    return RetrievalReport(
        dataset=dataset.name,
        system=name,
        question_count=len(questions),
        recall_at={k: fmean(recall_at_k(ranked, q.gold, k) for ranked, q in answered) for k in CUTS},
        hit_at={k: fmean(hit_at_k(ranked, q.gold, k) for ranked, q in answered) for k in CUTS},
        mrr_at_10=fmean(reciprocal_rank_at_k(ranked, q.gold, _DEEPEST) for ranked, q in answered),
        ndcg_at_10=fmean(ndcg_at_k(ranked, q.gold, _DEEPEST) for ranked, q in answered),
        recall_at_10_by_category=by_category,
        search_milliseconds=1_000 * median(seconds),
    )


def render_retrieval_table(reports: Iterable[RetrievalReport]) -> str:
    """A Markdown table, one row for each report, in percent; an empty text for none."""
    rows = [
        "| {} | {} | {} | {} | {:.1f} | {:.1f} | {:.2f} |".format(
            report.dataset,
            report.system,
            " / ".join(f"{100 * report.recall_at[k]:.1f}" for k in CUTS),
            " / ".join(f"{100 * report.hit_at[k]:.1f}" for k in CUTS),
            100 * report.mrr_at_10,
            100 * report.ndcg_at_10,
            report.search_milliseconds,
        )
        for report in reports
    ]
    if not rows:
        return ""
    head = ["| data | system | recall@1/5/10 | hit@1/5/10 | MRR@10 | nDCG@10 | ms |", "|---|---|---|---|---|---|---|"]
    return "\n".join([*head, *rows]) + "\n"
