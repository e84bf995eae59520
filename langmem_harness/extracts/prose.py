"""Everything else: headings, the beginning, sentences that carry values, the end.

Pure.
"""

from __future__ import annotations

import re

from langmem_harness.extracts.pieces import Extract, Piece, assemble, clip, count_noun
from langmem_harness.extracts.problems import is_problem

_HEADING = re.compile(r"^(?:#{1,4} \S.{0,150}|[A-Z][A-Z0-9 :/&-]{5,80}|\d{1,2}(?:\.\d{1,2}){0,3}\.? [A-Z].{2,100})$")
_VALUE = re.compile(r"\d")
_UNIT_END = re.compile(r"(?<=[.!?])\s+|(?<=[\u3002\uff01\uff1f])\s*|\n+")


def extract_prose(text: str, *, max_tokens: int) -> Extract:
    """Extract of any text; the last resort, so it always answers."""
    lines = text.splitlines()
    words = text.count(" ") + text.count("\n") + 1
    size = f"{count_noun(len(text), 'character')}, about {count_noun(words, 'word')}"
    description = f"text of {size} on {count_noun(len(lines), 'line')}"
    units = list(dict.fromkeys(clip(unit.strip(), 400) for unit in _UNIT_END.split(text) if unit.strip()))
    units = units or [clip(text.strip(), 400)]
    last = len(units) - 1
    pieces = []
    for index, unit in enumerate(units):
        if index == 0 or index == last:
            rank = 0
        elif index in (1, last - 1):
            rank = 1
        elif is_problem(unit):
            rank = 2
        elif _HEADING.match(unit):
            rank = 3
        elif _VALUE.search(unit):
            rank = 4
        else:
            rank = 5
        pieces.append(Piece(text=unit, rank=rank))
    return Extract(kind="prose", description=description, text=assemble(_thinned(pieces), max_tokens=max_tokens))


def _thinned(pieces: list[Piece]) -> list[Piece]:
    """At most 3,000 pieces, so that a book costs no more than a long article: the best ranks, evenly spread."""
    if len(pieces) <= 3_000:
        return pieces
    kept: set[int] = set()
    for rank in range(6):
        indexes = [index for index, piece in enumerate(pieces) if piece.rank == rank]
        room = 3_000 - len(kept)
        step = max(1, -(-len(indexes) // max(1, room)))
        kept.update(indexes[::step][:room])
    return [piece for index, piece in enumerate(pieces) if index in kept]
