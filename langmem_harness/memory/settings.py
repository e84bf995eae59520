"""What every operation on memory needs to know besides the scope."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from langmem_harness.driving import Body, computed
from langmem_harness.errors import RefusedError
from langmem_harness.events import EventCallback, MemoryEvent, SecretsRedacted, emit
from langmem_harness.memory.admission import AdmissionPolicy
from langmem_harness.memory.backing import Backing
from langmem_harness.memory.records import MemoryRecord

BLOCKED = "[REDACTED]"
"""Stands for a text whose contents the redactor's policy blocks."""


def utc_now() -> datetime:
    """The current time of the system, aware UTC."""
    return datetime.now(UTC)


class TextRedactor(Protocol):
    """Takes secrets and personal data out of a text. Implemented by `langmem_harness.redaction.Redactor`."""

    def redact(self, text: str) -> tuple[str, Mapping[str, int]]:
        """The text without them, and how many of each kind were taken out. Redacting again changes nothing.

        Raises:
            RefusedError: The policy blocks the whole text.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class MemorySettings:
    """Settings of one `LongTermMemory`.

    Attributes:
        backing: The store.
        policy: What is admitted.
        redactor: Applied before embedding and storing, to queries, and to everything that is read; None: off.
        clock: Returns the current time, aware UTC.
        on_event: Gets every event.
    """

    backing: Backing
    policy: AdmissionPolicy
    redactor: TextRedactor | None
    clock: Callable[[], datetime]
    on_event: EventCallback | None

    def emit(self, event: MemoryEvent) -> None:
        """Send an event."""
        emit(event, self.on_event)

    def redacted(self, texts: Sequence[str | None], *, surface: str, refuse: bool = False) -> Body[list[str | None]]:
        """The texts without secrets; one event says how many of each kind were taken out.

        Args:
            texts: None stays None.
            surface: Where they were going: ``"memory"``, ``"query"``, ``"recall"``.
            refuse: Whether a text that the policy blocks raises; else it becomes `BLOCKED`, so that one bad row or
                question does not stop a turn.

        Raises:
            RefusedError: The policy blocks one of the texts and `refuse` is set.
        """
        if self.redactor is None:
            return list(texts)
        redactor = self.redactor
        clean, findings = yield computed(lambda: _redact_all(redactor, texts, refuse=refuse))
        if findings:
            self.emit(SecretsRedacted(surface=surface, findings=findings))
        return clean  # type: ignore[no-any-return]

    def redacted_records(self, records: Iterable[MemoryRecord]) -> Body[list[MemoryRecord]]:
        """The records as they may be shown: rows written before redaction was on are redacted now."""
        records = list(records)
        texts = [text for record in records for text in free_texts(record)]
        clean = iter((yield from self.redacted(texts, surface="recall")))
        return [with_free_texts(record, [next(clean) for _ in free_texts(record)]) for record in records]


def free_texts(record: MemoryRecord) -> list[str | None]:
    """Every text of a record that somebody wrote."""
    return [record.text, record.subject, record.attribute, *(source.quote for source in record.sources)]


def with_free_texts(record: MemoryRecord, texts: Sequence[str | None]) -> MemoryRecord:
    """The record with these texts in the order of `free_texts`; the same record when nothing changes."""
    text, subject, attribute, *quotes = texts
    sources = tuple(
        dataclasses.replace(source, quote=quote) for source, quote in zip(record.sources, quotes, strict=True)
    )
    changed = dataclasses.replace(record, text=text or "", subject=subject, attribute=attribute, sources=sources)
    return record if changed == record else changed


def _redact_all(
    redactor: TextRedactor, texts: Sequence[str | None], *, refuse: bool
) -> tuple[list[str | None], dict[str, int]]:
    total: Counter[str] = Counter()
    clean: list[str | None] = []
    for text in texts:
        try:
            redacted, findings = (None, {}) if text is None else redactor.redact(text)
        except RefusedError as refusal:
            if refuse:
                raise
            redacted, findings = BLOCKED, {refusal.reason: 1}
        clean.append(redacted)
        total.update(findings)
    return clean, dict(total)
