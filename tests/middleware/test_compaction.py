"""Compaction in real agents: what the model gets, and that the thread stays whole."""

from __future__ import annotations

import asyncio
import itertools
import logging
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver

from langmem_harness.errors import ConfigurationError, WindowOverflowError
from langmem_harness.events import ContextOverflowed, HistoryCompacted, HistoryRepaired, MemoryEvent
from langmem_harness.middleware import compaction_plan
from langmem_harness.middleware.compaction import HistoryCompactionMiddleware
from langmem_harness.testing import ScriptedChatModel
from langmem_harness.window import check_request, effective_messages
from langmem_harness.window.messages import TAG_KEY, content_hash, is_tagged
from tests.window.histories import SHAPES, ai, calling, chat, human, result

TRIGGER, KEEP = ("tokens", 1_000), ("tokens", 300)


@tool
def search(q: str) -> str:
    """Search for it."""
    return f"{q}: " + "found " * 120


def long_run(calls: int = 20) -> list[Any]:
    script: list[Any] = [
        AIMessage("", tool_calls=[{"id": f"c{number}", "name": "search", "args": {"q": str(number)}}])
        for number in range(calls)
    ]
    return [*script, "That is all of it."]


def play(face: str, agent: Any, text: str, config: Any) -> None:
    """One turn, in each of the four ways to run an agent."""
    said = {"messages": [HumanMessage(text)]}

    async def astream() -> None:
        async for _ in agent.astream(said, config, stream_mode=["messages", "updates", "custom"]):
            pass

    match face:
        case "invoke":
            agent.invoke(said, config)
        case "ainvoke":
            asyncio.run(agent.ainvoke(said, config))
        case "stream":
            for _ in agent.stream(said, config, stream_mode=["messages", "updates", "custom"]):
                pass
        case _:
            asyncio.run(astream())


def config(thread: str = "t") -> Any:
    return {"configurable": {"thread_id": thread}, "recursion_limit": 500}


def texts(messages: list[BaseMessage]) -> list[str]:
    return [message.text for message in messages]


@pytest.mark.parametrize("face", ["invoke", "ainvoke", "stream", "astream"])
def test_a_long_turn(face: str) -> None:
    events: list[MemoryEvent] = []
    model = ScriptedChatModel(responses=long_run())
    agent = create_agent(
        model,
        [search],
        system_prompt="Be exact.",
        checkpointer=InMemorySaver(),
        middleware=[HistoryCompactionMiddleware(TRIGGER, KEEP, on_event=events.append)],
    )
    play(face, agent, "Find all of it.", config())
    thread = agent.get_state(config()).values["messages"]
    assert len(thread) == 42
    assert not any(TAG_KEY in message.additional_kwargs for message in thread)
    assert len(model.requests) == 21
    for request in model.requests:
        assert check_request(request) == []
        assert request[1].text == "Find all of it."
    for number, request in enumerate(model.requests[1:]):
        assert request[-1].text.startswith(f"{number}: "), "the newest result is not last"
    compacted = [event for event in events if isinstance(event, HistoryCompacted)]
    assert compacted
    assert all(event.thread_id == "t" for event in compacted)
    assert 2 <= sum(event.cut_moved for event in compacted) <= 5
    sent = list(map(texts, model.requests))
    breaks = sum(now[: len(before)] != before for before, now in itertools.pairwise(sent))
    assert breaks == sum(event.cut_moved for event in compacted)


def test_many_turns_after_a_restart_see_the_same_window(tmp_path: Path) -> None:
    """A thread continued with a new saver, agent and middleware gets the same requests as one that ran on."""
    turns = [f"Question {number}? " + "please " * 30 for number in range(12)]

    def agent_on(saver: Any, answers: list[str]) -> tuple[Any, ScriptedChatModel]:
        model = ScriptedChatModel(responses=answers)
        return create_agent(
            model, checkpointer=saver, middleware=[HistoryCompactionMiddleware(("tokens", 400), ("tokens", 120))]
        ), model

    answers = [f"Answer {number}." for number in range(len(turns))]
    with SqliteSaver.from_conn_string(str(tmp_path / "one.sqlite")) as saver:
        agent, model = agent_on(saver, answers)
        for text in turns:
            agent.invoke({"messages": [("user", text)]}, config())
        expected = [texts(request) for request in model.requests]
    seen = []
    for number, text in enumerate(turns):
        with SqliteSaver.from_conn_string(str(tmp_path / "many.sqlite")) as saver:
            agent, model = agent_on(saver, [answers[number]])
            agent.invoke({"messages": [("user", text)]}, config())
            seen.append(texts(model.requests[0]))
    assert seen == expected
    assert any(is_shorter < 2 * number + 1 for number, is_shorter in enumerate(map(len, expected)))


def test_time_travel_and_forks_plan_from_their_own_history() -> None:
    model = ScriptedChatModel(responses=["ok"], on_exhausted="repeat")
    agent = create_agent(
        model, checkpointer=InMemorySaver(), middleware=[HistoryCompactionMiddleware(("messages", 8), ("messages", 4))]
    )
    for number in range(9):
        agent.invoke({"messages": [("user", f"Question {number}")]}, config())
    early = next(one for one in agent.get_state_history(config()) if len(one.values["messages"]) == 4)
    agent.invoke({"messages": [("user", "Another way")]}, early.config)
    assert texts(model.requests[-1]) == ["Question 0", "ok", "Question 1", "ok", "Another way"]


def test_an_edited_message_is_seen_as_it_is_now() -> None:
    model = ScriptedChatModel(responses=["ok"], on_exhausted="repeat")
    agent = create_agent(
        model,
        checkpointer=InMemorySaver(),
        middleware=[HistoryCompactionMiddleware(("tokens", 10_000), ("tokens", 50))],
    )
    agent.invoke({"messages": [HumanMessage("short", id="h1")]}, config())
    agent.update_state(config(), {"messages": [HumanMessage("word " * 12_000, id="h1")]})
    agent.invoke({"messages": [("user", "And now?")]}, config())
    assert model.requests[-1][0].text == "word " * 12_000
    assert len(model.requests[-1]) == 3, "a marker in place of one short answer would save nothing"


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_reaches_the_model_legal(shape: str) -> None:
    history = SHAPES[shape]
    model = ScriptedChatModel(responses=["ok"], on_exhausted="repeat")
    events: list[MemoryEvent] = []
    agent = create_agent(
        model,
        [search],
        middleware=[HistoryCompactionMiddleware(("tokens", 800), ("tokens", 200), on_event=events.append)],
    )
    messages = [*(message.model_copy(deep=True) for message in history), HumanMessage("What now?", id="the newest")]
    final = agent.invoke({"messages": messages})
    assert check_request(model.requests[0]) == []
    assert any(message.text == "What now?" for message in model.requests[0])
    assert final["messages"][-1].text == "ok"


def test_broken_histories_are_repaired_in_the_request_only() -> None:
    events: list[MemoryEvent] = []
    model = ScriptedChatModel(responses=["ok"])
    agent = create_agent(
        model,
        [search],
        checkpointer=InMemorySaver(),
        middleware=[HistoryCompactionMiddleware(None, on_event=events.append)],
    )
    agent.invoke({"messages": [human(), calling("a"), human("Stop!", 1)]}, config())
    assert check_request(model.requests[0]) == []
    put_in = model.requests[0][2]
    assert isinstance(put_in, ToolMessage)
    assert put_in.status == "error"
    assert [message.type for message in agent.get_state(config()).values["messages"]] == ["human", "ai", "human", "ai"]
    assert [event.repairs for event in events if isinstance(event, HistoryRepaired)] == [{"missing_result": 1}]


def test_off_is_off() -> None:
    model = ScriptedChatModel(responses=["ok"], profile={"max_input_tokens": 100})
    history = chat(60)
    create_agent(model, middleware=[HistoryCompactionMiddleware(None)]).invoke(
        {"messages": [*history, human("Now?", 99)]}
    )
    assert len(model.requests[0]) == 121


class _Recalling(AgentMiddleware[Any, Any, Any]):
    """Puts a block in front of the newest human message of the request, as the long-term memory does."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        block = HumanMessage("recalled " * 50, additional_kwargs={TAG_KEY: {"kind": "recall"}})
        newest = max(index for index, message in enumerate(request.messages) if isinstance(message, HumanMessage))
        messages = [*request.messages[:newest], block, *request.messages[newest:]]
        return handler(request.override(messages=messages))


def test_recalled_memories_move_no_cut_and_keep_their_place() -> None:
    def requests(*outer: Any) -> list[list[BaseMessage]]:
        model = ScriptedChatModel(responses=[*long_run(8), *long_run(8)])
        agent = create_agent(
            model,
            [search],
            checkpointer=InMemorySaver(),
            middleware=[*outer, HistoryCompactionMiddleware(TRIGGER, KEEP)],
        )
        agent.invoke({"messages": [("user", "First.")]}, config())
        agent.invoke({"messages": [("user", "Second.")]}, config())
        return model.requests

    plain, recalled = requests(), requests(_Recalling())
    for without, with_block in zip(plain, recalled, strict=True):
        places = [index for index, message in enumerate(with_block) if is_tagged(message, "recall")]
        assert len(places) == 1
        newest = [
            message
            for message in with_block
            if isinstance(message, HumanMessage) and TAG_KEY not in message.additional_kwargs
        ][-1]
        assert with_block[places[0] + 1] is newest
        assert texts(with_block[: places[0]] + with_block[places[0] + 1 :]) == texts(without)


def test_a_message_in_the_thread_with_our_tag_is_history() -> None:
    stored = HumanMessage(
        "from elsewhere", additional_kwargs={TAG_KEY: {"kind": "marker", "omitted": 2, "summary_id": None}}
    )
    model = ScriptedChatModel(responses=["ok"])
    create_agent(model, middleware=[HistoryCompactionMiddleware(TRIGGER, KEEP)]).invoke(
        {"messages": [human(), ai(), stored]}
    )
    assert texts(model.requests[0]) == ["Please go on.", "Done.", "from elsewhere"]


def test_an_overflow_is_compacted_once_more_and_tried_once_again() -> None:
    events: list[MemoryEvent] = []
    model = ScriptedChatModel(responses=[ContextOverflowError("too long"), "ok"])
    agent = create_agent(model, middleware=[HistoryCompactionMiddleware(("tokens", 100_000), on_event=events.append)])
    agent.invoke({"messages": [*chat(20), human("Now?", 99)]})
    assert len(model.requests) == 2
    assert len(model.requests[1]) < len(model.requests[0])
    assert check_request(model.requests[1]) == []
    assert model.requests[1][-1].text == "Now?"
    assert sum(isinstance(event, ContextOverflowed) for event in events) == 1


def test_an_overflow_that_stays_is_raised() -> None:
    error = ValueError("400: context_length_exceeded")
    model = ScriptedChatModel(responses=[error, error])
    agent = create_agent(model, middleware=[HistoryCompactionMiddleware(("tokens", 100_000))])
    with pytest.raises(ValueError, match="context_length_exceeded"):
        agent.invoke({"messages": [*chat(20), human("Now?", 99)]})
    assert len(model.requests) == 2


def test_other_errors_and_own_predicates() -> None:
    model = ScriptedChatModel(responses=[ValueError("zu lang"), "ok"])
    middleware = HistoryCompactionMiddleware(("tokens", 100_000), is_overflow=lambda error: "zu lang" in str(error))
    create_agent(model, middleware=[middleware]).invoke({"messages": [*chat(20), human("Now?", 99)]})
    assert len(model.requests) == 2
    model = ScriptedChatModel(responses=[ValueError("no"), "ok"])
    with pytest.raises(ValueError, match="no"):
        create_agent(model, middleware=[HistoryCompactionMiddleware(TRIGGER, KEEP)]).invoke({"messages": [human()]})
    assert len(model.requests) == 1


def test_the_model_of_the_call_decides_what_fits() -> None:
    def request_of(window: int) -> list[BaseMessage]:
        model = ScriptedChatModel(responses=["ok"], profile={"max_input_tokens": window})
        create_agent(model, middleware=[middleware]).invoke({"messages": [*chat(60), human("Now?", 99)]})
        return model.requests[0]

    middleware = HistoryCompactionMiddleware()
    assert len(request_of(200_000)) == 121
    assert len(request_of(2_000)) < 60


class NamedModel(ScriptedChatModel):
    model_name: str


def test_an_unknown_window_warns_once_for_each_model_and_is_assumed_small(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def agent_of(name: str) -> Any:
        model = NamedModel(responses=["ok"], on_exhausted="repeat", model_name=name)
        return create_agent(model, middleware=[HistoryCompactionMiddleware()])

    monkeypatch.setattr(compaction_plan, "_MODELS_WARNED_OF", set())
    with caplog.at_level(logging.WARNING, "langmem_harness"):
        for agent in (agent_of("scripted-a"), agent_of("scripted-a"), agent_of("scripted-b")):
            agent.invoke({"messages": [human()]})
            agent.invoke({"messages": [human()]})
    told = [record.getMessage() for record in caplog.records if "context_window" in record.getMessage()]
    assert ["scripted-a" in told[0], "scripted-b" in told[1], len(told)] == [True, True, 2]
    assert all("of 32000 tokens" in line and "memory.middleware()" in line for line in told)


def test_what_cannot_fit_is_an_error_with_the_numbers() -> None:
    model = ScriptedChatModel(responses=["ok"], profile={"max_input_tokens": 1_000})
    with pytest.raises(WindowOverflowError) as caught:
        create_agent(model, middleware=[HistoryCompactionMiddleware()]).invoke({"messages": [human("word " * 5_000)]})
    assert caught.value.limit_tokens == 1_000
    assert caught.value.request_tokens > 4_000
    assert model.requests == []


def test_parallel_results_too_large_for_the_window_make_way_oldest_first() -> None:
    events: list[MemoryEvent] = []
    model = ScriptedChatModel(responses=["ok"], profile={"max_input_tokens": 2_000})
    history = [human(), calling("a", "b", "c"), *[result(one, "long " * 900) for one in "abc"]]
    agent = create_agent(model, [search], middleware=[HistoryCompactionMiddleware(on_event=events.append)])
    agent.invoke({"messages": history})
    assert check_request(model.requests[0]) == []
    assert model.requests[0][-1].text == "long " * 900
    compacted = next(event for event in events if isinstance(event, HistoryCompacted))
    assert compacted.reclaimed["tool_results"] > 500


def test_system_messages_in_the_thread_stay_and_lead() -> None:
    model = ScriptedChatModel(responses=["ok"])
    history = [*chat(10), SystemMessage("Be brief."), *chat(10), human("Now?", 99)]
    create_agent(model, middleware=[HistoryCompactionMiddleware(("messages", 10), ("messages", 4))]).invoke(
        {"messages": history}
    )
    assert check_request(model.requests[0]) == []
    assert model.requests[0][0].text == "Be brief."


def test_effective_messages_is_what_the_model_gets() -> None:
    model = ScriptedChatModel(responses=["ok"])
    history = [*chat(30), human("Now?", 99)]
    create_agent(model, middleware=[HistoryCompactionMiddleware(TRIGGER, KEEP)]).invoke({"messages": history})
    assert texts(effective_messages(history, trigger=TRIGGER, keep=KEEP)) == texts(model.requests[0])


def test_concurrent_runs_on_one_middleware_do_not_mix() -> None:
    middleware = HistoryCompactionMiddleware(TRIGGER, KEEP)

    async def run(number: int) -> list[BaseMessage]:
        model = ScriptedChatModel(responses=long_run(12))
        agent: Any = create_agent(model, [search], checkpointer=InMemorySaver(), middleware=[middleware])
        await agent.ainvoke({"messages": [("user", f"Task {number}.")]}, config("same thread id"))
        return model.requests[-1]

    async def run_all() -> list[list[BaseMessage]]:
        return await asyncio.gather(*map(run, range(4)))

    for number, request in enumerate(asyncio.run(run_all())):
        assert request[0].text == f"Task {number}."
        assert check_request(request) == []


def test_a_sub_agent_has_its_own_window() -> None:
    inner_model = ScriptedChatModel(responses=[*long_run(10)] * 3)
    inner: Any = create_agent(inner_model, [search], middleware=[HistoryCompactionMiddleware(TRIGGER, KEEP)])

    @tool
    def delegate(task: str) -> str:
        """Let another agent do it."""
        return str(inner.invoke({"messages": [("user", task)]})["messages"][-1].text)

    calls = [{"id": f"d{number}", "name": "delegate", "args": {"task": f"Part {number}"}} for number in range(1)]
    outer_model = ScriptedChatModel(responses=[AIMessage("", tool_calls=calls), "All done."])
    outer = create_agent(
        outer_model, [delegate], checkpointer=InMemorySaver(), middleware=[HistoryCompactionMiddleware(TRIGGER, KEEP)]
    )
    final: Any = outer.invoke({"messages": [("user", "Do it.")]}, config())
    assert final["messages"][-1].text == "All done."
    assert all(request[0].text == "Part 0" and check_request(request) == [] for request in inner_model.requests)


def test_same_thread_same_hashes_after_many_compactions() -> None:
    model = ScriptedChatModel(responses=long_run(30))
    agent: Any = create_agent(
        model, [search], checkpointer=InMemorySaver(), middleware=[HistoryCompactionMiddleware(TRIGGER, KEEP)]
    )
    stages = [
        [content_hash(message) for message in state["messages"]]
        for state in agent.stream({"messages": [("user", "Go.")]}, config(), stream_mode="values")
    ]
    for before, after in itertools.pairwise(stages):
        assert after[: len(before)] == before
    assert set(agent.get_output_jsonschema()["properties"]) <= {"messages", "structured_response"}


@pytest.mark.parametrize(
    "settings",
    [
        {"trigger": ("tokens", 0)},
        {"trigger": ("words", 3)},
        {"trigger": []},
        {"trigger": {}},
        {"trigger": ("fraction", 1.5)},
        {"trigger": ("tokens", True)},
        {"keep": [("tokens", 3), ("messages", 1)]},
        {"keep_first": -1},
        {"context_window": 0},
        {"reserve_output_tokens": -1},
        {"safety_margin": 1.0},
    ],
    ids=str,
)
def test_settings_that_cannot_work_are_refused_when_given(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        HistoryCompactionMiddleware(**settings)
