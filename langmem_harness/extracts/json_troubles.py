"""Which members of a JSON object report trouble: error fields, failed statuses, null results, exit and error codes.

Pure. Two degrees are told apart: what *reports* a problem in a field made for it, and what only *mentions* one in a
text. A false alarm costs a few tokens and is worded with care; a missing error costs the answer.
"""

from __future__ import annotations

import re
from typing import Any

from langmem_harness.extracts.problems import is_problem

NONE, MENTIONS, REPORTS = 0, 1, 2
"""Degrees of trouble, the larger the surer."""

LOOKED_AT = 300
"""Characters of a text that are searched for words of trouble."""
MOST_REMEMBERED = 10_000

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_ERROR_WORDS = frozenset(
    "error errors err errs errno exception exceptions failure failures failed fault faults traceback stacktrace".split()  # noqa: SIM905
)
_MEASURES = frozenset("rate ratio margin percent percentage tolerance threshold budget bar bars limit max".split())  # noqa: SIM905
_SUCCESS = frozenset("success successful succeeded ok passed healthy".split())  # noqa: SIM905
_EXITS = frozenset({"exitcode", "returncode", "exitstatus", "rc", "exit"})
_CODES = frozenset({"code", "status", "statuscode", "httpstatus", "httpcode", "httpstatuscode", "responsecode"})
_STATES = frozenset(
    "status state outcome phase conclusion verdict level severity result health".split()  # noqa: SIM905
)
_RESULTS = frozenset({"result", "response", "output"})
_HARMLESS = frozenset({"", "none", "null", "nil", "no", "false", "0", "ok", "n/a", "na", "-", "success"})
_BAD_STATE = re.compile(r"crash|declin|unhealthy|degraded|evict|\bdead\b|\bstuck\b", re.I)


class Troubles:
    """Judges members and texts; remembers what it has judged, because keys and short texts come again and again."""

    def __init__(self) -> None:
        self._roles: dict[str, str] = {}
        self._texts: dict[str, bool] = {}

    def of_text(self, text: str) -> int:
        """Degree of a text that is no member of an object."""
        return MENTIONS if self._speaks_of_problems(text) else NONE

    def of_member(self, key: str, value: Any) -> int:
        """Degree of one member of an object."""
        role = self.role(key)
        if role == "error":
            return REPORTS if _is_error(value) else NONE
        if role == "success":
            return REPORTS if value is False or value in ("false", "no") else NONE
        if role == "exit":
            return REPORTS if _number(value) not in (None, 0) else NONE
        if role == "result" and value is None:
            return REPORTS
        if role == "code":
            number = _number(value)
            if number is not None:
                return REPORTS if 400 <= number < 600 or number < 0 else NONE
        if not isinstance(value, str):
            return MENTIONS if role == "warning" and value else NONE
        if role in ("code", "state", "result") and _BAD_STATE.search(value[:LOOKED_AT]):
            return REPORTS
        if not self._speaks_of_problems(value):
            return NONE
        return REPORTS if role in ("code", "state", "result") else MENTIONS

    def role(self, key: str) -> str:
        """What a key is for: ``"error"``, ``"code"``, ``"state"`` and so on, or ``""``."""
        role = self._roles.get(key)
        if role is None:
            role = _role(key)
            if len(self._roles) < MOST_REMEMBERED:
                self._roles[key] = role
        return role

    def _speaks_of_problems(self, text: str) -> bool:
        if len(text) > 60:
            return is_problem(text[:LOOKED_AT])
        known = self._texts.get(text)
        if known is None:
            known = is_problem(text)
            if len(self._texts) < MOST_REMEMBERED:
                self._texts[text] = known
        return known


def _role(key: str) -> str:
    words = [word.lower() for word in _WORDS.findall(key[:120])]
    joined = "".join(words)
    if _ERROR_WORDS.intersection(words) or joined.startswith("error"):
        return "measure" if _MEASURES.intersection(words) else "error"
    if joined in _SUCCESS or (len(words) == 2 and words[0] == "is" and words[1] in _SUCCESS):
        return "success"
    for role, names in (("exit", _EXITS), ("code", _CODES), ("result", _RESULTS)):
        if joined in names:
            return role
    if words and words[-1] in _STATES:
        return "state"
    return "warning" if joined in ("warning", "warnings") else ""


def _is_error(value: Any) -> bool:
    """Whether the value of an error field says that there is an error."""
    return value.strip().lower() not in _HARMLESS if isinstance(value, str) else bool(value)


def _number(value: Any) -> float | int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,9}", value):
        return int(value)
    return value if isinstance(value, int | float) else None
