"""Which documents contain a term, and how often: the postings of one namespace."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langmem_harness.store.terms import MAX_COUNT

Entries = tuple[NDArray[np.intp], NDArray[np.float32]]
"""Slots that contain a term, ascending, and how often each contains it."""

Batch = tuple[list[str], NDArray[np.uint32], list[int]]
"""The terms of some documents, one document after the other; how often each occurs; how many each document has."""

_SLOT_BITS = 32
_SLOT_MASK = (1 << _SLOT_BITS) - 1
_MIN_RECENT = 4_096  # below this many new postings, merging costs more than it saves
_NO_NUMBERS: NDArray[np.int64] = np.empty(0, dtype=np.int64)
_NO_SLOTS: NDArray[np.int32] = np.empty(0, dtype=np.int32)
_NO_COUNTS: NDArray[np.float32] = np.empty(0, dtype=np.float32)
_BYTES_A_MERGED_TERM = 150  # text, number and dictionary entry, measured on CPython 3.11
_BYTES_A_RECENT_TERM = 300  # the same and an array object of its own


class Postings:
    """Postings by term. A document is a slot, a number from 0; slots come in ascending order.

    Most of them lie in two arrays, term after term. What was added one by one since lies in a small array for each
    term, until there is so much of it that merging pays. Nothing is ever changed in place: arrays that were handed
    out stay as they were.
    """

    def __init__(self) -> None:
        self._merged = _Numbering()
        self._starts: NDArray[np.int64] = np.zeros(1, dtype=np.int64)
        self._slots: NDArray[np.int32] = np.empty(0, dtype=np.int32)
        self._counts: NDArray[np.float32] = np.empty(0, dtype=np.float32)
        self._recent: dict[str, array[int]] = {}  # of `count << 32 | slot`
        self._recent_size = 0

    def __len__(self) -> int:
        """Postings, those of removed documents included until the next `sweep`."""
        return len(self._slots) + self._recent_size

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes; the part in Python's own dictionaries is estimated."""
        arrays = self._starts.nbytes + self._slots.nbytes + self._counts.nbytes + 8 * self._recent_size
        return arrays + _BYTES_A_MERGED_TERM * len(self._merged) + _BYTES_A_RECENT_TERM * len(self._recent)

    def entries(self, term: str) -> Entries:
        """Slots that contain the term, and how often; empty for an unknown term."""
        number, recent = self._merged.get(term), self._recent.get(term)
        start, stop = (0, 0) if number is None else self._starts[number : number + 2].tolist()
        slots, counts = self._slots[start:stop].astype(np.intp), self._counts[start:stop]
        if recent is None:
            return slots, counts
        newer_slots, newer_counts = _unpack(recent.tobytes())
        return np.concatenate([slots, newer_slots]), np.concatenate([counts, newer_counts])

    def add(self, slot: int, term_counts: Mapping[str, int]) -> None:
        """Add one document, behind all others; costs its distinct terms, on average."""
        recent = self._recent
        for term, count in term_counts.items():
            entry = (min(count, MAX_COUNT) << _SLOT_BITS) | slot
            existing = recent.get(term)
            if existing is None:
                recent[term] = array("Q", (entry,))
            else:
                existing.append(entry)
        self._recent_size += len(term_counts)
        if self._recent_size > max(_MIN_RECENT, len(self._slots) // 2):
            self._merge()

    def add_batches(self, first_slot: int, batches: Iterable[Batch]) -> NDArray[np.int64]:
        """Add many documents at once, behind all others; costs as much as all that is here already.

        Args:
            first_slot: Slot of the first; the others follow.
            batches: The documents, some at a time.

        Returns:
            int64, the length of each document: how many terms it has, repetitions counted.

        Raises:
            CorruptionError: From the batches; then, as after any error of theirs, nothing is added.
        """
        known = len(self._merged)
        numbers, counts, sizes = [_NO_NUMBERS], [np.empty(0, dtype=np.uint32)], list[int]()
        try:
            for terms, some_counts, some_sizes in batches:
                numbers.append(self._merged.numbers_of(terms))
                counts.append(some_counts)
                sizes += some_sizes
        except BaseException:
            for term in list(itertools.islice(self._merged, known, None)):
                del self._merged[term]
            raise
        documents = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
        all_counts = np.concatenate(counts)
        self._merge(np.concatenate(numbers), documents + np.int32(first_slot), all_counts.astype(np.float32))
        return np.bincount(documents, weights=all_counts, minlength=len(sizes)).astype(np.int64)

    def sweep(self, alive: NDArray[np.bool_]) -> None:
        """Drop what belongs to removed documents, and close the gaps between slots.

        Args:
            alive: shape (slots,), whether each slot stays.
        """
        self._merge()
        kept = alive[self._slots]
        numbers = np.repeat(np.arange(len(self._merged)), np.diff(self._starts))[kept]
        sizes = np.bincount(numbers, minlength=len(self._merged))
        self._slots = (np.cumsum(alive, dtype=np.int32) - np.int32(1))[self._slots[kept]]
        self._counts = self._counts[kept]
        self._starts = _starts(sizes[sizes > 0])
        remaining = itertools.compress(self._merged, (sizes > 0).tolist())
        self._merged = _Numbering(zip(remaining, itertools.count(), strict=False))

    def _merge(
        self,
        numbers: NDArray[np.int64] = _NO_NUMBERS,
        slots: NDArray[np.int32] = _NO_SLOTS,
        counts: NDArray[np.float32] = _NO_COUNTS,
    ) -> None:
        """Sort by term: what is merged, then what is recent, then the postings given, which are of later slots."""
        sizes = np.diff(self._starts)
        recent_sizes = np.fromiter(map(len, self._recent.values()), dtype=np.int64, count=len(self._recent))
        # joined as bytes: numpy takes microseconds for each array it makes of a small buffer
        recent_slots, recent_counts = _unpack(b"".join(self._recent.values()))
        all_numbers = np.concatenate(
            [
                np.repeat(np.arange(len(sizes)), sizes),
                np.repeat(self._merged.numbers_of(self._recent), recent_sizes),
                numbers,
            ]
        )
        # sorting number and place in one integer is stable, and several times as fast as a stable argsort
        order = np.sort(all_numbers << _SLOT_BITS | np.arange(len(all_numbers))) & _SLOT_MASK
        self._slots = np.concatenate([self._slots, recent_slots.astype(np.int32), slots])[order]
        self._counts = np.concatenate([self._counts, recent_counts, counts])[order]
        self._starts = _starts(np.bincount(all_numbers, minlength=len(self._merged)))
        self._recent, self._recent_size = {}, 0


class _Numbering(dict[str, int]):
    """Numbers terms from 0 in the order they are first asked for."""

    def __missing__(self, term: str) -> int:
        number = self[term] = len(self)
        return number

    def numbers_of(self, terms: Collection[str]) -> NDArray[np.int64]:
        """Number of each term; new terms get one."""
        return np.fromiter(map(self.__getitem__, terms), dtype=np.int64, count=len(terms))


def _unpack(data: bytes) -> Entries:
    entries = np.frombuffer(data, dtype=np.uint64)
    return (entries & _SLOT_MASK).astype(np.intp), (entries >> _SLOT_BITS).astype(np.float32)


def _starts(sizes: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    return np.append(0, np.cumsum(sizes, dtype=np.int64))
