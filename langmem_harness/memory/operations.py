"""The steps behind `LongTermMemory`: each operation once, for both faces."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypedDict

from langgraph.store.base import BaseStore, GetOp, Item, Op, PutOp, SearchItem, SearchOp
from langgraph.store.memory import InMemoryStore

from langmem_harness.errors import ConfigurationError, NotFoundError
from langmem_harness.events import EventCallback, MemoryRefused, MemoryWritten, emit
from langmem_harness.layout import memory_links_namespace
from langmem_harness.memory.admission import AdmissionPolicy, find_refusal
from langmem_harness.memory.found import FoundBy, RecalledMemory, RecallResult, merge_layers
from langmem_harness.memory.records import (
    MemoryRecord,
    MemorySource,
    SourceKind,
    key_of_version,
    parse_source_kind,
    slot_key,
    text_key,
    version_of,
)
from langmem_harness.memory.scope import MemoryScope
from langmem_harness.memory.steps import Batch, Call, Steps
from langmem_harness.memory.upsert import UpsertAction, UpsertPlan, plan_upsert

SUMMARY = "summary"
"""Kind of the memories that sum up a conversation; a layer of their own in a recall."""

PAGE = 500
"""Items read at a time when everything of a scope is needed."""


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
        mmr_lambda: Variety: 1.0 is relevance only, 0.0 variety only. Default None: not asked for.
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
        limit: How many in all after removing doubles, 1 or more. Default 10.
        threshold: As in `SearchOptions`. Default None.
    """

    recent: int
    semantic: int
    summaries: int
    limit: int
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


class Operations:
    """Every operation as steps; holds settings, no state."""

    def __init__(
        self,
        store: BaseStore,
        *,
        policy: AdmissionPolicy,
        clock: Callable[[], datetime],
        on_event: EventCallback | None,
    ) -> None:
        self._lists_newest_first = not isinstance(store, InMemoryStore)  # which lists in the order of writing
        self._policy = policy
        self._clock = clock
        self._on_event = on_event

    # -- writing ------------------------------------------------------------------------------------------------

    def upsert(self, scope: MemoryScope, text: str, **options: Any) -> Steps[UpsertResult]:
        source_kind = parse_source_kind(options.get("source_kind", "user"))
        reason: str | None = find_refusal(
            text, self._policy, source_kind=source_kind, explicit=options.get("explicit", False)
        )
        if reason is not None:
            return self._refused(reason, source_kind)
        new = self._draft(scope, text, source_kind, options)
        if self._policy.validate is not None:
            validate = self._policy.validate
            reason = yield Call(lambda: validate(new))
            if reason is not None:
                return self._refused(reason, source_kind)
        current = yield from self._read(scope, new.key)
        if current is not None and current.has_expired(self._clock()):
            current = None
        neighbours: list[MemoryRecord] = []
        if current is None and new.subject is None and self._policy.near_duplicate_cosine is not None:
            neighbours = yield from self._near(scope, text, self._policy.near_duplicate_cosine)
        plan = plan_upsert(new, current, neighbours)
        operations = _writes(plan)
        if operations:
            yield Batch(operations)
        if plan.action != "unchanged":
            self._emit_written(plan.record, plan.action)
        return UpsertResult(action=plan.action, record=plan.record)

    def delete(self, scope: MemoryScope, key: str) -> Steps[MemoryRecord]:
        record = yield from self._read(scope, key)
        if record is None:
            raise _not_found(key)
        versions = yield from self._versions(scope, key)
        yield Batch(
            [
                PutOp(scope.memories, key, None),
                *(PutOp(scope.versions, version.version_key, None) for version in versions),
                *_unlinks([record, *versions]),
            ]
        )
        self._emit_written(record, "forgotten")
        return record

    # -- reading ------------------------------------------------------------------------------------------------

    def get(self, scope: MemoryScope, key: str) -> Steps[MemoryRecord]:
        record = yield from self._read(scope, key)
        if record is None or record.has_expired(self._clock()):
            raise _not_found(key)
        return record

    def list_all(self, scope: MemoryScope, *, kind: str | None = None) -> Steps[tuple[MemoryRecord, ...]]:
        items = yield from _all_items(scope.memories, None if kind is None else {"kind": kind})
        now = self._clock()
        records = [record for item in items if not (record := record_of(item, scope)).has_expired(now)]
        return tuple(sorted(records, key=lambda record: (-record.updated_at.timestamp(), record.key)))

    def history(self, scope: MemoryScope, key: str) -> Steps[tuple[MemoryRecord, ...]]:
        record = yield from self._read(scope, key)
        if record is None:
            raise _not_found(key)
        versions = yield from self._versions(scope, key)
        return (record, *sorted(versions, key=lambda version: (-version.ordinal, version.version)))

    def search(self, scope: MemoryScope, query: str, **options: Any) -> Steps[RecallResult]:
        top_k = options.get("top_k", 5)
        if top_k < 1:
            raise ConfigurationError(f"top_k must be 1 or more, not {top_k!r}")
        kind = options.get("kind")
        threshold = options.get("threshold", 0.7)
        filter = None if kind is None else {"kind": kind}
        if not query.strip():
            return (yield from self._newest(scope, top_k, filter))
        found = yield from self._searched(scope, query, top_k, filter, threshold)
        return (yield from self._with_outdated(scope, found))

    def recall(self, scope: MemoryScope, query: str, **options: Any) -> Steps[RecallResult]:
        recent, semantic = options.get("recent", 5), options.get("semantic", 3)
        summaries, limit = options.get("summaries", 2), options.get("limit", 10)
        if min(recent, semantic, summaries) < 0 or limit < 1:
            raise ConfigurationError("recent, semantic and summaries must be 0 or more, limit 1 or more")
        threshold = options.get("threshold")
        others: dict[str, Any] = {"kind": {"$ne": SUMMARY}}
        empty = RecallResult()
        newest = (yield from self._newest(scope, recent, others)) if recent else empty
        if not query.strip():  # nothing to compare with
            return merge_layers({"recent": newest}, limit)
        found = (yield from self._searched(scope, query, semantic, others, threshold)) if semantic else empty
        told = (
            (yield from self._searched(scope, query, summaries, {"kind": SUMMARY}, threshold)) if summaries else empty
        )
        merged = merge_layers({"semantic": found, "recent": newest, "summary": told}, limit)
        return (yield from self._with_outdated(scope, merged))

    def pinned(self, scope: MemoryScope, pins: Sequence[str]) -> Steps[list[MemoryRecord | None]]:
        """The statements with these version keys, current or superseded; None for those that were forgotten."""
        if not pins:
            return []
        items = yield Batch(
            [
                *(GetOp(scope.memories, key_of_version(pin)) for pin in pins),
                *(GetOp(scope.versions, pin) for pin in pins),
            ]
        )
        records: list[MemoryRecord | None] = []
        for pin, current, version in zip(pins, items, items[len(pins) :], strict=False):
            candidates = (
                record_of(item, scope, key=key_of_version(pin)) for item in (current, version) if item is not None
            )
            records.append(next((record for record in candidates if record.version_key == pin), None))
        return records

    # -- parts --------------------------------------------------------------------------------------------------

    def _draft(self, scope: MemoryScope, text: str, source_kind: SourceKind, options: dict[str, Any]) -> MemoryRecord:
        subject, attribute = options.get("subject"), options.get("attribute")
        if (subject is None) != (attribute is None):
            raise ConfigurationError("a slot needs both subject and attribute, or neither")
        retracted = options.get("retracted", False)
        if retracted and subject is None:
            raise ConfigurationError("only a slot can be retracted: give subject and attribute")
        now = self._clock()
        given = options.get("source")
        sources = () if given is None else (given,) if isinstance(given, MemorySource) else tuple(given)
        ordinal = options.get("ordinal")
        if ordinal is None:
            stated = max((source.stated_at for source in sources if source.stated_at), default=now)
            ordinal = round(stated.timestamp() * 1_000_000)
        kind = options.get("kind", "fact")
        ttl = options["ttl"] if "ttl" in options else self._policy.ttl.get(kind)
        return MemoryRecord(
            key=text_key(scope, text) if subject is None or attribute is None else slot_key(scope, subject, attribute),
            scope=scope,
            text=text,
            kind=kind,
            sources=sources,
            source_kind=source_kind,
            subject=subject,
            attribute=attribute,
            ordinal=ordinal,
            version=version_of(text, ordinal),
            derived_from=tuple(options.get("derived_from", ())),
            retracted=retracted,
            created_at=now,
            updated_at=now,
            expires_at=None if ttl is None else now + ttl,
        )

    def _read(self, scope: MemoryScope, key: str) -> Steps[MemoryRecord | None]:
        (item,) = yield Batch([GetOp(scope.memories, key)])
        return None if item is None else record_of(item, scope)

    def _versions(self, scope: MemoryScope, key: str) -> Steps[list[MemoryRecord]]:
        items = yield from _all_items(scope.versions, {"of": key})
        return [record_of(item, scope, key=key) for item in items]

    def _near(self, scope: MemoryScope, text: str, cosine: float) -> Steps[list[MemoryRecord]]:
        (items,) = yield Batch([SearchOp(scope.memories, None, 3, 0, text)])
        found = self._found(scope, items, None)
        return [
            hit.record
            for hit in found
            if hit.cosine is not None and hit.cosine >= cosine and hit.record.subject is None
        ]

    def _searched(
        self, scope: MemoryScope, query: str, top_k: int, filter: dict[str, Any] | None, threshold: float | None
    ) -> Steps[RecallResult]:
        (items,) = yield Batch([SearchOp(scope.memories, filter, top_k, 0, query)])
        return self._found(scope, items, threshold)

    def _newest(self, scope: MemoryScope, count: int, filter: dict[str, Any] | None) -> Steps[RecallResult]:
        if self._lists_newest_first:
            (items,) = yield Batch([SearchOp(scope.memories, filter, 2 * count, 0, None)])  # some may have expired
        else:
            items = yield from _all_items(scope.memories, filter)
        found = self._found(scope, items, None)
        newest = sorted(found, key=lambda hit: (-hit.record.updated_at.timestamp(), hit.record.key))
        return RecallResult(memories=tuple(newest[:count]), retrieval="recent")

    def _with_outdated(self, scope: MemoryScope, result: RecallResult) -> Steps[RecallResult]:
        """Mark what was concluded from a statement that is not the current one any more."""
        parents = list(dict.fromkeys(pin for found in result for pin in found.record.derived_from))
        if not parents:
            return result
        items = yield Batch([GetOp(scope.memories, key_of_version(pin)) for pin in parents])
        current = {record_of(item, scope).version_key for item in items if item is not None}
        memories = tuple(
            dataclasses.replace(found, outdated=not current.issuperset(found.record.derived_from)) for found in result
        )
        return dataclasses.replace(result, memories=memories)

    def _found(self, scope: MemoryScope, items: Iterable[SearchItem], threshold: float | None) -> RecallResult:
        now = self._clock()
        memories = []
        first: FoundBy | None = None
        for item in items:
            found_by = FoundBy.of(item)
            first = first or found_by
            record = record_of(item, scope)
            only_semantic = found_by.retrieval == "semantic"
            below = threshold is not None and found_by.cosine is not None and found_by.cosine < threshold
            if record.has_expired(now) or (only_semantic and below):
                continue
            memories.append(
                RecalledMemory(
                    record=record,
                    retrieval=found_by.retrieval,
                    score=found_by.score,
                    score_kind=found_by.score_kind,
                    cosine=found_by.cosine,
                )
            )
        return RecallResult(
            memories=tuple(memories),
            retrieval=first.retrieval if first else "recent",
            degraded=first.degraded if first else None,
        )

    def _refused(self, reason: str, source_kind: SourceKind) -> UpsertResult:
        emit(MemoryRefused(reason=reason, source_kind=source_kind), self._on_event)
        return UpsertResult(action="refused", reason=reason)

    def _emit_written(self, record: MemoryRecord, action: str) -> None:
        emit(
            MemoryWritten(
                key=record.key,
                action=action,
                source_kind=record.source_kind,
                supersedes=record.supersedes,
                thread_id=record.sources[-1].thread_id if record.sources else None,
            ),
            self._on_event,
        )


def record_of(item: Item, scope: MemoryScope, *, key: str | None = None) -> MemoryRecord:
    """The record of a stored item; key and scope are where it lies, whatever its value says."""
    return MemoryRecord.from_dict({**item.value, "key": key or item.key, "scope": scope.to_dict()})


def value_of(record: MemoryRecord) -> dict[str, Any]:
    """The stored form of a record: everything but its place."""
    value = record.to_dict()
    del value["key"], value["scope"]
    return value


def _writes(plan: UpsertPlan) -> list[Op]:
    operations: list[Op] = []
    if plan.writes_record:
        operations.append(PutOp(plan.record.scope.memories, plan.record.key, value_of(plan.record), ["text"]))
        operations += _links(plan.record)
    if (version := plan.version) is not None:
        value = {**value_of(version), "of": version.key}
        operations.append(PutOp(version.scope.versions, version.version_key, value, False))
        operations += _links(version)
    return operations


def _links(record: MemoryRecord) -> list[Op]:
    value = {"scope": record.scope.to_dict(), "key": record.key}
    return [PutOp(memory_links_namespace(thread), record.key, value, False) for thread in _threads([record])]


def _unlinks(records: Sequence[MemoryRecord]) -> list[Op]:
    return [PutOp(memory_links_namespace(thread), records[0].key, None) for thread in _threads(records)]


def _threads(records: Sequence[MemoryRecord]) -> list[str]:
    return list(dict.fromkeys(source.thread_id for record in records for source in record.sources if source.thread_id))


def _all_items(namespace: tuple[str, ...], filter: dict[str, Any] | None) -> Steps[list[SearchItem]]:
    """Every item of a namespace, page by page."""
    items: list[SearchItem] = []
    while True:
        (page,) = yield Batch([SearchOp(namespace, filter, PAGE, len(items), None)])
        items += page
        if len(page) < PAGE:
            return items


def _not_found(key: str) -> NotFoundError:
    return NotFoundError(f"no memory {key!r} in this scope")
