"""Long texts in overlapping passages, so that a search finds the place and not an average of everything. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable

from langmem_harness.errors import ConfigurationError
from langmem_harness.window.tokens import estimate_text_tokens

PASSAGE_TOKENS = 2_000
OVERLAP_TOKENS = 200

_ENDS = tuple(re.compile(pattern) for pattern in (r"\n\s*\n", r"(?<=[.!?。！？])\s", r"\n", r"\s"))
"""Where a passage may end, the best kind first: after a paragraph, a sentence, a line, a word."""


def split_passages(
    text: str,
    *,
    passage_tokens: int = PASSAGE_TOKENS,
    overlap_tokens: int = OVERLAP_TOKENS,
    token_counter: Callable[[str], int] = estimate_text_tokens,
) -> list[str]:
    """Passages of at most `passage_tokens`, each beginning with about the last `overlap_tokens` of the one before.

    A text that fits is one passage. Every character is in some passage; each passage is a stretch of the text, cut at a
    blank, a line end or a sentence end where there is one in its second half.

    Args:
        text: Any text; an empty one gives one empty passage.
        passage_tokens: Size of a passage, 2 or more.
        overlap_tokens: Shared with the passage before; less than half of `passage_tokens`.
        token_counter: Estimates the tokens of a text; must not shrink when text is added.

    Raises:
        ConfigurationError: Sizes that cannot work.
    """
    return [
        text[start:end]
        for start, end in passage_spans(
            text, passage_tokens=passage_tokens, overlap_tokens=overlap_tokens, token_counter=token_counter
        )
    ]


def passage_spans(
    text: str, *, passage_tokens: int, overlap_tokens: int, token_counter: Callable[[str], int]
) -> list[tuple[int, int]]:
    """The passages of `split_passages` as positions ``(start, end)``."""
    if passage_tokens < 2 or not 0 <= overlap_tokens < passage_tokens / 2:
        raise ConfigurationError(
            f"passage_tokens must be 2 or more and overlap_tokens less than half of it, not {passage_tokens!r} and "
            f"{overlap_tokens!r}"
        )
    if not text:
        return [(0, 0)]
    spans = []
    start = 0
    while True:
        end = _fitting(text, start, passage_tokens, token_counter)
        if end == len(text):
            spans.append((start, end))
            return spans
        end = _nice_end(text, start, end)
        if spans and end <= spans[-1][1]:  # the overlap left no room for anything new
            start = spans[-1][1]
            continue
        spans.append((start, end))
        start = max(start + 1, _overlap_start(text, start, end, overlap_tokens, token_counter))


def _fitting(text: str, start: int, tokens: int, token_counter: Callable[[str], int]) -> int:
    """The largest end so that ``text[start:end]`` fits; at least one character."""
    step = max(16, tokens)  # grow from a low guess, so that a passage of a huge text costs what it holds
    low, high = start + 1, start + 1
    while high < len(text) and token_counter(text[start : min(high + step, len(text))]) <= tokens:
        low = high = min(high + step, len(text))
        step *= 2
    if high == len(text):
        return high
    high = min(high + step, len(text))
    while low < high:
        middle = (low + high + 1) // 2
        if token_counter(text[start:middle]) <= tokens:
            low = middle
        else:
            high = middle - 1
    return low


def _nice_end(text: str, start: int, end: int) -> int:
    middle = start + (end - start) // 2
    for pattern in _ENDS:
        ends = [match.end() for match in pattern.finditer(text, middle, end)]
        if ends:
            return ends[-1]
    return end


def _overlap_start(text: str, start: int, end: int, tokens: int, token_counter: Callable[[str], int]) -> int:
    low, high = start + (end - start) // 2, end  # the smallest start whose rest is within the overlap
    while low < high:
        middle = (low + high) // 2
        if token_counter(text[middle:end]) <= tokens:
            high = middle
        else:
            low = middle + 1
    return low
