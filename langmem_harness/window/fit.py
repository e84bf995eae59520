"""The last measure of a request: over the limit, the cheapest goes first and hard-won evidence last. Pure.

The stages, in this order, each only as far as needed:

``repeated_instructions``   system messages and recalled or retrieved blocks whose text is there already
``recalled_text``           recalled memories and retrieved passages, lowest rank first
``document_sections``       retrieved documents, lowest rank first: the sections that matched stay
``catalogue_descriptions``  catalogues, lowest rank first: the names stay, the descriptions go
``finished_turns``          groups of finished turns, whole, oldest first; they count as left out
``tool_results``            tool results of the open turn, oldest first: the calls stay, the text makes way for a notice
``open_turn``               groups of the open turn, whole, oldest first

What is retrieved is known by its marks (`langmem_harness.window.references`).
System messages, the head, the newest human message, pinned groups and the newest tool result stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage, ToolMessage

from langmem_harness.errors import WindowOverflowError
from langmem_harness.window.messages import TAG_KEY, has_reasoning, is_tagged, role_of
from langmem_harness.window.references import (
    LEFT_OUT_TEXT,
    REFERENCES_KEY,
    Reference,
    ReferenceKind,
    drop_reference,
    references_of,
    shorten_reference,
)

STAGES = (
    "repeated_instructions",
    "recalled_text",
    "document_sections",
    "catalogue_descriptions",
    "finished_turns",
    "tool_results",
    "open_turn",
)
"""The order in which text makes way, and the names under which the event says what each gave back."""

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
    placed: Sequence[BaseMessage] = (),
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
        placed: Those of the messages that are only in the request; all others are of the thread.

    Raises:
        WindowOverflowError: The smallest legal request is over the limit.
    """
    fitting = _Fitting(list(head), _split(tail), make_marker, count, overhead_tokens, is_pinned, placed)
    for stage in STAGES:
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
        placed: Sequence[BaseMessage],
    ) -> None:
        self.head = head
        self.groups = groups
        self.dropped: list[BaseMessage] = []
        self.reclaimed: dict[str, int] = {}
        self._make_marker = make_marker
        self._count = count
        self._is_pinned = is_pinned
        self._placed = {
            id(message): message for message in placed
        }  # held: an id is only good while its object is there
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
                if isinstance(message, SystemMessage) or id(message) in self._placed:
                    if message.text in seen:
                        self._remove(part, message)
                        yield
                    seen.add(message.text)

    def recalled_text(self) -> Iterator[None]:
        while True:
            lines = [
                (len(message.text.split("\n")) - 3, part, message, None)
                for part, message in self._everything()
                if id(message) in self._placed and is_tagged(message, "recall")
            ]
            blocks = [(one.rank, part, message, one) for part, message, one in self._references("recall")]
            if not lines and not blocks:
                return
            _, part, message, reference = max([*lines, *blocks], key=lambda candidate: candidate[0])
            if reference is None:
                self._drop_line(part, message)
            else:
                self._drop_text(part, message, reference)
            yield

    def document_sections(self) -> Iterator[None]:
        yield from self._shorten("document")

    def catalogue_descriptions(self) -> Iterator[None]:
        yield from self._shorten("catalogue")

    def finished_turns(self) -> Iterator[None]:
        yield from self._drop_groups(lambda newest_human: range(newest_human))

    def tool_results(self) -> Iterator[None]:
        results = [
            (group, message)
            for group in self.groups[max(0, self._newest_human()) :]
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
        open_turn = self.groups[self._newest_human() + 1 :]
        result = next((one for one in self._newest_of_the_thread() if role_of(one) == "tool"), None)
        for group in [self.groups[index] for index in choose(self._newest_human())]:
            if group is newest or not group or self._stays(group):
                continue
            if any(group is one for one in open_turn) and any(message is result for message in group):
                continue  # what was found out last stays, even behind an answer
            for message in list(group):
                self._remove(group, message)
            yield

    def _shorten(self, kind: ReferenceKind) -> Iterator[None]:
        while True:
            marked = [one for one in self._references(kind) if one[2].sections]
            if not marked:
                return
            part, message, reference = max(marked, key=lambda one: one[2].rank)
            self._replace(part, message, shorten_reference(message, reference))
            yield

    def _references(self, kind: ReferenceKind) -> list[tuple[list[BaseMessage], BaseMessage, Reference]]:
        """Marked texts of this kind that may be touched: not those of the newest human message and tool result."""
        untouched = set(map(id, self._newest_of_the_thread()))
        return [
            (part, message, reference)
            for part, message in self._everything()
            if message.additional_kwargs and id(message) not in untouched and role_of(message) != "ai"
            for reference in references_of(message)
            if reference.kind == kind
        ]

    def _drop_line(self, part: list[BaseMessage], message: BaseMessage) -> None:
        """Leave out the last entry of a recall block: heading and delimiters stay, entries come best first."""
        lines = message.text.split("\n")
        if len(lines) <= 4:
            self._remove(part, message)
            return
        del lines[-2]
        self._replace(part, message, message.model_copy(update={"content": "\n".join(lines)}))

    def _drop_text(self, part: list[BaseMessage], message: BaseMessage, reference: Reference) -> None:
        left = drop_reference(message, reference)
        if left is not None:
            self._replace(part, message, left)
        elif id(message) in self._placed:
            self._remove(part, message)
        else:
            content: Any = LEFT_OUT_TEXT if reference.block is None else [{"type": "text", "text": LEFT_OUT_TEXT}]
            kwargs = {key: value for key, value in message.additional_kwargs.items() if key != REFERENCES_KEY}
            self._replace(part, message, message.model_copy(update={"content": content, "additional_kwargs": kwargs}))

    def _stays(self, group: Sequence[BaseMessage]) -> bool:
        is_ours = not any(map(self._is_history, group))
        return is_ours or (self._is_pinned is not None and any(map(self._is_pinned, group)))

    def _is_history(self, message: BaseMessage) -> bool:
        """Whether it is of the thread, and not put into the request by this package or another middleware."""
        return id(message) not in self._placed and not is_tagged(message, "repair")

    def _newest_human(self) -> int:
        """Index of the group with the newest human message; -1 when it is in the head."""
        for index in range(len(self.groups) - 1, -1, -1):
            if any(isinstance(message, HumanMessage) and self._is_history(message) for message in self.groups[index]):
                return index
        return -1

    def _newest_of_the_thread(self) -> list[BaseMessage]:
        """The newest human message and the newest tool result."""
        of_thread = [message for _, message in self._everything() if self._is_history(message)]
        newest = (
            next((one for one in reversed(of_thread) if role_of(one) == role), None) for role in ("human", "tool")
        )
        return [message for message in newest if message is not None]

    def _everything(self) -> Iterator[tuple[list[BaseMessage], BaseMessage]]:
        for part in (self.head, *self.groups):
            for message in part:
                yield part, message

    def _remove(self, part: list[BaseMessage], message: BaseMessage) -> None:
        index = next(index for index, one in enumerate(part) if one is message)
        del part[index]
        self.tokens -= self._count(message)
        if self._is_history(message):
            self.dropped.append(message)
            before = 0 if self._marker is None else self._count(self._marker)
            self._marker = self._make_marker(len(self.dropped))
            self.tokens += (0 if self._marker is None else self._count(self._marker)) - before

    def _replace(self, part: list[BaseMessage], message: BaseMessage, other: BaseMessage) -> None:
        index = next(index for index, one in enumerate(part) if one is message)
        part[index] = other
        if id(message) in self._placed:
            self._placed[id(other)] = other
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
