"""The long run: what the table of `simulate` says is measured, and ours reaches what the arithmetic allows."""

from __future__ import annotations

import pytest

from langmem_harness.errors import ConfigurationError
from langmem_harness.evaluation.simulation import CONTENDERS, Scenario, simulate_run

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
