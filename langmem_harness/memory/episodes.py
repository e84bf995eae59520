"""`EpisodeIndex`: what was said in earlier threads, searchable. "Which solution did we choose last time?"

Each utterance is an item with two fields: its own text (date, speaker, words) and its context (two utterances before
and after: the mean of their vectors, and their words). Both fields are searched by meaning and by words, and fused by
weights.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

from langgraph.store.base import BaseStore

from langmem_harness.driving import adrive, drive
from langmem_harness.errors import ConfigurationError
from langmem_harness.memory.past import FIELD_WEIGHTS, SPEAKER_BOOST, Episode, EpisodeResult, Past
from langmem_harness.memory.recall import date_text
from langmem_harness.memory.scope import MemoryScope
from langmem_harness.memory.service import LongTermMemory
from langmem_harness.memory.speakers import person_of, turns_in_log
from langmem_harness.memory.utterances import (
    TurnLog,
    Utterance,
    screen_line,
    spoken_line,
    utterances_of,
    utterances_of_entries,
)
from langmem_harness.screening import screen_text

__all__ = ["Episode", "EpisodeIndex", "EpisodeResult", "Utterance", "describe_episode", "utterances_of"]


class EpisodeIndex:
    """Earlier threads of an owner, by utterance.

    Indexing a thread again writes only what changed. Everything is redacted before it is stored, and goes when
    `LongTermMemory.erase_thread` or ``forget_all`` is called.

    Args:
        memory: Gives store, redactor and clock; a store alone gets a `LongTermMemory` with its defaults.
        thread_log: Where `index_logged_thread` reads; any `ThreadLog`.
        field_weights: Weights of ``"text"`` and ``"context"``; needs `FaissStore`, others take an item's best field.
        speaker_boost: Added to the fused score (0 to 1) when the item's speaker is the one person the question names;
            0 or more.

    Raises:
        ConfigurationError: Settings that cannot work.
    """

    def __init__(
        self,
        memory: LongTermMemory | BaseStore,
        thread_log: TurnLog | None = None,
        *,
        field_weights: Mapping[str, float] = FIELD_WEIGHTS,
        speaker_boost: float = SPEAKER_BOOST,
    ) -> None:
        memory = memory if isinstance(memory, LongTermMemory) else LongTermMemory(memory)
        self._past = Past(memory.settings, field_weights=field_weights, speaker_boost=speaker_boost)
        self._thread_log = thread_log

    def index_thread(self, scope: MemoryScope, thread_id: str, utterances: Sequence[Utterance]) -> int:
        """Make a thread searchable.

        Args:
            scope: Whose thread it is.
            thread_id: Its id.
            utterances: The whole thread so far, in order; see `utterances_of`. Empty: nothing is done.

        Returns:
            Items written: those that are new or whose context changed.
        """
        return drive(self._past.index(scope, thread_id, utterances)) if utterances else 0

    async def aindex_thread(self, scope: MemoryScope, thread_id: str, utterances: Sequence[Utterance]) -> int:
        """Async twin of `index_thread`."""
        return await adrive(self._past.index(scope, thread_id, utterances)) if utterances else 0

    def index_logged_thread(self, scope: MemoryScope, thread_id: str) -> int:
        """Make the completed turns of a logged thread searchable, each utterance with the date of its entry.

        Turns that the log ascribes to another user are left out.

        Args:
            scope: Whose turns; those the log ascribes to nobody count as theirs.
            thread_id: Its id.

        Returns:
            Items written, as in `index_thread`.

        Raises:
            ConfigurationError: The index was made without a thread log.
        """
        return self.index_thread(scope, thread_id, self._logged(scope, thread_id))

    async def aindex_logged_thread(self, scope: MemoryScope, thread_id: str) -> int:
        """Async twin of `index_logged_thread`."""
        return await self.aindex_thread(scope, thread_id, await asyncio.to_thread(self._logged, scope, thread_id))

    def search(
        self,
        scope: MemoryScope,
        query: str,
        *,
        top_k: int = 10,
        neighbours: int = 0,
        leave_out_thread: str | None = None,
    ) -> EpisodeResult:
        """What was said about this in earlier threads, best first, ties by key.

        Args:
            scope: Whose threads.
            query: A question; names of speakers in it are taken as hints for who said it.
            top_k: How many, 1 or more.
            neighbours: How many utterances before and after to return with each, 0 or more.
            leave_out_thread: A thread that is not searched: the running one.
        """
        return drive(
            self._past.search(scope, query, top_k=top_k, neighbours=neighbours, leave_out_thread=leave_out_thread)
        )

    async def asearch(
        self,
        scope: MemoryScope,
        query: str,
        *,
        top_k: int = 10,
        neighbours: int = 0,
        leave_out_thread: str | None = None,
    ) -> EpisodeResult:
        """Async twin of `search`."""
        return await adrive(
            self._past.search(scope, query, top_k=top_k, neighbours=neighbours, leave_out_thread=leave_out_thread)
        )

    def _logged(self, scope: MemoryScope, thread_id: str) -> list[Utterance]:
        if self._thread_log is None:
            raise ConfigurationError("this index has no thread log: pass thread_log= to EpisodeIndex")
        entries = self._thread_log.events(thread_id)
        return utterances_of_entries(entries, turns_in_log(entries, person_of(scope)))


def describe_episode(episode: Episode) -> tuple[dict[str, object], Mapping[str, int]]:
    """One episode as plain values for a model, everything said screened; and what was found, by rule."""
    findings: Counter[str] = Counter()

    def say(one: Utterance) -> str:
        screening = screen_line(spoken_line(one.speaker, one.text))
        findings.update(screening.counts)
        return screening.text

    thread = screen_text(episode.thread_id[:80]).text
    entry: dict[str, object] = {
        "date": date_text(episode.utterance.said_at),
        "thread": thread,
        "source": f"said in thread {thread}",
        "found": episode.retrieval,
        "said": say(episode.utterance),
    }
    if episode.score is not None:
        entry["score"] = round(episode.score, 3)
    if episode.neighbours:
        entry["around"] = [say(one) for one in episode.neighbours]
    return entry, dict(findings)
