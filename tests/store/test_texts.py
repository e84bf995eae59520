"""Which texts of an item are indexed: those LangGraph would index, found faster."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.store.base import get_text_at_path

from langmem_harness.errors import CorruptionError
from langmem_harness.store.terms import unpack_terms
from langmem_harness.store.texts import FieldPaths, pack_item_terms, unpack_item_terms, unpack_items
from langmem_harness.store.tokenizer import Tokenizer

FIELDS = ("text", "*", "[0]", "[*]", "{text,note}", "text.note", "note[*]", "$", "")
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5))
VALUES = st.dictionaries(
    st.sampled_from(["text", "note", "*", "[0]", "{text,note}", "text.note"]),
    st.one_of(
        LEAVES,
        st.lists(LEAVES, max_size=2),
        st.dictionaries(st.sampled_from(["text", "note"]), LEAVES, max_size=2),
    ),
    max_size=4,
)


@given(VALUES, st.sampled_from(FIELDS))
@settings(max_examples=100)
def test_the_texts_are_those_langgraph_embeds(value: dict[str, Any], field: str) -> None:
    found = FieldPaths([field]).texts(value)
    assert [entry.text for entry in found] == get_text_at_path(value, field)
    assert [entry.text for entry in FieldPaths(["other"]).texts(value, [field])] == get_text_at_path(value, field)


@given(st.lists(st.dictionaries(st.sampled_from(["text", "note", "n\u00e4me"]), st.text(max_size=9)), max_size=5))
@settings(max_examples=50)
def test_packed_items_come_back_one_by_one_and_together(values: list[dict[str, str]]) -> None:
    tokenizer, paths = Tokenizer(), FieldPaths(["text", "n\u00e4me"])
    texts = [paths.texts(value) for value in values]
    packed = [pack_item_terms(entries, tokenizer) for entries in texts]
    sizes, fields, terms = unpack_items(packed)
    assert sizes == list(map(len, texts))
    assert fields == [entry.field for entries in texts for entry in entries]
    assert [sorted(unpack_terms(part)) for part in terms] == [
        sorted(set(tokenizer.terms(entry.words))) for entries in texts for entry in entries
    ]
    assert list(zip(fields, terms, strict=True)) == [pair for data in packed for pair in unpack_item_terms(data)]


def test_items_cut_off_are_an_error() -> None:
    data = pack_item_terms(FieldPaths(["text"]).texts({"text": "tea"}), Tokenizer())
    for damaged in (data[:3], data[:-1], data + b"\x00", data.replace(b"text", b"\xff\xff\xff\xff")):
        with pytest.raises(CorruptionError):
            unpack_items([data, damaged])
