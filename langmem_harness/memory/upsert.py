"""Deciding what a new statement does to what is known. Pure: records in, a plan out.

Newest wins by subject and attribute, settled by ordinals and without a model; exact duplicates are settled by key, near
duplicates by cosine and a comparison of the words that carry a difference.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from langmem_harness.memory.records import MemoryRecord, fold, merge_sources
from langmem_harness.memory.words import NEGATIONS, NUMBER_WORDS

UpsertAction = Literal["added", "unchanged", "merged", "superseded", "older", "refused"]
"""What an upsert did: a new memory; nothing new; a source added to one that says the same; the slot has a new value; an
older statement went to the history; a rule refused it."""

_NUMBER = re.compile(r"\d+(?:[.,:/-]\d+)*")
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")


@dataclass(frozen=True, kw_only=True)
class UpsertPlan:
    """What to write.

    Attributes:
        action: See `UpsertAction`.
        record: The current memory after the write.
        writes_record: Whether `record` has to be written (False: it is stored as it is, or only the history grows).
        versions: Statements for the history. A slot's statements are all in it, the current one too, so that a
            writer who lost a race finds what it would have overwritten.
    """

    action: UpsertAction
    record: MemoryRecord
    writes_record: bool = True
    versions: tuple[MemoryRecord, ...] = ()


def plan_upsert(new: MemoryRecord, current: MemoryRecord | None, neighbours: Sequence[MemoryRecord] = ()) -> UpsertPlan:
    """Decide what `new` does.

    Args:
        new: The statement as a record of its own.
        current: What is stored under the same key and has not expired, or None.
        neighbours: Near duplicates by cosine, best first; only looked at when `new` fills no slot.
    """
    if current is None:
        twin = next((other for other in neighbours if says_the_same(new.text, other.text)), None)
        if twin is not None:
            return _merge(twin, new)
        return UpsertPlan(action="added", record=new, versions=() if new.subject is None else (new,))
    if fold(current.text) == fold(new.text) and current.retracted == new.retracted:
        return _merge(current, new)
    if new.ordinal < current.ordinal:
        return UpsertPlan(action="older", record=current, writes_record=False, versions=(new,))
    successor = dataclasses.replace(new, supersedes=current.version_key, created_at=current.created_at)
    return UpsertPlan(action="superseded", record=successor, versions=(current, successor))


def says_the_same(text: str, other: str) -> bool:
    """Whether two texts that are close in meaning agree in every number, negation and name.

    Embeddings put "two children" beside "three children" and "eats meat" beside "does not eat meat"; merging those
    would lose the newer statement.
    """
    return _distinguishing(text) == _distinguishing(other)


def _distinguishing(text: str) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    words = [(match.start(), match.group().replace("’", "'")) for match in _WORD.finditer(text)]
    negations = frozenset(folded for _, word in words if (folded := word.casefold()) in NEGATIONS)
    names = frozenset(
        word.casefold()
        for start, word in words
        if word[0].isupper() and word != "I" and not _begins_sentence(text, start)
    )
    numbers = frozenset(_NUMBER.findall(text)) | frozenset(
        folded for _, word in words if (folded := word.casefold()) in NUMBER_WORDS
    )
    return numbers, negations, names


def _begins_sentence(text: str, start: int) -> bool:
    before = text[:start].rstrip(" \t\"'“”‘’([{-–—*•")
    return not before or before[-1] in ".!?:\n"


def _merge(known: MemoryRecord, new: MemoryRecord) -> UpsertPlan:
    expiries = (known.expires_at, new.expires_at)
    sources = merge_sources(known.sources, new.sources)
    merged = dataclasses.replace(
        known,
        sources=sources,
        ordinal=max(known.ordinal, new.ordinal),
        updated_at=new.updated_at,
        expires_at=None if None in expiries else max(filter(None, expiries)),
    )
    if sources != known.sources:
        return UpsertPlan(action="merged", record=merged)
    # said again at the same place: only a later expiry, or a later position in a slot, is worth a write
    has_news = merged.expires_at != known.expires_at or (known.subject is not None and merged.ordinal > known.ordinal)
    return UpsertPlan(action="unchanged", record=merged if has_news else known, writes_record=has_news)
