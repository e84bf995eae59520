"""LangGraph's own conformance suite over the checkpointer."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability

from langmem_harness.threads import SqliteCheckpointer


@pytest.mark.anyio
@pytest.mark.parametrize("place", ["memory", "file"])
async def test_every_capability_passes(place: str, tmp_path: Path) -> None:
    files = iter(range(100))

    @checkpointer_test(name=f"SqliteCheckpointer-{place}")
    async def checkpointer() -> AsyncGenerator[SqliteCheckpointer, None]:
        location = ":memory:" if place == "memory" else tmp_path / f"{next(files)}.sqlite"
        async with SqliteCheckpointer(location) as saver:
            yield saver
            assert saver.verify().is_intact

    report = await validate(checkpointer)
    assert set(report.results) == {capability.value for capability in Capability}
    for name, result in report.results.items():
        assert result.detected, name
        assert result.passed, (name, result.failures)
