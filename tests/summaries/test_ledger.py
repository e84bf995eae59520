"""The ledger: over any store, sources as they were, lineage, nothing foreign."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langmem_harness.errors import NotFoundError
from langmem_harness.layout import summaries_namespace
from langmem_harness.store import FaissStore
from langmem_harness.summaries import SummaryLedger, SummaryRecord
from tests.conftest import Face

MESSAGES: list[BaseMessage] = [
    HumanMessage(
        [{"type": "text", "text": "look \ud800 \x00"}, {"type": "image", "base64": "AAAA"}], id="a", name="ada"
    ),
    AIMessage("", id="b", tool_calls=[{"name": "f", "args": {"x": 1}, "id": "c1"}], additional_kwargs={"k": "v"}),
    ToolMessage("3", tool_call_id="c1", name="f", artifact={"raw": object()}),
    HumanMessage("one more", id="d"),
]


@pytest.fixture(params=["memory", "faiss"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BaseStore]:
    if request.param == "memory":
        yield InMemoryStore()
    else:
        with FaissStore(str(tmp_path / "store.sqlite")) as faiss_store:
            yield faiss_store


def record(messages: list[BaseMessage], content: str = "text", **fields: Any) -> SummaryRecord:
    return SummaryRecord.create(
        sources=messages,
        **{
            "thread_id": "t",
            "model": "m",
            "prompt_version": "1",
            "policy": "p",
            "policy_fingerprint": "f",
            "content": content,
            "token_count_before": 10,
            "token_count_after": 2,
            **fields,
        },
    )


def test_written_listed_read_and_found_again(store: BaseStore, face: Face) -> None:
    ledger = SummaryLedger(store)
    first = record(MESSAGES[:2], "first")
    second = record(MESSAGES, "second", parent_id=first.id, purpose="user_history")
    face(ledger, "put", first, MESSAGES[:2])
    face(ledger, "put", second, MESSAGES)
    face(ledger, "put", second, MESSAGES)
    again = SummaryLedger(store)
    assert face(again, "list", "t") == [first, second]
    assert face(again, "list", "t", purpose="user_history") == [second]
    assert face(again, "list", "t", kind="tool_output") == []
    assert face(again, "list", "unknown") == []
    assert face(again, "get", second.id) == second
    assert face(again, "lineage", second.id) == [second, first]
    assert not face(again, "check", second.id, MESSAGES).is_stale
    report = face(again, "check", second.id, MESSAGES[1:], model="other")
    assert report.reasons == ("source_missing", "model_changed")


def test_sources_are_as_they_were_after_the_thread_changed(store: BaseStore, face: Face) -> None:
    ledger = SummaryLedger(store)
    made = record(MESSAGES)
    face(ledger, "put", made, MESSAGES)
    read = face(ledger, "sources", made.id, [HumanMessage("edited", id="a")])
    assert [(type(one), one.id, one.content, one.name) for one in read] == [
        (type(one), one.id, one.content, one.name) for one in MESSAGES
    ]
    assert read[1].tool_calls == MESSAGES[1].tool_calls  # type: ignore[attr-defined]
    assert read[1].additional_kwargs == {"k": "v"}


def test_sources_come_from_the_thread_when_there_are_no_copies(store: BaseStore, face: Face) -> None:
    ledger = SummaryLedger(store, keep_sources=False)
    made = record(MESSAGES[1:])
    face(ledger, "put", made, MESSAGES[1:])
    assert face(ledger, "sources", made.id, MESSAGES) == MESSAGES[1:]
    with pytest.raises(NotFoundError, match="1 of 3"):
        face(ledger, "sources", made.id, MESSAGES[:-1])


@pytest.mark.parametrize("record_id", ["", "t/0", "no slash", "../x", "t/" + "0" * 32, "%/x", "日本/1"])
def test_unknown_ids_are_not_found(store: BaseStore, face: Face, record_id: str) -> None:
    ledger = SummaryLedger(store)
    assert face(ledger, "get", record_id) is None
    for method, arguments in (("sources", ()), ("lineage", ()), ("check", ([],))):
        with pytest.raises(NotFoundError):
            face(ledger, method, record_id, *arguments)


def test_without_a_store_records_are_those_given(face: Face) -> None:
    first = record(MESSAGES[:2], "first")
    second = record(MESSAGES, "second", parent_id=first.id)
    ledger = SummaryLedger(records=[first])
    face(ledger, "put", second)
    assert face(ledger, "list", "t") == [first, second]
    assert face(ledger, "lineage", second.id) == [second, first]
    assert face(ledger, "sources", second.id, MESSAGES) == MESSAGES


def test_damaged_and_newer_items_are_left_out(store: BaseStore, face: Face, caplog: pytest.LogCaptureFixture) -> None:
    ledger = SummaryLedger(store)
    good = record(MESSAGES)
    face(ledger, "put", good, MESSAGES)
    namespace = summaries_namespace("t")
    store.put(namespace, "junk", {"x": 1}, index=False)
    store.put(namespace, "newer", {**good.to_dict(), "format_version": 99}, index=False)
    store.put(namespace, "changed", {**good.to_dict(), "content": "something else"}, index=False)
    assert face(ledger, "list", "t") == [good]
    assert len(caplog.records) >= 3


def test_many_records_are_all_listed(store: BaseStore) -> None:
    ledger = SummaryLedger(store, keep_sources=False)
    for number in range(1_003):
        ledger.put(record(MESSAGES[:1], f"text {number}"))
    assert len(ledger.list("t")) == 1_003


def test_a_message_is_stored_once_however_often_it_is_covered(face: Face) -> None:
    store = InMemoryStore()
    ledger = SummaryLedger(store)
    for number in range(5):
        face(ledger, "put", record(MESSAGES, f"text {number}"), MESSAGES)
    assert len(store.search(("threads", "t", "summary_sources"), limit=100)) == len(MESSAGES)


def test_a_lineage_that_goes_in_circles_ends(face: Face) -> None:
    one = record(MESSAGES, "one")
    two = record(MESSAGES, "two", parent_id=one.id)
    looped = SummaryRecord.from_dict({**one.to_dict(), "parent_id": two.id})
    ledger = SummaryLedger(records=[looped, two])
    assert face(ledger, "lineage", two.id) == [two, looped]
