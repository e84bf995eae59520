"""Messages as this package sees them: tags, identity, text.

Pure. Nothing here changes a message it was given.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

TAG_KEY = "langmem_harness"
"""Key in ``additional_kwargs`` of every message (or part of one) that this package put into a request."""

HASH_TAG = "sha256"
"""Algorithm name in front of every content hash, so that a later one can be told apart."""


def tag_of(message: BaseMessage) -> Mapping[str, Any] | None:
    """The structured tag of a message of ours, or None. Wording is never looked at.

    Known values of ``tag["kind"]``: ``"marker"`` (stands for left-out history), ``"recall"`` (recalled memories),
    ``"repair"`` (result put in for a call that has none), ``"tool_output"`` (extract of an offloaded result).
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
