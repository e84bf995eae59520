"""What every LangGraph store must do, on a file and in memory, through both faces."""

from __future__ import annotations

import asyncio
import collections
import enum
import sys
import types
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import GetOp, ListNamespacesOp, MatchCondition, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from langmem_harness.errors import (
    ConfigurationError,
    ItemValueError,
    LangMemHarnessError,
    NamespaceError,
    StorageClosedError,
)
from langmem_harness.events import EventLoopBlocked, MemoryEvent
from langmem_harness.store import FaissStore, RecallItem
from langmem_harness.testing import DeterministicEmbeddings, FixedClock
from tests.conftest import Face

HOSTILE_TEXTS = [
    "", " ", "\0", "a\0b", "\ud800", "naïve café", "東京タワー", "👩‍👩‍👧", "a" * 300_000, "BENCH-100821", "don't",
    "C++", "a:b", "AND", '"', "*", "(x", "NOT tea", "-tea", "ubuntu 20.04", "\r\n", "%_", "{not json", "[1, 2",
]  # fmt: skip
BAD_NAMESPACES: list[Any] = [(), ("",), ("a.b",), ("langgraph", "x"), ("a", 1), ("a\0",), "text", None]


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FaissStore]:
    location = tmp_path / "store.sqlite" if request.param == "file" else ":memory:"
    with FaissStore(location, index={"embed": DeterministicEmbeddings(64), "fields": ["text"]}) as opened:
        yield opened


def keys(items: Any) -> list[str]:
    return [item.key for item in items]


def test_put_get_delete(store: FaissStore, face: Face) -> None:
    face(store, "put", ("a",), "k", {"text": "tea", "n": 1})
    item = face(store, "get", ("a",), "k")
    assert (item.value, item.key, item.namespace) == ({"text": "tea", "n": 1}, "k", ("a",))
    assert item.created_at.tzinfo is not None
    face(store, "delete", ("a",), "k")
    assert face(store, "get", ("a",), "k") is None
    assert face(store, "search", ("a",), query="tea") == []


@pytest.mark.parametrize("namespace", BAD_NAMESPACES, ids=repr)
def test_a_bad_namespace_is_refused_at_every_entry(store: FaissStore, face: Face, namespace: Any) -> None:
    with pytest.raises((NamespaceError, ValueError, TypeError)):
        face(store, "put", namespace, "k", {"text": "x"})
    with pytest.raises(NamespaceError):
        face(store, "batch", [PutOp(namespace, "k", {"text": "x"})])
    if namespace not in ((), ("langgraph", "x")):
        for op in (GetOp(namespace, "k"), SearchOp(namespace), PutOp(namespace, "k", None)):
            with pytest.raises(NamespaceError):
                face(store, "batch", [op])
        with pytest.raises(NamespaceError):
            face(store, "batch", [ListNamespacesOp((MatchCondition("prefix", namespace),))])
    assert store.search(()) == []


def test_prefixes_compare_whole_labels(store: FaissStore, face: Face) -> None:
    for namespace in [("foo",), ("foobar",), ("foo", "x"), ("users", "john_doe"), ("users", "john-doe"), ("f%",)]:
        store.put(namespace, "k", {"text": "tea"})
    for query in (None, "tea"):
        found = {item.namespace for item in face(store, "search", ("foo",), query=query)}
        assert found == {("foo",), ("foo", "x")}
        assert len(face(store, "search", ("users", "john_doe"), query=query)) == 1
        assert len(face(store, "search", ("f%",), query=query)) == 1
    assert face(store, "list_namespaces", prefix=("foo",)) == [("foo",), ("foo", "x")]
    assert face(store, "list_namespaces", prefix=("*", "x")) == [("foo", "x")]
    assert face(store, "list_namespaces", suffix=("john_doe",)) == [("users", "john_doe")]
    assert face(store, "list_namespaces", max_depth=1) == [("f%",), ("foo",), ("foobar",), ("users",)]
    assert face(store, "list_namespaces", max_depth=1, limit=2, offset=1) == [("foo",), ("foobar",)]


def test_created_at_survives_updates_and_starts_again_after_a_delete(face: Face) -> None:
    clock = FixedClock()
    with FaissStore(":memory:", clock=clock) as store:
        store.put(("a",), "k", {"n": 1})
        first = clock.now
        clock.advance(minutes=5)
        face(store, "put", ("a",), "k", {"n": 2})
        item = store.get(("a",), "k")
        assert item is not None
        assert (item.created_at, item.updated_at) == (first, clock.now)
        face(store, "batch", [PutOp(("a",), "k", None), PutOp(("a",), "k", {"n": 3})])
        item = store.get(("a",), "k")
        assert item is not None
        assert item.created_at == clock.now


def test_values_are_copied_both_ways(store: FaissStore, face: Face) -> None:
    value: dict[str, Any] = {"text": "tea", "list": [1]}
    face(store, "put", ("a",), "k", value)
    value["list"].append(2)
    found = face(store, "get", ("a",), "k")
    found.value["list"].append(3)
    assert store.get(("a",), "k").value["list"] == [1]  # type: ignore[union-attr]


@pytest.mark.parametrize("text", HOSTILE_TEXTS, ids=range(len(HOSTILE_TEXTS)))
def test_any_text_is_kept_found_and_searched_for(store: FaissStore, face: Face, text: str) -> None:
    face(store, "put", ("a",), f"key-{text[:50]}", {"text": text, "other": [text]})
    assert face(store, "get", ("a",), f"key-{text[:50]}").value == {"text": text, "other": [text]}
    face(store, "search", ("a",), query=text[:1000])
    assert len(face(store, "search", ("a",), filter={"text": text})) == 1
    assert store.verify().problems == ()


@pytest.mark.parametrize(
    "value",
    [{"a": {1, 2}}, {"a": float("nan")}, {"a": float("inf")}, {1: "a"}, {"a": {2: 3}}, [1], "x", {"a": object()}],
    ids=range(8),
)
def test_what_json_cannot_hold_is_refused(store: FaissStore, face: Face, value: Any) -> None:
    with pytest.raises(ItemValueError):
        face(store, "batch", [PutOp(("a",), "before", {"text": "x"}), PutOp(("a",), "k", value)])
    assert store.get(("a",), "before") is None


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {"text": "tea"}
    for _ in range(depth - 1):
        value = {"d": value}
    return value


def test_a_value_that_holds_itself_or_is_too_deep_is_refused(store: FaissStore) -> None:
    loop: dict[str, Any] = {}
    loop["self"] = [loop]
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)  # what Python can nest is no measure: SQLite's JSON gives up at 1,000
    try:
        for value in (loop, nested(201), nested(1_500), nested(5_000)):
            with pytest.raises(ItemValueError):
                store.put(("a",), "k", value)
    finally:
        sys.setrecursionlimit(limit)
    store.put(("a",), "deep", {**nested(200), "n": 1})
    assert keys(store.search(("a",), filter={"n": 1})) == ["deep"]
    assert store.verify().problems == ()


class Color(str, enum.Enum):  # noqa: UP042 - its str() is not its value, unlike that of StrEnum
    VIOLET = "violet"


@pytest.mark.parametrize(
    ("value", "query"),
    [
        ({"tags": ("red", "blue")}, "blue"),
        ({"text": Color.VIOLET}, "violet"),
        (types.MappingProxyType({"text": "green"}), "green"),
        (collections.UserDict({"text": "green"}), "green"),
        ({"text": collections.OrderedDict(kind="oolong")}, "oolong"),
        ({"text": "\ud801\udc28\ud801\udc29 \ud800"}, "\U00010428\U00010429"),
    ],
    ids=range(6),
)
def test_what_is_indexed_is_what_is_stored(face: Face, value: Any, query: str) -> None:
    index = {"embed": DeterministicEmbeddings(64), "fields": ["text", "tags[*]"]}
    with FaissStore(":memory:", index=index) as store:
        face(store, "put", ("a",), "k", value)
        for mode in ("keyword", "semantic"):
            assert keys(face(store, "recall", ("a",), query=query, mode=mode, threshold=0.5)) == ["k"]
        before = store.stats().vectors
        assert store.verify().problems == ()
        assert store.reindex() == before


def test_operations_of_a_batch_see_the_ones_before(store: FaissStore, face: Face) -> None:
    store.put(("a",), "old", {"text": "green tea"})
    results = face(
        store,
        "batch",
        [
            GetOp(("a",), "k"),
            PutOp(("a",), "k", {"text": "black tea"}),
            GetOp(("a",), "k"),
            SearchOp(("a",), query="black tea"),
            PutOp(("a",), "k", None),
            SearchOp(("a",), query="black tea"),
            ListNamespacesOp(),
        ],
    )
    assert results[0] is None
    assert results[2].value == {"text": "black tea"}
    assert keys(results[3]) == ["k", "old"]
    assert keys(results[5]) == ["old"]
    assert results[6] == [("a",)]


def test_a_failed_batch_leaves_nothing_also_not_in_memory(store: FaissStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(("a",), "old", {"text": "tea"})
    store.search(("a",), query="tea")
    monkeypatch.setattr("langmem_harness.store.execution.ItemWriter.finish", _fail)
    with pytest.raises(ZeroDivisionError):
        store.batch([PutOp(("a",), "new", {"text": "tea"}), SearchOp(("a",), query="tea")])
    monkeypatch.undo()
    assert keys(store.search(("a",), query="tea")) == ["old"]
    assert store.verify().ok


def _fail(*_: Any) -> None:
    raise ZeroDivisionError


def test_index_false_and_updates_leave_no_ghosts(store: FaissStore, face: Face) -> None:
    store.put(("a",), "k", {"text": "violet elephants"})
    assert keys(face(store, "search", ("a",), query="violet")) == ["k"]
    face(store, "put", ("a",), "k", {"text": "violet elephants"}, index=False)
    assert face(store, "search", ("a",), query="violet elephants") == []
    face(store, "put", ("a",), "k", {"text": "grey mice", "alt": "violet"}, index=["alt"])
    assert keys(face(store, "search", ("a",), query="violet")) == ["k"]
    assert face(store, "recall", ("a",), query="mice", mode="keyword").items == ()
    assert store.stats().vectors == 1


def test_without_a_query_the_one_written_last_comes_first(store: FaissStore, face: Face) -> None:
    for key in "cab":
        store.put(("a",), key, {"text": key})
    store.put(("a",), "c", {"text": "again"})
    found = face(store, "search", ("a",))
    assert keys(found) == ["c", "b", "a"]
    assert {item.retrieval for item in found} == {"recent"}
    assert keys(face(store, "search", ("a",), limit=1, offset=1)) == ["b"]
    assert face(store, "search", ("a",), limit=0) == []
    assert keys(face(store, "search", ("a",), query="   ")) == ["c", "b", "a"]


def test_pages_of_a_search_make_up_the_whole_and_ties_come_by_key(store: FaissStore, face: Face) -> None:
    store.batch([PutOp(("a",), f"{n:02}", {"text": "same words"}) for n in reversed(range(25))])
    whole = keys(face(store, "search", ("a",), query="same words", limit=100))
    assert whole == [f"{n:02}" for n in range(25)]
    pages = [keys(face(store, "search", ("a",), query="same", limit=7, offset=start)) for start in range(0, 28, 7)]
    assert [key for page in pages for key in page] == whole


def test_best_field_counts_then_pages(face: Face) -> None:
    index = {"embed": DeterministicEmbeddings(64), "fields": ["title", "tags[*]"]}
    with FaissStore(":memory:", index=index) as store:
        store.put(("a",), "k1", {"title": "boats", "tags": ["red", "blue whale", "sea"]})
        store.put(("a",), "k2", {"title": "blue", "tags": []})
        found = face(store, "recall", ("a",), query="blue whale", mode="semantic")
        assert keys(found) == ["k1", "k2"]
        assert found.items[0].score == pytest.approx(1.0)
        assert len(face(store, "search", ("a",), query="blue", limit=1, offset=1)) == 1
        titles = face(store, "recall", ("a",), query="blue whale", field_weights={"title": 1.0, "tags[*]": 0.0})
        assert titles.items[0].key == "k2"


def test_keyword_search_reads_leaves_not_keys(face: Face) -> None:
    with FaissStore(":memory:") as store:
        store.put(("a",), "k", {"drink": {"kind": "oolong"}, "year": 2024, "ok": True})
        assert keys(face(store, "search", ("a",), query="oolong")) == ["k"]
        assert keys(face(store, "search", ("a",), query="2024")) == ["k"]
        assert face(store, "search", ("a",), query="drink") == []
        assert face(store, "search", ("a",), query="true") == []


def test_small_tenant_gets_its_results_whatever_the_others_have(store: FaissStore, face: Face) -> None:
    store.batch([PutOp(("t", "b"), str(n), {"text": "red apple"}) for n in range(300)])
    store.batch([PutOp(("t", "a"), str(n), {"text": f"old car {n}", "mine": True}) for n in range(10)])
    assert len(face(store, "search", ("t", "a"), query="red apple", limit=10)) == 10
    assert len(face(store, "search", ("t",), query="red apple", limit=10, filter={"mine": True})) == 10


def test_ttl(face: Face) -> None:
    clock = FixedClock()
    index = {"embed": DeterministicEmbeddings(64)}
    with FaissStore(":memory:", index=index, ttl={"default_ttl": 10}, clock=clock) as store:
        store.put(("a",), "k", {"text": "tea"})
        store.put(("b",), "stays", {"text": "tea"}, ttl=None)
        clock.advance(minutes=9)
        assert face(store, "get", ("a",), "k") is not None  # starts its time again
        clock.advance(minutes=9)
        assert len(face(store, "search", ("a",), query="tea", refresh_ttl=False)) == 1
        clock.advance(minutes=2)
        assert face(store, "get", ("a",), "k") is None
        assert face(store, "search", ("a",)) == []
        assert keys(face(store, "search", (), query="tea")) == ["stays"]
        assert face(store, "list_namespaces") == [("b",)]
        assert store.stats().expired == 1
        assert store.sweep() == 1
        assert store.stats().items == 1
        assert store.verify().ok


@pytest.mark.parametrize("ttl", [-1, float("nan"), "5", True])
def test_an_odd_ttl_is_refused(store: FaissStore, ttl: Any) -> None:
    with pytest.raises(ItemValueError):
        store.put(("a",), "k", {"text": "x"}, ttl=ttl)


def test_sync_calls_on_the_event_loop_work_and_are_said_once() -> None:
    events: list[MemoryEvent] = []

    async def use() -> list[Any]:
        index = {"embed": DeterministicEmbeddings(64)}
        with FaissStore(":memory:", index=index, on_event=events.append) as store:
            store.put(("a",), "k", {"text": "tea"})
            return store.search(("a",), query="tea")

    assert keys(asyncio.run(asyncio.wait_for(use(), 10))) == ["k"]
    assert [type(event) for event in events] == [EventLoopBlocked]


def test_results_say_how_they_were_found(store: FaissStore, face: Face) -> None:
    store.put(("a",), "k", {"text": "green tea from japan"})
    store.put(("a",), "other", {"text": "fast cars"})
    result = face(store, "recall", ("a",), query="green tea ceremony")
    best = result.items[0]
    assert isinstance(best, RecallItem)
    assert (result.retrieval, best.retrieval, best.score_kind, result.degraded) == ("hybrid", "hybrid", "fused", None)
    assert best.legs["keyword"].coverage == pytest.approx(2 / 3)
    assert best.legs["semantic"].rank == 1
    assert result.seconds > 0
    nothing = face(store, "recall", ("a",), query="xyzzy plugh", threshold=0.9)
    assert (nothing.items, nothing.retrieval) == ((), "hybrid")
    varied = face(store, "recall", ("a",), query="tea", mmr_lambda=0.0, top_k=2)
    assert set(keys(varied)) == {"k", "other"}


@pytest.mark.parametrize(
    "options",
    [{"mode": "magic"}, {"threshold": 2}, {"mmr_lambda": -1}, {"fetch_k": 0}, {"top_k": -1}, {"query": 3}, {"k": 1}],
    ids=repr,
)
def test_wrong_options_are_refused(store: FaissStore, options: Any) -> None:
    with pytest.raises(ConfigurationError):
        store.recall(("a",), **options)


@pytest.mark.parametrize(
    "op",
    [
        None, 5, GetOp(("a",), 5), PutOp(("a",), None, {}), PutOp(("a",), "k", {}, index="text"),
        PutOp(("a",), "k", {}, index=[1]), PutOp(("a",), "k", {}, index=True), SearchOp(("a",), limit=-1),
        SearchOp(("a",), limit="1"), SearchOp(("a",), offset=None), SearchOp(("a",), query=b"x"),
        ListNamespacesOp(match_conditions=5), ListNamespacesOp(match_conditions=("x",)),
        ListNamespacesOp(match_conditions=(MatchCondition("middle", ("a",)),)), ListNamespacesOp(max_depth=0),
        ListNamespacesOp(limit=-1), SearchOp(("a",), filter={"a": {"$in": {1}}}),
    ],
    ids=range(17),
)  # fmt: skip
def test_an_odd_raw_operation_undoes_the_whole_batch(store: FaissStore, face: Face, op: Any) -> None:
    with pytest.raises(LangMemHarnessError):
        face(store, "batch", [PutOp(("a",), "before", {"text": "x"}), op])
    assert store.get(("a",), "before") is None


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = FaissStore(tmp_path / "s.sqlite")
    store.close()
    store.close()
    with pytest.raises(StorageClosedError):
        store.get(("a",), "k")


def test_clock_going_back_keeps_the_order_of_writing() -> None:
    clock = FixedClock()
    with FaissStore(":memory:", clock=clock) as store:
        store.put(("a",), "first", {"n": 1})
        clock.advance(timedelta(hours=-1))
        store.put(("a",), "second", {"n": 2})
        assert keys(store.search(("a",))) == ["second", "first"]


def test_the_peer_agrees_on_plain_use(face: Face) -> None:
    ours = FaissStore(
        ":memory:", index={"embed": DeterministicEmbeddings(256), "fields": ["text"]}, retrieval="semantic"
    )
    peer = InMemoryStore(index={"embed": DeterministicEmbeddings(256), "fields": ["text"], "dims": 256})
    with ours:
        for number, text in enumerate(["green tea", "black tea", "green car", "sea"]):
            for store in (ours, peer):
                store.put(("a", str(number % 2)), str(number), {"text": text})
        for query in ("green tea", "car", "sea green"):
            expected = [(item.key, item.score) for item in peer.search(("a",), query=query, limit=2)]
            found = [(item.key, item.score) for item in face(ours, "search", ("a",), query=query, limit=2)]
            assert [score for _, score in found] == pytest.approx([score for _, score in expected])
