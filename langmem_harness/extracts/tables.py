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
_AMBIGUOUS = re.compile(r",\d{3}%?$")
"""A comma that may stand before decimals or between thousands: no range is stated of such numbers."""
MOST_COLUMNS, MOST_VALUES, MOST_TELLING = 30, 10, 12
RARE_SHARE = 0.02
"""A value that is not more often than this in a column of few values is shown with its row."""

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
    uneven = sum(1 for row in body if len(row) != len(header))
    if uneven:
        description += f", {count_noun(uneven, 'row')} of another width"
    troubled = [row for row in body if any(is_problem(cell[:300]) for cell in row)]
    if troubled:
        description += f", {count_noun(len(troubled), 'row')} about problems"
    columns, telling = _columns(header, body)
    pieces = [
        Piece(text=f"columns: {clip(', '.join(header), 600)}", rank=0),
        *ranked(1, (_render(row) for row in body[:2])),
        *ranked(3, (_render(row) for row in body[2:5])),
        *(
            [Piece(text=f"{_first_of(10, len(troubled))}rows about problems:", rank=3)]
            if troubled and len(troubled) < len(body)
            else []
        ),
        *(ranked(3, (_render(row) for row in troubled[:10])) if len(troubled) < len(body) else []),
        *([Piece(text="last:", rank=1)] if len(body) > 1 else []),
        *ranked(1, (_render(row) for row in body[-1:])),
        *([Piece(text=f"in the {len(body) - uneven:,} rows of full width:", rank=2)] if uneven else []),
        *ranked(2, columns),
        *([Piece(text="rows with a rare, smallest or largest value:", rank=3)] if telling else []),
        *ranked(3, (f"{index + 1}: {_render(body[index])}" for index in telling)),
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
            read = csv.reader((f"{line}\n" for line in lines), delimiter=separator)
            rows = [[cell.strip() for cell in row] for row in read if row]
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


def _columns(header: Sequence[str], body: Sequence[Sequence[str]]) -> tuple[list[str], list[int]]:
    """One line a column about its cells in all rows of full width, and the rows with rare or extreme values."""
    lines: list[str] = []
    telling: dict[int, None] = {}
    regular = [(index, row) for index, row in enumerate(body) if len(row) == len(header)]
    for column, name in enumerate(header[:MOST_COLUMNS]):
        cells = [(index, row[column]) for index, row in regular if row[column]]
        if not cells:
            continue
        numbers = [(_value(cell), index, cell) for index, cell in cells if _NUMBER.match(cell)]
        values = Counter(cell for _, cell in cells)
        if len(numbers) >= 0.9 * len(cells) and not any(_AMBIGUOUS.search(cell) for _, _, cell in numbers):
            low, high = min(numbers), max(numbers)
            said = f"{low[2]} to {high[2]}" if low[0] < high[0] else f"always {low[2]}"
            telling.update((index, None) for _, index, _ in (low, high) if 0 < index < len(body) - 1)
            others = [(index, cell) for index, cell in cells if not _NUMBER.match(cell)]
            if others:
                said += f"; {count_noun(len(others), 'cell')} no number, first {clip(others[0][1], 30)!r}"
                telling[others[0][0]] = None
        elif len(values) <= MOST_VALUES < len(cells):
            shown = values.most_common(MOST_VALUES)
            said = ", ".join(f"{clip(_plain(cell), 30)} ×{count:,}" for cell, count in shown)
            rare = [cell for cell, count in shown if count <= RARE_SHARE * len(cells)]
            telling.update((next(index for index, cell in cells if cell == value), None) for value in rare)
        else:
            said = count_noun(len(values), "different value")
        empty = len(regular) - len(cells)
        lines.append(f"{clip(name, 40)}: {said}" + (f"; {empty:,} empty" if empty else ""))
    if len(header) > MOST_COLUMNS:
        lines.append(f"({len(header) - MOST_COLUMNS:,} more columns)")
    return lines, sorted(telling)[:MOST_TELLING]


def _first_of(shown: int, count: int) -> str:
    return f"first {shown} of {count:,} " if shown < count else ""


def _value(cell: str) -> float:
    return float(cell.rstrip("%").replace(",", "."))


def _render(row: Sequence[str]) -> str:
    return clip(_plain(" | ".join(row)), 400)


def _plain(text: str) -> str:
    """The text on one line."""
    return text if text.isprintable() else " ".join(text.split())
