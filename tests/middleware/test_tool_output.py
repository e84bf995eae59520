"""Large results are stored first, then shortened; nothing is lost whatever the store, the shape or the turn does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.prebuilt import ToolRuntime
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command

from langmem_harness.errors import ConfigurationError
from langmem_harness.events import ToolOutputKept, ToolOutputOffloaded
from langmem_harness.layout import tool_outputs_namespace
from langmem_harness.middleware.tool_output import ToolOutputSummarizationMiddleware
from langmem_harness.window.tokens import estimate_text_tokens
from tests.conftest import Face
from tests.middleware.tool_output_kit import LOG, Run, Spy, call, handle_of, inner, read_back, tool_returning


def test_a_large_result_is_stored_and_shortened(face: Face) -> None:
    run = Run([tool_returning(LOG)], [[call("search")]])
    (message,) = run(face)
    handle = handle_of(message)
    assert message.additional_kwargs["langmem_harness"] == {"kind": "tool_output", "handle": handle}
    assert message.status == "success"
    assert "The call succeeded; its output was shortened to save space." in message.content
    assert "log of 600 lines" in message.content
    assert f'read_tool_output(handle="{handle}")' in message.content
    assert estimate_text_tokens(message.content) < 0.05 * estimate_text_tokens(LOG)
    (item,) = run.store.search(tool_outputs_namespace("t"))
    assert (item.key, item.value["text"]) == (handle, LOG)
    (event,) = [each for each in run.events if isinstance(each, ToolOutputOffloaded)]
    assert (event.handle, event.tool, event.tool_call_id, event.characters) == (handle, "search", "c1", len(LOG))
    assert event.token_count_before > 20 * event.token_count_after
    assert "step" not in str(event.to_dict())


def test_a_handle_is_opaque_and_not_made_from_the_call_id(face: Face) -> None:
    first = Run([tool_returning(LOG)], [[call("search", "call_AAAA")]])(face)
    second = Run([tool_returning(LOG)], [[call("search", "")]])(face)
    assert handle_of(first[0]) == handle_of(second[0])
    assert len(handle_of(first[0])) == 16
    assert "AAAA" not in handle_of(first[0])


def test_the_same_output_is_stored_once(face: Face) -> None:
    store = Spy()
    run = Run([tool_returning(LOG)], [[call("search", "a")], [call("search", "b"), call("search", "")]], store=store)
    messages = run(face)
    assert len({handle_of(message) for message in messages}) == 1
    assert len(store.search(tool_outputs_namespace("t"))) == 1
    assert [event.deduplicated for event in run.events if isinstance(event, ToolOutputOffloaded)][:2] == [False, True]


def test_different_outputs_of_one_call_id_do_not_replace_each_other(face: Face) -> None:
    outputs = iter([LOG, LOG.upper()])
    run = Run([tool_returning(lambda: next(outputs))], [[call("search", "same")], [call("search", "same")]])
    run(face)
    stored = {item.value["text"] for item in run.store.search(tool_outputs_namespace("t"))}
    assert stored == {LOG, LOG.upper()}


@pytest.mark.parametrize("fault", ["write", "read", "forget"])
def test_without_a_confirmed_write_the_original_stays(face: Face, fault: str) -> None:
    run = Run([tool_returning(LOG)], [[call("search")]], store=Spy(fault=fault))
    (message,) = run(face)
    assert inner(message.content) == LOG
    (event,) = [each for each in run.events if isinstance(each, ToolOutputKept)]
    assert event.token_count > 10_000
    assert event.reason in {"OSError", "ConnectionError", "StorageError"}


def test_the_async_face_uses_the_async_face_of_the_store() -> None:
    run = Run([tool_returning(LOG)], [[call("search")], read_back()], store=Spy(only_async=True))
    config = {"configurable": {"thread_id": "t"}}
    state = asyncio.run(run.agent.ainvoke({"messages": [("user", "go")]}, config))
    assert handle_of(state["messages"][2])
    assert state["messages"][4].content.startswith("Characters 0 to 4000")


def test_a_store_can_be_given_to_the_middleware(face: Face) -> None:
    own = InMemoryStore()
    run = Run([tool_returning(LOG)], [[call("search")], read_back()])
    run.middleware._store = own
    messages = run(face)
    assert own.search(tool_outputs_namespace("t"))
    assert not run.store.search(())
    assert messages[1].status == "success"


def test_small_results_keep_their_words(face: Face) -> None:
    run = Run([tool_returning("17 °C")], [[call("search")]])
    (message,) = run(face)
    assert message.content == '<untrusted-data label="tool result" source="search">\n17 °C\n</untrusted-data>'
    assert not message.additional_kwargs
    assert run.events == []


@pytest.mark.parametrize("empty", ["", "  \n", []])
def test_empty_results_stay_as_they_are(face: Face, empty: Any) -> None:
    (message,) = Run([tool_returning(empty)], [[call("search")]])(face)
    assert message.content == empty


IMAGE = {"type": "image", "base64": "A" * 400_000, "mime_type": "image/png"}
AUDIO = {"type": "audio", "base64": "B" * 100_000, "mime_type": "audio/wav"}
FILE = {"type": "file", "base64": "C" * 100_000, "mime_type": "application/pdf"}


def test_block_lists_are_measured_by_their_text_and_keep_their_media(face: Face) -> None:
    half = LOG[: len(LOG) // 2]
    blocks = [IMAGE, {"type": "text", "text": half, "id": "x"}, AUDIO, "plain", {"type": "text", "text": half}, FILE]
    given = Command(
        update={"messages": [ToolMessage(blocks, tool_call_id="c1")]}
    )  # a tool node lets audio through here
    run = Run([tool_returning(given)], [[call("search")], read_back(offset=len(half) - 5, limit=20)])
    message, page = run(face)
    kinds = [block["type"] for block in message.content]
    assert kinds == ["image", "text", "audio", "file"]
    assert [message.content[0], *message.content[2:]] == [IMAGE, AUDIO, FILE]
    assert "shortened to save space" in message.content[1]["text"]
    assert inner(page.content) == f"{half}\nplain\n{half}"[len(half) - 5 : len(half) + 15]


def test_media_alone_is_no_reason_to_shorten(face: Face) -> None:
    blocks = [IMAGE, {"type": "text", "text": "a chart"}]
    (message,) = Run([tool_returning(blocks)], [[call("search")]])(face)
    assert message.content[0] == IMAGE
    assert inner(message.content[1]["text"]) == "a chart"


def test_unknown_blocks_pass_and_large_ones_become_a_labelled_reference(face: Face) -> None:
    small, large = {"type": "json", "json": [1, 2]}, {"type": "json", "json": [{"n": i} for i in range(3000)]}
    given = ToolMessage([small, large], tool_call_id="c1")
    run = Run([tool_returning(given)], [[call("search")], read_back(pattern='"n":2999')])
    message, page = run(face)
    assert message.content[0] == small
    assert "'json'" in message.content[2]["text"]
    assert page.content.startswith("1 matching line")
    (kept,) = Run([tool_returning(ToolMessage([small], tool_call_id="c1"))], [[call("search")]])(face)
    assert kept.content == [small]


def test_status_artifact_and_the_rest_of_the_message_stay(face: Face) -> None:
    def failing() -> ToolMessage:
        return ToolMessage(
            LOG, tool_call_id="c1", id="m1", status="error", artifact={"raw": [1]}, response_metadata={"a": 1}
        )

    (message,) = Run([tool_returning(failing)], [[call("search")]])(face)
    assert (message.status, message.artifact, message.id) == ("error", {"raw": [1]}, "m1")
    assert message.response_metadata == {"a": 1}
    assert "The call reported an error; its output was shortened" in message.content
    assert "succeeded" not in message.content


def test_nothing_given_is_changed_in_place(face: Face) -> None:
    given = ToolMessage([{"type": "text", "text": LOG}], tool_call_id="c1")
    Run([tool_returning(given)], [[call("search")]])(face)
    assert given == ToolMessage([{"type": "text", "text": LOG}], tool_call_id="c1", name=given.name)


@pytest.mark.parametrize("form", ["message", "dictionary"])
def test_messages_inside_a_command_are_shortened(face: Face, form: str) -> None:
    def command() -> Command[Any]:
        message: Any = ToolMessage(LOG, tool_call_id="c1")
        if form == "dictionary":
            message = {"role": "tool", "content": LOG, "tool_call_id": "c1"}
        messages = [message, HumanMessage(LOG, id="h")]
        return Command(update={"messages": messages})

    run = Run([tool_returning(command)], [[call("search")]])
    config = {"configurable": {"thread_id": "t"}}
    state = face(run.agent, "invoke", {"messages": [("user", "go")]}, config)
    results = [message for message in state["messages"] if isinstance(message, ToolMessage)]
    assert [handle_of(message)[:4] for message in results] == ["out_"]
    assert next(message for message in state["messages"] if message.id == "h").content == LOG


def test_include_and_exclude_by_name_and_predicate(face: Face) -> None:
    tools = [tool_returning(LOG, "a"), tool_returning(LOG, "b"), tool_returning(LOG, "c")]
    calls = [[call("a", "1")], [call("b", "2")], [call("c", "3")]]

    def shortened(**settings: Any) -> list[bool]:
        return ["langmem_harness" in message.additional_kwargs for message in Run(tools, calls, **settings)(face)]

    assert shortened() == [True, True, True]
    assert shortened(include=["a"]) == [True, False, False]
    assert shortened(exclude=["a"]) == [False, True, True]
    assert shortened(include=["a", "b"], exclude=lambda request: request.tool_call["name"] == "b") == [
        True,
        False,
        False,
    ]
    assert shortened(include=[]) == [False, False, False]
    assert shortened(trigger=None) == [False, False, False]


def test_parallel_results_are_budgeted_together(face: Face) -> None:
    medium = LOG[: len(LOG) // 8]  # about 1,400 tokens, under the trigger
    tools = [tool_returning(medium)]
    calls = [call("search", str(i)) for i in range(6)]
    together = Run(tools, [calls])(face)
    assert all("langmem_harness" in message.additional_kwargs for message in together)
    assert sum(estimate_text_tokens(message.content) for message in together) < 4_000
    alone = Run(tools, [[each] for each in calls])(face)
    assert not any("langmem_harness" in message.additional_kwargs for message in alone)
    wide = Run(tools, [calls], batch_trigger=("tokens", 50_000))(face)
    assert not any("langmem_harness" in message.additional_kwargs for message in wide)


def test_triggers_in_bytes_and_fractions(face: Face) -> None:
    text = "ü" * 3000

    def is_shortened(**settings: Any) -> bool:
        (message,) = Run([tool_returning(text)], [[call("search")]], **settings)(face)
        return "langmem_harness" in message.additional_kwargs

    assert is_shortened(trigger=("bytes", 5999))
    assert not is_shortened(trigger=("bytes", 6000))
    assert is_shortened(trigger=("fraction", 0.1), context_window=10_000)
    assert not is_shortened(trigger=("fraction", 0.5), context_window=10_000)
    assert is_shortened(trigger=("fraction", 0.01))  # an unknown window: the fallback, said in the log


def test_the_window_of_a_fraction_comes_from_the_models_profile(face: Face) -> None:
    run = Run([tool_returning("ü" * 3000)], [[call("search")]], trigger=("fraction", 0.1))
    run.model.profile = {"max_input_tokens": 1_000_000}
    (message,) = run(face)
    assert not message.additional_kwargs


def test_an_extract_that_saves_nothing_changes_nothing(face: Face) -> None:
    store = Spy()
    (message,) = Run([tool_returning("one two three")], [[call("search")]], trigger=("tokens", 1), store=store)(face)
    assert inner(message.content) == "one two three"
    assert store.writes == []


def test_a_custom_counter_decides(face: Face) -> None:
    run = Run([tool_returning("word " * 100)], [[call("search")]], token_counter=lambda messages: 5_000)
    run(face)
    assert run.kinds() == []  # 5,000 before and 5,000 after: nothing saved
    run = Run(
        [tool_returning("word " * 2000)], [[call("search")]], token_counter=lambda messages: len(messages[0].text)
    )
    run(face)
    assert run.kinds() == ["tool_output_offloaded"]


def test_without_a_thread_the_original_stays(face: Face) -> None:
    run = Run([tool_returning(LOG)], [[call("search")]])
    run.agent.checkpointer = None
    state = face(run.agent, "invoke", {"messages": [("user", "go")]})
    assert inner(state["messages"][2].content) == LOG
    assert [event.reason for event in run.events if isinstance(event, ToolOutputKept)] == ["no thread_id"]


def test_without_a_store_the_original_stays(face: Face) -> None:
    run = Run([tool_returning(LOG)], [[call("search")], [call("read_tool_output", "r", handle="out_" + "a" * 12)]])
    run.agent.store = None
    messages = run(face)
    assert inner(messages[0].content) == LOG
    assert messages[1].status == "error"
    assert run.kinds() == ["tool_output_kept"]


def test_arguments_of_calls_are_never_edited(face: Face) -> None:
    arguments = {"q": "x" * 50_000}
    run = Run([tool_returning(LOG)], [[call("search", **arguments)]])
    run(face)
    sent = next(message for message in run.model.requests[-1] if isinstance(message, AIMessage))
    assert sent.tool_calls[0]["args"] == arguments


def test_hostile_texts_are_stored_exactly(face: Face) -> None:
    for text in ("\x00" + LOG, "\ud800" + LOG, "x" * 300_000, "\r\n" * 20_000 + "x", "日本" * 20_000):
        run = Run([tool_returning(text)], [[call("search")], read_back(limit=7)])
        messages = run(face)
        assert f"of {len(text)};" in messages[1].content


def test_outputs_disappear_with_their_time_to_live(face: Face) -> None:
    from datetime import timedelta

    from langmem_harness.testing import FixedClock

    clock = FixedClock()
    run = Run([tool_returning(LOG)], [[call("search")]], ttl_minutes=10, clock=clock)
    handle = handle_of(run(face)[0])
    (item,) = run.store.search(tool_outputs_namespace("t"))
    assert item.value["expires_at"] == (clock.now + timedelta(minutes=10)).isoformat()
    clock.advance(minutes=11)
    later = Run([], [[call("read_tool_output", "r", handle=handle)]], store=run.store, clock=clock)
    assert later(face)[0].status == "error"


def test_events_reach_the_custom_stream(face: Face) -> None:
    run = Run([tool_returning(LOG)], [[call("search")]])
    config = {"configurable": {"thread_id": "t"}}
    if face.name == "sync":
        chunks = list(run.agent.stream({"messages": [("user", "go")]}, config, stream_mode="custom"))
    else:

        async def collect() -> list[Any]:
            return [c async for c in run.agent.astream({"messages": [("user", "go")]}, config, stream_mode="custom")]

        chunks = asyncio.run(collect())
    assert [chunk["kind"] for chunk in chunks] == ["tool_output_offloaded"]


@pytest.mark.anyio
async def test_cancelling_lets_cancellation_out() -> None:
    class Slow(InMemoryStore):
        async def abatch(self, ops: Any) -> Any:
            await asyncio.sleep(30)

    run = Run([tool_returning(LOG)], [[call("search")]], store=Slow())
    task = asyncio.create_task(run.agent.ainvoke({"messages": [("user", "go")]}, {"configurable": {"thread_id": "t"}}))
    await asyncio.sleep(0.3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_result_that_is_short_already_is_left_alone(face: Face) -> None:
    first = Run([tool_returning(LOG)], [[call("search")]])(face)[0]
    again = Run([tool_returning(lambda: first.model_copy(update={"tool_call_id": "c1"}))], [[call("search")]])(face)[0]
    assert again.content == first.content


@pytest.mark.parametrize(
    "settings",
    [
        {"trigger": ("tokens", 0)},
        {"trigger": ("messages", 5)},
        {"trigger": ("fraction", 1.5)},
        {"trigger": "tokens"},
        {"trigger": ("tokens", True)},
        {"batch_trigger": ("bytes", -1)},
        {"include": "search"},
        {"exclude": [1]},
        {"trusted_tools": ["search"]},
        {"trusted_tools": "search"},
        {"ttl_minutes": 0},
        {"context_window": 0},
        {"context_window": "8000"},
        {"context_window": 8_000.5},
        {"context_window": True},
        {"trigger": ("tokens", float("inf"))},
        {"trigger": ("tokens", float("nan"))},
        {"trigger": ("tokens", "2000")},
        {"trigger": 2_000},
        {"include": 5},
        {"include": {"search": 1, 2: 3}},
        {"trusted_tools": 5},
        {"trusted_tools": None},
        {"trusted_tools": [None]},
        {"untrusted_tools": "web"},
        {"untrusted_tools": 5},
        {"untrusted_tools": [5]},
        {"ttl_minutes": "60"},
        {"ttl_minutes": True},
        {"ttl_minutes": float("nan")},
        {"ttl_minutes": float("inf")},
        {"store": "memory.sqlite"},
        {"token_counter": 4},
        {"redactor": "yes"},
        {"prices": 3},
        {"clock": None},
        {"on_event": "print"},
        {"summarizer": 42},
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        ToolOutputSummarizationMiddleware(**settings)


def test_the_runtime_reaches_the_users_tools(face: Face) -> None:
    @tool
    def who(runtime: ToolRuntime) -> str:
        """Who."""
        return f"{runtime.tool_call_id} {len(runtime.tools)}"

    (message,) = Run([who], [[call("who")]])(face)
    assert inner(message.content) == "c1 2"
