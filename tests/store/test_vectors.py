"""Vectors of a partition: what is exact, and ties that are ties."""

from __future__ import annotations

import numpy as np
import pytest

from langmem_harness.store import FaissStore
from langmem_harness.store.vectors import VectorIndex, normalize
from langmem_harness.testing import DeterministicEmbeddings


@pytest.mark.parametrize("count", [1, 2, 3, 7, 10, 101, 1_037])
@pytest.mark.parametrize("dims", [3, 8, 384, 1_000])
def test_equal_vectors_have_equal_cosines_wherever_they_lie(count: int, dims: int) -> None:
    random = np.random.default_rng(count)
    index = VectorIndex(dims)
    (unit,) = normalize([random.standard_normal(dims)], dims)
    (query,) = normalize([random.standard_normal(dims)], dims)
    assert unit is not None
    assert query is not None
    index.append(np.tile(unit, (count, 1)))
    everything = index.cosines(query)
    some = index.cosines(query, np.arange(0, count, 2))
    assert set(everything.tolist()) == set(some.tolist()) == {everything[0]}
    assert everything[0] == pytest.approx(float(unit @ query), abs=1e-6)


def test_items_with_the_same_text_come_by_key() -> None:
    with FaissStore(
        ":memory:", index={"embed": DeterministicEmbeddings(384), "dims": 384}, retrieval="semantic"
    ) as store:
        for number in range(37):
            store.put(("ns",), f"filler{number}", {"text": f"something else {number}"})
        keys = [f"{number * 7 % 101:03}" for number in range(101)]
        for key in keys:
            store.put(("ns",), key, {"text": "the same words"})
        found = store.search(("ns",), query="the same words", limit=101)
    assert [item.key for item in found] == sorted(keys)
    assert len({item.score for item in found}) == 1


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1.0, 1e30, 1e300])
def test_lengths_far_from_one_become_one(scale: float) -> None:
    (unit,) = normalize([[3 * scale, 4 * scale]], 2)
    assert unit is not None
    assert unit.tolist() == pytest.approx([0.6, 0.8], abs=1e-7)


@pytest.mark.parametrize(
    "vector",
    [[0.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0], [1.0], [1.0, 2.0, 3.0], ["a", "b"], [None, 1.0]],
)
def test_a_vector_that_cannot_be_used_does_not_spoil_the_others(vector: list[float]) -> None:
    first, odd, last = normalize([[1.0, 0.0], vector, [0.0, 2.0]], 2)
    assert odd is None
    assert first is not None
    assert first.tolist() == [1.0, 0.0]
    assert last is not None
    assert last.tolist() == [0.0, 1.0]
