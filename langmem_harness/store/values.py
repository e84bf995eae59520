"""Item values and keys as SQLite keeps them. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from langmem_harness.errors import CorruptionError, ItemValueError

_PLAIN = (str, int, float, type(None))
_decode = json.JSONDecoder().raw_decode
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def encode_value(value: Mapping[str, Any]) -> str:
    """A value as JSON text that SQLite can hold: short for any script, escaped only where lone surrogates ask for it.

    Raises:
        ItemValueError: Not a mapping, a key that is not a text, a number that is not finite, something JSON has no
            form for, nested too deeply, or holding itself. The message names the place, never the content.
    """
    if not isinstance(value, Mapping):
        raise ItemValueError(f"a value must be a mapping, not {type(value).__name__}")
    try:
        _check_keys(value, "$")
        body = value if type(value) is dict else dict(value)
        text = _encode(body)
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                text = json.dumps(body, allow_nan=False, separators=(",", ":"))
    except RecursionError as error:
        raise ItemValueError("a value is nested too deeply, or holds itself") from error
    except (TypeError, ValueError) as error:
        if isinstance(error, ItemValueError):
            raise
        raise ItemValueError(f"a value must be JSON: {_describe(error)}") from error
    return text


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


def _check_keys(value: Any, path: str) -> None:
    """JSON would turn other keys into text without a word: 1 and "1" would become one."""
    if isinstance(value, dict) or (not isinstance(value, _PLAIN) and isinstance(value, Mapping)):
        for key, part in value.items():
            if not isinstance(key, str):
                raise ItemValueError(f"keys inside a value must be texts, not {type(key).__name__} (below {path})")
            if not isinstance(part, _PLAIN):
                _check_keys(part, f"{path}.*")
    elif isinstance(value, list | tuple):
        for part in value:
            if not isinstance(part, _PLAIN):
                _check_keys(part, path)


def _describe(error: Exception) -> str:
    text = str(error)
    if "Circular" in text:
        return "it holds itself"
    if "Out of range" in text:
        return "it holds a number that is not finite"
    return text if isinstance(error, TypeError) else type(error).__name__
