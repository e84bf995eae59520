"""The service: covered is covered, stale is said, failed is failed, paid once."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.store.base import PutOp
from langgraph.store.memory import InMemoryStore

from langmem_harness.errors import ConfigurationError, RefusedError, StaleSummaryError, SummarizerError
from langmem_harness.events import MemoryEvent, SummaryFailed, SummaryStale, SummaryWritten
from langmem_harness.summaries import (
    ExtractiveSummarizer,
    HeadTailSummarizer,
    ModelSummarizer,
    SummaryLedger,
    SummaryOutcome,
    SummaryService,
)
from langmem_harness.testing import FixedClock, ScriptedChatModel
from tests.conftest import Face

NOTES = "The user asked about several orders and all of them are fine."


def talk(turns: int) -> list[BaseMessage]:
    messages: list[BaseMessage] = []
    for turn in range(turns):
        messages += [
            HumanMessage(f"Where is my order ORD-{turn:04d}?", id=f"h{turn}"),
            AIMessage(f"It arrives on 2026-05-{turn + 1:02d}, all is fine.", id=f"a{turn}"),
        ]
    return messages


class Room:
    """A service with its model, ledger and events."""

    def __init__(self, face: Face, *, replies: list[Any] | None = None, store: bool = True, **settings: Any) -> None:
        self.face = face
        self.clock = FixedClock()
        self.model = ScriptedChatModel(responses=replies or [NOTES], on_exhausted="repeat")
        self.events: list[MemoryEvent] = []
        self.ledger = SummaryLedger(InMemoryStore()) if store else None
        self.service = SummaryService(
            settings.pop("summarizer", None) or ModelSummarizer(self.model, backoff_seconds=0),
            on_event=self.events.append,
            clock=self.clock,
            **settings,
        )

    def ask(self, messages: list[BaseMessage], **fields: Any) -> SummaryOutcome:
        wanted = {"ledger": self.ledger, "thread_id": "t", "policy": "p", "policy_fingerprint": "f", **fields}
        return self.face(self.service, "summarize", messages, **wanted)

    def kinds(self) -> list[type]:
        return [type(event) for event in self.events]


@pytest.fixture
def room(face: Face) -> Room:
    return Room(face)


def test_made_once_then_reused(room: Room) -> None:
    first = room.ask(talk(4))
    again = room.ask(talk(4))
    assert (first.action, again.action) == ("written", "reused")
    assert again.record == first.record
    assert room.model.calls == 1
    assert first.record is not None
    assert first.record.source_message_ids == tuple(message.id for message in talk(4))
    assert first.record.coverage == 1.0
    assert "ORD-0000" in first.record.facts


def test_a_roll_reads_the_new_messages_and_the_earlier_text(room: Room) -> None:
    first = room.ask(talk(4)).record
    second = room.ask(talk(7)).record
    assert first is not None
    assert second is not None
    assert second.parent_id == first.id
    assert len(second.source_message_ids) == 14
    sent = room.model.requests[1][0].text
    assert NOTES in sent
    assert "ORD-0006" in sent
    assert "ORD-0003" not in sent
    assert {"ORD-0000", "ORD-0006"} <= set(second.facts)


def test_a_message_that_lies_between_covered_ones_is_read_too(room: Room) -> None:
    messages = talk(4)
    room.ask([*messages[:2], *messages[3:]])
    record = room.ask(messages).record
    assert record is not None
    assert record.source_message_ids == tuple(message.id for message in messages)
    sent = room.model.requests[1][0].text
    assert "2026-05-02" not in sent
    assert "ORD-0001" in sent


def test_after_so_many_rolls_it_is_redone_from_the_messages(face: Face) -> None:
    room = Room(face, rebuild_every=2)
    parents = [record.parent_id is None for turns in range(1, 8) if (record := room.ask(talk(turns)).record)]
    assert parents == [True, False, False, True, False, False, True]
    assert "ORD-0000" in room.model.requests[3][0].text


def test_summarizers_without_a_model_read_everything_each_time(face: Face) -> None:
    for summarizer in (ExtractiveSummarizer(), HeadTailSummarizer(100, 2)):
        room = Room(face, summarizer=summarizer)
        room.ask(talk(3))
        record = room.ask(talk(9)).record
        assert record is not None
        assert record.parent_id is None
        assert "ORD-0000" in record.content
        assert record.cost is None


# -- which record


def test_a_record_of_another_branch_or_a_later_time_is_never_used(room: Room) -> None:
    room.ask(talk(6))
    fork = [*talk(3), HumanMessage("Cancel everything.", id="x"), AIMessage("Done.", id="y")]
    assert room.ask(fork).action == "written"
    assert room.ask(talk(2)).action == "written"
    assert "ORD-0005" not in room.model.requests[1][0].text + room.model.requests[2][0].text
    assert SummaryStale not in room.kinds()
    assert room.ask(talk(6)).action == "reused"


def test_records_of_other_threads_and_purposes_are_not_seen(room: Room) -> None:
    room.ask(talk(3))
    assert room.ask(talk(3), thread_id="u").action == "written"
    shown = room.ask(talk(3), purpose="user_history").record
    assert shown is not None
    assert shown.purpose == "user_history"
    assert room.ask(talk(3)).record != shown
    assert room.model.calls == 3
    assert room.ledger is not None
    assert [one.purpose for one in room.ledger.list("t")] == ["prompt_compaction", "user_history"]


def test_messages_without_ids_are_covered_by_their_content(room: Room) -> None:
    messages = [message.model_copy(update={"id": None}) for message in talk(3)]
    record = room.ask(messages).record
    assert record is not None
    assert len(record.source_message_ids) == 6
    assert room.ask(messages).action == "reused"


@pytest.mark.parametrize("change", ["edit", "delete"])
def test_an_edited_or_deleted_source_makes_it_stale(room: Room, change: str) -> None:
    room.ask(talk(4))
    messages = talk(4)
    if change == "edit":
        messages[2] = HumanMessage("Forget that.", id="h1")
    else:
        del messages[2]
    outcome = room.ask(messages)
    assert outcome.action == "written"
    stale = next(event for event in room.events if isinstance(event, SummaryStale))
    assert stale.reasons == ("source_changed" if change == "edit" else "source_missing",)
    assert stale.action == "regenerate"
    assert outcome.record is not None
    assert outcome.record.parent_id is None
    assert "ORD-0001" not in room.model.requests[1][0].text.replace("2026", "")
    assert room.ask(messages).action == "reused"


def test_the_last_source_deleted_is_stale_for_the_branch_that_carries_the_record(room: Room) -> None:
    record = room.ask(talk(4)).record
    assert record is not None
    shorter = [*talk(4)[:-1], HumanMessage("Next.", id="n")]
    room.ask(shorter, records=[record])
    assert [event.reasons for event in room.events if isinstance(event, SummaryStale)] == [("source_missing",)]


def test_a_source_that_is_back_in_the_tail_is_not_stale(room: Room) -> None:
    record = room.ask(talk(4)).record
    assert record is not None
    assert room.ask(talk(3), records=[record], history=talk(5)).action == "written"
    assert SummaryStale not in room.kinds()


@pytest.mark.parametrize(
    ("reason", "fields", "hours"),
    [("policy_changed", {"policy_fingerprint": "g"}, 0), ("expired", {}, 3)],
)
def test_other_reasons_to_be_stale(face: Face, reason: str, fields: dict[str, Any], hours: int) -> None:
    room = Room(face, summary_ttl=timedelta(hours=2))
    room.ask(talk(4))
    room.clock.advance(hours=hours)
    assert room.ask(talk(4), **fields).action == "written"
    assert [event.reasons for event in room.events if isinstance(event, SummaryStale)] == [(reason,)]
    assert room.ask(talk(4), **fields).action == "reused"


def test_a_changed_prompt_is_stale_and_a_changed_model_if_so_wished(face: Face) -> None:
    for strict, new_prompt in ((False, False), (True, False), (False, True)):
        room = Room(face)
        room.ask(talk(3))
        other = ModelSummarizer(
            ScriptedChatModel(responses=["Other notes of the talk."]), prompt_version="2" if new_prompt else None
        )
        if not new_prompt:
            other.model = "another"
        room.service = SummaryService(other, regenerate_on_model_change=strict, on_event=room.events.append)
        assert room.ask(talk(3)).action == ("written" if strict or new_prompt else "reused")
        assert (SummaryStale in room.kinds()) == (strict or new_prompt)


def test_stale_trims_or_raises_and_calls_no_model(face: Face) -> None:
    for on_stale in ("trim", "raise"):
        room = Room(face, on_stale=on_stale)
        room.ask(talk(4))
        messages = [HumanMessage("Other.", id="h0"), *talk(4)[1:]]
        if on_stale == "raise":
            with pytest.raises(StaleSummaryError, match="source_changed"):
                room.ask(messages)
        else:
            outcome = room.ask(messages)
            assert (outcome.action, outcome.record, outcome.reason) == ("trimmed", None, "source_changed")
        assert room.model.calls == 1
        assert SummaryStale in room.kinds()


# -- failure


@pytest.mark.parametrize("bad", [RuntimeError("down"), "", AIMessage([]), "Error: 429"])
def test_a_failure_makes_no_record_and_the_next_call_starts_from_the_good_one(face: Face, bad: Any) -> None:
    room = Room(face, replies=[NOTES, bad, bad, bad, "Everything is fine with all orders of the user."])
    good = room.ask(talk(3)).record
    failed = room.ask(talk(6))
    assert (failed.action, failed.record, failed.partial) == ("failed", None, good)
    event = room.events[-1]
    assert isinstance(event, SummaryFailed)
    assert (event.action, event.attempts) == ("keep", 3)
    assert room.ledger is not None
    assert room.ledger.list("t") == [good]
    later = room.ask(talk(6)).record
    assert later is not None
    assert good is not None
    assert later.parent_id == good.id
    assert "429" not in room.model.requests[-1][0].text


def test_a_failure_that_is_raised_keeps_its_cause(face: Face) -> None:
    down = ConnectionError("down")
    room = Room(face, replies=[down], on_failure="raise")
    with pytest.raises(SummarizerError) as caught:
        room.ask(talk(2))
    assert caught.value.__cause__ is down


def test_a_failure_raises_if_so_wished_whatever_the_summarizer_raises(face: Face) -> None:
    class Broken:
        model = "broken"
        prompt_version = "1"

        def summarize(self, request: Any) -> Any:
            raise KeyError("inside")

        async def asummarize(self, request: Any) -> Any:
            raise KeyError("inside")

    room = Room(face, summarizer=Broken(), on_failure="raise")
    with pytest.raises(SummarizerError) as caught:
        room.ask(talk(2))
    assert isinstance(caught.value.__cause__, KeyError)
    assert SummaryFailed in room.kinds()


@pytest.mark.parametrize("broken", ["batch_reads", "batch_writes"])
def test_a_store_that_is_down_is_a_failure_and_does_not_stop_the_turn(face: Face, broken: str) -> None:
    class Down(InMemoryStore):
        def batch(self, ops: Any) -> Any:
            if any(isinstance(op, PutOp) for op in ops) == (broken == "batch_writes"):
                raise ConnectionError("store is down")
            return super().batch(ops)

        async def abatch(self, ops: Any) -> Any:
            return self.batch(ops)

    room = Room(face)
    room.ledger = SummaryLedger(Down())
    outcome = room.ask(talk(2))
    assert (outcome.action, outcome.record, outcome.reason) == ("failed", None, "ConnectionError")
    assert room.model.calls == (1 if broken == "batch_writes" else 0)
    assert isinstance(room.events[-1], SummaryFailed)


def test_nothing_to_summarize_calls_nobody(room: Room) -> None:
    assert room.ask([]).action == "nothing"
    assert room.ask([AIMessage([{"type": "thinking", "thinking": "x", "signature": "s"}], id="r")]).action == "nothing"
    assert room.model.calls == 0
    record = room.ask(talk(2)).record
    extended = room.ask([*talk(2), AIMessage("", id="e")]).record
    assert record is not None
    assert extended is not None
    assert room.model.calls == 1
    assert extended.parent_id == record.id
    assert extended.source_message_ids[-1] == "e"


# -- payment, events, redaction


def test_usage_cost_and_rolling_totals(face: Face) -> None:
    room = Room(face, prices={"scripted": {"input": 1.0, "output": 10.0, "cached": 0.1}})
    usage = {
        "input_tokens": 1000,
        "output_tokens": 100,
        "total_tokens": 1100,
        "input_token_details": {"cache_read": 400},
    }
    room.model.responses[:] = [AIMessage(NOTES, usage_metadata=usage)]
    room.ask(talk(3))
    room.ask(talk(6))
    first, second = [event for event in room.events if isinstance(event, SummaryWritten)]
    assert first.usage == {"input_tokens": 1000, "output_tokens": 100, "cached_tokens": 400}
    assert first.cost == pytest.approx((600 * 1.0 + 400 * 0.1 + 100 * 10.0) / 1e6)
    assert second.thread_usage == {"input_tokens": 2000, "output_tokens": 200, "cached_tokens": 800}
    assert second.thread_cost == pytest.approx(2 * first.cost)


def test_events_carry_no_text(room: Room) -> None:
    room.ask(talk(3))
    messages = talk(3)
    messages[0] = HumanMessage("very private words", id="h0")
    room.ask(messages)
    said = " ".join(str(event.to_dict()) for event in room.events)
    assert "private" not in said
    assert "orders" not in said


def test_a_record_is_in_the_ledger_before_it_is_used(room: Room) -> None:
    """A process that dies after the summary and before the model call finds it and does not pay again."""
    outcome = room.ask(talk(4))  # and nobody keeps the outcome: the process is gone
    survivor = Room(room.face)
    survivor.ledger = room.ledger
    assert survivor.ask(talk(4)).record == outcome.record
    assert survivor.model.calls == 0


def test_without_a_store_records_are_carried(face: Face) -> None:
    room = Room(face, store=False)
    first = room.ask(talk(3)).record
    assert first is not None
    assert room.ask(talk(3), records=[first]).action == "reused"
    second = room.ask(talk(5), records=[first]).record
    assert second is not None
    assert second.parent_id == first.id
    assert room.ask(talk(3)).action == "written"


def test_without_a_thread_nothing_is_stored(room: Room) -> None:
    record = room.ask(talk(2), thread_id=None).record
    assert record is not None
    assert record.thread_id is None
    assert room.ledger is not None
    assert room.ledger.list("t") == []


def test_secrets_reach_neither_the_summarizer_nor_the_record(face: Face) -> None:
    room = Room(face, summarizer=None, redact=lambda text: text.replace("ORD-0001", "[hidden]"))
    record = room.ask(talk(3)).record
    assert "ORD-0001" not in room.model.requests[0][0].text
    assert record is not None
    assert "ORD-0001" not in str(record.to_dict())
    assert room.ledger is not None
    assert "ORD-0001" not in str(room.ledger._store._data)  # type: ignore[union-attr]


def test_a_redactor_that_refuses_is_a_failure(face: Face) -> None:
    def refuse(text: str) -> str:
        raise RefusedError("blocked", reason="secrets")

    room = Room(face, redact=refuse)
    outcome = room.ask(talk(2))
    assert (outcome.action, outcome.reason) == ("failed", "RefusedError")
    assert room.model.calls == 0


def test_concurrent_calls_on_one_thread_do_not_disturb_each_other() -> None:
    store = InMemoryStore()
    gate = threading.Barrier(3)

    def answer(messages: list[BaseMessage]) -> str:
        gate.wait(10)  # three are inside the model at once: no lock is held around it
        return NOTES

    model = ScriptedChatModel(responses=[answer], on_exhausted="repeat")
    service = SummaryService(ModelSummarizer(model))
    outcomes: list[SummaryOutcome] = []

    def run(turns: int) -> None:
        outcomes.append(
            service.summarize(
                talk(turns), ledger=SummaryLedger(store), thread_id="t", policy="p", policy_fingerprint="f"
            )
        )

    threads = [threading.Thread(target=run, args=(turns,)) for turns in (3, 3, 5, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ledger = SummaryLedger(store)
    assert sorted(one.action for one in outcomes) == ["reused", "written", "written", "written"]
    assert len(ledger.list("t")) == 3  # the two alike are one record, paid once
    assert all(len(ledger.sources(one.id)) == len(one.source_message_ids) for one in ledger.list("t"))


def test_a_cancelled_call_leaves_nothing_behind() -> None:
    store = InMemoryStore()

    class Hanging:
        model = "hanging"
        prompt_version = "1"

        def summarize(self, request: Any) -> Any: ...

        async def asummarize(self, request: Any) -> Any:
            await asyncio.sleep(60)

    async def run() -> None:
        service = SummaryService(Hanging())
        call = service.asummarize(
            talk(2), ledger=SummaryLedger(store), thread_id="t", policy="p", policy_fingerprint="f"
        )
        task = asyncio.create_task(call)
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert SummaryLedger(store).list("t") == []


@pytest.mark.parametrize(
    "settings",
    [
        {"on_stale": "ignore"},
        {"on_failure": "no"},
        {"rebuild_every": 0},
        {"max_summary_tokens": 0},
        {"facts_tokens": -1},
        {"summary_ttl": timedelta()},
    ],
)
def test_settings_that_cannot_work(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        SummaryService(ExtractiveSummarizer(), **settings)


def test_messages_are_not_changed(room: Room) -> None:
    messages = talk(3)
    before = [message.model_copy(deep=True) for message in messages]
    room.ask(messages)
    assert messages == before
