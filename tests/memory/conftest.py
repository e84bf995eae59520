"""A store per test, of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from langgraph.store.base import BaseStore

from tests.memory.stores import OPENERS


@pytest.fixture(params=sorted(OPENERS))
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BaseStore]:
    """Every store the service has to work over."""
    with OPENERS[request.param](tmp_path) as store:
        yield store
