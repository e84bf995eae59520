"""Exporting memories and bringing them back, as bodies for `drive`: edits, deletions, additions are recognised."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta

from langmem_harness.driving import Body
from langmem_harness.memory.erasing import Erasing
from langmem_harness.memory.export import ImportReport, MemoryExport, reads_the_same
from langmem_harness.memory.options import UpsertResult
from langmem_harness.memory.reading import Reading
from langmem_harness.memory.records import MemoryRecord, key_of_version
from langmem_harness.memory.scope import MemoryScope
from langmem_harness.memory.settings import MemorySettings
from langmem_harness.memory.writing import Writing


class Importing:
    """Everything goes through the one way in, so an import is redacted and admitted like anything else."""

    def __init__(self, settings: MemorySettings, reading: Reading, writing: Writing, erasing: Erasing) -> None:
        self._settings = settings
        self._reading = reading
        self._writing = writing
        self._erasing = erasing

    def export(self, scope: MemoryScope) -> Body[MemoryExport]:
        """Every current memory, newest first, and what each superseded."""
        records = yield from self._reading.list_all(scope)
        versions = yield from self._reading.superseded(scope, records)
        return MemoryExport(records=records, versions=versions)

    def import_all(self, scope: MemoryScope, export: MemoryExport) -> Body[ImportReport]:
        """Make the scope say what the export says, where the export says something."""
        outcomes: dict[str, list[str]] = {"added": [], "edited": [], "deleted": []}
        unchanged = 0
        refused: Counter[str] = Counter()
        present = {record.key for record in export.records}
        for key in sorted(export.listed - present):
            if (yield from self._reading.current(scope, key)) is not None:
                yield from self._erasing.delete(scope, key)
                outcomes["deleted"].append(key)
        drafts: list[tuple[MemoryRecord, MemoryRecord]] = []
        for record in export.records:
            draft = yield from self._writing.drafted_again(scope, record)
            if isinstance(draft, str):
                refused[draft] += 1
            else:
                drafts.append((record, draft))
        keys = {record.key: draft.key for record, draft in drafts}  # keys are of one scope: in another they are others
        for record, draft in drafts:
            outcome, told = yield from self._bring(scope, record.key, _linked(draft, keys), loosely=bool(export.listed))
            if outcome == "refused":
                refused[told] += 1
            elif outcome == "unchanged":
                unchanged += 1
            else:
                outcomes[outcome].append(told)
        restored = yield from self._bring_versions(scope, export.versions, keys, refused)
        return ImportReport(
            added=tuple(outcomes["added"]),
            edited=tuple(outcomes["edited"]),
            deleted=tuple(outcomes["deleted"]),
            unchanged=unchanged,
            restored=restored,
            refused=dict(refused),
        )

    def _bring(self, scope: MemoryScope, key: str, draft: MemoryRecord, *, loosely: bool) -> Body[tuple[str, str]]:
        """What was done with a record, and its key now (or why it was refused).

        A statement that is known here under its version but reads differently was edited. One that was superseded
        here after the export is old news. One that is not known at all is brought back as it was, and newest wins.
        """
        current = yield from self._reading.current(scope, draft.key)
        if current is None and key != draft.key:
            current = yield from self._reading.current(scope, key)  # the words made the key, and they were edited
        versions = [] if current is None else (yield from self._reading.versions(scope, current.key))
        known = [*versions] if current is None else [current, *versions]
        if current is not None and _reads_the_same(current, draft, loosely):
            return "unchanged", draft.key
        if any(one.version == draft.version and _reads_the_same(one, draft, loosely) for one in versions):
            return "unchanged", draft.key
        if current is None or all(one.version != draft.version for one in known):
            result = yield from self._writing.restore(draft)
            return _outcome(result, "added")
        result = yield from self._edit(scope, draft, current)
        if result.record is not None and result.record.key != current.key:
            yield from self._erasing.delete(scope, current.key, keep_said=True)  # the edited one rests on it
        return _outcome(result, "edited")

    def _edit(self, scope: MemoryScope, draft: MemoryRecord, current: MemoryRecord) -> Body[UpsertResult]:
        now = self._settings.clock()
        return (
            yield from self._writing.upsert(
                scope,
                draft.text,
                source=draft.sources,
                source_kind=draft.source_kind,
                kind=draft.kind,
                subject=draft.subject,
                attribute=draft.attribute,
                ttl=None if draft.expires_at is None else max(draft.expires_at - now, timedelta(microseconds=1)),
                explicit=True,
                # in a slot, an edit is the newest statement
                ordinal=draft.ordinal if current.subject is None else round(now.timestamp() * 1_000_000),
                derived_from=draft.derived_from,
                retracted=draft.retracted,
            )
        )

    def _bring_versions(
        self, scope: MemoryScope, versions: Sequence[MemoryRecord], keys: Mapping[str, str], refused: Counter[str]
    ) -> Body[int]:
        """Statements of the histories that are not here yet; only of memories that the export has too."""
        missing: list[MemoryRecord] = []
        known: dict[str, set[str]] = {}
        for version in versions:
            draft = yield from self._writing.drafted_again(scope, version)
            if isinstance(draft, str):
                refused[draft] += 1
                continue
            if draft.key != keys.get(version.key):
                continue
            if draft.key not in known:
                current = yield from self._reading.current(scope, draft.key)
                here = yield from self._reading.versions(scope, draft.key)
                # a memory that was not brought back has no history either
                known[draft.key] = set() if current is None else {one.version for one in here} | {current.version}
            if known[draft.key] and draft.version not in known[draft.key]:
                missing.append(_linked(draft, keys))
        if missing:
            yield from self._writing.restore_versions(missing)
        return len(missing)


def _linked(draft: MemoryRecord, keys: Mapping[str, str]) -> MemoryRecord:
    """The record with what it superseded and was concluded from under the keys of this scope."""

    def here(version_key: str) -> str:
        key = key_of_version(version_key)
        return f"{keys.get(key, key)}{version_key[len(key) :]}"

    return dataclasses.replace(
        draft,
        supersedes=None if draft.supersedes is None else here(draft.supersedes),
        derived_from=tuple(map(here, draft.derived_from)),
    )


def _reads_the_same(one: MemoryRecord, other: MemoryRecord, loosely: bool) -> bool:
    return one.text == other.text or (loosely and reads_the_same(one.text, other.text))


def _outcome(result: UpsertResult, done: str) -> tuple[str, str]:
    if result.record is None:
        return "refused", result.reason or "refused"
    return ("unchanged" if result.action in ("unchanged", "older") else done), result.record.key
