"""What an extract is, and how pieces of a text are chosen within a token budget.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from langmem_harness.window.tokens import estimate_text_tokens

GAP = "…"
"""Stands on a line of its own where pieces were left out."""


@dataclass(frozen=True, kw_only=True)
class Extract:
    """A short text that shows what a long one is.

    Attributes:
        kind: ``"json"``, ``"table"``, ``"log"``, ``"diff"``, ``"traceback"``, ``"html"`` or ``"prose"``.
        description: What the text is, in a few words: ``"JSON array of 40 objects"``.
        text: The extract, without the description; the whole text when it is small enough.
        complete: Whether `text` is the whole text.
    """

    kind: str
    description: str
    text: str
    complete: bool = False


@dataclass(frozen=True, kw_only=True)
class Piece:
    """One or more lines that stay together.

    Attributes:
        text: The lines.
        rank: 0 is chosen first; among equals the earlier piece.
    """

    text: str
    rank: int


def ranked(rank: int, texts: Iterable[str]) -> list[Piece]:
    """One piece of the same rank for each text."""
    return [Piece(text=text, rank=rank) for text in texts]


def assemble(pieces: Sequence[Piece], *, max_tokens: int, gap: str = GAP) -> str:
    """The best pieces that fit, in their own order, with `gap` (unless it is empty) where some are missing.

    A piece that does not fit is left out and the next one is tried, so the result never exceeds the budget; the first
    of the best rank is clipped when not even that fits.
    """
    gap_tokens = estimate_text_tokens(f"{gap}\n") if gap else 0
    chosen: set[int] = set()
    left = max_tokens
    for index in sorted(range(len(pieces)), key=lambda each: (pieces[each].rank, each)):
        cost = estimate_text_tokens(f"{pieces[index].text}\n") + gap_tokens
        if cost <= left:
            chosen.add(index)
            left -= cost
        if left <= gap_tokens:
            break
    if not chosen and pieces:
        best = min(range(len(pieces)), key=lambda each: (pieces[each].rank, each))
        return clip_to_tokens(pieces[best].text, max_tokens)
    lines: list[str] = []
    for index, piece in enumerate(pieces):
        if index in chosen:
            lines.append(piece.text)
        elif gap and (not lines or lines[-1] != gap):
            lines.append(gap)
    return "\n".join(lines)


def clip(line: str, max_characters: int) -> str:
    """A line cut in the middle to at most this many characters, so that both its ends are seen."""
    if len(line) <= max_characters:
        return line
    head = (max_characters - 3) * 2 // 3
    tail = max_characters - 3 - head
    return f"{line[:head]} {GAP} {line[len(line) - tail :]}" if tail > 0 else line[:max_characters]


def clip_to_tokens(text: str, max_tokens: int) -> str:
    """The longest beginning of a text that is within the budget; empty for a budget under 1."""
    if max_tokens < 1:
        return ""
    if estimate_text_tokens(text[: max_tokens * 20]) <= max_tokens and len(text) <= max_tokens * 20:
        return text
    low, high = 0, min(len(text), max_tokens * 20)
    while low < high:
        middle = (low + high + 1) // 2
        if estimate_text_tokens(text[:middle]) <= max_tokens:
            low = middle
        else:
            high = middle - 1
    return text[:low]


def count_noun(count: int, noun: str) -> str:
    """``"1 line"``, ``"2,000 lines"``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
