"""Stored text on a terminal: shown, never obeyed."""

from __future__ import annotations

import unicodedata

from rich.markup import escape

_JOINERS = "\u200c\u200d"
"""Invisible, but part of how words and emoji are written."""


def plain(text: str) -> str:
    """The text with every sign that steers a terminal or hides on it spelled out; line breaks and tabs stay."""
    return "".join(_spelled(sign) if _steers(sign) else sign for sign in text)


def cell(text: str) -> str:
    """The text for a table of `rich`: as `plain`, and brackets are brackets."""
    return escape(plain(text))


def _steers(sign: str) -> bool:
    return unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Zl", "Zp") and sign not in ("\n", "\t", *_JOINERS)


def _spelled(sign: str) -> str:
    code = ord(sign)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
