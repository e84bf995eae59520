"""`EpisodeIndex`: what was said in earlier threads, searchable. "Which solution did we choose last time?"

Each utterance is an item with two fields: its own text (date, speaker, words) and its context (two utterances before
and after). Both fields are searched by meaning and by words, and fused by weights.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.store.base import GetOp, Op, PutOp, SearchItem

from langmem_harness.driving import Body, adrive, drive
from langmem_harness.errors import ConfigurationError
from langmem_harness.layout import episode_links_namespace
from langmem_harness.memory.backing import FoundItems
from langmem_harness.memory.found import FoundBy
from langmem_harness.memory.recall import date_text
from langmem_harness.memory.records import parse_time
from langmem_harness.memory.scope import MemoryScope
from langmem_harness.memory.service import LongTermMemory
from langmem_harness.screening import screen_text
from langmem_harness.window.messages import canonical_json, message_identity, tag_of, text_hash

CONTEXT_TURNS = 2
"""Utterances before and after that belong to an item's context."""

FIELD_WEIGHTS: Mapping[str, float] = {"text": 0.5, "context": 0.5}
"""Half own words, half context. With a store at 0.7 semantic and 0.3 keyword these are 0.35, 0.15, 0.35, 0.15."""

SPEAKER_BOOST = 0.2
"""Added to the fused score (0 to 1) when the item's speaker is the one person the question names."""

_ROLE_NAMES = frozenset({"user", "assistant"})
_POOL_FACTOR = 5


@dataclass(frozen=True, kw_only=True)
class Utterance:
    """One thing said in a thread.

    Attributes:
        message_id: Identity of the message.
        speaker: Name of the person or agent; ``"user"`` and ``"assistant"`` when they have none.
        text: What was said.
        said_at: When; aware UTC.
    """

    message_id: str
    speaker: str
    text: str
    said_at: datetime


@dataclass(frozen=True, kw_only=True)
class Episode:
    """An utterance found in an earlier thread.

    Attributes:
        utterance: What was said, redacted.
        thread_id: Where.
        position: Place in its thread, from 0.
        score: Bigger is better; meaningful inside one search only; None without a query leg.
        retrieval: As in `RecalledMemory`.
        neighbours: The utterances around it, in order, when asked for.
    """

    utterance: Utterance
    thread_id: str
    position: int
    score: float | None
    retrieval: str
    neighbours: tuple[Utterance, ...] = ()


@dataclass(frozen=True, kw_only=True)
class EpisodeResult:
    """Answer of an episode search; an empty one also says how it was looked for."""

    episodes: tuple[Episode, ...] = ()
    retrieval: str = "recent"
    degraded: str | None = None


class EpisodeIndex:
    """Earlier threads of an owner, by utterance.

    Indexing a thread again writes only what changed. Everything is redacted before it is stored, and goes when
    `LongTermMemory.erase_thread` or ``forget_all`` is called.

    Args:
        memory: Gives store, redactor and clock.
        field_weights: Weights of ``"text"`` and ``"context"``; needs `FaissStore`, others take an item's best field.
        speaker_boost: See `SPEAKER_BOOST`; 0 or more.

    Raises:
        ConfigurationError: Settings that cannot work.
    """

    def __init__(
        self,
        memory: LongTermMemory,
        *,
        field_weights: Mapping[str, float] = FIELD_WEIGHTS,
        speaker_boost: float = SPEAKER_BOOST,
    ) -> None:
        if set(field_weights) != {"text", "context"} or min(field_weights.values()) < 0 or speaker_boost < 0:
            raise ConfigurationError("field_weights needs 'text' and 'context', and no weight or boost below 0")
        self._settings = memory.settings
        self._field_weights = dict(field_weights)
        self._speaker_boost = speaker_boost

    def index_thread(self, scope: MemoryScope, thread_id: str, utterances: Sequence[Utterance]) -> int:
        """Make a thread searchable.

        Args:
            scope: Whose thread it is.
            thread_id: Its id.
            utterances: The whole thread so far, in order; see `utterances_of`.

        Returns:
            Items written: those that are new or whose context changed.
        """
        return drive(self._index(scope, thread_id, utterances))

    async def aindex_thread(self, scope: MemoryScope, thread_id: str, utterances: Sequence[Utterance]) -> int:
        """Async twin of `index_thread`."""
        return await adrive(self._index(scope, thread_id, utterances))

    def search(self, scope: MemoryScope, query: str, *, top_k: int = 10, neighbours: int = 0) -> EpisodeResult:
        """What was said about this in earlier threads, best first, ties by key.

        Args:
            scope: Whose threads.
            query: A question; names of speakers in it are taken as hints for who said it.
            top_k: How many, 1 or more.
            neighbours: How many utterances before and after to return with each, 0 or more.
        """
        return drive(self.search_steps(scope, query, top_k, neighbours))

    async def asearch(self, scope: MemoryScope, query: str, *, top_k: int = 10, neighbours: int = 0) -> EpisodeResult:
        """Async twin of `search`."""
        return await adrive(self.search_steps(scope, query, top_k, neighbours))

    # -- bodies -------------------------------------------------------------------------------------------------

    def _index(self, scope: MemoryScope, thread_id: str, utterances: Sequence[Utterance]) -> Body[int]:
        if not utterances:
            return 0
        texts = yield from self._settings.redacted([one.text for one in utterances], surface="episode")
        clean = [replace(one, text=text or "") for one, text in zip(utterances, texts, strict=True)]
        values = {
            episode_key(thread_id, position): _value(thread_id, position, clean) for position in range(len(clean))
        }
        *stored, link = yield self._settings.backing.batch(
            [
                *(GetOp(scope.episodes, key) for key in values),
                GetOp(episode_links_namespace(thread_id), _link_key(scope)),
            ]
        )
        gone = [] if link is None else [key for key in link.value["keys"] if key not in values]  # the thread was cut
        changed = [
            key for key, item in zip(values, stored, strict=True) if item is None or dict(item.value) != values[key]
        ]
        if not changed and not gone:
            return 0
        yield self._settings.backing.batch(  # the links first: what is written after them can always be erased
            [
                *_speaker_rows(scope, thread_id, clean, values),
                *(PutOp(scope.episodes, key, None) for key in gone),
            ]
        )
        # LangGraph's in-memory store refuses a batch that has the same text twice, which contexts of short threads do.
        size = len(changed) if self._settings.backing.says_how else 1
        for start in range(0, len(changed), size or 1):
            keys = changed[start : start + size]
            yield self._settings.backing.batch(
                [PutOp(scope.episodes, key, values[key], ["text", "context"]) for key in keys]
            )
        return len(changed)

    def search_steps(self, scope: MemoryScope, query: str, top_k: int, neighbours: int) -> Body[EpisodeResult]:
        """The body of `search`, for code that has two faces itself."""
        if top_k < 1 or neighbours < 0:
            raise ConfigurationError("top_k must be 1 or more, neighbours 0 or more")
        if not query.strip():
            return EpisodeResult()
        (clean,) = yield from self._settings.redacted([query], surface="query")
        rows = yield from self._settings.backing.all_items(scope.episode_speakers)
        named = find_named_speakers(clean or "", {row.value["speaker"] for row in rows})
        wanted = without_names(clean or "", named)
        pool = max(50, top_k * _POOL_FACTOR)
        answer: FoundItems = yield self._settings.backing.find(
            scope.episodes, wanted, pool, field_weights=self._field_weights
        )
        ranked = self._ranked(answer.items, named)[:top_k]
        episodes = [_episode(item, score) for item, score in ranked]
        if neighbours:
            episodes = yield from self._with_neighbours(scope, episodes, neighbours)
        shown = yield from self._shown(episodes)
        how = FoundBy.of(answer.items[0]).retrieval if answer.items else "recent"
        return EpisodeResult(episodes=tuple(shown), retrieval=answer.retrieval or how, degraded=answer.degraded)

    def _ranked(self, items: Sequence[SearchItem], named: frozenset[str]) -> list[tuple[SearchItem, float | None]]:
        boost = self._speaker_boost if len(named) == 1 else 0.0
        scored = [
            (item, None if item.score is None else item.score + boost * (item.value["speaker"] in named))
            for item in items
        ]
        return sorted(scored, key=lambda pair: (pair[1] is None, -(pair[1] or 0.0), pair[0].key))

    def _with_neighbours(self, scope: MemoryScope, episodes: Sequence[Episode], count: int) -> Body[list[Episode]]:
        wanted = {
            (episode.thread_id, position): episode_key(episode.thread_id, position)
            for episode in episodes
            for position in range(max(0, episode.position - count), episode.position + count + 1)
            if position != episode.position
        }
        items = yield self._settings.backing.batch([GetOp(scope.episodes, key) for key in wanted.values()])
        around = {place: _utterance(item.value) for place, item in zip(wanted, items, strict=True) if item is not None}
        return [
            replace(
                episode,
                neighbours=tuple(
                    around[place]
                    for offset in range(-count, count + 1)
                    if (place := (episode.thread_id, episode.position + offset)) in around and offset
                ),
            )
            for episode in episodes
        ]

    def _shown(self, episodes: Sequence[Episode]) -> Body[list[Episode]]:
        """Rows written before redaction was on are redacted now."""
        spoken = [one for episode in episodes for one in (episode.utterance, *episode.neighbours)]
        texts = iter((yield from self._settings.redacted([one.text for one in spoken], surface="recall")))
        shown = []
        for episode in episodes:
            own, *around = [replace(one, text=next(texts) or "") for one in (episode.utterance, *episode.neighbours)]
            shown.append(replace(episode, utterance=own, neighbours=tuple(around)))
        return shown


def utterances_of(messages: Sequence[BaseMessage], said_at: datetime) -> list[Utterance]:
    """What people and the agent said in these messages; tool traffic, blank texts and messages of ours are left out.

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
        if isinstance(message, HumanMessage | AIMessage) and tag_of(message) is None and message.text.strip()
    ]


def describe_episode(episode: Episode) -> tuple[dict[str, object], Mapping[str, int]]:
    """One episode as plain values for a model, everything said screened; and what was found, by rule."""
    findings: Counter[str] = Counter()

    def say(one: Utterance) -> str:
        screening = screen_text(f"{one.speaker}: {one.text}")
        findings.update(screening.counts)
        return screening.text

    entry: dict[str, object] = {
        "date": date_text(episode.utterance.said_at),
        "thread": screen_text(episode.thread_id[:80]).text,
        "found": episode.retrieval,
        "said": say(episode.utterance),
    }
    if episode.score is not None:
        entry["score"] = round(episode.score, 3)
    if episode.neighbours:
        entry["around"] = [say(one) for one in episode.neighbours]
    return entry, dict(findings)


def episode_key(thread_id: str, position: int) -> str:
    """Key of the utterance at this place of a thread."""
    return f"e{text_hash(canonical_json([thread_id, position]))[7:31]}"


def find_named_speakers(query: str, speakers: set[str]) -> frozenset[str]:
    """The speakers a question names, by their whole name; role names do not count."""
    return frozenset(
        speaker
        for speaker in speakers
        if speaker not in _ROLE_NAMES and re.search(rf"(?<!\w){re.escape(speaker)}(?!\w)", query, re.IGNORECASE)
    )


def without_names(query: str, names: frozenset[str]) -> str:
    """The question without the names, or the question itself when nothing else would be left.

    A name pulls a search by meaning to whatever mentions it, also when it only says who spoke.
    """
    stripped = query
    for name in sorted(names):
        stripped = re.sub(rf"(?<!\w){re.escape(name)}(?:['’]s)?(?!\w)", " ", stripped, flags=re.IGNORECASE)
    stripped = " ".join(stripped.split())
    return stripped if any(character.isalnum() for character in stripped) else query


def _value(thread_id: str, position: int, utterances: Sequence[Utterance]) -> dict[str, Any]:
    one = utterances[position]
    around = utterances[max(0, position - CONTEXT_TURNS) : position + CONTEXT_TURNS + 1]
    return {
        "text": f"{date_text(one.said_at)} {one.speaker}: {one.text}",
        "context": "\n".join(other.text for other in around),
        "said": one.text,
        "speaker": one.speaker,
        "said_at": one.said_at.isoformat(),
        "thread_id": thread_id,
        "message_id": one.message_id,
        "position": position,
    }


def _speaker_rows(
    scope: MemoryScope, thread_id: str, utterances: Sequence[Utterance], keys: Mapping[str, Any]
) -> list[Op]:
    """Who speaks in the thread, and the link from the thread to all of this."""
    names = dict.fromkeys(one.speaker for one in utterances)
    rows = {text_hash(canonical_json([thread_id, name]))[7:31]: name for name in names}
    link = {"scope": scope.to_dict(), "keys": list(keys), "speakers": list(rows)}
    return [
        *(PutOp(scope.episode_speakers, key, {"speaker": name}, False) for key, name in rows.items()),
        PutOp(episode_links_namespace(thread_id), _link_key(scope), link, False),
    ]


def _link_key(scope: MemoryScope) -> str:
    return text_hash(canonical_json(scope.episodes))[7:31]


def _utterance(value: Mapping[str, Any]) -> Utterance:
    said_at = parse_time(value["said_at"], "said_at") or datetime.fromtimestamp(0, UTC)
    return Utterance(message_id=value["message_id"], speaker=value["speaker"], text=value["said"], said_at=said_at)


def _episode(item: SearchItem, score: float | None) -> Episode:
    return Episode(
        utterance=_utterance(item.value),
        thread_id=item.value["thread_id"],
        position=item.value["position"],
        score=score,
        retrieval=FoundBy.of(item).retrieval,
    )
