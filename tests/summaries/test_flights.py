"""Calls at the same time for the same messages pay once, in threads and in event loops, whoever is cancelled."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import Future
from typing import Any

import pytest
from langgraph.store.memory import InMemoryStore

from langmem_harness.driving import Ask, Body, adrive, drive
from langmem_harness.errors import SummarizerError
from langmem_harness.events import MemoryEvent, SummaryFailed, SummaryWritten
from langmem_harness.summaries import SummaryDraft, SummaryLedger, SummaryOutcome, SummaryService
from langmem_harness.summaries import flights as flights_module
from langmem_harness.summaries.flights import Flights
from tests.summaries.test_service import talk


class Slow:
    """Takes its time, counts, and can be told to fail."""

    model = "slow"
    prompt_version = "1"

    def __init__(self, seconds: float = 0.4) -> None:
        self.seconds = seconds
        self.calls = 0
        self.fails = False

    def _draft(self) -> SummaryDraft:
        if self.fails:
            raise SummarizerError("no", reason="empty", attempts=1, usage={"input_tokens": 10})
        return SummaryDraft(text="All is fine.", usage={"input_tokens": 10})

    def summarize(self, request: Any) -> SummaryDraft:
        self.calls += 1
        time.sleep(self.seconds)
        return self._draft()

    async def asummarize(self, request: Any) -> SummaryDraft:
        self.calls += 1
        await asyncio.sleep(self.seconds)
        return self._draft()


@pytest.fixture(params=[True, False], ids=["store", "no store"])
def ledger(request: pytest.FixtureRequest) -> SummaryLedger | None:
    return SummaryLedger(InMemoryStore()) if request.param else None


def wanted(ledger: SummaryLedger | None, **fields: Any) -> dict[str, Any]:
    return {"ledger": ledger, "thread_id": "t", "policy": "p", "policy_fingerprint": "f", **fields}


def in_threads(service: SummaryService, count: int, **fields: Any) -> list[SummaryOutcome]:
    outcomes: list[SummaryOutcome] = []
    errors: list[BaseException] = []
    barrier = threading.Barrier(count)  # all of them ask before the first answer is there, however busy the machine

    def run() -> None:
        barrier.wait()
        try:
            outcomes.append(service.summarize(talk(3), **fields))
        except SummarizerError as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        assert len(errors) == count
        raise errors[0]
    return outcomes


def test_threads_pay_once(ledger: SummaryLedger | None) -> None:
    events: list[MemoryEvent] = []
    writer = Slow()
    service = SummaryService(writer, on_event=events.append)
    outcomes = in_threads(service, 6, **wanted(ledger))
    assert writer.calls == 1
    assert sorted(one.action for one in outcomes) == ["reused"] * 5 + ["written"]
    assert len({one.record.id for one in outcomes if one.record}) == 1
    assert sum(isinstance(event, SummaryWritten) for event in events) == 1
    assert service._flights._under_way == {}


def test_tasks_pay_once(ledger: SummaryLedger | None) -> None:
    writer = Slow()
    service = SummaryService(writer)

    async def run() -> list[SummaryOutcome]:
        return await asyncio.gather(*(service.asummarize(talk(3), **wanted(ledger)) for _ in range(6)))

    outcomes = asyncio.run(run())
    assert writer.calls == 1
    assert sorted(one.action for one in outcomes) == ["reused"] * 5 + ["written"]


def test_threads_and_an_event_loop_pay_once_together(ledger: SummaryLedger | None) -> None:
    writer = Slow(0.4)
    service = SummaryService(writer)

    async def run() -> list[SummaryOutcome]:
        in_loop = asyncio.create_task(service.asummarize(talk(3), **wanted(ledger)))
        in_thread = asyncio.create_task(asyncio.to_thread(service.summarize, talk(3), **wanted(ledger)))
        return [*await asyncio.gather(in_loop, in_thread)]

    outcomes = asyncio.run(run())
    assert writer.calls == 1
    assert outcomes[0].record == outcomes[1].record


def test_other_messages_threads_purposes_and_places_do_not_wait(ledger: SummaryLedger | None) -> None:
    writer = Slow(0.01)
    service = SummaryService(writer)
    for fields in ({"thread_id": "u"}, {"purpose": "user_history"}, {"policy": "q"}, {}):
        service.summarize(talk(3), **wanted(ledger, **fields))
    service.summarize(talk(3), **wanted(SummaryLedger(InMemoryStore())))
    assert writer.calls == 5


def test_a_cancelled_leader_leaves_its_place(ledger: SummaryLedger | None) -> None:
    writer = Slow()
    service = SummaryService(writer)

    async def run() -> SummaryOutcome:
        leader = asyncio.create_task(service.asummarize(talk(3), **wanted(ledger)))
        await asyncio.sleep(0.05)
        follower = asyncio.create_task(service.asummarize(talk(3), **wanted(ledger)))
        impatient = asyncio.create_task(service.asummarize(talk(3), **wanted(ledger)))
        await asyncio.sleep(0.02)
        impatient.cancel()
        leader.cancel()
        for task in (leader, impatient):
            with pytest.raises(asyncio.CancelledError):
                await task
        return await follower

    outcome = asyncio.run(run())
    assert outcome.action == "written"
    assert writer.calls == 2
    assert service._flights._under_way == {}


def test_a_follower_whose_event_loop_is_gone_disturbs_nobody() -> None:
    writer = Slow(0.4)
    service = SummaryService(writer)
    thread = threading.Thread(target=service.summarize, args=(talk(3),), kwargs=wanted(None))
    thread.start()
    time.sleep(0.1)

    async def give_up() -> None:
        await asyncio.wait_for(service.asummarize(talk(3), **wanted(None)), 0.05)

    with pytest.raises(TimeoutError):
        asyncio.run(give_up())
    thread.join()
    assert service._flights._under_way == {}


@pytest.mark.parametrize("on_failure", ["keep", "raise"])
def test_a_failure_is_paid_once_and_said_to_everyone(ledger: SummaryLedger | None, on_failure: Any) -> None:
    events: list[MemoryEvent] = []
    writer = Slow()
    writer.fails = True
    service = SummaryService(writer, on_event=events.append, on_failure=on_failure)
    if on_failure == "raise":
        with pytest.raises(SummarizerError):
            in_threads(service, 3, **wanted(ledger))
    else:
        assert [one.action for one in in_threads(service, 3, **wanted(ledger))] == ["failed"] * 3
        failed = [event for event in events if isinstance(event, SummaryFailed)]
        assert len(failed) == 3
        assert sorted(event.usage.get("input_tokens", 0) for event in failed) == [0, 0, 10]
    assert writer.calls == 1
    writer.fails = False
    assert service.summarize(talk(3), **wanted(ledger)).action == "written"


def test_a_sync_call_on_an_event_loop_never_blocks_it() -> None:
    writer = Slow()
    service = SummaryService(writer)

    async def run() -> tuple[SummaryOutcome, SummaryOutcome]:
        leader = asyncio.create_task(service.asummarize(talk(3), **wanted(None)))
        await asyncio.sleep(0.05)
        return service.summarize(talk(3), **wanted(None)), await leader

    one, other = asyncio.run(run())
    assert writer.calls == 2
    assert one.record is not None
    assert other.record is not None


def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights_module, "LONGEST_WAIT_SECONDS", 0.01)
    flights: Flights[str] = Flights()
    flights._under_way["key"] = Future()  # of a process this one was forked from

    def work() -> Body[str]:
        answer: str = yield Ask(do=lambda: "done", ado=_done)
        return answer

    assert drive(flights.flying("key", work)).value == "done"
    assert asyncio.run(_driven(flights, work)) == "done"


async def _done() -> str:
    return "done"


async def _driven(flights: Flights[str], work: Any) -> str:
    return (await adrive(flights.flying("key", work))).value


def test_an_abandoned_body_leaves_nothing() -> None:
    flights: Flights[str] = Flights()

    def work() -> Body[str]:
        yield Ask(do=lambda: None, ado=_done)
        return "never"

    body = flights.flying("key", work)
    next(body)
    assert "key" in flights._under_way
    body.close()
    assert flights._under_way == {}
