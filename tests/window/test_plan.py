"""What the planner promises, over all cut positions of every history."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import BaseMessage, SystemMessage

from langmem_harness.window.limits import Limit
from langmem_harness.window.marker import marker_message
from langmem_harness.window.messages import calls_of, is_blank, role_of, tag_of
from langmem_harness.window.plan import WindowPlan, plan_window
from langmem_harness.window.policy import WindowPolicy
from langmem_harness.window.rules import check_request
from langmem_harness.window.tokens import TokenCache
from langmem_harness.window.walk import HistoryWalk
from tests.window.histories import SHAPES, histories

SMALL = [
    WindowPolicy(triggers=(Limit(messages=8),), keep=Limit(messages=4), marker_tokens=10),
    WindowPolicy(triggers=(Limit(tokens=600),), keep=Limit(tokens=200), marker_tokens=10),
    WindowPolicy(triggers=(Limit(tokens=300),), keep=Limit(tokens=1), keep_first=0, marker_tokens=10),
    WindowPolicy(triggers=(Limit(messages=6, tokens=100), Limit(tokens=900)), keep=Limit(messages=3), keep_first=3),
    WindowPolicy(triggers=(Limit(tokens=500),), keep=Limit(tokens=200), marker_tokens=10, prepare_ahead=True),
]
policies = st.sampled_from(SMALL)


def sent(plan: WindowPlan) -> list[BaseMessage]:
    marker = marker_message(len(plan.omitted)) if plan.omitted else None
    return plan.messages(marker)


def newest_human(messages: list[BaseMessage]) -> BaseMessage | None:
    return next((message for message in reversed(messages) if role_of(message) == "human"), None)


def is_answer(message: BaseMessage) -> bool:
    return role_of(message) == "ai" and not is_blank(message)


def check_plan(messages: list[BaseMessage], policy: WindowPolicy) -> WindowPlan:
    before = [message.model_copy(deep=True) for message in messages]
    plan = plan_window(messages, policy)
    request = sent(plan)
    if any(role_of(message) in ("human", "ai") for message in messages):
        assert check_request(request) == []
    assert messages == before, "the input was changed"

    question = newest_human(messages)
    if question is not None and not is_blank(question):
        assert any(message is question for message in request), "the newest human message is missing"
    speech = [message for message in messages if role_of(message) == "human" or calls_of(message) or is_answer(message)]
    if speech:
        assert any(message is speech[-1] or message.id == speech[-1].id for message in request), "newest group"
    for message in messages:
        if isinstance(message, SystemMessage) and not is_blank(message):
            assert any(one is message for one in request), "a system message was left out"

    markers = [
        index
        for index, message in enumerate(request)
        if (tag_of(message) or {}).get("kind") == "marker" and message not in messages
    ]
    assert len(markers) == (1 if plan.omitted else 0)
    if markers:
        assert 0 <= markers[0] < len(request) - 1, "the marker is last"
        if policy.keep_first and any(role_of(message) == "human" for message in messages):
            task = next(message for message in messages if role_of(message) == "human")
            assert any(message is task or message.id == task.id for message in request), "the task is missing"
    shown = {id(message) for message in request}
    for message in plan.omitted:
        assert id(message) not in shown, "left out and shown"
    return plan


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("policy", SMALL, ids=range(len(SMALL)))
def test_every_shape_at_every_length(shape: str, policy: WindowPolicy) -> None:
    messages = SHAPES[shape]
    step = max(1, len(messages) // 40)
    for length in range(0, len(messages) + 1, step):
        check_plan(messages[:length], policy)


@given(histories(), policies)
@settings(max_examples=100)
def test_any_history(messages: list[BaseMessage], policy: WindowPolicy) -> None:
    plan = check_plan(messages, policy)
    assert plan == plan_window(messages, policy), "planning again gave something else"


@given(histories(), policies)
@settings(max_examples=100)
def test_appending_never_moves_an_old_cut(messages: list[BaseMessage], policy: WindowPolicy) -> None:
    count = TokenCache().count
    longest = HistoryWalk(policy, count)
    longest.extend(messages)
    continued = HistoryWalk(policy, count)
    for length in range(len(messages) + 1):
        fresh = HistoryWalk(policy, count)
        fresh.extend(messages[:length])
        assert fresh.cuts == longest.cuts[: len(fresh.cuts)]
        continued.extend(messages[:length])
        assert continued.cuts == fresh.cuts, "a continued walk differs from a fresh one"
        assert continued.window_tokens == fresh.window_tokens


@given(histories(), policies)
@settings(max_examples=100)
def test_planning_the_window_again_changes_nothing(messages: list[BaseMessage], policy: WindowPolicy) -> None:
    plain = WindowPolicy()
    request = sent(plan_window(messages, policy))
    again = plan_window(request, plain)
    assert sent(again) == request
    assert not again.repairs
