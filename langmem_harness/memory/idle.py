"""`IdlePromoter`: promotion of threads that have gone quiet, called by a scheduler or in the background."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self

from langgraph.store.base import Op, PutOp

from langmem_harness.driving import Ask, Body, adrive, drive
from langmem_harness.errors import ConfigurationError, StorageClosedError
from langmem_harness.layout import IDLE_THREADS_NAMESPACE
from langmem_harness.memory.promotion import Promoter, PromotionReport
from langmem_harness.memory.records import parse_time
from langmem_harness.memory.scope import MemoryScope

ThreadOf = tuple[MemoryScope, str]
"""A thread and whose it is."""

OnError = Callable[[ThreadOf, Exception], None]

IDLE = timedelta(minutes=30)


@dataclass(frozen=True, kw_only=True)
class IdleReport:
    """What one run did, by thread.

    Attributes:
        promoted: What each promotion did.
        failed: What went wrong; these threads wait for the next run.
    """

    promoted: Mapping[ThreadOf, PromotionReport] = field(default_factory=dict)
    failed: Mapping[ThreadOf, Exception] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Waiting:
    """One thread that waits: when something last happened in it, and every note that says that it waits."""

    touched_at: datetime
    notes: tuple[str, ...]


class IdlePromoter:
    """Promotes a thread once nothing has happened in it for a while.

    `touch` notes in the store that a thread waits (`IdlePromotionMiddleware` does it at the end of each turn). Then
    either call `run_due` from a scheduler, in this process or any other over the same store
    (``langmem-harness memories promote-idle``), or `start` a background thread. A note goes when its thread has been
    promoted and not before: after a crash the next run takes up what was left, and promotes nothing twice.

    Every method has an async twin, except `start` and `close`. Two runs at the same time do no harm; from sync code
    the second waits for the first.

    Args:
        promoter: Does the work; made with a checkpointer.
        idle: How long nothing must have happened; more than zero.
        on_error: Called in the thread that promoted.

    Raises:
        ConfigurationError: `idle` is not more than zero.
    """

    def __init__(self, promoter: Promoter, *, idle: timedelta = IDLE, on_error: OnError | None = None) -> None:
        if idle <= timedelta(0):
            raise ConfigurationError(f"idle must be more than zero, not {idle!r}")
        self._promoter = promoter
        self._settings = promoter.memory.settings
        self._idle = idle
        self._on_error = on_error
        self._noted: dict[ThreadOf, str] = {}
        self._errors: list[Exception] = []
        self._lock = threading.Lock()
        self._running = threading.Lock()  # one run at a time, so that flush waits for the one under way
        self._stop = threading.Event()
        self._worker: threading.Thread | None = None

    def touch(self, scope: MemoryScope, thread_id: str) -> None:
        """Something happened in this thread: its time starts anew.

        Raises:
            StorageClosedError: After `close`.
        """
        drive(self._touch((scope, thread_id)))

    async def atouch(self, scope: MemoryScope, thread_id: str) -> None:
        """Async twin of `touch`."""
        await adrive(self._touch((scope, thread_id)))

    def pending(self) -> dict[ThreadOf, datetime]:
        """Threads that wait, the longest first, and when something last happened in each."""
        return drive(self._pending())

    async def apending(self) -> dict[ThreadOf, datetime]:
        """Async twin of `pending`."""
        return await adrive(self._pending())

    def run_due(self) -> IdleReport:
        """Promote every thread that is idle now, the longest first. One that fails does not stop the others."""
        with self._running:
            return drive(self._run_due())

    async def arun_due(self) -> IdleReport:
        """Async twin of `run_due`."""
        return await adrive(self._run_due())

    def flush(self) -> dict[ThreadOf, PromotionReport]:
        """Promote every thread that was touched through this object and waits, idle or not.

        Raises:
            ExceptionGroup: What failed since the last flush, also in the background.
        """
        with self._running:
            return drive(self._flush())

    async def aflush(self) -> dict[ThreadOf, PromotionReport]:
        """Async twin of `flush`."""
        return await adrive(self._flush())

    def start(self, *, interval_seconds: float = 60.0) -> None:
        """Look for idle threads in the background until `close`.

        Raises:
            ConfigurationError: Already started, or the interval is not more than zero.
        """
        if interval_seconds <= 0 or self._worker is not None:
            raise ConfigurationError("interval_seconds must be more than zero, and start is called once")

        def work() -> None:
            while not self._stop.wait(interval_seconds):
                try:
                    self.run_due()
                except Exception as error:  # noqa: BLE001 - the store may be back at the next round; flush raises it
                    with self._lock:
                        self._errors.append(error)

        self._worker = threading.Thread(target=work, name="langmem-harness-promotion", daemon=True)
        self._worker.start()

    def close(self) -> None:
        """Stop the background thread and flush. Safe to call twice.

        Raises:
            ExceptionGroup: As `flush`.
        """
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

    # -- bodies -------------------------------------------------------------------------------------------------

    def _touch(self, thread: ThreadOf) -> Body[None]:
        if self._stop.is_set():
            raise StorageClosedError("the idle promoter was closed")
        scope, thread_id = thread
        # A note of its own per touch: a run takes away the notes it has read, so it can never take a newer one along.
        note = secrets.token_hex(8)
        touched_at = self._settings.clock().isoformat()
        value = {"scope": scope.to_dict(), "thread_id": thread_id, "touched_at": touched_at}
        operations: list[Op] = [PutOp(IDLE_THREADS_NAMESPACE, note, value, False)]
        with self._lock:
            before = self._noted.get(thread)
            self._noted[thread] = note
        if before is not None:
            operations.append(PutOp(IDLE_THREADS_NAMESPACE, before, None))
        yield self._settings.backing.batch(operations)

    def _pending(self) -> Body[dict[ThreadOf, datetime]]:
        waiting = yield from self._waiting()
        return {thread: one.touched_at for thread, one in waiting.items()}

    def _run_due(self) -> Body[IdleReport]:
        latest = self._settings.clock() - self._idle
        waiting = yield from self._waiting()
        return (yield from self._promote({at: one for at, one in waiting.items() if one.touched_at <= latest}))

    def _flush(self) -> Body[dict[ThreadOf, PromotionReport]]:
        with self._lock:
            ours: Container[ThreadOf] = set(self._noted)
        waiting = yield from self._waiting()
        report = yield from self._promote({thread: one for thread, one in waiting.items() if thread in ours})
        with self._lock:
            errors, self._errors = self._errors, []
        if errors:
            raise ExceptionGroup("promotion failed for some threads", errors)
        return dict(report.promoted)

    def _waiting(self) -> Body[dict[ThreadOf, _Waiting]]:
        items = yield from self._settings.backing.all_items(IDLE_THREADS_NAMESPACE)
        waiting: dict[ThreadOf, _Waiting] = {}
        for item in items:
            thread = (MemoryScope.from_dict(item.value["scope"]), item.value["thread_id"])
            touched_at = parse_time(item.value["touched_at"], "touched_at")
            assert touched_at is not None  # noqa: S101 - None only comes from None
            known = waiting.get(thread)
            if known is None:
                waiting[thread] = _Waiting(touched_at=touched_at, notes=(item.key,))
            else:
                latest = max(known.touched_at, touched_at)
                waiting[thread] = _Waiting(touched_at=latest, notes=(*known.notes, item.key))
        return dict(sorted(waiting.items(), key=lambda entry: (entry[1].touched_at, entry[0][1])))

    def _promote(self, waiting: Mapping[ThreadOf, _Waiting]) -> Body[IdleReport]:
        promoted: dict[ThreadOf, PromotionReport] = {}
        failed: dict[ThreadOf, Exception] = {}
        for thread, one in waiting.items():
            try:
                promoted[thread] = yield _promotion(self._promoter, thread)
            except Exception as error:  # noqa: BLE001 - one thread's failure must not stop the others; it is reported
                failed[thread] = error
                with self._lock:
                    self._errors.append(error)
                if self._on_error is not None:
                    self._on_error(thread, error)
                continue
            yield self._settings.backing.batch([PutOp(IDLE_THREADS_NAMESPACE, note, None) for note in one.notes])
            with self._lock:
                if self._noted.get(thread) in one.notes:
                    del self._noted[thread]
        return IdleReport(promoted=promoted, failed=failed)


def _promotion(promoter: Promoter, thread: ThreadOf) -> Ask:
    return Ask(do=lambda: promoter.promote(*thread), ado=lambda: promoter.apromote(*thread))
