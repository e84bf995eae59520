"""Bringing exported memories back, as bodies for `drive`: edits, deletions and additions are recognised."""

from __future__ import annotations

from collections import Counter

from langmem_harness.driving import Body
from langmem_harness.memory.erasing import Erasing
from langmem_harness.memory.export import ImportReport, MemoryExport, reads_the_same
from langmem_harness.memory.reading import Reading
from langmem_harness.memory.records import MemoryRecord
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

    def import_all(self, scope: MemoryScope, export: MemoryExport) -> Body[ImportReport]:
        """Make the scope say what the export says, where the export says something."""
        added, edited, deleted = [], [], []
        unchanged = 0
        refused: Counter[str] = Counter()
        present = {record.key for record in export.records}
        for key in sorted(export.listed - present):
            if (yield from self._reading.current(scope, key)) is not None:
                yield from self._erasing.delete(scope, key)
                deleted.append(key)
        for record in export.records:
            current = yield from self._reading.current(scope, record.key)
            if current is not None and reads_the_same(current.text, record.text):
                unchanged += 1
                continue
            written, reason = yield from self._write(scope, record, current)
            if written is None:
                refused[reason] += 1
            elif current is None:
                added.append(written)
            else:
                edited.append(written)
        return ImportReport(
            added=tuple(added),
            edited=tuple(edited),
            deleted=tuple(deleted),
            unchanged=unchanged,
            refused=dict(refused),
        )

    def _write(
        self, scope: MemoryScope, record: MemoryRecord, current: MemoryRecord | None
    ) -> Body[tuple[str | None, str]]:
        now = self._settings.clock()
        if record.has_expired(now):
            return None, "expired"
        is_new_position = current is not None and current.subject is not None  # an edit is the newest statement
        result = yield from self._writing.upsert(
            scope,
            record.text,
            source=record.sources,
            source_kind="user" if record.source_kind == "user" else "import",
            kind=record.kind,
            subject=record.subject,
            attribute=record.attribute,
            ttl=None if record.expires_at is None else record.expires_at - now,
            explicit=True,
            ordinal=round(now.timestamp() * 1_000_000) if is_new_position else record.ordinal,
            derived_from=record.derived_from,
            retracted=record.retracted,
        )
        if result.record is None:
            return None, result.reason or "refused"
        if current is not None and result.record.key != current.key:  # the words made the key, so it is another one
            yield from self._erasing.delete(scope, current.key)
        return result.record.key, ""
