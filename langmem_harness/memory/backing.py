"""The store behind a memory: what the bodies of this room ask of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast, runtime_checkable

from langgraph.store.base import BaseStore, Op, SearchItem, SearchOp
from langgraph.store.memory import InMemoryStore

from langmem_harness.driving import Ask, Body, computed
from langmem_harness.errors import ConfigurationError

FIRST_PAGE = 500
"""Items asked for first when everything of a namespace is needed; if there are more, everything is read once more."""


@dataclass(frozen=True, kw_only=True)
class FoundItems:
    """Items best first, and how they were looked for; `retrieval` is None when the store does not say."""

    items: Sequence[SearchItem]
    retrieval: str | None = None
    degraded: str | None = None


@runtime_checkable
class SaysHow(Protocol):
    """A store whose searches say how they were answered. Implemented by `FaissStore`."""

    @property
    def retrieval(self) -> str:
        """``"hybrid"``, ``"semantic"`` or ``"keyword"``: how it searches when nothing is missing."""
        ...

    def recall(self, namespace_prefix: tuple[str, ...], **options: Any) -> Any:
        """Search with a report."""
        ...

    async def arecall(self, namespace_prefix: tuple[str, ...], **options: Any) -> Any:
        """Async twin."""
        ...

    def stats(self) -> Any:
        """Sizes, and whether there are vectors (``vector_search``)."""
        ...


@dataclass(frozen=True, kw_only=True)
class StoreCapabilities:
    """What a memory can do over the store it was given.

    Whatever the store: scopes, admission, histories, retention, erasure with a receipt, export and import.

    Attributes:
        store: Name of its class.
        semantic: Finds by meaning.
        keyword: Finds by words.
        variety: Knows ``mmr_lambda``; elsewhere the order is by relevance.
        field_weights: Weighs the fields of an item; elsewhere its best field counts.
        reports: Says of each answer how it was found and what is missing; of others it is told by the scores.
        atomic: Promises that a batch is written whole or not at all, also when the process is killed.
        vacuum: Has a call that removes the bytes of erased rows from its file.
    """

    store: str
    semantic: bool
    keyword: bool
    variety: bool
    field_weights: bool
    reports: bool
    atomic: bool
    vacuum: bool

    @property
    def retrieval(self) -> Literal["hybrid", "semantic", "keyword", "recent"]:
        """How a search is answered when nothing is missing; ``"recent"``: nothing is compared, the newest come."""
        if self.semantic:
            return "hybrid" if self.keyword else "semantic"
        return "keyword" if self.keyword else "recent"


class Backing:
    """Asks a LangGraph store, of whatever kind.

    Args:
        store: Any store.

    Raises:
        ConfigurationError: Its index measures something else than cosines, which thresholds and near duplicates need.
    """

    def __init__(self, store: BaseStore) -> None:
        index: Mapping[str, Any] = getattr(store, "index_config", None) or {}
        distance = index.get("distance_type", "cosine")
        if distance != "cosine":
            raise ConfigurationError(
                f"long-term memory compares cosines, and the index of this store measures {distance!r}: "
                "give the store an index with distance_type='cosine'"
            )
        self.store = store
        self._has_index = bool(index)
        self._saying: SaysHow | None = store if isinstance(store, SaysHow) else None

    @property
    def says_how(self) -> bool:
        """Whether a search of this store says how it was answered."""
        return self._saying is not None

    @property
    def lists_newest_first(self) -> bool:
        """Whether the store lists items by their last change when it is not given a query."""
        return not isinstance(self.store, InMemoryStore)  # that one lists in the order of writing

    def capabilities(self) -> Body[StoreCapabilities]:
        """What can be done over this store."""
        return (yield computed(self._capabilities))  # type: ignore[no-any-return]

    def batch(self, operations: Sequence[Op]) -> Ask:
        """Store operations; the answer is the list of their results. Reads see the state before the writes.

        A store that says it has no async face (LangGraph's `SqliteStore`) is asked in a worker thread.
        """

        async def abatch() -> list[Any]:
            try:
                return await self.store.abatch(operations)
            except NotImplementedError:
                return await asyncio.to_thread(self.store.batch, operations)

        return Ask(do=lambda: self.store.batch(operations), ado=abatch)

    def find(
        self,
        namespace: tuple[str, ...],
        query: str,
        top_k: int,
        *,
        filter: dict[str, Any] | None = None,
        mmr_lambda: float | None = None,
        field_weights: Mapping[str, float] | None = None,
    ) -> Ask:
        """A search; the answer is a `FoundItems`.

        A store that says how it searches is asked for all of it. Others get a plain search: they know no field
        weights and no variety.
        """
        saying = self._saying
        if saying is not None:
            given = {"mmr_lambda": mmr_lambda, "field_weights": field_weights, "filter": filter}
            options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
            options |= {"query": query, "top_k": top_k}

            async def arecall() -> FoundItems:
                return _found(await saying.arecall(namespace, **options))

            return Ask(do=lambda: _found(saying.recall(namespace, **options)), ado=arecall)

        plain = self.batch([SearchOp(namespace, filter, top_k, 0, query)])

        async def asearch() -> FoundItems:
            return _first(await plain.ado())

        return Ask(do=lambda: _first(plain.do()), ado=asearch)

    def all_items(self, namespace: tuple[str, ...], filter: dict[str, Any] | None = None) -> Body[list[SearchItem]]:
        """Every item of a namespace.

        One read at last, not page after page: between two pages a write moves the places, and stores with coarse times
        have no fixed order among items of one second.
        """
        limit = FIRST_PAGE
        while True:
            (items,) = yield self.batch([SearchOp(namespace, filter, limit, 0, None)])
            if len(items) < limit:
                return items  # type: ignore[no-any-return]
            limit *= 8

    def _capabilities(self) -> StoreCapabilities:
        store, ours = self.store, self._saying is not None
        semantic, keyword = self._has_index, False
        if self._saying is not None:
            semantic = self._saying.retrieval != "keyword" and self._saying.stats().vector_search != "none"
            keyword = self._saying.retrieval != "semantic"
        return StoreCapabilities(
            store=type(store).__name__,
            semantic=semantic,
            keyword=keyword,
            variety=ours,
            field_weights=ours,
            reports=ours,
            atomic=ours,
            vacuum=ours,
        )


def _found(result: Any) -> FoundItems:
    return FoundItems(items=result.items, retrieval=result.retrieval, degraded=result.degraded)


def _first(results: Sequence[Any]) -> FoundItems:
    return FoundItems(items=cast(list[SearchItem], results[0]))
