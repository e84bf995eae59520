"""One body, two faces: what differs between sync and async code is asked for, and errors are thrown into the body.

A body is a generator. It yields an `Ask` for everything that differs between sync and async code, is sent the answer,
and gets an `Exception` raised at the yield when the asking failed. Cancellation and other `BaseException` are not
thrown in: they end the body.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar


@dataclass(frozen=True)
class Ask:
    """Something to do outside the body.

    Attributes:
        do: The sync way.
        ado: The async way.
    """

    do: Callable[[], Any]
    ado: Callable[[], Awaitable[Any]]


T = TypeVar("T")
Body: TypeAlias = Generator[Ask, Any, T]


def computed(function: Callable[[], Any]) -> Ask:
    """A longer computation: in place from sync code, in a worker thread from an event loop."""
    return Ask(do=function, ado=lambda: asyncio.to_thread(function))


def immediate(function: Callable[[], Any]) -> Ask:
    """A short computation, in place in both faces."""

    async def aimmediate() -> Any:
        return function()

    return Ask(do=function, ado=aimmediate)


def drive(body: Body[T]) -> T:
    """Run a body to its result from sync code."""
    try:
        ask = next(body)
        while True:
            try:
                answer = ask.do()
            except Exception as error:  # noqa: BLE001 - handed to the body, which decides or lets it out
                ask = body.throw(error)
            else:
                ask = body.send(answer)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        body.close()


async def adrive(body: Body[T]) -> T:
    """Run a body to its result from an event loop."""
    try:
        ask = next(body)
        while True:
            try:
                answer = await ask.ado()
            except Exception as error:  # noqa: BLE001 - handed to the body, which decides or lets it out
                ask = body.throw(error)
            else:
                ask = body.send(answer)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        body.close()
