"""What a user interface shows is what the model got, summary and all."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import BaseMessage
from langgraph.store.memory import InMemoryStore

from langmem_harness.summaries import SummaryLedger, SummaryRecord
from langmem_harness.window import effective_messages
from langmem_harness.window.messages import is_tagged, tag_of
from tests.middleware.test_compaction_references import Thread

SETTINGS: dict[str, Any] = {"trigger": ("tokens", 1_200), "keep": ("tokens", 300)}


def texts(messages: list[BaseMessage]) -> list[str]:
    return [message.text for message in messages]


def marker_of(messages: list[BaseMessage]) -> BaseMessage:
    return next(message for message in messages if is_tagged(message, "marker"))


@pytest.mark.parametrize("is_ahead", [False, True])
@pytest.mark.parametrize("turns", [15, 22, 31])
def test_the_summary_is_shown_as_the_model_saw_it(turns: int, is_ahead: bool) -> None:
    thread = Thread(store=InMemoryStore(), summarize_ahead=is_ahead)
    thread.talk(turns)
    before_the_answer = thread.state()["messages"][:-1]
    shown = effective_messages(
        before_the_answer, records=SummaryLedger(thread.store).list("t"), summarize_ahead=is_ahead, **SETTINGS
    )
    assert texts(shown) == texts(thread.model.requests[-1])
    assert "Notes number" in marker_of(shown).text


def test_records_carried_in_the_state_are_shown_too() -> None:
    thread = Thread(store=None)
    thread.talk(15)
    carried = [SummaryRecord.from_dict(value) for value in thread.state()["compaction_records"].values()]
    shown = effective_messages(thread.state()["messages"][:-1], records=carried, **SETTINGS)
    assert texts(shown) == texts(thread.model.requests[-1])


def test_a_record_of_other_messages_is_not_shown() -> None:
    thread = Thread(store=InMemoryStore())
    thread.talk(15)
    messages = list(thread.state()["messages"])
    records = SummaryLedger(thread.store).list("t")
    covered = records[-1].source_message_ids[0]
    edited = [
        message.model_copy(update={"content": message.text.upper()}) if message.id == covered else message
        for message in messages
    ]
    assert (tag_of(marker_of(effective_messages(edited, records=records, **SETTINGS))) or {})["summary_id"] is None
    assert (tag_of(marker_of(effective_messages(messages, records=[], **SETTINGS))) or {})["summary_id"] is None
    assert (tag_of(marker_of(effective_messages(messages, **SETTINGS))) or {})["summary_id"] is None
