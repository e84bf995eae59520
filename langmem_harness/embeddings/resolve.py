"""From what a user writes to an embeddings object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langchain_core.embeddings import Embeddings
from langgraph.store.base import ensure_embeddings

from langmem_harness.embeddings.local import LocalEmbeddings
from langmem_harness.errors import ConfigurationError, MissingExtraError

LOCAL = "local"

_EXTRAS = {"openai": "openai", "azure_openai": "openai"}  # providers whose package is one of our extras


def resolve_embeddings(value: Embeddings | str | Callable[..., Any] | None) -> Embeddings | None:
    """The embeddings a setting means.

    Args:
        value: None for no embeddings; ``"local"`` for `LocalEmbeddings`; another string for LangChain's
            ``init_embeddings`` (``"openai:text-embedding-3-small"``); an `Embeddings` object, which is returned as it
            is; or a function of a list of texts, sync or async, as LangGraph's ``IndexConfig`` takes it.

    Raises:
        MissingExtraError: The extra of that provider is not installed.
        ConfigurationError: The string names no provider, its package is missing, or the provider refuses its settings.
    """
    if value is None or isinstance(value, Embeddings):
        return value
    if value == LOCAL:
        return LocalEmbeddings()
    if isinstance(value, str):
        return _from_provider(value)
    if callable(value):
        return ensure_embeddings(value)
    raise ConfigurationError(
        f"embeddings must be None, 'local', a text like 'openai:text-embedding-3-small', an Embeddings object or a "
        f"function, not {type(value).__name__}"
    )


def _from_provider(name: str) -> Embeddings:
    from langchain.embeddings import init_embeddings

    try:
        embeddings = init_embeddings(name)
    except ImportError as error:
        provider = name.partition(":")[0]
        if provider in _EXTRAS:
            raise MissingExtraError(f"embeddings {name!r}", _EXTRAS[provider]) from error
        raise ConfigurationError(f"embeddings {name!r} need the package {error.name or 'of their provider'}") from error
    except Exception as error:  # each provider raises its own kinds; the cause is kept
        raise ConfigurationError(
            f"embeddings {name!r} cannot be set up ({type(error).__name__}): check the name and the provider's key"
        ) from error
    if not isinstance(embeddings, Embeddings):
        raise ConfigurationError(f"embeddings {name!r} gave a {type(embeddings).__name__}, not an Embeddings object")
    return embeddings
