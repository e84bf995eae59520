"""The stores the service has to work over, each opened and closed per test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langmem_harness.store import FaissStore
from langmem_harness.testing import DeterministicEmbeddings

DIMS = 1024


def _index() -> Any:
    return {"embed": DeterministicEmbeddings(dims=DIMS), "dims": DIMS, "fields": ["text"]}


@contextmanager
def _in_memory(folder: Path) -> Iterator[BaseStore]:
    yield InMemoryStore(index=_index())


@contextmanager
def _plain(folder: Path) -> Iterator[BaseStore]:
    yield InMemoryStore()


@contextmanager
def _faiss(folder: Path) -> Iterator[BaseStore]:
    with FaissStore(folder / "memory.sqlite", index=_index()) as store:
        yield store


OPENERS: dict[str, Callable[[Path], AbstractContextManager[BaseStore]]] = {
    "in_memory": _in_memory,
    "no_index": _plain,
    "faiss": _faiss,
}
