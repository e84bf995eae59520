"""BM25 against the textbook, and an index that stays right while it changes."""

from __future__ import annotations

import math
import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langmem_harness.errors import ConfigurationError, CorruptionError
from langmem_harness.store.keywords import KeywordIndex
from langmem_harness.store.terms import pack_terms

TERMS = st.lists(st.sampled_from("abcdefgh"), max_size=12)
DOCUMENTS = st.dictionaries(st.integers(-(2**40), 2**40), TERMS, max_size=12)
QUERY = st.lists(st.sampled_from("abcdefghxyz"), max_size=6)


def textbook_scores(documents: dict[int, list[str]], query: list[str], k1: float, b: float) -> dict[int, float]:
    """BM25 as it is written down: one document and one term at a time."""
    average = sum(map(len, documents.values())) / len(documents) if documents else 0
    scores = {}
    for row, terms in documents.items():
        score = 0.0
        for term in set(query) & set(terms):
            frequency = sum(term in other for other in documents.values())
            idf = math.log(1 + (len(documents) - frequency + 0.5) / (frequency + 0.5))
            count = terms.count(term)
            score += idf * count * (k1 + 1) / (count + k1 * (1 - b + b * len(terms) / average))
        if set(query) & set(terms):
            scores[row] = score
    return scores


def build(documents: dict[int, list[str]], k1: float = 1.5, b: float = 0.75) -> KeywordIndex:
    index = KeywordIndex(k1, b)
    index.add_many((row, Counter(terms)) for row, terms in documents.items())
    return index


def check(index: KeywordIndex, documents: dict[int, list[str]], query: list[str]) -> None:
    hits = index.search(query)
    expected = textbook_scores(documents, query, index.k1, index.b)
    assert set(hits.rows.tolist()) == expected.keys()
    assert hits.scores.tolist() == pytest.approx([expected[row] for row in hits.rows.tolist()], rel=1e-5)
    pairs = list(zip((-hits.scores).tolist(), hits.rows.tolist(), strict=True))
    assert pairs == sorted(pairs)
    for row, coverage in zip(hits.rows.tolist(), hits.coverage.tolist(), strict=True):
        assert coverage == pytest.approx(len(set(query) & set(documents[row])) / len(set(query)))


@given(DOCUMENTS, QUERY, st.sampled_from([(1.5, 0.75), (0.9, 0.4), (0.0, 0.0), (2.0, 1.0)]))
@settings(max_examples=100)
def test_scores_are_those_of_the_textbook(
    documents: dict[int, list[str]], query: list[str], settings: tuple[float, float]
) -> None:
    check(build(documents, *settings), documents, query)


@given(
    st.lists(st.tuples(st.integers(0, 8), st.one_of(st.none(), TERMS)), max_size=40),
    QUERY,
)
@settings(max_examples=100)
def test_a_changed_index_is_a_new_index(changes: list[tuple[int, list[str] | None]], query: list[str]) -> None:
    index, documents = KeywordIndex(), dict[int, list[str]]()
    for row, terms in changes:
        if terms is None:
            assert index.remove(row) is (documents.pop(row, None) is not None)
        else:
            index.add(row, Counter(terms))
            documents[row] = terms
    assert len(index) == len(documents)
    check(index, documents, query)


def test_sweeping_changes_nothing_and_frees_memory() -> None:
    documents = {row: [f"t{row % 50}", f"u{row}", "all"] for row in range(1_500)}
    index = build(documents)
    full = index.nbytes
    for row in range(1_400):
        assert index.remove(row)
        del documents[row]
    check(index, documents, ["all", "t7", "u1450", "u3"])
    assert index.nbytes < full / 5
    for row in range(1_400, 1_500):
        index.remove(row)
    assert len(index) == 0
    assert len(index.search(["all"])) == 0


def test_documents_without_words_can_be_swept() -> None:
    index = build({row: [] for row in range(600)})
    for row in range(599):
        assert index.remove(row)
    index.add(7, {"tea": 1})
    assert index.search(["tea"]).rows.tolist() == [7]
    assert (len(index), 599 in index, 0 in index) == (2, True, False)


def test_rows_restrict_before_ranking_and_change_no_score() -> None:
    documents = {row: ["tea"] * (row + 1) + ["x"] * (50 - row) for row in range(50)}
    index = build(documents)
    everything = dict(zip(*(values.tolist() for values in _pair(index, ["tea"])), strict=True))
    hits = index.search(["tea"], rows=np.array([3, 3, 999, 7, 1]), limit=2)
    assert hits.rows.tolist() == [7, 3]
    assert hits.scores.tolist() == [everything[7], everything[3]]
    assert len(index.search(["tea"], rows=np.array([], dtype=np.int64))) == 0


@given(DOCUMENTS, QUERY, st.integers(0, 6), st.lists(st.integers(0, 14), max_size=6), st.booleans())
@settings(max_examples=100)
def test_rows_asked_for_come_beside_the_best_as_if_all_were_asked_for(
    documents: dict[int, list[str]], query: list[str], limit: int, picks: list[int], is_ascending: bool
) -> None:
    if is_ascending:
        documents = dict(sorted(documents.items()))
    index = build(documents)
    rows = list(documents)
    also = np.array([rows[pick] if pick < len(rows) else pick for pick in picks], dtype=np.int64)
    everything, hits = index.search(query), index.search(query, limit=limit, also=also)
    expected = [
        position for position, row in enumerate(everything.rows.tolist()) if position < limit or row in also.tolist()
    ]
    assert hits.rows.tolist() == everything.rows[expected].tolist()
    assert hits.scores.tolist() == everything.scores[expected].tolist()
    assert hits.coverage.tolist() == everything.coverage[expected].tolist()


def test_rows_asked_for_beside_the_best_need_not_be_among_the_rows_that_may_answer() -> None:
    index = build({row: ["tea"] * (row + 1) + ["x"] for row in range(5)})
    hits = index.search(["tea"], rows=np.array([0, 1]), limit=1, also=np.array([3]))
    assert hits.rows.tolist() == [3, 1]


@pytest.mark.parametrize("k1", [1e-300, 1e300])
def test_extreme_settings_still_order_documents(k1: float) -> None:
    index = build({1: ["tea", "x"], 2: ["tea", "tea"], 3: ["x"]}, k1)
    hits = index.search(["tea"])
    assert hits.rows.tolist() == ([2, 1] if k1 > 1 else [1, 2])
    assert np.isfinite(hits.scores).all()
    assert (hits.scores > 0).all()


def _pair(index: KeywordIndex, query: list[str]) -> tuple[np.ndarray, np.ndarray]:
    hits = index.search(query)
    return hits.rows, hits.scores


def test_equal_scores_come_by_row_whatever_order_they_were_added_in() -> None:
    rows = [5, -3, 12, 0, 7, 2**62]
    index = build({row: ["tea"] for row in rows})
    assert index.search(["tea"]).rows.tolist() == sorted(rows)
    assert index.search(["tea"], limit=3).rows.tolist() == sorted(rows)[:3]


def test_a_filter_is_not_worth_more_for_common_words_but_never_less_than_nothing() -> None:
    index = build({row: ["all"] for row in range(10)})
    assert (index.search(["all"]).scores > 0).all()


@pytest.mark.parametrize("query", [[], ["missing"]])
def test_nothing_found_is_empty(query: list[str]) -> None:
    for index in (KeywordIndex(), build({1: ["tea"]}), build({1: []})):
        hits = index.search(query)
        assert (len(hits.rows), len(hits.scores), len(hits.coverage)) == (0, 0, 0)
    assert len(build({1: ["tea"]}).search(["tea"], limit=0)) == 0


def test_repeating_and_reordering_the_query_changes_nothing() -> None:
    index = build({1: ["a", "b"], 2: ["b", "c", "c"]})
    one, other = index.search(["a", "b", "c"]), index.search(["c", "b", "a", "a", "a"])
    assert one.scores.tolist() == other.scores.tolist()
    assert one.coverage.tolist() == other.coverage.tolist()


@pytest.mark.parametrize("wrong", [{"k1": -1}, {"k1": math.nan}, {"k1": math.inf}, {"b": 1.1}, {"b": -0.1}])
def test_settings_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError):
        KeywordIndex(**wrong)


def test_many_small_changes_are_not_quadratic() -> None:
    index, sweeps, held = KeywordIndex(), 0, 0
    for change in range(16_000):
        index.add(change % 500, {"all": 1, f"t{change}": 1})
        sweeps += len(index._postings) < held
        held = len(index._postings)
        assert held <= 2_100  # words of overwritten documents go too
    assert sweeps <= 16_000 // 500  # a sweep costs what is held, so there is at most one for as many changes


def pack(documents: dict[int, list[str]]) -> list[bytes]:
    return [pack_terms(Counter(terms)) for terms in documents.values()]


@given(st.lists(st.tuples(DOCUMENTS, st.sets(st.integers(0, 11))), max_size=4), QUERY)
@settings(max_examples=100)
def test_documents_added_together_are_documents_added_one_by_one(
    rounds: list[tuple[dict[int, list[str]], set[int]]], query: list[str]
) -> None:
    index, held = KeywordIndex(), dict[int, list[str]]()
    for documents, doomed in rounds:
        index.add_packed(list(documents), pack(documents))
        held |= documents
        for row in [row for place, row in enumerate(documents) if place in doomed]:
            assert index.remove(row)
            del held[row]
    assert len(index) == len(held)
    check(index, held, query)


def test_a_large_index_takes_single_documents_and_many_and_stays_right() -> None:
    documents = {row: [f"t{row % 70}", f"u{row}", "all"] for row in range(3_000)}
    index = KeywordIndex()
    index.add_packed(list(documents), pack(documents))
    for row in range(3_000, 5_000):  # more than are kept apart
        documents[row] = [f"t{row % 70}", f"v{row}", "all"]
        index.add(row, Counter(documents[row]))
    for row in range(2_600):
        assert index.remove(row)
        del documents[row]
    few = {row: ["all", "few"] for row in range(5_000, 5_010)}
    index.add_packed(list(few), pack(few))
    documents |= few
    check(index, documents, ["all", "t7", "u2999", "v4000", "few"])
    assert index.search(["u3"]).rows.tolist() == []


def test_damaged_terms_add_nothing() -> None:
    index = build({1: ["tea"]})
    for damaged in (b"", pack_terms({"window": 1})[:-6]):
        with pytest.raises(CorruptionError):
            index.add_packed([2, 3], [pack_terms({"lamp": 1, "tea": 1}), damaged])
    assert (len(index), len(index.search(["lamp"])), index.search(["tea"]).rows.tolist()) == (1, 0, [1])
    index.add_packed([4], [pack_terms({"door": 2})])
    assert index.search(["door"]).rows.tolist() == [4]


def test_memory_of_a_namespace_is_counted() -> None:
    documents = {row: [f"t{row % 70}", f"u{row}", "all"] for row in range(3_000)}
    packed = pack(documents)
    tracemalloc.start()
    try:
        index = KeywordIndex()
        index.add_packed(list(documents), packed)
        index.search(["all"])
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0.8 * held < index.nbytes < 1.6 * held
