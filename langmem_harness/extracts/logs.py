"""Logs and other output of programs: templates with counts, first and last lines, every template that reports trouble.

Pure. A *template* is a line with its changing parts (whatever holds a digit, paths) replaced by ``*``. For trouble
every template keeps its first line in full as long as the budget allows; then lines lose the header all lines share,
templates that differ only in names are collapsed, then changing parts go, and only at last lines are clipped.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from langmem_harness.extracts.pieces import Extract, Piece, assemble, clip, count_noun, ranked
from langmem_harness.extracts.problems import is_problem, problem_lines, reports_exit
from langmem_harness.window.tokens import estimate_text_tokens

LONGEST_LINE = 400
"""Characters of one line in an extract; longer ones are cut in the middle."""

VARIABLE_FROM = 4
"""So many different words at one place are names, not statements."""
MOST_ALTERNATIVES = 8
MOST_CLUSTERS = 200
"""How many clusters of one length a template is compared with, so that time stays linear."""

_VARIABLE = re.compile(r"(?<![^\s=:(\[,/\"'])[^\s=:(\[\d]*\d[^\s\])},;\"']*")
_PATH = re.compile(r"(?<![^\s=:(\[,\"'])[^\s=:(\[,\"'/]*/[^\s/]*/[^\s\])},;\"']*")
_STARTS_LIKE_LOG = re.compile(
    r"^\W{0,3}(?:\d{2,4}[-/.]\d{1,2}[-/.]\d{1,4}|\d{1,2}:\d{2}:\d{2}|\d{2}-\d{2} \d{2}:|\w{0,9} ?\d{10}"
    r"|(?:[A-Z][a-z]{2} )?[A-Z][a-z]{2} +\d{1,2} \d{2}:\d{2}"
    r"|[\w.-]{1,60} \d{4}-\d{2}-\d{2} \d{2}:\d{2}:|\d{6} \d{6}|\d{10}|\d{8}-\d{1,2}:"
    r"|[EWIF]\d{4} |(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|FATAL|CRITICAL)\b)"
)


@dataclass(frozen=True, kw_only=True)
class Template:
    """Lines that differ only in their changing parts.

    Attributes:
        text: The line with ``*`` for what changes.
        first_line: The first such line.
        position: Index of that line.
        count: How many lines.
        is_problem: Whether they report trouble.
    """

    text: str
    first_line: str
    position: int
    count: int
    is_problem: bool


def extract_log(text: str, *, max_tokens: int, certain: bool = False) -> Extract | None:
    """Extract of a log, or None when the text does not read like one.

    Args:
        text: The output.
        max_tokens: Budget of the extract.
        certain: Whether to take it for a log whatever it looks like.
    """
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    if len(lines) < 4 or not (certain or _reads_like_log(lines)):
        return None
    masked = mask_lines(lines)
    templates = _collect(lines, masked)
    header_words = _header_words(masked)
    problems = [template for template in templates if template.is_problem]
    problem_lines = sum(template.count for template in problems)
    description = f"log of {count_noun(len(lines), 'line')} in {count_noun(len(templates), 'template')}"
    if problems:
        description += f", {count_noun(problem_lines, 'line')} of them about problems"
    shown = [clip(line, LONGEST_LINE) for line in lines]
    few = max(1, min(3, max_tokens // 150))
    edges = 2 * sum(estimate_text_tokens(line) for line in (shown[0], shown[-1]))
    problem_texts = _render_problems(problems, header_words, lines, max_tokens=max_tokens - edges - 40)
    busiest = sorted((each for each in templates if each.count > 1), key=lambda each: (-each.count, each.position))
    pieces = [
        Piece(text=shown[0], rank=2),
        *ranked(4, shown[1:few]),
        *([Piece(text="problems, each template once (×n: how often):", rank=1)] if problem_texts else []),
        *ranked(1, problem_texts),
        *([Piece(text="most frequent templates (* is what changes):", rank=3)] if busiest else []),
        *ranked(3, (f"×{each.count} {clip(each.text, 160)}" for each in busiest[:8])),
        *([Piece(text="last lines:", rank=2)] if len(shown) > few else []),
        *ranked(4, shown[max(few, len(shown) - few) : -1]),
        Piece(text=shown[-1], rank=2),
    ]
    return Extract(kind="log", description=description, text=assemble(pieces, max_tokens=max_tokens))


def mask_lines(lines: Sequence[str]) -> list[str]:
    """The template of each line, in order; the lines hold no line break."""
    return _PATH.sub("*", _VARIABLE.sub("*", "\n".join(lines))).split("\n")


def _reads_like_log(lines: Sequence[str]) -> bool:
    sample = [*lines[:150], *lines[len(lines) // 2 : len(lines) // 2 + 50]]
    dated = sum(1 for line in sample if _STARTS_LIKE_LOG.match(line))
    return dated >= 0.4 * len(sample)


def _collect(lines: Sequence[str], masked: Sequence[str]) -> list[Template]:
    """Templates in the order in which they first appear.

    Lines that report trouble only in a part that changes (a code, a file's name) are a template of their own.
    """
    odd = problem_lines("\n".join(lines))
    kinds = [(template, index in odd) for index, template in enumerate(masked)]
    counts = Counter(kinds)
    first: dict[tuple[str, bool], int] = {}
    for index, kind in enumerate(kinds):
        first.setdefault(kind, index)
    return [
        Template(
            text=kind[0],
            first_line=lines[position],
            position=position,
            count=counts[kind],
            is_problem=kind[1] or is_problem(lines[position]),
        )
        for kind, position in first.items()
    ]


def _render_problems(
    problems: Sequence[Template], header_words: int, lines: Sequence[str], *, max_tokens: int
) -> list[str]:
    """One text a template, in the most telling form of which all fit; the least telling one when none does."""

    def context(template: Template, line: str) -> str:
        before = template.position - 1
        if before < 0 or not reports_exit(template.first_line) or is_problem(lines[before]):
            return line
        return f"{clip(lines[before], 120)}\n{line}"

    @cache
    def collapsed() -> list[Template]:
        return _collapse(problems, header_words)

    forms: list[Callable[[], list[str]]] = [
        lambda: [context(each, _counted(each, clip(each.first_line, LONGEST_LINE))) for each in problems],
        lambda: [_counted(each, clip(each.first_line, LONGEST_LINE)) for each in problems],
        lambda: [_counted(each, clip(_without_header(each.first_line, header_words), 300)) for each in problems],
        lambda: [
            _counted(each, clip(_without_header(each.first_line, header_words), 300))
            for each in _by_statement(problems, header_words)
        ],
        lambda: [
            _counted(each, clip(_without_speaker(each.text, header_words), 300))
            for each in _by_statement(problems, header_words)
        ],
        lambda: [_counted(each, clip(each.first_line, LONGEST_LINE)) for each in collapsed()],
        lambda: [_counted(each, clip(_without_header(each.first_line, header_words), 300)) for each in collapsed()],
        lambda: [_counted(each, clip(_without_header(each.text, header_words), 300)) for each in collapsed()],
        lambda: [_counted(each, each.text) for each in _merge(problems, header_words, similarity=0.6)],
        lambda: [_counted(each, clip(each.text, 120)) for each in _merge(problems, header_words, similarity=0.6)],
        lambda: [_counted(each, clip(each.text, 70)) for each in _merge(problems, header_words, similarity=0.5)],
    ]
    texts: list[str] = []
    for form in forms:
        texts = form()
        if sum(estimate_text_tokens(f"{each}\n…\n") for each in texts) <= max_tokens:
            break
    return texts


def _counted(template: Template, line: str) -> str:
    return line if template.count == 1 else f"×{template.count} {line}"


def _header_words(masked: Sequence[str]) -> int:
    """How many words at the beginning say the same on nearly every line (date, host, ``*``), at most 10.

    A word that says several things (a label, a level) is of the header when nearly every line has a ``*`` behind it.
    """
    sample = [line.split(None, 12) for line in masked[:400]]
    count = 0
    for position in range(10):
        words = Counter(words[position] for words in sample if len(words) > position + 1)
        if not words:
            break
        word, often = words.most_common(1)[0]
        if often >= 0.9 * len(sample):
            count = position + 1 if count == position or word == "*" else count
        if count < position:
            break
    return count


def _without_speaker(line: str, header_words: int) -> str:
    """The statement of a line: without the header and the name of the program before the first colon."""
    rest = _without_header(line, header_words)
    speaker, colon, statement = rest.partition(": ")
    return statement if colon and len(speaker.split()) <= 3 and len(statement.split()) > 1 else rest


def _by_statement(templates: Sequence[Template], header_words: int) -> list[Template]:
    """What several programs say is said once, as the first of them says it."""
    said: dict[str, Template] = {}
    for template in templates:
        statement = _without_speaker(template.text, header_words)
        first = said.get(statement)
        said[statement] = _joined(first, template.count) if first else template
    return list(said.values())


def _without_header(line: str, header_words: int) -> str:
    parts = line.split(None, header_words)
    return parts[-1] if len(parts) > header_words else line


@dataclass(kw_only=True)
class _Cluster:
    """Templates of equal length that share most words; `columns` are the words seen at each position."""

    columns: list[list[str]]
    members: list[tuple[list[str], Template]]


def _cluster(templates: Sequence[Template], header_words: int, *, similarity: float) -> list[_Cluster]:
    clusters: list[_Cluster] = []
    by_length: dict[int, list[_Cluster]] = {}
    for template in templates:
        words = _without_header(template.text, header_words).split()
        alike = by_length.setdefault(len(words), [])
        for cluster in alike[-MOST_CLUSTERS:]:
            shared = sum(1 for column, word in zip(cluster.columns, words, strict=True) if word in column)
            if words and shared >= similarity * len(words):
                for column, word in zip(cluster.columns, words, strict=True):
                    if word not in column and len(column) < MOST_ALTERNATIVES:
                        column.append(word)
                cluster.members.append((words, template))
                break
        else:
            cluster = _Cluster(columns=[[word] for word in words], members=[(words, template)])
            alike.append(cluster)
            clusters.append(cluster)
    return clusters


def _collapse(templates: Sequence[Template], header_words: int) -> list[Template]:
    """Templates that differ only in words of which there are many, such as user names, become the first of them.

    Where only two or three words stand at a place (``opened``, ``closed``), they are statements, and stay apart.
    """
    collapsed: dict[tuple[int, tuple[str, ...]], Template] = {}
    for number, cluster in enumerate(_cluster(templates, header_words, similarity=0.6)):
        for words, template in cluster.members:
            fixed = tuple(
                word for column, word in zip(cluster.columns, words, strict=True) if len(column) < VARIABLE_FROM
            )
            first = collapsed.get((number, fixed))
            collapsed[number, fixed] = _joined(first, template.count) if first else template
    return list(collapsed.values())


def _merge(templates: Sequence[Template], header_words: int, *, similarity: float) -> list[Template]:
    """Every cluster as one template, with alternatives where its members differ."""
    return [
        dataclasses.replace(
            cluster.members[0][1],
            text=" ".join("|".join(column[:4]) + ("|…" if len(column) > 4 else "") for column in cluster.columns),
            count=sum(template.count for _, template in cluster.members),
        )
        for cluster in _cluster(templates, header_words, similarity=similarity)
    ]


def _joined(template: Template, count: int) -> Template:
    return dataclasses.replace(template, count=template.count + count)
