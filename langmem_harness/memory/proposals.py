"""Facts a user states in so many words, found by documented rules (English). Pure; see `docs/promotion.md`.

A proposal is only a candidate: `find_drop_reason` in `gate` decides, the same for rules and models.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from langmem_harness.memory.evidence import own_words

MAX_SENTENCE_CHARACTERS = 400
"""A longer sentence is not a plain statement; the rules leave it alone."""

USER = "user"
"""Subject of what the user says about themselves."""

_SENTENCE = re.compile(r"[^.!?\n;]+(?:[.!?](?!\s|$)[^.!?\n;]*)*[.!?]*")
_LEAD = re.compile(
    r"(?:(?:and|but|so|also|well|oh|hi|hello|hey|ok|okay|yes|no|btw|by the way|please note|fyi|actually)\b[,:!]?\s+)+",
    re.IGNORECASE,
)
_EXPLICIT = re.compile(
    r"(?:please\s+|can you\s+|could you\s+)?(?:remember|keep in mind|make a note|note|don'?t forget|never forget)"
    r"(?:\s+that\b|\s*:|\s+(?=i\b|i'|my\b))\s*(?P<fact>.+)$",
    re.IGNORECASE,
)
_PREFERENCE = re.compile(
    r"i\s+(?:really\s+|much\s+|always\s+|usually\s+|generally\s+|strongly\s+|absolutely\s+)*"
    r"(?:prefer|like|love|enjoy|hate|dislike|can'?t stand|don'?t like|do not like)\s+\S",
    re.IGNORECASE,
)
_IDENTITY = re.compile(r"(?:i\s+am|i'm|im)\s+(?:also\s+)?\S", re.IGNORECASE)
_HABIT = re.compile(
    r"i\s+(?:(?:never|always|don'?t|do not|can'?t|cannot|only|no longer)\s+)(?:eat|drink|smoke|drive|fly|speak|"
    r"use|wear|work|tolerate|digest)\b",
    re.IGNORECASE,
)
_POSSESSION = re.compile(
    r"my\s+(?P<attribute>[\w'’-]+(?:\s+[\w'’-]+){0,3}?)\s+(?:is|are|is called|'s)\s+\S", re.IGNORECASE
)
_PLACES = (
    (re.compile(r"i\s+(?:now\s+)?live\s+(?:in|at|on|near)\s+\S", re.IGNORECASE), "home"),
    (re.compile(r"i\s+(?:now\s+)?work\s+(?:at|for)\s+\S", re.IGNORECASE), "employer"),
    (re.compile(r"i\s+(?:now\s+)?work\s+as\s+\S", re.IGNORECASE), "occupation"),
    (
        re.compile(r"(?:please\s+)?call\s+me\s+(?!(?:an?|the|at|on|in|if|when|back|later|by)\b)\S", re.IGNORECASE),
        "name",
    ),
    (re.compile(r"my\s+name['’]s\s+\S", re.IGNORECASE), "name"),
)


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """Something that might be worth remembering.

    Attributes:
        text: What would be remembered.
        quote: The user's words it rests on.
        kind: ``"fact"`` or ``"preference"``.
        subject, attribute: Slot, or both None.
        explicit: The user asked to remember it.
    """

    text: str
    quote: str
    kind: str = "fact"
    subject: str | None = None
    attribute: str | None = None
    explicit: bool = False


def find_proposals(said: str) -> list[Proposal]:
    """What the rules find in one message of the user, in the order of the text; quoted lines and code are not read.

    The text of a proposal is the user's sentence itself: nothing is reworded, so nothing can be reworded wrongly.
    """
    return [
        proposal
        for sentence in sentences(own_words(said))
        if len(sentence) <= MAX_SENTENCE_CHARACTERS and (proposal := _proposal(sentence)) is not None
    ]


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text, stripped; each is a stretch of the text."""
    for match in _SENTENCE.finditer(text):
        if sentence := match.group().strip():
            yield sentence


def _proposal(sentence: str) -> Proposal | None:
    if lead := _LEAD.match(sentence):
        sentence = sentence[lead.end() :]
    if match := _EXPLICIT.match(sentence):
        fact = match.group("fact").strip()
        inner = _proposal(fact)
        slot = (inner.subject, inner.attribute) if inner is not None else (None, None)
        kind = inner.kind if inner is not None else "fact"
        return Proposal(text=fact, quote=sentence, kind=kind, subject=slot[0], attribute=slot[1], explicit=True)
    if _PREFERENCE.match(sentence):
        return Proposal(text=sentence, quote=sentence, kind="preference")
    for pattern, attribute in _PLACES:
        if pattern.match(sentence):
            return Proposal(text=sentence, quote=sentence, subject=USER, attribute=attribute)
    if match := _POSSESSION.match(sentence):
        attribute = " ".join(match.group("attribute").casefold().replace("’", "'").split())
        return Proposal(text=sentence, quote=sentence, subject=USER, attribute=attribute)
    if _IDENTITY.match(sentence) or _HABIT.match(sentence):
        return Proposal(text=sentence, quote=sentence)
    return None
