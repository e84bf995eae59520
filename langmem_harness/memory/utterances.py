"""What was said in a thread, utterance by utterance, and the form in which a store keeps it. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langmem_harness.embeddings.parts import join_parts
from langmem_harness.memory.names import ROLE_NAMES
from langmem_harness.memory.records import MemoryRecord, MemorySource, parse_time, version_of
from langmem_harness.memory.scope import MemoryScope
from langmem_harness.screening import ScreeningResult, screen_text
from langmem_harness.window.messages import canonical_json, message_identity, tag_of, text_hash

CONTEXT_TURNS = 2
"""Utterances before and after that belong to an item's context."""

SAID = "said"
"""Kind of the records that utterances are shown as."""

_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


@dataclass(frozen=True, kw_only=True)
class Utterance:
    """One thing said in a thread.

    Attributes:
        message_id: Identity of the message.
        speaker: Name of the person or agent; ``"user"`` and ``"assistant"`` when they have none.
        text: What was said; empty once it was forgotten.
        said_at: When; aware UTC.
    """

    message_id: str
    speaker: str
    text: str
    said_at: datetime


class LoggedEntry(Protocol):
    """An entry of a thread log. Implemented by `langmem_harness.threads.TurnEvent`."""

    @property
    def seq(self) -> int: ...
    @property
    def turn_id(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def supersedes(self) -> int | None: ...
    @property
    def created_at(self) -> datetime: ...
    @property
    def body(self) -> Mapping[str, Any]: ...
    def messages(self) -> list[BaseMessage]: ...


class TurnLog(Protocol):
    """What was said in threads, turn by turn. Implemented by `langmem_harness.threads.ThreadLog`."""

    def events(self, thread_id: str) -> Sequence[LoggedEntry]:
        """Entries of a thread in order; empty for an unknown thread."""
        ...


def utterances_of(messages: Iterable[BaseMessage], said_at: datetime) -> list[Utterance]:
    """What people and the agent said in these messages; tool traffic, blank texts, messages of ours and the summaries
    that LangChain's middleware puts in a person's place are left out.

    Args:
        messages: In order.
        said_at: When they were said, aware.
    """
    return [
        Utterance(
            message_id=message_identity(message),
            speaker=message.name or ("user" if isinstance(message, HumanMessage) else "assistant"),
            text=message.text,
            said_at=said_at.astimezone(UTC),
        )
        for message in messages
        if isinstance(message, HumanMessage | AIMessage)
        and tag_of(message) is None
        and message.additional_kwargs.get("lc_source") != "summarization"
        and message.text.strip()
    ]


def utterances_of_entries(entries: Sequence[LoggedEntry], turns: Collection[str]) -> list[Utterance]:
    """What was said in the completed turns of a thread log, each with its own date; corrections stand for what they
    correct.

    Args:
        entries: All entries of one thread, in order.
        turns: Ids of the turns that are wanted.
    """
    done = {entry.turn_id for entry in entries if entry.kind == "done"}.intersection(turns)
    place: dict[int, int] = {}
    spoken: dict[int, LoggedEntry] = {}
    for entry in entries:
        place[entry.seq] = entry.seq if entry.supersedes is None else place[entry.supersedes]
        spoken[place[entry.seq]] = entry
    return [
        utterance
        for _, entry in sorted(spoken.items(), key=lambda pair: pair[0])
        if entry.turn_id in done
        for utterance in utterances_of(entry.messages(), entry.created_at)
    ]


def join_said(before: Sequence[Utterance], now: Sequence[Utterance]) -> list[Utterance]:
    """What was said in a thread, out of what is known of it and its messages as they are now.

    Messages may have left the state without being unsaid (trimming and summarizing middleware remove them): what is
    known stays up to the last known message that the state still goes through, and what follows there is new. So a
    fork takes the place of what it forked from, and a state that shares nothing with what is known only adds to it.
    """
    places = {one.message_id: place for place, one in enumerate(before)}
    first = next((place for place, one in enumerate(now) if one.message_id in places), None)
    if first is None:
        return [*before, *now]
    last_known, place = -1, first
    while place < len(now) and places.get(now[place].message_id, -1) > last_known:
        last_known = places[now[place].message_id]
        place += 1
    return [*before[: last_known + 1], *now[place:]]


def episode_key(thread_id: str, position: int) -> str:
    """Key of the utterance at this place of a thread."""
    return f"e{text_hash(canonical_json([thread_id, position]))[7:31]}"


def episode_link_key(scope: MemoryScope) -> str:
    """Key of the link that says, below a thread, which of its utterances this owner has."""
    return text_hash(canonical_json(scope.episodes))[7:31]


def episode_value(thread_id: str, position: int, around: Mapping[int, Utterance]) -> dict[str, Any]:
    """The stored form of the utterance at `position`, with its context; one that was forgotten has no words in any.

    Args:
        thread_id: Its thread.
        position: Its place there.
        around: Utterances by place; those up to `CONTEXT_TURNS` away are the context.
    """
    one = around[position]
    places = range(position - CONTEXT_TURNS, position + CONTEXT_TURNS + 1)
    return {
        "text": searched_text(one) if one.text else "",
        "context": join_parts(
            searched_text(around[place]) for place in places if place in around and around[place].text
        ),
        "said": one.text,
        "speaker": one.speaker,
        "said_at": one.said_at.isoformat(),
        "thread_id": thread_id,
        "message_id": one.message_id,
        "position": position,
    }


def searched_text(utterance: Utterance) -> str:
    """``"[8 May, 2023] Mel: We chose the grey seal."``: what is embedded and what words are taken from.

    The date in words, because that is how people ask; ``"user"`` and ``"assistant"`` say nothing and are left out.
    """
    day = utterance.said_at
    who = "" if utterance.speaker in ROLE_NAMES else f" {utterance.speaker}:"
    return join_parts([f"[{day.day} {_MONTHS[day.month - 1]}, {day.year}]{who} {utterance.text}"])


def storable(text: str) -> str:
    """The text without what some stores refuse: lone surrogates and NUL become U+FFFD."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", "\ufffd")


def utterance_of(value: Mapping[str, Any]) -> Utterance:
    """The utterance in a stored form."""
    said_at = parse_time(value["said_at"], "said_at") or datetime.fromtimestamp(0, UTC)
    return Utterance(message_id=value["message_id"], speaker=value["speaker"], text=value["said"], said_at=said_at)


def record_of_stored_utterance(scope: MemoryScope, value: Mapping[str, Any]) -> MemoryRecord:
    """`record_of_utterance` of a stored form."""
    return record_of_utterance(scope, value["thread_id"], value["position"], utterance_of(value))


def record_of_utterance(scope: MemoryScope, thread_id: str, position: int, utterance: Utterance) -> MemoryRecord:
    """The utterance as a recall shows it beside memories: kind `SAID`, with thread, message and date as its source."""
    text = spoken_line(utterance.speaker, utterance.text)
    return MemoryRecord(
        key=episode_key(thread_id, position),
        scope=scope,
        text=text,
        kind=SAID,
        sources=(MemorySource(thread_id=thread_id, message_id=utterance.message_id, stated_at=utterance.said_at),),
        version=version_of(text, position),
        created_at=utterance.said_at,
        updated_at=utterance.said_at,
    )


def spoken_line(speaker: str, text: str) -> str:
    """``"user: We take the grey one."``"""
    return f"{speaker}: {text}"


def screen_line(line: str) -> ScreeningResult:
    """Screen a `spoken_line`, what was said alone: ``"user: "`` in front is written by us and imitates no role.

    The name of anybody else is untrusted like the words, and is screened with them. Findings are positions in the line.
    """
    speaker, separator, _ = line.partition(": ")
    start = len(speaker) + len(separator)
    if not separator or speaker not in ROLE_NAMES:
        return screen_text(line)
    screened = screen_text(line[start:])
    found = tuple(
        dataclasses.replace(finding, start=start + finding.start, end=start + finding.end)
        for finding in screened.findings
    )
    return ScreeningResult(text=line[:start] + screened.text, findings=found)
