"""Deletes expired items from time to time, in a thread of its own."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Protocol

from langmem_harness.errors import StorageClosedError, StorageError


class Sweepable(Protocol):
    """What a `Sweeper` sweeps."""

    def sweep(self) -> int:
        """Delete what has expired."""


class Sweeper:
    """Calls `sweep` again and again until it is stopped, or until nobody else holds the store.

    Args:
        store: Held weakly, so that it can be dropped without being closed.
        minutes: Time between two sweeps; None for no sweeps.
        on_failure: A bound method, held weakly too; gets the error of a sweep that failed. The next one is tried all
            the same.
    """

    def __init__(self, store: Sweepable, minutes: float | None, on_failure: Callable[[StorageError], None]) -> None:
        self._stop = threading.Event()
        if minutes is not None:
            arguments = (weakref.ref(store), weakref.WeakMethod(on_failure), self._stop, minutes * 60.0)
            threading.Thread(target=_sweep_for_ever, args=arguments, daemon=True, name="langmem-sweeper").start()

    def stop(self) -> None:
        """No further sweep begins."""
        self._stop.set()


def _sweep_for_ever(
    store_reference: weakref.ref[Sweepable],
    on_failure_reference: weakref.WeakMethod[Callable[[StorageError], None]],
    stop: threading.Event,
    seconds: float,
) -> None:
    while not stop.wait(seconds):
        store, on_failure = store_reference(), on_failure_reference()
        if store is None or on_failure is None:
            return
        try:
            store.sweep()
        except StorageClosedError:
            return
        except StorageError as error:
            on_failure(error)
        del store, on_failure
