"""Summaries in the marker: asked for exactly what is left out, kept in private state, not in the way of the answer."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langmem_harness.events import HistoryCompacted, MemoryEvent, SummaryWritten
from langmem_harness.middleware.compaction import HistoryCompactionMiddleware
from langmem_harness.middleware.compaction_state import MAX_RECORDS, merge_records
from langmem_harness.testing import ScriptedChatModel
from langmem_harness.window.messages import is_tagged, tag_of


class Writer:
    """A summarizer that is a function, counts its calls, and can be broken."""

    def __init__(self) -> None:
        self.written = 0
        self.is_broken = False

    def __call__(self, text: str) -> str:
        if self.is_broken:
            raise RuntimeError("the service is down")
        self.written += 1
        return f"Notes number {self.written}: questions were asked and answered."


@pytest.fixture
def writer() -> Writer:
    return Writer()


def config(thread: str = "t") -> Any:
    return {"configurable": {"thread_id": thread}}


def agent_with(writer: Writer, events: list[MemoryEvent], **settings: Any) -> tuple[Any, ScriptedChatModel]:
    model = ScriptedChatModel(responses=["A longer answer than that. " * 4], on_exhausted="repeat")
    middleware = HistoryCompactionMiddleware(
        ("tokens", 1_200), ("tokens", 300), summarizer=writer, on_event=events.append, **settings
    )
    serializer = JsonPlusSerializer(allowed_msgpack_modules=None)
    return create_agent(model, checkpointer=InMemorySaver(serde=serializer), middleware=[middleware]), model


def talk(agent: Any, turns: int) -> None:
    for number in range(turns):
        agent.invoke({"messages": [HumanMessage(f"Question {number}? " + "please " * 40)]}, config())


def test_the_marker_carries_the_record_of_what_it_stands_for(writer: Writer) -> None:
    events: list[MemoryEvent] = []
    agent, model = agent_with(writer, events)
    talk(agent, 20)
    marked = [request for request in model.requests if any(is_tagged(one, "marker") for one in request)]
    assert marked
    compacted = [event for event in events if isinstance(event, HistoryCompacted)]
    assert len(compacted) == len(marked)
    for request, event in zip(marked, compacted, strict=True):
        marker = next(one for one in request if is_tagged(one, "marker"))
        tag: Any = tag_of(marker)
        assert tag["summary_id"] == event.summary_id
        assert "Notes number" in marker.text
        assert tag["omitted"] + len(request) == event.thread_messages + 1
    assert writer.written == sum(event.cut_moved for event in compacted), "written once for each cut, found again after"
    assert [event.coverage for event in events if isinstance(event, SummaryWritten)] == [1.0] * writer.written


def test_records_are_private_state(writer: Writer) -> None:
    agent, _ = agent_with(writer, [])
    talk(agent, 20)
    final = agent.invoke({"messages": [("user", "And?")]}, config())
    assert set(final) == {"messages"}
    assert agent.get_state(config()).values["compaction_records"]
    private = {"compaction_records", "compaction_record_ids", "compaction_windows", "compaction_limits"}
    assert not private & set(agent.get_input_jsonschema().get("properties", {}))
    assert not private & set(agent.get_output_jsonschema().get("properties", {}))


def test_without_a_valid_summary_the_history_stays_while_it_fits(writer: Writer) -> None:
    agent, model = agent_with(writer, [])
    writer.is_broken = True
    talk(agent, 16)
    assert not any(is_tagged(one, "marker") for request in model.requests for one in request)
    writer.is_broken = False
    talk(agent, 1)
    assert any(is_tagged(one, "marker") for one in model.requests[-1])


def test_a_failing_summary_falls_back_on_the_cut_before(writer: Writer) -> None:
    agent, model = agent_with(writer, [])
    while not writer.written:
        talk(agent, 1)
    writer.is_broken = True
    talk(agent, 14)
    markers = [next(one for one in request if is_tagged(one, "marker")) for request in model.requests[-10:]]
    assert len({marker.text for marker in markers}) == 1
    assert "Notes number 1" in markers[0].text


def test_summaries_ahead_are_ready_when_the_cut_moves(writer: Writer) -> None:
    events: list[MemoryEvent] = []
    agent, model = agent_with(writer, events, summarize_ahead=True)
    in_call = 0
    for number in range(30):
        before = writer.written
        for step in agent.stream(
            {"messages": [HumanMessage(f"Question {number}? " + "please " * 40)]}, config(), stream_mode="updates"
        ):
            if "model" in step:
                in_call += writer.written - before
    assert writer.written >= 2
    assert in_call == 0, "a user waited for a summary"
    assert any(is_tagged(one, "marker") for one in model.requests[-1])


def test_forks_do_not_see_records_of_the_other_branch(writer: Writer) -> None:
    agent, model = agent_with(writer, [])
    talk(agent, 20)
    early = next(one for one in agent.get_state_history(config()) if len(one.values["messages"]) == 6)
    agent.invoke({"messages": [("user", "Another way")]}, early.config)
    assert not any(is_tagged(one, "marker") for one in model.requests[-1])
    assert not early.values.get("compaction_records")


def test_records_of_parallel_branches_are_merged_and_bounded() -> None:
    left = {f"a{number}": {"id": f"a{number}"} for number in range(10)}
    right = {f"b{number}": {"id": f"b{number}"} for number in range(10)}
    merged = merge_records(left, right)
    assert len(merged) == MAX_RECORDS
    assert "b9" in merged
    assert merge_records(None, None) == {}
    assert merge_records(left, None) == left
