"""Tables: comma, tab, semicolon or bar separated, Markdown, or columns aligned with blanks.

Pure. Shown are the header, the number of rows, ranges of numeric columns, frequent values, first and last rows.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence

from langmem_harness.extracts.pieces import Extract, Piece, assemble, clip, count_noun, ranked
from langmem_harness.extracts.problems import is_problem

_SEPARATORS = ((",", "CSV"), ("\t", "tab-separated"), (";", "semicolon-separated"), ("|", "bar-separated"))
_HEADER_CELL = re.compile(r"^[^\W\d][\w .#%()/$€£:-]{0,59}$")
_ALIGNED = re.compile(r" {2,}|\t+")
_RULER = re.compile(r"^[\s|:+=-]+$")
_NUMBER = re.compile(r"^[-+]?\d{1,15}(?:[.,]\d{1,15})?%?$")


def extract_table(text: str, *, max_tokens: int) -> Extract | None:
    """Extract of a table with a header, or None when the text is none."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < 4:
        return None
    candidates = ((name, _split(lines, separator)) for separator, name in _SEPARATORS)
    name, rows = next(
        ((name, rows) for name, rows in candidates if rows), ("column-aligned", _split_aligned(lines) or [])
    )
    if not rows:
        return None
    header, body = rows[0], rows[1:]
    description = f"{name} table of {count_noun(len(body), 'row')} and {count_noun(len(header), 'column')}"
    troubled = [row for row in body if any(is_problem(cell) for cell in row if len(cell) < 300)]
    pieces = [
        Piece(text=f"columns: {clip(', '.join(header), 600)}", rank=0),
        *ranked(1, (_render(row) for row in body[:2])),
        *ranked(3, (_render(row) for row in body[2:5])),
        *([Piece(text="rows that report problems:", rank=3)] if troubled and len(troubled) < len(body) else []),
        *(ranked(3, (_render(row) for row in troubled[:10])) if len(troubled) < len(body) else []),
        *([Piece(text="last:", rank=1)] if len(body) > 1 else []),
        *ranked(1, (_render(row) for row in body[-1:])),
        *ranked(2, _columns(header, body)),
    ]
    return Extract(kind="table", description=description, text=assemble(pieces, max_tokens=max_tokens))


def _split(lines: Sequence[str], separator: str) -> list[list[str]] | None:
    width = lines[0].count(separator)
    if not width or sum(1 for line in lines[:200] if separator in line) < 0.9 * min(len(lines), 200):
        return None
    if separator == "|":
        rows = [
            [cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines if not _RULER.match(line)
        ]
    else:
        try:
            rows = [[cell.strip() for cell in row] for row in csv.reader(lines, delimiter=separator) if row]
        except csv.Error:  # a field larger than the csv module takes
            return None
    return rows if _is_table(rows) else None


def _split_aligned(lines: Sequence[str]) -> list[list[str]] | None:
    rows = [_ALIGNED.split(line.strip()) for line in lines if not _RULER.match(line)]
    return rows if len(rows) > 3 and len(rows[0]) >= 3 and _is_table(rows) else None


def _is_table(rows: Sequence[Sequence[str]]) -> bool:
    if len(rows) < 3 or len(rows[0]) < 2:
        return False
    header = rows[0]
    width = len(header)
    named = all(_HEADER_CELL.match(cell) for cell in header if cell) and len({*header}) == width
    regular = sum(1 for row in rows if len(row) == width)
    return named and regular >= 0.9 * len(rows)


def _columns(header: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    lines = []
    for index, name in enumerate(header[:30]):
        cells = [row[index] for row in body if index < len(row) and row[index]]
        numbers = [float(cell.rstrip("%").replace(",", ".")) for cell in cells if _NUMBER.match(cell)]
        if cells and len(numbers) >= 0.9 * len(cells):
            lines.append(f"{clip(name, 40)}: {min(numbers):g} to {max(numbers):g}")
        elif cells:
            common = Counter(cells)
            if len(common) <= 10 < len(cells):
                shown = ", ".join(f"{clip(cell, 30)} ×{count}" for cell, count in common.most_common(6))
                lines.append(f"{clip(name, 40)}: {shown}")
            else:
                lines.append(f"{clip(name, 40)}: {count_noun(len(common), 'different value')}")
    return lines


def _render(row: Sequence[str]) -> str:
    return clip(" | ".join(row), 400)
