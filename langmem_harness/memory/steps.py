"""One body, two faces: an operation is a generator that asks for what it needs and is sent the answer.

It yields a `Batch` of store operations, an `Ask` to a model or a `Call` of a function that may take long; `run` answers
from sync code, `arun` from an event loop, where a `Call` goes to a worker thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.store.base import BaseStore, Op


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


T = TypeVar("T")
Steps: TypeAlias = Generator[Batch | Call | Ask, Any, T]

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
