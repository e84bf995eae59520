"""The passport of a vector index: what it was built from, and whether that still fits. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Self

from langmem_harness.embeddings.fingerprint import probe_matches
from langmem_harness.errors import RecordError

FORMAT_VERSION = 1
LOST = "the passport of the vector index is lost or cannot be read; run reindex()"
CHUNKER_VERSION = "whole-text-1"
"""One vector for each indexed text, whatever its length: the embedder decides how it reads a long one."""

_MODULUS = 1 << 256
_NUMBERS = ("dims", "chunk_count", "format_version")


@dataclass(frozen=True, kw_only=True)
class IndexProvenance:
    """Everything that could make stored vectors wrong.

    Attributes:
        corpus_sha256: Sum, modulo 2**256, of the SHA-256 of every item, as 64 hexadecimal digits: the same items
            give the same sum in any order, and one write changes it by one addition. Empty store: zeros.
        embedding_model: Name of the model, for people.
        model_digest: Digest of the model's answer to a fixed probe text; differs between models of the same size.
        chunker_version: How texts become vectors.
        dims: Length of the vectors.
        chunk_count: How many vectors there are.
        built_at: When the index was begun, aware UTC.
        format_version: Version of this record.
    """

    corpus_sha256: str
    embedding_model: str
    model_digest: str
    chunker_version: str
    dims: int
    chunk_count: int
    built_at: datetime
    format_version: int = FORMAT_VERSION

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**asdict(self), "built_at": self.built_at.isoformat()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """From `to_dict`; unknown keys are ignored.

        Raises:
            RecordError: A field is missing or unreadable.
        """
        try:
            known = {name: data[name] for name in cls.__dataclass_fields__}
            if not all(isinstance(value, int if name in _NUMBERS else str) for name, value in known.items()):
                raise TypeError
            return cls(**{**known, "built_at": datetime.fromisoformat(data["built_at"])})
        except (KeyError, TypeError, ValueError) as error:
            raise RecordError(f"not an index provenance: {type(error).__name__}") from error

    @classmethod
    def lost(cls) -> Self:
        """Stands for a passport that cannot be read: fits no embedder."""
        built_at = datetime.fromtimestamp(0, UTC)
        known = {"corpus_sha256": "", "embedding_model": "", "model_digest": "", "chunker_version": ""}
        return cls(**known, dims=0, chunk_count=0, built_at=built_at, format_version=0)

    @property
    def is_lost(self) -> bool:
        """Whether it is `lost`."""
        return self.format_version == 0

    def find_mismatch(self, *, model_digest: str, embedding_model: str, dims: int) -> str | None:
        """Why vectors of this index and of that embedder must not be compared, or None."""
        if self.is_lost:
            return LOST
        if self.format_version != FORMAT_VERSION or self.chunker_version != CHUNKER_VERSION:
            return "the index was built by another version of this package; run reindex()"
        if self.dims != dims:
            return f"the index has {self.dims} dimensions, the embedder {dims}; run reindex()"
        try:
            is_same = probe_matches(self.model_digest, model_digest)
        except RecordError:
            return LOST
        if not is_same:
            return (
                f"the index was built by another model ({self.embedding_model!r}; "
                f"now {embedding_model!r}); run reindex()"
            )
        return None


def hash_item(path: bytes, key: bytes, value: str, indexing: str | None) -> bytes:
    """SHA-256 of all that makes an item: 32 bytes. Parts are length-prefixed, so that none can pass for another."""
    digest = hashlib.sha256(b"item-1")
    for part in (path, key, value.encode(), (indexing or "").encode("utf-8", "surrogatepass")):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


def add_to_corpus(corpus: bytes, *, added: list[bytes], removed: list[bytes]) -> bytes:
    """The corpus hash after items came and went: 32 bytes."""
    total = int.from_bytes(corpus, "big")
    total += sum(int.from_bytes(item, "big") for item in added)
    total -= sum(int.from_bytes(item, "big") for item in removed)
    return (total % _MODULUS).to_bytes(32, "big")


EMPTY_CORPUS = bytes(32)
