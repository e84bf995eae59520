"""`IdlePromoter`: promotion of threads that have gone quiet, in the background or called by a scheduler."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from types import TracebackType
from typing import Protocol, Self

from langmem_harness.errors import ConfigurationError, StorageClosedError
from langmem_harness.memory.promotion import PromotionReport
from langmem_harness.memory.scope import MemoryScope
from langmem_harness.memory.settings import utc_now

ThreadOf = tuple[MemoryScope, str]
"""A thread and whose it is."""

OnError = Callable[[ThreadOf, Exception], None]


class PromotesThreads(Protocol):
    """Promotes one thread. Implemented by `Promoter`, which reads it from a checkpointer."""

    def promote(self, scope: MemoryScope, thread_id: str) -> PromotionReport:
        """Promote what is new in the thread."""
        ...


class IdlePromoter:
    """Promotes a thread once nothing has happened in it for a while.

    Call `touch` when a turn ends. Then either call `run_due` from a scheduler, or `start` a background thread. What
    fails is kept, reported by `flush` and by `on_error`, and tried again with the next touch. A process that ends
    without `flush` or `close` loses nothing: the threads are still in the checkpointer and can be promoted by name.

    Args:
        promoter: Does the work.
        idle: How long nothing must have happened; more than zero.
        clock: Returns the current time, aware UTC.
        on_error: Called in the thread that promoted.

    Raises:
        ConfigurationError: `idle` is not more than zero.
    """

    def __init__(
        self,
        promoter: PromotesThreads,
        *,
        idle: timedelta = timedelta(minutes=30),
        clock: Callable[[], datetime] = utc_now,
        on_error: OnError | None = None,
    ) -> None:
        if idle <= timedelta(0):
            raise ConfigurationError(f"idle must be more than zero, not {idle!r}")
        self._promoter = promoter
        self._clock = clock
        self._idle = idle
        self._on_error = on_error
        self._touched: dict[ThreadOf, datetime] = {}
        self._errors: list[Exception] = []
        self._lock = threading.Lock()
        self._running = threading.Lock()  # one promotion run at a time, so that flush waits for the one under way
        self._stop = threading.Event()
        self._worker: threading.Thread | None = None

    def touch(self, scope: MemoryScope, thread_id: str) -> None:
        """Something happened in this thread: its time starts anew.

        Raises:
            StorageClosedError: After `close`.
        """
        if self._stop.is_set():
            raise StorageClosedError("the idle promoter was closed")
        with self._lock:
            self._touched[scope, thread_id] = self._clock()

    @property
    def pending(self) -> Mapping[ThreadOf, datetime]:
        """Threads that wait, and when something last happened in each."""
        with self._lock:
            return dict(self._touched)

    def run_due(self) -> dict[ThreadOf, PromotionReport]:
        """Promote every thread that is idle now, oldest first; errors are kept for `flush`."""
        return self._run_before(self._clock() - self._idle)

    def flush(self) -> dict[ThreadOf, PromotionReport]:
        """Promote every waiting thread now, idle or not.

        Raises:
            ExceptionGroup: What failed since the last flush, also in the background.
        """
        reports = self._run_before(None)
        with self._lock:
            errors, self._errors = self._errors, []
        if errors:
            raise ExceptionGroup("promotion failed for some threads", errors)
        return reports

    def start(self, *, interval_seconds: float = 60.0) -> None:
        """Look for idle threads in the background until `close`.

        Raises:
            ConfigurationError: Already started, or the interval is not more than zero.
        """
        if interval_seconds <= 0 or self._worker is not None:
            raise ConfigurationError("interval_seconds must be more than zero, and start is called once")

        def work() -> None:
            while not self._stop.wait(interval_seconds):
                self.run_due()

        self._worker = threading.Thread(target=work, name="langmem-harness-promotion", daemon=True)
        self._worker.start()

    def close(self) -> None:
        """Stop the background thread and flush. Safe to call twice."""
        self._stop.set()
        if self._worker is not None:
            self._worker.join()
            self._worker = None
        self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _run_before(self, latest: datetime | None) -> dict[ThreadOf, PromotionReport]:
        reports: dict[ThreadOf, PromotionReport] = {}
        with self._running:
            with self._lock:
                due = [thread for thread, at in self._touched.items() if latest is None or at <= latest]
                due.sort(key=lambda thread: self._touched[thread])
                for thread in due:
                    del self._touched[thread]  # a touch during the promotion makes it wait again
            for thread in due:
                try:
                    reports[thread] = self._promoter.promote(*thread)
                except Exception as error:  # noqa: BLE001 - one thread's failure must not stop the others; flush raises
                    with self._lock:
                        self._errors.append(error)
                    if self._on_error is not None:
                        self._on_error(thread, error)
        return reports
