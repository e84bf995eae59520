"""Recorded conversations, read from the formats people have them in.

Detected, not asked for: OpenAI chat messages (a JSON list of messages; an object that holds them as ``messages``,
``traj`` or ``history``; a JSON list of such objects; JSONL of any of these), and LangChain's ``messages_to_dict``.
tau-bench result files and SWE-agent trajectories are of these shapes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    messages_from_dict,
)

from langmem_harness.errors import RecordingError

MESSAGE_KEYS = ("messages", "traj", "history")
NO_RESULT_TEXT = "(no result was recorded)"
NO_ANSWER_TEXT = "(no answer was recorded)"

_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "human",
    "human": "human",
    "assistant": "ai",
    "ai": "ai",
    "tool": "tool",
    "function": "tool",
}


@dataclass(frozen=True, kw_only=True)
class RecordedConversation:
    """One conversation, ready to be played.

    Attributes:
        source: File it came from.
        name: Its place in the file, in words (``"conversation 3"``, or the recording's own id).
        system_prompt: Leading system messages, joined; None when there are none.
        messages: The rest: every call answered by the results right behind it, call ids unique.
        notes: What had to be mended, counted by kind.
    """

    source: str
    name: str
    system_prompt: str | None
    messages: tuple[BaseMessage, ...]
    notes: Mapping[str, int]


def read_recordings(path: str | Path) -> list[RecordedConversation]:
    """All conversations of a file, in order.

    Raises:
        RecordingError: The file cannot be read, is of no known format, or holds a message that makes no sense; names
            file, position and reason.
    """
    path = Path(path)
    source = str(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise RecordingError(source, f"byte {error.start}", "not UTF-8 text") from error
    except OSError as error:
        raise RecordingError(source, "file", error.strerror or "cannot be read") from error
    conversations = [
        parse_conversation(messages, source=source, name=name)
        for name, messages in _find_conversations(_load(text, source), source)
    ]
    if not conversations:
        raise RecordingError(source, "file", "holds no conversation")
    return conversations


def _load(text: str, source: str) -> list[Any]:
    """The JSON documents of a file: one, or one a line."""
    if not text.strip():
        raise RecordingError(source, "file", "is empty")
    try:
        return [json.loads(text)]
    except json.JSONDecodeError as whole_error:
        lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
        documents = []
        for number, line in lines:
            try:
                documents.append(json.loads(line))
            except json.JSONDecodeError as error:
                if number == lines[0][0]:  # not JSONL either: the error of the whole file says more
                    position = f"line {whole_error.lineno}, column {whole_error.colno}"
                    raise RecordingError(source, position, f"not JSON: {whole_error.msg}") from whole_error
                raise RecordingError(source, f"line {number}", f"not JSON: {error.msg}") from error
            except (RecursionError, ValueError) as error:
                raise RecordingError(source, f"line {number}", _unusable_json(error)) from error
        return documents
    except (RecursionError, ValueError) as error:
        raise RecordingError(source, "file", _unusable_json(error)) from error


def _unusable_json(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else "holds a number that is too long"


def _find_conversations(documents: Sequence[Any], source: str) -> Iterator[tuple[str, list[Any]]]:
    """``(name, raw messages)`` of every conversation in the documents."""
    if all(_is_message(document) for document in documents):
        yield "conversation 1", list(documents)  # JSONL with a message a line
        return
    number = 0
    for document in documents:
        entries = document if isinstance(document, list) and not _is_message_list(document) else [document]
        for entry in entries:
            number += 1
            name = f"conversation {number}"
            if _is_message_list(entry):
                yield name, entry
                continue
            if not isinstance(entry, Mapping):
                raise RecordingError(
                    source, name, f"expected messages or an object that holds them, not {_kind(entry)}"
                )
            key = next((key for key in MESSAGE_KEYS if isinstance(entry.get(key), list)), None)
            if key is None:
                raise RecordingError(
                    source, name, f"has none of the lists {', '.join(MESSAGE_KEYS)}; keys are {sorted(entry)[:10]}"
                )
            label = entry.get("task_id", entry.get("instance_id", entry.get("id")))
            yield (name if label is None else f"{name} ({_printable(label)})"), entry[key]


def _printable(label: Any) -> str:
    """A recording's own id, safe on a terminal and at most 60 characters."""
    return "".join(character if character.isprintable() else "?" for character in str(label)[:60])


def _is_message(value: Any) -> bool:
    return isinstance(value, Mapping) and (
        isinstance(value.get("role"), str)
        or (isinstance(value.get("type"), str) and isinstance(value.get("data"), Mapping))
    )


def _is_message_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and _is_message(value[0])


def _kind(value: Any) -> str:
    return {list: "a list", str: "a text", int: "a number", float: "a number", bool: "a truth value"}.get(
        type(value), "null" if value is None else type(value).__name__
    )


def parse_conversation(raw: Sequence[Any], *, source: str, name: str) -> RecordedConversation:
    """A conversation from raw messages of either format.

    Raises:
        RecordingError: A message makes no sense, or nobody asks anything.
    """
    messages = list(_parse_messages(raw, source, name))
    notes: Counter[str] = Counter()
    system_prompts: list[str] = []
    while messages and isinstance(messages[0], SystemMessage):
        system_prompts.append(messages.pop(0).text)
    messages = [_as_input(message, notes) for message in messages]
    mended = tuple(_close_turns(_merge_answers(_pair_results(messages, notes), notes), notes))
    if not any(isinstance(message, HumanMessage) for message in mended):
        raise RecordingError(source, name, "has no user message")
    return RecordedConversation(
        source=source,
        name=name,
        system_prompt="\n\n".join(system_prompts) or None,
        messages=mended,
        notes=dict(notes),
    )


def _as_input(message: BaseMessage, notes: Counter[str]) -> BaseMessage:
    """A system message in the middle comes in as a user message: several providers take the role only at the start."""
    if not isinstance(message, SystemMessage):
        return message
    notes["system messages in the middle, played as user messages"] += 1
    return HumanMessage(message.content)


def _parse_messages(raw: Sequence[Any], source: str, name: str) -> Iterator[BaseMessage]:
    for number, entry in enumerate(raw, start=1):
        position = f"{name}, message {number}"
        if not isinstance(entry, Mapping):
            raise RecordingError(source, position, f"expected an object, not {_kind(entry)}")
        if isinstance(entry.get("data"), Mapping) and isinstance(entry.get("type"), str):
            try:
                yield messages_from_dict([dict(entry)])[0].model_copy(
                    update={"id": None}
                )  # ids may repeat; the thread gives its own
            except Exception as error:
                raise RecordingError(source, position, f"not a LangChain message: {type(error).__name__}") from error
            continue
        role = entry.get("role")
        if not isinstance(role, str) or role.lower() not in _ROLES:
            raise RecordingError(source, position, f"unknown role {role!r}; known are {', '.join(sorted(_ROLES))}")
        yield _parse_openai_message(entry, _ROLES[role.lower()], source, position)


def _parse_openai_message(entry: Mapping[str, Any], role: str, source: str, position: str) -> BaseMessage:
    content = _parse_content(entry.get("content"), source, position)
    if role == "system":
        return SystemMessage(content)
    if role == "human":
        return HumanMessage(content)
    if role == "tool":
        ids = entry.get("tool_call_ids")
        call_id = entry.get("tool_call_id") or (ids[0] if isinstance(ids, list) and ids else "")
        return ToolMessage(content, tool_call_id=str(call_id or ""), name=_optional_text(entry.get("name")))
    calls = entry.get("tool_calls") or []
    if not isinstance(calls, list):
        raise RecordingError(source, position, f"tool_calls must be a list, not {_kind(calls)}")
    legacy = entry.get("function_call")
    if isinstance(legacy, Mapping):
        calls = [*calls, {"id": "", "function": legacy}]
    return AIMessage(content, tool_calls=[_parse_call(call, source, position) for call in calls])


def _parse_content(content: Any, source: str, position: str) -> str | list[Any]:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(block, str | Mapping) for block in content):
        texts = [block if isinstance(block, str) else block.get("text") for block in content]
        is_only_text = all(
            isinstance(text, str) and (isinstance(block, str) or block.get("type", "text") == "text")
            for block, text in zip(content, texts, strict=True)
        )
        return (
            "\n".join(str(text) for text in texts)
            if is_only_text
            else [dict(b) if isinstance(b, Mapping) else b for b in content]
        )
    raise RecordingError(source, position, f"content must be a text or a list of blocks, not {_kind(content)}")


def _parse_call(call: Any, source: str, position: str) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str) or not function["name"]:
        raise RecordingError(source, position, "a tool call has no function name")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError):
            arguments = {"unreadable_arguments": arguments}
    if not isinstance(arguments, Mapping):
        arguments = {} if arguments is None else {"arguments": arguments}
    return {"name": function["name"], "args": dict(arguments), "id": str(call.get("id") or ""), "type": "tool_call"}


def _optional_text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _pair_results(messages: Sequence[BaseMessage], notes: Counter[str]) -> Iterator[BaseMessage]:
    """Give every call an id of its own and its result right behind it; what cannot be paired is noted."""
    used_ids: set[str] = set()
    position = 0
    while position < len(messages):
        message = messages[position]
        position += 1
        if isinstance(message, ToolMessage):
            notes["results without a call, left out"] += 1
            continue
        if not isinstance(message, AIMessage) or not message.tool_calls:
            yield message
            continue
        results: list[ToolMessage] = []
        while position < len(messages) and isinstance(messages[position], ToolMessage):
            results.append(messages[position])  # type: ignore[arg-type]
            position += 1
        if not results and position == len(messages):
            notes["calls at the end without results, left out"] += len(message.tool_calls)
            if message.text.strip():
                yield message.model_copy(update={"tool_calls": []})
            continue
        calls = []
        answers = []
        for call in message.tool_calls:
            answer = _take_result(results, call["id"] or "")
            call_id = _unique_id(call["id"] or "", used_ids)
            if call_id != call["id"]:
                notes["missing or repeated call ids, renamed"] += 1
            calls.append({**call, "id": call_id})
            if answer is None:
                notes["calls without a result"] += 1
                answer = ToolMessage(NO_RESULT_TEXT, tool_call_id=call_id, status="error")
            answers.append(answer.model_copy(update={"tool_call_id": call_id, "name": call["name"]}))
        notes["results without a call, left out"] += len(results)
        yield message.model_copy(update={"tool_calls": calls})
        yield from answers
    for kind in [kind for kind, count in notes.items() if not count]:
        del notes[kind]


def _take_result(results: list[ToolMessage], call_id: str) -> ToolMessage | None:
    """The result of a call: by its id, else (recordings without ids) the first one that names no call."""
    for wanted in (call_id, "") if call_id else ("",):
        for result in results:
            if result.tool_call_id == wanted:
                results.remove(result)
                return result
    return results.pop(0) if not call_id and results else None


def _unique_id(call_id: str, used: set[str]) -> str:
    candidate, number = call_id or "call-1", 1
    while candidate in used:
        number += 1
        candidate = f"{call_id or 'call'}-{number}"
    used.add(candidate)
    return candidate


def _merge_answers(messages: Iterable[BaseMessage], notes: Counter[str]) -> Iterator[BaseMessage]:
    """One answer after another becomes one message (a graph ends at an answer); empty answers are left out."""
    held: AIMessage | None = None
    for message in messages:
        if isinstance(message, AIMessage):
            if not message.tool_calls and not message.text.strip() and isinstance(message.content, str):
                notes["empty answers, left out"] += 1
                continue
            if held is not None:
                notes["answers in a row, merged"] += 1
                message = message.model_copy(update={"content": f"{held.text}\n\n{message.text}".strip()})
                held = None
            if not message.tool_calls:
                held = message
                continue
        elif held is not None:
            yield held
            held = None
        yield message
    if held is not None:
        yield held


def _close_turns(messages: Iterable[BaseMessage], notes: Counter[str]) -> Iterator[BaseMessage]:
    """Give a turn that ends with a tool result (the user interrupted, the recording stopped) a stand-in answer.

    An agent always asks the model after a result; without one the next turn's answer would be played too early.
    """
    previous: BaseMessage | None = None
    for message in messages:
        if isinstance(previous, ToolMessage) and not isinstance(message, ToolMessage | AIMessage):
            notes["turns without an answer, closed"] += 1
            yield AIMessage(NO_ANSWER_TEXT)
        yield message
        previous = message
    if isinstance(previous, ToolMessage):
        notes["turns without an answer, closed"] += 1
        yield AIMessage(NO_ANSWER_TEXT)
