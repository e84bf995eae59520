"""Each setting of the middleware does what it says."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.store.memory import InMemoryStore

from langmem_harness.errors import ConfigurationError, WindowOverflowError
from langmem_harness.events import HistoryCompacted, MemoryEvent
from langmem_harness.middleware.compaction import HistoryCompactionMiddleware
from langmem_harness.testing import ScriptedChatModel
from langmem_harness.window import check_request
from langmem_harness.window.messages import is_tagged
from tests.conftest import Face
from tests.window.histories import ai, calling, chat, human, reasoning, result


@tool
def plan(steps: str) -> str:
    """Write the plan down."""
    return steps


def sent(history: list[Any], *, profile: Any = None, agent: Any = None, **settings: Any) -> list[BaseMessage]:
    """What the model gets of a history."""
    model = ScriptedChatModel(responses=["ok"], profile=profile)
    middleware = HistoryCompactionMiddleware(**settings)
    graph: Any = create_agent(model, middleware=[middleware], **(agent or {}))
    graph.invoke({"messages": history})
    return model.requests[0]


def is_cut(request: list[BaseMessage]) -> bool:
    return any(is_tagged(message, "marker") for message in request)


def test_pinned_messages_stay_with_their_whole_group() -> None:
    planned = [calling("p1", "p2", number=500), result("p1", "step one, step two"), result("p2", "noted")]
    history = [*chat(3), *planned, *chat(40)[6:], human("What is left?", 99)]
    request = sent(
        history,
        trigger=("messages", 20),
        keep=("messages", 6),
        pin=lambda message: isinstance(message, ToolMessage) and "step one" in message.text,
        agent={"tools": [plan]},
    )
    assert is_cut(request)
    assert check_request(request) == []
    assert [message.text for message in request if isinstance(message, ToolMessage)] == ["step one, step two", "noted"]


@pytest.mark.parametrize(("keep_first", "opening"), [(0, 0), (1, 1), (3, 3)])
def test_opening_groups_that_stay(keep_first: int, opening: int) -> None:
    history = chat(30)
    request = sent([*history, human("Now?", 99)], trigger=("messages", 20), keep=("messages", 6), keep_first=keep_first)
    place = next(index for index, message in enumerate(request) if is_tagged(message, "marker"))
    assert place == opening
    assert [message.text for message in request[:place]] == [message.text for message in history[:opening]]
    assert check_request(request) == []


def test_a_counter_of_your_own() -> None:
    history = [*chat(10), human("Now?", 99)]
    seen: list[int] = []

    def dear(messages: Any) -> int:
        seen.append(len(messages))
        return 100 * len(messages)

    assert is_cut(sent(history, trigger=("tokens", 1_500), keep=("tokens", 400), token_counter=dear))
    assert set(seen) == {1}
    assert not is_cut(sent(history, trigger=("tokens", 1_500), keep=("tokens", 400)))


def test_a_window_that_was_stated_wins_over_the_profile() -> None:
    history = [*chat(60), human("Now?", 99)]
    assert not is_cut(sent(history, profile={"max_input_tokens": 200_000}))
    assert is_cut(sent(history, profile={"max_input_tokens": 200_000}, context_window=1_500))
    assert not is_cut(sent(history, profile={"max_input_tokens": 500}, context_window=200_000))


@pytest.mark.parametrize("settings", [{"reserve_output_tokens": 1_200}, {"safety_margin": 0.6}], ids=str)
def test_room_that_is_kept_free(settings: dict[str, Any]) -> None:
    history = [*chat(40), human("Now?", 99)]
    assert not is_cut(sent(history, context_window=2_000))
    assert is_cut(sent(history, context_window=2_000, **settings))


def test_system_prompt_and_tools_count() -> None:
    history = [*chat(10), human("Now?", 99)]
    assert not is_cut(sent(history, trigger=("tokens", 600), keep=("tokens", 100)))
    request = sent(history, trigger=("tokens", 600), keep=("tokens", 100), agent={"system_prompt": "Be exact. " * 250})
    assert is_cut(request)

    described = plan.model_copy(update={"description": "Write it down. " * 250})
    assert is_cut(sent(history, trigger=("tokens", 600), keep=("tokens", 100), agent={"tools": [described]}))


def test_an_agent_can_be_built_without_knowing_any_window() -> None:
    assert not is_cut(sent([*chat(3), human("Now?", 99)], trigger=("fraction", 0.8), keep=("fraction", 0.1)))


def test_reasoning_of_the_open_turn_is_kept_byte_for_byte() -> None:
    def thinking(name: str) -> AIMessage:
        call: Any = {"id": name, "name": "plan", "args": {"steps": name}}
        return AIMessage(
            [reasoning(f"signed-{name}"), {"type": "text", "text": "so"}], tool_calls=[call], id=f"r-{name}"
        )

    old = [message for name in "ab" for message in (thinking(name), result(name, "found " * 60))]
    new = [message for name in "cd" for message in (thinking(name), result(name, "found " * 60))]
    history = [human(number=700), *old, ai(number=700), *chat(30), human("And now?", 99), *new]
    request = sent(history, trigger=("tokens", 900), keep=("tokens", 300), agent={"tools": [plan]})
    assert is_cut(request)
    assert check_request(request) == []
    shown = {message.id: message for message in request}
    for message in (new[0], new[2]):
        assert shown[message.id].content == message.content
    for message in (old[0], old[2]):
        assert message.id not in shown or shown[message.id].content == message.content


def test_the_event_has_the_tokens_of_each_stage() -> None:
    events: list[MemoryEvent] = []
    history = [human(), calling("a", "b", "c"), *[result(one, "long " * 900) for one in "abc"]]
    sent(history, context_window=2_000, on_event=events.append, agent={"tools": [plan]})
    (compacted,) = [event for event in events if isinstance(event, HistoryCompacted)]
    assert set(compacted.reclaimed) == {"tool_results"}
    assert compacted.to_dict()["reclaimed"]["tool_results"] > 500


def test_a_giant_newest_message_is_never_cut() -> None:
    giant = "word " * 2_000
    request = sent([*chat(20), HumanMessage(giant, id="g")], trigger=("tokens", 500), keep=("tokens", 100))
    assert request[-1].text == giant
    with pytest.raises(WindowOverflowError):
        sent([HumanMessage(giant, id="g")], context_window=1_000)


@pytest.mark.parametrize(
    "settings",
    [
        {"trigger": ("messages", 6), "keep": ("messages", 40)},
        {"trigger": ("fraction", 0.3), "keep": ("fraction", 0.8)},
        {"trigger": [("tokens", 9_000), {"messages": 6}], "keep": ("messages", 7)},
        {"trigger": ("tokens", float("inf"))},
        {"keep_first": "1"},
        {"keep_first": True},
        {"context_window": "8000"},
        {"context_window": 0},
        {"reserve_output_tokens": 1.5},
        {"safety_margin": "0.1"},
        {"safety_margin": float("nan")},
        {"max_summary_tokens": "many"},
        {"facts_tokens": -1},
        {"rebuild_every": "8", "summarizer": str.upper},
        {"summary_ttl": 60, "summarizer": str.upper},
        {"pin": "all"},
        {"token_counter": 4},
        {"redact": "yes"},
        {"is_overflow": 400},
        {"on_event": "print"},
        {"store": "here"},
        {"name": " "},
    ],
    ids=repr,
)
def test_a_setting_that_cannot_work_is_refused_at_once(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        HistoryCompactionMiddleware(**settings)


def test_what_is_kept_may_be_as_large_as_a_trigger_in_other_units_or_with_other_clauses() -> None:
    HistoryCompactionMiddleware(("messages", 6), ("messages", 6))
    HistoryCompactionMiddleware(("messages", 6), ("tokens", 8_000))
    HistoryCompactionMiddleware({"messages": 6, "tokens": 8_000}, ("messages", 40))
    HistoryCompactionMiddleware(None, ("messages", 40))


def test_a_store_that_is_not_the_graphs_is_said_once(face: Face, caplog: pytest.LogCaptureFixture) -> None:
    own = InMemoryStore()
    for given, told in ((own, 0), (None, 0), (InMemoryStore(), 1)):
        caplog.clear()
        model = ScriptedChatModel(responses=["ok"], on_exhausted="repeat", profile={"max_input_tokens": 9_000})
        agent = create_agent(model, middleware=[HistoryCompactionMiddleware(store=own)], store=given)
        for _ in range(2):
            face(agent, "invoke", {"messages": [human()]})
        lines = [record.getMessage() for record in caplog.records]
        assert len(lines) == told
        assert all("store of its own" in line and "memory.middleware(store=" in line for line in lines)
