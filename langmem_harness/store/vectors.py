"""Vectors of one partition: exact search, and an approximate index above a size. The only file that imports faiss.

Up to `exact_limit` rows one matrix product answers, and removing is a flag. Above it, rows are also kept as 4-bit
product-quantised codes (faiss ``IndexPQFastScan``: two numbers share one code, learnt from a sample), which are
scanned in a fraction of the time; the best few hundred are then scored exactly, so every returned cosine is exact and
only the choice of candidates is approximate. Nothing is ever removed from the codes: removed rows are skipped.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]

EXACT_LIMIT = 20_000
"""Rows below which search is exact; one product over them takes about two milliseconds at 384 numbers a vector."""

_SAMPLE = 2_048  # rows the codes are learnt from; more gained nothing on random and on clustered vectors
_ROUNDS = 4
_CODE_VALUES = 16  # a code of 4 bits is learnt from at least as many rows
_FLOOR_SAMPLE = 512
_SMALL_SQUARE, _LARGE_SQUARE = 1e-60, 1e60  # lengths between which nothing is lost by squaring


@functools.cache
def load_faiss() -> Any | None:
    """The faiss module, or None where it cannot be imported: search then stays exact at every size."""
    try:
        import faiss
    except ImportError:
        return None
    return faiss


@contextlib.contextmanager
def _one_thread(faiss: Any) -> Iterator[None]:
    """No thread pool: it hangs in a forked process, and two busy threads learnt the codes in 6 s, one in 0.2 s."""
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(threads)


def normalize(vectors: Sequence[Any], dims: int) -> list[Floats | None]:
    """Unit vectors, float32, shape (dims,); None for one of another shape, zero, or with a number not finite."""
    try:
        matrix = np.asarray(vectors, dtype=np.float64)
    except (TypeError, ValueError):
        matrix = np.empty(0)
    if matrix.ndim != 2 or matrix.shape[1] != dims:
        # one odd vector must not spoil the others
        return [normalize([vector], dims)[0] for vector in vectors] if len(vectors) > 1 else [None] * len(vectors)
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.einsum("ij,ij->i", matrix, matrix)
    if ((squares > _SMALL_SQUARE) & (squares < _LARGE_SQUARE)).all():  # the common case; also: every number is finite
        return list((matrix / np.sqrt(squares)[:, np.newaxis]).astype(np.float32))
    # the largest part first, so that neither huge nor tiny numbers leave the range when squared
    largest = np.abs(matrix).max(axis=1, initial=0.0)
    usable = np.isfinite(largest) & (largest > 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        scaled = matrix / largest[:, np.newaxis]
        units = (scaled / np.linalg.norm(scaled, axis=1)[:, np.newaxis]).astype(np.float32)
    usable &= np.isfinite(units).all(axis=1)
    return [unit if good else None for unit, good in zip(units, usable.tolist(), strict=True)]


class VectorIndex:
    """Unit vectors by row number; rows are appended, never reused.

    Not safe for writing at the same time as anything else: the caller holds a lock.

    Args:
        dims: Length of the vectors.
        exact_limit: Rows below which every search is exact; codes need 16 rows, so fewer are always searched exactly.
    """

    def __init__(self, dims: int, *, exact_limit: int = EXACT_LIMIT) -> None:
        self.dims = dims
        self._exact_limit = max(exact_limit, _CODE_VALUES)
        self._matrix: Floats = np.empty((0, dims), dtype=np.float32)
        self._usable: NDArray[np.bool_] = np.empty(0, dtype=np.bool_)
        self._size = 0
        self._count = 0
        self._codes: Any | None = None
        self._coded = 0

    def __len__(self) -> int:
        return self._count

    def emptied(self) -> VectorIndex:
        """A new, empty index with the same settings."""
        return VectorIndex(self.dims, exact_limit=self._exact_limit)

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        codes = self._coded * ((self.dims + 1) // 2 // 2 + 1) if self._codes is not None else 0
        return self._matrix.nbytes + self._usable.nbytes + codes

    @property
    def matrix(self) -> Floats:
        """All rows, shape (rows, dims); rows without a vector are zero."""
        return self._matrix[: self._size]

    @property
    def usable(self) -> NDArray[np.bool_]:
        """Which rows have a vector and were not removed, shape (rows,)."""
        return self._usable[: self._size]

    def append(self, vectors: Floats) -> None:
        """Add rows, shape (n, dims); a zero row stands for a text without a vector."""
        start, self._size = self._size, self._size + len(vectors)
        if self._size > len(self._matrix):
            capacity = self._size if start == 0 else self._size + self._size // 4 + 16
            grown = np.empty((capacity, self.dims), dtype=np.float32)
            grown[:start] = self._matrix[:start]
            usable = np.zeros(capacity, dtype=np.bool_)
            usable[:start] = self._usable[:start]
            self._matrix, self._usable = grown, usable
        self._matrix[start : self._size] = vectors
        self._usable[start : self._size] = vectors.any(axis=1)
        self._count += int(self._usable[start : self._size].sum())

    def remove(self, first: int, stop: int) -> None:
        """Take out a run of rows."""
        self._count -= int(self._usable[first:stop].sum())
        self._usable[first:stop] = False

    def prepare(self) -> None:
        """Bring the codes up to date; called under the write lock, so that searches only read."""
        if self._count < self._exact_limit or load_faiss() is None:
            return
        faiss = load_faiss()
        if self._codes is None:
            self._codes, self._coded = self._train(faiss), 0
        if self._coded < self._size:
            with _one_thread(faiss):
                self._codes.add(np.ascontiguousarray(self._matrix[self._coded : self._size]))
            self._coded = self._size

    def _train(self, faiss: Any) -> Any:
        codes = faiss.IndexPQFastScan(
            self.dims, self.dims // 2 if self.dims % 2 == 0 else self.dims, 4, faiss.METRIC_INNER_PRODUCT
        )
        codes.pq.cp.niter = _ROUNDS
        codes.pq.cp.min_points_per_centroid = 1
        rows = np.flatnonzero(self.usable)
        step = max(1, len(rows) // _SAMPLE)
        with _one_thread(faiss):
            codes.train(np.ascontiguousarray(self._matrix[rows[::step][:_SAMPLE]]))
        return codes

    @property
    def is_exact(self) -> bool:
        """Whether a search over all rows looks at every vector."""
        return self._codes is None or self._count < self._exact_limit

    def cosines(self, query: Floats, rows: Rows | None = None) -> Floats:
        """Exact cosines in [-1, 1], float32, of the given rows (None: all, also unusable ones, which get 0).

        Row by row (`numpy.vecdot`), not as a product of matrix and vector: that gives equal rows scores which differ
        in the last bit, so that ties are not ties, and its two threads took 24 ms instead of 2 on busy cores.
        """
        scores: Floats = np.vecdot(self.matrix if rows is None else self._matrix[rows], query)
        clipped: Floats = np.clip(scores, -1.0, 1.0, out=scores)
        return clipped

    def nearest(self, query: Floats, count: int) -> Rows:
        """At least about the `count` nearest usable rows, by code, in no order; all usable ones if there are fewer.

        Needs codes (`is_exact` is False). Removed rows are still among the codes: as many more are looked at as it
        takes, even when all of them lie next to the query.
        """
        faiss = load_faiss()
        if self._codes is None or faiss is None or count >= self._count:
            return np.flatnonzero(self.usable)
        fetch = count + min(self._coded - self._count, count)
        while True:
            with _one_thread(faiss):
                _, found = self._codes.search(query[np.newaxis], min(fetch, self._coded))
            rows: Rows = found[0]
            rows = rows[rows >= 0]
            rows = rows[self._usable[rows]]
            if len(rows) >= count or fetch >= self._coded:
                return rows
            fetch *= 4

    def lowest(self, query: Floats) -> float:
        """About the lowest cosine of all rows, from the first ones: what a fused score counts as nothing."""
        sample = np.flatnonzero(self.usable)[:_FLOOR_SAMPLE]
        return float((self._matrix[sample] @ query).min()) if len(sample) else -1.0
