"""Records: derived ids, plain data, every reason to be stale."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import BaseMessage, HumanMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langmem_harness.errors import RecordError
from langmem_harness.summaries import SummaryRecord, check_staleness, policy_fingerprint
from langmem_harness.summaries.record import thread_of

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
MESSAGES = [HumanMessage("one", id="a"), HumanMessage("two", id="b"), HumanMessage("no id")]


def record(messages: list[BaseMessage] | None = None, **fields: Any) -> SummaryRecord:
    return SummaryRecord.create(
        **{
            "sources": MESSAGES if messages is None else messages,
            "thread_id": "t",
            "model": "m",
            "prompt_version": "1",
            "policy": "p",
            "policy_fingerprint": "f",
            "content": "text",
            "token_count_before": 10,
            "token_count_after": 2,
            "created_at": NOW,
            **fields,
        }
    )


def test_making_the_same_record_twice_gives_the_same_id() -> None:
    later = record(created_at=NOW + timedelta(days=1), usage={"input_tokens": 3}, cost=1.0)
    assert record().id == later.id
    assert record().verify()


@pytest.mark.parametrize(
    "fields",
    [
        {"content": "other"}, {"facts": ("x",)}, {"model": "n"}, {"prompt_version": "2"}, {"policy_fingerprint": "g"},
        {"parent_id": "t/0"}, {"purpose": "user_history"}, {"thread_id": "u"}, {"raw_ref": "h"},
        {"kind": "tool_output"},
    ],
)  # fmt: skip
def test_another_record_has_another_id(fields: dict[str, Any]) -> None:
    assert record(**fields).id != record().id


@pytest.mark.parametrize("thread_id", ["t", "a/b", "-", "langgraph", "x.y z", "日本", "\ud800", None])
def test_the_thread_can_be_read_from_the_id(thread_id: str | None) -> None:
    assert thread_of(record(thread_id=thread_id).id) == thread_id


def test_a_record_survives_json_and_the_checkpoint_serializer_and_ignores_unknown_keys() -> None:
    made = record(facts=["7"], usage={"input_tokens": 1}, cost=0.5, parent_id="t/1")
    data = {**json.loads(json.dumps(made.to_dict())), "later_field": [1]}
    assert SummaryRecord.from_dict(data) == made
    serializer = JsonPlusSerializer(pickle_fallback=False)
    assert SummaryRecord.from_dict(serializer.loads_typed(serializer.dumps_typed(made.to_dict()))) == made


@pytest.mark.parametrize(
    "broken",
    [
        {"content": " "}, {"content": 3}, {"source_message_ids": []}, {"source_hashes": ["x"]}, {"facts": "abc"},
        {"coverage": 1.5}, {"coverage": float("nan")}, {"created_at": "yesterday"}, {"kind": "other"}, {"usage": [1]},
        {"format_version": 99}, {"purpose": None}, {"token_count_before": None},
    ],
)  # fmt: skip
def test_what_is_no_record_is_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(RecordError):
        SummaryRecord.from_dict({**record().to_dict(), **broken})


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=3)))
def test_hostile_data_gives_a_record_error_and_nothing_else(value: Any) -> None:
    for name in record().to_dict():
        with contextlib.suppress(RecordError):
            SummaryRecord.from_dict({**record().to_dict(), name: value}).verify()


def test_a_failure_cannot_be_made_a_record() -> None:
    with pytest.raises(RecordError):
        record(content="")
    with pytest.raises(RecordError):
        record(messages=[])


def test_fresh_whatever_came_before_between_and_after() -> None:
    more = [HumanMessage("zero"), *MESSAGES[:1], HumanMessage("between"), *MESSAGES[1:], HumanMessage("after")]
    report = check_staleness(record(), more, policy_fingerprint="f", prompt_version="1", model="m", now=NOW)
    assert not report.is_stale
    assert report.reasons == ()


def test_every_reason_is_reported_at_once() -> None:
    edited = [HumanMessage("one!", id="a"), HumanMessage("no id")]
    report = check_staleness(
        record(),
        edited,
        policy_fingerprint="g",
        prompt_version="2",
        model="n",
        ttl=timedelta(hours=1),
        now=NOW + timedelta(hours=2),
    )
    assert report.reasons == (
        "source_changed", "source_missing", "policy_changed", "prompt_version_changed", "model_changed", "expired",
    )  # fmt: skip
    assert (report.changed_ids, report.missing_ids) == (("a",), ("b",))
    assert report.age_seconds == 7200


def test_order_and_repetition_count() -> None:
    assert check_staleness(record(), MESSAGES[::-1]).reasons == ("source_order_changed",)
    twice = record([HumanMessage("ok"), HumanMessage("ok")])
    assert check_staleness(twice, [HumanMessage("ok")]).is_stale
    assert not check_staleness(twice, [HumanMessage("ok"), HumanMessage("ok")]).is_stale


def test_ttl_is_inclusive_and_a_clock_that_went_back_makes_nothing_old() -> None:
    ttl = timedelta(hours=1)
    assert not check_staleness(record(), MESSAGES, ttl=ttl, now=NOW + ttl).is_stale
    assert check_staleness(record(), MESSAGES, ttl=ttl, now=NOW + ttl + timedelta(seconds=1)).is_stale
    assert check_staleness(record(), MESSAGES, ttl=ttl, now=NOW - ttl).age_seconds == 0.0


def test_a_fingerprint_depends_on_settings_not_on_their_order() -> None:
    assert policy_fingerprint("p", a=1, b=2) == policy_fingerprint("p", b=2, a=1)
    assert policy_fingerprint("p", a=1) != policy_fingerprint("p", a=2) != policy_fingerprint("q", a=2)
