"""Triggers in LangChain's forms: a dict needs all of its clauses, a list any, None is off."""

from __future__ import annotations

from typing import Any

import pytest

from langmem_harness.errors import ConfigurationError
from langmem_harness.window.limits import Limit, parse_size, parse_trigger, resolve_clause
from langmem_harness.window.policy import WindowPolicy


def reached(trigger: Any, tokens: int, messages: int, window: int = 1_000) -> bool:
    policy = WindowPolicy.create(trigger, ("messages", 1), window_tokens=window)
    return any(limit.is_reached(tokens, messages) for limit in policy.triggers)


@pytest.mark.parametrize(
    ("trigger", "tokens", "messages", "expected"),
    [
        (("tokens", 100), 100, 0, True),
        (("tokens", 100), 99, 10**6, False),
        (("messages", 5), 0, 5, True),
        (("fraction", 0.5), 500, 0, True),
        (("fraction", 0.5), 499, 0, False),
        ({"tokens": 100, "messages": 5}, 100, 4, False),
        ({"tokens": 100, "messages": 5}, 100, 5, True),
        ({"tokens": 100, "fraction": 0.5}, 100, 9, False),
        ([("tokens", 100), ("messages", 5)], 100, 0, True),
        ([("tokens", 100), ("messages", 5)], 0, 5, True),
        ([{"tokens": 100, "messages": 5}, ("messages", 50)], 99, 49, False),
        ([{"tokens": 100, "messages": 5}, ("messages", 50)], 0, 50, True),
        (None, 10**9, 10**9, False),
    ],
)
def test_when_a_trigger_is_reached(trigger: Any, tokens: int, messages: int, expected: bool) -> None:
    assert reached(trigger, tokens, messages) == expected


@pytest.mark.parametrize(
    "value",
    [
        5,
        "tokens",
        ("tokens",),
        ("tokens", "5"),
        ("tokens", 1.5),
        ("tokens", -1),
        ("words", 5),
        ("fraction", 0),
        [[]],
        [{}],
        b"x",
    ],
    ids=repr,
)
def test_what_is_no_trigger(value: Any) -> None:
    with pytest.raises(ConfigurationError):
        parse_trigger(value)


def test_keep_takes_one_form() -> None:
    assert parse_size(["messages", 3], name="keep") == ("messages", 3)
    with pytest.raises(ConfigurationError, match="keep"):
        parse_size([("messages", 3)], name="keep")


def test_a_fraction_needs_a_window() -> None:
    with pytest.raises(ConfigurationError, match="context_window"):
        resolve_clause({"fraction": 0.5}, None)
    assert resolve_clause({"fraction": 0.0001}, 10) == Limit(tokens=1)
