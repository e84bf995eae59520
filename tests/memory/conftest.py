"""A store per test, of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from langgraph.store.base import BaseStore

from tests.memory.postgres import running_postgres
from tests.memory.stores import OPENERS, opened_postgres


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A Postgres server for the whole run; skips where there is none."""
    with running_postgres() as url:
        yield url


@pytest.fixture(params=[*sorted(OPENERS), "postgres"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BaseStore]:
    """Every store the service has to work over."""
    if request.param == "postgres":
        with opened_postgres(request.getfixturevalue("postgres_url")) as store:
            yield store
    else:
        with OPENERS[request.param](tmp_path) as store:
            yield store
