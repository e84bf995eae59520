"""Forgetting, as bodies for `drive`: a memory, an owner, a thread, what has expired. Always within named scopes."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from langgraph.store.base import GetOp, Op, PutOp

from langmem_harness.driving import Body
from langmem_harness.events import DataErased, MemoryWritten
from langmem_harness.layout import (
    IDLE_THREADS_NAMESPACE,
    episode_links_namespace,
    memory_links_namespace,
    promotion_namespace,
)
from langmem_harness.memory.past import Past
from langmem_harness.memory.reading import Reading, not_found
from langmem_harness.memory.records import MemoryRecord
from langmem_harness.memory.scope import MemoryScope
from langmem_harness.memory.settings import MemorySettings
from langmem_harness.memory.stored import put_current, put_version, record_of, remove_all
from langmem_harness.memory.utterances import episode_link_key
from langmem_harness.receipts import ErasureReceipt


class Erasing:
    """Every operation that removes something; each counts what it removed."""

    def __init__(self, settings: MemorySettings, reading: Reading) -> None:
        self._settings = settings
        self._reading = reading
        self._past = Past(settings)

    def delete(self, scope: MemoryScope, key: str, *, keep_said: bool = False) -> Body[ErasureReceipt]:
        """Forget one memory with its history, the links to it, and what was said in the messages it rests on."""
        current = yield from self._reading.current(scope, key)
        if current is None:
            raise not_found(key)
        statements = [current, *(yield from self._reading.versions(scope, key))]
        said = yield from self._forget_said(scope, [] if keep_said else statements)
        counts = yield from self._remove(scope, key, current)
        counts.update(said)
        left = yield from self._reading.current(scope, key)
        versions = yield from self._reading.versions(scope, key)
        remaining = {"memories": int(left is not None), "versions": len(versions)}
        return self._receipt({**scope.to_dict(), "key": key}, counts, remaining)

    def forget_all(self, scope: MemoryScope) -> Body[ErasureReceipt]:
        """Forget everything of exactly this scope, expired memories and histories without a memory included."""
        counts: Counter[str] = Counter()
        keys = {item.key for item in (yield from self._settings.backing.all_items(scope.memories))}
        keys |= {item.value["of"] for item in (yield from self._settings.backing.all_items(scope.versions))}
        for key in sorted(keys):
            counts += yield from self._remove(scope, key, (yield from self._reading.current(scope, key)))
        counts += yield from self._remove_said(scope)
        yield from self._remove_waiting({"scope": scope.to_dict()})
        remaining = {
            "episodes": len((yield from self._settings.backing.all_items(scope.episodes))),
            "memories": len((yield from self._settings.backing.all_items(scope.memories))),
            "versions": len((yield from self._settings.backing.all_items(scope.versions))),
        }
        return self._receipt(scope.to_dict(), counts, remaining)

    def purge(self, scope: MemoryScope) -> Body[ErasureReceipt]:
        """Remove what has expired."""
        counts: Counter[str] = Counter()
        now = self._settings.clock()
        for item in (yield from self._settings.backing.all_items(scope.memories)):
            record = record_of(item, scope)
            if record.has_expired(now):
                counts += yield from self._remove(scope, record.key, record)
        return self._receipt({**scope.to_dict(), "expired_before": now.isoformat()}, counts, {})

    def erase_thread(self, thread_id: str) -> Body[ErasureReceipt]:
        """Take a thread out of every memory that cites it; what cites nothing else goes.

        The thread is all that is named here: the links written beside each memory lead to the scopes.
        """
        counts: Counter[str] = Counter()
        for link in (yield from self._settings.backing.all_items(memory_links_namespace(thread_id))):
            scope = MemoryScope.from_dict(link.value["scope"])
            counts += yield from self._take_out(scope, link.value["key"], thread_id)
        counts += yield from self._remove_episodes(thread_id)
        read = yield from self._settings.backing.all_items(promotion_namespace(thread_id))
        yield self._settings.backing.batch([PutOp(promotion_namespace(thread_id), item.key, None) for item in read])
        yield from self._remove_waiting({"thread_id": thread_id})
        left = yield from self._settings.backing.all_items(memory_links_namespace(thread_id))
        left += yield from self._settings.backing.all_items(episode_links_namespace(thread_id))
        return self._receipt({"thread_id": thread_id}, counts, {"links": len(left)})

    def _remove_waiting(self, of: Mapping[str, Any]) -> Body[None]:
        """Nobody waits any more for the promotion of what is erased."""
        items = yield from self._settings.backing.all_items(IDLE_THREADS_NAMESPACE)
        gone = [item.key for item in items if of.items() <= dict(item.value).items()]
        yield self._settings.backing.batch([PutOp(IDLE_THREADS_NAMESPACE, key, None) for key in gone])

    def _forget_said(self, scope: MemoryScope, statements: Sequence[MemoryRecord]) -> Body[Counter[str]]:
        """Else the next thread would be told in the user's words what it must not know any more."""
        cited: dict[str, set[str]] = {}
        for source in (source for statement in statements for source in statement.sources):
            if source.thread_id is not None and source.message_id is not None:
                cited.setdefault(source.thread_id, set()).add(source.message_id)
        counts: Counter[str] = Counter()
        for thread_id, message_ids in cited.items():
            counts["episodes"] += yield from self._past.forget(scope, thread_id, message_ids)
        return +counts

    def _remove_said(self, scope: MemoryScope) -> Body[Counter[str]]:
        """Every utterance of an owner; the links below the threads last, because they lead to what is left."""
        said = yield from self._settings.backing.all_items(scope.episodes)
        named = yield from self._settings.backing.all_items(scope.episode_speakers)
        threads = dict.fromkeys(item.value["thread_id"] for item in said)
        words = [*(PutOp(scope.episodes, item.key, None) for item in said)]
        words += [PutOp(scope.episode_speakers, item.key, None) for item in named]
        yield self._settings.backing.batch(words)
        yield self._settings.backing.batch(
            [PutOp(episode_links_namespace(thread), episode_link_key(scope), None) for thread in threads]
        )
        return Counter(episodes=len(said))

    def _remove_episodes(self, thread_id: str) -> Body[Counter[str]]:
        links = episode_links_namespace(thread_id)
        counts: Counter[str] = Counter()
        for link in (yield from self._settings.backing.all_items(links)):
            scope = MemoryScope.from_dict(link.value["scope"])
            found = yield self._settings.backing.batch([GetOp(scope.episodes, key) for key in link.value["keys"]])
            yield self._settings.backing.batch(
                [
                    *(PutOp(scope.episodes, key, None) for key in link.value["keys"]),
                    *(PutOp(scope.episode_speakers, key, None) for key in link.value["speakers"]),
                    PutOp(links, link.key, None),
                ]
            )
            counts["episodes"] += sum(item is not None for item in found)  # a link may outlive what it leads to
        return counts

    # -- parts --------------------------------------------------------------------------------------------------

    def _remove(self, scope: MemoryScope, key: str, current: MemoryRecord | None) -> Body[Counter[str]]:
        versions = yield from self._reading.versions(scope, key)
        statements = [*versions] if current is None else [current, *versions]
        yield self._settings.backing.batch(remove_all(key, scope, statements))
        self._emit_forgotten(key, statements)
        return Counter(memories=0 if current is None else 1, versions=len(versions))

    def _take_out(self, scope: MemoryScope, key: str, thread_id: str) -> Body[Counter[str]]:
        current = yield from self._reading.current(scope, key)
        versions = yield from self._reading.versions(scope, key)
        kept = [left for version in versions if (left := without_thread(version, thread_id)) is not None]
        successor = None if current is None else without_thread(current, thread_id)
        if successor is None and kept:
            successor = max(kept, key=lambda version: version.ordinal)  # what was said elsewhere holds again
        statements = [*versions] if current is None else [current, *versions]
        operations: list[Op] = remove_all(key, scope, statements)
        if successor is not None:
            rewritten = [operation for version in kept for operation in put_version(version)]
            operations = _last_write_each([*operations, *rewritten, *put_current(successor)])
        yield self._settings.backing.batch(operations)
        self._emit_forgotten(key, statements)
        lost = current is not None and (successor is None or successor.version != current.version)
        return Counter(memories=int(lost), versions=len(versions) - len(kept), links=1)

    def _receipt(
        self, target: Mapping[str, str | None], counts: Mapping[str, int], remaining: Mapping[str, int]
    ) -> ErasureReceipt:
        left = {place: count for place, count in remaining.items() if count}
        receipt = ErasureReceipt(target=target, counts=dict(counts), remaining=left, erased_at=self._settings.clock())
        self._settings.emit(DataErased(receipt_id=receipt.id, counts=receipt.counts))
        return receipt

    def _emit_forgotten(self, key: str, statements: Sequence[MemoryRecord]) -> None:
        source_kind = statements[0].source_kind if statements else "user"
        self._settings.emit(MemoryWritten(key=key, action="forgotten", source_kind=source_kind))


def without_thread(record: MemoryRecord, thread_id: str) -> MemoryRecord | None:
    """The record without its sources in this thread; None when it was said nowhere else."""
    kept = tuple(source for source in record.sources if source.thread_id != thread_id)
    if len(kept) == len(record.sources):
        return record
    return dataclasses.replace(record, sources=kept) if kept else None


def _last_write_each(operations: Sequence[Op]) -> list[Op]:
    """One write per place, the last: what a batch does with several is up to the store."""
    places: dict[tuple[tuple[str, ...], str], Op] = {}
    for operation in operations:
        if isinstance(operation, PutOp):
            places[(operation.namespace, operation.key)] = operation
    return list(places.values())
