"""Settings that cannot work are refused when the store is opened; what runs on its own; what is said on the loop."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from typing import Any

import pytest

from langmem_harness.errors import ConfigurationError, StorageBusyError
from langmem_harness.events import EventLoopBlocked, MemoryEvent
from langmem_harness.store import FaissStore
from langmem_harness.testing import DeterministicEmbeddings, FixedClock

NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    "settings",
    [
        {"k1": -1}, {"k1": NAN}, {"k1": INFINITE}, {"k1": "1"}, {"b": 2}, {"b": NAN}, {"b": None},
        {"dense_weight": "x"}, {"dense_weight": NAN}, {"dense_weight": True}, {"embedding_timeout_seconds": INFINITE},
        {"embedding_timeout_seconds": 0}, {"max_cache_bytes": None}, {"max_cache_bytes": -1}, {"exact_limit": 1.5},
        {"exact_limit": -1}, {"ttl": {"default_ttl": -1}}, {"ttl": {"default_ttl": "5"}}, {"ttl": 5},
        {"ttl": {"sweep_interval_minutes": "x"}}, {"ttl": {"sweep_interval_minutes": -1}}, {"retrieval": "magic"},
        {"index": {"fields": "text"}}, {"index": {"fields": [1]}}, {"busy_timeout_seconds": NAN},
        {"language": "klingon"}, {"index": {"embed": 5}},
    ],
    ids=repr,
)  # fmt: skip
def test_a_setting_that_cannot_work_is_refused_at_once(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        FaissStore(":memory:", **{"index": {"embed": DeterministicEmbeddings(8)}, **settings})


@pytest.mark.parametrize("dims", [0, -1, True, "8", 1.5])
def test_odd_dims_are_refused(dims: Any) -> None:
    with pytest.raises(ConfigurationError):
        FaissStore(":memory:", index={"embed": DeterministicEmbeddings(8), "dims": dims})


@pytest.mark.parametrize("operation", ["sweep", "verify", "stats", "vacuum", "reindex", "embed_pending"])
def test_maintenance_on_the_event_loop_is_not_silent(operation: str) -> None:
    events: list[MemoryEvent] = []

    async def use() -> None:
        with FaissStore(":memory:", index={"embed": DeterministicEmbeddings(8)}, on_event=events.append) as store:
            getattr(store, operation)()
            store.stats()

    asyncio.run(asyncio.wait_for(use(), 10))
    (event,) = events
    assert isinstance(event, EventLoopBlocked)
    assert event.operation == operation
    assert event.use == (f"a{operation}" if operation in ("reindex", "embed_pending") else "asyncio.to_thread")


def sweepers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "langmem-sweeper"]


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 5
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition()


def test_the_sweeper_goes_on_after_a_failure_and_ends_with_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[MemoryEvent] = []
    clock = FixedClock()
    ttl: Any = {"default_ttl": 1, "sweep_interval_minutes": 0.0003}
    store = FaissStore(":memory:", ttl=ttl, clock=clock, on_event=events.append)
    store.put(("a",), "k", {"text": "tea"})
    real = store.sweep

    def busy() -> int:
        monkeypatch.setattr(store, "sweep", real)
        raise StorageBusyError("busy")

    monkeypatch.setattr(store, "sweep", busy)
    clock.advance(minutes=2)
    wait_for(lambda: store.stats().items == 0)
    assert "sweep failed: StorageBusyError" in [getattr(event, "reason", None) for event in events]
    store.close()
    wait_for(lambda: not sweepers())


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_store_that_was_dropped_is_not_kept_by_its_sweeper() -> None:
    FaissStore(":memory:", ttl={"sweep_interval_minutes": 0.0003})
    gc.collect()
    wait_for(lambda: not sweepers())


@pytest.mark.parametrize("bound", [0, 1, 100_000])
def test_searches_of_what_does_not_exist_do_not_add_up(bound: int) -> None:
    with FaissStore(":memory:", max_cache_bytes=bound) as store:
        store.put(("a",), "k", {"text": "tea"})
        for number in range(60):
            assert store.search((f"n{number}",), query="tea") == []
            assert len(store.search(("a",), query="tea")) == 1
        assert store.stats().cached_partitions <= bound // 4_500
        assert store.stats().cached_bytes <= bound
