"""Evidence that the user said it: only words of a human message of this thread count. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from langchain_core.messages import BaseMessage, HumanMessage

from langmem_harness.memory.words import EMPTY_WORDS
from langmem_harness.window.messages import message_identity, tag_of

DEFAULT_SUPPORT = 0.5
"""Share of a text's content words that must be in the message (0 to 1, inclusive) when no quote is given."""

_SHOWN = re.compile(
    r"^[ \t]{0,3}(```|~~~)[^\n]*(?:\n(?![ \t]{0,3}\1)[^\n]*)*(?:\n[^\n]*)?|^[ \t]*>[^\n]*", re.MULTILINE
)
_WORD = re.compile(r"[぀-ヿ㐀-鿿가-힯฀-๿]|[^\W_]+(?:['’][^\W_]+)?")


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Where the user said it.

    Attributes:
        message_id: Identity of the human message.
        quote: The words, verbatim; the whole message when no quote was given.
        support: Share of the text's content words found there, 0 to 1.
    """

    message_id: str
    quote: str
    support: float


def human_messages(messages: Iterable[BaseMessage]) -> list[HumanMessage]:
    """What a person said in this thread: no tool text, no system text, nothing a middleware wrote in their place."""
    return [
        message
        for message in messages
        if isinstance(message, HumanMessage)
        and tag_of(message) is None
        and message.additional_kwargs.get("lc_source") != "summarization"  # LangChain's summary of a history
    ]


def own_words(text: str) -> str:
    """The text without what its writer only shows: quoted lines (``>``) and fenced code."""
    return _SHOWN.sub("\n", text)


def find_evidence(
    messages: Iterable[BaseMessage], text: str, *, quote: str | None = None, support: float = DEFAULT_SUPPORT
) -> Evidence | None:
    """The newest human message that supports `text`, or None.

    With a quote: the message must contain it verbatim, and it must share a content word with the text. Without one:
    at least `support` of the text's content words must be in the message.

    Args:
        messages: The thread.
        text: What should be remembered.
        quote: The user's words, as somebody claims.
        support: Smallest share without a quote, over 0 to 1.
    """
    wanted = content_words(text)
    best: Evidence | None = None
    for message in reversed(human_messages(messages)):
        said = message.text
        if quote is not None:
            if not quote.strip() or quote not in said:
                continue
            share = _share(wanted, content_words(quote))
            if share > 0 or not wanted:
                return Evidence(message_id=message_identity(message), quote=quote, support=share)
            continue
        share = _share(wanted, content_words(said))
        if share >= support and wanted and (best is None or share > best.support):
            best = Evidence(message_id=message_identity(message), quote=said, support=share)
    return best


def content_words(text: str) -> frozenset[str]:
    """The words that carry meaning, folded and cut to their stem-like beginning; single signs for CJK and Thai."""
    words = (match.group().casefold().replace("’", "'").removesuffix("'s") for match in _WORD.finditer(text))
    return frozenset(_stem(word) for word in words if word not in EMPTY_WORDS)


def _stem(word: str) -> str:
    for ending in ("ies", "ing", "ed", "es", "s", "y"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def _share(wanted: frozenset[str], said: frozenset[str]) -> float:
    return len(wanted & said) / len(wanted) if wanted else 0.0
