"""The keyword leg: BM25 over one namespace, and the form in which SQLite keeps a document's terms."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langmem_harness.errors import ConfigurationError
from langmem_harness.store.postings import Batch, Entries, Postings
from langmem_harness.store.ranking import select_top
from langmem_harness.store.terms import MAX_COUNT, unpack_many, unpack_terms
from langmem_harness.store.tokenizer import Tokenizer

__all__ = ["KeywordHits", "KeywordIndex", "Tokenizer"]

_MIN_DEAD = 256  # below this many removed rows, cleaning up costs more than it frees
_SMALL_SHARE = 8  # fewer new rows than this share of an index are added one by one: adding many rewrites it
_TEXTS_AT_ONCE = 4_096  # the texts of a hundred thousand documents need not be in memory together
_BYTES_A_ROW = 110  # dictionary entry of one row


@dataclass(frozen=True, kw_only=True)
class KeywordHits:
    """Documents that contain at least one query term, best first; equal scores by row, ascending.

    Attributes:
        rows: int64, shape (n,), unique.
        scores: float32, shape (n,), above 0, descending.
        coverage: float32, shape (n,): share of the distinct query terms the document contains, above 0 to 1.
    """

    rows: NDArray[np.int64]
    scores: NDArray[np.float32]
    coverage: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.rows)


class KeywordIndex:
    """BM25 over the documents of one namespace, kept up to date row by row.

    score(d, q) = sum over the distinct terms t of q of
        idf(t) * tf(t, d) * (k1 + 1) / (tf(t, d) + k1 * (1 - b + b * length(d) / average_length))
    idf(t) = ln(1 + (n - df(t) + 0.5) / (df(t) + 0.5))

    Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), with the 1 inside the
    logarithm that Lucene uses, so that idf is never negative. n, df and average_length are those of the whole
    namespace, also when `rows` restricts a search: a filter takes documents away and changes nobody's score.

    Adding a row costs its distinct terms; removing one marks it, and the marks are swept when they outnumber what is
    left, so both are cheap on average. Searches may run side by side; a change needs the index to itself: the caller
    holds the lock.

    Args:
        k1: How slowly repetition of a term saturates; 0 or more, 0 counts presence only.
        b: How much long documents are discounted; 0 (not at all) to 1.

    Raises:
        ConfigurationError: `k1` or `b` is out of range.
    """

    def __init__(self, k1: float = 1.5, b: float = 0.75) -> None:
        if not 0 <= k1 < float("inf"):
            raise ConfigurationError(f"k1 must be a number of 0 or more, not {k1!r}")
        if not 0 <= b <= 1:
            raise ConfigurationError(f"b must be from 0 to 1, not {b!r}")
        self.k1 = k1
        self.b = b
        self._clear()

    def _clear(self) -> None:
        # A row lives in a slot; slots are handed out in order and never reused before a sweep.
        self._slots: dict[int, int] = {}
        self._postings = Postings()
        self._rows: NDArray[np.int64] = np.empty(16, dtype=np.int64)
        self._lengths: NDArray[np.float64] = np.empty(16, dtype=np.float64)
        self._alive: NDArray[np.bool_] = np.zeros(16, dtype=np.bool_)
        self._used = 0
        self._total_length = 0
        self._is_ascending = True  # rows rise with their slots: then they are found by bisection
        self._discounts: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, row: int) -> bool:
        return row in self._slots

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes; the part in Python's own dictionaries is estimated."""
        arrays = self._rows.nbytes + self._lengths.nbytes + self._alive.nbytes
        if self._discounts is not None:
            arrays += self._discounts.nbytes
        return arrays + self._postings.nbytes + _BYTES_A_ROW * len(self._slots)

    # -- writing ------------------------------------------------------------------------------------------------

    def add(self, row: int, term_counts: Mapping[str, int]) -> None:
        """Index one document, in place of what the row held before.

        Args:
            row: Any integer of 64 bits.
            term_counts: How often each term occurs, 1 or more. Empty is allowed: the row then matches nothing, but
                counts as a document.
        """
        if row in self._slots:
            self.remove(row)
        slot = self._used
        self._reserve(1)
        length = sum(term_counts.values())
        self._rows[slot] = row
        self._is_ascending = self._is_ascending and (not slot or bool(self._rows[slot - 1] < row))
        self._postings.add(slot, term_counts)
        self._slots[row] = slot
        self._lengths[slot] = length
        self._alive[slot] = True
        self._used += 1
        self._total_length += length
        self._discounts = None

    def add_many(self, documents: Iterable[tuple[int, Mapping[str, int]]]) -> None:
        """`add` for each (row, term counts), in order; much faster than that when they are many."""
        new = dict(documents)
        if len(new) < len(self._slots) // _SMALL_SHARE:
            for row, term_counts in new.items():
                self.add(row, term_counts)
            return
        for row in self._slots.keys() & new.keys():
            self.remove(row)
        terms = list(itertools.chain.from_iterable(new.values()))
        counts = itertools.chain.from_iterable(term_counts.values() for term_counts in new.values())
        all_counts = np.fromiter((min(count, MAX_COUNT) for count in counts), dtype=np.uint32, count=len(terms))
        self._add_batches(list(new), [(terms, all_counts, list(map(len, new.values())))])

    def add_packed(self, rows: Sequence[int], packed: Sequence[bytes]) -> None:
        """`add` for many rows at once, from stored terms; a whole namespace costs microseconds for each row.

        Args:
            rows: Integers of 64 bits, each once.
            packed: Terms of each row, from `pack_terms`.

        Raises:
            CorruptionError: Stored terms are damaged; then no row is added.
        """
        if len(rows) < len(self._slots) // _SMALL_SHARE or not self._slots.keys().isdisjoint(rows):
            self.add_many(list(zip(rows, map(unpack_terms, packed), strict=True)))
            return
        starts = range(0, len(packed), _TEXTS_AT_ONCE)
        self._add_batches(rows, (unpack_many(packed[start : start + _TEXTS_AT_ONCE]) for start in starts))

    def _add_batches(self, rows: Sequence[int], batches: Iterable[Batch]) -> None:
        """Add documents of rows that are not here; the batches have as many documents as there are rows."""
        slot, new_rows = self._used, np.array(rows, dtype=np.int64)
        lengths = self._postings.add_batches(slot, batches)
        self._reserve(len(rows))
        stop = slot + len(rows)
        self._rows[slot:stop] = new_rows
        self._is_ascending = self._is_ascending and bool((np.diff(self._rows[max(slot - 1, 0) : stop]) > 0).all())
        self._slots.update(zip(rows, range(slot, stop), strict=True))
        self._lengths[slot:stop] = lengths
        self._alive[slot:stop] = True
        self._used = stop
        self._total_length += int(lengths.sum())
        self._discounts = None

    def remove(self, row: int) -> bool:
        """Forget a row; False if it was not there."""
        slot = self._slots.pop(row, None)
        if slot is None:
            return False
        self._alive[slot] = False
        self._total_length -= int(self._lengths[slot])
        self._discounts = None
        if not self._slots:
            self._clear()
        elif self._used - len(self._slots) > max(_MIN_DEAD, len(self._slots)):
            self._sweep()
        return True

    def _reserve(self, count: int) -> None:
        """Room for so many more slots."""
        needed, held = self._used + count, len(self._rows)
        if needed > held:
            more = max(needed, 2 * held) - held
            self._rows = np.concatenate([self._rows, np.zeros(more, dtype=np.int64)])
            self._lengths = np.concatenate([self._lengths, np.zeros(more, dtype=np.float64)])
            self._alive = np.concatenate([self._alive, np.zeros(more, dtype=np.bool_)])

    def _sweep(self) -> None:
        """Drop the postings of removed rows and close the gaps between slots."""
        alive = self._alive[: self._used]
        self._postings.sweep(alive)
        self._rows = self._rows[: self._used][alive]
        self._lengths = self._lengths[: self._used][alive]
        self._used = len(self._rows)
        self._alive = np.ones(self._used, dtype=np.bool_)
        self._slots = {row: slot for slot, row in enumerate(self._rows.tolist())}

    # -- reading ------------------------------------------------------------------------------------------------

    def search(
        self,
        query_terms: Iterable[str],
        *,
        rows: NDArray[np.integer[Any]] | None = None,
        limit: int | None = None,
        also: NDArray[np.integer[Any]] | None = None,
    ) -> KeywordHits:
        """Documents that contain a term of the query, best first; equal scores by row. Arguments as for `match`."""
        hits = self.match(query_terms, rows=rows, limit=limit, also=also)
        order = select_top(hits.scores, hits.rows)
        return KeywordHits(rows=hits.rows[order], scores=hits.scores[order], coverage=hits.coverage[order])

    def match(
        self,
        query_terms: Iterable[str],
        *,
        rows: NDArray[np.integer[Any]] | None = None,
        limit: int | None = None,
        also: NDArray[np.integer[Any]] | None = None,
    ) -> KeywordHits:
        """Documents that contain a term of the query, rows ascending.

        Args:
            query_terms: Terms from the tokenizer that made the documents' terms. A term counts once however often
                the query repeats it, and their order does not matter.
            rows: Only these rows may answer; unknown ones are ignored. None: all.
            limit: How many of the best to return at most; None for all.
            also: Rows whose score is wanted whatever their place, such as the candidates of another leg. Those that
                contain a term are returned beyond `limit` and whether or not `rows` has them, each in its place.

        Returns:
            Hits; none for a query without terms or without a match.
        """
        terms = sorted(set(query_terms))
        if not terms or not self._slots:
            return _NO_HITS
        entries = [self._postings.entries(term) for term in terms]
        scores = self._score(entries)
        chosen = self._best(scores if rows is None else self._only(scores, rows), limit)
        if also is not None:
            extra = self._slots_of(also)
            chosen = np.concatenate([chosen, extra[scores[extra] > 0]])
        chosen.sort()  # which makes the searches for their shares several times as fast
        if also is not None:
            chosen = chosen[np.append(True, chosen[1:] != chosen[:-1])[: len(chosen)]]
        hits = KeywordHits(rows=self._rows[chosen], scores=scores[chosen], coverage=_shares(entries, chosen))
        if self._is_ascending:
            return hits
        order = np.argsort(hits.rows)
        return KeywordHits(rows=hits.rows[order], scores=hits.scores[order], coverage=hits.coverage[order])

    def _score(self, entries: Sequence[Entries]) -> NDArray[np.float32]:
        """Score of every slot; above 0 exactly where a slot is alive and contains a term."""
        scores = np.zeros(self._used, dtype=np.float32)
        discounts, saturation = self._find_discounts(), np.float32(1 / (self.k1 + 1))
        has_dead = self._used != len(self._slots)
        for slots, counts in entries:
            frequency = np.count_nonzero(self._alive[slots]) if has_dead else len(slots)
            if not frequency:
                continue
            idf = np.log1p((len(self._slots) - frequency + 0.5) / (frequency + 0.5))
            # tf * (k1 + 1) / (tf + discount) with both sides of the fraction divided by k1 + 1: no k1 is too large
            weights = discounts.take(slots)
            weights += saturation * counts
            np.divide(counts, weights, out=weights)
            weights *= np.float32(idf)
            np.add.at(scores, slots, weights)
        return scores

    def _best(self, scores: NDArray[np.float32], limit: int | None) -> NDArray[np.intp]:
        """Slots of the `limit` best scores above 0, in no order; of equal scores those with the smallest rows."""
        if limit is None or limit >= self._used:
            return np.flatnonzero(scores > 0)
        if limit <= 0:
            return np.empty(0, dtype=np.intp)
        smallest = np.partition(scores, self._used - limit)[self._used - limit]
        if smallest <= 0:
            return np.flatnonzero(scores > 0)
        better, equal = np.flatnonzero(scores > smallest), np.flatnonzero(scores == smallest)
        missing = limit - len(better)  # often fewer than are equal: short documents share their scores
        if missing < len(equal):
            equal = equal[np.argpartition(self._rows[equal], missing)[:missing]]
        return np.concatenate([better, equal])

    def _only(self, scores: NDArray[np.float32], rows: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
        """The scores with 0 for every other row."""
        slots = self._slots_of(rows)
        restricted = np.zeros_like(scores)
        restricted[slots] = scores[slots]
        return restricted

    def _find_discounts(self) -> NDArray[np.float32]:
        """k1 / (k1 + 1) * (1 - b + b * length / average) of every slot; infinite, which scores 0, for removed ones."""
        if self._discounts is None:
            average = max(self._total_length / len(self._slots), 1e-9)  # all documents may be without a word
            norms = 1 - self.b + self.b * self._lengths[: self._used] / average
            discounts = self.k1 / (self.k1 + 1) * norms
            self._discounts = np.where(self._alive[: self._used], discounts, np.inf).astype(np.float32)
        return self._discounts

    def _slots_of(self, rows: NDArray[np.integer[Any]]) -> NDArray[np.intp]:
        """Slots of the rows that are here, in no order; a row that is repeated may be, too."""
        if not self._is_ascending:
            known = map(self._slots.get, rows.tolist())
            return np.fromiter((slot for slot in known if slot is not None), dtype=np.intp)
        rows = rows.astype(np.int64, copy=False)  # or numpy copies the larger side
        places = np.minimum(np.searchsorted(self._rows[: self._used], rows), self._used - 1)
        found: NDArray[np.intp] = places[(self._rows[places] == rows) & self._alive[places]]
        return found


_NO_HITS = KeywordHits(
    rows=np.empty(0, dtype=np.int64), scores=np.empty(0, dtype=np.float32), coverage=np.empty(0, dtype=np.float32)
)


def _shares(entries: Sequence[Entries], slots: NDArray[np.intp]) -> NDArray[np.float32]:
    """Share of the terms, given as their entries, that each slot contains."""
    matched = np.zeros(len(slots), dtype=np.float32)
    for having, _ in entries:
        if len(having):
            places = np.minimum(np.searchsorted(having, slots), len(having) - 1)
            matched += having[places] == slots
    return matched / np.float32(len(entries))
