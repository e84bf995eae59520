"""Which messages of a history the model sees: a pure function of the history.

Nothing is remembered between calls that could change the answer: the same history always gives the same plan, and
appending messages never moves an old cut. So the start of the prompt is the same bytes between two cuts, and restarts,
forks and time travel need nothing special.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from langchain_core.messages import BaseMessage

from langmem_harness.window.groups import Group
from langmem_harness.window.messages import role_of
from langmem_harness.window.policy import WindowPolicy
from langmem_harness.window.repair import opening_message, repair_group
from langmem_harness.window.tokens import TokenCache, TokenCounter
from langmem_harness.window.walk import HistoryWalk


@dataclass(frozen=True, kw_only=True)
class WindowPlan:
    """What of a history goes into the request: ``[*head, marker, *tail]``, without a marker when nothing is left out.

    Attributes:
        head: System messages and opening groups.
        omitted: Messages the marker stands for, in stored order, as the history has them; empty without a cut.
        tail: Pinned groups, the open turn's human message, the newest groups.
        repairs: Number of repairs in head and tail by kind; empty for a whole history.
        cuts: How often the cut has moved over the whole history.
        cut_moved: Whether it moved since the previous model call.
        history_messages: Messages of the history.
        history_tokens: Their tokens.
        window_tokens: Tokens of the request: system prompt and tools as they count, head, tail, the marker's budget.
    """

    head: Sequence[BaseMessage]
    omitted: Sequence[BaseMessage]
    tail: Sequence[BaseMessage]
    repairs: Mapping[str, int]
    cuts: int
    cut_moved: bool
    history_messages: int
    history_tokens: int
    window_tokens: int

    def messages(self, marker: BaseMessage | None = None) -> list[BaseMessage]:
        """The messages of the request with this marker in its place."""
        return [*self.head, *([] if marker is None else [marker]), *self.tail]


@dataclass(frozen=True, kw_only=True)
class PlacedMessage:
    """A message that is only in the request, such as recalled memories.

    Attributes:
        message: The message.
        before: Position in the history of the message it stands in front of; the length of the history: at the end.
    """

    message: BaseMessage
    before: int


def plan_window(
    messages: Sequence[BaseMessage],
    policy: WindowPolicy,
    counter: TokenCounter | TokenCache | None = None,
    *,
    overhead_tokens: int = 0,
    placed: Sequence[PlacedMessage] = (),
) -> WindowPlan:
    """Plan the window of a history.

    Args:
        messages: The whole history, as the thread has it; any shape, also broken or empty. Not changed.
        policy: When to compact and what stays.
        counter: Counts tokens; a `TokenCache` counts every message once over many calls.
        overhead_tokens: System prompt and tool schemas.
        placed: Messages that are only in the request; they move no cut and keep their place.

    Returns:
        The plan; the same for the same history, whoever asks and how often.
    """
    cache = counter if isinstance(counter, TokenCache) else TokenCache(counter)
    walk = HistoryWalk(policy, cache.count, overhead_tokens=policy.round_overhead(overhead_tokens))
    walk.extend(messages)
    return plan_walked(messages, walk, placed=placed)


def plan_walked(
    messages: Sequence[BaseMessage],
    walk: HistoryWalk,
    *,
    placed: Sequence[PlacedMessage] = (),
    cuts: int | None = None,
) -> WindowPlan:
    """The plan of a history that has been walked.

    Args:
        messages: The history the walk went over.
        walk: Read, not changed.
        placed: Messages that are only in the request.
        cuts: Use the window as it was after this many cuts; None is all of them.
    """
    cuts = len(walk.cuts) if cuts is None else cuts
    cut = walk.cuts[cuts - 1] if cuts else None
    repairs = Counter(walk.repairs)
    whole = walk.is_whole and not (walk.groups and walk.groups[-1].open_calls)
    stays = cut.stays if cut is not None else ()
    head_stays = [group for group in stays if group < walk.head_end]
    tail_stays = stays[len(head_stays) :]
    first = cut.group if cut is not None else 0

    head: list[BaseMessage] = []
    tail: list[BaseMessage] = []
    waiting = _Waiting(placed)
    if cut is not None or not whole:
        head += [messages[position] for position in walk.systems]
    for group in head_stays:
        _append_group(head, messages, walk.groups[group], waiting, repairs)
    for group in tail_stays:
        _append_group(tail, messages, walk.groups[group], waiting, repairs)
    opening = walk.head_end if cut is None else 0  # without a cut, the opening is the head all the same
    if whole:
        start = walk.groups[first].members[0] if cut is not None else 0
        end = walk.groups[opening].members[0] if opening < len(walk.groups) else len(messages)
        if cut is None:
            _append_slice(head, messages, start, end, waiting)
            start = end
        _append_slice(tail, messages, start, len(messages), waiting)
    else:
        for index in range(first, len(walk.groups)):
            _append_group(head if index < opening else tail, messages, walk.groups[index], waiting, repairs)
        if cut is None or head_stays:
            _open_with_human(head if head_stays or opening else tail, repairs)
    tail += waiting.rest()
    return WindowPlan(
        head=head,
        omitted=[messages[position] for position in walk.omitted_positions(cut)],
        tail=tail,
        repairs=dict(repairs),
        cuts=cuts,
        cut_moved=cut is not None and cut.decided_at >= walk.newest_ai,
        history_messages=len(messages),
        history_tokens=walk.history_tokens,
        window_tokens=walk.window_tokens if cuts == len(walk.cuts) else walk.tokens_with(cut),
    )


class _Waiting:
    """Placed messages that have not found their place yet, in order."""

    def __init__(self, placed: Sequence[PlacedMessage]) -> None:
        self._placed = sorted(placed, key=lambda one: one.before)

    def up_to(self, position: int) -> list[BaseMessage]:
        """Those that stand at this position of the history or before it; they wait no longer."""
        ready = [one.message for one in self._placed if one.before <= position]
        self._placed = self._placed[len(ready) :]
        return ready

    def rest(self) -> list[BaseMessage]:
        """All that are left."""
        return [one.message for one in self._placed]

    def next_position(self) -> int | None:
        """Where the next one wants to stand."""
        return self._placed[0].before if self._placed else None


def _append_group(
    part: list[BaseMessage], messages: Sequence[BaseMessage], group: Group, waiting: _Waiting, repairs: Counter[str]
) -> None:
    part += waiting.up_to(group.members[0])
    members = [messages[position] for position in group.members]
    part += repair_group(members, repairs) if group.is_flawed or group.open_calls else members


def _append_slice(
    part: list[BaseMessage], messages: Sequence[BaseMessage], start: int, end: int, waiting: _Waiting
) -> None:
    """Append a whole stretch of history; placed messages go between groups, never into one."""
    part += waiting.up_to(start) if start < end or end == len(messages) else []
    while (position := waiting.next_position()) is not None and position < end:
        while position < end and role_of(messages[position]) == "tool":
            position += 1
        part += messages[start:position]
        part += waiting.up_to(position)
        start = position
    part += messages[start:end]


def _open_with_human(part: list[BaseMessage], repairs: Counter[str]) -> None:
    """Put a human message in front of the first group if it is not one."""
    opening = next((index for index, message in enumerate(part) if role_of(message) != "system"), None)
    if opening is not None and role_of(part[opening]) != "human":
        repairs["missing_opening"] += 1
        part.insert(opening, opening_message())
