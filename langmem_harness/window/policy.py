"""`WindowPolicy`: when to compact and what stays, in numbers for one model's window. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from langchain_core.messages import BaseMessage

from langmem_harness.errors import ConfigurationError
from langmem_harness.window.limits import (
    Limit,
    Size,
    TriggerForm,
    parse_size,
    parse_trigger,
    resolve_clause,
    resolve_size,
)

MARKER_TOKENS = 256
"""What a marker without a summary counts for: its sentences, and some thirty handles of stored tool outputs."""

OVERHEAD_STEPS = 128
"""System prompt and tool schemas are rounded up to a multiple of this share (1/128) of the lowest token trigger, so
that a small change there moves no cut."""

SOFT_SHARE = 0.8
"""With `prepare_ahead`, the next cut is decided at the end of the first turn that reaches this share of a trigger."""


@dataclass(frozen=True, kw_only=True)
class WindowPolicy:
    """When to compact and what stays, for one model's window.

    Attributes:
        triggers: The cut moves when any of these is reached by the whole window (system prompt and tools included).
            Empty: never.
        keep: What may stay behind a new cut; the newest human message and the newest group stay even if larger.
        keep_first: Opening groups, counted from the first human message, that always stay; 0 or more.
        pin: Says which messages always stay, with their whole group.
        marker_tokens: What the marker counts for, whatever it carries, so that no summarizer's answer can move a cut.
        prepare_ahead: Decide the next cut early, at the end of a turn, so that its summary can be ready before it is
            needed. What stays may then exceed `keep` by what was added since.
    """

    triggers: Sequence[Limit] = ()
    keep: Limit = field(default_factory=lambda: Limit(messages=20))
    keep_first: int = 1
    pin: Callable[[BaseMessage], bool] | None = None
    marker_tokens: int = MARKER_TOKENS
    prepare_ahead: bool = False

    def __post_init__(self) -> None:
        if self.keep_first < 0:
            raise ConfigurationError(f"keep_first must be 0 or more, not {self.keep_first!r}")
        if self.marker_tokens < 0:
            raise ConfigurationError(f"marker_tokens must be 0 or more, not {self.marker_tokens!r}")

    @classmethod
    def create(
        cls,
        trigger: TriggerForm | None,
        keep: Size,
        *,
        window_tokens: int | None = None,
        keep_first: int = 1,
        pin: Callable[[BaseMessage], bool] | None = None,
        marker_tokens: int = MARKER_TOKENS,
        prepare_ahead: bool = False,
    ) -> WindowPolicy:
        """A policy from LangChain's forms; `window_tokens` is needed for fractions.

        Raises:
            ConfigurationError: Not one of the forms, or a fraction without `window_tokens`.
        """
        return cls(
            triggers=tuple(resolve_clause(clause, window_tokens) for clause in parse_trigger(trigger)),
            keep=resolve_size(parse_size(keep, name="keep"), window_tokens),
            keep_first=keep_first,
            pin=pin,
            marker_tokens=marker_tokens,
            prepare_ahead=prepare_ahead,
        )

    def with_marker(self, most_tokens: int) -> WindowPolicy:
        """This policy with a marker of at most so many tokens, and at most a quarter of the lowest token trigger."""
        thresholds = [trigger.tokens // 4 for trigger in self.triggers if trigger.tokens is not None]
        return replace(self, marker_tokens=min([most_tokens, *(max(MARKER_TOKENS, share) for share in thresholds)]))

    def within(self, limit_tokens: int | None) -> WindowPolicy:
        """This policy, which also compacts when the window reaches a hard limit; off stays off."""
        if limit_tokens is None or not self.triggers:
            return self
        return replace(self, triggers=(*self.triggers, Limit(tokens=limit_tokens)))

    def round_overhead(self, overhead_tokens: int) -> int:
        """Tokens of system prompt and tools, rounded up to this policy's coarse step."""
        thresholds = [trigger.tokens for trigger in self.triggers if trigger.tokens is not None]
        step = max(1, min(thresholds) // OVERHEAD_STEPS) if thresholds else 1
        return -(-overhead_tokens // step) * step
