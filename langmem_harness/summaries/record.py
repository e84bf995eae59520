"""`SummaryRecord`: what stands in for messages, and how to tell that it may not any more. Pure."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Self, TypeAlias, get_args

from langchain_core.messages import BaseMessage

from langmem_harness.errors import RecordError
from langmem_harness.layout import decode_label, encode_label
from langmem_harness.summaries.identities import Identity, identities
from langmem_harness.window.messages import canonical_json, text_hash

FORMAT_VERSION = 1
"""Newest layout of `SummaryRecord.to_dict` this package reads and the one it writes."""

SummaryKind: TypeAlias = Literal["history", "tool_output"]
SummaryPurpose: TypeAlias = Literal["prompt_compaction", "user_history"]
StaleReason: TypeAlias = Literal[
    "source_changed",
    "source_missing",
    "source_order_changed",
    "policy_changed",
    "prompt_version_changed",
    "model_changed",
    "expired",
]

_NO_THREAD = "-"  # `encode_label` never gives this label
_ID_DIGITS = 32
_TEXTS = ("id", "model", "prompt_version", "policy", "policy_fingerprint", "content")
_OPTIONAL_TEXTS = ("thread_id", "parent_id", "raw_ref")


@dataclass(frozen=True, kw_only=True)
class SummaryRecord:
    """A text that stands in for messages, with everything needed to decide whether it still may.

    Make one with `create`, which derives the id: the same text over the same sources, made the same way, is the same
    record, however often it is made. Time, usage and cost are not part of the id.

    Attributes:
        id: ``"<thread label>/<32 hex digits>"``; the thread can be read from it.
        kind: ``"history"`` or ``"tool_output"``.
        purpose: ``"prompt_compaction"`` (for the model) or ``"user_history"`` (for people); they never mix.
        thread_id: The conversation; None outside of one.
        source_message_ids: Identities (`message_identity`) of all covered messages, oldest first.
        source_hashes: Their content hashes, in the same order.
        parent_id: The record this one extends; None when it was made from the messages alone.
        model: Name of what wrote the text.
        prompt_version: Version of its instruction.
        policy: Name of the policy that asked for it.
        policy_fingerprint: See `policy_fingerprint`.
        content: The text.
        facts: Values carried verbatim, least recently mentioned first.
        token_count_before: Tokens of the covered messages.
        token_count_after: Tokens of content and facts.
        coverage: Share of the source text that was read, 0.0 to 1.0; 1.0 expected.
        usage: ``input_tokens``, ``output_tokens``, ``cached_tokens``, as far as they were reported.
        cost: In the currency of the given prices; None when no price is known.
        raw_ref: Where the raw text is, for a tool output: its handle.
        created_at: Aware UTC time.
        format_version: Layout of `to_dict`.
    """

    id: str
    kind: SummaryKind = "history"
    purpose: SummaryPurpose = "prompt_compaction"
    thread_id: str | None
    source_message_ids: tuple[str, ...]
    source_hashes: tuple[str, ...]
    parent_id: str | None = None
    model: str
    prompt_version: str
    policy: str
    policy_fingerprint: str
    content: str
    facts: tuple[str, ...] = ()
    token_count_before: int
    token_count_after: int
    coverage: float = 1.0
    usage: Mapping[str, int] = field(default_factory=dict)
    cost: float | None = None
    raw_ref: str | None = None
    created_at: datetime
    format_version: int = FORMAT_VERSION

    def __post_init__(self) -> None:
        if self.kind not in get_args(SummaryKind):
            raise RecordError(f"kind must be one of {get_args(SummaryKind)}, not {self.kind!r}")
        if self.purpose not in get_args(SummaryPurpose):
            raise RecordError(f"purpose must be one of {get_args(SummaryPurpose)}, not {self.purpose!r}")
        if self.thread_id is not None and not self.thread_id.strip():
            raise RecordError(f"thread_id must be a text that is not blank, or None, not {self.thread_id!r}")
        if len(self.source_message_ids) != len(self.source_hashes):
            raise RecordError(
                f"{len(self.source_message_ids)} source ids and {len(self.source_hashes)} hashes: one each is needed"
            )
        if not self.source_message_ids:
            raise RecordError("a summary record covers at least one message")
        if not self.content.strip():
            raise RecordError("a summary record has a text; a failure is not a record")
        if not 0.0 <= self.coverage <= 1.0:
            raise RecordError(f"coverage must be from 0.0 to 1.0, not {self.coverage!r}")
        if self.created_at.tzinfo is None:
            raise RecordError(f"created_at must be an aware time, not {self.created_at!r}")

    @classmethod
    def create(
        cls,
        *,
        sources: Sequence[BaseMessage] = (),
        thread_id: str | None,
        created_at: datetime | None = None,
        source_message_ids: Sequence[str] | None = None,
        source_hashes: Sequence[str] | None = None,
        **fields: Any,
    ) -> Self:
        """A record with its derived id.

        Args:
            sources: The covered messages, oldest first; instead of ids and hashes.
            thread_id: The conversation; None outside of one.
            created_at: Aware time; now by default.
            source_message_ids: Identities of the covered messages, when they are not at hand.
            source_hashes: Their content hashes.
            **fields: The other fields of the record.

        Raises:
            RecordError: Fields that do not make a record.
        """
        named = identities(sources)
        ids = [identity for identity, _ in named] if source_message_ids is None else source_message_ids
        hashes = [hashed for _, hashed in named] if source_hashes is None else source_hashes
        unnamed = cls(
            id="",
            thread_id=thread_id,
            source_message_ids=tuple(ids),
            source_hashes=tuple(hashes),
            created_at=(created_at or datetime.now(UTC)).astimezone(UTC),
            **{**fields, "facts": tuple(fields.get("facts", ()))},
        )
        return dataclasses.replace(unnamed, id=unnamed.derive_id())

    @property
    def sources(self) -> list[Identity]:
        """``(identity, content hash)`` of every covered message, oldest first."""
        return list(zip(self.source_message_ids, self.source_hashes, strict=True))

    def derive_id(self) -> str:
        """The id that belongs to the fields of this record."""
        made_of = [
            self.kind, self.purpose, list(self.source_message_ids), list(self.source_hashes), self.parent_id,
            self.model, self.prompt_version, self.policy, self.policy_fingerprint, self.content, list(self.facts),
            self.raw_ref,
        ]  # fmt: skip
        digest = text_hash(canonical_json(made_of)).partition(":")[2][:_ID_DIGITS]
        return f"{_NO_THREAD if self.thread_id is None else encode_label(self.thread_id)}/{digest}"

    def verify(self) -> bool:
        """Whether the id still belongs to the fields: False after tampering or damage."""
        return self.id == self.derive_id()

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; the time as ISO 8601."""
        body = dataclasses.asdict(self)
        return {
            **body,
            "source_message_ids": list(self.source_message_ids),
            "source_hashes": list(self.source_hashes),
            "facts": list(self.facts),
            "usage": dict(self.usage),
            "created_at": self.created_at.isoformat(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """A record from `to_dict`; unknown keys are ignored, so that a newer writer does not break an older reader.

        Raises:
            RecordError: Something needed is missing or of the wrong type, or the layout is newer than this package.
        """
        try:
            version = int(data.get("format_version", FORMAT_VERSION))
            if version > FORMAT_VERSION:
                raise RecordError(f"format_version {version} is newer than {FORMAT_VERSION}: upgrade langmem-harness")
            known = {one.name: data[one.name] for one in dataclasses.fields(cls) if one.name in data}
            cost = known.get("cost")
            return cls(
                **{
                    **known,
                    **{name: _text(known[name]) for name in _TEXTS},
                    **{name: None if known.get(name) is None else _text(known[name]) for name in _OPTIONAL_TEXTS},
                    "source_message_ids": _texts(known["source_message_ids"]),
                    "source_hashes": _texts(known["source_hashes"]),
                    "facts": _texts(known.get("facts", ())),
                    "usage": {_text(name): int(count) for name, count in dict(known.get("usage") or {}).items()},
                    "token_count_before": int(known["token_count_before"]),
                    "token_count_after": int(known["token_count_after"]),
                    "coverage": float(known.get("coverage", 1.0)),
                    "cost": None if cost is None or not math.isfinite(float(cost)) else float(cost),
                    "created_at": datetime.fromisoformat(_text(known["created_at"])).astimezone(UTC),
                    "format_version": version,
                }
            )
        except RecordError:
            raise
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise RecordError(f"not a summary record: {type(error).__name__}") from error


def thread_of(record_id: str) -> str | None:
    """The thread a record id belongs to; None for a record outside of a thread or a text that is no record id."""
    label, separator, _ = record_id.rpartition("/")
    return decode_label(label) if separator and label not in ("", _NO_THREAD) else None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise RecordError(f"a text was expected, not {type(value).__name__}")
    return value


def _texts(values: Iterable[Any]) -> tuple[str, ...]:
    if isinstance(values, str):
        raise RecordError("a list of texts was expected, not one text")
    return tuple(_text(value) for value in values)


def policy_fingerprint(name: str, **settings: Any) -> str:
    """Tagged hash of a policy: its name and every setting that changes what a summary says.

    Settings are JSON values; others count by type and `repr`. The order in which they are given does not matter.
    """
    return text_hash(canonical_json([name, settings]))


@dataclass(frozen=True, kw_only=True)
class StalenessReport:
    """Whether a record may stand in for its messages, and every reason why not.

    Attributes:
        record_id: The record.
        reasons: All that apply, in the order of `StaleReason`; empty: fresh.
        changed_ids: Covered messages that say something else now.
        missing_ids: Covered messages that are gone.
        age_seconds: Age of the record, 0.0 or more.
    """

    record_id: str
    reasons: tuple[StaleReason, ...] = ()
    changed_ids: tuple[str, ...] = ()
    missing_ids: tuple[str, ...] = ()
    age_seconds: float = 0.0

    @property
    def is_stale(self) -> bool:
        """Whether any reason applies."""
        return bool(self.reasons)


def check_staleness(
    record: SummaryRecord,
    messages: Sequence[BaseMessage],
    *,
    policy_fingerprint: str | None = None,
    prompt_version: str | None = None,
    model: str | None = None,
    ttl: timedelta | None = None,
    now: datetime | None = None,
) -> StalenessReport:
    """Check a record against the history as it is now.

    Args:
        record: The record.
        messages: The history; it may have more messages than the record covers, before, between and after.
        policy_fingerprint: Of the policy in use; None: not checked. The same for the next two.
        prompt_version: Of the summarizer in use.
        model: Of the summarizer in use.
        ttl: How old a record may become, inclusive; None: as old as it likes.
        now: Aware time; the clock's by default. A record from the future (a clock that went back) has age 0.

    Returns:
        The report with all reasons, not only the first.
    """
    return check_identities(
        record,
        identities(messages),
        policy_fingerprint=policy_fingerprint,
        prompt_version=prompt_version,
        model=model,
        ttl=ttl,
        now=now,
    )


def check_identities(
    record: SummaryRecord,
    present: Sequence[Identity],
    *,
    policy_fingerprint: str | None,
    prompt_version: str | None,
    model: str | None,
    ttl: timedelta | None,
    now: datetime | None,
) -> StalenessReport:
    """`check_staleness` for messages whose `identities` are known already."""
    changed, missing = [], []
    hashes: dict[str, list[str]] = {}
    for identity, hashed in present:
        hashes.setdefault(identity, []).append(hashed)
    for identity, hashed in record.sources:
        left = hashes.get(identity)
        if not left:
            missing.append(identity)
        elif hashed in left:
            left.remove(hashed)  # two messages with one identity need two sources
        else:
            changed.append(identity)
    age = max(0.0, ((now or datetime.now(UTC)) - record.created_at).total_seconds())
    found: dict[StaleReason, bool] = {
        "source_changed": bool(changed),
        "source_missing": bool(missing),
        "source_order_changed": not changed and not missing and match_sources(record, present) is None,
        "policy_changed": policy_fingerprint is not None and policy_fingerprint != record.policy_fingerprint,
        "prompt_version_changed": prompt_version is not None and prompt_version != record.prompt_version,
        "model_changed": model is not None and model != record.model,
        "expired": ttl is not None and age > ttl.total_seconds(),
    }
    return StalenessReport(
        record_id=record.id,
        reasons=tuple(reason for reason, applies in found.items() if applies),
        changed_ids=tuple(changed),
        missing_ids=tuple(missing),
        age_seconds=age,
    )


def match_sources(record: SummaryRecord, present: Sequence[Identity]) -> list[int] | None:
    """Positions in `present` of all sources of the record, in its order; None when one is not there unchanged."""
    positions = []
    sources = iter(record.sources)
    wanted = next(sources)
    for position, found in enumerate(present):
        if found == wanted:
            positions.append(position)
            following = next(sources, None)
            if following is None:
                return positions
            wanted = following
    return None
