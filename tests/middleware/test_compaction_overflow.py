"""A refusal teaches how much a model takes: the next call does not overflow again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langmem_harness.events import ContextOverflowed, MemoryEvent
from langmem_harness.middleware.compaction import HistoryCompactionMiddleware
from langmem_harness.middleware.compaction_limits import LearnedLimits
from langmem_harness.middleware.compaction_state import merge_limits
from langmem_harness.testing import ScriptedChatModel
from langmem_harness.window import check_request, estimate_tokens
from langmem_harness.window.messages import tag_of
from tests.middleware.test_compaction_summaries import config
from tests.window.histories import chat, human


def narrow(tokens: int) -> ScriptedChatModel:
    """A model that takes fewer tokens than anyone was told."""

    def answer(messages: list[BaseMessage]) -> str:
        if estimate_tokens(messages) > tokens:
            raise ContextOverflowError("prompt is too long")
        return "ok"

    return ScriptedChatModel(responses=[answer], on_exhausted="repeat")


def agent_on(model: Any, saver: Any, middleware: Any) -> Any:
    return create_agent(model, checkpointer=saver, middleware=[middleware])


def saver() -> InMemorySaver:
    return InMemorySaver(serde=JsonPlusSerializer(allowed_msgpack_modules=None))


def overflows(events: list[MemoryEvent]) -> list[ContextOverflowed]:
    return [event for event in events if isinstance(event, ContextOverflowed)]


@pytest.mark.parametrize("face", ["sync", "async"])
@pytest.mark.parametrize("settings", [{"trigger": ("tokens", 100_000)}, {"context_window": 100_000}], ids=str)
def test_a_thread_overflows_once(face: str, settings: dict[str, Any]) -> None:
    events: list[MemoryEvent] = []
    model = narrow(900)
    agent = agent_on(model, saver(), HistoryCompactionMiddleware(**settings, on_event=events.append))
    said = {"messages": [*chat(40), human("Now?", 99)]}
    for number in range(12):
        if face == "sync":
            agent.invoke(said, config())
        else:
            asyncio.run(agent.ainvoke(said, config()))
        said = {"messages": [HumanMessage(f"And {number}? " + "please " * 20)]}
    (overflow,) = overflows(events)
    assert overflow.learned_tokens is not None
    assert overflow.learned_tokens < overflow.sent_tokens
    assert model.calls == 13
    for request in model.requests[1:]:
        assert check_request(request) == []
        assert estimate_tokens(request) <= 900


def test_a_new_process_knows_it_from_the_thread() -> None:
    threads = saver()
    agent_on(narrow(900), threads, HistoryCompactionMiddleware(("tokens", 100_000))).invoke(
        {"messages": [*chat(40), human("Now?", 99)]}, config()
    )
    events: list[MemoryEvent] = []
    fresh = HistoryCompactionMiddleware(("tokens", 100_000), on_event=events.append)
    final = agent_on(narrow(900), threads, fresh).invoke({"messages": [HumanMessage("And?")]}, config())
    assert overflows(events) == []
    assert set(final) == {"messages"}


def test_other_threads_of_the_same_agent_know_it_and_other_models_do_not() -> None:
    events: list[MemoryEvent] = []
    middleware = HistoryCompactionMiddleware(("tokens", 100_000), on_event=events.append)
    said = {"messages": [*chat(40), human("Now?", 99)]}
    agent_on(narrow(900), None, middleware).invoke(said)
    agent_on(narrow(900), None, middleware).invoke(said)
    assert len(overflows(events)) == 1

    class Wide(ScriptedChatModel):
        model_name: str = "wide"

    wide = Wide(responses=["ok"])
    agent_on(wide, None, middleware).invoke(said)
    assert len(wide.requests[0]) == 81


def test_a_second_refusal_is_raised_and_teaches_too() -> None:
    events: list[MemoryEvent] = []
    model = narrow(900)
    middleware = HistoryCompactionMiddleware(("tokens", 100_000), on_event=events.append)
    said = {"messages": [*chat(60), human("Now?", 99)]}
    size = estimate_tokens(said["messages"])
    assert size * 0.7 > 900 >= size * 0.7 * 0.7
    with pytest.raises(ContextOverflowError):
        agent_on(model, None, middleware).invoke(said)
    assert model.calls == 2
    agent_on(model, None, middleware).invoke(said)
    assert model.calls == 3


def test_what_was_learned_is_no_hard_limit() -> None:
    middleware = HistoryCompactionMiddleware(("tokens", 100_000), is_overflow=lambda error: "busy" in str(error))
    model = ScriptedChatModel(responses=[ValueError("busy"), "ok", "ok"])
    agent = agent_on(model, None, middleware)
    agent.invoke({"messages": [*chat(20), human("Now?", 99)]})
    agent.invoke({"messages": [human("word " * 3_000)]})
    assert model.calls == 3


def test_limits_only_go_down() -> None:
    limits = LearnedLimits()
    assert limits.limit_for("m", None) is None
    assert limits.learn("m", refused_tokens=1_000) == 700
    assert limits.learn("m", refused_tokens=1_000, accepted_tokens=650) == 650
    assert limits.learn("m", refused_tokens=2_000) == 650
    assert limits.learn("m", refused_tokens=1_000, accepted_tokens=10) == 500
    assert limits.learn("m", refused_tokens=100) == 70
    assert limits.limit_for("m", {"m": 50}) == 50
    assert limits.limit_for("n", {"m": 50}) is None
    assert LearnedLimits().learn("m", refused_tokens=0) == 1
    assert merge_limits({"m": 5}, {"m": 7, "n": 1}) == {"m": 5, "n": 1}
    assert merge_limits(None, None) == {}


def test_the_task_and_the_system_messages_stay_in_a_retry_without_a_cut() -> None:
    model = narrow(900)
    history: list[Any] = [SystemMessage("Be brief."), *chat(40), human("Now?", 99)]
    create_agent(model, middleware=[HistoryCompactionMiddleware(("tokens", 100_000))]).invoke({"messages": history})
    assert check_request(model.requests[1]) == []
    assert [message.text[:11] for message in model.requests[1][:2]] == ["Be brief.", "Question 0?"]
    assert (tag_of(model.requests[1][2]) or {})["kind"] == "marker"
    assert model.requests[1][-1].text == "Now?"
