"""Promotion of quiet threads: by a call, in the background, over a crash, with errors that show."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langmem_harness.errors import ConfigurationError, StorageClosedError
from langmem_harness.layout import IDLE_THREADS_NAMESPACE
from langmem_harness.memory import LongTermMemory, MemoryContext, MemoryScope, Promoter, PromotionReport
from langmem_harness.memory.idle import IdlePromoter, ThreadOf
from langmem_harness.middleware.idle_promotion import IdlePromotionMiddleware
from langmem_harness.pairing import open_memory
from langmem_harness.testing import FixedClock, ScriptedChatModel
from tests.conftest import Face

ADA = MemoryScope(user="ada")


class Recorder(Promoter):
    """Notes which threads were promoted; fails for thread "bad"."""

    def __init__(self, clock: FixedClock, store: BaseStore | None = None) -> None:
        super().__init__(LongTermMemory(store or InMemoryStore(), clock=clock))
        self.promoted: list[str] = []
        self.done = threading.Event()

    def promote(self, scope: MemoryScope, thread_id: str) -> PromotionReport:
        if thread_id == "bad":
            raise RuntimeError("no")
        self.promoted.append(thread_id)
        self.done.set()
        return PromotionReport(read=1)

    async def apromote(self, scope: MemoryScope, thread_id: str) -> PromotionReport:
        return self.promote(scope, thread_id)


def test_only_quiet_threads_are_promoted_and_once(any_store: BaseStore, face: Face) -> None:
    clock = FixedClock()
    recorder = Recorder(clock, any_store)
    idle = IdlePromoter(recorder)
    face(idle, "touch", ADA, "a")
    clock.advance(minutes=20)
    face(idle, "touch", ADA, "b")
    clock.advance(minutes=10)
    assert list(face(idle, "run_due").promoted) == [(ADA, "a")]
    clock.advance(minutes=5)
    face(idle, "touch", ADA, "b")
    clock.advance(minutes=29)
    assert face(idle, "run_due").promoted == {}
    assert list(face(idle, "pending")) == [(ADA, "b")]
    clock.advance(minutes=1)
    assert list(face(idle, "run_due").promoted) == [(ADA, "b")]
    assert recorder.promoted == ["a", "b"]
    assert any_store.search(IDLE_THREADS_NAMESPACE) == []


def test_another_process_promotes_what_was_touched_here(tmp_path: Path, face: Face) -> None:
    """A scheduler is a process of its own, and the one that noted the thread may be gone."""
    clock = FixedClock()
    bob = MemoryScope(user="bob", tenant="acme", agent="travel")
    for thread in ("one", "two"):
        with open_memory(tmp_path) as opened:
            idle = IdlePromoter(Recorder(clock, opened.store))
            face(idle, "touch", ADA, thread)
            face(idle, "touch", bob, thread)  # not closed: the process was killed
    clock.advance(minutes=31)
    with open_memory(tmp_path) as opened:
        report = face(IdlePromoter(Recorder(clock, opened.store)), "run_due")
    assert set(report.promoted) == {(scope, thread) for scope in (ADA, bob) for thread in ("one", "two")}


def test_errors_do_not_stop_the_others_and_show_and_the_thread_still_waits(face: Face) -> None:
    clock = FixedClock()
    recorder = Recorder(clock)
    seen: list[tuple[ThreadOf, Exception]] = []
    idle = IdlePromoter(recorder, on_error=lambda thread, error: seen.append((thread, error)))
    face(idle, "touch", ADA, "bad")
    face(idle, "touch", ADA, "good")
    with pytest.raises(ExceptionGroup) as caught:
        face(idle, "flush")
    assert recorder.promoted == ["good"]
    assert [thread for thread, _ in seen] == [(ADA, "bad")]
    assert len(caught.value.exceptions) == 1
    assert list(face(idle, "pending")) == [(ADA, "bad")]
    clock.advance(minutes=31)
    assert list(face(idle, "run_due").failed) == [(ADA, "bad")]
    with pytest.raises(ExceptionGroup):  # what failed in a run is not forgotten, whoever looks first
        face(idle, "flush")


def test_a_touch_during_the_promotion_makes_it_wait_again(face: Face) -> None:
    clock = FixedClock()

    class Busy(Recorder):
        def promote(self, scope: MemoryScope, thread_id: str) -> PromotionReport:
            if not self.promoted:
                idle.touch(scope, thread_id)
                other.touch(scope, thread_id)
            return super().promote(scope, thread_id)

    recorder = Busy(clock)
    idle, other = IdlePromoter(recorder), IdlePromoter(recorder)
    other.touch(ADA, "a")
    idle.touch(ADA, "a")
    clock.advance(minutes=31)
    assert len(face(idle, "run_due").promoted) == 1
    assert list(face(idle, "pending")) == [(ADA, "a")]


def test_a_crash_in_the_middle_is_taken_up_and_nothing_is_written_twice(tmp_path: Path, face: Face) -> None:
    class Killed(BaseException):
        pass

    class Fragile(Promoter):
        def promote(self, scope: MemoryScope, thread_id: str) -> PromotionReport:
            report = super().promote(scope, thread_id)
            if thread_id == "two":
                raise Killed
            return report

        async def apromote(self, scope: MemoryScope, thread_id: str) -> PromotionReport:
            return self.promote(scope, thread_id)

    clock = FixedClock(datetime.now(UTC))
    facts = {"one": "I'm vegetarian.", "two": "I'm allergic to nuts.", "three": "My name is Ada."}
    with open_memory(tmp_path) as opened:
        agent = create_agent(ScriptedChatModel(responses=["ok"] * 3), checkpointer=opened.checkpointer)
        memory = LongTermMemory(opened.store, clock=clock)
        idle = IdlePromoter(Fragile(memory, checkpointer=opened.checkpointer))
        for thread, fact in facts.items():
            agent.invoke({"messages": [HumanMessage(fact)]}, {"configurable": {"thread_id": thread}})
            face(idle, "touch", ADA, thread)
            clock.advance(seconds=1)
        clock.advance(minutes=31)
        with pytest.raises(Killed):
            face(idle, "run_due")
    with open_memory(tmp_path) as opened:
        memory = LongTermMemory(opened.store, clock=clock)
        idle = IdlePromoter(Promoter(memory, checkpointer=opened.checkpointer))
        report = face(idle, "run_due")
        read = {thread: done.read for (_, thread), done in report.promoted.items()}
        assert read == {"two": 0, "three": 1}
        assert {record.text for record in memory.list(ADA)} == set(facts.values())
        assert face(idle, "pending") == {}
        memory.erase_thread("one")
        assert {record.text for record in memory.list(ADA)} == {facts["two"], facts["three"]}


def test_in_the_background_until_closed() -> None:
    clock = FixedClock()
    recorder = Recorder(clock)
    with IdlePromoter(recorder, idle=timedelta(minutes=1)) as idle:
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


def test_what_fails_in_the_background_is_raised_when_it_is_closed() -> None:
    clock = FixedClock()
    failed = threading.Event()
    idle = IdlePromoter(Recorder(clock), idle=timedelta(minutes=1), on_error=lambda thread, error: failed.set())
    idle.touch(ADA, "bad")
    clock.advance(minutes=2)
    idle.start(interval_seconds=0.01)
    assert failed.wait(5)
    with pytest.raises(ExceptionGroup):
        idle.close()


def test_a_store_that_is_away_does_not_end_the_background_and_shows() -> None:
    clock = FixedClock()

    class Away(InMemoryStore):
        down = False

        def batch(self, ops: Any) -> Any:
            if self.down:
                tried.set()
                raise ConnectionError("down")
            return super().batch(ops)

    tried, store = threading.Event(), Away()
    recorder = Recorder(clock, store)
    idle = IdlePromoter(recorder, idle=timedelta(minutes=1))
    idle.touch(ADA, "a")
    clock.advance(minutes=2)
    store.down = True
    idle.start(interval_seconds=0.01)
    assert tried.wait(5)
    store.down = False
    assert recorder.done.wait(5)
    with pytest.raises(ExceptionGroup) as caught:
        idle.close()
    assert {type(error) for error in caught.value.exceptions} == {ConnectionError}


def test_idle_must_be_a_while() -> None:
    with pytest.raises(ConfigurationError):
        IdlePromoter(Recorder(FixedClock()), idle=timedelta(0))


def test_erasing_takes_the_notes_along(any_store: BaseStore, face: Face) -> None:
    bob = MemoryScope(user="bob")
    recorder = Recorder(FixedClock(), any_store)
    idle = IdlePromoter(recorder)
    for scope, thread in ((ADA, "a"), (ADA, "b"), (bob, "c")):
        face(idle, "touch", scope, thread)
    face(recorder.memory, "erase_thread", "a")
    assert set(face(idle, "pending")) == {(ADA, "b"), (bob, "c")}
    face(recorder.memory, "forget_all", ADA)
    assert set(face(idle, "pending")) == {(bob, "c")}


@pytest.mark.parametrize("shared", [False, True])
def test_an_agent_notes_its_threads(face: Face, shared: bool) -> None:
    clock = FixedClock(datetime.now(UTC))
    saver, store = InMemorySaver(), InMemoryStore()
    memory = LongTermMemory(store, clock=clock)
    idle = IdlePromoter(Promoter(memory, checkpointer=saver))
    agent: Any = create_agent(
        ScriptedChatModel(responses=["ok"] * 2),
        checkpointer=saver,
        middleware=[IdlePromotionMiddleware(idle, share_between_agents=shared)],
        context_schema=MemoryContext,
    )
    config = {"configurable": {"thread_id": "t"}}
    context = MemoryContext(user_id="ada", agent="travel")
    face(agent, "invoke", {"messages": [HumanMessage("I'm vegetarian.")]}, config, context=context)
    scope = MemoryScope(user="ada", agent=None if shared else "travel")
    assert list(idle.pending()) == [(scope, "t")]
    assert memory.list(scope) == ()
    clock.advance(minutes=31)
    idle.run_due()
    assert [record.text for record in memory.list(scope)] == ["I'm vegetarian."]
