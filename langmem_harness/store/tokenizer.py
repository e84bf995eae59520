"""Text to terms: what the keyword leg counts as one word, for documents and for queries."""

from __future__ import annotations

import functools
import hashlib
import itertools
import re
import threading
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from langmem_harness.errors import ConfigurationError
from langmem_harness.store.stopwords import STOP_WORDS

MAX_TERM_CHARACTERS = 64
"""Longer words (base64, minified code) become their beginning and a digest: still found exactly, never 10 MB long."""

_VERSION = 1
_MAX_KNOWN_WORDS = 32_768  # some 4 MB

# Scripts written without spaces between words, or (Korean) with particles grown onto them: overlapping bigrams.
UNSPACED = (
    "\u0e01-\u0e3a\u0e40-\u0e4e"  # Thai
    "\u0e80-\u0ecf\u0edc-\u0edf"  # Lao
    "\u1000-\u103f\u1050-\u108f"  # Myanmar
    "\u1780-\u17d3\u17d7\u17dc\u17dd"  # Khmer
    "\u1100-\u11ff\u3131-\u318e\uac00-\ud7a3"  # Hangul
    "\u3005-\u3007\u3041-\u309f\u30a1-\u30ff\u31f0-\u31ff\u3105-\u312f"  # kana, bopomofo, iteration marks
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
)
_HAS_UNSPACED = re.compile(f"[{UNSPACED}]")
_RUNS = re.compile(f"[{UNSPACED}]+|[^{UNSPACED}]+")

# Marks that carry no word of their own: Latin, Greek and Cyrillic accents (breve apart, see `_strip_accents`), Hebrew
# points, Arabic vowel signs. Vowel signs of Indic and South-East Asian scripts are letters and stay.
_ACCENTS = re.compile("[\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u064b-\u0655\u0670]")
_BASE_LETTERS = str.maketrans({"ø": "o", "ł": "l", "đ": "d", "ı": "i", "ħ": "h", "ŧ": "t", "æ": "ae", "œ": "oe"})
_IGNORED = re.compile("[\u00ad\u0640\u200c\u200d\u2060\ufeff\ufe00-\ufe0f\u20d0-\u20ff\U000e0100-\U000e01ef]")
_ASCII_WORD = re.compile(r"[a-z](?:\+\+|#)|[a-z0-9]+")


@dataclass(frozen=True, kw_only=True)
class _Patterns:
    word: re.Pattern[str]
    unit: re.Pattern[str]
    mark_flood: re.Pattern[str]


@functools.cache
def _patterns() -> _Patterns:
    """Patterns that know every combining mark; built at first use, it takes some milliseconds."""
    marks = _mark_ranges()
    return _Patterns(
        word=re.compile(rf"[a-z](?:\+\+|#)|\w[\w{marks}]*"),
        unit=re.compile(f"[^{marks}][{marks}]*|[{marks}]+"),  # one written character of an unspaced script
        # Normalization sorts a run of marks in quadratic time; Unicode's stream-safe text format allows thirty.
        mark_flood=re.compile(f"([{marks}]{{30}})[{marks}]+"),
    )


def _mark_ranges() -> str:
    points = [point for point in range(0x20000) if unicodedata.category(chr(point)) in ("Mn", "Mc")]
    ranges: list[list[int]] = []
    for point in points:
        if ranges and point == ranges[-1][1] + 1:
            ranges[-1][1] = point
        else:
            ranges.append([point, point])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)


class Tokenizer:
    """Splits text into the terms that are indexed and searched.

    Words are runs of letters and digits, without case and accents; any other character ends a word (``BENCH-100821``
    is two words, ``don't`` is two). Only ``C++``, ``C#`` and their kind keep their signs. Runs of Chinese, Japanese,
    Korean, Thai, Lao, Khmer and Burmese give overlapping pairs of characters. Stop words are left out and words are
    stemmed (Snowball). Any text is accepted: NUL, lone surrogates, a line of 10 MB. The same text gives the same
    terms; safe to share between threads.

    Accents: English and ``None`` strip them before stemming, so that ``résumé`` and ``resume`` are one word. Stemmers
    of other languages need their accents and get them; the stem is stripped afterwards, so a query typed without
    accents finds most inflected forms, not all.

    Args:
        language: Name of a Snowball stemmer (``"english"``, ``"german"``, ...), or None for neither stop words nor
            stemming. Languages without a list in `stopwords` are stemmed only.

    Raises:
        ConfigurationError: There is no stemmer of that name.
    """

    def __init__(self, language: str | None = "english") -> None:
        self.language = language
        self._stop_words: frozenset[str] = frozenset()
        self._local = threading.local()
        self._known = _KnownWords(self._find_term)
        self._accents_first = language in (None, "english", "porter")
        if language is not None:
            import Stemmer

            known = Stemmer.algorithms()
            if language not in known:
                raise ConfigurationError(f"no stemmer for language {language!r}; choose None or one of {sorted(known)}")
            words = STOP_WORDS.get("english" if language == "porter" else language, "")
            self._stop_words = frozenset(_strip_accents(_normalize(word)) for word in words.split())

    @property
    def fingerprint(self) -> str:
        """Changes whenever the same text may give other terms: stored terms of another fingerprint are stale."""
        if self.language is None:
            return f"terms-{_VERSION}"
        import Stemmer

        return f"terms-{_VERSION}/{self.language}/snowball-{Stemmer.version()}"

    def terms(self, text: str) -> list[str]:
        """Terms of a document, in reading order, with repetitions; empty for text without a word.

        Stop words are left out unless the text has nothing else. Unspaced scripts give pairs and single characters,
        so that a query of one character finds them too.
        """
        return self._terms(text, is_query=False)

    def query_terms(self, text: str) -> list[str]:
        """Terms of a query: like `terms`, but single characters of unspaced scripts only where no pair can be made.

        A query of nothing but stop words keeps them; it finds documents that have nothing else either.
        """
        return self._terms(text, is_query=True)

    def _terms(self, text: str, *, is_query: bool) -> list[str]:
        words, pairs = self._split(text, is_query=is_query)
        kept = list(filter(None, map(self._known.__getitem__, words)))
        if not kept and not pairs:
            kept = list(map(self._stem, words))
        return kept + list(map(_bound, pairs)) if pairs else kept

    def _find_term(self, word: str) -> str:
        """The term of a word; nothing for a stop word."""
        return "" if self._is_stop_word(word) else self._stem(word)

    def _stem(self, word: str) -> str:
        if self.language is not None:
            word = self._stemmer().stemWord(word)
            if not self._accents_first:
                word = _strip_accents(word)
        return _bound(word)

    def _split(self, text: str, *, is_query: bool) -> tuple[list[str], list[str]]:
        """Words of spaced scripts, and pairs and single characters of unspaced ones."""
        if text.isascii():
            return _ASCII_WORD.findall(text.lower()), []
        folded = _normalize(text)
        if self._accents_first:
            folded = _strip_accents(folded)
        patterns = _patterns()
        chunks = patterns.word.findall(folded)
        if not _HAS_UNSPACED.search(folded):
            return chunks, []
        words: list[str] = []
        pairs: list[str] = []
        for chunk in chunks:
            for run in _RUNS.findall(chunk):
                if not _HAS_UNSPACED.match(run):
                    words.append(run)
                    continue
                units = patterns.unit.findall(run)
                pairs.extend(map("".join, itertools.pairwise(units)))
                if not is_query or len(units) == 1:
                    pairs.extend(units)
        return words, pairs

    def _is_stop_word(self, word: str) -> bool:
        return (word if self._accents_first else _strip_accents(word)) in self._stop_words

    def _stemmer(self) -> Any:
        stemmer = getattr(self._local, "stemmer", None)
        if stemmer is None:  # one for each thread: a stemmer works in a buffer of its own and must not be shared
            import Stemmer

            stemmer = self._local.stemmer = Stemmer.Stemmer(self.language, 0)
        return stemmer


class _KnownWords(dict[str, str]):
    """Terms of words that were met before: most of a language's text is a few thousand words.

    Threads may share it: two that meet a new word at once find the same term.
    """

    def __init__(self, find_term: Callable[[str], str]) -> None:
        super().__init__()
        self._find_term = find_term

    def __missing__(self, word: str) -> str:
        term = self._find_term(word)
        if len(word) <= MAX_TERM_CHARACTERS:
            if len(self) >= _MAX_KNOWN_WORDS:
                self.clear()  # as good as dropping the oldest, without keeping count of ages
            self[word] = term
        return term


def _normalize(text: str) -> str:
    """One form for all ways of writing the same letters (width, ligatures, case), accents kept."""
    bounded = _patterns().mark_flood.sub(r"\1", _IGNORED.sub("", text))
    folded = unicodedata.normalize("NFKC", bounded).casefold()
    return unicodedata.normalize("NFC", folded).replace("_", " ")


def _strip_accents(text: str) -> str:
    if text.isascii():
        return text
    decomposed = unicodedata.normalize("NFD", text).replace("и\u0306", "й")  # a letter, not an accented one
    return unicodedata.normalize("NFC", _ACCENTS.sub("", decomposed)).translate(_BASE_LETTERS)


def _bound(term: str) -> str:
    if len(term) <= MAX_TERM_CHARACTERS:
        return term
    digest = hashlib.blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{term[: MAX_TERM_CHARACTERS - 17]}~{digest}"
