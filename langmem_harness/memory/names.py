"""Which speakers a question names, and the question without those names. Pure.

A name in a question pulls a search by meaning to whatever mentions the name, also where it only says who spoke; who
spoke is known without searching. Case and accents do not matter, possessives and the particles of languages that
write words together are understood; declined forms (Latin, Russian) are not.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from langmem_harness.memory.words import NAMES_THAT_ARE_WORDS, TIME_WORDS, TITLES

ROLE_NAMES = frozenset({"user", "assistant"})
"""Speakers without a name; a question that has these words does not name anybody."""

_SHORTEST_PART = 3
_JOINED_SCRIPTS = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uac00-\ud7af\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
"""Kana, Han, Hangul, Thai, Lao, Burmese, Khmer: a name is followed by its particle or the next word without a space."""

_POSSESSIVE = r"(?:['’]\w{0,4}|s['’]?)?(?!\w)"


@dataclass(frozen=True, kw_only=True)
class NamedSpeakers:
    """What `find_named_speakers` found.

    Attributes:
        speakers: Everybody a name in the question can mean.
        names: These names as they stand in the question, in its order.
        without_names: The question without them; as it was when nothing else would be left.
    """

    speakers: frozenset[str]
    names: tuple[str, ...]
    without_names: str

    @property
    def only(self) -> str | None:
        """The one person the question names, or None when it names nobody or several."""
        return next(iter(self.speakers)) if len(self.speakers) == 1 else None


def find_named_speakers(question: str, speakers: Iterable[str]) -> NamedSpeakers:
    """The speakers a question names: by the whole name, or by the first or last word of it.

    A name that is also an ordinary word ("Will", "May") counts only as it is written, not at the beginning of a
    sentence, and not as a month.

    Args:
        question: Any language.
        speakers: Everybody who spoke; `ROLE_NAMES` are left out.
    """
    aliases = _aliases({speaker for speaker in speakers if speaker not in ROLE_NAMES})
    if not aliases:
        return NamedSpeakers(speakers=frozenset(), names=(), without_names=question)
    folded = _Folded(question)
    named: set[str] = set()
    spans: list[tuple[int, int]] = []
    longest_first = sorted(aliases, key=lambda alias: (-len(alias), alias))
    for match in re.finditer("|".join(map(_pattern, longest_first)), folded.text):
        alias = longest_first[(match.lastindex or 1) - 1]
        start, end = folded.span(match.start(), match.end())
        if alias in NAMES_THAT_ARE_WORDS and not _is_written_as_name(question, start, end):
            continue
        named |= aliases[alias]
        spans.append((start, end))
    names = tuple(question[start:end] for start, end in spans)
    return NamedSpeakers(speakers=frozenset(named), names=names, without_names=_without(question, spans))


def _aliases(speakers: Collection[str]) -> dict[str, set[str]]:
    """Folded name, or unmistakable part of a name, to the speakers it can mean."""
    aliases: dict[str, set[str]] = defaultdict(set)
    for speaker in speakers:
        whole = " ".join(_fold(speaker).split())
        if not whole:
            continue
        aliases[whole].add(speaker)
        words = [word.strip(".,") for word in whole.split()]
        for word in {words[0], words[-1]} if len(words) > 1 else ():
            if len(word) >= _SHORTEST_PART and word not in TITLES:
                aliases[word].add(speaker)
    return aliases


def _pattern(alias: str) -> str:
    before = "" if re.match(f"[{_JOINED_SCRIPTS}]", alias) else r"(?<!\w)"
    after = "" if re.search(f"[{_JOINED_SCRIPTS}]$", alias) else _POSSESSIVE
    return "(" + before + r"\s+".join(map(re.escape, alias.split())) + after + ")"


def _is_written_as_name(question: str, start: int, end: int) -> bool:
    if not question[start].isupper():
        return False
    before, after = question[:start].rstrip(), question[end:]
    if re.search(r"['’]", question[start:end]):
        return True
    if not before or before[-1] in ".!?:;\n":  # any word begins with a capital letter here
        return False
    return before.split()[-1].casefold() not in TIME_WORDS and re.match(r"\W*\d", after) is None


def _without(question: str, spans: Sequence[tuple[int, int]]) -> str:
    if not spans:
        return question
    kept, last = [], 0
    for start, end in spans:
        kept.append(question[last:start])
        last = end
    stripped = " ".join(" ".join([*kept, question[last:]]).split())
    return stripped if any(character.isalnum() for character in stripped) else question


def _fold(text: str) -> str:
    """Without case and accents."""
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    return unicodedata.normalize("NFC", "".join(char for char in plain if not unicodedata.combining(char)))


class _Folded:
    """A folded text that knows where each of its characters was."""

    def __init__(self, text: str) -> None:
        folded: list[str] = []
        self._places: list[int] = []
        for place, character in enumerate(text):
            one = _fold(character)
            folded.append(one)
            self._places += [place] * len(one)
        self.text = "".join(folded)
        self._places.append(len(text))

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The same span in the text as it was."""
        return self._places[start], self._places[end]
