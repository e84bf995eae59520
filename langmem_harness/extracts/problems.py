"""Lines that report trouble: errors, warnings, exceptions, non-zero exits.

Pure. The words are looked for anywhere in the line, in any case: a line too many costs a few tokens, a missing error
costs the answer.
"""

from __future__ import annotations

import re

_PROBLEM = re.compile(
    r"error|warn|exception|fail|fatal|critical|panic|abort|denied|refused|reject|time[d -]{0,2}out|traceback|segfault"
    r"|segmentation fault|corrupt|unreachable|unable to|cannot|can't|could not|not found|killed|severe|invalid|illegal"
    r"|core dumped|out of memory|\boom\b|\berrs?\b|\bemerg|\balert\b|\bcrit\b|\bunexpected\b"
    r"|\b(?:exit(?:ed|s)?|return(?:ed|s)?)(?: with)?(?: (?:code|status|value))?[ :=]{1,3}-?[1-9]"
    r"|\b(?:exit_?code|return_?code|exit_?status|rc|status)[\"']?[ :=]{1,3}-?[1-9]\d{0,2}\b(?<!200)(?<!201)(?<!204)"
    r"|\bnon-?zero\b|(?:^|\s)[EWF][/ ][A-Za-z][\w.$-]{1,60}[ :(]|^[EWF]\d{4} ",
    re.I,
)
_LETTER_LEVEL = re.compile(r"(?:^|\s)[EWF][/ ][A-Za-z]|^[EWF]\d{4} ")
_EXIT = re.compile(r"exit(?:ed|s)?\b|exit_?(?:code|status)|non-?zero|return_?code|\brc=", re.I)


_IN_VARIABLE_PARTS = (
    re.compile(r"status(?<!\wstatus)[\"']?[ :=]{1,3}-?(?!20[014]\b)[1-9]\d{0,2}\b"),
    re.compile(r"exit(?<!\wexit)(?:ed|s)?(?: with)?(?: (?:code|status|value))?[ :=]{1,3}-?[1-9]"),
    re.compile(r"exit_?(?:code|status)[\"']?[ :=]{1,3}-?[1-9]\d{0,2}\b"),
    re.compile(r"return_?code[\"']?[ :=]{1,3}-?[1-9]\d{0,2}\b"),
    re.compile(r"return(?<!\wreturn)(?:ed|s)?(?: with)?(?: (?:code|status|value))?[ :=]{1,3}-?[1-9]"),
    re.compile(r"rc(?<!\wrc)[\"']?[ :=]{1,3}-?[1-9]\d{0,2}\b"),
    re.compile(r"error|fail|fatal|exception|panic|denied|refused|timeout"),
)
"""What tells one line of a template from another: codes, and words in names of files. Each begins with letters, so that
looking for all of them in a whole log takes no longer than reading it."""


_COLUMN_LEVEL = re.compile(r"^[EWF]\d{4} ", re.M)


def problem_lines(text: str) -> set[int]:
    """Numbers of the lines that hold an exit code, a status or a word of trouble, also in a part that changes.

    Args:
        text: Lines with one line break between them.
    """
    lowered = text.lower()
    numbers = _line_numbers(text, [match.start() for match in _COLUMN_LEVEL.finditer(text)])
    found = sorted(match.start() for pattern in _IN_VARIABLE_PARTS for match in pattern.finditer(lowered))
    return numbers | _line_numbers(lowered, found)


def _line_numbers(text: str, positions: list[int]) -> set[int]:
    """Numbers of the lines of positions that are in order."""
    numbers: set[int] = set()
    number = last = 0
    for position in positions:
        number += text.count("\n", last, position)
        last = position
        numbers.add(number)
    return numbers


def is_problem(line: str) -> bool:
    """Whether a line reports an error, a warning, an exception or a non-zero exit."""
    match = _PROBLEM.search(line)
    if match is None:
        return False
    found = match.group().strip()
    if len(found) > 1 and found[0] in "ewf" and found[1] in " /0123456789":  # a level is a capital letter
        return _LETTER_LEVEL.search(line) is not None or _PROBLEM.search(line, match.end()) is not None
    return True


def reports_exit(line: str) -> bool:
    """Whether a problem line only says how something ended, so that the line before it is needed to know what."""
    return _EXIT.search(line) is not None
