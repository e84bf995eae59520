"""What records know messages by, remembered so that a long thread is hashed once and not at every model call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langmem_harness.window.messages import content_hash, message_identity
from langmem_harness.window.tokens import copy_json

Identity = tuple[str, str]
"""``(message_identity, content_hash)`` of a message."""


def identities(messages: Sequence[BaseMessage]) -> list[Identity]:
    """The identity of each message, in order."""
    return [(message_identity(message), content_hash(message)) for message in messages]


class IdentityCache:
    """Hashes a message once, and again when it has changed.

    As in `TokenCache`, an entry is not trusted by its key: what is hashed is compared with a copy of what it was, which
    is nearly free for texts that are the same object. Bounded; safe to share between threads.

    Args:
        max_entries: How many messages are remembered, 1 or more; the oldest go first.
    """

    def __init__(self, *, max_entries: int = 50_000) -> None:
        self._max_entries = max_entries
        self._known: dict[str | int, tuple[Any, Identity]] = {}

    def identities(self, messages: Sequence[BaseMessage]) -> list[Identity]:
        """The same as the function `identities`."""
        return [self._identity(message) for message in messages]

    def _identity(self, message: BaseMessage) -> Identity:
        key = message.id or id(message)
        parts = _hashed_parts(message)
        known = self._known.get(key)
        if known is not None and known[0] == parts:
            return known[1]
        identity = (message_identity(message), content_hash(message))
        if len(self._known) >= self._max_entries:
            for oldest in list(self._known)[: max(1, self._max_entries // 10)]:
                self._known.pop(oldest, None)
        self._known[key] = (copy_json(parts), identity)
        return identity


def _hashed_parts(message: BaseMessage) -> tuple[Any, ...]:
    """Everything that `content_hash` reads, and the id; equal parts, equal identity."""
    if isinstance(message, AIMessage):
        calls: tuple[Any, ...] = (message.tool_calls, message.invalid_tool_calls)
    elif isinstance(message, ToolMessage):
        calls = (message.tool_call_id, message.status)
    else:
        calls = ()
    return (message.id, message.type, message.content, message.name, *calls)
