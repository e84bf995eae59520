"""Each rule of admission by itself: it refuses, says so in the result and in an event, and can be turned off."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langmem_harness.errors import ConfigurationError, NotFoundError
from langmem_harness.events import MemoryEvent
from langmem_harness.memory import AdmissionPolicy, LongTermMemory, MemoryScope, MemorySource
from langmem_harness.memory.chunks import OVERLAP_TOKENS, PASSAGE_TOKENS, split_passages
from langmem_harness.redaction import RedactionPolicy, Redactor
from langmem_harness.store import FaissStore
from langmem_harness.testing import DeterministicEmbeddings
from langmem_harness.window.tokens import estimate_text_tokens
from tests.conftest import Face

ADA = MemoryScope(user="ada")
SENTENCE = "The deployment window of the shop is Tuesday between nine and eleven in the morning."
ERROR = "Error: connection refused while talking to the database server on port 5432"
THANKS = "Hello there! Good morning, how are you? Thank you very much, great to see you!"

# the setting as it is, the setting that turns the rule off, what it refuses, and the reason it gives
RULES: list[tuple[dict[str, Any], dict[str, Any], str, dict[str, Any], str]] = [
    ({}, {"min_characters": 0}, "Uses port 8080.", {}, "too_short"),
    ({"max_characters": 60}, {"max_characters": 1_000}, SENTENCE, {"explicit": True}, "too_long"),
    ({}, {"refuse_errors": False}, ERROR, {}, "error_message"),
    ({}, {"refuse_small_talk": False}, THANKS, {}, "small_talk"),
    ({}, {"admit_tool_sources": True}, SENTENCE, {"source_kind": "tool"}, "tool_source"),
    (
        {"validate": lambda record: "unknown_incident"},
        {"validate": lambda record: None},
        SENTENCE,
        {},
        "unknown_incident",
    ),
]


@pytest.mark.parametrize(("on", "off", "text", "options", "reason"), RULES, ids=[rule[-1] for rule in RULES])
def test_a_rule_refuses_and_can_be_turned_off(
    face: Face, on: dict[str, Any], off: dict[str, Any], text: str, options: dict[str, Any], reason: str
) -> None:
    events: list[MemoryEvent] = []
    memory = LongTermMemory(InMemoryStore(), policy=AdmissionPolicy(**on), on_event=events.append)
    source = MemorySource(thread_id="t1")
    result = face(memory, "upsert", ADA, text, source=source, **options)
    assert (result.action, result.reason, result.record) == ("refused", reason, None)
    assert [(event.kind, event.to_dict()["reason"], event.thread_id) for event in events] == [
        ("memory_refused", reason, "t1")
    ]
    assert text not in repr(events)
    assert face(memory, "list", ADA) == ()
    memory = LongTermMemory(InMemoryStore(), policy=AdmissionPolicy(**off))
    assert face(memory, "upsert", ADA, text, **options).action == "added"


def test_a_blocking_redactor_is_a_rule_too(face: Face) -> None:
    events: list[MemoryEvent] = []
    redactor = Redactor(RedactionPolicy(actions={"email": "block"}))
    memory = LongTermMemory(InMemoryStore(), redactor=redactor, on_event=events.append)
    result = face(memory, "upsert", ADA, "Mail ada@example.org about it.", explicit=True)
    assert (result.action, result.reason) == ("refused", "contains_email")
    assert [event.to_dict()["reason"] for event in events] == ["contains_email"]


@pytest.mark.parametrize("length", [49, 50])
def test_the_shortest_text(face: Face, length: int) -> None:
    result = face(LongTermMemory(InMemoryStore()), "upsert", ADA, "ab cd" * (length // 5) + "e" * (length % 5))
    assert result.action == ("added" if length >= 50 else "refused")


def test_near_duplicates_can_be_kept(face: Face) -> None:
    index: Any = {"embed": DeterministicEmbeddings(), "dims": 64, "fields": ["text"]}
    policy = AdmissionPolicy(near_duplicate_cosine=0.8)
    for rule, count in ((policy, 1), (replace(policy, near_duplicate_cosine=None), 2)):
        memory = LongTermMemory(InMemoryStore(index=index), policy=rule)
        for text in ("The user really likes green tea in the morning.", "The user likes green tea in the morning."):
            face(memory, "upsert", ADA, text, explicit=True)
        assert len(face(memory, "list", ADA)) == count


class Counted(DeterministicEmbeddings):
    """Notes every request."""

    def __init__(self) -> None:
        super().__init__(dims=64)
        self.batches: list[list[str]] = []
        self.queries: list[str] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.batches.append(list(texts))
        return super().embed_documents(texts)

    def embed_query(self, text: str) -> list[float]:
        self.queries.append(text)
        return super().embed_query(text)


@pytest.mark.parametrize("ours", [True, False])
def test_a_long_text_is_embedded_by_passages_in_one_batch(face: Face, ours: bool) -> None:
    embeddings = Counted()
    index: Any = {"embed": embeddings, "dims": 64, "fields": ["text"]}
    store: BaseStore = FaissStore(":memory:", index=index) if ours else InMemoryStore(index=index)
    text = "".join(f"Sentence number {number} is about something of its own.\r\n" for number in range(1_500))
    try:
        memory = LongTermMemory(store)
        record = face(memory, "upsert", ADA, text, explicit=True).record
        passages = split_passages(text)
        assert len(passages) > 3
        assert max(map(estimate_text_tokens, passages)) <= PASSAGE_TOKENS == 2_000
        assert OVERLAP_TOKENS == 200
        texts = [batch for batch in embeddings.batches if len(batch) > 1]
        assert texts == [passages], "all passages, nothing else, in one request"
        assert embeddings.queries == [], "a long text is not a query"
        assert face(memory, "get", ADA, record.key).text == text
    finally:
        if isinstance(store, FaissStore):
            store.close()


def test_two_long_texts_that_share_most_of_their_words_are_two(face: Face) -> None:
    index: Any = {"embed": DeterministicEmbeddings(), "dims": 64, "fields": ["text"]}
    memory = LongTermMemory(InMemoryStore(index=index), policy=AdmissionPolicy(near_duplicate_cosine=0.5))
    same = "the same line again and again, as everybody knows. " * 1_000
    for end in ("and in the end it rained.", "and in the end it snowed."):
        assert face(memory, "upsert", ADA, same + end, explicit=True).action == "added"


@pytest.mark.parametrize(
    "options",
    [
        {"kind": 5},
        {"ordinal": 1.5},
        {"ordinal": 2**63},
        {"ttl": 5},
        {"ttl": timedelta(0)},
        {"ttl": timedelta(seconds=-1)},
        {"ttl": timedelta.max},
        {"source": "t1"},
        {"source": ["t1"]},
        {"subject": " ", "attribute": "home"},
        {"subject": 1, "attribute": "home"},
    ],
    ids=repr,
)
def test_a_row_that_no_list_could_read_is_not_written(face: Face, options: dict[str, Any]) -> None:
    memory = LongTermMemory(InMemoryStore())
    with pytest.raises(ConfigurationError):
        face(memory, "upsert", ADA, SENTENCE, **options)
    assert face(memory, "list", ADA) == ()


@pytest.mark.parametrize("text", [None, 5, b"bytes", ["list"]])
def test_a_text_is_a_text(face: Face, text: Any) -> None:
    with pytest.raises(ConfigurationError):
        face(LongTermMemory(InMemoryStore()), "upsert", ADA, text, explicit=True)


@pytest.mark.parametrize(("method", "option"), [("upsert", "tll"), ("search", "treshold"), ("recall", "top_k")])
def test_an_option_that_does_not_exist_is_not_passed_over(face: Face, method: str, option: str) -> None:
    with pytest.raises(TypeError, match=option):
        face(LongTermMemory(InMemoryStore()), method, ADA, SENTENCE, **{option: 1})


@pytest.mark.parametrize("key", [5, None, b"m", ("m",)])
@pytest.mark.parametrize("method", ["get", "delete", "history"])
def test_a_key_that_is_no_text_is_not_there(face: Face, method: str, key: Any) -> None:
    with pytest.raises(NotFoundError):
        face(LongTermMemory(InMemoryStore()), method, ADA, key)
