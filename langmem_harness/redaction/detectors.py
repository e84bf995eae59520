"""What a detector is: it says where in a text something of its kind is.

Every detector is a function of the text alone: no model, no network, the same answer every time. All of them take time
linear in the length of the text: patterns start at a token border or at a rare literal, every repetition is bounded or
runs over one token, and nothing backtracks over more than that.

Precision comes from structure: check digits where the kind has them, an issuer's prefix where it has one, a word in
front of it (``password:``, ``born on``) where it has neither.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class Finding(NamedTuple):
    """One place in a text.

    Attributes:
        kind: What it is, lower case with underscores (``"email"``).
        start: Index of its first character.
        end: Index after its last character.
    """

    kind: str
    start: int
    end: int


class Detector(Protocol):
    """Finds one or several kinds in a text.

    Implemented by `PatternDetector`, `FunctionDetector` and `PresidioDetector`; `Redactor` relies on it. Earlier
    detectors win where findings overlap.
    """

    @property
    def kinds(self) -> frozenset[str]:
        """Every kind it can report."""
        ...

    def find(self, text: str) -> Iterable[Finding]:
        """Findings in any order; never raises on any text."""
        ...


@dataclass(frozen=True)
class PatternDetector:
    """A regular expression, a cheap test that lets most texts skip it, and a check of what matched.

    Attributes:
        kind: Reported kind.
        pattern: The group ``secret``, or the whole match, is the finding.
        hints: The pattern only runs when one of these (lower case) is in the lower-cased text; empty: always.
        is_valid: Refuses a match (check digits, stop words).
    """

    kind: str
    pattern: re.Pattern[str]
    hints: tuple[str, ...] = ()
    is_valid: Callable[[re.Match[str]], bool] | None = None

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({self.kind})

    def find(self, text: str) -> Iterator[Finding]:
        if self.hints:
            lowered = text.lower()
            if not any(hint in lowered for hint in self.hints):
                return
        group: int | str = "secret" if "secret" in self.pattern.groupindex else 0
        for match in self.pattern.finditer(text):
            if self.is_valid is None or self.is_valid(match):
                yield Finding(self.kind, match.start(group), match.end(group))


@dataclass(frozen=True)
class FunctionDetector:
    """A detector whose search needs more than one pattern."""

    kind: str
    search: Callable[[str], Iterator[tuple[int, int]]]

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({self.kind})

    def find(self, text: str) -> Iterator[Finding]:
        for start, end in self.search(text):
            yield Finding(self.kind, start, end)
