"""Durable turns: retried, resumed, interrupted, forked, cancelled, raced. Effects happen once."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware, after_model
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt
from pydantic import BaseModel
from typing_extensions import TypedDict

from langmem_harness.errors import ConfigurationError, IdentityError, TurnConflictError, TurnInProgressError
from langmem_harness.events import MemoryEvent, TurnReplayed
from langmem_harness.middleware.turn_plan import plan_retry
from langmem_harness.middleware.turns import DurableTurnsMiddleware
from langmem_harness.testing import ScriptedChatModel
from langmem_harness.threads import SqliteCheckpointer, ThreadLog


class World:
    """An agent that pays, and what its payments did."""

    def __init__(self, folder: Path) -> None:
        self.saver = SqliteCheckpointer(folder / "threads.sqlite")
        self.log = ThreadLog(self.saver.database)
        self.payments: list[int] = []
        self.events: list[MemoryEvent] = []
        self.fault: Callable[[], Any] = lambda: None

    def close(self) -> None:
        self.saver.close()

    def agent(self, *replies: Any, middleware: Any = (), **options: Any) -> tuple[Any, ScriptedChatModel]:
        @tool
        def pay(amount: int) -> str:
            """Pay."""
            self.payments.append(amount)
            self.fault()
            return f"paid {amount}"

        model = ScriptedChatModel(responses=list(replies))
        options = {"lease_seconds": 0.3, "on_event": self.events.append, **options}
        turns = DurableTurnsMiddleware(self.log, **options)
        return (
            create_agent(model, [pay], middleware=[turns, *middleware], checkpointer=self.saver),
            model,
        )

    def actions(self) -> list[str]:
        return [event.action for event in self.events if isinstance(event, TurnReplayed)]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    opened = World(tmp_path)
    yield opened
    opened.close()


def call(amount: int = 5, call_id: str = "c1") -> AIMessage:
    return AIMessage("", tool_calls=[{"name": "pay", "args": {"amount": amount}, "id": call_id}])


def config(turn_id: str | None = "turn-1", thread_id: str = "t") -> Any:
    given = {} if turn_id is None else {"turn_id": turn_id}
    return {"configurable": {"thread_id": thread_id, **given}}


def ask(text: str = "pay 5", message_id: str | None = None) -> dict[str, Any]:
    return {"messages": [HumanMessage(text, id=message_id)]}


def shape(messages: list[BaseMessage]) -> list[str]:
    return [message.type for message in messages]


ONE_TURN = ["human", "ai", "tool", "ai"]


def check_valid(messages: list[BaseMessage]) -> None:
    open_calls: set[str] = set()
    for message in messages:
        if isinstance(message, ToolMessage):
            assert message.tool_call_id in open_calls
            open_calls.remove(message.tool_call_id)
        else:
            assert not open_calls
        if isinstance(message, AIMessage):
            open_calls = {str(each["id"]) for each in message.tool_calls}
    assert not open_calls
    assert len({message.id for message in messages}) == len(messages)


def test_a_turn_is_logged_and_a_retry_is_answered_from_the_log(world: World, face: Any) -> None:
    agent, model = world.agent(call(), "done")
    first = face(agent, "invoke", ask(), config())
    again = face(agent, "invoke", ask(), config())
    assert shape(first["messages"]) == shape(again["messages"]) == ONE_TURN
    assert again["messages"][-1].text == "done"
    assert (world.payments, model.calls, world.actions()) == ([5], 2, ["answered"])
    assert [event.kind for event in world.log.events("t")] == ["user", "assistant:0", "tool:c1", "assistant:1", "done"]
    assert shape(world.log.messages("t")) == ONE_TURN
    answer = world.log.answer("t", "turn-1")
    assert answer is not None
    assert answer.text == "done"
    check_valid(again["messages"])


def test_the_next_turn_goes_on(world: World) -> None:
    agent, model = world.agent(call(), "done", call(7, "c2"), "done again")
    agent.invoke(ask(), config())
    found = agent.invoke(ask("pay 7"), config("turn-2"))
    assert shape(found["messages"]) == ONE_TURN * 2
    assert (world.payments, model.calls) == ([5, 7], 4)
    old = agent.invoke(ask(), config())
    assert shape(old["messages"]) == ONE_TURN * 2
    assert model.calls == 4


def test_without_a_turn_id_the_message_id_counts(world: World) -> None:
    agent, _ = world.agent(call(), "done")
    agent.invoke(ask(message_id="m1"), config(None))
    assert shape(agent.invoke(ask(message_id="m1"), config(None))["messages"]) == ONE_TURN
    assert world.payments == [5]
    assert world.log.turns("t")[0].turn_id == "m1"


def test_a_retry_that_sends_several_messages_leaves_one_of_each(world: World) -> None:
    agent, model = world.agent("hello", call(), RuntimeError("down"), "done")
    agent.invoke(ask("hi"), config("turn-0"))
    with pytest.raises(RuntimeError):
        agent.invoke({"messages": [("user", "It is Monday."), ("user", "Pay 5.")]}, config())
    for _ in range(2):
        found = agent.invoke({"messages": [("user", "It is Monday."), ("user", "Pay 5.")]}, config())
        assert [message.text for message in found["messages"]] == [
            "hi",
            "hello",
            "It is Monday.",
            "Pay 5.",
            "",
            "paid 5",
            "done",
        ]
    assert (world.payments, model.calls) == ([5], 4)


def test_context_carries_the_turn_id(world: World) -> None:
    agent, _ = world.agent(call(), "done")
    agent.invoke(ask(), config(None), context={"turn_id": "from context"})
    assert world.log.turns("t")[0].turn_id == "from context"


def test_a_turn_id_means_one_message(world: World) -> None:
    agent, _ = world.agent("hello")
    agent.invoke(ask("hi"), config())
    with pytest.raises(TurnConflictError, match="turn-1"):
        agent.invoke(ask("something else"), config())


@pytest.mark.parametrize("turn_id", ["", "  "])
def test_a_blank_turn_id_is_refused(world: World, turn_id: str) -> None:
    agent, _ = world.agent("hello")
    with pytest.raises(IdentityError):
        agent.invoke(ask(), config(turn_id))


def test_a_model_error_does_not_lose_the_turn(world: World, face: Any) -> None:
    agent, model = world.agent(RuntimeError("down"), call(), RuntimeError("down"), "done")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="down"):
            face(agent, "invoke", ask(), config())
    found = face(agent, "invoke", ask(), config())
    assert shape(found["messages"]) == ONE_TURN
    assert (world.payments, model.calls) == ([5], 4)
    assert world.actions() == ["model_reused", "tool_reused"]
    check_valid(found["messages"])


def test_a_failed_tool_has_an_unknown_outcome(world: World, face: Any) -> None:
    def fail() -> None:
        raise ConnectionError("line dropped after the payment")

    world.fault = fail
    agent, _ = world.agent(call(), "let me check")
    with pytest.raises(ConnectionError):
        face(agent, "invoke", ask(), config())
    found = face(agent, "invoke", ask(), config())
    assert world.payments == [5]
    assert found["messages"][2].status == "error"
    assert "Outcome unknown" in found["messages"][2].text
    assert "Check before you repeat" in found["messages"][2].text
    assert world.actions() == ["model_reused", "outcome_unknown"]
    check_valid(found["messages"])


def test_a_tool_that_is_safe_to_repeat_runs_again(world: World) -> None:
    faults = iter([ConnectionError("once")])

    def fail() -> None:
        for fault in faults:
            raise fault

    world.fault = fail
    agent, _ = world.agent(call(), "done", safe_to_repeat={"pay"})
    with pytest.raises(ConnectionError):
        agent.invoke(ask(), config())
    assert agent.invoke(ask(), config())["messages"][2].text == "paid 5"
    assert world.payments == [5, 5]


@pytest.mark.anyio
async def test_cancellation_in_a_tool_is_an_unknown_outcome(world: World) -> None:
    started = asyncio.Event()

    @tool
    async def pay(amount: int) -> str:
        """Pay."""
        world.payments.append(amount)
        started.set()
        await asyncio.sleep(30)
        return "never"

    model = ScriptedChatModel(responses=[call(), "let me check"])
    agent: Any = create_agent(model, [pay], middleware=[DurableTurnsMiddleware(world.log)], checkpointer=world.saver)
    task = asyncio.create_task(agent.ainvoke(ask(), config()))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    found = await agent.ainvoke(ask(), config())
    assert "Outcome unknown" in found["messages"][2].text
    assert world.payments == [5]


def test_an_interrupt_inside_a_tool_resumes(world: World, face: Any) -> None:
    @tool
    def approve(amount: int) -> str:
        """Ask first."""
        answer = interrupt("may I?")
        world.payments.append(amount)
        return f"{answer}: {amount}"

    request = AIMessage("", tool_calls=[{"name": "approve", "args": {"amount": 5}, "id": "c1"}])
    model = ScriptedChatModel(responses=[request, "done"])
    agent: Any = create_agent(
        model, [approve], middleware=[DurableTurnsMiddleware(world.log)], checkpointer=world.saver
    )
    assert face(agent, "invoke", ask(), config())["__interrupt__"]
    assert world.payments == []
    found = face(agent, "invoke", Command(resume="yes"), config())
    assert shape(found["messages"]) == ONE_TURN
    assert found["messages"][2].text == "yes: 5"
    assert world.payments == [5]


def test_human_in_the_loop_approval_and_edit(world: World) -> None:
    agent, _ = world.agent(call(), "done", middleware=[HumanInTheLoopMiddleware(interrupt_on={"pay": True})])
    assert agent.invoke(ask(), config())["__interrupt__"]
    edit = {"type": "edit", "edited_action": {"name": "pay", "args": {"amount": 3}}}
    found = agent.invoke(Command(resume={"decisions": [edit]}), config())
    assert (world.payments, found["messages"][-1].text) == ([3], "done")
    again = agent.invoke(ask(), config())
    assert again["messages"][-1].text == "done"
    assert world.payments == [3]
    check_valid(again["messages"])


def before_model(agent: Any, thread: Any) -> Any:
    """Config of the oldest checkpoint of a thread from which the model is asked."""
    return [state for state in agent.get_state_history(thread) if state.next == ("model",)][-1].config


def test_an_edited_message_on_a_fork_is_a_new_turn(world: World) -> None:
    agent, model = world.agent(call(), "done", call(9, "c9"), "forked")
    agent.invoke(ask(message_id="m1"), config(None))
    edited = agent.update_state(before_model(agent, config(None)), {"messages": [HumanMessage("pay 9", id="m1")]})
    forked = agent.invoke(None, edited)
    assert forked["messages"][-1].text == "forked"
    assert (world.payments, model.calls) == ([5, 9], 4)
    assert len(world.log.turns("t")) == 2
    fork = world.log.messages("t", turn_id=world.log.turns("t")[1].turn_id)
    assert [message.text for message in fork] == ["pay 9", "", "paid 9", "forked"]
    assert world.log.verify("t").is_intact


@pytest.mark.parametrize("sends_again", [False, True])
@pytest.mark.parametrize("turn_id", [None, "turn-1"])
def test_asking_again_from_an_older_checkpoint_asks_the_model_and_repeats_no_effect(
    world: World, face: Any, sends_again: bool, turn_id: str | None
) -> None:
    agent, model = world.agent(call(), "done", call(5, "other id"), "said anew", call(6, "c6"), "paid more")
    agent.invoke(ask(message_id="m1"), config(turn_id))
    old = before_model(agent, config(None))
    again = face(agent, "invoke", ask(message_id="m1") if sends_again and turn_id is None else None, old)
    assert again["messages"][-1].text == "said anew"
    assert (world.payments, model.calls) == ([5], 4)
    assert world.actions() == ["asked_again", "tool_reused"]
    assert again["messages"][2].tool_call_id == "other id"
    check_valid(again["messages"])
    once_more = face(agent, "invoke", None, old)  # answered again: asked once more; another call is another effect
    assert once_more["messages"][-1].text == "paid more"
    assert world.payments == [5, 6]
    assert len(world.log.turns("t")) == 3
    assert all(turn.is_done for turn in world.log.turns("t"))
    retried = face(agent, "invoke", ask(message_id="m1"), config(turn_id))
    assert (model.calls, world.payments) == (6, [5, 6])
    check_valid(retried["messages"])
    assert world.log.verify("t").is_intact


def test_asking_again_in_the_middle_of_a_turn_keeps_what_was_done(world: World) -> None:
    agent, model = world.agent(call(), "done", "said anew", "and again")
    agent.invoke(ask(message_id="m1"), config(None))
    after_tool = next(state for state in agent.get_state_history(config(None)) if state.next == ("model",))
    assert shape(after_tool.values["messages"]) == ["human", "ai", "tool"]
    again = agent.invoke(None, after_tool.config)
    assert [again["messages"][-1].text, model.calls] == ["said anew", 3]
    assert world.payments == [5]
    before_tool = next(state for state in agent.get_state_history(config(None)) if state.next == ("tools",))
    assert agent.invoke(None, before_tool.config)["messages"][-1].text == "and again"
    assert world.payments == [5]


def test_asking_again_that_fails_is_gone_on_with(world: World) -> None:
    agent, model = world.agent(call(), "done", call(7, "c7"), RuntimeError("down"), "said anew")
    agent.invoke(ask(message_id="m1"), config(None))
    old = before_model(agent, config(None))
    with pytest.raises(RuntimeError):
        agent.invoke(None, old)
    assert world.payments == [5, 7]
    again = agent.invoke(None, old)
    assert again["messages"][-1].text == "said anew"
    assert (world.payments, model.calls) == ([5, 7], 5)


def test_asking_again_waits_for_approval_and_pays_nothing_twice(world: World) -> None:
    human = HumanInTheLoopMiddleware(interrupt_on={"pay": True})
    agent, _ = world.agent(call(), "done", call(5, "c2"), "said anew", middleware=[human])
    approval = Command(resume={"decisions": [{"type": "approve"}]})
    agent.invoke(ask(message_id="m1"), config(None))
    agent.invoke(approval, config(None))
    assert agent.invoke(None, before_model(agent, config(None)))["__interrupt__"]
    again = agent.invoke(approval, config(None))
    assert again["messages"][-1].text == "said anew"
    assert world.payments == [5]
    assert world.actions() == ["asked_again", "tool_reused"]
    assert [turn.is_done for turn in world.log.turns("t")] == [True, True]


def test_two_workers_that_ask_again_from_one_checkpoint_ask_once(world: World) -> None:
    agent, model = world.agent(call(), "done", call(7, "c7"), "said anew")
    agent.invoke(ask(message_id="m1"), config(None))
    old = before_model(agent, config(None))
    world.fault = lambda: time.sleep(0.5)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: agent.invoke(None, old), range(2)))
    assert [state["messages"][-1].text for state in found] == ["said anew"] * 2
    assert (world.payments, model.calls) == ([5, 7], 4)
    assert world.log.verify("t").is_intact


def test_asking_again_with_the_callers_turn_id_is_a_retry(world: World) -> None:
    agent, model = world.agent(call(), "done")
    agent.invoke(ask(), config())
    old = before_model(agent, config())
    old["configurable"]["turn_id"] = "turn-1"
    again = agent.invoke(None, old)
    assert (again["messages"][-1].text, model.calls, world.payments) == ("done", 2, [5])


def test_a_safe_tool_runs_again_when_a_turn_is_asked_again(world: World) -> None:
    agent, _ = world.agent(call(), "done", call(5, "c9"), "said anew", safe_to_repeat={"pay"})
    agent.invoke(ask(message_id="m1"), config(None))
    agent.invoke(None, before_model(agent, config(None)))
    assert world.payments == [5, 5]


def test_the_same_message_behind_another_history_is_another_turn_and_repeats_are_said(world: World) -> None:
    agent, model = world.agent("hello", call(), "done", call(5, "c9"), "forked", call(5, "c10"), "earlier")
    agent.invoke(ask("hi", "m0"), config(None))
    agent.invoke(ask(message_id="m1"), config(None))
    states = list(agent.get_state_history(config(None)))
    second = next(
        state for state in reversed(states) if state.next == ("model",) and len(state.values["messages"]) == 3
    )
    edited = agent.update_state(second.config, {"messages": [HumanMessage("hi there", id="m0")]})
    forked = agent.invoke(None, edited)
    assert forked["messages"][-1].text == "forked"
    assert (world.payments, world.actions()) == ([5, 5], ["repeated"])
    first = next(state for state in reversed(states) if state.next == ("model",))
    assert [message.id for message in first.values["messages"]] == ["m0"]
    start = agent.update_state(first.config, {"messages": [AIMessage("good day", id="a0")]}, as_node="model")
    earlier = agent.invoke(ask(message_id="m1"), start)
    assert earlier["messages"][-1].text == "earlier"
    assert world.payments == [5, 5, 5]
    assert model.calls == 7
    assert world.log.verify("t").is_intact


@pytest.mark.parametrize("turn_id", [None, "turn-1"])
def test_the_same_turn_of_another_user_is_another_turn(world: World, turn_id: str | None) -> None:
    def of(user: str | None) -> Any:
        given = config(turn_id)
        given["configurable"].update({} if user is None else {"user_id": user})
        return given

    agent, model = world.agent("for ada", "for bob", "for nobody")
    assert agent.invoke(ask("who?", "m1"), of("u-17"))["messages"][-1].text == "for ada"
    assert agent.invoke(ask("who?", "m1"), of("u-18"))["messages"][-1].text == "for bob"
    assert agent.invoke(ask("who?", "m1"), of(None))["messages"][-1].text == "for nobody"
    assert model.calls == 3
    agent.invoke(ask("who?", "m1"), of("u-17"))
    agent.invoke(ask("who?", "m1"), of("u-18"))
    assert model.calls == 3
    first = world.log.turns("t")[0].turn_id
    answer = world.log.answer("t", first)
    assert (first, answer and answer.text) == (turn_id or "m1", "for ada")
    assert "u-17" not in str([event.body for event in world.log.events("t") if event.kind == "user"])


def test_someone_else_may_approve(world: World) -> None:
    agent, _ = world.agent(call(), "done", middleware=[HumanInTheLoopMiddleware(interrupt_on={"pay": True})])
    agent.invoke(ask(message_id="m1"), {"configurable": {"thread_id": "t", "user_id": "ada"}})
    approval = Command(resume={"decisions": [{"type": "approve"}]})
    boss: Any = {"configurable": {"thread_id": "t", "user_id": "boss"}}
    assert agent.invoke(approval, boss)["messages"][-1].text == "done"
    assert [turn.is_done for turn in world.log.turns("t")] == [True]
    assert world.payments == [5]


def test_logs_without_prefix_and_user_are_read_and_retried(world: World) -> None:
    from langmem_harness.threads.events import messages_body

    question = HumanMessage("pay 5", id="m1")
    world.log.append_event("t", "m1", "user", messages_body([question]))
    world.log.append_event("t", "m1", "assistant:0", messages_body([AIMessage("done before", id="a1")]))
    world.log.append_event("t", "m1", "done", {})
    agent, model = world.agent("never")
    found = agent.invoke({"messages": [question]}, {"configurable": {"thread_id": "t", "user_id": "ada"}})
    assert (found["messages"][-1].text, model.calls) == ("done before", 0)
    assert world.log.verify("t").is_intact


@dataclasses.dataclass
class Weather:
    """How it is."""

    degrees: int


class Mood(BaseModel):
    """How it feels."""

    word: str
    since: datetime.date


class Place(TypedDict):
    """Where."""

    city: str


STRUCTURED = [
    (Mood, "Mood", {"word": "calm", "since": "2026-01-02"}, Mood(word="calm", since=datetime.date(2026, 1, 2))),
    (Weather, "Weather", {"degrees": 3}, Weather(degrees=3)),
    (Place, "Place", {"city": "Bern"}, {"city": "Bern"}),
    (Mood | Weather, "Weather", {"degrees": 3}, Weather(degrees=3)),
    ({"title": "Free", "type": "object", "properties": {"x": {"type": "integer"}}}, "Free", {"x": 1}, {"x": 1}),
]


@pytest.mark.parametrize(
    ("schema", "name", "args", "expected"), STRUCTURED, ids=["model", "data", "typed", "or", "json"]
)
@pytest.mark.parametrize("has_checkpoints", [False, True])
def test_structured_answers_are_in_the_log_and_come_back(
    world: World, face: Any, schema: Any, name: str, args: Any, expected: Any, has_checkpoints: bool
) -> None:
    final = AIMessage("", tool_calls=[{"name": name, "args": args, "id": "s1"}])
    model = ScriptedChatModel(responses=[call(), final, "next"])

    @tool
    def pay(amount: int) -> str:
        """Pay."""
        world.payments.append(amount)
        return "paid"

    agent: Any = create_agent(
        model,
        [pay],
        middleware=[DurableTurnsMiddleware(world.log)],
        checkpointer=world.saver if has_checkpoints else None,
        response_format=ToolStrategy(schema),
    )
    first = face(agent, "invoke", ask(), config())
    assert first["structured_response"] == expected
    events = {event.kind: event for event in world.log.events("t")}
    assert list(events) == ["user", "assistant:0", "tool:c1", "assistant:1", "done"]
    assert events["assistant:1"].body["structured"]["value"] == args
    again = face(agent, "invoke", ask(), config())
    assert again["structured_response"] == expected
    assert type(again["structured_response"]) is type(expected)
    assert [message.type for message in again["messages"]] == ["human", "ai", "tool", "ai", "tool"]
    assert (world.payments, model.calls) == ([5], 2)
    check_valid(again["messages"])
    assert world.log.verify("t").is_intact


def test_a_structured_answer_of_a_provider_comes_back_to_a_turn_that_goes_on(world: World) -> None:
    @after_model
    def fail_once(state: Any, runtime: Any) -> None:
        if faults:
            raise faults.pop()

    faults: list[Exception] = [RuntimeError("down")]
    answer = AIMessage('{"word": "calm", "since": "2026-01-02"}')
    model = ScriptedChatModel(responses=[answer])
    agent: Any = create_agent(
        model,
        [],
        middleware=[DurableTurnsMiddleware(world.log), fail_once],
        checkpointer=world.saver,
        response_format=ProviderStrategy(Mood),
    )
    with pytest.raises(RuntimeError):
        agent.invoke(ask(), config())
    assert agent.invoke(ask(), config())["structured_response"] == Mood(word="calm", since=datetime.date(2026, 1, 2))
    assert model.calls == 1


def test_a_history_that_another_middleware_shortens_is_no_new_turn(world: World) -> None:
    from langchain.agents.middleware import before_model as as_before_model
    from langchain_core.messages import RemoveMessage
    from langgraph.graph.message import REMOVE_ALL_MESSAGES

    @as_before_model
    def shorten(state: Any, runtime: Any) -> dict[str, Any] | None:
        kept = [message for message in state["messages"] if not message.text.startswith("old")]
        return {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), *kept]}

    replies = ["old answer", call(), RuntimeError("down"), "done"]
    agent, model = world.agent(*replies, middleware=[shorten])
    agent.invoke(ask("old question", "m0"), config(None))
    with pytest.raises(RuntimeError):
        agent.invoke(ask(message_id="m1"), config(None))
    for _ in range(2):
        found = agent.invoke(ask(message_id="m1"), config(None))
        assert found["messages"][-1].text == "done"
        assert (world.payments, model.calls) == ([5], 4)


@pytest.mark.parametrize("turn_id", [None, "turn-1"])
def test_a_summary_in_place_of_the_question_does_not_start_the_turn_again(world: World, turn_id: str | None) -> None:
    from langchain.agents.middleware import before_model as as_before_model
    from langchain_core.messages import RemoveMessage
    from langgraph.graph.message import REMOVE_ALL_MESSAGES

    @as_before_model
    def summarize(state: Any, runtime: Any) -> dict[str, Any] | None:
        if len(state["messages"]) < 3:
            return None
        summary = HumanMessage("They pay.", additional_kwargs={"lc_source": "summarization"})
        return {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), summary, *state["messages"][-2:]]}

    agent, model = world.agent(call(1, "c1"), call(2, "c2"), call(3, "c3"), "done", middleware=[summarize])
    assert agent.invoke(ask(message_id="m1"), config(turn_id))["messages"][-1].text == "done"
    assert (world.payments, model.calls) == ([1, 2, 3], 4)
    assert world.log.answer("t", turn_id or "m1") is not None


def test_ids_that_come_again_or_are_empty_are_other_calls(world: World) -> None:
    agent, _ = world.agent(call(1, "same"), call(2, "same"), call(2, "same"), call(4, ""), "done")
    found = agent.invoke(ask(), config())
    assert world.payments == [1, 2, 2, 4]
    assert [message.text for message in found["messages"] if message.type == "tool"] == [
        "paid 1",
        "paid 2",
        "paid 2",
        "paid 4",
    ]


def test_an_unfinished_turn_that_was_overtaken_is_a_conflict(world: World) -> None:
    agent, _ = world.agent(call(), RuntimeError("down"), "second")
    with pytest.raises(RuntimeError):
        agent.invoke(ask(), config())
    agent.invoke(ask("hello?"), config("turn-2"))
    with pytest.raises(TurnConflictError, match="another one followed"):
        agent.invoke(ask(), config())


def test_two_workers_with_one_turn_make_one_effect(world: World) -> None:
    world.fault = lambda: time.sleep(0.3)
    agent, model = world.agent(call(), "done")
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: agent.invoke(ask(message_id="m"), config()), range(3)))
    assert world.payments == [5]
    assert model.calls == 2
    assert {result["messages"][-1].text for result in found} == {"done"}
    for result in found:
        check_valid(result["messages"])
    final = agent.get_state(config()).values["messages"]
    assert shape(final) == ONE_TURN


def test_a_slow_tool_keeps_its_claim_and_waiting_ends(world: World) -> None:
    world.fault = lambda: time.sleep(1.2)  # four leases long
    agent, _ = world.agent(call(), "done")
    impatient, _ = world.agent("unused", wait_seconds=0.1)
    worker = threading.Thread(target=agent.invoke, args=(ask(message_id="m"), config()))
    worker.start()
    while not world.payments:
        time.sleep(0.01)
    time.sleep(0.6)
    with pytest.raises(TurnInProgressError):
        impatient.invoke(ask(message_id="m"), config())
    worker.join()
    assert world.payments == [5]


def test_answers_changed_by_other_middleware_are_what_is_given_again(world: World) -> None:
    @after_model
    def redact(state: Any, runtime: Any) -> dict[str, Any]:
        last = state["messages"][-1]
        return {"messages": [last.model_copy(update={"content": last.text.replace("secret", "[gone]")})]}

    agent, _ = world.agent("a secret", middleware=[redact])
    assert agent.invoke(ask(), config())["messages"][-1].text == "a [gone]"
    assert agent.invoke(ask(), config())["messages"][-1].text == "a [gone]"
    answer = world.log.answer("t", "turn-1")
    assert answer is not None
    assert answer.text == "a [gone]"


def test_command_results_and_odd_artifacts(world: World) -> None:
    @tool
    def move(place: str) -> Any:
        """Move."""
        world.payments.append(1)
        return Command(update={"messages": [ToolMessage("moved", tool_call_id="c1")]})

    @tool(response_format="content_and_artifact")
    def draw(place: str) -> Any:
        """Draw."""
        return "drawn", object()

    calls = [
        {"name": "move", "args": {"place": "x"}, "id": "c1"},
        {"name": "draw", "args": {"place": "x"}, "id": "c2"},
    ]
    model = ScriptedChatModel(responses=[AIMessage("", tool_calls=calls), RuntimeError("down"), "done"])
    log = world.log
    agent: Any = create_agent(model, [move, draw], middleware=[DurableTurnsMiddleware(log)])
    thread = {"configurable": {"thread_id": "t", "turn_id": "1"}}
    with pytest.raises(RuntimeError):
        agent.invoke(ask(), thread)
    found = agent.invoke(ask(), thread)
    assert [message.text for message in found["messages"]][2:] == ["moved", "drawn", "done"]
    assert world.payments == [1]


def test_stream_and_astream(world: World) -> None:
    agent, _ = world.agent(call(), "done")
    steps = list(agent.stream(ask(), config(), stream_mode="values"))
    assert shape(steps[-1]["messages"]) == ONE_TURN

    async def again() -> list[Any]:
        return [step async for step in agent.astream(ask(), config(), stream_mode="values")]

    assert shape(asyncio.run(again())[-1]["messages"]) == ONE_TURN
    assert world.payments == [5]


def test_settings_are_checked(world: World) -> None:
    for wrong in ({"lease_seconds": 0}, {"wait_seconds": -1}, {"safe_to_repeat": "pay"}):
        with pytest.raises(ConfigurationError):
            DurableTurnsMiddleware(world.log, **wrong)  # type: ignore[arg-type]


def test_no_thread_id_is_an_error(world: World) -> None:
    agent: Any = create_agent(ScriptedChatModel(responses=["x"]), [], middleware=[DurableTurnsMiddleware(world.log)])
    with pytest.raises(IdentityError):
        agent.invoke(ask())


@pytest.mark.parametrize("state_ids", [[], ["x"], ["x", "a"], ["x", "a", "t"], ["x", "a", "t", "b"]])
@pytest.mark.parametrize("repeats", [0, 1, 2])
@pytest.mark.parametrize("is_done", [False, True])
def test_any_state_of_a_retried_turn_ends_with_one_human_message(
    state_ids: list[str], repeats: int, is_done: bool
) -> None:
    said = {
        "x": HumanMessage("pay", id="x"),
        "a": AIMessage("", id="a", tool_calls=[{"name": "pay", "args": {}, "id": "c"}]),
        "t": ToolMessage("paid", id="t", tool_call_id="c"),
        "b": AIMessage("done", id="b"),
    }
    earlier = [HumanMessage("pay", id="earlier"), AIMessage("done", id="answer")]
    state = [*earlier, *(said[name] for name in state_ids), *(HumanMessage("pay", id=f"y{n}") for n in range(repeats))]
    if len(state) == len(earlier):
        return  # nobody sent anything
    before = [message.model_copy(deep=True) for message in state]
    logged = list(said.values()) if is_done else list(said.values())[: max(1, len(state_ids))]
    plan = plan_retry(state, logged, known_ids={"earlier", "answer", *said}, is_done=is_done)
    assert state == before
    after: list[BaseMessage] = add_messages(state, list(plan.update))  # type: ignore[assignment, arg-type]
    assert after[:2] == earlier
    expected = ["x", "a", "t", "b"] if is_done else ["x"]
    assert [message.id for message in after[2:]] == expected
    assert plan.is_answered == is_done
