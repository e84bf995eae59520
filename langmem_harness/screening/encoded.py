"""Text hidden in another notation: base64, hexadecimal, percent and backslash escapes, HTML entities.

Pure. Base64 and hexadecimal are reported as runs: long enough to say something, and printable when decoded. Character
escapes may stand for single letters inside plain words, so they are decoded in place, with the way back. What the
decoded text says is judged by the caller. Linear time: patterns are single character classes, runs do not overlap.
"""

from __future__ import annotations

import base64
import binascii
import html
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from langmem_harness.screening.folding import Folded

_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{20,}={0,2}")
_HEX = re.compile(
    r"(?<![0-9A-Fa-f])(?:(?:0x)?[0-9A-Fa-f]{32,}|(?:[0-9A-Fa-f]{2}[ :]){15,}[0-9A-Fa-f]{2})"
    r"|(?:\\x[0-9A-Fa-f]{2}){10,}"
)
_NOT_HEX = re.compile(r"0x|\\x|[ :]")
_ESCAPE = re.compile(
    r"&#x([0-9A-Fa-f]{1,6});?|&#([0-9]{1,7});?|&(?:amp|lt|gt|quot|apos|nbsp|ensp|emsp|Tab|NewLine|sol|lowbar|period);"
    r"|((?:%[0-9A-Fa-f]{2})+)|\\u\{?([0-9A-Fa-f]{4,6})\}?|\\x([0-9A-Fa-f]{2})|\\([nrt])"
)

LONGEST_RUN = 65_536
"""Only this many characters of a run are decoded: an instruction stands at its beginning, media does not matter."""


@dataclass(frozen=True, kw_only=True)
class EncodedRun:
    """A stretch of encoded text.

    Attributes:
        notation: ``"base64"`` or ``"hex"``.
        start: Position of the first character.
        end: Position after the last.
        decoded: What it says.
    """

    notation: str
    start: int
    end: int
    decoded: str


def find_encoded(text: str) -> Iterator[EncodedRun]:
    """Every run that decodes to printable text, per notation in order; runs of two notations may overlap."""
    for notation, pattern, decode in _NOTATIONS:
        for match in pattern.finditer(text):
            decoded = decode(match.group()[:LONGEST_RUN])
            if decoded and _reads_as_text(decoded):
                yield EncodedRun(notation=notation, start=match.start(), end=match.end(), decoded=decoded)


def decode_escapes(text: str) -> Folded | None:
    """The text with its character escapes replaced by the characters, or None when it has none.

    Percent escapes, HTML entities, and the escapes of JSON and Python (``\\u0069``, ``\\x69``, ``\\n``).
    """
    if not any(sign in text for sign in ("&", "%", "\\")):
        return None
    parts: list[str] = []
    ends: list[int] = []
    position = length = 0
    for match in _ESCAPE.finditer(text):
        start, end = match.span()
        parts.append(text[position:start])
        ends.extend(range(length + 1, length + start - position + 1))
        decoded = _decode_escape(match)
        length += start - position + len(decoded)
        parts.append(decoded)
        ends.extend([length] * (end - start))
        position = end
    if not position:
        return None
    parts.append(text[position:])
    ends.extend(range(length + 1, length + len(text) - position + 1))
    return Folded(text="".join(parts), ends=ends)


def _decode_escape(match: re.Match[str]) -> str:
    hexadecimal, decimal, percent, unicode_escape, byte, control = match.groups()
    if percent:
        return unquote(percent)
    if control:
        return "\t" if control == "t" else "\n"
    if not (hexadecimal or decimal or unicode_escape or byte):
        return html.unescape(match.group())
    code = int(decimal) if decimal else int(hexadecimal or unicode_escape or byte, 16)
    return chr(code) if code <= sys.maxunicode else match.group()


def _from_base64(run: str) -> str | None:
    run = run.rstrip("=").translate(_URL_SAFE)
    run = run[: len(run) - 1] if len(run) % 4 == 1 else run
    try:
        return base64.b64decode(run + "=" * (-len(run) % 4)).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return None


def _from_hex(run: str) -> str | None:
    digits = _NOT_HEX.sub("", run)
    try:
        return bytes.fromhex(digits[: len(digits) & ~1]).decode("utf-8")
    except (ValueError, UnicodeDecodeError):
        return None


def _reads_as_text(decoded: str) -> bool:
    printable = sum(map(str.isprintable, decoded)) + decoded.count("\n") + decoded.count("\t")
    return printable >= 0.9 * len(decoded)


_URL_SAFE = str.maketrans("-_", "+/")
_NOTATIONS: tuple[tuple[str, re.Pattern[str], Callable[[str], str | None]], ...] = (
    ("base64", _BASE64, _from_base64),
    ("hex", _HEX, _from_hex),
)
