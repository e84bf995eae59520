"""Which model made these vectors: a name to show, and a digest of its answer to a fixed text to trust.

Two models of the same size give vectors that fit into one index and mean nothing to each other, so the size says
nothing and the name may lie (a path, a deployment, a tag that was moved). The answer to a fixed text does not. But the
same model does not answer with the same bits on every processor or every call, and any rounding has borders that noise
crosses. So the digest is a similarity hash: 256 bits, each the side of a fixed random plane on which the vector lies.
The share of bits that differ is the angle between two answers divided by 180 degrees (Charikar, STOC 2002).
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence

import numpy as np
from langchain_core.embeddings import Embeddings

from langmem_harness.errors import EmbeddingError, RecordError

PROBE_TEXT = "The quick brown fox jumps over the lazy dog; 42 red bicycles, déjà vu, 你好, and a window seat to Lisbon."
"""Embedded with `embed_documents` to find out whether the model is still the same. Never changes."""

PROBE_MAX_BITS = 8
"""Digests that differ in at most this many of 256 bits are of the same model: an angle of about 6 degrees.

Noise between processors or calls is well below 0.1 degrees (no bit, rarely one); the int8 and float32 forms of one
model are 2 to 3 degrees apart (about 4 bits) and may share an index; other models are about 90 degrees apart (128).
"""

_BITS = 256
_MODEL_ATTRIBUTES = ("model", "model_name", "model_id", "deployment", "azure_deployment")
_MAX_NAME = 200


def embedding_model_name(embeddings: Embeddings) -> str:
    """Class and model, for people: ``"OpenAIEmbeddings/text-embedding-3-small/dims=256"``.

    Only attributes that name a model are read, never keys or addresses. A cache around a model has the model's name.
    Two models may share a name; compare `probe_digest`.
    """
    inner = getattr(embeddings, "underlying_embeddings", None)
    if isinstance(inner, Embeddings):
        return embedding_model_name(inner)
    parts = [type(embeddings).__name__]
    names = (getattr(embeddings, attribute, None) for attribute in _MODEL_ATTRIBUTES)
    model = next((name for name in names if isinstance(name, str) and name), None)
    if model is not None:
        parts.append(model[:_MAX_NAME])
    dims = getattr(embeddings, "dimensions", None)  # the size a provider was asked to shorten its vectors to
    if isinstance(dims, int):
        parts.append(f"dims={dims}")
    return "/".join(parts)


def probe_digest(vector: Sequence[float]) -> str:
    """Digest of a model's answer to `PROBE_TEXT`: ``"simhash256:<dims>:<64 hex digits>"``.

    The length of the vector does not matter, only its direction. Compare digests with `probe_matches`, not with ``==``.

    Raises:
        EmbeddingError: The vector is empty, zero, or not finite.
    """
    values = np.asarray(vector, dtype=np.float64)
    if values.ndim != 1 or not values.size or not np.isfinite(values).all() or not values.any():
        raise EmbeddingError("the embedder answered the probe text with an empty, zero or non-finite vector")
    dims = len(values)
    stream = hashlib.shake_256(f"langmem-harness probe planes {dims}".encode()).digest(_BITS * dims // 8)
    planes = np.unpackbits(np.frombuffer(stream, dtype=np.uint8)).reshape(_BITS, dims).astype(np.float64) * 2 - 1
    sides = planes @ (values / np.abs(values).max()) > 0
    return f"simhash{_BITS}:{dims}:{np.packbits(sides).tobytes().hex()}"


def probe_matches(digest: str, other: str) -> bool:
    """Whether two digests are answers of one model: the same size, and at most `PROBE_MAX_BITS` bits apart.

    Raises:
        RecordError: One of them is not a digest of `probe_digest`.
    """
    dims, bits = _parse(digest)
    other_dims, other_bits = _parse(other)
    return dims == other_dims and (bits ^ other_bits).bit_count() <= PROBE_MAX_BITS


@functools.lru_cache(maxsize=64)  # compared before every write
def _parse(digest: str) -> tuple[int, int]:
    kind, _, rest = digest.partition(":")
    dims, _, bits = rest.partition(":")
    if kind != f"simhash{_BITS}" or not dims.isdecimal() or len(bits) != _BITS // 4:
        raise RecordError(f"{digest!r} is not a probe digest")
    try:
        return int(dims), int(bits, 16)
    except ValueError as error:
        raise RecordError(f"{digest!r} is not a probe digest") from error
