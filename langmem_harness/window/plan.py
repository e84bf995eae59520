"""Which messages of a history the model sees: a pure function of the history.

The history is walked once. Whenever the size of the window reaches ``trigger``, the cut moves forward so that what
stays behind it is at most ``keep``. Nothing is remembered between calls: the same history always gives the same cuts,
and appending messages never moves an old one, so the start of the prompt is the same bytes between two cuts, and
restarts, forks and time travel need nothing special. With running totals per group the walk is a binary search per
cut.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from langchain_core.messages import BaseMessage

from langmem_harness.errors import ConfigurationError
from langmem_harness.window.groups import Groups, repair_history, split_groups
from langmem_harness.window.limits import (
    Limit,
    Size,
    TriggerForm,
    parse_size,
    parse_trigger,
    resolve_clause,
    resolve_size,
)
from langmem_harness.window.tokens import TokenCache, TokenCounter

MARKER_TOKENS = 512
"""What the marker counts for, whatever it carries, so that no summarizer's answer can move a cut."""

OVERHEAD_STEP_TOKENS = 512
"""System prompt and tool schemas are rounded up to a multiple of this, so that a small change there moves no cut."""


@dataclass(frozen=True, kw_only=True)
class WindowPolicy:
    """When to compact and what stays, in numbers for one model's window.

    Attributes:
        triggers: The cut moves when any of these is reached by the whole window (system prompt and tools included).
            Empty: never.
        keep: What may stay behind a new cut; the newest human message and the newest group stay even if larger.
        keep_first: Opening groups, counted from the first human message, that always stay; 0 or more.
        pin: Says which messages always stay, with their whole group.
        overhead_tokens: System prompt and tool schemas, already rounded up.
        marker_tokens: What the marker counts for.
    """

    triggers: Sequence[Limit] = ()
    keep: Limit = field(default_factory=lambda: Limit(messages=20))
    keep_first: int = 1
    pin: Callable[[BaseMessage], bool] | None = None
    overhead_tokens: int = 0
    marker_tokens: int = MARKER_TOKENS

    def __post_init__(self) -> None:
        if self.keep_first < 0:
            raise ConfigurationError(f"keep_first must be 0 or more, not {self.keep_first!r}")
        for trigger in self.triggers:
            for unit, most, least in (
                ("tokens", trigger.tokens, self.keep.tokens),
                ("messages", trigger.messages, self.keep.messages),
            ):
                if most is not None and least is not None and least >= most:
                    raise ConfigurationError(f"keep ({least} {unit}) must be less than trigger ({most} {unit})")

    @classmethod
    def create(
        cls,
        trigger: TriggerForm | None,
        keep: Size,
        *,
        window_tokens: int | None = None,
        keep_first: int = 1,
        pin: Callable[[BaseMessage], bool] | None = None,
        overhead_tokens: int = 0,
        marker_tokens: int = MARKER_TOKENS,
    ) -> WindowPolicy:
        """A policy from LangChain's forms; `window_tokens` is needed for fractions."""
        step = OVERHEAD_STEP_TOKENS
        return cls(
            triggers=tuple(resolve_clause(clause, window_tokens) for clause in parse_trigger(trigger)),
            keep=resolve_size(parse_size(keep, name="keep"), window_tokens),
            keep_first=keep_first,
            pin=pin,
            overhead_tokens=-(-overhead_tokens // step) * step,
            marker_tokens=marker_tokens,
        )


@dataclass(frozen=True, kw_only=True)
class WindowPlan:
    """What of a history goes into the request. Concatenated, ``head + left_out and kept in order`` is the history.

    Attributes:
        messages: The whole history, repaired.
        head: Opening messages, always in front.
        left_out: Messages the marker stands for, in order; empty when nothing was left out.
        tail: Messages behind the marker: pinned groups, the open turn's human message, the newest groups.
        repairs: Number of repairs by kind; empty for a whole history.
        cuts: How often the cut has moved over the whole history.
        cut_moved: Whether it moved since the previous model call of this history.
        history_tokens: Tokens of `messages`.
        window_tokens: Tokens of head and tail, and the marker's budget if there is one.
    """

    messages: Sequence[BaseMessage]
    head: Sequence[BaseMessage]
    left_out: Sequence[BaseMessage]
    tail: Sequence[BaseMessage]
    repairs: Mapping[str, int]
    cuts: int
    cut_moved: bool
    history_tokens: int
    window_tokens: int


@dataclass(frozen=True)
class _Cut:
    """Where the left-out part ends.

    Attributes:
        group: First group behind the cut.
        anchor: Human message of the turn the cut lies in, kept in front of what remains; None when it lies between
            turns.
        decided_at: Number of groups there were when the cut moved here.
        tokens: Size of the window right after the cut.
        messages: The same in messages.
    """

    group: int
    anchor: int | None = None
    decided_at: int = 0
    tokens: int = 0
    messages: int = 0


def plan_window(
    messages: Sequence[BaseMessage], policy: WindowPolicy, counter: TokenCounter | TokenCache | None = None
) -> WindowPlan:
    """Plan the window of a history.

    Args:
        messages: The whole history, as the thread has it; any shape, also broken or empty. Not changed.
        policy: When to compact and what stays.
        counter: Counts tokens; a `TokenCache` counts every message once over many calls.

    Returns:
        The plan; the same for the same history, whoever asks and how often.
    """
    cache = counter if isinstance(counter, TokenCache) else TokenCache(counter)
    repaired = repair_history(messages)
    groups = split_groups(repaired.messages, [cache.count(message) for message in repaired.messages], policy.pin)
    head_end = _head_end(groups, policy.keep_first)
    cuts = list(_walk(groups, head_end, policy))
    cut = cuts[-1] if cuts else _Cut(head_end)
    stays = [group for group in groups.pinned if head_end <= group < cut.group]
    if cut.anchor is not None and cut.anchor not in stays:
        stays = sorted([*stays, cut.anchor])

    def slice_of(first: int, end: int) -> Sequence[BaseMessage]:
        return repaired.messages[groups.starts[first] : groups.starts[end]]

    left_out: list[BaseMessage] = []
    tail: list[BaseMessage] = []
    position = head_end
    for group in stays:
        left_out += slice_of(position, group)
        tail += slice_of(group, group + 1)
        position = group + 1
    left_out += slice_of(position, cut.group)
    tail += slice_of(cut.group, len(groups))
    left_out_tokens = (
        groups.tokens[cut.group] - groups.tokens[head_end] - sum(_tokens(groups, group) for group in stays)
    )
    return WindowPlan(
        messages=repaired.messages,
        head=slice_of(0, head_end),
        left_out=left_out,
        tail=tail,
        repairs=repaired.repairs,
        cuts=len(cuts),
        cut_moved=bool(cuts) and cut.decided_at > _previous_call_end(groups),
        history_tokens=groups.tokens[-1],
        window_tokens=groups.tokens[-1] - left_out_tokens + (policy.marker_tokens if left_out else 0),
    )


def _head_end(groups: Groups, keep_first: int) -> int:
    """Number of groups in the head: the preamble, and the opening groups from the first human message on."""
    if not groups.human:
        return groups.preamble
    end = groups.human[0] + keep_first if keep_first else groups.preamble
    return min(end, len(groups))


def _walk(groups: Groups, head_end: int, policy: WindowPolicy) -> Iterator[_Cut]:
    """Every cut of the history, oldest first."""
    cut = _Cut(head_end)
    end = head_end
    while True:
        next_end = _find_trigger(groups, head_end, cut, end, policy)
        if next_end is None:
            return
        end = next_end
        moved = _move(groups, head_end, cut, end, policy)
        if moved is not None:
            cut = moved
            yield cut
        end += 1  # at most one cut at one place of the history


def _window_size(groups: Groups, head_end: int, cut: _Cut, end: int, policy: WindowPolicy) -> tuple[int, int]:
    """Tokens and messages of the window over the first `end` groups."""
    stays = {group for group in groups.pinned if head_end <= group < cut.group}
    if cut.anchor is not None:
        stays.add(cut.anchor)
    tokens = groups.tokens[head_end] + sum(_tokens(groups, group) for group in stays)
    messages = groups.starts[head_end] + sum(_messages(groups, group) for group in stays)
    if cut.group - head_end > len(stays):
        tokens += policy.marker_tokens
        messages += 1
    tokens += policy.overhead_tokens + groups.tokens[end] - groups.tokens[cut.group]
    messages += groups.starts[end] - groups.starts[cut.group]
    return tokens, messages


def _find_trigger(groups: Groups, head_end: int, cut: _Cut, end: int, policy: WindowPolicy) -> int | None:
    """The first number of groups, `end` or more, at which the window reaches a trigger; None when it never does."""
    base_tokens, base_messages = _window_size(groups, head_end, cut, cut.group, policy)
    base_tokens -= groups.tokens[cut.group]
    base_messages -= groups.starts[cut.group]
    best: int | None = None
    for trigger in policy.triggers:
        at = max(end, cut.group)
        if trigger.tokens is not None:
            threshold = _raised(trigger.tokens, cut.tokens, policy.keep.tokens)
            at = max(at, bisect_left(groups.tokens, threshold - base_tokens))
        if trigger.messages is not None:
            threshold = _raised(trigger.messages, cut.messages, policy.keep.messages)
            at = max(at, bisect_left(groups.starts, threshold - base_messages))
        if at <= len(groups) and (best is None or at < best):
            best = at
    return best


def _raised(trigger: int, after_cut: int, keep: int | None) -> int:
    """The trigger, or more when what cannot be left out already fills the window: then a cut waits until there is
    something worth cutting, instead of moving (and breaking the prompt cache) at every call."""
    return max(trigger, after_cut + max(1, (trigger - (keep if keep is not None else trigger // 2)) // 2))


def _move(groups: Groups, head_end: int, cut: _Cut, end: int, policy: WindowPolicy) -> _Cut | None:
    """The cut after it moved over the first `end` groups, or None when it cannot move."""
    newest_group = end - 1
    first_kept = cut.group
    if policy.keep.tokens is not None:
        first_kept = max(first_kept, bisect_left(groups.tokens, groups.tokens[end] - policy.keep.tokens))
    if policy.keep.messages is not None:
        first_kept = max(first_kept, bisect_left(groups.starts, groups.starts[end] - policy.keep.messages))
    first_kept = min(first_kept, newest_group)
    if first_kept <= cut.group:
        return None
    newest_human = groups.human[bisect_left(groups.human, end) - 1] if groups.human and groups.human[0] < end else None
    anchor = newest_human if newest_human is not None and head_end <= newest_human < first_kept else None
    moved = _Cut(first_kept, anchor, decided_at=end)
    tokens, messages = _window_size(groups, head_end, moved, end, policy)
    return _Cut(first_kept, anchor, decided_at=end, tokens=tokens, messages=messages)


def _previous_call_end(groups: Groups) -> int:
    """Number of groups the previous model call saw: everything before the newest AI message."""
    human = set(groups.human)
    for group in range(len(groups) - 1, groups.preamble - 1, -1):
        if group not in human:
            return group
    return -1


def _tokens(groups: Groups, group: int) -> int:
    return groups.tokens[group + 1] - groups.tokens[group]


def _messages(groups: Groups, group: int) -> int:
    return groups.starts[group + 1] - groups.starts[group]
