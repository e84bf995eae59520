"""The history, walked once: groups, sizes and cuts.

A walk is a fold over the messages in stored order: what it knows after n messages depends on these n messages only. So
appending never moves an old cut, and a walk can be continued where it stopped instead of starting again. A cut is only
decided where a model could be called, after a complete group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from langchain_core.messages import BaseMessage

from langmem_harness.window.groups import Cut, Group
from langmem_harness.window.limits import Limit
from langmem_harness.window.messages import calls_of, is_blank, role_of, server_results_of, unanswered_server_calls
from langmem_harness.window.policy import SOFT_SHARE, WindowPolicy
from langmem_harness.window.repair import result_id

_ROOM = 8 / 7  # after a cut, the window is to be below 7/8 of the trigger, or the next message would trigger again


class HistoryWalk:
    """A history as far as it has been walked.

    Args:
        policy: When to compact and what stays.
        count: Tokens of one message.
        overhead_tokens: System prompt and tool schemas, as they count (already rounded).

    Attributes:
        length: Number of messages walked.
        groups: The groups, in order of their first message.
        systems: Positions of system messages; they always stay.
        dropped: Positions of results without a call, second results, and AI messages without any content.
        repairs: Number of repairs that concern `dropped` and moved messages, by kind.
        cuts: Every cut so far, oldest first.
        planned: The cut that the next trigger will make, if it is decided already.
        history_tokens: Tokens of all messages.
    """

    def __init__(self, policy: WindowPolicy, count: Callable[[BaseMessage], int], *, overhead_tokens: int = 0) -> None:
        self.policy = policy
        self.overhead_tokens = overhead_tokens
        self.length = 0
        self.groups: list[Group] = []
        self.systems: list[int] = []
        self.dropped: list[int] = []
        self.repairs: Counter[str] = Counter()
        self.cuts: list[Cut] = []
        self.planned: int | None = None
        self.history_tokens = 0
        self.newest_ai = -1
        self.is_whole = True
        self._count = count
        self._callers: dict[str, list[int]] = {}  # groups that wait for a result of this call; the newest is answered
        self._first_human: int | None = None
        self._newest_human: int | None = None
        self._pinned: list[int] = []
        self._system_tokens = 0
        self._staying = (0, 0)  # tokens and messages of the groups before the cut that stay, marker included
        self._tail = (0, 0)  # of the groups behind the cut
        self._settled_at = (0, 0)  # the window after the last cut, or when none could be made

    # -- walking ----------------------------------------------------------------------------------------------------

    def extend(self, messages: Sequence[BaseMessage]) -> None:
        """Walk on over the messages after the first `length`; the history is `messages` afterwards."""
        for position in range(self.length, len(messages)):
            self._add(position, messages[position])
        self.length = max(self.length, len(messages))

    def _add(self, position: int, message: BaseMessage) -> None:
        tokens = self._count(message)
        self.history_tokens += tokens
        role = role_of(message)
        if role == "system":
            self._add_system(position, message, tokens)
        elif role == "tool":
            self._add_result(position, message, tokens)
        elif role == "ai" and is_blank(message) and not calls_of(message):
            self.newest_ai = position
            self._drop(position, "empty_content")
        else:
            if role == "ai":
                self.newest_ai = position
            self._add_speech(position, message, tokens, is_ai=role == "ai")

    def _add_system(self, position: int, message: BaseMessage, tokens: int) -> None:
        if is_blank(message):
            self._drop(position, "empty_content")
            return
        if self.groups or self.dropped:
            self.repairs["moved_system"] += 1
            self.is_whole = False
        self.systems.append(position)
        self._system_tokens += tokens

    def _add_speech(self, position: int, message: BaseMessage, tokens: int, *, is_ai: bool) -> None:
        group = self.groups[-1] if self.groups else None
        if group is not None and is_ai and group.open_server_calls & server_results_of(message):
            self._continue_group(group, position, message, tokens)
        else:
            if group is not None and group.open_calls:
                self.is_whole = False
            group = Group(position, message, tokens)
            index = len(self.groups)
            self.groups.append(group)
            for call_id in group.open_calls:
                self._callers.setdefault(call_id, []).append(index)
            self._tail = (self._tail[0] + tokens, self._tail[1] + 1)
            if group.is_human:
                self._newest_human = index
                if self._first_human is None:
                    self._first_human = index
                if self.cuts:  # a new turn: what could not be cut before may be cut now
                    self._settled_at = (self.cuts[-1].window_tokens, self.cuts[-1].window_messages)
                else:
                    self._settled_at = (0, 0)
            elif index == 0:
                self.is_whole = False  # the conversation does not begin with a human message
            self.is_whole = self.is_whole and not group.is_flawed
        self._pin(len(self.groups) - 1, message)
        if group.is_complete:
            self._decide(position)

    def _continue_group(self, group: Group, position: int, message: BaseMessage, tokens: int) -> None:
        """An AI message that goes on where the provider paused belongs to the message before it."""
        calls = [call_id for call_id, _ in calls_of(message)]
        group.open_server_calls = unanswered_server_calls(message)
        group.open_calls.update(calls)
        group.has_calls = group.has_calls or bool(calls)
        for call_id in calls:
            self._callers.setdefault(call_id, []).append(len(self.groups) - 1)
        self._join(len(self.groups) - 1, position, tokens)

    def _add_result(self, position: int, message: BaseMessage, tokens: int) -> None:
        call_id = result_id(message)
        callers = self._callers.get(call_id)
        if not callers:
            self._drop(position, "orphan_result" if callers is None else "duplicate_result")
            return
        index = callers[-1]
        group = self.groups[index]
        group.open_calls[call_id] -= 1
        if not group.open_calls[call_id]:
            del group.open_calls[call_id]
            callers.pop()
        if index != len(self.groups) - 1:
            self.repairs["moved_result"] += 1
            self.is_whole = False
            group.is_flawed = True
        elif is_blank(message):
            self.is_whole = False
            group.is_flawed = True
        self._join(index, position, tokens)
        self._pin(index, message)
        if index == len(self.groups) - 1 and group.is_complete:
            self._decide(position)

    def _join(self, index: int, position: int, tokens: int) -> None:
        group = self.groups[index]
        group.members.append(position)
        group.tokens += tokens
        if not self.cuts or index >= self.cuts[-1].group:
            self._tail = (self._tail[0] + tokens, self._tail[1] + 1)
        elif index in self.cuts[-1].stays:
            self._staying = (self._staying[0] + tokens, self._staying[1] + 1)

    def _drop(self, position: int, kind: str) -> None:
        self.repairs[kind] += 1
        self.is_whole = False
        self.dropped.append(position)

    def _pin(self, index: int, message: BaseMessage) -> None:
        if self.policy.pin is not None and not self.groups[index].is_pinned and self.policy.pin(message):
            self.groups[index].is_pinned = True
            self._pinned.append(index)

    # -- deciding ---------------------------------------------------------------------------------------------------

    @property
    def window_tokens(self) -> int:
        """Tokens of the window as it is cut now, system prompt, tools and marker included."""
        return self._fixed_tokens + self._staying[0] + self._tail[0]

    @property
    def window_messages(self) -> int:
        """Messages of the window as it is cut now, marker included."""
        return len(self.systems) + self._staying[1] + self._tail[1]

    @property
    def _fixed_tokens(self) -> int:
        return self.overhead_tokens + self._system_tokens

    def _decide(self, position: int) -> None:
        """Move the cut if the window has reached a trigger."""
        tokens, messages = self.window_tokens, self.window_messages
        if any(self._raised(trigger).is_reached(tokens, messages) for trigger in self.policy.triggers):
            group = self._planned_cut() or self._find_cut(self._newest_human)
            if group is None:
                self._settled_at = (tokens, messages)
            else:
                self._move(group, position)
        elif self.policy.prepare_ahead and self.planned is None and self._is_turn_end():
            soft = (int(tokens / SOFT_SHARE), int(messages / SOFT_SHARE))
            if any(trigger.is_reached(*soft) for trigger in self.policy.triggers):
                self.planned = self._find_cut(None)

    def _is_turn_end(self) -> bool:
        newest = self.groups[-1]
        return not newest.is_human and not newest.has_calls

    def _raised(self, trigger: Limit) -> Limit:
        """The trigger, or more when what cannot be left out already fills the window: then a cut waits until there is
        something worth cutting, instead of moving, and breaking the prompt cache, at every call."""
        keep = self.policy.keep

        def raised(number: int | None, settled_at: int, kept: int | None) -> int | None:
            if number is None or not settled_at:
                return number
            return max(number, settled_at + max(1, (number - (kept if kept is not None else number // 2)) // 2))

        return Limit(
            tokens=raised(trigger.tokens, self._settled_at[0], keep.tokens),
            messages=raised(trigger.messages, self._settled_at[1], keep.messages),
        )

    def _planned_cut(self) -> int | None:
        if self.planned is None:
            return None
        stays = self._stays(self.planned, self._newest_human)
        size = self._size(stays, *self._tail_from(self.planned))
        return None if any(trigger.is_reached(*size) for trigger in self.policy.triggers) else self.planned

    def _find_cut(self, newest_human: int | None) -> int | None:
        """The earliest legal cut after which what stays is at most `keep` and leaves room below the trigger.

        When no cut leaves room, the earliest that respects `keep`; when none does that, the last legal one: whole
        groups of the open turn go too, oldest first, but never the newest group. None when no cut makes the window
        smaller.

        Args:
            newest_human: The human message of the open turn; None when the turn is over.
        """
        first = self.cuts[-1].group if self.cuts else 0
        reasons = newest_human is not None and any(
            group.has_reasoning for group in self.groups[max(first, newest_human + 1) :]
        )
        tail_tokens, tail_messages = self._tail
        found: int | None = None
        respects_keep = False
        for group in range(first + 1, len(self.groups)):
            tail_tokens -= self.groups[group - 1].tokens
            tail_messages -= len(self.groups[group - 1].members)
            if newest_human is not None and group > newest_human and reasons and not self.groups[group].has_reasoning:
                continue  # inside a turn that reasons, a request may only go on where reasoning begins
            if self.policy.keep.is_kept(tail_tokens, tail_messages):
                stays = self._stays(group, newest_human)
                if self._leaves_room(*self._size(stays, tail_tokens, tail_messages)):
                    found = group
                    break
                found = found if respects_keep else group
                respects_keep = True
            elif not respects_keep:
                found = group
        if found is None:
            return None
        stays = self._stays(found, newest_human)
        tokens, messages = self._size(stays, *self._tail_from(found))
        is_smaller = tokens < self.window_tokens or messages < self.window_messages
        return found if is_smaller and len(stays) < found else None

    def _leaves_room(self, tokens: int, messages: int) -> bool:
        roomy = (int(tokens * _ROOM), int(messages * _ROOM))
        return not any(trigger.is_reached(*roomy) for trigger in self.policy.triggers)

    def _stays(self, group: int, newest_human: int | None) -> tuple[int, ...]:
        """Groups before a cut at `group` that stay: head, pinned ones, and the human message of the open turn."""
        stays = {pinned for pinned in self._pinned if pinned < group}
        if self._first_human is not None:
            stays.update(range(self._first_human, min(self._first_human + self.policy.keep_first, group)))
        if newest_human is not None and newest_human < group:
            stays.add(newest_human)
        return tuple(sorted(stays))

    def _tail_from(self, group: int) -> tuple[int, int]:
        """Tokens and messages of the tail if it began with this group."""
        left = self.groups[self.cuts[-1].group if self.cuts else 0 : group]
        return (
            self._tail[0] - sum(group.tokens for group in left),
            self._tail[1] - sum(len(group.members) for group in left),
        )

    def _size(self, stays: Sequence[int], tail_tokens: int, tail_messages: int) -> tuple[int, int]:
        """Tokens and messages of a window with a marker, these groups before the cut, and this tail."""
        staying = self._size_of(stays)
        return self._fixed_tokens + staying[0] + tail_tokens, len(self.systems) + staying[1] + tail_messages

    def _size_of(self, stays: Sequence[int]) -> tuple[int, int]:
        tokens = sum(self.groups[group].tokens for group in stays) + self.policy.marker_tokens
        return tokens, sum(len(self.groups[group].members) for group in stays) + 1

    def _move(self, group: int, position: int) -> None:
        stays = self._stays(group, self._newest_human)
        self._tail = self._tail_from(group)
        self._staying = self._size_of(stays)
        self.cuts.append(
            Cut(
                group=group,
                stays=stays,
                decided_at=position,
                window_tokens=self.window_tokens,
                window_messages=self.window_messages,
            )
        )
        self.planned = None
        self._settled_at = (self.window_tokens, self.window_messages)

    # -- reading ----------------------------------------------------------------------------------------------------

    def left_out_next(self) -> list[int]:
        """Positions of the messages the next trigger will leave out, if that is decided; else of those left out now."""
        if self.planned is not None:
            return self.left_out(self.planned, self._stays(self.planned, None))
        return self.omitted_positions(self.cuts[-1] if self.cuts else None)

    @property
    def head_end(self) -> int:
        """First group that is not in the head."""
        return 0 if self._first_human is None else self._first_human + self.policy.keep_first

    def tokens_with(self, cut: Cut | None) -> int:
        """Tokens of the window over the whole walk if `cut` were the last one; None is no cut."""
        if cut is None:
            return self._fixed_tokens + sum(group.tokens for group in self.groups)
        tail = sum(group.tokens for group in self.groups[cut.group :])
        return self._fixed_tokens + self._size_of(cut.stays)[0] + tail

    def omitted_positions(self, cut: Cut | None) -> list[int]:
        """Positions of the messages that are left out with this cut, ascending."""
        return [] if cut is None else self.left_out(cut.group, cut.stays)

    def left_out(self, group: int, stays: Sequence[int]) -> list[int]:
        """Positions of the messages before `group` that are not in one of the groups that stay, ascending."""
        staying = set(stays)
        end = self.groups[group].members[0]
        left = [position for position in self.dropped if position < end]
        for index in range(group):
            if index not in staying:
                left += self.groups[index].members
        return sorted(left)
