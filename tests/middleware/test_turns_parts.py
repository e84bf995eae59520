"""Durable turns of several agents in one graph: pipelines, loops, handoffs, sub-agents, two agents on one thread."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, Send, interrupt

from langmem_harness.events import MemoryEvent, TurnReplayed
from langmem_harness.middleware.turn_parts import Entrance, PartFinder, extra_positions
from langmem_harness.middleware.turns import DurableTurnsMiddleware
from langmem_harness.testing import ScriptedChatModel
from langmem_harness.threads import SqliteCheckpointer, ThreadLog


class World:
    """Agents that pay, in graphs, and what they did."""

    def __init__(self, folder: Path) -> None:
        self.saver = SqliteCheckpointer(folder / "threads.sqlite")
        self.log = ThreadLog(self.saver.database)
        self.payments: list[int] = []
        self.events: list[MemoryEvent] = []

    def agent(self, *replies: Any, tools: Any = (), **options: Any) -> tuple[Any, ScriptedChatModel]:
        @tool
        def pay(amount: int) -> str:
            """Pay."""
            self.payments.append(amount)
            return f"paid {amount}"

        model = ScriptedChatModel(responses=list(replies))
        turns = DurableTurnsMiddleware(self.log, lease_seconds=0.3, on_event=self.events.append)
        return create_agent(model, [pay, *tools], middleware=[turns], **options), model

    def pipeline(self, **nodes: Any) -> Any:
        graph = StateGraph(MessagesState)
        names = list(nodes)
        for name, node in nodes.items():
            graph.add_node(name, node)
        for before, after in zip([START, *names], [*names, END], strict=True):
            graph.add_edge(before, after)
        return graph.compile(checkpointer=self.saver)

    def actions(self) -> list[str]:
        return [event.action for event in self.events if isinstance(event, TurnReplayed)]

    def said(self) -> list[str]:
        return [message.text for message in self.log.messages("t") if message.text]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    opened = World(tmp_path)
    yield opened
    opened.saver.close()


def call(amount: int = 5, call_id: str = "c1") -> AIMessage:
    return AIMessage("", tool_calls=[{"name": "pay", "args": {"amount": amount}, "id": call_id}])


def config(turn_id: str | None = None) -> Any:
    return {"configurable": {"thread_id": "t", **({} if turn_id is None else {"turn_id": turn_id})}}


def ask(text: str = "write", message_id: str | None = "h1") -> dict[str, Any]:
    return {"messages": [HumanMessage(text, id=message_id)]}


def texts(result: Any) -> list[str]:
    return [message.text for message in result["messages"] if message.text]


BY = pytest.mark.parametrize("turn_id", [None, "T1"])


@BY
def test_a_pipeline_of_two_agents_answers_and_a_retry_asks_nobody(world: World, face: Any, turn_id: str | None) -> None:
    writer, writing = world.agent(call(), "draft")
    critic, reviewing = world.agent("review")
    graph = world.pipeline(writer=writer, critic=critic)
    expected = ["write", "paid 5", "draft", "review"]
    for _ in range(3):
        assert texts(face(graph, "invoke", ask(), config(turn_id))) == expected
    assert (writing.calls, reviewing.calls, world.payments) == (2, 1, [5])
    stem = turn_id or "h1"
    assert [(turn.turn_id, turn.is_done) for turn in world.log.turns("t")] == [
        (f"{stem}/writer", True),
        (f"{stem}/critic", True),
    ]
    assert world.said() == expected  # one human message, and nothing again
    answer, draft = world.log.answer("t", stem), world.log.answer("t", f"{stem}/writer")
    assert answer is not None
    assert answer.text == "review"
    assert draft is not None
    assert draft.text == "draft"


def test_a_retry_under_another_message_id_says_the_answers_again_behind_it(world: World, face: Any) -> None:
    writer, writing = world.agent(call(), "draft")
    critic, reviewing = world.agent("review")
    graph = world.pipeline(writer=writer, critic=critic)
    one = ["write", "paid 5", "draft", "review"]
    for number in range(3):
        result = face(graph, "invoke", ask(message_id=f"h{number}"), config("T1"))
    assert texts(result) == one * 3
    assert len({message.id for message in result["messages"]}) == len(result["messages"])
    assert (writing.calls, reviewing.calls, world.payments) == (2, 1, [5])
    assert world.said() == one


def test_the_next_turn_of_a_pipeline_goes_on(world: World) -> None:
    graph = world.pipeline(writer=world.agent("one", "two")[0], critic=world.agent("good", "better")[0])
    graph.invoke(ask("write", "h1"), config())
    assert texts(graph.invoke(ask("write", "h2"), config())) == ["write", "one", "good", "write", "two", "better"]


@BY
@pytest.mark.parametrize("resumes", [False, True])
def test_a_crash_between_two_agents_pays_once(world: World, face: Any, turn_id: str | None, resumes: bool) -> None:
    writer, writing = world.agent(call(), "draft")
    critic, reviewing = world.agent(RuntimeError("killed"), "review")
    graph = world.pipeline(writer=writer, critic=critic)
    with pytest.raises(RuntimeError, match="killed"):
        face(graph, "invoke", ask(), config(turn_id))
    draft = world.log.answer("t", turn_id or "h1")
    assert draft is None  # the turn has an agent that did not answer
    result = face(graph, "invoke", None if resumes else ask(), config(turn_id))
    assert texts(result) == ["write", "paid 5", "draft", "review"]
    assert (writing.calls, reviewing.calls, world.payments) == (2, 2, [5])


@BY
def test_a_crash_in_the_first_agent_pays_once(world: World, face: Any, turn_id: str | None) -> None:
    writer, _ = world.agent(call(), RuntimeError("killed"), "draft")
    graph = world.pipeline(writer=writer, critic=world.agent("review")[0])
    with pytest.raises(RuntimeError, match="killed"):
        face(graph, "invoke", ask(), config(turn_id))
    assert texts(face(graph, "invoke", ask(), config(turn_id))) == ["write", "paid 5", "draft", "review"]
    assert world.payments == [5]


def loop(world: World, writer: Any, passes: int, **update: Any) -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("writer", writer)
    graph.add_node("check", lambda state: {"messages": [AIMessage("again")]})
    graph.add_edge(START, "writer")
    graph.add_conditional_edges(
        "writer", lambda state: END if state["messages"][-1].text == f"draft {passes}" else "check"
    )
    graph.add_edge("check", "writer")
    return graph.compile(checkpointer=world.saver)


def test_a_loop_of_three_passes_runs_each_pass(world: World, face: Any) -> None:
    replies = [reply for number in (1, 2, 3) for reply in (call(), f"draft {number}")]
    writer, writing = world.agent(*replies)
    graph = loop(world, writer, 3)
    result = face(graph, "invoke", ask(), config())
    assert texts(result) == ["write", "paid 5", "draft 1", "again", "paid 5", "draft 2", "again", "paid 5", "draft 3"]
    assert world.payments == [5, 5, 5]  # each pass meant it
    assert [turn.turn_id for turn in world.log.turns("t")] == ["h1/writer", "h1/writer:2", "h1/writer:3"]
    answer = world.log.answer("t", "h1")
    assert answer is not None
    assert answer.text == "draft 3"
    assert writing.calls == 6


def test_a_loop_goes_on_in_the_pass_in_which_it_died(world: World, face: Any) -> None:
    writer, writing = world.agent(call(), "draft 1", call(), RuntimeError("killed"), "draft 2", call(), "draft 3")
    graph = loop(world, writer, 3)
    with pytest.raises(RuntimeError, match="killed"):
        face(graph, "invoke", ask(), config())
    assert texts(face(graph, "invoke", None, config()))[-1] == "draft 3"
    assert (writing.calls, world.payments) == (7, [5, 5, 5])


def test_a_retried_loop_takes_its_passes_from_the_log(world: World, face: Any) -> None:
    writer, writing = world.agent(call(), "draft 1", call(), RuntimeError("killed"), "draft 2")
    graph = loop(world, writer, 2)
    with pytest.raises(RuntimeError, match="killed"):
        face(graph, "invoke", ask(), config())
    assert texts(face(graph, "invoke", ask(), config()))[-1] == "draft 2"
    assert (writing.calls, world.payments) == (5, [5, 5])


def test_equal_passes_are_two_passes(world: World, face: Any) -> None:
    """A node that calls an agent with the same words each time has asked each time."""
    writer, writing = world.agent("one", "two")

    def node(state: Any) -> Any:
        asked = [writer.invoke({"messages": [HumanMessage("go", id="same")]})["messages"][-1].text for _ in range(2)]
        return {"messages": [AIMessage(" ".join(asked))]}

    graph = world.pipeline(node=node)
    assert texts(graph.invoke(ask(), config("T1"))) == ["write", "one two"]
    assert texts(graph.invoke(ask(), config("T1")))[-1] == "one two"
    assert writing.calls == 2


def test_branches_that_get_the_same_at_the_same_time_are_two_passes(world: World, face: Any) -> None:
    writer, writing = world.agent("a draft", "a draft")
    graph = StateGraph(MessagesState)
    graph.add_node("writer", writer)
    graph.add_conditional_edges(START, lambda state: [Send("writer", {"messages": state["messages"]})] * 2)
    built = graph.compile(checkpointer=world.saver)
    for _ in range(2):
        assert texts(face(built, "invoke", ask(), config())) == ["write", "a draft", "a draft"]
    assert writing.calls == 2
    assert [turn.turn_id for turn in world.log.turns("t")] == ["h1/writer", "h1/writer:2"]


def test_agents_at_one_place_are_told_apart_by_their_names(world: World) -> None:
    """Two tools of one agent each ask an agent of their own, in any order."""
    human, finder = HumanMessage("go", id="h1"), PartFinder(world.log)

    def begin(agent: str | None, root: str) -> str:
        entrance = Entrance(place="tools", root=root, key=f"{root} {agent}", agent=agent)
        return finder.begin("t", "h1", entrance, [human], human, user_hash=None, asks_again=False).turn_id

    first = {agent: begin(agent, "run 1") for agent in ("one", "two", None)}
    assert len(set(first.values())) == 3
    assert {agent: begin(agent, "run 2") for agent in (None, "two", "one")} == first
    assert {agent: begin(agent, "run 1") for agent in ("two", None, "one")} == first  # the same execution again


def handoff(world: World, to: str, call_id: str) -> Any:
    @tool(f"to_{to}")
    def hand_off() -> Command[Any]:
        """Hand off."""
        world.payments.append(0)
        update = {"messages": [AIMessage("", tool_calls=[ask_for]), ToolMessage(f"now {to}", tool_call_id=call_id)]}
        return Command(goto=to, graph=Command.PARENT, update=update)

    ask_for: Any = {"name": f"to_{to}", "args": {}, "id": call_id}
    return hand_off, AIMessage("", tool_calls=[ask_for])


@BY
def test_a_handoff_both_ways_and_its_retry(world: World, face: Any, turn_id: str | None) -> None:
    to_billing, hands_over = handoff(world, "billing", "x")
    to_triage, hands_back = handoff(world, "triage", "y")
    triage, routing = world.agent(hands_over, "all done", tools=[to_billing])
    billing, paying = world.agent(call(), hands_back, tools=[to_triage])
    graph = StateGraph(MessagesState)
    graph.add_node("triage", triage)
    graph.add_node("billing", billing)
    graph.add_edge(START, "triage")
    built = graph.compile(checkpointer=world.saver)
    first = face(built, "invoke", ask(), config(turn_id))
    assert texts(first) == ["write", "now billing", "now triage", "all done"]
    assert texts(face(built, "invoke", ask(), config(turn_id))) == texts(first)
    assert (routing.calls, paying.calls, world.payments) == (2, 2, [0, 5, 0])
    answer = world.log.answer("t", turn_id or "h1")
    assert answer is not None
    assert answer.text == "all done"


def test_other_words_under_one_message_id_are_answered_anew(world: World) -> None:
    writer, writing = world.agent(call(), "draft", call(call_id="c2"), "other draft")
    graph = world.pipeline(writer=writer)
    graph.invoke(ask(), config())
    assert texts(graph.invoke(ask("write more"), config()))[-1] == "other draft"
    assert (writing.calls, world.payments) == (4, [5, 5])


def test_a_part_behind_an_edited_history_is_answered_anew_and_pays_no_second_time(world: World) -> None:
    writer, writing = world.agent("hello", call(), "draft", call(call_id="c2"), "other draft")
    graph = world.pipeline(writer=writer)
    graph.invoke(ask("hi", "h0"), config())
    graph.invoke(ask(), config())
    graph.update_state(config(), {"messages": [HumanMessage("good day", id="h0")]})
    assert texts(graph.invoke(ask(), config()))[-1] == "other draft"
    assert (writing.calls, world.payments) == (5, [5])
    assert world.actions() == ["tool_reused"]


def test_an_approval_inside_a_part_goes_on(world: World, face: Any) -> None:
    @tool
    def approve() -> str:
        """Ask."""
        return str(interrupt("may I?"))

    wants = AIMessage("", tool_calls=[{"name": "approve", "args": {}, "id": "a"}])
    writer, _ = world.agent(call(), wants, "draft", tools=[approve])
    graph = world.pipeline(writer=writer, critic=world.agent("review")[0])
    face(graph, "invoke", ask(), config())
    result = face(graph, "invoke", Command(resume="yes"), config())
    assert texts(result) == ["write", "paid 5", "yes", "draft", "review"]
    assert world.payments == [5]


def test_a_part_is_asked_again_from_an_older_checkpoint_and_pays_once(world: World) -> None:
    writer, writing = world.agent(call(), "draft", call(call_id="c2"), "other draft")
    graph = world.pipeline(writer=writer)
    graph.invoke(ask(), config())
    start = [state for state in graph.get_state_history(config()) if state.next == ("writer",)][-1]
    assert texts(graph.invoke(None, start.config))[-1] == "other draft"
    assert (writing.calls, world.payments) == (4, [5])


def test_a_graph_without_checkpoints_passes_through_and_says_so(world: World, face: Any) -> None:
    writer, _ = world.agent("one", "two")
    graph = StateGraph(MessagesState)
    graph.add_node("writer", writer)
    graph.add_edge(START, "writer")
    built = graph.compile()
    assert texts(face(built, "invoke", ask(), config())) == ["write", "one"]
    assert texts(face(built, "invoke", ask(), config())) == ["write", "two"]
    assert world.actions() == ["passed_through"] * 2
    assert world.log.events("t") == []


def test_a_graph_that_saves_at_its_end_passes_through(world: World) -> None:
    graph = world.pipeline(writer=world.agent("one")[0])
    assert texts(graph.invoke(ask(), config(), durability="exit")) == ["write", "one"]
    assert world.actions() == ["passed_through"]


@pytest.mark.anyio
async def test_another_checkpointer_around_is_enough(world: World) -> None:
    writer, writing = world.agent(call(), "draft")
    graph = StateGraph(MessagesState)
    graph.add_node("writer", writer)
    graph.add_edge(START, "writer")
    built = graph.compile(checkpointer=InMemorySaver())
    for _ in range(2):
        assert texts(await built.ainvoke(ask(), config())) == ["write", "paid 5", "draft"]
    assert (writing.calls, world.payments) == (2, [5])


def test_two_named_agents_on_one_thread_answer_one_message(world: World, face: Any) -> None:
    router, routing = world.agent("to the worker", name="router", checkpointer=world.saver)
    worker, working = world.agent("worked", name="worker", checkpointer=world.saver)
    for _ in range(2):
        assert texts(face(router, "invoke", ask(), config()))[-1] == "to the worker"
        assert texts(face(worker, "invoke", ask(), config()))[-1] == "worked"
    assert (routing.calls, working.calls) == (1, 1)


@pytest.mark.parametrize(
    ("now", "then", "fixed", "extra"),
    [
        ("h", "h", 1, []),
        ("hdr", "h", 1, [1, 2]),
        ("hdrh", "hd", 1, [2, 3]),
        ("xh", "h", 1, None),
        ("h", "hd", 1, None),
        ("hrd", "hdr", 1, None),
        ("", "h", 1, None),
    ],
)
def test_an_entry_is_the_same_when_only_later_messages_were_added(
    now: str, then: str, fixed: int, extra: list[int] | None
) -> None:
    assert extra_positions(now, then, fixed=fixed) == extra


def test_parts_are_told_from_turns_with_a_slash(world: World) -> None:
    world.log.append_event("t", "a/b", "user", {})
    world.log.append_event("t", "a/b", "done", {})
    assert world.log.parts("t", "a") == []
    assert world.log.answer("t", "a") is None
