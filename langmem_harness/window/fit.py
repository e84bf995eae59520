"""The last measure of a request: over the limit, the cheapest goes first and hard-won evidence last. Pure.

The stages, in this order, each only as far as needed:

``repeated_instructions``  system messages and recalled blocks whose text is there already
``recalled_text``          recalled memories, least important first
``finished_turns``         groups of finished turns, whole, oldest first; they count as left out
``tool_results``           tool results of the open turn, oldest first: the calls stay, the text makes way for a notice
``open_turn``              groups of the open turn, whole, oldest first

System messages, the head, the newest human message, pinned groups and the newest tool result stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage, ToolMessage

from langmem_harness.errors import WindowOverflowError
from langmem_harness.window.messages import TAG_KEY, has_reasoning, is_tagged, role_of, tag_of

LEFT_OUT_RESULT_TEXT = (
    "[This result is not shown here to save space. The call was carried out and its full output is stored in the "
    "conversation; nothing failed.]"
)


@dataclass(frozen=True, kw_only=True)
class FittedRequest:
    """A request that was measured.

    Attributes:
        messages: The messages, marker included.
        dropped: Messages of the history that were left out on top of the plan, in order.
        reclaimed: Tokens each stage gave back; stages that gave nothing are not in it.
        tokens: Size of the request with system prompt and tools.
    """

    messages: Sequence[BaseMessage]
    dropped: Sequence[BaseMessage]
    reclaimed: Mapping[str, int]
    tokens: int


def fit_request(
    head: Sequence[BaseMessage],
    tail: Sequence[BaseMessage],
    *,
    make_marker: Callable[[int], BaseMessage | None],
    count: Callable[[BaseMessage], int],
    overhead_tokens: int,
    target_tokens: int,
    limit_tokens: int | None,
    is_pinned: Callable[[BaseMessage], bool] | None = None,
) -> FittedRequest:
    """Shrink a request to `target_tokens`.

    Args:
        head: System messages and opening groups.
        tail: The rest behind the marker; a legal sequence.
        make_marker: Gives the marker when this many messages are left out on top of the plan; None: no marker needed.
        count: Tokens of one message.
        overhead_tokens: System prompt and tool schemas.
        target_tokens: What the request should have at most.
        limit_tokens: What it must not exceed; None lets it be as large as it turns out.
        is_pinned: Says which messages always stay.

    Raises:
        WindowOverflowError: The smallest legal request is over the limit.
    """
    fitting = _Fitting(list(head), _split(tail), make_marker, count, overhead_tokens, is_pinned)
    for stage in ("repeated_instructions", "recalled_text", "finished_turns", "tool_results", "open_turn"):
        if fitting.tokens <= target_tokens:
            break
        before = fitting.tokens
        for _ in getattr(fitting, stage)():
            if fitting.tokens <= target_tokens:
                break
        if fitting.tokens < before:
            fitting.reclaimed[stage] = before - fitting.tokens
    if limit_tokens is not None and fitting.tokens > limit_tokens:
        raise WindowOverflowError(request_tokens=fitting.tokens, limit_tokens=limit_tokens)
    return FittedRequest(
        messages=fitting.messages(), dropped=fitting.dropped, reclaimed=fitting.reclaimed, tokens=fitting.tokens
    )


class _Fitting:
    """A request on its way to a smaller size. Each stage yields after every step."""

    def __init__(
        self,
        head: list[BaseMessage],
        groups: list[list[BaseMessage]],
        make_marker: Callable[[int], BaseMessage | None],
        count: Callable[[BaseMessage], int],
        overhead_tokens: int,
        is_pinned: Callable[[BaseMessage], bool] | None,
    ) -> None:
        self.head = head
        self.groups = groups
        self.dropped: list[BaseMessage] = []
        self.reclaimed: dict[str, int] = {}
        self._make_marker = make_marker
        self._count = count
        self._is_pinned = is_pinned
        self._marker = make_marker(0)
        marker_tokens = 0 if self._marker is None else count(self._marker)
        self.tokens = (
            overhead_tokens + marker_tokens + sum(map(count, [*head, *(one for part in groups for one in part)]))
        )

    def messages(self) -> list[BaseMessage]:
        marker = [] if self._marker is None else [self._marker]
        return [*self.head, *marker, *(message for group in self.groups for message in group)]

    def repeated_instructions(self) -> Iterator[None]:
        seen: set[str] = set()
        for part in (self.head, *self.groups):
            for message in list(part):
                if isinstance(message, SystemMessage) or is_tagged(message, "recall"):
                    if message.text in seen:
                        self._remove(part, message)
                        yield
                    seen.add(message.text)

    def recalled_text(self) -> Iterator[None]:
        for part in (self.head, *self.groups):
            for message in [one for one in part if is_tagged(one, "recall")]:
                lines = message.text.split("\n")
                current = message
                while len(lines) > 4:  # heading and delimiters; entries come in order, the least important last
                    del lines[-2]
                    shorter = message.model_copy(update={"content": "\n".join(lines)})
                    self._replace(part, current, shorter)
                    current = shorter
                    yield
                self._remove(part, current)
                yield

    def finished_turns(self) -> Iterator[None]:
        yield from self._drop_groups(lambda newest_human: range(newest_human))

    def tool_results(self) -> Iterator[None]:
        results = [
            (group, message)
            for group in self.groups[self._newest_human() :]
            for message in group
            if isinstance(message, ToolMessage) and message.status != "error"
        ]
        for group, message in results[:-1]:
            notice = message.model_copy(
                update={
                    "content": LEFT_OUT_RESULT_TEXT,
                    "artifact": None,
                    "additional_kwargs": {**message.additional_kwargs, TAG_KEY: {"kind": "left_out"}},
                }
            )
            if self._count(notice) < self._count(message):
                self._replace(group, message, notice)
                yield

    def open_turn(self) -> Iterator[None]:
        open_turn = [one for group in self.groups[self._newest_human() + 1 :] for one in group]
        if any(has_reasoning(message) for message in open_turn):
            return  # a turn that reasons has to stay whole
        yield from self._drop_groups(lambda newest_human: range(newest_human + 1, len(self.groups)))

    def _drop_groups(self, choose: Callable[[int], range]) -> Iterator[None]:
        newest = self.groups[-1] if self.groups else None
        for group in [self.groups[index] for index in choose(self._newest_human())]:
            if group is newest or not group or self._stays(group):
                continue
            for message in list(group):
                self._remove(group, message)
            yield

    def _stays(self, group: Sequence[BaseMessage]) -> bool:
        is_ours = all(tag_of(message) is not None for message in group)
        return is_ours or (self._is_pinned is not None and any(map(self._is_pinned, group)))

    def _newest_human(self) -> int:
        """Index of the group with the newest human message; the number of groups when it is in the head."""
        for index in range(len(self.groups) - 1, -1, -1):
            if any(isinstance(message, HumanMessage) and tag_of(message) is None for message in self.groups[index]):
                return index
        return -1

    def _remove(self, part: list[BaseMessage], message: BaseMessage) -> None:
        index = next(index for index, one in enumerate(part) if one is message)
        del part[index]
        self.tokens -= self._count(message)
        if tag_of(message) is None:
            self.dropped.append(message)
            before = 0 if self._marker is None else self._count(self._marker)
            self._marker = self._make_marker(len(self.dropped))
            self.tokens += (0 if self._marker is None else self._count(self._marker)) - before

    def _replace(self, part: list[BaseMessage], message: BaseMessage, other: BaseMessage) -> None:
        index = next(index for index, one in enumerate(part) if one is message)
        part[index] = other
        self.tokens += self._count(other) - self._count(message)


def _split(messages: Sequence[BaseMessage]) -> list[list[BaseMessage]]:
    """A legal sequence in groups; a message of ours that is only in the request is one by itself."""
    groups: list[list[BaseMessage]] = []
    for message in messages:
        if role_of(message) == "tool" and groups:
            groups[-1].append(message)
        else:
            groups.append([message])
    return groups
