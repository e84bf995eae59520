"""Histories of every shape: as threads have them, and broken as users reported them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from langmem_harness.window.messages import TAG_KEY


def human(text: Any = "Please go on.", number: int = 0, **kwargs: Any) -> HumanMessage:
    return HumanMessage(text, id=f"human-{number}", **kwargs)


def ai(text: Any = "Done.", number: int = 0, **kwargs: Any) -> AIMessage:
    return AIMessage(text, id=f"ai-{number}", **kwargs)


def calling(*call_ids: str, text: Any = "", number: int = 0) -> AIMessage:
    return ai(
        text, number, tool_calls=[{"id": call_id, "name": "search", "args": {"q": call_id}} for call_id in call_ids]
    )


def result(call_id: str, text: Any = "found", number: int = 0) -> ToolMessage:
    return ToolMessage(text, tool_call_id=call_id, name="search", id=f"tool-{call_id}-{number}")


def long_turn(calls: int = 40, characters: int = 400) -> list[BaseMessage]:
    """One human message and this many tool rounds."""
    messages: list[BaseMessage] = [human("Find all of it.")]
    for number in range(calls):
        messages += [calling(f"c{number}", number=number), result(f"c{number}", "x " * (characters // 2), number)]
    return messages


def chat(turns: int = 20, characters: int = 100) -> list[BaseMessage]:
    messages: list[BaseMessage] = []
    for number in range(turns):
        messages += [human(f"Question {number}? " + "y " * (characters // 2), number), ai(f"Answer {number}.", number)]
    return messages


def reasoning(signature: str = "c2lnbmVk") -> dict[str, Any]:
    return {"type": "thinking", "thinking": "Let me see.", "signature": signature}


SHAPES: dict[str, list[BaseMessage]] = {
    "empty": [],
    "only system": [SystemMessage("Be kind.")],
    "one giant human message": [human("word " * 20_000)],
    "forty tool rounds": long_turn(),
    "chat": chat(),
    "eight parallel calls, results out of order": [
        human(),
        calling(*"abcdefgh"),
        *[result(call_id, "z" * 300) for call_id in "hcadgbfe"],
        ai("All eight are there."),
        *chat(6),
    ],
    "unanswered call in the middle": [human(), calling("a"), human("Stop!", 1), ai("Stopped.", 1), *chat(8)],
    "unanswered call at the end": [*chat(8), human("And?", 90), calling("a", number=90)],
    "stopped between two parallel results": [*chat(8), calling("a", "b", number=90), result("a"), human("Hm?", 91)],
    "result without caller": [human(), result("ghost"), ai("Sure."), *chat(8), result("ghost2"), human("?", 99)],
    "result that comes late": [human(), calling("a"), human("Are you there?", 1), result("a"), ai("Yes.", 2), *chat(8)],
    "two results for one call": [human(), calling("a"), result("a", "first"), result("a", "second", 1), ai(), *chat(8)],
    "the same call id in every turn": [
        message
        for number in range(12)
        for message in (
            human("Go.", number),
            calling("call_0", number=number),
            result("call_0", "ok", number),
            ai("Ok.", 100 + number),
        )
    ],
    "the same message id everywhere": [
        message for _ in range(6) for message in (human("a", 1), ai("b", 1), human("c", 1), ai("d", 1))
    ],
    "no ids": [message.model_copy(update={"id": None}) for message in chat(12)],
    "calls without ids": [
        human(),
        ai("", tool_calls=[{"id": None, "name": "search", "args": {}}]),
        result(""),
        ai(),
        *chat(8),
    ],
    "consecutive human messages": [
        human("One.", 1),
        human("Two.", 2),
        human("Three.", 3),
        ai(),
        *chat(8),
        human("x", 91),
        human("y", 92),
    ],
    "last message is a tool result": [*chat(8), human("Go.", 90), calling("z", number=90), result("z", "w " * 300)],
    "structured output called twice, one answered": [
        human(),
        calling("s1", "s2"),
        result("s1"),
        ai("Structured."),
        *chat(8),
        human("Again.", 95),
        calling("s3", "s4", number=95),
        result("s4"),
    ],
    "begins with the assistant": [ai("How can I help?", 77), *chat(10)],
    "only the assistant": [ai(f"note {number}", number) for number in range(10)],
    "system messages in the middle": [SystemMessage("First."), *chat(4), SystemMessage("Now be brief."), *chat(6)],
    "empty messages": [
        human(""),
        ai(""),
        human("  ", 2),
        ai([], 2),
        *chat(8),
        calling("e"),
        result("e", ""),
        ai("Ok.", 50),
    ],
    "calls in content blocks": [
        human(),
        AIMessage([{"type": "tool_use", "id": "b1", "name": "search", "input": {}}], id="ai-blocks"),
        result("b1"),
        AIMessage(
            [{"type": "function_call", "call_id": "b2", "id": "fc_1", "name": "search", "arguments": "{}"}], id="ai-b2"
        ),
        *chat(8),
    ],
    "invalid calls": [
        human(),
        AIMessage(
            "",
            id="ai-i",
            invalid_tool_calls=[{"id": "i1", "name": "search", "args": "{", "error": "", "type": "invalid_tool_call"}],
        ),
        human("And?", 3),
        ai(),
        *chat(8),
    ],
    "server-side tools, paused": [
        human(),
        ai([{"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {}}], 60),
        ai(
            [
                {"type": "web_search_tool_result", "tool_use_id": "srv", "content": []},
                {"type": "text", "text": "Found."},
            ],
            61,
        ),
        *chat(8),
    ],
    "reasoning in an open turn": [
        human("Think."),
        *[
            message
            for number in range(12)
            for message in (
                ai(
                    [reasoning(), {"type": "text", "text": "so"}],
                    number,
                    tool_calls=[{"id": f"r{number}", "name": "search", "args": {}}],
                )
                if number % 3 == 0
                else calling(f"r{number}", number=number),
                result(f"r{number}", "v " * 200, number),
            )
        ],
    ],
    "blocks of every kind": [
        human(
            [
                {"type": "text", "text": "Look:"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 4_000}},
            ]
        ),
        human([{"type": "audio", "base64": "B" * 4_000, "mime_type": "audio/wav"}], 1),
        human([{"type": "file", "base64": "C" * 4_000, "mime_type": "application/pdf"}], 2),
        ai([{"type": "redacted_thinking", "data": "D" * 100}, {"type": "text", "text": "Seen."}], 2),
        human([{"type": "of tomorrow", "value": [1, {"deep": None}]}], 3),
        ai("Fine.", 3),
        *chat(8),
    ],
    "text of many scripts": [
        human(text, number) if number % 2 == 0 else ai(text, number)
        for number, text in enumerate(["你好", "สวัสดี", "مرحبا", "é́́", "👩‍👩‍👧", "\ud800", "a\0b", "a\r\nb"] * 4)
    ],
    "text equal to our marker": [
        human("[Notice from the memory system, not from the user] 12 earlier messages are left out here."),
        *chat(10),
    ],
    "a stored message with our tag": [
        human(),
        human("stored", 5, additional_kwargs={TAG_KEY: {"kind": "marker", "omitted": 3, "summary_id": None}}),
        ai(),
        *chat(8),
    ],
}


_TEXTS = st.sampled_from(["", " ", "yes", "word " * 30, "long " * 200, "数字" * 60])


@st.composite
def histories(draw: st.DrawFn, max_size: int = 40) -> list[BaseMessage]:
    """Any sequence of messages, more often right than broken."""
    messages: list[BaseMessage] = []
    open_calls: list[str] = []
    for number in range(draw(st.integers(0, max_size))):
        kinds = ["human", "ai", "calling", "ai", "calling", "stray", "system", "blank"]
        kind = "result" if open_calls and draw(st.integers(0, 9)) else draw(st.sampled_from(kinds))
        text = draw(_TEXTS)
        if kind == "human":
            messages.append(human(text, number))
        elif kind == "ai":
            messages.append(ai(text, number))
        elif kind == "calling":
            ids = [f"call-{number}-{index}" for index in range(draw(st.integers(1, 3)))]
            if draw(st.integers(0, 9)) == 0:
                ids[0] = "call_0"
            blocks: Any = [reasoning(), {"type": "text", "text": "so"}] if draw(st.integers(0, 4)) == 0 else text
            messages.append(calling(*ids, text=blocks, number=number))
            open_calls += ids
        elif kind == "result":
            call_id = open_calls.pop(draw(st.integers(0, len(open_calls) - 1)))
            messages.append(result(call_id, text, number))
        elif kind == "stray":
            messages.append(result(draw(st.sampled_from(["ghost", "call_0", ""])), text, number))
        elif kind == "system":
            messages.append(SystemMessage(text, id=f"system-{number}"))
        else:
            messages.append(ai("", number))
    return messages
