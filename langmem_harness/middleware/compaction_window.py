"""How large the window of a request is, and which errors say that it was too small."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from langchain.agents.middleware import ModelRequest
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import BaseMessage
from langgraph.config import get_config

from langmem_harness.memory.scope import thread_from_config
from langmem_harness.window.messages import TAG_KEY, tag_of
from langmem_harness.window.model import FALLBACK_WINDOW_TOKENS, profile_window_tokens
from langmem_harness.window.plan import PlacedMessage

_PLACED_KINDS = ("recall", "marker", "repair", "reference")
_OVERFLOW_PHRASES = (
    "context_length_exceeded",
    "context length",
    "context window",
    "maximum context",
    "prompt is too long",
    "input is too long",
    "too many input tokens",
    "input token count",
    "exceeds the maximum number of tokens",
    "request too large",
    "reduce the length of the messages",
)


@dataclass(frozen=True, kw_only=True)
class WindowSize:
    """Tokens a request may have.

    Attributes:
        limit_tokens: What the model takes beside its answer; None when nobody knows.
        usable_tokens: The same less the safety margin; what fractions are taken of. An assumed size when unknown.
        target_tokens: What a request should have at most; None when nobody knows the window and no refusal taught it.
    """

    limit_tokens: int | None
    usable_tokens: int
    target_tokens: int | None


def measure_window(
    request: ModelRequest[Any],
    *,
    context_window: int | None,
    reserve_output_tokens: int | None,
    safety_margin: float,
    learned_tokens: int | None = None,
) -> WindowSize:
    """The window of this request's model; looked up at every call, because the model may change between calls.

    Args:
        request: The request.
        context_window: Tokens of the window, if the user stated it.
        reserve_output_tokens: Kept free for the answer; None takes the model's own `max_tokens`, if it has one, but at
            most half of the window.
        safety_margin: Share kept free because token counts are estimates, 0 to below 1.
        learned_tokens: What a refusal of this model taught; it lowers what is aimed at, and is no hard limit.
    """
    known = context_window if context_window is not None else profile_window_tokens(request.model)
    window = FALLBACK_WINDOW_TOKENS if known is None else known
    if reserve_output_tokens is None:
        stated = request.model_settings.get("max_tokens", getattr(request.model, "max_tokens", None))
        reserved = min(stated, window // 2) if isinstance(stated, int) and stated > 0 else 0
    else:
        reserved = reserve_output_tokens
    limit = max(1, window - reserved)
    usable = max(1, int(limit * (1.0 - safety_margin)))
    if learned_tokens is not None:
        usable = min(usable, learned_tokens)
    return WindowSize(
        limit_tokens=None if known is None else limit,
        usable_tokens=usable,
        target_tokens=None if known is None and learned_tokens is None else usable,
    )


def is_context_overflow(error: Exception) -> bool:
    """Whether a provider's error says that the request was too long: by its class, or, for providers that map theirs to
    no common class, by what it says."""
    if isinstance(error, ContextOverflowError):
        return True
    text = f"{getattr(error, 'code', '')} {error}".lower()
    return any(phrase in text for phrase in _OVERFLOW_PHRASES)


def split_request(request: ModelRequest[Any]) -> tuple[list[BaseMessage], list[PlacedMessage]]:
    """The history in a request, and the messages that are only in the request (recalled memories, a marker).

    A message with our tag that is part of the thread, whoever put it there, is history like any other.
    """
    messages: list[BaseMessage] = list(request.messages)
    stored = request.state.get("messages", [])
    if len(messages) == len(stored) and all(map(operator.is_, messages, stored)):
        return messages, []  # the thread itself, which is the usual case: told in C, because threads are long
    tagged = [
        position
        for position, message in enumerate(messages)
        if message.additional_kwargs and TAG_KEY in message.additional_kwargs and _is_placed_kind(message)
    ]
    if not tagged:
        return messages, []
    stored_objects = {id(message) for message in stored}
    stored_ids = {message.id for message in stored if message.id is not None}
    placed: list[PlacedMessage] = []
    for position in tagged:
        message = messages[position]
        if id(message) not in stored_objects and (message.id is None or message.id not in stored_ids):
            placed.append(PlacedMessage(message=message, before=position - len(placed)))
    only_in_request = {id(one.message) for one in placed}
    return [message for message in messages if id(message) not in only_in_request], placed


def whole_history(request: ModelRequest[Any], history: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
    """The thread, with the messages of the request in the place of its own: what another middleware left out of the
    request was not deleted."""
    stored: Sequence[BaseMessage] = request.state.get("messages", ())
    if len(stored) == len(history):
        return history
    in_request = {message.id: message for message in history if message.id is not None}
    stored_ids = {message.id for message in stored}
    added = [message for message in history if message.id is None or message.id not in stored_ids]
    return [*(in_request.get(message.id, message) if message.id else message for message in stored), *added]


def _is_placed_kind(message: BaseMessage) -> bool:
    tag = tag_of(message)
    return tag is not None and tag["kind"] in _PLACED_KINDS


def thread_of_run(runtime: Any) -> str | None:
    """The conversation a run belongs to; None outside of one."""
    thread_id = getattr(getattr(runtime, "execution_info", None), "thread_id", None)
    if thread_id is not None:
        return str(thread_id)
    try:
        return thread_from_config(get_config())
    except RuntimeError:  # outside a graph
        return None
