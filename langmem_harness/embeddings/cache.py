"""Embed a text once: an LRU in memory over a second tier that lasts."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from langchain_core.embeddings import Embeddings
from langchain_core.stores import BaseStore as KeyValueStore
from langchain_core.stores import ByteStore

from langmem_harness.errors import ConfigurationError, EmbeddingError, StorageError

logger = logging.getLogger("langmem_harness")

MAX_ENTRIES = 2_048
"""Vectors kept in memory: 3 MB at 384 dims."""

_VECTOR_TYPE = np.dtype("<f4")
_TextKind = Literal["document", "query"]


class VectorTier(Protocol):
    """Bytes by key, kept for longer than the process. `FaissStore` implements it over its SQLite file and
    `ByteStoreTier` over any LangChain `ByteStore`; `CachedEmbeddings` relies on it. Called from several threads.
    """

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """What is kept for each key, in order; None for what is not."""

    def put_many(self, entries: Mapping[str, bytes]) -> None:
        """Keep all of these."""


class ByteStoreTier:
    """A LangChain `ByteStore` (Redis, a folder, memory, ...) as the second tier."""

    def __init__(self, byte_store: ByteStore) -> None:
        self._byte_store = byte_store

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        return list(self._byte_store.mget(list(keys)))

    def put_many(self, entries: Mapping[str, bytes]) -> None:
        self._byte_store.mset(list(entries.items()))


@dataclass(kw_only=True)
class _Lookup:
    """One call: the keys of its texts in order, the vectors known so far, and the texts still to embed."""

    keys: list[str]
    known: dict[str, bytes]
    missing: dict[str, str]  # key -> text, each text once


class CachedEmbeddings(Embeddings):
    """Any embeddings, with every text embedded once per model.

    A text is looked up in memory, then in the second tier; what is left is embedded in one call, identical texts once.
    Queries and documents are kept apart, because a model may embed them differently. Vectors come back as float32
    numbers whether they were cached or not, so that asking again gives the same answer. Vectors that are not usable
    (another length than `dims`, zero, not finite) are handed back but never kept. A second tier that cannot be read or
    written costs time, not answers: it is logged. Safe to share between threads and event loops; no lock is held while
    the model works, so two simultaneous first calls may both embed a text.

    Args:
        underlying_embeddings: The model.
        fingerprint: Names the model in the keys; entries of another fingerprint are never used.
        dims: Length of the model's vectors, 1 or more.
        tier: The second tier; None for memory only. A `ByteStore` is wrapped.
        max_entries: Vectors kept in memory, 0 or more; the least recently used go first.

    Raises:
        ConfigurationError: A number is out of range.
    """

    def __init__(
        self,
        underlying_embeddings: Embeddings,
        *,
        fingerprint: str,
        dims: int,
        tier: VectorTier | ByteStore | None = None,
        max_entries: int = MAX_ENTRIES,
    ) -> None:
        if dims < 1:
            raise ConfigurationError(f"dims must be 1 or more, not {dims!r}")
        if max_entries < 0:
            raise ConfigurationError(f"max_entries must be 0 or more, not {max_entries!r}")
        self.underlying_embeddings = underlying_embeddings
        self.dims = dims
        self._prefix = _sha256(fingerprint)[:32]
        self._tier = ByteStoreTier(tier) if isinstance(tier, KeyValueStore) else tier
        self._max_entries = max_entries
        self._entries: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Vectors of the texts, in order.

        Raises:
            EmbeddingError: The model gave another number of vectors than texts.
        """
        lookup = self._look_up(texts, "document")
        vectors = self.underlying_embeddings.embed_documents(list(lookup.missing.values())) if lookup.missing else []
        return self._finish(lookup, vectors)

    def embed_query(self, text: str) -> list[float]:
        """Vector of one query."""
        lookup = self._look_up([text], "query")
        vectors = [self.underlying_embeddings.embed_query(text)] if lookup.missing else []
        return self._finish(lookup, vectors)[0]

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """Async twin of `embed_documents`; the second tier is asked on a worker thread."""
        lookup = await asyncio.to_thread(self._look_up, texts, "document")
        missing = list(lookup.missing.values())
        vectors = await self.underlying_embeddings.aembed_documents(missing) if missing else []
        return await asyncio.to_thread(self._finish, lookup, vectors)

    async def aembed_query(self, text: str) -> list[float]:
        """Async twin of `embed_query`."""
        lookup = await asyncio.to_thread(self._look_up, [text], "query")
        vectors = [await self.underlying_embeddings.aembed_query(text)] if lookup.missing else []
        return (await asyncio.to_thread(self._finish, lookup, vectors))[0]

    def _look_up(self, texts: Sequence[str], kind: _TextKind) -> _Lookup:
        keys = [f"{self._prefix}-{kind}-{_sha256(text)}" for text in texts]
        missing = dict(zip(keys, texts, strict=True))
        known: dict[str, bytes] = {}
        with self._lock:
            for key in missing:
                if key in self._entries:
                    self._entries.move_to_end(key)
                    known[key] = self._entries[key]
        from_tier = self._read_tier([key for key in missing if key not in known])
        self._remember(from_tier)
        known.update(from_tier)
        return _Lookup(keys=keys, known=known, missing={k: text for k, text in missing.items() if k not in known})

    def _finish(self, lookup: _Lookup, vectors: Sequence[Sequence[float]]) -> list[list[float]]:
        if len(vectors) != len(lookup.missing):
            raise EmbeddingError(f"the embedder gave {len(vectors)} vectors for {len(lookup.missing)} texts")
        packed = dict(zip(lookup.missing, (_pack(vector) for vector in vectors), strict=True))
        fresh = {key: data for key, data in packed.items() if self._is_usable(data)}
        self._remember(fresh)
        if fresh and self._tier is not None:
            try:
                self._tier.put_many(fresh)
            except (StorageError, OSError) as error:
                logger.warning("embedding cache: %d vectors could not be kept (%s)", len(fresh), type(error).__name__)
        by_key = lookup.known | packed
        return [_unpack(by_key[key]) for key in lookup.keys]

    def _read_tier(self, keys: Sequence[str]) -> dict[str, bytes]:
        if not keys or self._tier is None:
            return {}
        try:
            found = self._tier.get_many(keys)
        except (StorageError, OSError) as error:
            logger.warning("embedding cache: %d vectors could not be read (%s)", len(keys), type(error).__name__)
            return {}
        pairs = zip(keys, found, strict=True)
        return {key: data for key, data in pairs if data is not None and self._is_usable(data)}

    def _is_usable(self, data: bytes) -> bool:
        if len(data) != self.dims * _VECTOR_TYPE.itemsize:
            return False
        vector = np.frombuffer(data, dtype=_VECTOR_TYPE)
        return bool(np.isfinite(vector).all() and vector.any())

    def _remember(self, entries: Mapping[str, bytes]) -> None:
        with self._lock:
            for key, data in entries.items():
                self._entries[key] = data
                self._entries.move_to_end(key)
            while len(self._entries) > self._max_entries:
                self._entries.popitem(last=False)


def _pack(vector: Sequence[float]) -> bytes:
    with np.errstate(over="ignore"):  # a number beyond float32 becomes infinite, and is then not usable
        return np.asarray(vector, dtype=np.float64).astype(_VECTOR_TYPE).tobytes()


def _unpack(data: bytes) -> list[float]:
    vector: list[float] = np.frombuffer(data, dtype=_VECTOR_TYPE).tolist()
    return vector


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
