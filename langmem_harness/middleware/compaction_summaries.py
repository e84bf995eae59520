"""The summary records of a compaction: asked for when messages are left out, referred to from the graph state."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage

from langmem_harness.driving import Body
from langmem_harness.errors import RecordError
from langmem_harness.middleware.own_store import StoreChoice
from langmem_harness.summaries.calls import SummaryOutcome
from langmem_harness.summaries.ledger import SummaryLedger
from langmem_harness.summaries.record import SummaryRecord
from langmem_harness.summaries.service import SummaryService

logger = logging.getLogger("langmem_harness")


class CompactionSummaries:
    """The records of one middleware.

    Args:
        writer: Makes records; None: nobody does.
        policy: Name of the middleware. Records of others are not looked at.
        policy_fingerprint: Of its settings.
        store: Where records are kept.
    """

    def __init__(
        self, writer: SummaryService | None, *, policy: str, policy_fingerprint: str, store: StoreChoice
    ) -> None:
        self._writer = writer
        self._policy = policy
        self._policy_fingerprint = policy_fingerprint
        self._store = store

    @property
    def are_written(self) -> bool:
        """Whether anybody writes summaries."""
        return self._writer is not None

    def check_store(self, runtime: Any) -> None:
        """Say it when the run has another store than this middleware."""
        self._store.of(runtime)

    def asking(
        self,
        omitted: Sequence[BaseMessage],
        state: Any,
        runtime: Any,
        thread_id: str | None,
        *,
        history: Sequence[BaseMessage],
        ahead: bool = False,
    ) -> Body[SummaryOutcome | None]:
        """Ask for the record that stands for these messages; None when nobody writes summaries."""
        if self._writer is None or not omitted:
            return None
        outcome = yield from self._writer.serving(
            omitted,
            records=_carried(state),
            record_ids=self._referenced(state),
            ledger=self._ledger(runtime),
            thread_id=thread_id,
            policy=self._policy,
            policy_fingerprint=self._policy_fingerprint,
            history=history,
            ahead=ahead,
        )
        return outcome

    def usable(self, state: Any, runtime: Any, thread_id: str | None) -> Body[list[SummaryRecord]]:
        """Every record the state carries or refers to, as far as it is there and not stale, oldest first."""
        writer = self._writer
        if writer is None:
            return []
        records = _carried(state)
        ledger, ids = self._ledger(runtime), self._referenced(state)
        if ledger is not None and ids:
            try:
                records += yield from ledger.getting_many(ids)
            except Exception as error:  # noqa: BLE001 - any store; asked for after a failure that an event has reported
                logger.warning("earlier summaries could not be read: %s", type(error).__name__)
        return [
            record
            for record in records
            if record.thread_id == thread_id
            and writer.is_current(record, policy=self._policy, policy_fingerprint=self._policy_fingerprint)
        ]

    def update(self, record: SummaryRecord | None, state: Any, runtime: Any) -> dict[str, Any]:
        """What the state does not know yet: the id of a record that is in the store, else the record itself."""
        if record is None or record.id in (state.get("compaction_records") or {}):
            return {}
        if self._ledger(runtime) is None or record.thread_id is None:
            return {"compaction_records": {record.id: record.to_dict()}}
        if record.id in self._referenced(state):
            return {}
        return {"compaction_record_ids": {self._policy: [record.id]}}

    def _ledger(self, runtime: Any) -> SummaryLedger | None:
        store = self._store.of(runtime)
        return None if store is None else SummaryLedger(store)

    def _referenced(self, state: Any) -> Sequence[str]:
        """Ids in the state. Whoever may write to a state may write anything: what is no id is left out."""
        stored = (state.get("compaction_record_ids") or {}).get(self._policy)
        return [one for one in stored if isinstance(one, str)] if isinstance(stored, list | tuple) else ()


def _carried(state: Any) -> list[SummaryRecord]:
    return read_records((state.get("compaction_records") or {}).values())


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
