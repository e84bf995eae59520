"""A key of another tenant and a key of nobody: the same answer, by the same work."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import pytest
from langgraph.store.base import BaseStore, Op

from langmem_harness.errors import NotFoundError
from langmem_harness.events import MemoryEvent
from langmem_harness.memory import LongTermMemory, MemoryScope
from langmem_harness.memory.tools import FORGET_MEMORY, create_memory_tools
from langmem_harness.store import FaissStore
from tests.conftest import Face
from tests.memory.stores import OPENERS

ADA = MemoryScope(tenant="acme", user="ada")
OTHERS = {
    "tenant": MemoryScope(tenant="umbrella", user="ada"),
    "user": MemoryScope(tenant="acme", user="bob"),
    "agent": MemoryScope(tenant="acme", user="ada", agent="travel"),
}
NOBODYS = "m" + "a" * 13


class Watched(BaseStore):
    """Passes everything on and notes it."""

    def __init__(self, store: BaseStore) -> None:
        self.store = store
        self.seen: list[list[Op]] = []

    def batch(self, ops: Any) -> Any:
        self.seen.append(list(ops))
        return self.store.batch(ops)

    async def abatch(self, ops: Any) -> Any:
        self.seen.append(list(ops))
        return await self.store.abatch(ops)


def answer(face: Face, memory: LongTermMemory, method: str, key: str) -> dict[str, Any]:
    with pytest.raises(NotFoundError) as caught:
        face(memory, method, ADA, key)
    error = caught.value
    told = {"text": str(error), "type": type(error), "fields": vars(error), "cause": error.__cause__}
    return json.loads(json.dumps(told, default=str).replace(key, "KEY"))  # type: ignore[no-any-return]


@pytest.mark.parametrize("whose", sorted(OTHERS))
@pytest.mark.parametrize("method", ["get", "delete", "history"])
def test_the_store_is_asked_the_same(any_store: BaseStore, face: Face, method: str, whose: str) -> None:
    events: list[MemoryEvent] = []
    watched = Watched(any_store)
    memory = LongTermMemory(watched, on_event=events.append)
    foreign = memory.upsert(OTHERS[whose], "Has a boat.", explicit=True).record
    assert foreign is not None
    events.clear()
    told, asked = [], []
    for key in (foreign.key, NOBODYS):
        watched.seen.clear()
        told.append(answer(face, memory, method, key))
        asked.append(json.dumps(watched.seen).replace(key, "KEY"))
    assert told[0] == told[1]
    assert asked[0] == asked[1]
    assert events == []
    assert memory.get(OTHERS[whose], foreign.key).text == "Has a boat."


@contextmanager
def statements(store: FaissStore) -> Iterator[list[str]]:
    """The SQL of this thread's reader, as it is run."""
    seen: list[str] = []
    with store._database.read() as connection:
        connection.set_trace_callback(seen.append)
    try:
        yield seen
    finally:
        with store._database.read() as connection:
            connection.set_trace_callback(None)


@pytest.mark.parametrize("method", ["get", "delete", "history"])
def test_our_store_runs_the_same_statements(tmp_path: Path, method: str) -> None:
    with FaissStore(tmp_path / "memory.sqlite") as store:
        memory = LongTermMemory(store)
        foreign = memory.upsert(OTHERS["tenant"], "Has a boat.", explicit=True).record
        assert foreign is not None
        ran = []
        for key in (foreign.key, NOBODYS):
            with statements(store) as seen, pytest.raises(NotFoundError):
                getattr(memory, method)(ADA, key)
            ran.append([re.sub(r"expires_at > \d+", "NOW", one.replace(key.encode().hex(), "KEY")) for one in seen])
        assert ran[0] == ran[1]
        assert any("KEY" in statement for statement in ran[0])


def test_the_tool_tells_a_model_nothing_either(any_store: BaseStore) -> None:
    memory = LongTermMemory(any_store)
    foreign = memory.upsert(OTHERS["tenant"], "Has a boat.", explicit=True).record
    assert foreign is not None
    tools = {tool.name: tool for tool in create_memory_tools(lambda runtime: (memory, ADA))}
    runtime: Any = SimpleNamespace(config={}, state={}, context=None)
    told = [tools[FORGET_MEMORY].func(runtime=runtime, id=key) for key in (foreign.key, NOBODYS)]  # type: ignore[attr-defined]
    assert told[0] == told[1]
    assert foreign.key not in told[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["faiss", "in_memory", "sqlite"])
def test_both_take_the_same_time(tmp_path: Path, name: str) -> None:
    """Medians of interleaved calls, so that whatever else runs weighs on both."""
    with OPENERS[name](tmp_path) as store:
        memory = LongTermMemory(store)
        foreign = memory.upsert(OTHERS["tenant"], "Has a boat.", explicit=True).record
        assert foreign is not None

        def seconds(key: str) -> float:
            started = time.perf_counter()
            with pytest.raises(NotFoundError):
                memory.get(ADA, key)
            return time.perf_counter() - started

        taken = [(seconds(foreign.key), seconds(NOBODYS)) for _ in range(2_000)]
        one, other = (median(column) for column in zip(*taken, strict=True))
        assert one == pytest.approx(other, rel=0.15)
