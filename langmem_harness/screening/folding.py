"""Text as a reader sees it: hidden characters dropped, look-alike letters and styles made plain, lower case.

Pure. Rules look at the folded text; `Folded.source_span` leads back to the characters of the original.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import accumulate

ZERO_WIDTH = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u2060-\u2064\u206a-\u206f\u3164\ufeff\uffa0"
)
"""Characters that take no room (as a regular expression class): soft hyphen, joiners, marks, fillers."""

DIRECTION = "\u202a-\u202e\u2066-\u2069"
"""Embeddings, overrides and isolates, which change the order in which a line is shown (a regular expression class)."""

TAG_CHARACTERS = "\U000e0000-\U000e007f"
"""Invisible copies of ASCII: models read them, people do not see them (a regular expression class)."""

VARIATION_SELECTORS = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
"""Invisible style switches; a run of them can carry bytes (a regular expression class)."""

_DROPPED = re.compile(f"[{ZERO_WIDTH}{DIRECTION}{VARIATION_SELECTORS}]")

# Letters of other scripts that look like a Latin one: the part of Unicode's confusables that spells English words.
# Accents, full width, mathematical and circled letters need no row: compatibility decomposition makes them plain.
_LOOK_ALIKES = {
    ord(alike): latin
    for latin, alikes in {
        "a": "аαɑᴀ∂",
        "b": "вьβʙ",
        "c": "сϲᴄ",
        "d": "ԁᴅđ",
        "e": "еєεᴇҽ",
        "f": "ꜰƒ",
        "g": "ԍցɡɢ",
        "h": "һнհʜ",
        "i": "іιıɪӏǀ",
        "j": "јϳյȷᴊ",
        "k": "кκᴋ",
        "l": "ʟℓł",
        "m": "мᴍ",
        "n": "ոηпɴ",
        "o": "оοօσᴏø",
        "p": "рρᴘ",
        "q": "ԛզ",
        "r": "гʀ",
        "s": "ѕꜱ",
        "t": "тτᴛ",
        "u": "սυᴜ",
        "v": "ѵνᴠ",
        "w": "ѡωԝᴡ",
        "x": "хχ",
        "y": "уγʏ",
        "z": "ᴢ",
    }.items()
    for alike in alikes
}


@dataclass(frozen=True, kw_only=True)
class Folded:
    """Folded text with the way back.

    Attributes:
        text: What the rules look at.
        ends: For every original character, the length of the folded text after it; None when both are equally long
            and position equals position.
    """

    text: str
    ends: list[int] | None

    def source_span(self, start: int, end: int) -> tuple[int, int]:
        """The original characters behind ``text[start:end]``; hidden ones inside are included."""
        if self.ends is None:
            return start, end
        return bisect_right(self.ends, start), bisect_left(self.ends, end) + 1


def fold(text: str) -> Folded:
    """Fold a text for matching. Line breaks stay, every other white space becomes one blank each. Linear time."""
    if text.isascii():
        return Folded(text=text.lower().translate(_ASCII_SPACES), ends=None)
    pieces = [_folds[character] for character in text]
    folded = "".join(pieces)
    lengths = list(map(len, pieces))
    if len(folded) == len(text) and max(lengths) == 1:
        return Folded(text=folded, ends=None)
    return Folded(text=folded, ends=list(accumulate(lengths)))


def fold_character(character: str) -> str:
    """What one character reads as: zero or more plain lower-case characters."""
    code = ord(character)
    if 0xE0020 <= code <= 0xE007E:  # hidden ASCII
        return chr(code - 0xE0000).lower()
    if 0xE0000 <= code <= 0xE007F or _DROPPED.match(character):
        return ""
    if character in "\n\x0b\x0c\x85\u2028\u2029":
        return "\n"
    if character.isspace():
        return " "
    decomposed = unicodedata.normalize("NFKD", character)
    plain = "".join(part for part in decomposed if not unicodedata.combining(part))
    return plain.lower().translate(_LOOK_ALIKES)


class _Folds(dict[str, str]):
    """`fold_character`, remembered: a text has few different characters, and at most 1.1 million exist."""

    def __missing__(self, character: str) -> str:
        folded = self[character] = fold_character(character)
        return folded


_folds = _Folds()
_ASCII_SPACES = str.maketrans("\t\r\x0b\x0c\x1c\x1d\x1e\x1f", "  \n\n    ")
