"""A swapped model is noticed, the noise of the same one is not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from langchain_core.embeddings import Embeddings
from langchain_core.embeddings.fake import DeterministicFakeEmbedding
from langchain_openai import OpenAIEmbeddings

from langmem_harness.embeddings import PROBE_TEXT, CachedEmbeddings, embedding_model_name, probe_digest, probe_matches
from langmem_harness.errors import EmbeddingError, RecordError
from langmem_harness.testing import DeterministicEmbeddings


def answer(seed: int, dims: int = 384) -> np.ndarray:
    vector = np.random.default_rng(seed).normal(size=dims)
    return vector / np.linalg.norm(vector)


@pytest.mark.parametrize("dims", [2, 7, 64, 384, 3072])
def test_noise_does_not_matter(dims: int) -> None:
    vector = answer(1, dims)
    for seed in range(20):
        noisy = vector + 1e-3 * answer(seed, dims)
        assert probe_matches(probe_digest(vector.tolist()), probe_digest(noisy.tolist()))
    float32 = vector.astype(np.float32).astype(float)
    assert probe_matches(probe_digest(vector.tolist()), probe_digest((5 * float32).tolist()))


@pytest.mark.parametrize("dims", [64, 384, 1536])
def test_another_model_of_the_same_size_is_noticed(dims: int) -> None:
    digests = [probe_digest(answer(seed, dims).tolist()) for seed in range(12)]
    assert not any(probe_matches(a, b) for i, a in enumerate(digests) for b in digests[:i])


def test_a_retrained_relative_is_noticed() -> None:
    vector = answer(1)
    relative = 0.9 * vector + math.sqrt(1 - 0.81) * answer(2)
    assert not probe_matches(probe_digest(vector.tolist()), probe_digest(relative.tolist()))


def test_the_fakes_differ_by_name() -> None:
    one, other = DeterministicEmbeddings(64, name="one"), DeterministicEmbeddings(64, name="other")
    digests = [probe_digest(embeddings.embed_documents([PROBE_TEXT])[0]) for embeddings in (one, one, other)]
    assert digests[0] == digests[1]
    assert not probe_matches(digests[0], digests[2])


def test_another_size_never_matches() -> None:
    assert not probe_matches(probe_digest([1.0, 0.0]), probe_digest([1.0, 0.0, 0.0]))


def test_the_digest_never_changes() -> None:
    assert probe_digest([1.0, -2.0, 3.0]) == (
        "simhash256:3:05754109b5118f528e0d10b76d3e4703222446309d10b1178806b988a3cab641"
    )


@pytest.mark.parametrize("vector", [[], [0.0, 0.0], [math.nan, 1.0], [math.inf, 1.0]])
def test_an_unusable_answer_has_no_digest(vector: list[float]) -> None:
    with pytest.raises(EmbeddingError):
        probe_digest(vector)


@pytest.mark.parametrize(
    "digest", ["", "sha256:3:00", "simhash256:3:00", "simhash256:x:" + "0" * 64, "simhash256:3:" + "g" * 64]
)
def test_something_else_is_not_a_digest(digest: str) -> None:
    with pytest.raises(RecordError):
        probe_matches(digest, probe_digest([1.0]))


def test_names_hold_class_model_and_size_but_no_key() -> None:
    openai = OpenAIEmbeddings(model="text-embedding-3-small", dimensions=256, api_key="sk-not-to-be-seen")
    assert embedding_model_name(openai) == "OpenAIEmbeddings/text-embedding-3-small/dims=256"
    fake: Embeddings = DeterministicEmbeddings(8)
    assert embedding_model_name(fake) == "DeterministicEmbeddings/deterministic-words-8"
    assert embedding_model_name(CachedEmbeddings(fake, fingerprint="f", dims=8)) == embedding_model_name(fake)
    assert embedding_model_name(DeterministicFakeEmbedding(size=4)) == "DeterministicFakeEmbedding"
