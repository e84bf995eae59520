"""A store per test, of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from langgraph.store.base import BaseStore

import langmem_harness.store
from tests.memory.stores import OPENERS


@pytest.fixture(params=sorted(OPENERS))
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BaseStore]:
    """Every store the service has to work over."""
    if request.param == "faiss" and not hasattr(langmem_harness.store, "FaissStore"):
        pytest.skip("FaissStore is not there yet")
    with OPENERS[request.param](tmp_path) as store:
        yield store
