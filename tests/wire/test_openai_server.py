"""The server refuses what the real ones refuse: otherwise "zero refused" would mean nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.wire.openai_server import BadRequestError, check_request

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {}}}


def call(*ids: str, **fields: Any) -> dict[str, Any]:
    calls = [{"id": one, "type": "function", "function": {"name": "look", "arguments": "{}"}} for one in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls, **fields}


def result(call_id: str, content: Any = "seen") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


GOOD = [
    [USER],
    [{"role": "system", "content": "be kind"}, USER],
    [USER, call("a", "b"), result("b"), result("a"), {"role": "assistant", "content": "done"}, USER],
    [USER, call("a"), result("a"), call("a"), result("a")],
    [{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "u"}}]}],
    [USER, USER],
]
BAD: dict[str, list[Any]] = {
    "no messages": [],
    "unknown role": [{"role": "wizard", "content": "x"}],
    "unknown key": [{**USER, "additional_kwargs": {}}],
    "empty content": [{"role": "user", "content": ""}],
    "blank content": [{"role": "user", "content": " \n"}],
    "empty list": [{"role": "user", "content": []}],
    "empty part": [{"role": "user", "content": [{"type": "text", "text": ""}]}],
    "unknown part": [{"role": "user", "content": [{"type": "thinking", "thinking": "x"}]}],
    "no content": [USER, {"role": "assistant", "content": None}],
    "system in the middle": [USER, {"role": "system", "content": "x"}, USER],
    "begins with assistant": [{"role": "assistant", "content": "x"}, USER],
    "begins with a call": [call("a"), result("a"), USER],
    "orphan result": [USER, result("a")],
    "result without its call": [USER, call("a"), result("a"), result("b")],
    "second result": [USER, call("a"), result("a"), result("a")],
    "missing result": [USER, call("a", "b"), result("a"), USER],
    "result not directly after": [USER, call("a"), USER, result("a")],
    "no result at the end": [USER, call("a")],
    "call without id": [USER, call(""), result("")],
    "same id twice": [USER, call("a", "a"), result("a")],
    "no calls": [USER, {"role": "assistant", "content": None, "tool_calls": []}],
    "bad arguments": [
        USER,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "look", "arguments": "{oops"}}],
        },
        result("a"),
    ],
    "bad name": [{**USER, "name": "Ada Lovelace"}],
    "empty result": [USER, call("a"), result("a", "")],
}


@pytest.mark.parametrize("messages", GOOD)
def test_good_requests_pass(messages: list[Any]) -> None:
    check_request({"model": "m", "messages": messages, "tools": [TOOL]})


@pytest.mark.parametrize("name", BAD)
def test_bad_messages_are_refused(name: str) -> None:
    with pytest.raises(BadRequestError):
        check_request({"model": "m", "messages": BAD[name], "tools": [TOOL]})


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {"messages": [USER]},
        {"model": "m"},
        {"model": "m", "messages": [USER], "surprise": 1},
        {"model": "m", "messages": [USER], "tools": []},
        {"model": "m", "messages": [USER], "tools": [TOOL, TOOL]},
        {"model": "m", "messages": [USER, call("a"), result("a")]},
    ],
)
def test_bad_requests_are_refused(body: Any) -> None:
    with pytest.raises(BadRequestError):
        check_request(body)


def test_too_long_is_refused_by_its_code() -> None:
    with pytest.raises(BadRequestError) as caught:
        check_request({"model": "m", "messages": [{"role": "user", "content": "x" * 1_000}]}, window_tokens=100)
    assert caught.value.code == "context_length_exceeded"
