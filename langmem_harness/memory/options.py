"""What may be said about a statement, a search and a recall; and what an upsert answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypedDict

from langmem_harness.errors import ConfigurationError
from langmem_harness.memory.records import MAX_ORDINAL, MemoryRecord, MemorySource, SourceKind
from langmem_harness.memory.upsert import UpsertAction

MAX_TTL = timedelta(days=365_000)
"""A thousand years; None keeps for ever."""


class UpsertOptions(TypedDict, total=False):
    """What may be said about a statement.

    Keys:
        source: Where it comes from; one source or several. Default: none.
        source_kind: Who stated it. Default ``"user"``.
        kind: Default ``"fact"``.
        subject, attribute: The slot it fills; both or neither. A later statement for the same slot supersedes it.
        ttl: How long it is kept; None keeps it. Default: what the policy says for the kind.
        explicit: Somebody asked to remember exactly this. Default False.
        ordinal: Position of the statement; default: the newest `stated_at` of its sources, else now, in microseconds.
        derived_from: Version keys of memories it was concluded from.
        retracted: The slot has no value any more; needs a slot.
    """

    source: MemorySource | Sequence[MemorySource] | None
    source_kind: SourceKind
    kind: str
    subject: str | None
    attribute: str | None
    ttl: timedelta | None
    explicit: bool
    ordinal: int
    derived_from: Sequence[str]
    retracted: bool


class SearchOptions(TypedDict, total=False):
    """Settings of a search.

    Keys:
        top_k: How many at most, 1 or more. Default 5.
        threshold: Smallest cosine of a memory that only the semantic leg found, inclusive; what the keyword leg found
            stays. None: no threshold. Default 0.7.
        mmr_lambda: Variety: 1.0 is relevance only, 0.0 variety only. Default None: not asked for. Stores other
            than `FaissStore` do not know it and order by relevance.
        kind: Only memories of this kind.
    """

    top_k: int
    threshold: float | None
    mmr_lambda: float | None
    kind: str | None


class RecallOptions(TypedDict, total=False):
    """Settings of a hierarchical recall: how many of each layer, 0 or more, and how many in all.

    Keys:
        recent: The newest memories. Default 5.
        semantic: The best of a search. Default 3.
        summaries: The best of the memories of kind ``"summary"``. Default 2.
        history: The best of what was said in earlier threads, as far as they were indexed. Default 3.
        limit: How many in all after removing doubles, 1 or more; the longest layer gives up its last. Default 10.
        leave_out_thread: A thread whose utterances are not searched: the running one. Default None.
        threshold: Smallest cosine of what a search brings, inclusive; below it, and where there is no cosine, enough
            words must be shared (see `is_relevant`), and small talk of earlier threads is left out. The newest memories
            are shown in any case. None: no threshold. Default None.
    """

    recent: int
    semantic: int
    summaries: int
    history: int
    limit: int
    leave_out_thread: str | None
    threshold: float | None


@dataclass(frozen=True, kw_only=True)
class UpsertResult:
    """What an upsert did.

    Attributes:
        action: See `UpsertAction`.
        record: The current memory, or None when the statement was refused.
        reason: Name of the rule that refused it.
    """

    action: UpsertAction
    record: MemoryRecord | None = None
    reason: str | None = None


def check_options(given: Mapping[str, Any], known: type) -> None:
    """Refuse options that nobody reads: a misspelled one must not be passed over in silence.

    Raises:
        TypeError: As Python does for an argument that a function does not have.
    """
    unknown = given.keys() - known.__annotations__.keys()
    if unknown:
        raise TypeError(f"unknown options {sorted(unknown)}; known are {sorted(known.__annotations__)}")


def check_upsert(text: Any, options: Mapping[str, Any]) -> None:
    """Refuse values that no row may have: one bad row would be in the way of every list.

    Raises:
        ConfigurationError: A value of another type, or out of range.
        TypeError: An option that does not exist.
    """
    check_options(options, UpsertOptions)
    texts = {"text": text, "kind": options.get("kind", "fact")}
    texts |= {name: value for name in ("subject", "attribute") if (value := options.get(name)) is not None}
    for name, value in texts.items():
        if not isinstance(value, str):
            raise ConfigurationError(f"{name} must be a text, not {type(value).__name__}")
        if name in ("subject", "attribute") and not value.strip():
            raise ConfigurationError(f"{name} must not be blank")
    ordinal = options.get("ordinal")
    if ordinal is not None and (not isinstance(ordinal, int) or abs(ordinal) > MAX_ORDINAL):
        raise ConfigurationError(f"ordinal must be a whole number of at most {MAX_ORDINAL}, not {ordinal!r}")
    ttl = options.get("ttl")
    if ttl is not None and not (isinstance(ttl, timedelta) and timedelta(0) < ttl <= MAX_TTL):
        raise ConfigurationError(f"ttl must be a timedelta over zero and at most {MAX_TTL.days} days, not {ttl!r}")
    source = options.get("source")
    sources = source if isinstance(source, Sequence) else () if source is None else (source,)
    if isinstance(source, str) or not all(isinstance(one, MemorySource) for one in sources):
        raise ConfigurationError("source must be a MemorySource or several")
