"""One body, two faces: an operation is a generator that asks for what it needs and is sent the answer.

It yields a `Batch` of store operations, a `Find`, an `Ask` to a model or a `Call` of a function that may take long;
`run` answers from sync code, `arun` from an event loop, where a `Call` goes to a worker thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.store.base import BaseStore, Op, SearchItem, SearchOp


@dataclass(frozen=True)
class Batch:
    """Store operations; the answer is the list of their results. Reads see the state before the writes."""

    operations: Sequence[Op]


@dataclass(frozen=True)
class Call:
    """A function without arguments; the answer is what it returns."""

    function: Callable[[], Any]


@dataclass(frozen=True)
class Ask:
    """A question to a chat model, kept out of the user's stream; the answer is its message."""

    model: BaseChatModel
    messages: Sequence[BaseMessage]


@dataclass(frozen=True)
class Find:
    """A search that says how it was answered; the answer is a `FoundItems`.

    `FaissStore` is asked for all of it. Other stores get a plain search: they know no field weights and no variety.
    """

    namespace: tuple[str, ...]
    query: str
    top_k: int
    filter: dict[str, Any] | None = None
    mmr_lambda: float | None = None
    field_weights: Mapping[str, float] | None = None

    @property
    def operation(self) -> SearchOp:
        """The plain search."""
        return SearchOp(self.namespace, self.filter, self.top_k, 0, self.query)

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of ``FaissStore.recall``."""
        given = {"mmr_lambda": self.mmr_lambda, "field_weights": self.field_weights, "filter": self.filter}
        return {
            "query": self.query,
            "top_k": self.top_k,
            **{name: value for name, value in given.items() if value is not None},
        }


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


T = TypeVar("T")
Steps: TypeAlias = Generator[Batch | Find | Call | Ask, Any, T]

_SILENT: RunnableConfig = {"tags": ["langsmith:nostream"], "callbacks": []}
"""No token of an internal call may reach the user's stream: the tag stops one way there, no callbacks the other."""


def run(store: BaseStore, steps: Steps[T]) -> T:
    """Drive `steps` to its result with the store's sync face. Errors are raised inside the steps first."""
    try:
        request = next(steps)
        while True:
            answer: Any
            try:
                match request:
                    case Batch():
                        answer = store.batch(request.operations)
                    case Find() if isinstance(store, SaysHow):
                        answer = _found(store.recall(request.namespace, **request.options))
                    case Find():
                        (items,) = store.batch([request.operation])
                        answer = FoundItems(items=cast(list[SearchItem], items))
                    case Ask():
                        answer = request.model.invoke(request.messages, _SILENT)
                    case Call():
                        answer = request.function()
            except Exception as error:  # noqa: BLE001 - the steps decide; what they do not handle is raised from here
                request = steps.throw(error)
            else:
                request = steps.send(answer)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        steps.close()


async def arun(store: BaseStore, steps: Steps[T]) -> T:
    """Drive `steps` to its result with the store's async face. Errors are raised inside the steps first."""
    try:
        request = next(steps)
        while True:
            answer: Any
            try:
                match request:
                    case Batch():
                        answer = await store.abatch(request.operations)
                    case Find() if isinstance(store, SaysHow):
                        answer = _found(await store.arecall(request.namespace, **request.options))
                    case Find():
                        (items,) = await store.abatch([request.operation])
                        answer = FoundItems(items=cast(list[SearchItem], items))
                    case Ask():
                        answer = await request.model.ainvoke(request.messages, _SILENT)
                    case Call():
                        answer = await asyncio.to_thread(request.function)
            except Exception as error:  # noqa: BLE001 - see `run`
                request = steps.throw(error)
            else:
                request = steps.send(answer)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        steps.close()


def _found(result: Any) -> FoundItems:
    return FoundItems(items=result.items, retrieval=result.retrieval, degraded=result.degraded)
