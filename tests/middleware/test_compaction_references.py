"""Records in the store, ids in the state: what a branch refers to, and what happens when it is not there."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import BaseMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.store.memory import InMemoryStore

from langmem_harness.errors import SummarizerError
from langmem_harness.events import MemoryEvent, SummaryFailed, SummaryStale, SummaryWritten
from langmem_harness.layout import summaries_namespace
from langmem_harness.middleware.compaction import HistoryCompactionMiddleware
from langmem_harness.middleware.compaction_state import MAX_RECORDS, merge_references
from langmem_harness.summaries import SummaryDraft, SummaryLedger
from langmem_harness.testing import ScriptedChatModel
from langmem_harness.window.messages import is_tagged, tag_of
from tests.middleware.test_compaction_summaries import Writer, config


class Thread:
    """An agent with a store, a saver with strict msgpack, and its events."""

    def __init__(self, *, store: InMemoryStore | None, saver: InMemorySaver | None = None, **settings: Any) -> None:
        self.store = store
        self.saver = saver or InMemorySaver(serde=JsonPlusSerializer(allowed_msgpack_modules=None))
        self.writer = Writer()
        self.events: list[MemoryEvent] = []
        self.model = ScriptedChatModel(responses=["A longer answer than that. " * 4], on_exhausted="repeat")
        self.middleware = HistoryCompactionMiddleware(
            ("tokens", 1_200), ("tokens", 300), summarizer=self.writer, on_event=self.events.append, **settings
        )
        self.agent: Any = create_agent(self.model, checkpointer=self.saver, store=store, middleware=[self.middleware])

    def talk(self, turns: int, where: Any = None, face: str = "sync") -> None:
        for number in range(turns):
            said = {"messages": [HumanMessage(f"Question {number}? " + "please " * 40)]}
            if face == "sync":
                self.agent.invoke(said, where or config())
            else:
                asyncio.run(self.agent.ainvoke(said, where or config()))

    def state(self) -> dict[str, Any]:
        values: dict[str, Any] = self.agent.get_state(config()).values
        return values

    def marker(self) -> BaseMessage | None:
        newest = self.model.requests[-1] if self.model.requests else []
        return next((one for one in newest if is_tagged(one, "marker")), None)

    def forget(self) -> None:
        assert self.store is not None
        for item in self.store.search(summaries_namespace("t"), limit=100):
            self.store.delete(item.namespace, item.key)

    def stale(self) -> list[tuple[str, ...]]:
        return [event.reasons for event in self.events if isinstance(event, SummaryStale)]


@pytest.mark.parametrize("face", ["sync", "async"])
def test_with_a_store_no_text_of_a_record_is_in_the_state(face: str) -> None:
    thread = Thread(store=InMemoryStore())
    thread.talk(20, face=face)
    ids = thread.state()["compaction_record_ids"]["HistoryCompactionMiddleware"]
    assert "compaction_records" not in thread.state() or not thread.state()["compaction_records"]
    assert "Notes number" not in json.dumps(
        {key: value for key, value in thread.state().items() if key != "messages"}, default=str
    )
    assert ids == [record.id for record in SummaryLedger(thread.store).list("t")]
    assert thread.marker() is not None
    assert (tag_of(thread.marker()) or {})["summary_id"] == ids[-1]  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["values", "updates", "debug", "messages", "custom", "checkpoints", "tasks"])
def test_no_stream_shows_the_text_of_a_record(mode: str) -> None:
    thread = Thread(store=InMemoryStore())
    thread.talk(15)
    assert thread.writer.written
    said = {"messages": [HumanMessage("And now? " + "please " * 300)]}
    shown = [str(chunk) for chunk in thread.agent.stream(said, config(), stream_mode=mode)]
    assert "Notes number" not in " ".join(shown)


def test_without_a_store_records_are_carried() -> None:
    thread = Thread(store=None)
    thread.talk(20)
    assert thread.state()["compaction_records"]
    assert not thread.state().get("compaction_record_ids")


def test_a_new_process_finds_the_records_by_their_ids() -> None:
    first = Thread(store=InMemoryStore())
    first.talk(15)
    second = Thread(store=first.store, saver=first.saver)
    second.talk(1)
    assert second.writer.written == 0
    assert second.marker() is not None
    assert "Notes number" in second.marker().text  # type: ignore[union-attr]


def test_a_state_that_carries_whole_records_goes_on_with_a_store() -> None:
    before = Thread(store=None)
    before.talk(15)
    after = Thread(store=InMemoryStore(), saver=before.saver)
    after.talk(1)
    assert after.writer.written == 0
    assert after.marker() is not None
    assert "Notes number" in after.marker().text  # type: ignore[union-attr]
    after.talk(12)
    assert after.state()["compaction_record_ids"]


@pytest.mark.parametrize("face", ["sync", "async"])
def test_a_record_that_is_gone_is_said_and_written_again(face: str) -> None:
    thread = Thread(store=InMemoryStore())
    thread.talk(15)
    before = thread.writer.written
    thread.forget()
    thread.talk(1, face=face)
    assert thread.stale() == [("record_missing",)]
    assert thread.writer.written == before + 1
    thread.talk(1)
    assert thread.stale() == [("record_missing",)], "said once"


@pytest.mark.parametrize("on_stale", ["trim", "raise"])
def test_a_record_that_is_gone_is_a_bare_marker_and_no_error(on_stale: str) -> None:
    thread = Thread(store=InMemoryStore(), on_stale=on_stale)
    thread.talk(15)
    before = thread.writer.written
    thread.forget()
    thread.talk(1)
    assert thread.stale() == [("record_missing",)]
    assert thread.writer.written == before
    assert (tag_of(thread.marker()) or {})["summary_id"] is None  # type: ignore[arg-type]


def test_a_record_that_is_gone_and_a_summarizer_that_is_down() -> None:
    thread = Thread(store=InMemoryStore(), on_failure="trim")
    thread.talk(15)
    thread.forget()
    thread.writer.is_broken = True
    thread.talk(1)
    assert (tag_of(thread.marker()) or {})["summary_id"] is None  # type: ignore[arg-type]


def test_time_travel_uses_the_records_of_its_own_branch() -> None:
    thread = Thread(store=InMemoryStore())
    thread.talk(40)
    history = [one for one in thread.agent.get_state_history(config()) if one.next == ()]
    written = thread.writer.written
    early = next(one for one in reversed(history) if one.values.get("compaction_record_ids"))
    thread.talk(1, early.config)
    known = early.values["compaction_record_ids"]["HistoryCompactionMiddleware"]
    assert (tag_of(thread.marker()) or {})["summary_id"] == known[-1]  # type: ignore[arg-type]
    assert thread.writer.written == written, "the record of that time was paid for already"
    assert thread.stale() == []


def test_a_later_record_of_another_branch_is_not_used() -> None:
    thread = Thread(store=InMemoryStore())
    thread.talk(6)
    fork = thread.agent.get_state(config()).config
    thread.talk(24)
    later = {record.id for record in SummaryLedger(thread.store).list("t")}
    assert len(later) > 1
    for number in range(24):
        said = {"messages": [HumanMessage(f"Another way {number}. " + "please " * 40)]}
        thread.agent.invoke(said, fork)
        fork = thread.agent.get_state(config()).config
        present = {message.id for message in thread.state()["messages"]}
        used = None if thread.marker() is None else (tag_of(thread.marker()) or {})["summary_id"]  # type: ignore[arg-type]
        if used is not None:
            record = SummaryLedger(thread.store).get(used)
            assert record is not None
            assert set(record.source_message_ids) <= present
    assert used not in later
    assert thread.stale() == []


def test_another_model_with_another_window_is_no_change_of_policy() -> None:
    events: list[MemoryEvent] = []
    writer = Writer()
    middleware = HistoryCompactionMiddleware(summarizer=writer, on_event=events.append)
    store, saver = InMemoryStore(), InMemorySaver()
    for turn in range(24):
        model = ScriptedChatModel(
            responses=["A longer answer than that. " * 4],
            profile={"max_input_tokens": (3_000, 2_000)[turn % 2]},
        )
        agent: Any = create_agent(model, checkpointer=saver, store=store, middleware=[middleware])
        agent.invoke({"messages": [HumanMessage(f"Question {turn}? " + "please " * 40)]}, config())
    assert any(isinstance(event, SummaryWritten) for event in events)
    assert [event for event in events if isinstance(event, SummaryStale)] == []
    changed = HistoryCompactionMiddleware(keep=("fraction", 0.2), summarizer=writer, on_event=events.append)
    agent = create_agent(model.model_copy(), checkpointer=saver, store=store, middleware=[changed])
    model._played.requests.clear()
    agent.invoke({"messages": [HumanMessage("And now?")]}, config())
    assert [event.reasons for event in events if isinstance(event, SummaryStale)] == [("policy_changed",)]


@pytest.mark.parametrize("face", ["sync", "async"])
def test_a_preparation_that_fails_takes_no_answer_away(face: str) -> None:
    thread = Thread(store=InMemoryStore(), summarize_ahead=True, on_failure="raise", on_stale="raise")
    thread.writer.is_broken = True
    with pytest.raises(SummarizerError):
        thread.talk(30, face=face)
    failed = [event for event in thread.events if isinstance(event, SummaryFailed)]
    assert len(failed) > 1, "the turns before were answered"
    thread.writer.is_broken = False
    thread.talk(1, face=face)
    assert thread.marker() is not None


def test_a_prepared_record_outlives_the_process() -> None:
    first = Thread(store=InMemoryStore(), summarize_ahead=True)
    while not first.writer.written:
        first.talk(1)
    assert not any(is_tagged(one, "marker") for request in first.model.requests for one in request)
    second = Thread(store=first.store, saver=first.saver, summarize_ahead=True)
    while second.marker() is None:
        second.talk(1)
    assert "Notes number 1" in second.marker().text  # type: ignore[union-attr]
    assert [event.ahead for event in first.events if isinstance(event, SummaryWritten)] == [True]


@pytest.mark.parametrize(
    "ids", [["someone-else/0123"], [7, None], "text", {"a": 1}, ["t/not-there", "no slash", ""]], ids=str
)
@pytest.mark.parametrize("is_broken", [True, False])
def test_any_ids_in_the_state_are_no_error(ids: Any, is_broken: bool) -> None:
    other = Thread(store=InMemoryStore())
    other.talk(15, {"configurable": {"thread_id": "someone-else"}})
    thread = Thread(store=other.store)
    thread.talk(10)
    foreign = [record.id for record in SummaryLedger(other.store).list("someone-else")] if "else" in str(ids) else ids
    thread.agent.update_state(config(), {"compaction_record_ids": {"HistoryCompactionMiddleware": foreign}})
    thread.writer.is_broken = is_broken
    thread.talk(8)
    assert len(thread.model.requests) == 18
    if thread.marker() is not None:
        used = (tag_of(thread.marker()) or {})["summary_id"]  # type: ignore[arg-type]
        assert used is None or used.startswith("t/")


class Mine(HistoryCompactionMiddleware):
    """A class of the user's own."""


@pytest.mark.parametrize("face", ["sync", "async"])
def test_a_class_of_your_own_prepares_ahead_too(face: str) -> None:
    events: list[MemoryEvent] = []
    mine = Mine(
        ("tokens", 1_200), ("tokens", 300), summarizer=Writer(), on_event=events.append, summarize_ahead=True, name="m"
    )
    assert isinstance(mine, Mine)
    thread = Thread(store=InMemoryStore())
    thread.agent = create_agent(thread.model, checkpointer=thread.saver, store=thread.store, middleware=[mine])
    thread.talk(20, face=face)
    assert {event.ahead for event in events if isinstance(event, SummaryWritten)} == {True}


class Versioned:
    """A summarizer with a prompt version, which may be down."""

    model = "versioned"

    def __init__(self, prompt_version: str, *, is_down: bool = False) -> None:
        self.prompt_version = prompt_version
        self.is_down = is_down

    def summarize(self, request: Any) -> SummaryDraft:
        if self.is_down:
            raise SummarizerError("down", reason="down")
        return SummaryDraft(text="Notes of the first prompt.")

    async def asummarize(self, request: Any) -> SummaryDraft:
        return self.summarize(request)


@pytest.mark.parametrize("has_store", [True, False])
@pytest.mark.parametrize(("version", "is_used"), [("1", True), ("2", False)])
def test_a_stale_record_is_no_stand_in_when_the_summarizer_is_down(
    has_store: bool, version: str, is_used: bool
) -> None:
    thread = Thread(store=InMemoryStore() if has_store else None)

    def use(summarizer: Versioned) -> None:
        middleware = HistoryCompactionMiddleware(("tokens", 1_200), ("tokens", 300), summarizer=summarizer)
        thread.agent = create_agent(
            thread.model, checkpointer=thread.saver, store=thread.store, middleware=[middleware]
        )

    use(Versioned("1"))
    thread.talk(15)
    assert thread.marker() is not None
    use(Versioned(version, is_down=True))
    thread.talk(12)
    assert (thread.marker() is not None) == is_used
    assert any("Notes of the first prompt." in message.text for message in thread.model.requests[-1]) == is_used


def test_references_of_both_sides_are_merged_and_bounded() -> None:
    left = {"one": [f"a{number}" for number in range(10)]}
    right = {"one": ["a9", *(f"b{number}" for number in range(10))], "two": ["c"]}
    merged = merge_references(left, right)
    assert len(merged["one"]) == MAX_RECORDS
    assert merged["one"][-1] == "b9"
    assert merged["one"].count("a9") == 1
    assert merged["two"] == ["c"]
    assert left == {"one": [f"a{number}" for number in range(10)]}
    assert merge_references(None, None) == {}
