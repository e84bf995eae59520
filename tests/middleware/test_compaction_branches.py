"""Parallel branches, sub-agents and several summarising middlewares: no conflict of updates, no mixed records."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ModelRequest, ModelResponse
from langchain.agents.middleware.types import ExtendedModelResponse
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, StateGraph
from langgraph.store.memory import InMemoryStore

from langmem_harness.events import MemoryEvent, SummaryStale, SummaryWritten
from langmem_harness.middleware.compaction import HistoryCompactionMiddleware
from langmem_harness.middleware.compaction_state import CompactionState
from langmem_harness.summaries import SummaryLedger
from langmem_harness.testing import ScriptedChatModel
from langmem_harness.window import check_request
from langmem_harness.window.limits import Size
from langmem_harness.window.messages import is_tagged, tag_of
from tests.middleware.test_compaction_summaries import config

TRIGGER: Size = ("tokens", 1_200)
KEEP: Size = ("tokens", 300)


def echo(text: str) -> str:
    """A summary that says whose messages it read."""
    return "Notes on " + " ".join(sorted(set(re.findall(r"topic-\w+", text))))


def conversation(topic: str, turns: int = 20) -> list[BaseMessage]:
    messages: list[BaseMessage] = []
    for number in range(turns):
        messages += [
            HumanMessage(f"Question {number} on {topic}? " + "please " * 30, id=f"{topic}-h{number}"),
            AIMessage(f"Answer {number} on {topic}. " + "indeed " * 20, id=f"{topic}-a{number}"),
        ]
    return [*messages, HumanMessage(f"And now, {topic}?", id=f"{topic}-now")]


def saver() -> InMemorySaver:
    return InMemorySaver(serde=JsonPlusSerializer(allowed_msgpack_modules=None))


def markers(request: list[BaseMessage]) -> list[BaseMessage]:
    return [message for message in request if is_tagged(message, "marker")]


def run(face: str, graph: Any, said: Any) -> Any:
    return graph.invoke(said, config()) if face == "sync" else asyncio.run(graph.ainvoke(said, config()))


@pytest.fixture(params=[True, False], ids=["store", "no store"])
def store(request: pytest.FixtureRequest) -> InMemoryStore | None:
    return InMemoryStore() if request.param else None


@pytest.mark.parametrize("face", ["sync", "async"])
def test_two_agents_in_parallel_branches_on_one_history(face: str, store: InMemoryStore | None) -> None:
    events: list[MemoryEvent] = []
    shared = HistoryCompactionMiddleware(TRIGGER, KEEP, summarizer=echo, on_event=events.append)
    other = HistoryCompactionMiddleware(
        ("tokens", 900), ("tokens", 200), summarizer=echo, on_event=events.append, on_stale="raise", name="other"
    )
    models = [ScriptedChatModel(responses=[f"From {name}."], on_exhausted="repeat") for name in "abc"]
    builder: Any = StateGraph(CompactionState)
    for name, model, middleware in zip("abc", models, (shared, shared, other), strict=True):
        builder.add_node(name, create_agent(model, middleware=[middleware]))
        builder.add_edge(START, name)
    graph = builder.compile(checkpointer=saver(), store=store)
    run(face, graph, {"messages": conversation("topic-x")})
    final = run(face, graph, {"messages": [HumanMessage("Once more?")]})
    assert sorted(message.text for message in final["messages"][-3:]) == ["From a.", "From b.", "From c."]
    for model in models:
        for request in model.requests:
            (marker,) = markers(request)
            assert "Notes on topic-x" in marker.text
            assert check_request(request) == []
    assert [event for event in events if isinstance(event, SummaryStale)] == []
    if store is not None:
        records = SummaryLedger(store).list("t")
        written = sum(isinstance(event, SummaryWritten) for event in events)
        assert len(records) == written == len({(record.policy, record.sources[-1]) for record in records})


@pytest.mark.parametrize("face", ["sync", "async"])
def test_parallel_nodes_that_update_one_private_state(face: str, store: InMemoryStore | None) -> None:
    """Both nodes write the same channels in one step."""
    names = ("left", "right", "third")
    middlewares = {name: HistoryCompactionMiddleware(TRIGGER, KEEP, summarizer=echo, name=name) for name in names}
    seen: dict[str, list[BaseMessage]] = {}

    def node(name: str) -> Any:
        def request_of(state: Any, runtime: Any) -> ModelRequest[Any]:
            model = ScriptedChatModel(responses=[])
            return ModelRequest(model=model, messages=state["messages"], state=state, runtime=runtime)

        def answer(request: ModelRequest[Any]) -> ModelResponse[Any]:
            seen[name] = list(request.messages)
            return ModelResponse(result=[AIMessage("ok")])

        def update(response: Any) -> Any:
            assert isinstance(response, ExtendedModelResponse)
            assert response.command is not None
            return response.command.update

        if face == "sync":

            def call(state: CompactionState, runtime: Any) -> Any:
                return update(middlewares[name].wrap_model_call(request_of(state, runtime), answer))

            return call

        async def acall(state: CompactionState, runtime: Any) -> Any:
            async def ahandler(request: ModelRequest[Any]) -> ModelResponse[Any]:
                return answer(request)

            return update(await middlewares[name].awrap_model_call(request_of(state, runtime), ahandler))

        return acall

    builder: Any = StateGraph(CompactionState)
    for name in names:
        from langgraph.runtime import Runtime

        action = node(name)
        action.__annotations__["runtime"] = Runtime
        builder.add_node(name, action)
        builder.add_edge(START, name)
    graph = builder.compile(checkpointer=saver(), store=store)
    run(face, graph, {"messages": conversation("topic-x")})
    values = graph.get_state(config()).values
    used = {name: (tag_of(markers(seen[name])[0]) or {})["summary_id"] for name in names}
    if store is None:
        assert set(values["compaction_records"]) == set(used.values())
    else:
        assert values["compaction_record_ids"] == {name: [used[name]] for name in names}
    assert len(set(used.values())) == 3


@pytest.mark.parametrize("face", ["sync", "async"])
def test_several_summarising_middlewares_in_one_agent(face: str, store: InMemoryStore | None) -> None:
    events: list[MemoryEvent] = []
    outer = HistoryCompactionMiddleware(
        ("tokens", 2_000), ("tokens", 900), summarizer=echo, on_event=events.append, on_stale="raise", name="outer"
    )
    inner = HistoryCompactionMiddleware(
        ("tokens", 1_000), ("tokens", 250), summarizer=echo, on_event=events.append, on_stale="raise", name="inner"
    )
    model = ScriptedChatModel(responses=["Well. " * 30], on_exhausted="repeat")
    agent = create_agent(model, checkpointer=saver(), store=store, middleware=[outer, inner])
    run(face, agent, {"messages": conversation("topic-x", 8)})
    for number in range(20):
        run(face, agent, {"messages": [HumanMessage(f"More {number} on topic-x? " + "please " * 30)]})
    for request in model.requests:
        assert check_request(request) == []
        assert request[0].text.startswith("Question 0")
        ours = [(tag_of(marker) or {})["summary_id"] for marker in markers(request)]
        assert len(ours) == len(set(ours))
    assert [event for event in events if isinstance(event, SummaryStale)] == []
    assert len(agent.get_state(config()).values["messages"]) == 17 + 1 + 40
    if store is not None:
        assert {record.policy for record in SummaryLedger(store).list("t")} == {"outer", "inner"}


@pytest.mark.parametrize("face", ["sync", "async"])
def test_parallel_sub_agents_of_one_thread_keep_their_records_apart(face: str, store: InMemoryStore | None) -> None:
    events: list[MemoryEvent] = []
    middleware = HistoryCompactionMiddleware(TRIGGER, KEEP, summarizer=echo, on_event=events.append)
    inner_model = ScriptedChatModel(responses=["Done."], on_exhausted="repeat")
    inner: Any = create_agent(inner_model, store=store, middleware=[middleware])

    @tool
    def delegate(topic: str) -> str:
        """Let another agent do it."""
        return str(inner.invoke({"messages": conversation(topic)})["messages"][-1].text)

    topics = [f"topic-{letter}" for letter in "abcd"]
    calls: list[Any] = [{"id": f"d-{topic}", "name": "delegate", "args": {"topic": topic}} for topic in topics]
    outer_model = ScriptedChatModel(responses=[AIMessage("", tool_calls=calls), "All done."])
    outer = create_agent(
        outer_model,
        [delegate],
        checkpointer=saver(),
        store=store,
        middleware=[HistoryCompactionMiddleware(TRIGGER, KEEP, summarizer=echo, on_event=events.append)],
    )
    final = run(face, outer, {"messages": conversation("topic-outer")})
    assert final["messages"][-1].text == "All done."
    for request in [*inner_model.requests, *outer_model.requests]:
        topic = re.findall(r"topic-\w+", request[0].text)[0]
        (marker,) = markers(request)
        assert set(re.findall(r"topic-\w+", marker.text)) == {topic}
    assert [event for event in events if isinstance(event, SummaryStale)] == []
