"""What durable turns say about what they cannot see to: open calls, waiting, overlapping turns, lost types."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import interrupt
from pydantic import BaseModel

from langmem_harness.events import MemoryEvent, TurnsOverlap, TurnWaiting
from langmem_harness.middleware.turn_open_calls import NOT_CARRIED_OUT, open_calls
from langmem_harness.middleware.turns import DurableTurnsMiddleware
from langmem_harness.testing import ScriptedChatModel
from langmem_harness.threads import SqliteCheckpointer, ThreadLog
from tests.middleware.test_turns import World, ask, call, config, world

__all__ = ["world"]


def test_a_call_that_waits_for_approval_and_is_answered_in_words_was_not_carried_out(world: World, face: Any) -> None:
    approval = HumanInTheLoopMiddleware(interrupt_on={"pay": True})
    agent, model = world.agent(call(), "as you like", "really", middleware=[approval])
    face(agent, "invoke", ask("pay 5", "h1"), config(None))
    result = face(agent, "invoke", ask("no, do not pay", "h2"), config(None))
    assert [message.text for message in model.requests[-1]] == ["pay 5", "", NOT_CARRIED_OUT, "no, do not pay"]
    assert result["messages"][-1].text == "as you like"
    assert all(message.text != NOT_CARRIED_OUT for message in result["messages"])  # the thread stays as it is
    first = model.requests[-1][2]
    face(agent, "invoke", ask("sure?", "h3"), config(None))
    assert model.requests[-1][2] == first
    assert world.payments == []


def test_a_call_that_was_started_and_paused_is_not_said_to_be_undone(world: World) -> None:
    @tool
    def approve() -> str:
        """Do something, then ask."""
        world.payments.append(1)
        return str(interrupt("may I?"))

    wants = AIMessage("", tool_calls=[{"name": "approve", "args": {}, "id": "a"}])
    model = ScriptedChatModel(responses=[wants, "as you like"])
    agent = create_agent(model, [approve], middleware=[DurableTurnsMiddleware(world.log)], checkpointer=world.saver)
    agent.invoke(ask("go", "h1"), config(None))
    agent.invoke(ask("no", "h2"), config(None))
    assert NOT_CARRIED_OUT not in [message.text for message in model.requests[-1]]


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([], []),
        ([HumanMessage("a"), AIMessage("b")], []),
        ([call()], [(0, "c1")]),
        ([call(), ToolMessage("x", tool_call_id="c1")], []),
        ([call(), ToolMessage("x", tool_call_id="c2"), HumanMessage("a")], [(0, "c1")]),
        ([call(), HumanMessage("a"), ToolMessage("x", tool_call_id="c1")], [(0, "c1")]),
    ],
)
def test_calls_without_a_result_behind_them_are_open(messages: Any, expected: Any) -> None:
    assert [(position, each["id"]) for position, each in open_calls(messages)] == expected


def test_waiting_for_another_worker_and_overlapping_turns_are_said(world: World) -> None:
    started, goes_on = threading.Event(), threading.Event()

    def fault() -> None:
        started.set()
        assert goes_on.wait(10)

    world.fault = fault
    agent, _ = world.agent(call(), "quick", "paid", wait_seconds=20)
    with ThreadPoolExecutor(2) as workers:
        first = workers.submit(agent.invoke, ask("pay 5", "h1"), config("T1"))
        assert started.wait(10)
        assert agent.invoke(ask("hello", "h2"), config("T2"))["messages"][-1].text == "quick"
        # The other worker holds the call; this one has the thread's state as it was before.
        retry = workers.submit(agent.invoke, ask("pay 5", "h1"), config("T1", thread_id="t"))
        for _ in range(200):
            if retry.done() or any(isinstance(event, TurnWaiting) for event in world.events):
                break
            threading.Event().wait(0.02)
        goes_on.set()
        first.result(10)
    overlaps = [event for event in world.events if isinstance(event, TurnsOverlap)]
    assert [(event.turn_id, event.others) for event in overlaps] == [("T2", ("T1",))]
    assert world.payments == [5]


def test_a_retry_says_that_it_waits_for_another_worker(world: World) -> None:
    started, goes_on = threading.Event(), threading.Event()

    def fault() -> None:
        started.set()
        assert goes_on.wait(10)

    world.fault = fault
    said: list[MemoryEvent] = []

    def hear(event: MemoryEvent) -> None:
        said.append(event)
        if isinstance(event, TurnWaiting):
            goes_on.set()

    agent, _ = world.agent(call(), "paid", wait_seconds=20, on_event=hear)
    with ThreadPoolExecutor(2) as workers:
        first = workers.submit(agent.invoke, ask("pay 5", "h1"), config("T1"))
        assert started.wait(10)
        second = workers.submit(agent.invoke, ask("pay 5", "h1"), config("T1"))
        for each in (first, second):
            assert each.result(10)["messages"][-1].text == "paid"
    waits = [event for event in said if isinstance(event, TurnWaiting)]
    assert [(event.turn_id, event.step, event.at_most_seconds) for event in waits] == [("T1", "tool:c1", 20)]
    assert not any(isinstance(event, TurnsOverlap) for event in said)
    assert world.payments == [5]


class City(BaseModel):
    """A structured answer."""

    name: str


@pytest.mark.parametrize("turn_id", [None, "T1"])
def test_a_structured_answer_keeps_its_type_behind_a_strict_serializer(tmp_path: Path, turn_id: str | None) -> None:
    answer = AIMessage("", tool_calls=[{"name": "City", "args": {"name": "Oslo"}, "id": "1"}])
    for number in range(3):
        serde = JsonPlusSerializer(allowed_msgpack_modules=[])
        with SqliteCheckpointer(tmp_path / "t.sqlite", serde=serde) as saver:
            model = ScriptedChatModel(responses=[] if number else [answer])
            turns = DurableTurnsMiddleware(ThreadLog(saver.database))
            agent = create_agent(model, [], response_format=ToolStrategy(City), middleware=[turns], checkpointer=saver)
            message_id = f"h{number}" if turn_id else "h"
            result = agent.invoke(ask("where?", message_id), config(turn_id))
        assert result["structured_response"] == City(name="Oslo")
        assert [message.type for message in result["messages"]] == ["human", "ai", "tool"]


def test_deleted_checkpoints_do_not_delete_the_log(world: World) -> None:
    agent, _ = world.agent("old", "new")
    agent.invoke(ask("hello", "h1"), config())
    world.saver.delete_thread("t")
    assert agent.invoke(ask("hello", "h2"), config())["messages"][-1].text == "old"  # as the guide says
    world.saver.delete_thread("t")
    world.log.delete_thread("t")
    assert agent.invoke(ask("hello", "h3"), config())["messages"][-1].text == "new"
