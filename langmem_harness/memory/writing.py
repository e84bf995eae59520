"""Writing memory, as bodies for `drive`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Unpack

from langgraph.store.base import Op

from langmem_harness.driving import Body, computed
from langmem_harness.errors import ConfigurationError, RefusedError
from langmem_harness.events import MemoryRefused, MemoryWritten
from langmem_harness.memory.admission import find_refusal
from langmem_harness.memory.chunks import PASSAGE_TOKENS
from langmem_harness.memory.options import UpsertOptions, UpsertResult, check_upsert
from langmem_harness.memory.reading import Reading
from langmem_harness.memory.records import (
    MemoryRecord,
    MemorySource,
    SourceKind,
    parse_source_kind,
    slot_key,
    text_key,
    version_of,
)
from langmem_harness.memory.scope import MemoryScope
from langmem_harness.memory.settings import MemorySettings, free_texts, with_free_texts
from langmem_harness.memory.stored import put_current, put_version
from langmem_harness.memory.upsert import UpsertPlan, plan_upsert
from langmem_harness.window.tokens import estimate_text_tokens


class Writing:
    """The one way in: redaction, admission, duplicates, newest wins, one batch."""

    def __init__(self, settings: MemorySettings, reading: Reading) -> None:
        self._settings = settings
        self._reading = reading

    def upsert(self, scope: MemoryScope, text: str, **options: Unpack[UpsertOptions]) -> Body[UpsertResult]:
        """Remember a statement, or say which rule refused it."""
        check_upsert(text, options)
        source_kind = parse_source_kind(options.get("source_kind", "user"))
        sources = _sources(options)
        thread_id = sources[-1].thread_id if sources else None
        reason: str | None = find_refusal(
            text, self._settings.policy, source_kind=source_kind, explicit=options.get("explicit", False)
        )
        if reason is not None:
            return self._refused(reason, source_kind, thread_id)
        try:
            new = yield from self._draft(scope, text, sources, source_kind, options)
        except RefusedError as refusal:  # the redactor's policy blocks the whole text
            return self._refused(refusal.reason, source_kind, thread_id)
        return (yield from self._write(scope, new, thread_id))

    def drafted_again(self, scope: MemoryScope, record: MemoryRecord) -> Body[MemoryRecord | str]:
        """An exported record as it may be written to this scope, or the name of the rule that refuses it.

        Dates, order and version are those of the record; key and texts are made anew, redacted.
        """
        reason: str | None = find_refusal(
            record.text, self._settings.policy, source_kind=record.source_kind, explicit=True
        )
        if record.has_expired(self._settings.clock()):
            reason = reason or "expired"
        if reason is not None:
            return reason
        try:
            texts = yield from self._settings.redacted(
                [record.kind, *free_texts(record)], surface="memory", refuse=True
            )
        except RefusedError as refusal:
            return refusal.reason
        clean = dataclasses.replace(with_free_texts(record, texts[1:]), kind=texts[0] or record.kind)
        has_slot = bool((clean.subject or "").strip() and (clean.attribute or "").strip())
        return dataclasses.replace(
            clean,
            scope=scope,
            key=_key_of(scope, clean.text, clean.subject, clean.attribute),
            subject=clean.subject if has_slot else None,
            attribute=clean.attribute if has_slot else None,
            retracted=clean.retracted and has_slot,
            version=record.version if clean.text == record.text else version_of(clean.text, clean.ordinal),
        )

    def restore(self, record: MemoryRecord) -> Body[UpsertResult]:
        """Write a record that was drafted again; duplicates and newest wins are settled as always."""
        return (yield from self._write(record.scope, record, record.source.thread_id, merges_near=False))

    def restore_versions(self, versions: Sequence[MemoryRecord]) -> Body[None]:
        """Put statements that were drafted again into the histories of their keys."""
        yield self._settings.backing.batch([operation for version in versions for operation in put_version(version)])
        for key in dict.fromkeys(version.key for version in versions):
            yield from self._settle(versions[0].scope, key)

    def _write(
        self, scope: MemoryScope, new: MemoryRecord, thread_id: str | None, *, merges_near: bool = True
    ) -> Body[UpsertResult]:
        source_kind = new.source_kind
        validate = self._settings.policy.validate
        if validate is not None and (reason := (yield computed(lambda: validate(new)))) is not None:
            return self._refused(reason, source_kind, thread_id)
        plan = yield from self._planned(scope, new, merges_near=merges_near)
        operations = _writes(plan)
        if operations:
            yield self._settings.backing.batch(operations)
        if plan.record.subject is not None and plan.action in ("added", "superseded", "older"):
            yield from self._settle(scope, plan.record.key)
        if plan.action != "unchanged":
            self._settings.emit(
                MemoryWritten(
                    key=plan.record.key,
                    action=plan.action,
                    source_kind=source_kind,
                    supersedes=plan.record.supersedes if plan.action == "superseded" else None,
                    thread_id=thread_id,
                )
            )
        return UpsertResult(action=plan.action, record=plan.record)

    def _planned(self, scope: MemoryScope, new: MemoryRecord, *, merges_near: bool) -> Body[UpsertPlan]:
        current = yield from self._reading.current(scope, new.key)
        if current is not None and current.has_expired(self._settings.clock()):
            current = None
        cosine = self._settings.policy.near_duplicate_cosine
        neighbours: list[MemoryRecord] = []
        # A long text is compared by its words only: its vectors are of passages, and two texts may share one.
        merges_near = merges_near and cosine is not None and estimate_text_tokens(new.text) <= PASSAGE_TOKENS
        if merges_near and current is None and new.subject is None and cosine is not None:
            neighbours = yield from self._reading.near(scope, new.text, cosine)
        return plan_upsert(new, current, neighbours)

    def _settle(self, scope: MemoryScope, key: str) -> Body[None]:
        """Make the newest statement of a slot the current one, whoever wrote at the same time.

        Stores have no compare-and-set. Every statement is in the history before this looks, so each of two racing
        writers sees at least its own and everything written before; the last one to look puts the winner.
        """
        while True:
            current = yield from self._reading.current(scope, key)
            versions = yield from self._reading.versions(scope, key)
            if current is None or not versions:
                return  # forgotten in the meantime
            winner = max(versions, key=lambda version: version.ordinal)
            if winner.ordinal <= current.ordinal:
                return
            yield self._settings.backing.batch(put_current(winner))

    def _draft(
        self,
        scope: MemoryScope,
        text: str,
        sources: tuple[MemorySource, ...],
        source_kind: SourceKind,
        options: UpsertOptions,
    ) -> Body[MemoryRecord]:
        """The statement as a record, redacted; its key is made from the redacted text."""
        kind = options.get("kind", "fact")
        texts = [text, kind, options.get("subject"), options.get("attribute"), *(source.quote for source in sources)]
        clean = yield from self._settings.redacted(texts, surface="memory", refuse=True)
        text, kind, (subject, attribute, *quotes) = clean[0] or "", clean[1] or "", clean[2:]
        sources = tuple(dataclasses.replace(at, quote=quote) for at, quote in zip(sources, quotes, strict=True))
        if (subject is None) != (attribute is None):
            raise ConfigurationError("a slot needs both subject and attribute, or neither")
        retracted = options.get("retracted", False)
        if retracted and subject is None:
            raise ConfigurationError("only a slot can be retracted: give subject and attribute")
        now = self._settings.clock()
        ordinal = options.get("ordinal")
        if ordinal is None:
            stated_at = max((source.stated_at for source in sources if source.stated_at), default=now)
            ordinal = round(stated_at.timestamp() * 1_000_000)
        ttl = options["ttl"] if "ttl" in options else self._settings.policy.ttl.get(kind)
        return MemoryRecord(
            key=_key_of(scope, text, subject, attribute),
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

    def _refused(self, reason: str, source_kind: SourceKind, thread_id: str | None) -> UpsertResult:
        self._settings.emit(MemoryRefused(reason=reason, source_kind=source_kind, thread_id=thread_id))
        return UpsertResult(action="refused", reason=reason)


def _key_of(scope: MemoryScope, text: str, subject: str | None, attribute: str | None) -> str:
    return text_key(scope, text) if subject is None or attribute is None else slot_key(scope, subject, attribute)


def _sources(options: UpsertOptions) -> tuple[MemorySource, ...]:
    given = options.get("source")
    if given is None:
        return ()
    return (given,) if isinstance(given, MemorySource) else tuple(given)


def _writes(plan: UpsertPlan) -> list[Op]:
    operations: list[Op] = []
    for version in plan.versions:
        operations += put_version(version)
    if plan.writes_record:
        operations += put_current(plan.record)
    return operations
