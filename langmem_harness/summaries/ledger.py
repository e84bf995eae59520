"""`SummaryLedger`: every summary record of a thread, with the messages it stands for."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeAlias, TypedDict, Unpack, cast

from langchain_core.messages import BaseMessage, message_to_dict, messages_from_dict
from langgraph.store.base import BaseStore, GetOp, Item, Op, PutOp, SearchOp

from langmem_harness.driving import Ask, Body, adrive, drive
from langmem_harness.errors import NotFoundError, RecordError
from langmem_harness.layout import summaries_namespace, thread_namespace
from langmem_harness.summaries.identities import identities
from langmem_harness.summaries.record import (
    StalenessReport,
    SummaryKind,
    SummaryPurpose,
    SummaryRecord,
    check_staleness,
    thread_of,
)
from langmem_harness.summaries.spending import Spending
from langmem_harness.window.messages import canonical_json, text_hash

logger = logging.getLogger("langmem_harness")

_PAGE = 500


class InUse(TypedDict, total=False):
    """What a record is checked against; what is left out is not checked."""

    policy_fingerprint: str | None
    prompt_version: str | None
    model: str | None
    ttl: timedelta | None
    now: datetime | None


Records: TypeAlias = list[SummaryRecord]
Items: TypeAlias = list[Item]


class SummaryLedger:
    """Summary records in a LangGraph store, under their thread.

    Each record is written once, under its content-derived id: writing it again changes nothing. Beside the records lie
    the messages they cover, each distinct message once per thread, so that `sources` gives them as they were even after
    the thread was edited. Both are erased with the thread's namespaces.

    Args:
        store: Any store; None keeps nothing here: records then live in the graph state only, and are given to the
            methods as `records`.
        keep_sources: Whether covered messages are copied. Without copies `sources` reads from the messages it is given.
        records: Records that are not in the store, such as those of a graph state.
    """

    def __init__(
        self, store: BaseStore | None = None, *, keep_sources: bool = True, records: Sequence[SummaryRecord] = ()
    ) -> None:
        self._store = store
        self._keep_sources = keep_sources
        self._carried = {record.id: record for record in records}

    @property
    def store(self) -> BaseStore | None:
        """Where the records are."""
        return self._store

    # -- faces ------------------------------------------------------------------------------------------------------

    def list(
        self, thread_id: str, *, purpose: SummaryPurpose | None = None, kind: SummaryKind | None = None
    ) -> Records:
        """All records of a thread, oldest first, ties by id; ``[]`` for an unknown thread."""
        return drive(self.listing(thread_id, purpose=purpose, kind=kind))

    async def alist(
        self, thread_id: str, *, purpose: SummaryPurpose | None = None, kind: SummaryKind | None = None
    ) -> Records:
        """Async twin of `list`."""
        return await adrive(self.listing(thread_id, purpose=purpose, kind=kind))

    def get(self, record_id: str) -> SummaryRecord | None:
        """One record; None when there is none with this id."""
        return drive(self._getting(record_id))

    async def aget(self, record_id: str) -> SummaryRecord | None:
        """Async twin of `get`."""
        return await adrive(self._getting(record_id))

    def sources(self, record_id: str, messages: Sequence[BaseMessage] = ()) -> Sequence[BaseMessage]:
        """The messages a record covers, as they were when it was made, oldest first.

        Args:
            record_id: The record.
            messages: The thread, for what was not copied: used for a message only if it still says the same.

        Raises:
            NotFoundError: There is no such record, or one of its messages is neither stored nor given unchanged.
        """
        return drive(self._reading_sources(record_id, messages))

    async def asources(self, record_id: str, messages: Sequence[BaseMessage] = ()) -> Sequence[BaseMessage]:
        """Async twin of `sources`."""
        return await adrive(self._reading_sources(record_id, messages))

    def lineage(self, record_id: str) -> Sequence[SummaryRecord]:
        """The record, the one it extends, and so on to the one made from messages alone.

        Raises:
            NotFoundError: There is no such record.
        """
        return drive(self._tracing(record_id))

    async def alineage(self, record_id: str) -> Sequence[SummaryRecord]:
        """Async twin of `lineage`."""
        return await adrive(self._tracing(record_id))

    def check(self, record_id: str, messages: Sequence[BaseMessage], **in_use: Unpack[InUse]) -> StalenessReport:
        """Whether a record may still stand in for its messages, with every reason why not; see `check_staleness`.

        Args:
            record_id: The record.
            messages: The thread as it is now.
            **in_use: What to check against: ``policy_fingerprint``, ``prompt_version``, ``model``, ``ttl``, ``now``.

        Raises:
            NotFoundError: There is no such record.
        """
        return check_staleness(_found(self.get(record_id), record_id), messages, **in_use)

    async def acheck(self, record_id: str, messages: Sequence[BaseMessage], **in_use: Unpack[InUse]) -> StalenessReport:
        """Async twin of `check`."""
        return check_staleness(_found(await self.aget(record_id), record_id), messages, **in_use)

    def spending(self, thread_id: str) -> Spending:
        """What the summaries of a thread cost so far, attempts that failed included."""
        return drive(self.totaling(thread_id))

    async def aspending(self, thread_id: str) -> Spending:
        """Async twin of `spending`."""
        return await adrive(self.totaling(thread_id))

    def put(self, record: SummaryRecord, messages: Sequence[BaseMessage] = ()) -> None:
        """Write a record, and the messages it covers that are not there yet, in one batch.

        Args:
            record: The record; one without a thread is kept in this object only.
            messages: Covered messages; those a parent record covers may be left out.
        """
        drive(self.writing(record, messages))

    async def aput(self, record: SummaryRecord, messages: Sequence[BaseMessage] = ()) -> None:
        """Async twin of `put`."""
        await adrive(self.writing(record, messages))

    # -- bodies -----------------------------------------------------------------------------------------------------

    def totaling(self, thread_id: str) -> Body[Spending]:
        """Body of `spending`."""
        records = yield from self.listing(thread_id)
        failed = yield from self.failed_spending(thread_id)
        return Spending.of_records(records).plus(failed.values())

    def failed_spending(self, thread_id: str) -> Body[Mapping[str, Spending]]:
        """What attempts without a record cost: the sum of each process, by its key."""
        found: dict[str, Spending] = {}
        for item in (yield from self._searching(_failures_namespace(thread_id))):
            usage, cost = item.value.get("usage"), item.value.get("cost")
            if isinstance(usage, Mapping):
                found[item.key] = Spending(
                    usage={str(name): int(count) for name, count in usage.items()},
                    cost=None if cost is None else float(cost),
                )
        return found

    def keeping_failed(self, thread_id: str, key: str, total: Spending) -> Body[None]:
        """Write down the sum of one process, in the place of what it was before."""
        if self._store is not None:
            value = {"usage": dict(total.usage), "cost": total.cost}
            yield self._batch([PutOp(_failures_namespace(thread_id), key, value, index=False)])

    def listing(
        self, thread_id: str, *, purpose: SummaryPurpose | None = None, kind: SummaryKind | None = None
    ) -> Body[Records]:
        """Body of `list`."""
        records = {one.id: one for one in self._carried.values() if one.thread_id == thread_id}
        for item in (yield from self._searching(summaries_namespace(thread_id))):
            record = _parse(item)
            if record is not None and record.thread_id == thread_id:
                records[record.id] = record
        chosen = [one for one in records.values() if purpose in (None, one.purpose) and kind in (None, one.kind)]
        return sorted(chosen, key=lambda record: (record.created_at, record.id))

    def getting_many(self, record_ids: Sequence[str]) -> Body[Records]:
        """The records with these ids, in their order, read in one batch; those that are not there are left out."""
        places = [(record_id, thread_of(record_id)) for record_id in record_ids if record_id not in self._carried]
        reads = [
            GetOp(summaries_namespace(thread_id), _record_key(record_id))
            for record_id, thread_id in places
            if thread_id is not None
        ]
        found = dict(self._carried)
        if reads and self._store is not None:
            items = yield self._batch(reads)
            found.update({one.id: one for item in items if item is not None and (one := _parse(item)) is not None})
        return [found[record_id] for record_id in record_ids if record_id in found]

    def writing(self, record: SummaryRecord, messages: Sequence[BaseMessage]) -> Body[None]:
        """Body of `put`."""
        if self._store is None or record.thread_id is None:
            self._carried[record.id] = record
            return
        operations: list[Op] = []
        if self._keep_sources:
            namespace = _sources_namespace(record.thread_id)
            operations = [
                PutOp(namespace, key, {"message": body}, index=False)
                for key, body in {_source_key(*named): _dump(one) for named, one in _named(messages)}.items()
            ]
        # The record last: a store that applies operations one by one then never has a record without its sources.
        namespace = summaries_namespace(record.thread_id)
        operations.append(PutOp(namespace, _record_key(record.id), record.to_dict(), index=False))
        yield self._batch(operations)

    def _getting(self, record_id: str) -> Body[SummaryRecord | None]:
        found = yield from self.getting_many([record_id])
        return found[0] if found and found[0].id == record_id else None

    def _reading_sources(self, record_id: str, messages: Sequence[BaseMessage]) -> Body[Sequence[BaseMessage]]:
        record = _found((yield from self._getting(record_id)), record_id)
        known = dict(_named(messages))
        wanted = record.sources
        if self._store is not None and record.thread_id is not None:
            namespace = _sources_namespace(record.thread_id)
            absent = [named for named in wanted if named not in known]
            items = yield self._batch([GetOp(namespace, _source_key(*named)) for named in absent])
            known.update({named: _load(item) for named, item in zip(absent, items, strict=True) if item is not None})
        lost = sum(named not in known for named in wanted)
        if lost:
            raise NotFoundError(f"{lost} of {len(wanted)} covered messages are neither stored nor given unchanged")
        return [known[named] for named in wanted]

    def _tracing(self, record_id: str) -> Body[Sequence[SummaryRecord]]:
        record = _found((yield from self._getting(record_id)), record_id)
        line = [record]
        seen = {record.id}
        while record.parent_id is not None and record.parent_id not in seen:
            parent = yield from self._getting(record.parent_id)
            if parent is None:
                break
            line.append(parent)
            seen.add(parent.id)
            record = parent
        return line

    def _searching(self, namespace: tuple[str, ...]) -> Body[Items]:
        """Everything in a namespace."""
        items: Items = []
        while self._store is not None:
            (page,) = yield self._batch([SearchOp(namespace_prefix=namespace, limit=_PAGE, offset=len(items))])
            items += page
            if len(page) < _PAGE:
                break
        return items

    def _batch(self, operations: Sequence[Op]) -> Ask:
        store = cast("BaseStore", self._store)
        return Ask(do=lambda: store.batch(operations), ado=lambda: store.abatch(operations))


def _sources_namespace(thread_id: str) -> tuple[str, ...]:
    return thread_namespace(thread_id, "summary_sources")


def _failures_namespace(thread_id: str) -> tuple[str, ...]:
    return thread_namespace(thread_id, "summary_failures")


def _record_key(record_id: str) -> str:
    return record_id.rpartition("/")[2]


def _source_key(identity: str, hashed: str) -> str:
    return text_hash(canonical_json([identity, hashed])).partition(":")[2]


def _named(messages: Sequence[BaseMessage]) -> list[tuple[tuple[str, str], BaseMessage]]:
    return list(zip(identities(messages), messages, strict=True))


def _dump(message: BaseMessage) -> str:
    """A message as ASCII JSON: every store can keep that, whatever characters the message has."""
    return json.dumps(message_to_dict(message), default=repr)


def _load(item: Item) -> BaseMessage:
    return messages_from_dict([json.loads(item.value["message"])])[0]


def _parse(item: Item) -> SummaryRecord | None:
    """The record in an item; one that cannot be read is left out with a warning: it must not stop a model call."""
    value: Mapping[str, Any] = item.value
    try:
        record = SummaryRecord.from_dict(value)
    except RecordError as error:
        logger.warning("a stored summary record cannot be read and is left out: %s", error)
        return None
    if not record.verify():
        logger.warning("a stored summary record was changed after it was written and is left out: %s", record.id)
        return None
    return record


def _found(record: SummaryRecord | None, record_id: str) -> SummaryRecord:
    if record is None:
        raise NotFoundError(f"there is no summary record {record_id!r}")
    return record
