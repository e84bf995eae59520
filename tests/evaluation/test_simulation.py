"""The long run: what the table of `simulate` says is measured, and ours reaches what the arithmetic allows."""

from __future__ import annotations

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langmem_harness.errors import ConfigurationError
from langmem_harness.evaluation.simulation import CONTENDERS, Scenario, combine_reports, simulate_chat, simulate_run

OURS = [
    name if "bare" in name else pytest.param(name, marks=pytest.mark.slow)  # some seconds each
    for name in CONTENDERS
    if name.startswith("HistoryCompaction")
]


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize(("keep_tokens", "possible"), [(30_000, 0.887), (10_000, 0.898)])
def test_the_task_and_the_newest_message_are_in_every_call(name: str, keep_tokens: int, possible: float) -> None:
    report = simulate_run(name, Scenario(keep_tokens=keep_tokens))
    assert len(report.calls) == 41
    assert report.task_visible == report.newest_visible == 41
    assert report.prefix_breaks <= 2
    assert report.largest_request_tokens < 100_000
    assert report.reusable_share == pytest.approx(possible, abs=0.005)
    assert report.thread_unchanged
    assert report.coverage in (None, 1.0)
    assert not any(call.violations for call in report.calls)


def test_without_middleware_every_request_begins_with_the_one_before() -> None:
    report = simulate_run("no middleware", Scenario(tool_calls=6))
    assert report.prefix_breaks == 0
    assert report.billed_tokens < report.input_tokens
    assert report.to_dict()["billed_tokens"] == report.billed_tokens


def test_unknown_middleware() -> None:
    with pytest.raises(ConfigurationError, match="known are"):
        simulate_run("another")


@pytest.mark.parametrize("name", [name for name in CONTENDERS if name.startswith("History")])
def test_a_chat_is_played_turn_by_turn(name: str) -> None:
    chat: list[BaseMessage] = []
    for turn in range(30):
        chat += [HumanMessage(f"Question {turn}: " + "why is that so? " * 100), AIMessage(f"Answer {turn}. " * 100)]
    chat.append(HumanMessage("Never answered."))
    scenario = Scenario(window_tokens=20_000, trigger_tokens=8_000, keep_tokens=2_000)
    report = simulate_chat(name, chat, scenario)
    assert len(report.calls) == report.task_visible == report.newest_visible == 30
    assert report.thread_unchanged
    assert report.prefix_breaks >= 1
    assert report.largest_request_tokens <= 8_000
    both = combine_reports([report, simulate_chat("no middleware", chat[:4], scenario)])
    assert (len(both.calls), both.task_visible, both.coverage) == (32, 32, report.coverage)


@pytest.mark.parametrize("messages", [[], [HumanMessage("hello")], [AIMessage("hello")]])
def test_a_chat_without_an_answer_is_refused(messages: list[BaseMessage]) -> None:
    with pytest.raises(ConfigurationError, match="answer"):
        simulate_chat("no middleware", messages, Scenario())
