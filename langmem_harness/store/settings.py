"""The settings of a store, checked when it is opened rather than when they are first used. Pure."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.stores import ByteStore
from langgraph.store.base import IndexConfig, TTLConfig

from langmem_harness.embeddings.parts import PartEmbeddings
from langmem_harness.embeddings.resolve import resolve_embeddings
from langmem_harness.errors import ConfigurationError
from langmem_harness.store.embedder import StoreEmbedder
from langmem_harness.store.keywords import KeywordIndex
from langmem_harness.store.searching import SearchSettings

_MAX_MINUTES = threading.TIMEOUT_MAX / 60


def check_search_settings(*, dense_weight: float, k1: float, b: float, exact_limit: int) -> SearchSettings:
    """Settings of every search.

    Raises:
        ConfigurationError: One of them cannot work.
    """
    check_number("dense_weight", dense_weight, 0, 1)
    check_number("k1", k1, 0, math.inf)
    check_number("b", b, 0, 1)
    check_whole("exact_limit", exact_limit)
    KeywordIndex(k1, b)  # has the last word on its numbers
    return SearchSettings(dense_weight=dense_weight, k1=k1, b=b, exact_limit=exact_limit)


def check_ttl_config(ttl: TTLConfig | None) -> float | None:
    """Minutes between two sweeps, or None.

    Raises:
        ConfigurationError: A time is no number above 0 (`default_ttl`: 0 or more).
    """
    settings: Mapping[str, Any] = ttl or {}
    if not isinstance(settings, Mapping):
        raise ConfigurationError(f"ttl must be a mapping like LangGraph's TTLConfig, not {type(ttl).__name__}")
    if settings.get("default_ttl") is not None:
        check_number("default_ttl", settings["default_ttl"], 0, 1e10)
    minutes: float | None = settings.get("sweep_interval_minutes")
    if minutes is None:
        return None
    check_number("sweep_interval_minutes", minutes, 0, _MAX_MINUTES)
    return minutes or None


def check_fields(index: Mapping[str, Any] | IndexConfig | None) -> Sequence[str]:
    """Field paths of an ``IndexConfig``; the whole value when it names none.

    Raises:
        ConfigurationError: They are no list of texts.
    """
    fields = (index or {}).get("fields") or ["$"]
    if isinstance(fields, str) or not all(isinstance(field, str) for field in fields):
        raise ConfigurationError(f"fields must be a list of paths, not {fields!r}")
    return list(fields)


def make_embedder(
    index: Mapping[str, Any] | IndexConfig | None, timeout_seconds: float | None, cache: ByteStore | None
) -> StoreEmbedder | None:
    """The embedder of an ``IndexConfig``, or None.

    Raises:
        ConfigurationError: ``dims``, ``embed`` or the time limit cannot work.
    """
    settings: Mapping[str, Any] = index or {}
    dims = settings.get("dims")
    if dims is not None and (not isinstance(dims, int) or isinstance(dims, bool) or dims < 1):
        raise ConfigurationError(f"dims must be a whole number above 0, not {dims!r}")
    if timeout_seconds is not None:
        check_number("embedding_timeout_seconds", timeout_seconds, 0, threading.TIMEOUT_MAX)
        if not timeout_seconds:
            raise ConfigurationError("embedding_timeout_seconds must be above 0, or None for no limit")
    embeddings = resolve_embeddings(settings.get("embed"))
    if embeddings is None:
        return None
    return StoreEmbedder(PartEmbeddings.around(embeddings), dims=dims, timeout_seconds=timeout_seconds, tier=cache)


def check_whole(name: str, value: Any) -> None:
    """Raises `ConfigurationError` unless it is a whole number of 0 or more."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConfigurationError(f"{name} must be a whole number of 0 or more, not {value!r}")


def check_number(name: str, value: Any, lowest: float, highest: float) -> None:
    """Raises `ConfigurationError` unless it is a finite number in these bounds."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not (lowest <= value <= highest and value < math.inf):
        upto = "or more" if highest == math.inf else f"to {highest:g}"
        raise ConfigurationError(f"{name} must be a number of {lowest:g} {upto}, not {value!r}")
