"""Texts of several parts: a document is the mean of its parts, of a query only the first part is embedded.

Two things cannot be said with one string: "the vector of this field is the mean of these texts' vectors", and "search
by meaning with this, and by words with that as well". Parts joined by U+001E, the character that was made to separate
records, say both, and a store that knows nothing of it hands them on; the keyword leg reads the words of all parts.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from langchain_core.embeddings import Embeddings
from numpy.typing import NDArray

from langmem_harness.errors import ConfigurationError, EmbeddingError

PART_SEPARATOR = "\x1e"

MAX_ENTRIES = 2_048
"""Vectors of parts kept in memory: 3 MB at 384 dims."""

_Vector = NDArray[np.float32]


def join_parts(parts: Iterable[str]) -> str:
    """One text of these parts, blank ones left out; a separator inside a part becomes a space."""
    return PART_SEPARATOR.join(text for part in parts if (text := part.replace(PART_SEPARATOR, " ")).strip())


def split_parts(text: str) -> list[str]:
    """The parts of a text, blank ones left out; the text itself when it has one part."""
    if PART_SEPARATOR not in text:
        return [text]
    return [part for part in text.split(PART_SEPARATOR) if part.strip()] or [text]


class PartEmbeddings(Embeddings):
    """Any embeddings, for texts of several parts.

    The vector of a document is the sum of its parts' vectors, each at unit length, at unit length again. In calls with
    such texts each part is embedded once, and its vector remembered, so that texts which share parts (an utterance and
    its neighbours) cost no more than their parts. Calls without one go to the model as they are. Safe to share between
    threads and event loops; no lock is held while the model works.

    Args:
        underlying_embeddings: The model.
        max_entries: Vectors of parts kept in memory, 0 or more; the least recently used go first.

    Raises:
        ConfigurationError: `max_entries` is below 0.

    Example:
        >>> from langmem_harness.testing import DeterministicEmbeddings
        >>> embeddings = PartEmbeddings(DeterministicEmbeddings())
        >>> both = embeddings.embed_documents([join_parts(["red pump", "grey seal"])])[0]
        >>> len(both) == len(embeddings.embed_query("seal"))
        True
    """

    def __init__(self, underlying_embeddings: Embeddings, *, max_entries: int = MAX_ENTRIES) -> None:
        if max_entries < 0:
            raise ConfigurationError(f"max_entries must be 0 or more, not {max_entries!r}")
        self.underlying_embeddings = underlying_embeddings
        self._max_entries = max_entries
        self._entries: OrderedDict[str, _Vector] = OrderedDict()
        self._lock = threading.Lock()

    @classmethod
    def around(cls, embeddings: Embeddings) -> PartEmbeddings:
        """These embeddings for texts of several parts; themselves if they can do it already."""
        return embeddings if isinstance(embeddings, cls) else cls(embeddings)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Vectors of the texts, in order.

        Raises:
            EmbeddingError: The model gave another number of vectors than texts.
        """
        if not _has_parts(texts):
            return self.underlying_embeddings.embed_documents(texts)
        known, missing = self._look_up(texts)
        vectors = self.underlying_embeddings.embed_documents(missing) if missing else []
        return self._finish(texts, known, missing, vectors)

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """Async twin of `embed_documents`."""
        if not _has_parts(texts):
            return await self.underlying_embeddings.aembed_documents(texts)
        known, missing = self._look_up(texts)
        vectors = await self.underlying_embeddings.aembed_documents(missing) if missing else []
        return self._finish(texts, known, missing, vectors)

    def embed_query(self, text: str) -> list[float]:
        """Vector of the query's first part."""
        return self.underlying_embeddings.embed_query(split_parts(text)[0])

    async def aembed_query(self, text: str) -> list[float]:
        """Async twin of `embed_query`."""
        return await self.underlying_embeddings.aembed_query(split_parts(text)[0])

    def _look_up(self, texts: Sequence[str]) -> tuple[dict[str, _Vector], list[str]]:
        """Parts whose vectors are remembered, and those still to embed, each once."""
        parts = dict.fromkeys(part for text in texts for part in split_parts(text))
        known: dict[str, _Vector] = {}
        with self._lock:
            for part in parts:
                if part in self._entries:
                    self._entries.move_to_end(part)
                    known[part] = self._entries[part]
        return known, [part for part in parts if part not in known]

    def _finish(
        self,
        texts: Sequence[str],
        known: Mapping[str, _Vector],
        missing: Sequence[str],
        vectors: Sequence[Sequence[float]],
    ) -> list[list[float]]:
        if len(vectors) != len(missing):
            raise EmbeddingError(f"the embedder gave {len(vectors)} vectors for {len(missing)} texts")
        fresh = {part: np.asarray(vector, dtype=np.float32) for part, vector in zip(missing, vectors, strict=True)}
        with self._lock:
            for part, vector in fresh.items():
                self._entries[part] = vector
                self._entries.move_to_end(part)
            while len(self._entries) > self._max_entries:
                self._entries.popitem(last=False)
        found = {**known, **fresh}
        return [_mean([found[part] for part in split_parts(text)]) for text in texts]


def _has_parts(texts: Iterable[str]) -> bool:
    return any(PART_SEPARATOR in text for text in texts)


def _mean(vectors: Sequence[_Vector]) -> list[float]:
    """The one vector as it is; of several the mean direction; not finite or empty, and so never used by a store, when
    they cancel out or one of them is unusable."""
    if len(vectors) == 1:
        only: list[float] = vectors[0].tolist()
        return only
    if len({len(vector) for vector in vectors}) != 1:
        return []
    total: _Vector = np.sum([_unit(vector) for vector in vectors], axis=0, dtype=np.float32)
    mean: list[float] = _unit(total).tolist()
    return mean


def _unit(vector: _Vector) -> _Vector:
    length = float(np.linalg.norm(vector))
    return vector / length if 0 < length < float("inf") else np.full_like(vector, np.nan)
