"""Promises about every model call of an agent: what is left out is covered or named, values outlive forgetting."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain.agents.middleware import ModelRequest, ModelResponse
from langchain.agents.middleware.types import ExtendedModelResponse
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.store.memory import InMemoryStore

from langmem_harness.errors import SummarizerError
from langmem_harness.middleware.compaction import HistoryCompactionMiddleware
from langmem_harness.summaries import SummaryDraft, SummaryLedger
from langmem_harness.testing import ScriptedChatModel
from langmem_harness.window import check_request
from langmem_harness.window.messages import content_hash, is_tagged, message_identity, role_of, tag_of
from tests.middleware.test_compaction_references import Thread
from tests.middleware.test_compaction_summaries import config
from tests.summaries.test_facts import planted
from tests.window.histories import SHAPES, histories


class Moody:
    """Fails every third time."""

    model = "moody"
    prompt_version = "1"

    def __init__(self) -> None:
        self.calls = 0

    def summarize(self, request: Any) -> SummaryDraft:
        self.calls += 1
        if self.calls % 3 == 0:
            raise SummarizerError("no", reason="empty")
        return SummaryDraft(text=f"Notes {self.calls}.")

    async def asummarize(self, request: Any) -> SummaryDraft:
        return self.summarize(request)


class Calls:
    """Calls a middleware as an agent does, without an agent: one call for each length of a history."""

    def __init__(self, middleware: HistoryCompactionMiddleware, store: InMemoryStore | None) -> None:
        self.middleware = middleware
        self.store = store
        self.state: dict[str, Any] = {}

    def call(self, messages: list[BaseMessage], face: str) -> list[BaseMessage]:
        sent: list[BaseMessage] = []
        runtime: Any = SimpleNamespace(store=self.store, execution_info=SimpleNamespace(thread_id="t"))
        state: Any = {**self.state, "messages": messages}
        held: Any = list(messages)
        model = ScriptedChatModel(responses=[])
        request: Any = ModelRequest(model=model, messages=held, state=state, runtime=runtime)

        def handler(request: ModelRequest[Any]) -> ModelResponse[Any]:
            sent.extend(request.messages)
            return ModelResponse(result=[AIMessage("ok")])

        async def ahandler(request: ModelRequest[Any]) -> ModelResponse[Any]:
            return handler(request)

        if face == "sync":
            response: Any = self.middleware.wrap_model_call(request, handler)
        else:
            response = asyncio.run(self.middleware.awrap_model_call(request, ahandler))
        if isinstance(response, ExtendedModelResponse) and response.command is not None:
            self.merge(response.command.update)
        return sent

    def merge(self, update: Any) -> None:
        from langmem_harness.middleware.compaction_state import merge_limits, merge_records, merge_references

        reducers: Any = {
            "compaction_records": merge_records,
            "compaction_record_ids": merge_references,
            "compaction_limits": merge_limits,
        }
        for name, value in update.items():
            self.state[name] = reducers[name](self.state.get(name), value)

    def known(self) -> dict[str, list[tuple[str, str]]]:
        from langmem_harness.middleware.compaction_summaries import read_records

        records = read_records((self.state.get("compaction_records") or {}).values())
        if self.store is not None:
            records += SummaryLedger(self.store).list("t")
        return {record.id: record.sources for record in records}


def check_call(calls: Calls, messages: list[BaseMessage], face: str) -> None:
    before = [message.model_copy(deep=True) for message in messages]
    sent = calls.call(messages, face)
    assert messages == before, "the thread was changed"
    if any(role_of(message) in ("human", "ai") for message in messages):
        assert check_request(sent) == []
    markers = [message for message in sent if is_tagged(message, "marker")]
    shown = {id(message) for message in sent} | {message.id for message in sent if message.id is not None}
    left_out = [one for one in messages if id(one) not in shown and one.id not in shown]
    if not markers:
        assert not [one for one in left_out if role_of(one) == "human" and one.text.strip()]
        return
    (marker,) = markers
    tag = tag_of(marker) or {}
    if tag["summary_id"] is None:
        assert tag["omitted"] > 0
        return
    sources = calls.known()[tag["summary_id"]]
    covered = [(message_identity(one), content_hash(one)) for one in messages]
    assert set(sources) <= set(covered), "a record of messages that are not there, or say something else"
    assert tag["omitted"] >= len(sources)
    if tag["omitted"] == len(sources):
        uncovered = [one for one in left_out if (message_identity(one), content_hash(one)) not in set(sources)]
        assert not [one for one in uncovered if one.text.strip() and role_of(one) != "tool"]


def calls_with(store: InMemoryStore | None, **fields: Any) -> Calls:
    middleware = HistoryCompactionMiddleware(
        ("tokens", 700), ("tokens", 200), summarizer=Moody(), max_summary_tokens=50, facts_tokens=50, **fields
    )
    return Calls(middleware, store)


@pytest.mark.parametrize("on_failure", ["keep", "trim"])
@pytest.mark.parametrize("has_store", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_left_out_message_is_covered_or_named(shape: str, has_store: bool, on_failure: str) -> None:
    calls = calls_with(InMemoryStore() if has_store else None, on_failure=on_failure)
    messages = SHAPES[shape]
    for length in range(1, len(messages) + 1, max(1, len(messages) // 12)):
        check_call(calls, list(messages[:length]), "sync")


@given(histories(), st.booleans(), st.integers(0, 10**6))
@settings(max_examples=40)
def test_in_any_history_also_when_it_is_edited(messages: list[BaseMessage], has_store: bool, seed: int) -> None:
    calls = calls_with(InMemoryStore() if has_store else None)
    check_call(calls, list(messages), "sync")
    if not messages:
        return
    place = seed % len(messages)
    edited = messages[place].model_copy(update={"content": "Something else entirely."})
    check_call(calls, [*messages[:place], edited, *messages[place + 1 :]], "async")
    check_call(calls, [*messages[:place], *messages[place + 1 :]], "sync")
    check_call(calls, list(messages), "sync")


@pytest.mark.parametrize("store", [InMemoryStore(), None], ids=["store", "no store"])
def test_values_are_in_the_marker_after_eight_rolls_of_forgetting(store: InMemoryStore | None) -> None:
    thread = Thread(store=store, rebuild_every=None)
    thread.middleware = HistoryCompactionMiddleware(
        ("tokens", 12_000), ("messages", 2), summarizer=lambda text: "We talked. " * 200, rebuild_every=None
    )
    from langchain.agents import create_agent

    agent: Any = create_agent(thread.model, checkpointer=thread.saver, store=store, middleware=[thread.middleware])
    items = planted()
    rolls: set[str] = set()

    def say(text: str) -> None:
        agent.invoke({"messages": [HumanMessage(text)]}, config())
        tags = [tag_of(message) for message in thread.model.requests[-1]]
        rolls.update(tag["summary_id"] for tag in tags if tag is not None)

    for number, (sentence, _) in enumerate(items):
        say(sentence + (" and so on" * 350 if number % 3 == 2 else ""))
    while len(rolls) < 9:
        say("And what else?" + " and so on" * 900)
    shown = "\n".join(message.text for message in thread.model.requests[-1])
    assert sum(value in shown for _, value in items) >= 76
