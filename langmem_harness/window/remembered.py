"""Walks of histories seen before, continued instead of begun again.

A walk is only continued when the history still begins with what it went over: the messages are compared with a copy of
what was read, so an edit, a fork, time travel, or a message changed in place makes a new walk. What comes out is the
same either way.
"""

from __future__ import annotations

import operator
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langmem_harness.window.policy import WindowPolicy
from langmem_harness.window.tokens import TokenCache, copy_json
from langmem_harness.window.walk import HistoryWalk

_content = attrgetter("content")
_calls = attrgetter("tool_calls")
_invalid_calls = attrgetter("invalid_tool_calls")
_result_of = attrgetter("tool_call_id")


@dataclass(frozen=True, kw_only=True)
class SeenHistory:
    """A walk, and what it has read."""

    walk: HistoryWalk
    snapshot: Snapshot


class RememberedWalks:
    """Walks by history. Holds nothing that changes an answer; safe to share between threads and runs.

    Args:
        cache: Counts the messages.
        max_histories: How many histories are remembered, 1 or more; the one unused for longest goes first.
    """

    def __init__(self, cache: TokenCache, *, max_histories: int = 32) -> None:
        self._cache = cache
        self._max_histories = max_histories
        self._walks: dict[Hashable, SeenHistory] = {}

    def walk(
        self, key: Hashable, messages: Sequence[BaseMessage], policy: WindowPolicy, *, overhead_tokens: int
    ) -> SeenHistory:
        """A walk over the whole of `messages`. Give it back with `remember` when it is no longer read.

        Args:
            key: Where the history belongs; only a hint for finding it again.
            messages: The history.
            policy: When to compact and what stays.
            overhead_tokens: System prompt and tools, rounded.
        """
        seen = self._walks.pop(key, None)  # ours alone until it is given back
        if (
            seen is None
            or seen.walk.policy != policy
            or seen.walk.overhead_tokens != overhead_tokens
            or not seen.snapshot.is_start_of(messages)
        ):
            walk = HistoryWalk(policy, self._cache.count, overhead_tokens=overhead_tokens)
            seen = SeenHistory(walk=walk, snapshot=Snapshot())
        seen.walk.extend(messages)
        return seen

    def remember(self, key: Hashable, seen: SeenHistory, messages: Sequence[BaseMessage]) -> None:
        """Keep a walk over `messages` for the next call."""
        seen.snapshot.extend(messages)
        while len(self._walks) >= self._max_histories:
            self._walks.pop(next(iter(self._walks), None), None)
        self._walks[key] = seen


class Snapshot:
    """What a walk has read, as it was."""

    def __init__(self) -> None:
        self._messages: list[BaseMessage] = []
        self._contents: list[Any] = []
        self._speakers: list[int] = []  # positions of AI messages, with or without calls: one may be put in later
        self._calls: list[Any] = []
        self._invalid_calls: list[Any] = []
        self._results: list[int] = []
        self._result_ids: list[str] = []

    def extend(self, messages: Sequence[BaseMessage]) -> None:
        """Read on; the messages before are the same ones or equal to them, and are held from now on."""
        for position in range(len(self._messages), len(messages)):
            message = messages[position]
            self._contents.append(copy_json(message.content))
            if isinstance(message, AIMessage):
                self._speakers.append(position)
                self._calls.append(copy_json(message.tool_calls))
                self._invalid_calls.append(copy_json(message.invalid_tool_calls))
            elif isinstance(message, ToolMessage):
                self._results.append(position)
                self._result_ids.append(message.tool_call_id)
        self._messages = list(messages)

    def is_start_of(self, messages: Sequence[BaseMessage]) -> bool:
        """Whether a history begins with what was read; in C as far as possible, for long histories."""
        length = len(self._messages)
        if len(messages) < length:
            return False
        start = messages if len(messages) == length else messages[:length]
        if list(map(_content, start)) != self._contents:
            return False
        if not all(map(operator.is_, start, self._messages)) and not all(map(_says_the_same, start, self._messages)):
            return False  # neither the very objects nor the same loaded again
        speakers = list(map(start.__getitem__, self._speakers))
        if list(map(_calls, speakers)) != self._calls or list(map(_invalid_calls, speakers)) != self._invalid_calls:
            return False
        return list(map(_result_of, map(start.__getitem__, self._results))) == self._result_ids


def _says_the_same(one: BaseMessage, other: BaseMessage) -> bool:
    """Whether two messages with the same content and calls are the same in everything else that a walk reads."""
    return type(one) is type(other) and one.id == other.id and one.additional_kwargs == other.additional_kwargs
