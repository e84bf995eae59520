"""Summary records in compaction: which ones a run knows, and what is asked for when messages are left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage

from langmem_harness.errors import RecordError
from langmem_harness.summaries.identities import identities
from langmem_harness.summaries.record import SummaryRecord
from langmem_harness.window.marker import marker_message


def read_records(values: Iterable[Mapping[str, Any]]) -> list[SummaryRecord]:
    """The records in a graph state; one that a newer version wrote, or that is damaged, is as good as none."""
    records = []
    for value in values:
        try:
            record = SummaryRecord.from_dict(value)
        except RecordError:
            continue  # it is only looked for; the messages are there, and a new record can be written
        if record.verify():
            records.append(record)
    return records


def find_record(records: Iterable[SummaryRecord], messages: Sequence[BaseMessage]) -> SummaryRecord | None:
    """The newest record that covers exactly these messages, as they are now."""
    wanted = identities(messages)
    return next(
        (
            record
            for record in reversed(list(records))
            if list(zip(record.source_message_ids, record.source_hashes, strict=True)) == wanted
        ),
        None,
    )


def marker_for(omitted: int, more: int, record: SummaryRecord | None, *, max_tokens: int) -> BaseMessage | None:
    """The marker for a plan that leaves `omitted` messages out, and `more` on top of it; None when there are none."""
    if not omitted + more:
        return None
    if record is None:
        return marker_message(omitted + more)
    return marker_message(
        omitted + more,
        summary_id=record.id,
        summary=record.content,
        facts=record.facts,
        summarized=omitted,
        max_tokens=max_tokens,
    )
