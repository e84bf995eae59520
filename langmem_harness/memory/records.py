"""`MemoryRecord`: one thing remembered about one owner, with where it came from. Pure."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, Self

from langmem_harness.errors import RecordError
from langmem_harness.memory.scope import MemoryScope
from langmem_harness.window.messages import canonical_json

FORMAT_VERSION = 1

MAX_ORDINAL = 2**62
"""Greatest position of a statement either way: what every store keeps as a whole number."""

SourceKind = Literal["user", "tool", "import"]
"""Who stated it: the user in their own words, the output of a tool, or somebody who brought memories in."""

KEY_CHARACTERS = 13
"""Length of a key after its prefix: 65 bits of a SHA-256 in base 32, enough for one owner's memories."""


_KEY = re.compile(rf"m[a-z2-7]{{{KEY_CHARACTERS}}}")


@dataclass(frozen=True, kw_only=True)
class MemorySource:
    """One place a memory comes from.

    Attributes:
        thread_id: The conversation, or None when it was written outside one.
        message_id: The message with the evidence.
        quote: The words of the evidence, verbatim.
        stated_at: When it was said; aware UTC.
    """

    thread_id: str | None = None
    message_id: str | None = None
    quote: str | None = None
    stated_at: datetime | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**dataclasses.asdict(self), "stated_at": _time_text(self.stated_at)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The source written by `to_dict`; unknown keys are ignored."""
        return cls(
            thread_id=_optional_text(data, "thread_id"),
            message_id=_optional_text(data, "message_id"),
            quote=_optional_text(data, "quote"),
            stated_at=parse_time(data.get("stated_at"), "stated_at"),
        )


@dataclass(frozen=True, kw_only=True)
class MemoryRecord:
    """One memory.

    Attributes:
        key: Short id, valid only in its scope; derived from the slot or the text, so that saving twice writes once.
        scope: Whose memory it is.
        text: What is remembered, byte for byte as it was given (after redaction).
        kind: ``"fact"``, ``"preference"``, ``"conversation"``, ``"pattern"``, ``"summary"``, or one of your own.
        sources: Where it comes from, oldest first, without duplicates.
        source_kind: Who stated it.
        subject, attribute: The slot it fills (``"ada"``, ``"home city"``); both or neither.
        ordinal: Position of the statement; of two statements for one slot the greater wins, the later one on a tie.
            It grows when the same is stated again.
        version: Digest that tells this statement from others under the same key, see `version_of`.
        supersedes: Version key of the statement it replaced, see `version_key`.
        derived_from: Version keys of the memories it was concluded from.
        retracted: The slot is known to have no value any more; `text` says so.
        created_at, updated_at: Aware UTC.
        expires_at: Aware UTC; from then on it is not found any more. None: kept.
        format_version: Of the stored form.
    """

    key: str
    scope: MemoryScope
    text: str
    kind: str = "fact"
    sources: tuple[MemorySource, ...] = ()
    source_kind: SourceKind = "user"
    subject: str | None = None
    attribute: str | None = None
    ordinal: int = 0
    version: str
    supersedes: str | None = None
    derived_from: tuple[str, ...] = ()
    retracted: bool = False
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None = None
    format_version: int = FORMAT_VERSION

    @property
    def source(self) -> MemorySource:
        """The first source; an empty one when there is none."""
        return self.sources[0] if self.sources else MemorySource()

    @property
    def stated_at(self) -> datetime:
        """When it was said last: the newest date among its sources, else `updated_at`."""
        return max((source.stated_at for source in self.sources if source.stated_at), default=self.updated_at)

    @property
    def version_key(self) -> str:
        """Id of exactly this statement, unchanged when the same is stated again."""
        return f"{self.key}@{self.version}"

    def has_expired(self, now: datetime) -> bool:
        """Whether it may not be found any more."""
        return self.expires_at is not None and self.expires_at <= now

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, the scope included."""
        body = dataclasses.asdict(self)
        body["scope"] = self.scope.to_dict()
        body["sources"] = [source.to_dict() for source in self.sources]
        body["derived_from"] = list(self.derived_from)
        for name in ("created_at", "updated_at", "expires_at"):
            body[name] = _time_text(body[name])
        return body

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The record written by `to_dict`; unknown keys are ignored.

        Raises:
            RecordError: Something that must be there is missing or has another type.
        """
        try:
            text, key = data["text"], data["key"]
            if not isinstance(text, str) or not isinstance(key, str):
                raise RecordError("text and key of a memory must be texts")
            created_at = parse_time(data["created_at"], "created_at")
            updated_at = parse_time(data.get("updated_at"), "updated_at") or created_at
            if created_at is None or updated_at is None:
                raise RecordError("created_at of a memory is missing")
            if abs(ordinal := int(data.get("ordinal", 0))) > MAX_ORDINAL:
                raise RecordError(f"ordinal of a memory is over {MAX_ORDINAL}")
            return cls(
                key=key,
                scope=MemoryScope.from_dict(data["scope"]),
                text=text,
                kind=_optional_text(data, "kind") or "fact",
                sources=tuple(MemorySource.from_dict(source) for source in data.get("sources") or ()),
                source_kind=parse_source_kind(data.get("source_kind", "user")),
                subject=_optional_text(data, "subject"),
                attribute=_optional_text(data, "attribute"),
                ordinal=ordinal,
                version=_optional_text(data, "version") or version_of(text, ordinal),
                supersedes=_optional_text(data, "supersedes"),
                derived_from=tuple(str(key) for key in data.get("derived_from") or ()),
                retracted=bool(data.get("retracted", False)),
                created_at=created_at,
                updated_at=updated_at,
                expires_at=parse_time(data.get("expires_at"), "expires_at"),
                format_version=int(data.get("format_version", FORMAT_VERSION)),
            )
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise RecordError(f"not a memory record: {type(error).__name__} at {error.args[:1]!r}") from error


def parse_source_kind(value: Any) -> SourceKind:
    """The source kind this value names.

    Raises:
        RecordError: None of the three.
    """
    match value:
        case "user" | "tool" | "import":
            return value  # type: ignore[no-any-return]
    raise RecordError(f"source_kind must be 'user', 'tool' or 'import', not {value!r}")


def parse_time(value: Any, name: str) -> datetime | None:
    """An aware UTC time from an ISO text; None stays None.

    Raises:
        RecordError: Not an ISO time, or one without a time zone.
    """
    if value is None:
        return None
    try:
        time = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise RecordError(f"{name} is not an ISO time: {value!r}") from error
    if time.tzinfo is None:
        raise RecordError(f"{name} has no time zone: {value!r}")
    return time.astimezone(UTC)


def slot_key(scope: MemoryScope, subject: str, attribute: str) -> str:
    """Key of the one current memory for this subject and attribute; case and spacing do not matter."""
    return _key(scope, "slot", fold(subject), fold(attribute))


def text_key(scope: MemoryScope, text: str) -> str:
    """Key of a memory that fills no slot: the same words give the same key."""
    return _key(scope, "text", fold(text))


def is_key(text: str) -> bool:
    """Whether a text has the form of a key of ours; a store need not be asked for anything else."""
    return isinstance(text, str) and _KEY.fullmatch(text) is not None


def version_of(text: str, ordinal: int) -> str:
    """Digest of one statement: its text and the position at which it was first made."""
    return _digest(text, str(ordinal))[:8]


def key_of_version(version_key: str) -> str:
    """Key of the memory a version key belongs to."""
    return version_key.partition("@")[0]


def fold(text: str) -> str:
    """The form in which two texts are called exact duplicates: NFC, white space collapsed, case folded."""
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def merge_sources(known: Sequence[MemorySource], new: Sequence[MemorySource]) -> tuple[MemorySource, ...]:
    """Both lists in order, each place (thread, message, quote) once; the first mention keeps its date."""
    merged: dict[tuple[str | None, str | None, str | None], MemorySource] = {}
    for source in (*known, *new):
        merged.setdefault((source.thread_id, source.message_id, source.quote), source)
    return tuple(merged.values())


def _key(scope: MemoryScope, *parts: str) -> str:
    return f"m{_digest(canonical_json(scope.memories), *parts)[:KEY_CHARACTERS]}"


def _digest(*parts: str) -> str:
    data = canonical_json(list(parts)).encode("utf-8", "surrogatepass")
    return base64.b32encode(hashlib.sha256(data).digest()).decode().lower().rstrip("=")


def _time_text(time: datetime | None) -> str | None:
    return None if time is None else time.astimezone(UTC).isoformat()


def _optional_text(data: Mapping[str, Any], name: str) -> str | None:
    value = data.get(name)
    if value is not None and not isinstance(value, str):
        raise RecordError(f"{name} must be a text, not {type(value).__name__}")
    return value
