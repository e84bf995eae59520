"""Promotion of quiet threads: by call, in the background, with errors that show."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from langmem_harness.errors import ConfigurationError, StorageClosedError
from langmem_harness.memory.idle import IdlePromoter, ThreadOf
from langmem_harness.memory.promotion import PromotionReport
from langmem_harness.memory.scope import MemoryScope
from langmem_harness.testing import FixedClock

ADA = MemoryScope(user="ada")


class Recorder:
    """Stands for the outside world: which threads were promoted; fails for thread "bad"."""

    def __init__(self) -> None:
        self.promoted: list[str] = []
        self.done = threading.Event()

    def promote(self, scope: MemoryScope, thread_id: str) -> PromotionReport:
        if thread_id == "bad":
            raise RuntimeError("no")
        self.promoted.append(thread_id)
        self.done.set()
        return PromotionReport(read=1)


def test_only_quiet_threads_are_promoted_and_once() -> None:
    recorder, clock = Recorder(), FixedClock()
    idle = IdlePromoter(recorder, clock=clock)
    idle.touch(ADA, "a")
    clock.advance(minutes=20)
    idle.touch(ADA, "b")
    clock.advance(minutes=10)
    assert list(idle.run_due()) == [(ADA, "a")]
    clock.advance(minutes=5)
    idle.touch(ADA, "b")
    clock.advance(minutes=29)
    assert idle.run_due() == {}
    assert list(idle.pending) == [(ADA, "b")]
    idle.close()
    assert recorder.promoted == ["a", "b"]


def test_errors_do_not_stop_the_others_and_show() -> None:
    recorder = Recorder()
    seen: list[tuple[ThreadOf, Exception]] = []
    idle = IdlePromoter(recorder, clock=FixedClock(), on_error=lambda thread, error: seen.append((thread, error)))
    idle.touch(ADA, "bad")
    idle.touch(ADA, "good")
    with pytest.raises(ExceptionGroup) as caught:
        idle.flush()
    assert recorder.promoted == ["good"]
    assert [thread for thread, _ in seen] == [(ADA, "bad")]
    assert len(caught.value.exceptions) == 1
    assert idle.flush() == {}


def test_in_the_background_until_closed() -> None:
    recorder, clock = Recorder(), FixedClock()
    with IdlePromoter(recorder, clock=clock, idle=timedelta(minutes=1)) as idle:
        idle.start(interval_seconds=0.01)
        with pytest.raises(ConfigurationError):
            idle.start()
        idle.touch(ADA, "a")
        clock.advance(minutes=2)
        assert recorder.done.wait(5)
        idle.touch(ADA, "b")
    assert recorder.promoted == ["a", "b"]
    idle.close()
    with pytest.raises(StorageClosedError):
        idle.touch(ADA, "c")


def test_idle_must_be_a_while() -> None:
    with pytest.raises(ConfigurationError):
        IdlePromoter(Recorder(), clock=FixedClock(), idle=timedelta(0))
