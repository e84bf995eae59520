"""A walk that is continued gives what a fresh one gives, whatever happened to the messages in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, messages_from_dict, messages_to_dict

from langmem_harness.window.limits import Limit
from langmem_harness.window.plan import WindowPlan, plan_walked, plan_window
from langmem_harness.window.policy import WindowPolicy
from langmem_harness.window.remembered import RememberedWalks
from langmem_harness.window.tokens import TokenCache
from tests.window.histories import ai, calling, chat, histories, human, result

POLICY = WindowPolicy(triggers=(Limit(tokens=300),), keep=Limit(tokens=100), marker_tokens=10)
WORDS = "many new words in place of the old ones " * 30


class Planner:
    """Plans with remembered walks."""

    def __init__(self) -> None:
        self.walks = RememberedWalks(TokenCache())

    def plan(self, messages: list[BaseMessage], key: str = "t") -> WindowPlan:
        seen = self.walks.walk(key, messages, POLICY, overhead_tokens=0)
        plan = plan_walked(messages, seen.walk)
        self.walks.remember(key, seen, messages)
        return plan


def blocks(message: BaseMessage) -> Any:
    return message.content


def history() -> list[BaseMessage]:
    listed = HumanMessage([{"type": "text", "text": "Some words."}], id="listed")
    return [human(), ai(), listed, calling("a"), result("a"), ai("Found.", 5), *chat(6), human("Now?", 99)]


def change_text(messages: list[BaseMessage]) -> None:
    messages[1].content = WORDS


def change_block(messages: list[BaseMessage]) -> None:
    blocks(messages[2])[0]["text"] = WORDS


def add_block(messages: list[BaseMessage]) -> None:
    blocks(messages[2]).append({"type": "text", "text": WORDS})


def change_arguments(messages: list[BaseMessage]) -> None:
    messages[3].tool_calls[0]["args"]["q"] = WORDS  # type: ignore[attr-defined]


def change_call_id(messages: list[BaseMessage]) -> None:
    messages[3].tool_calls[0]["id"] = "other"  # type: ignore[attr-defined]


def change_result_id(messages: list[BaseMessage]) -> None:
    messages[4].tool_call_id = "other"  # type: ignore[attr-defined]


def add_calls(messages: list[BaseMessage]) -> None:
    messages[5].tool_calls.append({"id": "late", "name": "search", "args": {}, "type": "tool_call"})  # type: ignore[attr-defined]


def add_invalid_calls(messages: list[BaseMessage]) -> None:
    messages[5].invalid_tool_calls.append(  # type: ignore[attr-defined]
        {"id": "late", "name": "search", "args": "{", "error": None, "type": "invalid_tool_call"}
    )


def replace_message(messages: list[BaseMessage]) -> None:
    messages[1] = AIMessage(WORDS, id=messages[1].id)


def remove_message(messages: list[BaseMessage]) -> None:
    del messages[1]


def shorten(messages: list[BaseMessage]) -> None:
    del messages[5:]


def load_again(messages: list[BaseMessage]) -> None:
    messages[:] = messages_from_dict(messages_to_dict(messages))


CHANGES: list[Callable[[list[BaseMessage]], None]] = [
    change_text, change_block, add_block, change_arguments, change_call_id, change_result_id, add_calls,
    add_invalid_calls, replace_message, remove_message, shorten, load_again,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_was_changed_is_seen(change: Callable[[list[BaseMessage]], None]) -> None:
    planner, messages = Planner(), history()
    planner.plan(messages)
    change(messages)
    for _ in range(2):
        assert planner.plan(messages) == plan_window(messages, POLICY)
        messages.append(human("More? " * 20, 100 + len(messages)))


@given(histories(), histories(), st.integers(0, 30))
@settings(max_examples=50)
def test_any_history_after_any_other(one: list[BaseMessage], other: list[BaseMessage], shared: int) -> None:
    planner = Planner()
    for messages in (one, [*one[:shared], *other], one[:shared], one):
        assert planner.plan(list(messages)) == plan_window(messages, POLICY)


def test_histories_are_bounded() -> None:
    planner = Planner()
    for number in range(100):
        planner.plan(chat(2), key=str(number))
    assert len(planner.walks._walks) == 32
