"""What failed is paid for too, and everything a thread cost is added up."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.store.memory import InMemoryStore

from langmem_harness.errors import SummarizerError
from langmem_harness.events import SummaryFailed, SummaryWritten
from langmem_harness.summaries import ModelSummarizer, SummaryLedger, SummaryRequest
from langmem_harness.summaries.accounts import FailedSpending
from langmem_harness.summaries.spending import Spending
from langmem_harness.testing import ScriptedChatModel
from tests.conftest import Face
from tests.summaries.test_service import NOTES, Room, talk

PRICES = {"scripted": {"input": 1.0, "output": 10.0, "cached": 0.1}}


def reply(text: str, tokens_in: int = 1_000, tokens_out: int = 100) -> AIMessage:
    usage: Any = {"input_tokens": tokens_in, "output_tokens": tokens_out, "total_tokens": tokens_in + tokens_out}
    return AIMessage(text, usage_metadata=usage)


def test_an_error_of_the_summarizer_has_the_tokens_of_all_its_attempts(face: Face) -> None:
    model = ScriptedChatModel(responses=[reply(""), RuntimeError("down"), reply("")])
    with pytest.raises(SummarizerError) as caught:
        face(ModelSummarizer(model, backoff_seconds=0), "summarize", SummaryRequest.from_messages(talk(3)))
    assert caught.value.usage == {"input_tokens": 2_000, "output_tokens": 200, "cached_tokens": 0}
    assert caught.value.attempts == 3


def test_chunks_that_succeeded_before_one_failed_count_too(face: Face) -> None:
    model = ScriptedChatModel(
        responses=[reply("The first part was about many orders."), reply("")], on_exhausted="repeat"
    )
    summarizer = ModelSummarizer(model, backoff_seconds=0, context_window=1_000)
    with pytest.raises(SummarizerError) as caught:
        face(summarizer, "summarize", SummaryRequest.from_messages(talk(60), max_tokens=100))
    assert caught.value.usage["input_tokens"] == 4_000
    assert caught.value.attempts == 4


@pytest.mark.parametrize("store", [True, False])
def test_failed_attempts_are_in_the_event_and_in_the_totals(face: Face, store: bool) -> None:
    room = Room(face, replies=[reply("")] * 3 + [reply(NOTES)], store=store, prices=PRICES)
    room.ask(talk(3))
    record = room.ask(talk(3)).record
    failed, written = room.events
    assert isinstance(failed, SummaryFailed)
    assert isinstance(written, SummaryWritten)
    assert (failed.model, failed.attempts) == ("scripted", 3)
    assert failed.usage == {"input_tokens": 3_000, "output_tokens": 300, "cached_tokens": 0}
    assert failed.cost == pytest.approx(3 * 0.002)
    assert failed.thread_usage == failed.usage
    assert written.usage["input_tokens"] == 1_000
    assert written.thread_usage["input_tokens"] == 4_000
    assert written.thread_cost == pytest.approx(4 * 0.002)
    assert record is not None
    assert record.cost == pytest.approx(0.002)
    if room.ledger is not None:
        assert face(room.ledger, "spending", "t") == Spending(usage=written.thread_usage, cost=written.thread_cost)


def test_totals_survive_the_process_and_processes_do_not_overwrite_each_other(face: Face) -> None:
    first = Room(face, replies=[reply("")], prices=PRICES)
    first.ask(talk(3))
    second = Room(face, replies=[reply("")], prices=PRICES)
    second.ledger = first.ledger
    second.ask(talk(3))
    second.ask(talk(3))
    first.ask(talk(3))
    totals = [event.thread_usage["input_tokens"] for event in (*first.events, *second.events)]  # type: ignore[attr-defined]
    assert totals == [3_000, 12_000, 6_000, 9_000]
    assert first.ledger is not None
    assert first.ledger.spending("t").usage["input_tokens"] == 12_000
    assert first.ledger.spending("other") == Spending()


def test_a_text_that_was_paid_and_could_not_be_kept_is_counted(face: Face) -> None:
    class Full(InMemoryStore):
        def batch(self, ops: Any) -> Any:
            if any(type(op).__name__ == "PutOp" for op in ops):
                raise OSError("disk full")
            return super().batch(ops)

        async def abatch(self, ops: Any) -> Any:
            return self.batch(ops)

    room = Room(face, replies=[reply(NOTES)])
    room.ledger = SummaryLedger(Full())
    assert room.ask(talk(3)).action == "failed"
    (failed,) = room.events
    assert isinstance(failed, SummaryFailed)
    assert failed.usage["input_tokens"] == 1_000
    room.ask(talk(3))
    assert room.events[-1].thread_usage["input_tokens"] == 2_000  # type: ignore[attr-defined]


def test_sums_of_threads_are_bounded_and_apart() -> None:
    failed = FailedSpending(max_threads=2)
    for thread in ("a", "b", "a", "c"):
        failed.add(thread, Spending(usage={"input_tokens": 1}, cost=0.5))
    assert failed.of("b") == {}
    assert [one.usage["input_tokens"] for one in failed.of("a").values()] == [2]
    assert [one.cost for one in failed.of("c").values()] == [0.5]
