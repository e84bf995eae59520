"""Work in steps, written once for both faces: a generator says what it needs, a driver gets it, sync or async."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from langmem_harness.store.embedder import EmbedRequest, StoreEmbedder

T = TypeVar("T")


@dataclass(frozen=True)
class Call:
    """Run a function that reads or writes the database; off the loop in the async face."""

    function: Callable[[], Any]


Steps = Generator["EmbedRequest | Call", Any, T]
"""Yields an `EmbedRequest` (is sent an `EmbedAnswer`) or a `Call` (is sent its result); returns the outcome."""


def run(steps: Steps[T], embedder: StoreEmbedder | None) -> T:
    """Drive the steps in this thread."""
    try:
        request = next(steps)
        while True:
            try:
                answer = request.function() if isinstance(request, Call) else _present(embedder).embed(request)
            except BaseException as error:  # noqa: BLE001 - thrown into the steps, which may clean up, and from there on
                request = steps.throw(error)
            else:
                request = steps.send(answer)
    except StopIteration as done:
        result: T = done.value
        return result


async def arun(steps: Steps[T], embedder: StoreEmbedder | None) -> T:
    """Drive the steps without blocking the event loop. Cancelled, a `Call` that has begun still ends, whole."""
    try:
        request = next(steps)
        while True:
            try:
                answer = (
                    await asyncio.to_thread(request.function)
                    if isinstance(request, Call)
                    else await _present(embedder).aembed(request)
                )
            except BaseException as error:  # noqa: BLE001 - as in `run`
                request = steps.throw(error)
            else:
                request = steps.send(answer)
    except StopIteration as done:
        result: T = done.value
        return result


def _present(embedder: StoreEmbedder | None) -> StoreEmbedder:
    assert embedder is not None  # noqa: S101 - only steps of a store with an embedder ask for vectors
    return embedder
