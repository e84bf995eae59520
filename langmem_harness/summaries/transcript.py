"""Messages as text for a summarizer: every word of it, no media, no reasoning, in chunks that fit. Pure.

A summarizer gets one text and never the messages themselves: providers refuse tool messages without tools, and a model
that sees an open question in its own chat answers it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langmem_harness.window.messages import canonical_json, role_of, tag_of
from langmem_harness.window.tokens import MEDIA_BLOCK_TYPES, TEXT_BLOCK_TYPES, estimate_text_tokens

_REASONING = {"reasoning", "thinking", "redacted_thinking", "reasoning_content"}
_CALLS = {"tool_use", "tool_call", "function_call", "custom_tool_call", "input_json_delta", "tool_call_chunk"}
_SPEAKER = {"human": "user", "ai": "assistant", "system": "system"}
_ENCODED = re.compile(r"[A-Za-z0-9+/=_-]{256,}")  # inside a JSON value: so long without a space, it is bytes, not text
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")
_DELIMITER = re.compile(r"<(?=/?(?:transcript|earlier_notes)\b)", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class TranscriptEntry:
    """One thing that was said or done.

    Attributes:
        speaker: ``"user"``, ``"assistant"``, ``"system"``, ``"result of <tool>"``, ``"assistant calls <tool>"``.
        text: What was said, whole; never empty.
    """

    speaker: str
    text: str

    def render(self) -> str:
        """The entry as lines of a transcript."""
        return f"[{self.speaker}] {self.text}"


def transcript_entries(messages: Sequence[BaseMessage]) -> list[TranscriptEntry]:
    """The messages as entries, in order; messages that say nothing (only reasoning, empty) give none.

    Usage, metadata and ids are left out. Media become labels, with the text beside them kept. The handle of an
    offloaded tool output is kept, so that what is summarized can still be read back.
    """
    return [entry for message in messages for entry in _entries_of(message)]


def map_texts(entries: Sequence[TranscriptEntry], change: Callable[[str], str]) -> list[TranscriptEntry]:
    """The entries with a function applied to what was said, for example to redact it."""
    return [TranscriptEntry(speaker=entry.speaker, text=change(entry.text) or "[removed]") for entry in entries]


def render_transcript(entries: Sequence[TranscriptEntry]) -> str:
    """All entries as one text; ``""`` for none."""
    return "\n".join(entry.render() for entry in entries)


def delimit_transcript(text: str, *, label: str = "transcript") -> str:
    """A transcript between tags that nothing inside it can close."""
    safe = _DELIMITER.sub("‹", text)
    return f"<{label}>\n{safe}\n</{label}>"


def chunk_transcript(entries: Sequence[TranscriptEntry], max_tokens: int) -> list[str]:
    """The transcript in pieces of at most `max_tokens` estimated tokens, together all of it.

    Entries stay whole where they fit; a larger one is split at line ends or spaces if there are any nearby, and each
    of its pieces says who speaks.

    Args:
        entries: What to split.
        max_tokens: Budget of a piece; 64 or more (below, 64 is used).

    Returns:
        Pieces in order; empty for no entries.
    """
    max_tokens = max(64, max_tokens)
    chunks: list[str] = []
    current: list[str] = []
    size = 0
    for entry in entries:
        for piece in _pieces(entry, max_tokens):
            cost = estimate_text_tokens(piece) + 1
            if current and size + cost > max_tokens:
                chunks.append("\n".join(current))
                current, size = [], 0
            current.append(piece)
            size += cost
    if current:
        chunks.append("\n".join(current))
    return chunks


def split_text(text: str, max_tokens: int) -> Iterator[str]:
    """The text in consecutive pieces of at most `max_tokens` estimated tokens; joined they are the text again."""
    start = 0
    characters = max(1, max_tokens * 3)
    while start < len(text):
        end = min(len(text), start + characters)
        while end - start > 1 and (tokens := estimate_text_tokens(text[start:end])) > max_tokens:
            end = start + max(1, min(end - start - 1, (end - start) * max_tokens // tokens))
        if end < len(text):
            end = _nearby_border(text, start, end)
        yield text[start:end]
        start = end


def clean_text(text: str) -> str:
    """The text with NUL and lone surrogates replaced, which some stores cannot keep."""
    return _UNSTORABLE.sub("\ufffd", text)


def _nearby_border(text: str, start: int, end: int) -> int:
    """The last line end, else space, in the last quarter of a piece; else its end."""
    earliest = start + (end - start) * 3 // 4
    for border in ("\n", " "):
        found = text.rfind(border, earliest, end)
        if found > start:
            return found + 1
    return end


def _pieces(entry: TranscriptEntry, max_tokens: int) -> Iterator[str]:
    whole = entry.render()
    if estimate_text_tokens(whole) + 1 <= max_tokens:
        yield whole
        return
    speaker = entry.speaker[:80]
    room = max(16, max_tokens - estimate_text_tokens(f"[{speaker}, continued] ") - 2)
    for number, piece in enumerate(split_text(entry.text, room)):
        yield f"[{speaker}, continued] {piece}" if number else f"[{speaker}] {piece}"


def _entries_of(message: BaseMessage) -> Iterator[TranscriptEntry]:
    role = role_of(message)
    if role == "tool":
        speaker = f"result of {message.name or 'a tool'}"
        if isinstance(message, ToolMessage) and message.status == "error":
            speaker += " (error)"
    else:
        speaker = f"{_SPEAKER[role]} {message.name}" if message.name else _SPEAKER[role]
    text = text_for_summary(message)
    tag = tag_of(message)
    handle = tag.get("handle") if tag is not None and tag["kind"] == "tool_output" else None
    if isinstance(handle, str) and handle not in text:
        text = f"{text}\n[whole output: {handle}]"
    if text.strip():
        yield TranscriptEntry(speaker=speaker, text=text)
    if isinstance(message, AIMessage):
        for call in message.tool_calls:
            yield TranscriptEntry(speaker=f"assistant calls {call['name']}", text=_json(call["args"]))
        for invalid in message.invalid_tool_calls:
            yield TranscriptEntry(
                speaker=f"assistant calls {invalid['name'] or 'a tool'}", text=invalid["args"] or "{}"
            )
        if isinstance(message.content, list):
            known = {call["id"] for call in message.tool_calls} | {call["id"] for call in message.invalid_tool_calls}
            for block in message.content:
                if isinstance(block, dict) and block.get("type") in _CALLS:
                    yield from _call_in_block(block, known)


def _call_in_block(block: Mapping[str, Any], known: set[str | None]) -> Iterator[TranscriptEntry]:
    """A call that is only in the content."""
    call_id = block.get("call_id") or block.get("id")
    if block.get("name") and call_id not in known and block.get("id") not in known:
        arguments = block.get("input", block.get("args", block.get("arguments", {})))
        text = arguments if isinstance(arguments, str) else _json(arguments)
        yield TranscriptEntry(speaker=f"assistant calls {block['name']}", text=text or "{}")


def text_for_summary(message: BaseMessage) -> str:
    """What a message says, without calls: its text and, in their places, labels of what is not text."""
    content: Any = message.content
    if isinstance(content, str):
        return content
    return "\n".join(text for block in content or () if (text := _text_of_block(block)))


def _text_of_block(block: Any) -> str:
    if isinstance(block, str):
        return block
    if not isinstance(block, Mapping):
        return str(block)
    kind = str(block.get("type", ""))
    if kind in TEXT_BLOCK_TYPES:
        return str(block.get("text") or "")
    if kind in _REASONING or kind in _CALLS:
        return ""
    if kind in MEDIA_BLOCK_TYPES:
        name = block.get("filename") or block.get("name") or block.get("title")
        described = str(block.get("text") or "") if kind in ("document", "file") else ""
        label = f"[{MEDIA_BLOCK_TYPES[kind]}{f' {name}' if isinstance(name, str) and name else ''}]"
        return f"{label}\n{described}" if described else label
    if kind.endswith("tool_result") and isinstance(block.get("content"), str | list):
        inner = block["content"]
        return inner if isinstance(inner, str) else "\n".join(filter(None, map(_text_of_block, inner)))
    if not kind and isinstance(block.get("text"), str):
        return str(block["text"])
    return _json(block)


def _json(value: Any) -> str:
    """JSON without encoded bytes."""
    return _ENCODED.sub("[encoded data]", canonical_json(value))
