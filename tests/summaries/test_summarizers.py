"""Summarizers: what counts as a summary, chunks, retries, no model, functions."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langmem_harness.errors import ConfigurationError, MissingExtraError, SummarizerError
from langmem_harness.middleware.compaction import HistoryCompactionMiddleware
from langmem_harness.summaries import (
    ExtractiveSummarizer,
    HeadTailSummarizer,
    ModelSummarizer,
    Summarizer,
    SummaryDraft,
    SummaryRequest,
    create_summarizer,
)
from langmem_harness.testing import ScriptedChatModel
from langmem_harness.window.tokens import estimate_text_tokens
from tests.conftest import Face

GOOD = "The user plans a trip to Lisbon in May and wants a quiet hotel."
TALK = [
    HumanMessage("I plan a trip to Lisbon in May. I want a quiet hotel."),
    AIMessage("Noted. Shall I search?"),
    HumanMessage("Yes, and what does the tram cost?"),
]


def request(messages: list[BaseMessage] | None = None, **fields: Any) -> SummaryRequest:
    return SummaryRequest.from_messages(TALK if messages is None else messages, **fields)


def quick(*replies: Any, **fields: Any) -> tuple[ModelSummarizer, ScriptedChatModel, list[float]]:
    """A summarizer that plays these replies, its model, and the pauses it made."""
    model = ScriptedChatModel(responses=list(replies))
    pauses: list[float] = []

    async def asleep(seconds: float) -> None:
        pauses.append(seconds)

    return ModelSummarizer(model, sleep=pauses.append, asleep=asleep, **fields), model, pauses


def test_one_user_message_transcript_first_instruction_after(face: Face) -> None:
    summarizer, model, _ = quick(GOOD)
    draft = face(summarizer, "summarize", request(previous="Earlier: the user is Ada."))
    assert draft.text == GOOD
    assert draft.coverage == 1.0
    assert draft.usage["output_tokens"] == len(GOOD.split())
    ((message,),) = model.requests
    assert isinstance(message, HumanMessage)
    text = str(message.content)
    order = [
        "<earlier_notes>",
        "Ada",
        "<transcript>",
        "quiet hotel",
        "tram",
        "</transcript>",
        "Reply with the notes only",
    ]
    assert [text.index(part) for part in order] == sorted(text.index(part) for part in order)
    assert model.bound_tools == []


BAD_REPLIES: dict[str, Any] = {
    "RuntimeError": RuntimeError("rate limit 429, key sk-secret"),
    "empty": "",
    "blank": "  \n\t ",
    "no_blocks": AIMessage([]),
    "only_reasoning": AIMessage([{"type": "thinking", "thinking": "hm", "signature": "s"}]),
    "only_tagged_reasoning": "<think>let me see</think>",
    "cut": AIMessage(GOOD, response_metadata={"finish_reason": "length"}),
    "cut_other_provider": AIMessage(GOOD, response_metadata={"stop_reason": "max_tokens"}),
    "tool_call": AIMessage(GOOD, tool_calls=[{"name": "dummy", "args": {}, "id": "c"}]),
    "question": "Could you please provide the conversation you would like me to summarize?",
    "asks_user": "When would you like to travel?",
    "refusal": "I'm sorry, but I can't help with that.",
    "error": "Error code: 429 - rate limit reached",
    "too_long": "word " * 3_000,
    "other_language": "用户计划五月去里斯本旅行，想要一家安静的酒店，还询问了有轨电车的票价。",
}


@pytest.mark.parametrize("name", BAD_REPLIES)
def test_what_is_not_a_summary_is_never_one(name: str, face: Face) -> None:
    summarizer, model, _ = quick(*[BAD_REPLIES[name]] * 3)
    with pytest.raises(SummarizerError) as caught:
        face(summarizer, "summarize", request())
    assert caught.value.attempts == model.calls <= 3
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", BAD_REPLIES)
def test_a_second_good_reply_is_taken(name: str, face: Face) -> None:
    summarizer, model, pauses = quick(BAD_REPLIES[name], GOOD)
    assert face(summarizer, "summarize", request()).text == GOOD
    assert model.calls == 2
    assert pauses == [0.5]


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        "The user asked: what does the tram cost? The assistant has not answered yet.",
        "Error handling in parser.py was fixed. " * 12,
        "- trip to Lisbon\n- quiet hotel\n- open: what does the tram cost?",
        "Unresolved. The user wants a quiet hotel in Lisbon.",
    ],
)
def test_real_summaries_are_not_refused(text: str) -> None:
    summarizer, _, _ = quick(text)
    assert summarizer.summarize(request()).text == text.strip()


def test_pauses_grow_and_the_cause_is_kept(face: Face) -> None:
    error = ConnectionError("down")
    summarizer, model, pauses = quick(*[error] * 5, max_attempts=4)
    with pytest.raises(SummarizerError) as caught:
        face(summarizer, "summarize", request())
    assert (model.calls, pauses) == (4, [0.5, 1.0, 2.0])
    assert caught.value.__cause__ is error
    assert caught.value.reason == "ConnectionError"


def test_too_long_is_asked_for_once_more_and_shorter(face: Face) -> None:
    summarizer, model, _ = quick("word " * 1_000, "word " * 1_000, GOOD)
    with pytest.raises(SummarizerError, match="too_long"):
        face(summarizer, "summarize", request(max_tokens=100))
    assert model.calls == 2
    assert "at most 50 tokens" in str(model.requests[1][0].content)


def test_a_conversation_in_another_language_may_be_summarized_in_it() -> None:
    talk = [HumanMessage("我想五月去里斯本，订一家安静的酒店。订单号 ORD-1")]
    summarizer, _, _ = quick("用户计划五月去里斯本旅行，想要一家安静的酒店。订单号 ORD-1，价格还没有确认。")
    assert summarizer.summarize(request(talk)).text.startswith("用户")


def test_what_does_not_fit_is_chunked_and_merged_and_all_of_it_is_read(face: Face) -> None:
    facts = [f"fact{number:03d}" for number in range(300)]
    talk = [HumanMessage(f"{fact} " + "filler words here " * 30) for fact in facts]
    model = ScriptedChatModel(
        responses=[
            lambda messages: "Notes: " + " ".join(w for w in messages[0].text.split() if w.startswith("fact"))[:300]
        ],
        on_exhausted="repeat",
    )
    summarizer = ModelSummarizer(model, context_window=6_000)
    draft = face(summarizer, "summarize", request(talk, max_tokens=500))
    assert draft.attempts == model.calls > 5
    read = " ".join(call[0].text for call in model.requests)
    assert all(fact in read for fact in facts)
    assert max(estimate_text_tokens(call[0].text) for call in model.requests) <= 6_000
    assert draft.usage["output_tokens"] > 0


def test_a_slow_model_does_not_hold_the_event_loop() -> None:
    def slow(messages: list[BaseMessage]) -> str:
        time.sleep(0.3)
        return GOOD

    summarizer, _, _ = quick(slow)

    async def both() -> int:
        ticks = 0
        task = asyncio.create_task(summarizer.asummarize(request()))
        while not task.done():
            await asyncio.sleep(0.01)
            ticks += 1
        await task
        return ticks

    assert asyncio.run(both()) > 5


def test_cancelling_ends_the_call() -> None:
    async def run() -> None:
        summarizer = ModelSummarizer(ScriptedChatModel(responses=[RuntimeError()] * 3), backoff_seconds=30)
        task = asyncio.create_task(summarizer.asummarize(request()))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())


def test_custom_prompt_with_braces_and_its_version() -> None:
    model = ScriptedChatModel(responses=[GOOD])
    summarizer = ModelSummarizer(model, prompt='Give {"json"} of {max_tokens}.')
    summarizer.summarize(request(max_tokens=77))
    assert model.requests[0][0].text.endswith('Give {"json"} of 77.')
    assert summarizer.prompt_version != ModelSummarizer(model).prompt_version
    assert ModelSummarizer(model, prompt_version="mine").prompt_version == "mine"


@pytest.mark.parametrize(
    "fields", [{"prompt": " "}, {"max_attempts": 0}, {"context_window": 10}, {"backoff_seconds": -1}, {"model": " "}]
)
def test_settings_that_cannot_work(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        ModelSummarizer(**{"model": ScriptedChatModel(responses=[]), **fields})


def test_a_model_by_name_is_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ScriptedChatModel(responses=["The notes."])
    monkeypatch.setattr("langchain.chat_models.init_chat_model", lambda name: {"openai:some-model": made}[name])
    summarizer = create_summarizer("openai:some-model")
    assert summarizer.model == "openai:some-model"
    assert summarizer.summarize(request()).text == "The notes."


@pytest.mark.parametrize("name", ["no-such-provider:model", "nonsense", "openai:"])
def test_a_name_no_model_can_be_made_from_is_refused_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigurationError, match=name) as caught:
        HistoryCompactionMiddleware(summarizer=name)
    assert caught.value.__cause__ is not None


def test_a_missing_provider_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> None:
        raise ImportError("no module", name="langchain_of_someone")

    monkeypatch.setattr("langchain.chat_models.init_chat_model", missing)
    with pytest.raises(MissingExtraError, match=r"langmem-harness\[openai\]"):
        create_summarizer("openai:some-model")
    with pytest.raises(ConfigurationError, match="langchain_of_someone"):
        create_summarizer("someone:some-model")


def test_the_reason_of_a_failure_is_the_class_of_the_error(face: Face) -> None:
    def broken(_: str) -> str:
        raise LookupError("the words of ada")

    with pytest.raises(SummarizerError) as caught:
        face(create_summarizer(broken), "summarize", request())
    assert caught.value.reason == "LookupError"
    assert "ada" not in str(caught.value)
    assert SummarizerError("unnamed").reason == "SummarizerError"


# -- without a model


def test_extracts_are_sentences_of_the_conversation_within_the_budget(face: Face) -> None:
    talk = [
        HumanMessage(f"Step {number} failed. The disk of server {number} is full. It rains.") for number in range(50)
    ]
    draft = face(ExtractiveSummarizer(), "summarize", request(talk, max_tokens=100))
    assert 40 < estimate_text_tokens(draft.text) <= 100
    whole = request(talk).render()
    for line in draft.text.splitlines():
        assert line.startswith("[user] ")
        assert all(sentence in whole for sentence in line.removeprefix("[user] ").split(". "))
    assert draft == face(ExtractiveSummarizer(), "summarize", request(talk, max_tokens=100))


@given(st.lists(st.text(min_size=1, max_size=400), min_size=1, max_size=10), st.integers(1, 300))
@settings(max_examples=60)
def test_extracts_of_any_text_fit(texts: list[str], max_tokens: int) -> None:
    try:
        draft = ExtractiveSummarizer().summarize(request([HumanMessage(text) for text in texts], max_tokens=max_tokens))
    except SummarizerError:
        assert not any(text.strip() for text in texts)
    else:
        assert draft.text.strip()
        assert estimate_text_tokens(draft.text) <= max_tokens + 2


def test_extracts_of_a_long_thread_are_quick() -> None:
    talk = [HumanMessage(f"word{number % 700} does thing{number % 90} again. And more.") for number in range(10_000)]
    started = time.perf_counter()
    ExtractiveSummarizer().summarize(request(talk, max_tokens=1_000))
    assert time.perf_counter() - started < 5


def turns(count: int) -> list[BaseMessage]:
    return [HumanMessage(f"turn {number}") for number in range(count)]


def test_head_and_tail_with_the_number_left_out(face: Face) -> None:
    draft = face(HeadTailSummarizer(10, 2), "summarize", request(turns(10)))
    assert draft.text.splitlines() == [
        "[user] turn 0",
        "[user] turn 1",
        "[...6 earlier turns omitted...]",
        "[user] turn 8",
        "[user] turn 9",
    ]


@pytest.mark.parametrize(("max_chars", "keep", "count"), [(10_000, 1, 50), (0, 5, 10), (0, 0, 2), (0, -3, 2)])
def test_head_and_tail_return_everything_when_it_fits_or_is_few(max_chars: int, keep: int, count: int) -> None:
    whole = request(turns(count)).render()
    assert HeadTailSummarizer(max_chars, keep).summarize(request(turns(count))).text == whole


def test_head_and_tail_at_the_borders() -> None:
    whole = request(turns(5)).render()
    assert HeadTailSummarizer(len(whole), 1).summarize(request(turns(5))).text == whole
    assert "[...3 earlier turns omitted...]" in HeadTailSummarizer(len(whole) - 1, 0).summarize(request(turns(5))).text


@pytest.mark.parametrize("summarizer", [ExtractiveSummarizer(), HeadTailSummarizer()])
def test_nothing_to_summarize_is_an_error_not_a_text(summarizer: Summarizer) -> None:
    with pytest.raises(SummarizerError):
        summarizer.summarize(request([]))


# -- functions


async def _shout(text: str) -> str:
    return text.upper()


def test_functions(face: Face) -> None:
    assert (
        face(create_summarizer(lambda text: text[:20]), "summarize", request()).text == request().render()[:20].strip()
    )


def test_async_functions_work_in_the_async_face_only() -> None:
    summarizer = create_summarizer(_shout)
    assert asyncio.run(summarizer.asummarize(request())).text == request().render().upper()
    with pytest.raises(SummarizerError, match="async"):
        summarizer.summarize(request())


@pytest.mark.parametrize("answer", [None, "", "  ", 7, ["x"]])
def test_a_function_that_gives_no_text_is_an_error(answer: Any, face: Face) -> None:
    with pytest.raises(SummarizerError):
        face(create_summarizer(lambda text: answer), "summarize", request())


@pytest.mark.parametrize("error", [TypeError("x"), ValueError("private text"), RuntimeError()])
def test_errors_of_a_function_get_out_from_their_cause(error: Exception, face: Face) -> None:
    calls = []

    def broken(text: str) -> str:
        calls.append(text)
        raise error

    with pytest.raises(SummarizerError) as caught:
        face(create_summarizer(broken), "summarize", request())
    assert caught.value.__cause__ is error
    assert len(calls) == 1
    assert "private" not in str(caught.value)


@pytest.mark.parametrize("value", [7, None, object(), lambda: "x", lambda a, b: "x", ExtractiveSummarizer])
def test_what_is_no_summarizer_is_refused_at_once(value: Any) -> None:
    with pytest.raises(ConfigurationError):
        create_summarizer(value)


def test_any_object_of_the_protocol_is_taken_as_it_is() -> None:
    class Mine:
        model = "mine"
        prompt_version = "1"

        def summarize(self, request: SummaryRequest) -> SummaryDraft:
            return SummaryDraft(text="x")

        async def asummarize(self, request: SummaryRequest) -> SummaryDraft:
            return SummaryDraft(text="x")

    mine = Mine()
    assert create_summarizer(mine) is mine
    assert isinstance(create_summarizer(ScriptedChatModel(responses=[])), ModelSummarizer)
