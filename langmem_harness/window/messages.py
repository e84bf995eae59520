"""Messages as this package sees them: tags, identity, roles, calls.

Pure. Nothing here changes a message it was given.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Literal

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

TAG_KEY = "langmem_harness"
"""Key in ``additional_kwargs`` of every message (or part of one) that this package put into a request."""

HASH_TAG = "sha256"
"""Algorithm name in front of every content hash, so that a later one can be told apart."""


OUTPUT_HANDLE = re.compile(r"out_[a-z2-7]{12}(?:[a-z2-7]{12})?")
"""What a handle of a stored tool output looks like."""


def tag_of(message: BaseMessage) -> Mapping[str, Any] | None:
    """The structured tag of a message of ours, or None. Wording is never looked at.

    Known values of ``tag["kind"]``: ``"marker"`` (stands for left-out history), ``"recall"`` (recalled memories),
    ``"repair"`` (result put in for a call that has none), ``"tool_output"`` (extract or changed text of a
    stored result, or an answer that went to the user directly),
    ``"reference"`` (retrieved text, see `langmem_harness.window.references`), ``"left_out"`` (result without its text).
    """
    tag = message.additional_kwargs.get(TAG_KEY)
    return tag if isinstance(tag, Mapping) and isinstance(tag.get("kind"), str) else None


def is_tagged(message: BaseMessage, kind: str) -> bool:
    """Whether the message carries our tag of this kind."""
    tag = tag_of(message)
    return tag is not None and tag["kind"] == kind


def content_hash(message: BaseMessage) -> str:
    """Tagged hash of what a message says: ``"sha256:<64 hex digits>"``.

    Covers type, name, content, tool calls (also invalid ones), the call a result belongs to and its status. Left out:
    the id, usage, response metadata and `additional_kwargs`, which differ between runs that say the same. Equal after a
    checkpoint round trip.
    """
    body: dict[str, Any] = {"type": message.type, "content": message.content}
    if message.name:
        body["name"] = message.name
    if isinstance(message, AIMessage):
        if message.tool_calls:
            body["tool_calls"] = [[call["id"], call["name"], call["args"]] for call in message.tool_calls]
        if message.invalid_tool_calls:
            body["invalid_tool_calls"] = [
                [call.get("id"), call.get("name"), call.get("args")] for call in message.invalid_tool_calls
            ]
    if isinstance(message, ToolMessage):
        body["tool_call_id"] = message.tool_call_id
        body["status"] = message.status
    return text_hash(canonical_json(body))


def text_hash(text: str) -> str:
    """Tagged hash of a text; lone surrogates are allowed."""
    return f"{HASH_TAG}:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces; values JSON does not know are written by their type and `repr`."""
    return json.dumps(
        value,
        ensure_ascii=False,
        sort_keys=True,
        separators=(",", ":"),
        default=lambda other: {"__type__": type(other).__qualname__, "repr": repr(other)},
    )


def message_identity(message: BaseMessage) -> str:
    """The message's id, or, when it has none, an id made from its content (``"content:<hash>"``)."""
    return message.id or f"content:{content_hash(message)}"


Role = Literal["human", "ai", "tool", "system"]
"""The roles providers know; chat messages with a role of their own are sorted into these."""

_CALL_BLOCKS = {"tool_use": "id", "tool_call": "id", "function_call": "call_id", "custom_tool_call": "call_id"}
_REASONING_BLOCKS = {"reasoning", "thinking", "redacted_thinking", "reasoning_content"}
_CHAT_ROLES: Mapping[str, Role] = {"assistant": "ai", "ai": "ai", "system": "system", "developer": "system"}


def role_of(message: BaseMessage) -> Role:
    """Who speaks, for the provider."""
    if isinstance(message, HumanMessage):
        return "human"
    if isinstance(message, AIMessage):
        return "ai"
    if isinstance(message, ToolMessage | FunctionMessage):
        return "tool"
    if isinstance(message, SystemMessage):
        return "system"
    return _CHAT_ROLES.get(message.role.lower(), "human") if isinstance(message, ChatMessage) else "human"


def calls_of(message: BaseMessage) -> list[tuple[str, str]]:
    """``(call id, tool name)`` of every call that needs a result, in order.

    Read from `tool_calls`, from calls with unreadable arguments (providers get those too), and from content blocks. A
    call without an id has the id ``""``. Tools that run at the provider are not among them.
    """
    if not isinstance(message, AIMessage):
        return []
    calls = [(call.get("id") or "", call["name"]) for call in message.tool_calls]
    calls += [(call["id"], call.get("name") or "") for call in message.invalid_tool_calls if call["id"]]
    if isinstance(message.content, list):
        known = {call_id for call_id, _ in calls}
        for block in message.content:
            if isinstance(block, dict) and block.get("type") in _CALL_BLOCKS:
                call_id = str(block.get(_CALL_BLOCKS[block["type"]]) or block.get("id") or "")
                if call_id and call_id not in known:
                    calls.append((call_id, str(block.get("name") or "")))
                    known.add(call_id)
    return calls


def unanswered_server_calls(message: BaseMessage) -> set[str]:
    """Ids of calls that run at the provider and whose result is not in the same message (the turn was paused)."""
    if not isinstance(message.content, list):
        return set()
    calls = {
        str(block.get("id"))
        for block in message.content
        if isinstance(block, dict) and block.get("type") in ("server_tool_use", "server_tool_call", "mcp_tool_use")
    }
    return calls - server_results_of(message) if calls else calls


def server_results_of(message: BaseMessage) -> set[str]:
    """Ids of the provider-side calls whose results are in this message."""
    if not isinstance(message.content, list):
        return set()
    return {
        str(block.get("tool_use_id") or block.get("tool_call_id"))
        for block in message.content
        if isinstance(block, dict) and str(block.get("type", "")).endswith("tool_result")
    }


def has_reasoning(message: BaseMessage) -> bool:
    """Whether the message carries reasoning that a provider wants back unchanged while the turn is open."""
    if isinstance(message.content, list):
        for block in message.content:
            if isinstance(block, dict) and block.get("type") in _REASONING_BLOCKS:
                return True
    return "reasoning_content" in message.additional_kwargs or "reasoning" in message.additional_kwargs


def is_blank(message: BaseMessage) -> bool:
    """Whether there is nothing in it that a provider would take as content: no text but white space, no other block."""
    content: Any = message.content
    if isinstance(content, str):
        return not content or content.isspace()
    return all(_is_blank_block(block) for block in content or ())


def _is_blank_block(block: Any) -> bool:
    if isinstance(block, str):
        return not block.strip()
    return not block or (
        isinstance(block, dict) and block.get("type") == "text" and not str(block.get("text") or "").strip()
    )
