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
