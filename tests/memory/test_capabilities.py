"""What a memory can do over each store, said and true."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import BaseStore, GetOp, PutOp
from langgraph.store.memory import InMemoryStore

from langmem_harness.driving import drive
from langmem_harness.errors import ConfigurationError
from langmem_harness.memory import LongTermMemory, MemoryScope, StoreCapabilities
from langmem_harness.memory.backing import FIRST_PAGE
from langmem_harness.store import FaissStore
from langmem_harness.testing import DeterministicEmbeddings
from tests.conftest import Face
from tests.memory.stores import OPENERS

ADA = MemoryScope(user="ada")
NOTHING_MORE = dict.fromkeys(("keyword", "variety", "field_weights", "reports", "atomic", "vacuum"), False)
EXPECTED = {
    "faiss": StoreCapabilities(
        store="FaissStore",
        semantic=True,
        keyword=True,
        variety=True,
        field_weights=True,
        reports=True,
        atomic=True,
        vacuum=True,
    ),
    "in_memory": StoreCapabilities(store="InMemoryStore", semantic=True, **NOTHING_MORE),
    "no_index": StoreCapabilities(store="InMemoryStore", semantic=False, **NOTHING_MORE),
    "sqlite": StoreCapabilities(store="SqliteStore", semantic=False, **NOTHING_MORE),
    "sqlite_index": StoreCapabilities(store="SqliteStore", semantic=True, **NOTHING_MORE),
}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_each_store_has_its_list(tmp_path: Path, face: Face, name: str) -> None:
    if name not in OPENERS:
        pytest.skip("this Python's sqlite3 loads no extensions, which the vectors of SqliteStore need")
    with OPENERS[name](tmp_path) as store:
        assert face(LongTermMemory(store), "capabilities") == EXPECTED[name]


def test_a_search_is_answered_as_the_list_says(any_store: BaseStore, face: Face) -> None:
    memory = LongTermMemory(any_store)
    can = face(memory, "capabilities")
    for text in ("Likes green tea.", "Plays the violin.", "Has a sailing boat."):
        face(memory, "upsert", ADA, text, explicit=True)
    found = face(memory, "search", ADA, "green tea", threshold=None, top_k=1)
    assert found.retrieval == can.retrieval
    assert (found.degraded is None) == (can.retrieval != "recent")
    if can.semantic or can.keyword:
        assert [hit.record.text for hit in found] == ["Likes green tea."]
    assert hasattr(any_store, "vacuum") == can.vacuum


def test_where_batches_are_atomic_a_failed_one_leaves_nothing(any_store: BaseStore, face: Face) -> None:
    if not face(LongTermMemory(any_store), "capabilities").atomic:
        pytest.skip("this store promises nothing")
    good, bad = PutOp(("a",), "k", {"text": "kept?"}), PutOp(("a",), "l", {"text": object()})
    with pytest.raises((TypeError, ValueError)):
        face(any_store, "batch", [good, bad])
    assert face(any_store, "batch", [GetOp(("a",), "k")]) == [None]


@pytest.mark.parametrize(
    ("options", "retrieval"),
    [
        ({"index": None}, "keyword"),
        ({"retrieval": "keyword"}, "keyword"),
        ({"retrieval": "semantic"}, "semantic"),
        ({}, "hybrid"),
    ],
)
def test_how_our_store_was_opened_counts(face: Face, options: dict[str, Any], retrieval: str) -> None:
    index = {"embed": DeterministicEmbeddings(), "dims": 64, "fields": ["text"]}
    with FaissStore(":memory:", **{"index": index, **options}) as store:
        memory = LongTermMemory(store)
        assert face(memory, "capabilities").retrieval == retrieval
        face(memory, "upsert", ADA, "Likes green tea.", explicit=True)
        assert face(memory, "search", ADA, "green tea").retrieval == retrieval


@pytest.mark.parametrize("distance", ["l2", "inner_product"])
def test_an_index_that_does_not_measure_cosines_is_refused(distance: str) -> None:
    index: Any = {"embed": DeterministicEmbeddings(), "dims": 64, "distance_type": distance}
    store = InMemoryStore(index=index)
    with pytest.raises(ConfigurationError, match=distance):
        LongTermMemory(store)


def test_everything_is_seen_however_much_there_is(any_store: BaseStore) -> None:
    """Also in a store that stamps a whole batch with one second."""
    memory = LongTermMemory(any_store)
    count = FIRST_PAGE + 30
    for start in range(0, count, 100):
        any_store.batch(
            [
                PutOp(("other", "place"), f"k{number:04}", {"n": number}, False)
                for number in range(start, min(start + 100, count))
            ]
        )
    body = memory.settings.backing.all_items(("other", "place"))
    assert {item.value["n"] for item in drive(body)} == set(range(count))
