"""The stores the service has to work over, each opened and closed per test."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
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


@contextmanager
def _sqlite(folder: Path) -> Iterator[BaseStore]:
    sqlite = pytest.importorskip("langgraph.store.sqlite")
    with sqlite.SqliteStore.from_conn_string(str(folder / "store.sqlite")) as store:
        store.setup()
        yield store


@contextmanager
def _sqlite_with_index(folder: Path) -> Iterator[BaseStore]:
    sqlite = pytest.importorskip("langgraph.store.sqlite")
    with sqlite.SqliteStore.from_conn_string(str(folder / "store.sqlite"), index=_index()) as store:
        store.setup()
        yield store


@contextmanager
def opened_postgres(url: str) -> Iterator[BaseStore]:
    """An empty `PostgresStore` without an index (that would need the extension pgvector)."""
    postgres = pytest.importorskip("langgraph.store.postgres")
    with postgres.PostgresStore.from_conn_string(url) as store:
        store.setup()
        with store._cursor() as cursor:
            cursor.execute("TRUNCATE store")
        yield store


OPENERS: dict[str, Callable[[Path], AbstractContextManager[BaseStore]]] = {
    "in_memory": _in_memory,
    "no_index": _plain,
    "faiss": _faiss,
    "sqlite": _sqlite,
}
if hasattr(sqlite3.Connection, "enable_load_extension"):  # the vectors of SqliteStore are an extension
    OPENERS["sqlite_index"] = _sqlite_with_index
