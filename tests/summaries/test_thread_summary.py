"""A thread for people: policies, latest turns verbatim, apart from the model's window."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from langmem_harness.errors import ConfigurationError, NotFoundError
from langmem_harness.summaries import (
    ExtractiveSummarizer,
    HeadTailSummarizer,
    SummaryLedger,
    SummaryService,
    ThreadSummary,
    ThreadSummaryPolicy,
    asummarize_thread,
    summarize_thread,
)
from langmem_harness.testing import ScriptedChatModel
from langmem_harness.window.messages import TAG_KEY
from tests.conftest import Face

TALK: list[BaseMessage] = [
    SystemMessage("You are a shop.", id="s"),
    HumanMessage("I want shoes in size 42.", id="h0"),
    AIMessage("Which color do you want?", id="a0"),
    HumanMessage("Red.", id="h1"),
    AIMessage("", tool_calls=[{"name": "find", "args": {}, "id": "c"}], id="a1"),
    ToolMessage("3 pairs", tool_call_id="c", id="r1"),
    AIMessage("There are three.", id="a2"),
]


def summarize(face: Face, conversation: Any, **fields: Any) -> ThreadSummary:
    fields.setdefault("summarizer", HeadTailSummarizer())
    if face.name == "sync":
        return summarize_thread(conversation, **fields)
    return asyncio.run(asummarize_thread(conversation, **fields))


def ids(messages: Any) -> list[str | None]:
    return [message.id for message in messages]


def test_the_latest_user_and_assistant_turns_stay_verbatim(face: Face) -> None:
    found = summarize(face, TALK)
    assert ids(found.latest) == ["h1", "a1", "r1", "a2"]
    assert found.record is not None
    assert found.record.source_message_ids == ("h0", "a0")
    assert found.record.purpose == "user_history"


def test_an_unanswered_question_stays_with_the_answer_before_it(face: Face) -> None:
    found = summarize(face, [*TALK, HumanMessage("How much?", id="h2")])
    assert ids(found.latest) == ["a2", "h2"]


def test_everything_if_so_wished_and_system_messages_only_when_explicit(face: Face) -> None:
    policy = ThreadSummaryPolicy(keep_latest=False)
    assert "You are a shop" not in summarize(face, TALK, policy=policy).record.content  # type: ignore[union-attr]
    policy = ThreadSummaryPolicy(keep_latest=False, include_system=True)
    found = summarize(face, TALK, policy=policy)
    assert "You are a shop" in found.record.content  # type: ignore[union-attr]
    assert list(found.latest) == []


@pytest.mark.parametrize(
    ("policy", "summarized"),
    [
        ({"after_messages": 6}, True),
        ({"after_messages": 7}, False),
        ({"over_tokens": 10}, True),
        ({"over_tokens": 10_000}, False),
        ({"over_tokens": 10_000, "after_messages": 6}, True),
        ({"over_tokens": 10_000, "after_messages": 100}, False),
        ({}, True),
    ],
)
def test_when(face: Face, policy: dict[str, int], summarized: bool) -> None:
    found = summarize(face, TALK, policy=ThreadSummaryPolicy(**policy))
    assert (found.record is not None) == summarized
    if not summarized:
        assert ids(found.latest) == ids(TALK[1:])
        assert found.action == "nothing"


@pytest.mark.parametrize("messages", [[], TALK[:1], TALK[:2], [AIMessage("hello", id="a")]])
def test_short_threads_are_just_shown(face: Face, messages: list[BaseMessage]) -> None:
    found = summarize(face, messages)
    assert found.record is None
    assert ids(found.latest) == ids(message for message in messages if message.type != "system")


def test_markers_and_recalled_memories_are_no_conversation(face: Face) -> None:
    marker = HumanMessage("[notice]", id="m", additional_kwargs={TAG_KEY: {"kind": "marker"}})
    found = summarize(face, [marker, *TALK])
    assert "notice" not in found.record.content  # type: ignore[union-attr]


def test_from_a_checkpointer_and_paid_once(face: Face) -> None:
    saver = InMemorySaver()
    agent = create_agent(ScriptedChatModel(responses=["Hello!", "Sure."]), [], checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "t"}}
    agent.invoke({"messages": [("user", "Hi, I am Ada.")]}, config)
    agent.invoke({"messages": [("user", "Help me please.")]}, config)
    writer = ScriptedChatModel(responses=["Ada said hello to the assistant."])
    ledger = SummaryLedger(InMemoryStore())
    first = summarize(face, saver, thread_id="t", summarizer=writer, ledger=ledger)
    again = summarize(face, saver, thread_id="t", summarizer=writer, ledger=ledger)
    assert first.record == again.record
    assert (first.action, again.action, writer.calls) == ("written", "reused", 1)
    assert [message.text for message in first.latest] == ["Help me please.", "Sure."]
    with pytest.raises(NotFoundError):
        summarize(face, saver, thread_id="unknown")
    with pytest.raises(ConfigurationError):
        summarize(face, saver)


def test_it_never_replaces_what_the_model_sees_nor_the_reverse(face: Face) -> None:
    ledger = SummaryLedger(InMemoryStore())
    service = SummaryService(ExtractiveSummarizer())
    shown = summarize(face, TALK, thread_id="t", ledger=ledger, summarizer=service).record
    window = face(
        service, "summarize", TALK[1:3], ledger=ledger, thread_id="t", policy="thread_summary",
        policy_fingerprint=ThreadSummaryPolicy().fingerprint,
    )  # fmt: skip
    assert window.action == "written"
    assert window.record.id != shown.id  # type: ignore[union-attr]
    assert summarize(face, TALK, thread_id="t", ledger=ledger, summarizer=service).record == shown


def test_a_failure_shows_everything(face: Face) -> None:
    broken = SummaryService(lambda text: "")
    found = summarize(face, TALK, summarizer=broken)
    assert (found.record, found.action) == (None, "failed")
    assert ids(found.latest) == ids(TALK[1:])


def test_rules_that_cannot_work() -> None:
    with pytest.raises(ConfigurationError):
        ThreadSummaryPolicy(after_messages=-1)
