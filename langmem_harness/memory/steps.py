"""One body, two faces: an operation is a generator that asks for what it needs and is sent the answer.

It yields a `Batch` of store operations or a `Call` of a function that may take long; `run` answers from sync code,
`arun` from an event loop, where a `Call` goes to a worker thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from langgraph.store.base import BaseStore, Op


@dataclass(frozen=True)
class Batch:
    """Store operations; the answer is the list of their results. Reads see the state before the writes."""

    operations: Sequence[Op]


@dataclass(frozen=True)
class Call:
    """A function without arguments; the answer is what it returns."""

    function: Callable[[], Any]


T = TypeVar("T")
Steps: TypeAlias = Generator[Batch | Call, Any, T]


def run(store: BaseStore, steps: Steps[T]) -> T:
    """Drive `steps` to its result with the store's sync face. Errors are raised inside the steps first."""
    try:
        request = next(steps)
        while True:
            try:
                answer = store.batch(request.operations) if isinstance(request, Batch) else request.function()
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
            try:
                if isinstance(request, Batch):
                    answer = await store.abatch(request.operations)
                else:
                    answer = await asyncio.to_thread(request.function)
            except Exception as error:  # noqa: BLE001 - see `run`
                request = steps.throw(error)
            else:
                request = steps.send(answer)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        steps.close()
