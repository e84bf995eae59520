"""Earlier threads as bodies: what was said is written as it grows, and found again."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from langgraph.store.base import GetOp, Item, Op, PutOp, SearchItem, SearchOp

from langmem_harness.driving import Body
from langmem_harness.embeddings.parts import join_parts
from langmem_harness.errors import ConfigurationError
from langmem_harness.events import EpisodesWritten
from langmem_harness.layout import episode_links_namespace
from langmem_harness.memory.admission import is_small_talk
from langmem_harness.memory.backing import FoundItems
from langmem_harness.memory.evidence import content_words
from langmem_harness.memory.found import NO_INDEX, FoundBy
from langmem_harness.memory.names import ROLE_NAMES, NamedSpeakers, find_named_speakers
from langmem_harness.memory.relevance import is_relevant
from langmem_harness.memory.scope import MemoryScope
from langmem_harness.memory.settings import MemorySettings
from langmem_harness.memory.utterances import (
    CONTEXT_TURNS,
    Utterance,
    episode_key,
    episode_link_key,
    episode_value,
    join_said,
    storable,
    utterance_of,
)
from langmem_harness.window.messages import canonical_json, text_hash

FIELD_WEIGHTS: Mapping[str, float] = {"text": 0.5, "context": 0.5}
"""Half own words, half context. With a store at 0.7 semantic and 0.3 keyword these are 0.35, 0.15, 0.35, 0.15."""

SPEAKER_BOOST = 0.2
"""Added to the fused score (0 to 1) when the item's speaker is the one person the question names."""

_POOL = 200  # candidates that a boost can lift; twenty times a usual page
_POOL_PER_RESULT = 20


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


class Past:
    """What was said in the threads of an owner.

    Args:
        settings: Give store, redactor and clock.
        field_weights: Weights of ``"text"`` and ``"context"``.
        speaker_boost: See `SPEAKER_BOOST`; 0 or more.

    Raises:
        ConfigurationError: Settings that cannot work.
    """

    def __init__(
        self,
        settings: MemorySettings,
        *,
        field_weights: Mapping[str, float] = FIELD_WEIGHTS,
        speaker_boost: float = SPEAKER_BOOST,
    ) -> None:
        if set(field_weights) != {"text", "context"} or min(field_weights.values()) < 0 or speaker_boost < 0:
            raise ConfigurationError("field_weights needs 'text' and 'context', and no weight or boost below 0")
        self._settings = settings
        self._field_weights = dict(field_weights)
        self._speaker_boost = speaker_boost

    # -- writing ------------------------------------------------------------------------------------------------

    def index(self, scope: MemoryScope, thread_id: str, utterances: Sequence[Utterance]) -> Body[int]:
        """Write the whole thread; how many items were new or changed."""
        return (yield from self._write(scope, thread_id, utterances, start=0, known={}))

    def extend(self, scope: MemoryScope, thread_id: str, utterances: Sequence[Utterance]) -> Body[int]:
        """Write what a thread has more than before; its earlier utterances keep the dates they were written with.

        Reads the end of what is there. A thread that does not simply go on (a fork, an edit, messages that another
        middleware took out of the state) is joined with what is there, see `join_said`.
        """
        (link,) = yield self._settings.backing.batch(
            [GetOp(episode_links_namespace(thread_id), episode_link_key(scope))]
        )
        count = len(link.value["keys"]) if link is not None else 0
        end = range(max(0, count - 2 * CONTEXT_TURNS), count)
        known = yield from self._stored(scope, thread_id, end)
        if count <= len(utterances) and all(
            place in known and known[place].message_id == utterances[place].message_id for place in end
        ):
            return (yield from self._write(scope, thread_id, utterances, start=count, known=known))
        before = yield from self._stored(scope, thread_id, range(count))
        joined = join_said([before[place] for place in sorted(before)], utterances)
        kept = 0  # what is there as it should be is not redacted and written again
        while kept < len(joined) and before.get(kept) is joined[kept]:
            kept += 1
        known = {place: before[place] for place in range(max(0, kept - 2 * CONTEXT_TURNS), kept)}
        return (yield from self._write(scope, thread_id, joined, start=kept, known=known))

    def forget(self, scope: MemoryScope, thread_id: str, message_ids: Collection[str]) -> Body[int]:
        """Take the words of these messages out of a thread and of the contexts around; how many had words.

        Their places stay, so that the thread does not bring them back when it grows or is written again.
        """
        (link,) = yield self._settings.backing.batch(
            [GetOp(episode_links_namespace(thread_id), episode_link_key(scope))]
        )
        around = yield from self._stored(scope, thread_id, range(0 if link is None else len(link.value["keys"])))
        gone = [place for place, one in around.items() if one.message_id in message_ids and one.text]
        around.update({place: dataclasses.replace(around[place], text="") for place in gone})
        near = {place + step for place in gone for step in range(-CONTEXT_TURNS, CONTEXT_TURNS + 1)}
        values = [episode_value(thread_id, place, around) for place in sorted(near.intersection(around))]
        if values:
            writes: list[Op] = [
                PutOp(scope.episodes, episode_key(thread_id, value["position"]), value, self._fields(value))
                for value in values
            ]
            yield from self._put([], writes)
        return len(gone)

    def _stored(self, scope: MemoryScope, thread_id: str, places: Iterable[int]) -> Body[dict[int, Utterance]]:
        wanted = list(places)
        if not wanted:
            return {}
        items = yield self._settings.backing.batch(
            [GetOp(scope.episodes, episode_key(thread_id, place)) for place in wanted]
        )
        return {place: utterance_of(item.value) for place, item in zip(wanted, items, strict=True) if item is not None}

    def _write(
        self,
        scope: MemoryScope,
        thread_id: str,
        utterances: Sequence[Utterance],
        *,
        start: int,
        known: Mapping[int, Utterance],
    ) -> Body[int]:
        """Write from `start` on, and the contexts before it that reach beyond it; `known` are utterances before it."""
        clean = yield from self._redacted(utterances[start:], surface="episode")
        around = dict(known)
        for place, one in enumerate(clean, start=start):
            around[place] = dataclasses.replace(one, text=storable(one.text), speaker=storable(one.speaker))
        places = {episode_key(thread_id, place): place for place in around if place >= start - CONTEXT_TURNS}
        links, link_key = episode_links_namespace(thread_id), episode_link_key(scope)
        *stored, link = yield self._settings.backing.batch(
            [*(GetOp(scope.episodes, key) for key in places), GetOp(links, link_key)]
        )
        forgotten = {item.value["message_id"] for item in stored if item is not None and not item.value["said"]}
        around = {
            place: dataclasses.replace(one, text="") if one.message_id in forgotten else one
            for place, one in around.items()
        }
        values = {key: episode_value(thread_id, place, around) for key, place in places.items()}
        keys = [episode_key(thread_id, place) for place in range(len(utterances))]
        gone = [] if link is None else sorted({*link.value["keys"]}.difference(keys))  # the thread was cut
        changed = [
            key for key, item in zip(values, stored, strict=True) if item is None or dict(item.value) != values[key]
        ]
        if not changed and not gone:
            return 0
        speakers = _speaker_keys(thread_id, around.values())
        spoke = {*link.value["speakers"]} if link is not None else set()
        silent = set() if start else spoke.difference(speakers)  # only a thread written whole is known to lack them
        entry = {"scope": scope.to_dict(), "keys": keys, "speakers": sorted({*speakers, *spoke} - silent)}
        first: list[Op] = [PutOp(links, link_key, entry, False)]
        first += [PutOp(scope.episode_speakers, key, {"speaker": name}, False) for key, name in speakers.items()]
        first += [PutOp(scope.episode_speakers, key, None) for key in sorted(silent)]
        first += [PutOp(scope.episodes, key, None) for key in gone]
        writes: list[Op] = [PutOp(scope.episodes, key, values[key], self._fields(values[key])) for key in changed]
        yield from self._put(first, writes)
        self._settings.emit(EpisodesWritten(items=len(changed), thread_id=thread_id))
        return len(changed)

    def _fields(self, value: Mapping[str, Any]) -> list[str] | Literal[False]:
        """Both, and none of what was forgotten.

        LangGraph's in-memory store refuses the same text twice, which a lone utterance and its context are.
        """
        if not value["said"]:
            return False
        is_alone = value["context"] == value["text"]
        return ["text"] if is_alone and not self._settings.backing.says_how else ["text", "context"]

    def _put(self, first: Sequence[Op], writes: Sequence[Op]) -> Body[None]:
        """All at once where a batch is one transaction; else the links first: what follows can always be erased.

        One at a time then: see `_fields`.
        """
        backing = self._settings.backing
        if backing.says_how:
            yield backing.batch([*first, *writes])
            return
        yield backing.batch(first)
        for write in writes:
            yield backing.batch([write])

    # -- finding ------------------------------------------------------------------------------------------------

    def search(
        self,
        scope: MemoryScope,
        query: str,
        *,
        top_k: int = 10,
        neighbours: int = 0,
        leave_out_thread: str | None = None,
        floor: float | None = None,
    ) -> Body[EpisodeResult]:
        """What was said about this, best first, ties by key.

        With a floor, what has nothing to do with it (see `is_relevant`; the words of the context count, too) and small
        talk are left out.
        """
        if top_k < 1 or neighbours < 0:
            raise ConfigurationError("top_k must be 1 or more, neighbours 0 or more")
        if not query.strip():
            return EpisodeResult()
        backing = self._settings.backing
        if not backing.says_how:  # LangGraph's stores embed the question for each search, also where nothing lies
            (first,) = yield backing.batch([SearchOp(scope.episodes, None, 1, 0, None)])
            if not first:
                return EpisodeResult()
        (clean,) = yield from self._settings.redacted([query], surface="query")
        rows = yield from backing.all_items(scope.episode_speakers)
        named = find_named_speakers(clean or "", {row.value["speaker"] for row in rows})
        filter = None if leave_out_thread is None else {"thread_id": {"$ne": leave_out_thread}}
        answer: FoundItems = yield backing.find(
            scope.episodes,
            # names are cut from what is embedded only; a store with a keyword leg is given them as well
            join_parts([named.without_names, *named.names]) if backing.says_how else named.without_names,
            top_k if named.only is None and floor is None else max(_POOL, top_k * _POOL_PER_RESULT),
            filter=filter,
            field_weights=self._field_weights,
        )
        items, degraded = answer.items, answer.degraded
        if items and items[0].score is None:  # nothing was compared: the newest are better than any
            degraded = degraded or NO_INDEX
            if not backing.lists_newest_first:
                items = yield from backing.all_items(scope.episodes, filter)
        items = [item for item in items if item.value["said"]]  # some stores also list what they do not search
        if floor is not None:
            items = _relevant(items, content_words(clean or ""), floor)
        episodes = [_episode(item, score) for item, score in self._ranked(items, named)[:top_k]]
        if neighbours:
            episodes = yield from self._with_neighbours(scope, episodes, neighbours)
        shown = yield from self._shown(episodes)
        how = FoundBy.of(answer.items[0]).retrieval if answer.items else "recent"
        return EpisodeResult(episodes=tuple(shown), retrieval=answer.retrieval or how, degraded=degraded)

    def _ranked(self, items: Sequence[SearchItem], named: NamedSpeakers) -> list[tuple[SearchItem, float | None]]:
        scores = [item.score for item in items if item.score is not None]
        if len(scores) < len(items) or not scores:
            newest = sorted(items, key=lambda item: (item.value["said_at"], item.value["position"]), reverse=True)
            return [(item, None) for item in newest]
        lowest, best, lifted = min(scores), max(scores), named.only
        if self._settings.backing.says_how or best == lowest:  # fused scores are from 0 to 1 already
            lowest, best = 0.0, 1.0
        scored = [
            (item, (score - lowest) / (best - lowest) + self._speaker_boost * (item.value["speaker"] == lifted))
            for item, score in zip(items, scores, strict=True)
        ]
        return sorted(scored, key=lambda pair: (-pair[1], pair[0].key))

    def _with_neighbours(self, scope: MemoryScope, episodes: Sequence[Episode], count: int) -> Body[list[Episode]]:
        wanted = list(
            dict.fromkeys(
                (episode.thread_id, place)
                for episode in episodes
                for place in range(max(0, episode.position - count), episode.position + count + 1)
                if place != episode.position
            )
        )
        items = yield self._settings.backing.batch(
            [GetOp(scope.episodes, episode_key(thread_id, place)) for thread_id, place in wanted]
        )
        found: Mapping[tuple[str, int], Item | None] = dict(zip(wanted, items, strict=True))
        return [
            dataclasses.replace(
                episode,
                neighbours=tuple(
                    utterance_of(item.value)
                    for offset in range(-count, count + 1)
                    if (item := found.get((episode.thread_id, episode.position + offset))) is not None
                    and offset
                    and item.value["said"]
                ),
            )
            for episode in episodes
        ]

    def _shown(self, episodes: Sequence[Episode]) -> Body[list[Episode]]:
        """Rows written before redaction was on are redacted now."""
        spoken = [one for episode in episodes for one in (episode.utterance, *episode.neighbours)]
        clean = iter((yield from self._redacted(spoken, surface="recall")))
        shown = []
        for episode in episodes:
            own, *around = [next(clean) for _ in (episode.utterance, *episode.neighbours)]
            shown.append(dataclasses.replace(episode, utterance=own, neighbours=tuple(around)))
        return shown

    def _redacted(self, utterances: Sequence[Utterance], *, surface: str) -> Body[list[Utterance]]:
        """The utterances without secrets, in what was said and in the name of who said it: it may be an address."""
        names = [name for name in dict.fromkeys(one.speaker for one in utterances) if name not in ROLE_NAMES]
        clean = yield from self._settings.redacted([*(one.text for one in utterances), *names], surface=surface)
        named = {name: shown or "" for name, shown in zip(names, clean[len(utterances) :], strict=True)}
        return [
            dataclasses.replace(one, text=text or "", speaker=named.get(one.speaker, one.speaker))
            for one, text in zip(utterances, clean, strict=False)
        ]


def _says_nothing(said: str) -> bool:
    """Whether it is thanks, agreement and the like; what has no word at all is something else."""
    return is_small_talk(said) and any(map(str.isalnum, said))


def _relevant(items: Sequence[SearchItem], wanted: frozenset[str], floor: float) -> list[SearchItem]:
    return [
        item
        for item in items
        if not _says_nothing(item.value["said"])
        and is_relevant(FoundBy.of(item), wanted, f"{item.value['text']} {item.value['context']}", floor)
    ]


def _speaker_keys(thread_id: str, utterances: Iterable[Utterance]) -> dict[str, str]:
    """Names of those who speak in the thread, by the key they are kept under; role names are no hint for anybody."""
    names = dict.fromkeys(one.speaker for one in utterances if one.speaker not in ROLE_NAMES)
    return {text_hash(canonical_json([thread_id, name]))[7:31]: name for name in names}


def _episode(item: SearchItem, score: float | None) -> Episode:
    return Episode(
        utterance=utterance_of(item.value),
        thread_id=item.value["thread_id"],
        position=item.value["position"],
        score=score,
        retrieval=FoundBy.of(item).retrieval,
    )
