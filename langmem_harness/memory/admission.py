"""What may become a memory at all. Pure rules, each with a name that is returned and counted when it refuses."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from langmem_harness.errors import ConfigurationError
from langmem_harness.memory.records import MemoryRecord, SourceKind
from langmem_harness.memory.words import SMALL_TALK

RefusalReason = Literal[
    "blank", "too_short", "too_long", "error_message", "small_talk", "tool_source", "not_valid", "blocked_content"
]

Validate = Callable[[MemoryRecord], str | None]
"""Returns None to admit the record, or a short reason to refuse it. May block: it never runs on an event loop."""

DEFAULT_TTL: Mapping[str, timedelta | None] = {
    "conversation": timedelta(days=30),
    "pattern": timedelta(days=90),
    "preference": None,
    "fact": None,
}
"""How long each kind is kept; kinds that are not named are kept."""

_ERROR = re.compile(
    r"^\W*(?:traceback \(most recent call last\)"
    r"|(?:fatal |internal |unhandled |runtime )?(?:server )?(?:error|exception|failure)\b\s*[:(\[\d]"
    r"|[A-Za-z_.]*(?:Error|Exception)\s*:"
    r"|(?:http(?:/\d\.\d)? ?)?(?:status(?: code)? ?)?[45]\d\d\b[ :-]*(?:bad|unauthorized|forbidden|not found|internal"
    r"|too many|service|gateway|error|timeout)"
    r"|(?:an? )?(?:unexpected |internal )?error (?:occurred|has occurred)"
    r"|(?:sorry|i'?m sorry|i apologi[sz]e)[,.!]? (?:but )?(?:i|we) "
    r"(?:can(?:no|')?t|could(?: no|n')?t|am unable|was unable|encountered)"
    r"|(?:request|connection|operation|command) (?:timed out|failed|refused)"
    r"|rate limit)",
    re.IGNORECASE,
)
_WORD = re.compile(r"[\w']+")


@dataclass(frozen=True, kw_only=True)
class AdmissionPolicy:
    """Settings of the rules; each can be turned off by itself.

    Attributes:
        min_characters: Shortest text that is admitted when nobody asked for it explicitly; 0 turns the rule off.
        max_characters: Longest text, explicit or not.
        refuse_errors: Refuse texts that are error messages (not for explicit saves).
        refuse_small_talk: Refuse greetings, thanks and the like (not for explicit saves).
        admit_tool_sources: Admit statements by tools. Off: a sentence planted in a tool result must not become a
            memory of the user.
        near_duplicate_cosine: From this cosine on (0 to 1, inclusive) two texts are called near duplicates and are
            merged, unless they differ in a number, a negation or a name. None turns the rule off.
        ttl: Retention by kind; None as a value keeps the kind.
        validate: Your own rule, asked last.
    """

    min_characters: int = 50
    max_characters: int = 1_000_000
    refuse_errors: bool = True
    refuse_small_talk: bool = True
    admit_tool_sources: bool = False
    near_duplicate_cosine: float | None = 0.95
    ttl: Mapping[str, timedelta | None] = field(default_factory=lambda: dict(DEFAULT_TTL))
    validate: Validate | None = None

    def __post_init__(self) -> None:
        if self.min_characters < 0 or self.max_characters < max(1, self.min_characters):
            raise ConfigurationError(
                f"min_characters must be 0 or more and max_characters at least that and 1, not "
                f"{self.min_characters!r} and {self.max_characters!r}"
            )
        if self.near_duplicate_cosine is not None and not 0 < self.near_duplicate_cosine <= 1:
            raise ConfigurationError(
                f"near_duplicate_cosine must be over 0 and at most 1, not {self.near_duplicate_cosine!r}"
            )


def find_refusal(
    text: str, policy: AdmissionPolicy, *, source_kind: SourceKind, explicit: bool
) -> RefusalReason | None:
    """The first rule that refuses this text, or None.

    Args:
        text: What should be remembered.
        policy: The settings.
        source_kind: Who stated it.
        explicit: Somebody asked to remember exactly this; the rules about worth do not apply then.
    """
    stripped = text.strip()
    if not stripped:
        return "blank"
    if len(text) > policy.max_characters:
        return "too_long"
    if source_kind == "tool" and not policy.admit_tool_sources:
        return "tool_source"
    if explicit:
        return None
    if policy.refuse_errors and is_error_message(stripped):
        return "error_message"
    if policy.refuse_small_talk and is_small_talk(stripped):
        return "small_talk"
    if len(stripped) < policy.min_characters:
        return "too_short"
    return None


def is_error_message(text: str) -> bool:
    """Whether the text begins like an error message, a stack trace or an apology for a failure."""
    return _ERROR.match(text[:400]) is not None


def is_small_talk(text: str) -> bool:
    """Whether the text has only words of greeting, thanks and agreement (English), at most twenty of them."""
    words = _WORD.findall(text[:400].casefold())
    return len(words) <= 20 and all(word in SMALL_TALK for word in words)
