"""Terms as SQLite keeps them: what is packed comes back, what is damaged is said."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langmem_harness.errors import CorruptionError, RecordError
from langmem_harness.store.terms import pack_terms, unpack_many, unpack_terms

COUNTS = st.dictionaries(
    st.text(st.characters(exclude_characters="\n"), min_size=1, max_size=8), st.integers(1, 2**31 - 1), max_size=6
)


@given(COUNTS)
@settings(max_examples=50)
def test_packed_terms_come_back(counts: dict[str, int]) -> None:
    data = pack_terms(counts)
    assert unpack_terms(data) == counts
    assert pack_terms(dict(reversed(counts.items()))) == data


@pytest.mark.parametrize(
    "counts", [{"": 1}, {"": 1, "a": 1}, {"a\nb": 1}, {"a\n": 1, "b": 1}, {"\n": 1}, {"a": 0}, {"a": 2**31}]
)
def test_terms_that_cannot_be_packed(counts: dict[str, int]) -> None:
    with pytest.raises(RecordError):
        pack_terms(counts)


def test_damaged_terms_are_an_error() -> None:
    data = pack_terms({"tea": 2, "window": 1})
    for damaged in (b"", b"\x02" + data[1:], data[:3], data[:8], data[:-7], data + b"\nmore", data[:-1] + b"\xff"):
        with pytest.raises(CorruptionError):
            unpack_terms(damaged)
        with pytest.raises(CorruptionError):
            unpack_many([data, damaged, data])


@given(st.lists(COUNTS, max_size=6))
@settings(max_examples=50)
def test_many_come_back_as_one_by_one(documents: list[dict[str, int]]) -> None:
    terms, counts, sizes = unpack_many(map(pack_terms, documents))
    assert sizes == list(map(len, documents))
    pairs = list(zip(terms, counts.tolist(), strict=True))
    assert pairs == [pair for document in documents for pair in sorted(document.items())]
