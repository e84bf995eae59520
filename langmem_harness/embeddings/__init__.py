"""Embeddings: the local model, a cache around any model, and the means to notice that a model was swapped."""

from langmem_harness.embeddings.cache import ByteStoreTier, CachedEmbeddings, VectorTier
from langmem_harness.embeddings.fingerprint import PROBE_TEXT, embedding_model_name, probe_digest, probe_matches
from langmem_harness.embeddings.local import LocalEmbeddings
from langmem_harness.embeddings.parts import PART_SEPARATOR, PartEmbeddings, join_parts, split_parts
from langmem_harness.embeddings.resolve import resolve_embeddings

__all__ = [
    "PART_SEPARATOR",
    "PROBE_TEXT",
    "ByteStoreTier",
    "CachedEmbeddings",
    "LocalEmbeddings",
    "PartEmbeddings",
    "VectorTier",
    "embedding_model_name",
    "join_parts",
    "probe_digest",
    "probe_matches",
    "resolve_embeddings",
    "split_parts",
]
