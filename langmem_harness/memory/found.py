"""What a search found, and how. Pure."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from langgraph.store.base import SearchItem

from langmem_harness.memory.records import MemoryRecord

Layer = Literal["semantic", "recent", "summary", "history"]
"""Where a recalled memory came from: a search, the newest ones, a summary, or the turns of earlier threads."""


NO_INDEX = "the store has no search index"
"""Why a search was answered with the newest items by a store that is not ours."""


@dataclass(frozen=True, kw_only=True)
class RecalledMemory:
    """One memory with how it was found.

    Attributes:
        record: The memory.
        layer: See `Layer`.
        retrieval: ``"semantic"``, ``"keyword"``, ``"hybrid"`` or ``"recent"``.
        score: Bigger is better; None when nothing was compared.
        score_kind: What the score is (``"cosine"``, ``"bm25"``, ``"fused"``), or None.
        cosine: Cosine of the semantic leg, when it answered.
        outdated: A memory it was concluded from has been superseded or forgotten.
    """

    record: MemoryRecord
    layer: Layer = "semantic"
    retrieval: str
    score: float | None = None
    score_kind: str | None = None
    cosine: float | None = None
    outdated: bool = False


@dataclass(frozen=True, kw_only=True)
class MemoryRecall:
    """Answer of a search; an empty one also says how it was looked for.

    Attributes:
        memories: Best first.
        retrieval: How the search was answered.
        degraded: Why a leg is missing, or None.
        counts: Memories by layer.
    """

    memories: tuple[RecalledMemory, ...] = ()
    retrieval: str = "recent"
    degraded: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict)

    def __iter__(self) -> Iterator[RecalledMemory]:
        return iter(self.memories)

    def __len__(self) -> int:
        return len(self.memories)


@dataclass(frozen=True, kw_only=True)
class FoundBy:
    """How a store found one item, read off the item: our store says it itself, of others the score tells."""

    retrieval: str
    score: float | None
    score_kind: str | None
    cosine: float | None
    by_words: bool
    degraded: str | None

    @classmethod
    def of(cls, item: SearchItem) -> FoundBy:
        """Read it off a search result of any store."""
        retrieval = getattr(item, "retrieval", None)
        if retrieval is None:
            kind = None if item.score is None else "cosine"
            how = "recent" if item.score is None else "semantic"
            return cls(
                retrieval=how, score=item.score, score_kind=kind, cosine=item.score, by_words=False, degraded=None
            )
        legs: Mapping[str, Any] = getattr(item, "legs", None) or {}
        return cls(
            retrieval=retrieval,
            score=item.score,
            score_kind=getattr(item, "score_kind", None),
            cosine=getattr(legs.get("semantic"), "score", None),
            by_words="keyword" in legs,
            degraded=getattr(item, "degraded", None),
        )


def merge_layers(layers: Mapping[Layer, MemoryRecall], limit: int) -> MemoryRecall:
    """One list out of the layers, in their order: each memory once, under the first layer that found it.

    Over the limit the longest layer gives up its last one, again and again, the newest memories before others of the
    same number: no layer crowds another out. The search says how the whole was found, also when it found nothing;
    without a search it is ``"recent"``.
    """
    merged: dict[str, RecalledMemory] = {}
    for layer, result in layers.items():
        for found in result:
            merged.setdefault(found.record.key, dataclasses.replace(found, layer=layer))
    kept = list(merged.values())
    while len(kept) > limit:
        sizes = Counter(found.layer for found in kept)
        longest = max(sizes, key=lambda layer: (sizes[layer], layer == "recent"))
        del kept[max(place for place, found in enumerate(kept) if found.layer == longest)]
    memories = tuple(kept)
    return MemoryRecall(
        memories=memories,
        retrieval=next((result.retrieval for result in layers.values() if result.retrieval != "recent"), "recent"),
        degraded=next((result.degraded for result in layers.values() if result.degraded), None),
        counts=dict(Counter(found.layer for found in memories)),
    )
