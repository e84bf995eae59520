"""Single flight: of calls at the same time for the same thing, one does it and the others wait for what it got."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from langmem_harness.driving import Ask, Body

T = TypeVar("T")

LONGEST_WAIT_SECONDS = 300.0
"""Who has waited so long does the work itself: paying twice is better than a thread pool full of threads that wait."""


@dataclass(frozen=True, kw_only=True)
class Landed(Generic[T]):
    """What a call got, and whether it only waited for it."""

    value: T
    waited: bool


class Flights(Generic[T]):
    """Calls under way, by what they are for. For threads and event loops at once, in any mixture.

    A call that ends without a value (cancelled, killed with its event loop) leaves its place to one that waits. An
    error is raised in those that wait too. Nobody holds a lock while the work is done, and a call on the thread of a
    running event loop never blocks it: it does the work itself.
    """

    def __init__(self) -> None:
        self._under_way: dict[Hashable, Future[tuple[bool, Any]]] = {}
        self._lock = threading.Lock()

    def flying(self, key: Hashable, work: Callable[[], Body[T]]) -> Body[Landed[T]]:
        """Do the work, or wait for the call that is doing it."""
        while True:
            own: Future[tuple[bool, Any]] = Future()
            with self._lock:
                flight = self._under_way.setdefault(key, own)
            if flight is own:
                return Landed(value=(yield from self._doing(key, own, work)), waited=False)
            waiting = yield Ask(do=lambda: _wait(flight), ado=lambda: _await(flight))  # noqa: B023 - asked at once
            if waiting is None:  # nobody to wait for, or not any longer
                return Landed(value=(yield from work()), waited=False)
            has_value, value = waiting
            if has_value:
                return Landed(value=value, waited=True)
            if value is not None:
                raise value

    def _doing(self, key: Hashable, own: Future[tuple[bool, Any]], work: Callable[[], Body[T]]) -> Body[T]:
        landed: tuple[bool, Any] = (False, None)
        try:
            value = yield from work()
            landed = (True, value)
            return value
        except Exception as error:
            landed = (False, error)
            raise
        finally:  # also when this body is closed in the middle, because its task was cancelled
            with self._lock:
                del self._under_way[key]
            own.set_result(landed)


def _wait(flight: Future[tuple[bool, Any]]) -> tuple[bool, Any] | None:
    """Wait in this thread; None when that would block an event loop, on which the other call may depend."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        try:
            return flight.result(timeout=LONGEST_WAIT_SECONDS)
        except TimeoutError:
            return None
    return None


async def _await(flight: Future[tuple[bool, Any]]) -> tuple[bool, Any] | None:
    """Wait in this event loop. Giving up waiting leaves the flight alone."""
    loop = asyncio.get_running_loop()
    landed = asyncio.Event()

    def wake(_: Future[tuple[bool, Any]]) -> None:
        with contextlib.suppress(RuntimeError):  # this loop is closed: nobody waits here any more
            loop.call_soon_threadsafe(landed.set)

    flight.add_done_callback(wake)
    try:
        await asyncio.wait_for(landed.wait(), LONGEST_WAIT_SECONDS)
    except TimeoutError:
        return None
    return flight.result()
