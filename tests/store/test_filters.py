"""The truth table of ``docs/store.md``, on the predicate and through the whole store."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langmem_harness.errors import FilterError
from langmem_harness.store import FaissStore
from langmem_harness.store.filters import compile_filter
from tests.conftest import Face

BIG = 2**63 + 1

# (stored value, filter, matches)
TRUTH: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
    ({"a": 1}, {"a": 1}, True),
    ({"a": 1}, {"a": 1.0}, True),
    ({"a": 1}, {"a": True}, False),
    ({"a": True}, {"a": True}, True),
    ({"a": True}, {"a": 1}, False),
    ({"a": "5"}, {"a": 5}, False),
    ({"a": None}, {"a": None}, True),
    ({}, {"a": None}, True),
    ({}, {"a": 1}, False),
    ({}, {"a": {"$ne": 1}}, True),
    ({"a": None}, {"a": {"$ne": 1}}, True),
    ({"a": 1}, {"a": {"$ne": 1}}, False),
    ({"a": 1}, {"a": {"$ne": None}}, True),
    ({}, {"a": {"$ne": None}}, False),
    ({}, {"a": {"$exists": True}}, False),
    ({"a": None}, {"a": {"$exists": True}}, True),
    ({}, {"a": {"$exists": False}}, True),
    ({"a": 5}, {"a": {"$gt": 4}}, True),
    ({"a": 5}, {"a": {"$gt": 5}}, False),
    ({"a": 5}, {"a": {"$gte": 5, "$lt": 6}}, True),
    ({"a": 5}, {"a": {"$lte": 4.5}}, False),
    ({"a": "b"}, {"a": {"$gt": "a"}}, True),
    ({"a": "10"}, {"a": {"$gt": 9}}, False),
    ({"a": 10}, {"a": {"$lt": "9"}}, False),
    ({"a": True}, {"a": {"$gt": 0}}, False),
    ({"a": None}, {"a": {"$lt": 1}}, False),
    ({}, {"a": {"$lt": 1}}, False),
    ({"a": [9]}, {"a": {"$gt": 1}}, False),
    ({"a": 2**53 + 1}, {"a": 2**53}, False),
    ({"a": 2**53 + 1}, {"a": {"$gt": 2**53}}, True),
    ({"a": BIG}, {"a": BIG}, True),
    ({"a": BIG}, {"a": BIG + 1}, False),
    ({"a": BIG}, {"a": {"$gt": BIG - 1}}, True),
    ({"a": BIG}, {"a": {"$gt": 1}}, True),
    ({"a": -BIG}, {"a": {"$lt": 1}}, True),
    ({"a": [1, 2]}, {"a": [1, 2]}, True),
    ({"a": [1, 2]}, {"a": [2, 1]}, False),
    ({"a": [1, 2]}, {"a": 1}, False),
    ({"a": [1, 2]}, {"a": {"$contains": 2}}, True),
    ({"a": [True]}, {"a": {"$contains": 1}}, False),
    ({"a": "green tea"}, {"a": {"$contains": "tea"}}, True),
    ({"a": "green tea"}, {"a": {"$contains": 1}}, False),
    ({}, {"a": {"$contains": 1}}, False),
    ({"a": 1}, {"a": {"$in": [1, 2]}}, True),
    ({"a": "1"}, {"a": {"$in": [1, 2]}}, False),
    ({"a": 1}, {"a": {"$in": []}}, False),
    ({}, {"a": {"$in": [None]}}, True),
    ({}, {"a": {"$nin": [1]}}, True),
    ({"a": 1}, {"a": {"$nin": [1]}}, False),
    ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, True),
    ({"a": {"b": 1, "c": 2}}, {"a": {"$eq": {"b": 1}}}, False),
    ({"a": {"b": {"c": 5}}}, {"a": {"b": {"c": {"$gt": 4}}}}, True),
    ({"a": 1}, {"a": {"b": 1}}, False),
    ({"a": [{"b": 1, "c": 2}]}, {"a": [{"b": 1}]}, True),
    ({"a.b": 1}, {"a.b": 1}, True),
    ({"a": {"b": 1}}, {"a.b": 1}, False),
    ({"a": 1, "b": 2}, {"a": 1, "b": 3}, False),
    ({"a": 1, "b": 2}, {"$or": [{"a": 9}, {"b": 2}]}, True),
    ({"a": 1, "b": 2}, {"$and": [{"a": 1}, {"b": 3}]}, False),
    ({"a": 1}, {"$not": {"a": 1}}, False),
    ({"a": 1}, {"a": {"$not": {"$gt": 4}}}, True),
    ({}, {"a": {"$not": {"$gt": 4}}}, True),
    ({"a": 1}, {}, True),
    ({"a') OR 1=1 --": 1}, {"a') OR 1=1 --": 1}, True),
    ({"x": 1}, {"a') OR 1=1 --": 1}, False),
    ({'q"q': "é"}, {'q"q': "é"}, True),
    ({"a": "\ud800"}, {"a": "\ud800"}, True),
    ({"a": "a\0b"}, {"a": "a\0b"}, True),
    ({"a": "a\0b"}, {"a": "a"}, False),
    ({"a": '["x"]'}, {"a": ["x"]}, False),
    ({"a": ["x"]}, {"a": '["x"]'}, False),
]
WRONG: list[Any] = [
    {"$nope": 1}, {"a": {"$nope": 1}}, {"a": {"$gt": None}}, {"a": {"$gt": [1]}}, {"a": {"$gt": True}},
    {"a": {"$gt": float("nan")}}, {"a": {"$in": 5}}, {"a": {"$exists": 1}}, {"a": {"$gt": 1, "b": 2}}, {"$or": []},
    {"$and": {"a": 1}}, {"$not": 5}, {1: 2}, {"a": {1}}, {"a": object()}, {"a": float("inf")}, [("a", 1)],
    {"a": {"b": {2: 3}}},
]  # fmt: skip


def nested(wrap: Any, depth: int = 3_000) -> Any:
    condition: Any = 1
    for _ in range(depth):
        condition = wrap(condition)
    return condition


WRONG += [
    {"a": nested(lambda inner: {"$not": inner})}, {"a": nested(lambda inner: [inner])},
    {"a": nested(lambda inner: {"b": inner})}, {"a": {"$in": nested(lambda inner: [inner])}},
    {"$not": nested(lambda inner: {"$not": inner})}, {"$or": [nested(lambda inner: {"$or": [inner]})]},
    {"a": {"$eq": nested(lambda inner: {"b": inner})}},
]  # fmt: skip


@pytest.mark.parametrize(("value", "condition", "expected"), TRUTH)
def test_truth_table(value: dict[str, Any], condition: dict[str, Any], expected: bool) -> None:
    predicate = compile_filter(condition)
    assert (predicate is None or predicate(value)) is expected
    with FaissStore(":memory:", index={"fields": ["text"]}) as store:
        store.put(("a",), "k", {"text": "tea", **value})
        for query in (None, "tea"):
            assert bool(store.search(("a",), query=query, filter=condition)) is expected


@pytest.mark.parametrize("condition", WRONG, ids=range(len(WRONG)))  # ids without addresses of objects
def test_wrong_filters_are_errors(face: Face, condition: Any) -> None:
    with FaissStore(":memory:") as store, pytest.raises(FilterError):
        face(store, "search", ("a",), filter=condition)


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=4),
)  # fmt: skip


@settings(max_examples=60)
@given(
    st.lists(SCALARS, min_size=1, max_size=8), SCALARS, st.sampled_from(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"])
)
def test_sql_never_loses_a_match(values: list[Any], operand: Any, operator: str) -> None:
    condition = {"a": {operator: operand}}
    try:
        predicate = compile_filter(condition)
    except FilterError:
        return
    assert predicate is not None
    with FaissStore(":memory:") as store:
        for number, value in enumerate(values):
            store.put(("a",), str(number), {"a": value})
        expected = {str(number) for number, value in enumerate(values) if predicate({"a": value})}
        assert {item.key for item in store.search(("a",), filter=condition, limit=100)} == expected
