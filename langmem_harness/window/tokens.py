"""How many tokens something is, estimated from its characters.

Pure. The estimate knows scripts: four characters a token holds for English prose, but Chinese is about a token a
character, and punctuation-heavy code lies between. It errs on the high side by a few percent, because a window that is
a little too small works and one that is too large does not. Where the provider's own counter is at hand, pass it as
``token_counter`` instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from langmem_harness.window.messages import canonical_json

TokenCounter = Callable[[Sequence[BaseMessage]], int]
"""Counts tokens of messages; LangChain's ``count_tokens_approximately`` and ``get_num_tokens_from_messages`` fit."""

MESSAGE_OVERHEAD_TOKENS = 4
"""Role and separators of one message."""

MEDIA_BLOCK_TOKENS: Mapping[str, int] = {"image": 1_000, "audio": 1_500, "video": 4_000, "file": 2_000}
"""Fixed cost of one media block, whatever the length of its base64: providers bill pictures and sound by size in the
world, not by characters. Deliberately on the high side."""

MEDIA_BLOCK_TYPES: Mapping[str, str] = {
    "image": "image",
    "image_url": "image",
    "input_image": "image",
    "audio": "audio",
    "input_audio": "audio",
    "video": "video",
    "video_url": "video",
    "file": "file",
    "input_file": "file",
    "document": "file",
    "media": "file",
}
"""What kind of media a content block of this type is, over the block types of LangChain and the providers."""

_MEDIA_KEYS = {"data", "base64", "image_url", "file_data"}
TEXT_BLOCK_TYPES = frozenset({"text", "input_text", "output_text", "text-plain"})
"""Types of content blocks that are plain text."""

# Tokens per character by class, in thousandths, for ASCII: letters, digits, spaces, line ends, everything else.
_CLASS_OF_BYTE = bytes(
    ord("a") if chr(code).isalpha() else ord("0") if chr(code).isdigit() else 32 if code in (32, 9) else 10
    if code in (10, 13) else ord("!")
    for code in range(128)
) + bytes([ord("w")]) * 128  # fmt: skip
_LETTER, _DIGIT, _SPACE, _LINE_END, _SIGN = 215, 420, 60, 400, 620

_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
# One class a line; the estimates follow what current byte-pair vocabularies (100k to 200k entries) do with the script.
_SCRIPTS: tuple[tuple[re.Pattern[str], int], ...] = (
    (re.compile(r"[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"), 1_050),  # Han
    (re.compile(r"[\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f]"), 850),  # Kana
    (re.compile(r"[\u1100-\u11ff\u3130-\u318f\uac00-\ud7af]"), 1_000),  # Hangul
    (re.compile(r"[\u0e00-\u0eff\u1780-\u17ff\u1000-\u109f]"), 800),  # Thai, Lao, Khmer, Burmese
    (re.compile(r"[\u0900-\u0dff]"), 700),  # the scripts of India
    (re.compile(r"[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]"), 500),  # Hebrew, Arabic, Syriac
    (re.compile(r"[\u0370-\u058f\u10a0-\u10ff\u1c80-\u1c8f]"), 450),  # Greek, Cyrillic, Armenian, Georgian
    (re.compile(r"[\u0080-\u024f\u1e00-\u1eff]"), 500),  # accented Latin
)
_OTHER_SCRIPT = 1_600  # emoji, symbols, rare scripts: several bytes, each often a token


def estimate_text_tokens(text: str) -> int:
    """Tokens of a text, estimated; 0 for the empty text, else 1 or more. Linear and fast."""
    if not text:
        return 0
    thousandths = 0
    if text.isascii():
        encoded = text.encode("ascii")
    else:
        foreign = "".join(_NOT_ASCII.findall(text))
        encoded = _NOT_ASCII.sub("", text).encode("ascii")
        rest = len(foreign)
        for script, weight in _SCRIPTS:
            count = len(script.findall(foreign))
            thousandths += count * weight
            rest -= count
        thousandths += rest * _OTHER_SCRIPT
    classes = encoded.translate(_CLASS_OF_BYTE)
    thousandths += (
        classes.count(b"a") * _LETTER
        + classes.count(b"0") * _DIGIT
        + classes.count(b" ") * _SPACE
        + classes.count(b"\n") * _LINE_END
        + classes.count(b"!") * _SIGN
    )
    return max(1, -(-thousandths // 1000))


def estimate_content_tokens(content: str | Sequence[Any]) -> int:
    """Tokens of a content: text by its characters, media blocks by a fixed cost, other blocks by their JSON."""
    if isinstance(content, str):
        return estimate_text_tokens(content)
    return sum(_estimate_block_tokens(block) for block in content)


def _estimate_block_tokens(block: Any) -> int:
    if isinstance(block, str):
        return estimate_text_tokens(block)
    if not isinstance(block, Mapping):
        return estimate_text_tokens(str(block))
    kind = str(block.get("type", ""))
    if kind in TEXT_BLOCK_TYPES:
        return estimate_text_tokens(str(block.get("text") or ""))
    if kind in MEDIA_BLOCK_TYPES:
        return MEDIA_BLOCK_TOKENS[MEDIA_BLOCK_TYPES[kind]]
    if kind == "tool_use":
        return 0  # the same call is in `tool_calls`, where it is counted
    if kind == "tool_result" and isinstance(block.get("content"), str | list):
        return estimate_content_tokens(block["content"])
    return estimate_text_tokens(canonical_json(_without_media(block)))


def _without_media(value: Any) -> Any:
    """The value with inline media (long base64) cut out, so that it is not counted as text."""
    if isinstance(value, Mapping):
        return {
            key: None if key in _MEDIA_KEYS and isinstance(inner, str) and len(inner) > 512 else _without_media(inner)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_without_media(inner) for inner in value]
    return value


def estimate_message_tokens(message: BaseMessage) -> int:
    """Tokens of one message: overhead, content, name, tool calls with their arguments."""
    tokens = MESSAGE_OVERHEAD_TOKENS + estimate_content_tokens(message.content)
    if message.name:
        tokens += estimate_text_tokens(message.name)
    if isinstance(message, AIMessage):
        for call in message.tool_calls:
            tokens += 8 + estimate_text_tokens(call["name"]) + estimate_text_tokens(canonical_json(call["args"]))
        for invalid in message.invalid_tool_calls:
            tokens += (
                8 + estimate_text_tokens(invalid.get("name") or "") + estimate_text_tokens(invalid.get("args") or "")
            )
    elif isinstance(message, ToolMessage):
        tokens += 6  # the id of the call
    return tokens


def estimate_tokens(messages: Sequence[BaseMessage]) -> int:
    """The default `TokenCounter`: the sum of `estimate_message_tokens`."""
    return sum(estimate_message_tokens(message) for message in messages)


def estimate_tool_tokens(tool: BaseTool | Mapping[str, Any]) -> int:
    """Tokens of one tool's schema as the provider sees it; a dict is taken as it is."""
    schema = tool if isinstance(tool, Mapping) else convert_to_openai_tool(tool)
    return 8 + estimate_text_tokens(canonical_json(schema))


def estimate_tools_tokens(tools: Iterable[BaseTool | Mapping[str, Any]]) -> int:
    """Tokens of all tool schemas of a request."""
    return sum(estimate_tool_tokens(tool) for tool in tools)


class TokenCache:
    """Counts each message and each tool schema once, and again when it has changed.

    An entry is not trusted by its id: the parts that are counted are compared with a copy of what they were, so an edit
    that keeps the id, or a block changed in place, counts again. Bounded; safe to share between threads.

    Args:
        counter: Counts single messages; by default the estimate of this module.
        max_entries: How many messages are remembered, 1 or more; the oldest go first.
    """

    def __init__(self, counter: TokenCounter | None = None, *, max_entries: int = 50_000) -> None:
        self._counter = counter
        self._max_entries = max_entries
        self._messages: dict[str | int, tuple[Any, int]] = {}
        self._tools: dict[int, tuple[Any, int]] = {}

    def count(self, message: BaseMessage) -> int:
        """Tokens of one message."""
        key = message.id or id(message)
        known = self._messages.get(key)
        parts = counted_parts(message)
        if known is not None and known[0] == parts:
            return known[1]
        tokens = estimate_message_tokens(message) if self._counter is None else int(self._counter([message]))
        _forget_oldest(self._messages, self._max_entries)
        self._messages[key] = (copy_json(parts), tokens)
        return tokens

    def count_tools(self, tools: Iterable[BaseTool | Mapping[str, Any]]) -> int:
        """Tokens of all tool schemas."""
        total = 0
        for tool in tools:
            parts: Any = tool if isinstance(tool, Mapping) else (tool.name, tool.description, tool.args_schema)
            known = self._tools.get(id(tool))
            if known is None or known[0] != parts:
                _forget_oldest(self._tools, self._max_entries)
                known = (copy_json(parts), estimate_tool_tokens(tool))
                self._tools[id(tool)] = known
            total += known[1]
        return total


def counted_parts(message: BaseMessage) -> tuple[Any, ...]:
    """Everything of a message that the estimate reads; equal parts, equal count."""
    if isinstance(message, AIMessage):
        return ("ai", message.content, message.name, message.tool_calls, message.invalid_tool_calls)
    return (message.type, message.content, message.name)


def copy_json(value: Any) -> Any:
    """A copy of the containers of a JSON-like value; the leaves, which cannot change, are shared."""
    if isinstance(value, dict):
        return {key: copy_json(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [copy_json(inner) for inner in value]
    if isinstance(value, tuple):
        return tuple(copy_json(inner) for inner in value)
    return value


def _forget_oldest(entries: dict[Any, Any], max_entries: int) -> None:
    if len(entries) >= max_entries:
        for oldest in list(entries)[: max(1, max_entries // 10)]:
            entries.pop(oldest, None)
