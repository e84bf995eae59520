"""Item values and keys as SQLite keeps them. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from langmem_harness.errors import CorruptionError, ItemValueError

MAX_DEPTH = 200
"""Levels of a value: far below where SQLite's JSON functions (1,000) and Python's decoder in a deep stack give up."""

_PLAIN = frozenset((str, int, float, bool, type(None)))
_decode = json.JSONDecoder().raw_decode
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def encode_value(value: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """A value as JSON text that SQLite can hold, and as it will be read again.

    The text is short for any script and escaped only where lone surrogates ask for it. The second is the value itself,
    not a copy, unless it holds something that comes back as something else (a tuple, an enumeration): what is indexed
    must be what is stored.

    Raises:
        ItemValueError: Not a mapping, a key that is not a text, a number that is not finite, something JSON has no
            form for, more than `MAX_DEPTH` levels, or holding itself. The message never has the content.
    """
    if not isinstance(value, Mapping):
        raise ItemValueError(f"a value must be a mapping, not {type(value).__name__}")
    try:
        is_plain = _check(value, 1)
        body = value if type(value) is dict else dict(value)
        text = _encode(body)
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                text = json.dumps(body, allow_nan=False, separators=(",", ":"))
                is_plain = False  # two lone surrogates in a row come back as the one character they stand for
    except (TypeError, ValueError) as error:
        if isinstance(error, ItemValueError):
            raise
        raise ItemValueError(f"a value must be JSON: {_describe(error)}") from error
    return text, body if is_plain else decode_value(text)


def decode_value(text: str) -> dict[str, Any]:
    """A fresh copy of the stored value.

    Raises:
        CorruptionError: The stored text is not JSON.
    """
    try:
        value: dict[str, Any]
        value, end = _decode(text)  # without `json.loads` looking for space around it: `encode_value` writes none
        if end != len(text):
            raise ValueError("more than one value")
    except (ValueError, RecursionError) as error:
        raise CorruptionError("a stored value is not JSON; run verify() to find which") from error
    return value


def encode_key(key: str) -> bytes:
    """A key as bytes that sort like the text; any text is a key, also an empty one.

    Raises:
        ItemValueError: It is not a text.
    """
    if not isinstance(key, str):
        raise ItemValueError(f"a key must be a text, not {type(key).__name__}")
    return key.encode("utf-8", "surrogatepass")


def decode_key(key: bytes) -> str:
    """What `encode_key` made."""
    return key.decode("utf-8", "surrogatepass")


def parse_indexing(stored: str | None) -> Any:
    """The ``index`` argument of a stored item."""
    return None if stored is None else json.loads(stored)


def _check(value: Any, depth: int) -> bool:
    """Whether everything comes back from JSON as it is.

    JSON would turn keys that are no texts into texts without a word: 1 and "1" would become one.
    """
    if depth > MAX_DEPTH:
        raise ItemValueError(f"a value may be nested {MAX_DEPTH} deep; this one is deeper, or holds itself")
    kind = type(value)
    is_plain = kind is dict or kind is list
    if kind is dict or isinstance(value, Mapping):
        for key, part in value.items():
            if not isinstance(key, str):
                raise ItemValueError(f"keys inside a value must be texts, not {type(key).__name__}")
            if type(part) not in _PLAIN:
                is_plain &= _check(part, depth + 1)
    elif isinstance(value, list | tuple):
        for part in value:
            if type(part) not in _PLAIN:
                is_plain &= _check(part, depth + 1)
    return is_plain


def _describe(error: Exception) -> str:
    text = str(error)
    if "Circular" in text:
        return "it holds itself"
    if "Out of range" in text:
        return "it holds a number that is not finite"
    return text if isinstance(error, TypeError) else type(error).__name__
