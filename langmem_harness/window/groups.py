"""`Group` and `Cut`: what a walk over a history finds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from langchain_core.messages import BaseMessage

from langmem_harness.window.messages import calls_of, has_reasoning, is_blank, role_of, unanswered_server_calls


class Group:
    """What is kept or left out as one: a human message, or an AI message with all results of all its calls.

    Attributes:
        members: Positions of its messages in the history, ascending.
        is_human: Whether it is a human message.
        has_calls: Whether its AI message called tools.
        has_reasoning: Whether its AI message carries reasoning.
        open_calls: Calls without a result so far.
        open_server_calls: Calls that the provider runs and whose result comes with its next message.
        is_flawed: Whether it has to be repaired before a provider takes it.
        is_pinned: Whether it always stays.
    """

    __slots__ = (
        "has_calls",
        "has_reasoning",
        "is_flawed",
        "is_human",
        "is_pinned",
        "members",
        "open_calls",
        "open_server_calls",
        "tokens",
    )

    def __init__(self, position: int, message: BaseMessage, tokens: int) -> None:
        calls = [call_id for call_id, _ in calls_of(message)]
        self.members = [position]
        self.tokens = tokens
        self.is_human = role_of(message) == "human"
        self.has_calls = bool(calls)
        self.has_reasoning = not self.is_human and has_reasoning(message)
        self.open_calls = Counter(calls)
        self.open_server_calls = unanswered_server_calls(message)
        self.is_flawed = is_blank(message) and not calls
        self.is_pinned = False

    @property
    def is_complete(self) -> bool:
        """Whether a model could be called after it."""
        return not self.open_calls and not self.open_server_calls


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Where the left-out part of a history ends.

    Attributes:
        group: First group behind the cut.
        stays: Groups before it that stay: head, pinned ones, the open turn's human message; ascending.
        decided_at: Position of the message after which the cut moved here.
        window_tokens: Size of the window right after it moved.
        window_messages: The same in messages.
    """

    group: int
    stays: tuple[int, ...]
    decided_at: int
    window_tokens: int
    window_messages: int
