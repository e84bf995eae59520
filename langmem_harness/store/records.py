"""What searches and checks of the store return."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal

from langgraph.store.base import SearchItem

Retrieval = Literal["semantic", "keyword", "hybrid", "recent"]
Mode = Literal["semantic", "keyword", "hybrid"]
ScoreKind = Literal["cosine", "bm25", "fused"]


@dataclass(frozen=True, kw_only=True, slots=True)
class LegScore:
    """What one leg said about one item.

    Attributes:
        rank: Place among the candidates of this leg, from 1; equal scores share the better place.
        score: Cosine in [-1, 1] for ``"semantic"``, BM25 (above 0) for ``"keyword"``; bigger is better.
        coverage: Share of the distinct query terms the item contains, 0.0 to 1.0; keyword leg only.
    """

    rank: int
    score: float
    coverage: float | None = None


class RecallItem(SearchItem):
    """A search result that says how it was found.

    Attributes:
        score: Bigger is better, what it is says `score_kind`; None without a query.
        retrieval: Which legs made the order: ``"semantic"``, ``"keyword"``, ``"hybrid"``, or ``"recent"`` without a
            query.
        legs: `LegScore` by leg name, for the legs that found this item.
        score_kind: ``"cosine"``, ``"bm25"``, ``"fused"`` (0 to 1, meaningful inside its query only), or None.
        degraded: Why a leg is missing, or None.
    """

    __slots__ = ("degraded", "legs", "retrieval", "score_kind")

    def __init__(
        self,
        namespace: tuple[str, ...],
        key: str,
        value: dict[str, Any],
        created_at: datetime,
        updated_at: datetime,
        score: float | None = None,
        *,
        retrieval: Retrieval = "recent",
        legs: Mapping[str, LegScore] | None = None,
        score_kind: ScoreKind | None = None,
        degraded: str | None = None,
    ) -> None:
        super().__init__(namespace, key, value, created_at, updated_at, score)
        self.retrieval = retrieval
        self.legs = dict(legs or {})
        self.score_kind = score_kind
        self.degraded = degraded

    def dict(self) -> dict[str, Any]:
        """LangGraph's fields and ours, as plain JSON values."""
        return {
            **super().dict(),
            "retrieval": self.retrieval,
            "legs": {name: asdict(leg) for name, leg in self.legs.items()},
            "score_kind": self.score_kind,
            "degraded": self.degraded,
        }


@dataclass(frozen=True, kw_only=True)
class RecallResult:
    """Answer of `FaissStore.recall`; an empty one also says how it was looked for.

    Attributes:
        items: Best first; equal scores by key, then namespace.
        retrieval: As in `RecallItem`.
        legs: How many candidates each leg brought that took part.
        degraded: Why a leg is missing, or None.
        seconds: Time from call to answer, embedding of the query included.
        embedding_seconds: The part that embedding took.
    """

    items: tuple[RecallItem, ...] = ()
    retrieval: Retrieval = "recent"
    legs: Mapping[str, int] = field(default_factory=dict)
    degraded: str | None = None
    seconds: float = 0.0
    embedding_seconds: float = 0.0

    def __iter__(self) -> Iterator[RecallItem]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


@dataclass(frozen=True, kw_only=True)
class StoreReport:
    """What `FaissStore.verify` found.

    Attributes:
        items: Items read.
        vectors: Vectors read.
        problems: One sentence each, with item numbers and counts, without content; at most 100.
        problem_count: How many there are in all.
    """

    items: int
    vectors: int
    problems: tuple[str, ...]
    problem_count: int

    @property
    def ok(self) -> bool:
        """Whether everything that can be derived again came out the same."""
        return self.problem_count == 0

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**asdict(self), "problems": list(self.problems), "ok": self.ok}


@dataclass(frozen=True, kw_only=True)
class StoreStats:
    """Sizes of a store.

    Attributes:
        namespaces: Namespaces with at least one item.
        items: Items, expired ones that were not swept yet included.
        expired: Of those, how many have expired.
        vectors: Stored vectors.
        pending_embeddings: Items that wait for vectors.
        file_bytes: Size of the database, write-ahead log not counted.
        cached_partitions: Partitions in this process's memory.
        cached_bytes: Their size, estimated.
        vector_search: ``"numpy"`` or ``"faiss"``: what large partitions use; ``"none"`` without an embedder.
    """

    namespaces: int
    items: int
    expired: int
    vectors: int
    pending_embeddings: int
    file_bytes: int
    cached_partitions: int
    cached_bytes: int
    vector_search: str

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)
