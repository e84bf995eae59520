"""What a user may write for ``embeddings``."""

from __future__ import annotations

import langchain.embeddings
import pytest
from langchain_core.embeddings import Embeddings
from langchain_openai import OpenAIEmbeddings

from langmem_harness.embeddings import LocalEmbeddings, resolve_embeddings
from langmem_harness.errors import ConfigurationError, MissingExtraError
from langmem_harness.testing import DeterministicEmbeddings
from tests.conftest import Face


def test_none_and_objects_are_returned_as_they_are() -> None:
    embeddings = DeterministicEmbeddings(4)
    assert resolve_embeddings(None) is None
    assert resolve_embeddings(embeddings) is embeddings


def test_local_is_the_local_model() -> None:
    pytest.importorskip("onnxruntime", reason="the extra 'local' is not installed")
    assert isinstance(resolve_embeddings("local"), LocalEmbeddings)


def test_a_provider_string(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    embeddings = resolve_embeddings("openai:text-embedding-3-small")
    assert isinstance(embeddings, OpenAIEmbeddings)
    assert embeddings.model == "text-embedding-3-small"


def test_a_function_becomes_embeddings(face: Face) -> None:
    embeddings = resolve_embeddings(lambda texts: [[float(len(text))] for text in texts])
    assert isinstance(embeddings, Embeddings)
    assert face(embeddings, "embed_documents", ["ab", "c"]) == [[2.0], [1.0]]


def test_a_missing_key_is_a_configuration_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_ADMIN_KEY", raising=False)
    with pytest.raises(ConfigurationError, match="openai:text-embedding-3-small"):
        resolve_embeddings("openai:text-embedding-3-small")


def test_a_missing_package_of_ours_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_the_package(name: str) -> Embeddings:
        raise ImportError("Could not import langchain_openai", name="langchain_openai")

    monkeypatch.setattr(langchain.embeddings, "init_embeddings", without_the_package)
    with pytest.raises(MissingExtraError, match=r"langmem-harness\[openai\]"):
        resolve_embeddings("openai:text-embedding-3-small")
    with pytest.raises(ConfigurationError, match="need the package langchain_openai"):
        resolve_embeddings("other:model")


@pytest.mark.parametrize("value", ["", "nobody:model", "just-a-model", "cohere:embed-english-v3.0", 7, ["local"]])
def test_anything_else_is_a_configuration_error(value: object) -> None:
    with pytest.raises(ConfigurationError):
        resolve_embeddings(value)  # type: ignore[arg-type]
