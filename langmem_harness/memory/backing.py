"""The store behind a memory: what the bodies of this room ask of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

from langgraph.store.base import BaseStore, Op, SearchItem, SearchOp
from langgraph.store.memory import InMemoryStore

from langmem_harness.driving import Ask, Body

PAGE = 500
"""Items read at a time when everything of a namespace is needed."""


@dataclass(frozen=True, kw_only=True)
class FoundItems:
    """Items best first, and how they were looked for; `retrieval` is None when the store does not say."""

    items: Sequence[SearchItem]
    retrieval: str | None = None
    degraded: str | None = None


@runtime_checkable
class SaysHow(Protocol):
    """A store whose searches say how they were answered. Implemented by `FaissStore`."""

    def recall(self, namespace_prefix: tuple[str, ...], **options: Any) -> Any:
        """Search with a report."""
        ...

    async def arecall(self, namespace_prefix: tuple[str, ...], **options: Any) -> Any:
        """Async twin."""
        ...


@dataclass(frozen=True)
class Backing:
    """Asks a LangGraph store, of whatever kind."""

    store: BaseStore

    @property
    def says_how(self) -> bool:
        """Whether a search of this store says how it was answered."""
        return isinstance(self.store, SaysHow)

    @property
    def lists_newest_first(self) -> bool:
        """Whether the store lists items by their last change when it is not given a query."""
        return not isinstance(self.store, InMemoryStore)  # that one lists in the order of writing

    def batch(self, operations: Sequence[Op]) -> Ask:
        """Store operations; the answer is the list of their results. Reads see the state before the writes."""
        return Ask(do=lambda: self.store.batch(operations), ado=lambda: self.store.abatch(operations))

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
        store = self.store
        if isinstance(store, SaysHow):
            given = {"mmr_lambda": mmr_lambda, "field_weights": field_weights, "filter": filter}
            options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
            options |= {"query": query, "top_k": top_k}

            async def arecall() -> FoundItems:
                return _found(await store.arecall(namespace, **options))

            return Ask(do=lambda: _found(store.recall(namespace, **options)), ado=arecall)

        plain = self.batch([SearchOp(namespace, filter, top_k, 0, query)])

        async def asearch() -> FoundItems:
            return _first(await plain.ado())

        return Ask(do=lambda: _first(plain.do()), ado=asearch)

    def all_items(self, namespace: tuple[str, ...], filter: dict[str, Any] | None = None) -> Body[list[SearchItem]]:
        """Every item of a namespace, page by page."""
        items: list[SearchItem] = []
        while True:
            (page,) = yield self.batch([SearchOp(namespace, filter, PAGE, len(items), None)])
            items += page
            if len(page) < PAGE:
                return items


def _found(result: Any) -> FoundItems:
    return FoundItems(items=result.items, retrieval=result.retrieval, degraded=result.degraded)


def _first(results: Sequence[Any]) -> FoundItems:
    return FoundItems(items=cast(list[SearchItem], results[0]))
