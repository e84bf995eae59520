"""Pages, ties and pools of a search: nothing that was left out could have been among the best."""

from __future__ import annotations

import random
from typing import Any

import pytest
from langgraph.store.base import PutOp

from langmem_harness.store import FaissStore
from langmem_harness.testing import DeterministicEmbeddings


def opened(fields: list[str] | None = None, **options: Any) -> FaissStore:
    index = {"embed": DeterministicEmbeddings(64), "fields": fields or ["text"]}
    return FaissStore(":memory:", index=index, **options)


def keys(items: Any) -> list[str]:
    return [item.key for item in items]


def pages(store: FaissStore, size: int, count: int, **options: Any) -> list[str]:
    found = [store.recall(("a",), top_k=size, offset=start, **options) for start in range(0, count + size, size)]
    return [item.key for page in found for item in page]


@pytest.mark.parametrize("mode", ["keyword", "semantic"])
def test_ties_come_by_key_also_where_a_leg_stops_early(mode: Any) -> None:
    names = [f"{number:04}" for number in range(2_500)]
    with opened(exact_limit=1_000) as store:
        store.batch([PutOp(("a",), name, {"text": "green tea"}) for name in reversed(names)])
        assert keys(store.recall(("a",), query="tea", mode=mode, top_k=3)) == names[:3]
        assert keys(store.recall(("a",), query="tea", mode=mode, top_k=3, offset=1_200)) == names[1_200:1_203]
        assert pages(store, 700, 2_500, query="tea", mode=mode) == names


def test_ties_come_by_key_then_by_labels() -> None:
    places = [
        (key, namespace)
        for namespace in [("a", "b"), ("a-b",), ("a",), ("a!",), ("a", "z"), ("é",)]
        for key in ["x", "x\0", "x\0y", "", "x ", "\ud800"]
    ]
    with opened() as store:
        store.batch([PutOp(namespace, key, {"text": "tea"}) for key, namespace in places])
        for mode in ("keyword", "semantic", "hybrid"):
            found = store.recall((), query="tea", mode=mode, top_k=100)
            assert [(item.key, item.namespace) for item in found] == sorted(places)


@pytest.mark.parametrize("options", [{}, {"fetch_k": 20}, {"fetch_k": 2}, {"mmr_lambda": 0.0}, {"mmr_lambda": 1.0}])
def test_pages_of_a_varied_search_make_up_the_whole(options: dict[str, Any]) -> None:
    words = [f"w{number}" for number in range(30)]
    generator = random.Random(1)
    with opened() as store:
        store.batch(
            [PutOp(("a",), f"{n:03}", {"text": " ".join(["tea", *generator.sample(words, 4)])}) for n in range(60)]
        )
        asked = {"query": "tea w1 w2 w3", "mmr_lambda": 0.5, **options}
        varied = pages(store, 5, 60, **asked)
        assert sorted(varied) == [f"{n:03}" for n in range(60)]
        plain = keys(store.recall(("a",), query="tea w1 w2 w3", top_k=60))
        assert varied[0] == plain[0]
        if options.get("mmr_lambda") == 1.0:
            assert varied == plain
        pool = max(5, options.get("fetch_k", 15))
        assert varied[pool:] == plain[pool:]  # behind the pool nothing moves


@pytest.mark.parametrize(
    "options",
    [{"top_k": 0}, {"top_k": 0, "offset": 5}, {"top_k": 0, "fetch_k": 4}, {"offset": 50}, {"top_k": 10**30},
     {"field_weights": {"text": 0.0}}, {"field_weights": {"nope": 1.0}}, {"threshold": 1.0, "query": "car"}],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize("variety", [{}, {"mmr_lambda": 0.5}])
def test_nothing_to_choose_from_is_an_empty_answer(options: dict[str, Any], variety: dict[str, Any]) -> None:
    with opened() as store:
        store.put(("a",), "k", {"text": "tea"})
        for mode in ("keyword", "semantic", "hybrid"):
            found = store.recall(("a",), **{"query": "tea", "mode": mode, **options, **variety})
            assert len(found) == (1 if options.get("top_k") == 10**30 else 0)


def test_deleted_neighbours_do_not_use_up_the_approximate_leg() -> None:
    with opened(exact_limit=1_000) as store:
        store.batch([PutOp(("a",), f"tea {n}", {"text": "green tea"}) for n in range(2_000)])
        store.batch([PutOp(("a",), f"car {n}", {"text": f"car {n}"}) for n in range(2_000)])
        assert len(store.recall(("a",), query="green tea", mode="semantic")) == 10
        store.batch([PutOp(("a",), f"tea {n}", None) for n in range(1_000)])
        store.batch([PutOp(("a",), f"tea {n}", {"text": f"car again {n}"}) for n in range(1_000, 1_995)])
        for mode in ("semantic", "hybrid"):
            found = keys(store.recall(("a",), query="green tea", mode=mode, top_k=20))
            assert found[:5] == [f"tea {n}" for n in range(1_995, 2_000)]
            assert len(found) == 20


@pytest.mark.parametrize("mode", ["keyword", "semantic", "hybrid"])
def test_many_texts_of_one_item_do_not_use_up_the_places_of_others(mode: Any) -> None:
    with opened(["parts[*]"], exact_limit=1_000) as store:
        store.batch([PutOp(("a",), f"long {n}", {"parts": [f"green tea {i}" for i in range(900)]}) for n in range(3)])
        store.batch([PutOp(("a",), f"short {n}", {"parts": [f"tea {n}"]}) for n in range(50)])
        found = keys(store.recall(("a",), query="green tea", mode=mode))
        assert len(found) == len(set(found)) == 10
        assert {"long 0", "long 1", "long 2"} < set(found)


@pytest.mark.parametrize("limit", [0, 1, 15, 16])
@pytest.mark.parametrize("dims", [1, 2, 3, 64])
def test_codes_wait_until_there_is_enough_to_learn_from(limit: int, dims: int) -> None:
    index = {"embed": DeterministicEmbeddings(dims), "fields": ["text"]}
    with FaissStore(":memory:", index=index, exact_limit=limit) as store:
        for number in range(19):
            assert len(store.recall(("a",), query="tea", mode="semantic", top_k=50)) == number
            store.put(("a",), str(number), {"text": f"tea {number}"})
