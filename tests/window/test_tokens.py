"""The estimate knows scripts and media, is injectable, and is made once for each message and schema."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool

from langmem_harness.window.tokens import (
    TokenCache,
    estimate_message_tokens,
    estimate_text_tokens,
    estimate_tokens,
)
from tests.window.histories import SHAPES


@pytest.mark.parametrize("text", ["天气很好" * 50, "날씨가 좋다" * 50, "とても良い天気です" * 50])
def test_four_characters_a_token_is_not_for_every_script(text: str) -> None:
    assert estimate_text_tokens(text) > 2 * len(text) / 4


@given(st.text(max_size=300), st.text(max_size=300))
@settings(max_examples=100)
def test_any_text(one: str, other: str) -> None:
    together = estimate_text_tokens(one + other)
    assert together <= estimate_text_tokens(one) + estimate_text_tokens(other)
    assert together >= max(estimate_text_tokens(one), estimate_text_tokens(other))
    assert (estimate_text_tokens(one) == 0) == (not one)


def test_lone_surrogates_and_nul() -> None:
    assert estimate_text_tokens("a\ud800\x00b") > 0


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "base64": "A" * 1_000_000, "mime_type": "image/png"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 1_000_000}},
        {"type": "audio", "base64": "A" * 1_000_000},
        {"type": "file", "base64": "A" * 1_000_000, "mime_type": "application/pdf"},
        {"type": "something_new", "data": "A" * 1_000_000},
    ],
    ids=lambda block: block["type"],
)
def test_media_have_a_fixed_cost(block: dict[str, Any]) -> None:
    assert 1 <= estimate_message_tokens(HumanMessage([block])) < 5_000
    beside = estimate_message_tokens(HumanMessage([block, {"type": "text", "text": "word " * 400}]))
    assert beside > estimate_message_tokens(HumanMessage([block])) + 300


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_can_be_counted(shape: str) -> None:
    assert estimate_tokens(SHAPES[shape]) >= len(SHAPES[shape])


def test_each_message_is_counted_once_and_again_when_it_changes() -> None:
    counted: list[BaseMessage] = []

    def counter(messages: Any) -> int:
        counted.extend(messages)
        return len(messages[0].text)

    cache = TokenCache(counter)
    message = HumanMessage("abc", id="m")
    assert [cache.count(message), cache.count(message), cache.count(message.model_copy())] == [3, 3, 3]
    assert len(counted) == 1
    assert cache.count(HumanMessage("abcd", id="m")) == 4
    listed = HumanMessage([{"type": "text", "text": "ab"}], id="l")
    assert cache.count(listed) == 2
    listed.content[0]["text"] = "abcde"  # type: ignore[index]
    assert cache.count(listed) == 5
    call = AIMessage("", id="c", tool_calls=[{"id": "1", "name": "f", "args": {}}])
    cache.count(call)
    before = len(counted)
    call.tool_calls[0]["args"]["q"] = "more"
    cache.count(call)
    assert len(counted) == before + 1


def test_errors_of_a_counter_get_out() -> None:
    def broken(messages: Any) -> int:
        raise TypeError("inside the counter")

    with pytest.raises(TypeError, match="inside the counter"):
        TokenCache(broken).count(HumanMessage("x"))


def test_a_cache_is_bounded() -> None:
    cache = TokenCache(max_entries=10)
    for number in range(100):
        cache.count(HumanMessage("x", id=str(number)))
    assert len(cache._messages) <= 10


def test_tool_schemas_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from langmem_harness.window import tokens

    @tool
    def search(q: str) -> str:
        """Search for it, in all of the places that there are."""
        return q

    cache = TokenCache()
    first = cache.count_tools([search, {"type": "function", "function": {"name": "other"}}])
    assert first > 30
    monkeypatch.setattr(tokens, "estimate_tool_tokens", lambda tool: pytest.fail("counted again"))
    schema = {"type": "function", "function": {"name": "other"}}
    assert cache.count_tools([search]) < first
    with pytest.raises(BaseException, match="counted again"):
        cache.count_tools([schema])


def test_calls_and_results_count_with_their_arguments() -> None:
    plain = estimate_message_tokens(AIMessage("ok"))
    calling = AIMessage("ok", tool_calls=[{"id": "1", "name": "search", "args": {"q": "word " * 100}}])
    assert estimate_message_tokens(calling) > plain + 100
    block = {"type": "tool_use", "id": "1", "name": "search", "input": {"q": "word " * 100}}
    same_in_content = AIMessage([{"type": "text", "text": "ok"}, block], tool_calls=calling.tool_calls)
    assert estimate_message_tokens(same_in_content) == estimate_message_tokens(calling)
    assert estimate_message_tokens(ToolMessage("x", tool_call_id="1")) > estimate_message_tokens(HumanMessage("x"))
