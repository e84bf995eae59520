"""Reading memory, as bodies for `drive`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, Unpack

from langgraph.store.base import GetOp, SearchItem, SearchOp

from langmem_harness.driving import Body
from langmem_harness.errors import ConfigurationError, NotFoundError
from langmem_harness.memory.backing import FoundItems
from langmem_harness.memory.evidence import content_words
from langmem_harness.memory.found import NO_INDEX, FoundBy, Layer, MemoryRecall, RecalledMemory, merge_layers
from langmem_harness.memory.options import RecallOptions, SearchOptions, check_options
from langmem_harness.memory.past import Past
from langmem_harness.memory.records import MemoryRecord, is_key, key_of_version
from langmem_harness.memory.relevance import is_relevant
from langmem_harness.memory.scope import MemoryScope
from langmem_harness.memory.settings import MemorySettings
from langmem_harness.memory.stored import record_of
from langmem_harness.memory.utterances import record_of_stored_utterance, record_of_utterance

SUMMARY = "summary"
"""Kind of the memories that sum up a conversation; a layer of their own in a recall."""

DEFAULT_TOP_K = 5
DEFAULT_THRESHOLD = 0.7


class Reading:
    """Every reading operation; what comes out is redacted and has not expired."""

    def __init__(self, settings: MemorySettings) -> None:
        self._settings = settings

    def get(self, scope: MemoryScope, key: str) -> Body[MemoryRecord]:
        """One memory."""
        record = yield from self.current(scope, key)
        if record is None or record.has_expired(self._settings.clock()):
            raise not_found(key)
        (shown,) = yield from self._settings.redacted_records([record])
        return shown

    def list_all(self, scope: MemoryScope, *, kind: str | None = None) -> Body[tuple[MemoryRecord, ...]]:
        """Every memory, newest first, ties by key."""
        items = yield from self._settings.backing.all_items(scope.memories, None if kind is None else {"kind": kind})
        now = self._settings.clock()
        records = [record for item in items if not (record := record_of(item, scope)).has_expired(now)]
        shown = yield from self._settings.redacted_records(records)
        return tuple(sorted(shown, key=_newest_first))

    def history(self, scope: MemoryScope, key: str) -> Body[tuple[MemoryRecord, ...]]:
        """The current memory, then every other statement under its key, newest first."""
        record = yield from self.current(scope, key)
        if record is None:
            raise not_found(key)
        versions = yield from self.versions(scope, key)
        others = [version for version in versions if version.version != record.version]
        others.sort(key=lambda version: (-version.ordinal, version.version))
        return tuple((yield from self._settings.redacted_records([record, *others])))

    def superseded(self, scope: MemoryScope, records: Iterable[MemoryRecord]) -> Body[tuple[MemoryRecord, ...]]:
        """The statements that these current memories superseded, by key, newest first."""
        current = {record.key: record.version for record in records}
        items = yield from self._settings.backing.all_items(scope.versions)
        found = [record_of(item, scope, key=item.value["of"]) for item in items if item.value["of"] in current]
        earlier = [version for version in found if version.version != current[version.key]]
        earlier.sort(key=lambda version: (version.key, -version.ordinal, version.version))
        return tuple((yield from self._settings.redacted_records(earlier)))

    def search(self, scope: MemoryScope, query: str, **options: Unpack[SearchOptions]) -> Body[MemoryRecall]:
        """The best memories for a query; the newest ones when the query is blank."""
        check_options(options, SearchOptions)
        top_k = options.get("top_k", DEFAULT_TOP_K)
        if top_k < 1:
            raise ConfigurationError(f"top_k must be 1 or more, not {top_k!r}")
        kind = options.get("kind")
        filter = None if kind is None else {"kind": kind}
        if not query.strip():
            return (yield from self._shown(scope, (yield from self._newest(scope, top_k, filter))))
        query = yield from self._redacted_query(query)
        threshold = options.get("threshold", DEFAULT_THRESHOLD)
        mmr_lambda = options.get("mmr_lambda")
        found = yield from self._searched(scope, query, top_k, filter, threshold, mmr_lambda)
        return (yield from self._shown(scope, found))

    def recall(self, scope: MemoryScope, query: str, **options: Unpack[RecallOptions]) -> Body[MemoryRecall]:
        """The layers of a hierarchical recall, merged."""
        check_options(options, RecallOptions)
        recent, semantic = options.get("recent", 5), options.get("semantic", 3)
        summaries, history, limit = options.get("summaries", 2), options.get("history", 3), options.get("limit", 10)
        if min(recent, semantic, summaries, history) < 0 or limit < 1:
            raise ConfigurationError("recent, semantic, summaries and history must be 0 or more, limit 1 or more")
        threshold = options.get("threshold")
        others: dict[str, Any] = {"kind": {"$ne": SUMMARY}}
        layers: dict[Layer, MemoryRecall]
        layers = {"semantic": MemoryRecall(), "recent": MemoryRecall(), "summary": MemoryRecall()}
        said = MemoryRecall()
        if recent:
            layers["recent"] = yield from self._newest(scope, recent, others)
        if query.strip():
            query = yield from self._redacted_query(query)
            words = content_words(query)
            if semantic:
                layers["semantic"] = yield from self._searched(scope, query, semantic, others, threshold, words=words)
            if summaries:
                layers["summary"] = yield from self._searched(
                    scope, query, summaries, {"kind": SUMMARY}, threshold, words=words
                )
            if history:
                said = yield from self._said(scope, query, history, options.get("leave_out_thread"), threshold)
        layers["history"] = _without_evidence(said, layers.values())
        return (yield from self._shown(scope, merge_layers(layers, limit)))

    def pinned(self, scope: MemoryScope, pins: Sequence[str]) -> Body[list[MemoryRecord | None]]:
        """The statements with these version keys, current or superseded; None for those that were forgotten."""
        if not pins:
            return []
        stated = [pin for pin in pins if is_key(key_of_version(pin))]
        said = [pin for pin in pins if not is_key(key_of_version(pin))]
        items = yield self._settings.backing.batch(
            [
                *(GetOp(scope.memories, key_of_version(pin)) for pin in stated),
                *(GetOp(scope.versions, pin) for pin in stated),
                *(GetOp(scope.episodes, key_of_version(pin)) for pin in said),
            ]
        )
        found: dict[str, MemoryRecord] = {}
        for pin, current, version in zip(stated, items, items[len(stated) :], strict=False):
            for item in (version, current):  # the current one knows more sources
                if item is not None and (record := record_of(item, scope, key=key_of_version(pin))).version_key == pin:
                    found[pin] = record
        for pin, item in zip(said, items[2 * len(stated) :], strict=True):
            if item is not None and (record := record_of_stored_utterance(scope, item.value)).version_key == pin:
                found[pin] = record
        shown = yield from self._settings.redacted_records(found.values())
        by_pin = dict(zip(found, shown, strict=True))
        return [by_pin.get(pin) for pin in pins]

    def near(self, scope: MemoryScope, text: str, cosine: float) -> Body[list[MemoryRecord]]:
        """The memories without a slot that are at least this close in meaning, best first; none without vectors."""
        (items,) = yield self._settings.backing.batch([SearchOp(scope.memories, None, 3, 0, text)])
        return [
            hit.record
            for hit in self._found(scope, items)
            if hit.cosine is not None and hit.cosine >= cosine and hit.record.subject is None
        ]

    def current(self, scope: MemoryScope, key: str) -> Body[MemoryRecord | None]:
        """The stored record as it is: not redacted, perhaps expired."""
        if not is_key(key):
            return None
        (item,) = yield self._settings.backing.batch([GetOp(scope.memories, key)])
        return None if item is None else record_of(item, scope)

    def versions(self, scope: MemoryScope, key: str) -> Body[list[MemoryRecord]]:
        """The statements in the history of a key, as they are stored, in no order."""
        items = yield from self._settings.backing.all_items(scope.versions, {"of": key})
        return [record_of(item, scope, key=key) for item in items]

    # -- parts --------------------------------------------------------------------------------------------------

    def _redacted_query(self, query: str) -> Body[str]:
        """Queries are embedded too, perhaps by somebody else's server."""
        (clean,) = yield from self._settings.redacted([query], surface="query")
        return clean or ""

    def _searched(
        self,
        scope: MemoryScope,
        query: str,
        top_k: int,
        filter: dict[str, Any] | None,
        threshold: float | None,
        mmr_lambda: float | None = None,
        words: frozenset[str] | None = None,
    ) -> Body[MemoryRecall]:
        limit = top_k
        while True:
            answer: FoundItems = yield self._settings.backing.find(
                scope.memories, query, limit, filter=filter, mmr_lambda=mmr_lambda
            )
            found = self._found(scope, answer.items, threshold, words)
            expired = self._count_expired(scope, answer.items)
            if not expired or len(answer.items) < limit or len(answer.items) - expired >= top_k:
                break
            limit += max(expired, top_k)  # expired ones took places: look further
        degraded = answer.degraded or found.degraded
        if answer.retrieval is None and answer.items and found.retrieval == "recent":
            degraded = NO_INDEX
        return dataclasses.replace(
            found,
            memories=found.memories[:top_k],
            retrieval=answer.retrieval or found.retrieval,
            degraded=degraded,
        )

    def _said(
        self, scope: MemoryScope, query: str, count: int, leave_out_thread: str | None, threshold: float | None
    ) -> Body[MemoryRecall]:
        """What was said about this in earlier threads."""
        past = Past(self._settings)
        result = yield from past.search(scope, query, top_k=count, leave_out_thread=leave_out_thread, floor=threshold)
        memories = tuple(
            RecalledMemory(
                record=record_of_utterance(scope, episode.thread_id, episode.position, episode.utterance),
                layer="history",
                retrieval=episode.retrieval,
                score=episode.score,
                score_kind=None if episode.score is None else "fused",
            )
            for episode in result.episodes
        )
        return MemoryRecall(memories=memories, retrieval=result.retrieval, degraded=result.degraded)

    def _newest(self, scope: MemoryScope, count: int, filter: dict[str, Any] | None) -> Body[MemoryRecall]:
        backing = self._settings.backing
        limit = count + 1
        while True:
            if backing.lists_newest_first:
                (items,) = yield backing.batch([SearchOp(scope.memories, filter, limit, 0, None)])
            else:
                items = yield from backing.all_items(scope.memories, filter)
            found = sorted(self._found(scope, items), key=lambda hit: _newest_first(hit.record))
            everything = len(items) < limit or not backing.lists_newest_first
            # expired ones took places; and a store whose clock is coarse cuts anywhere among the last of one second
            if everything or (len(found) >= count and items[-1].updated_at < items[count - 1].updated_at):
                return MemoryRecall(memories=tuple(found[:count]), retrieval="recent")
            limit *= 2

    def _found(
        self,
        scope: MemoryScope,
        items: Iterable[SearchItem],
        threshold: float | None = None,
        words: frozenset[str] | None = None,
    ) -> MemoryRecall:
        """The records of these items; below the threshold, what was found by words stays, or with `words` what shares
        enough of them (see `is_relevant`)."""
        now = self._settings.clock()
        memories = []
        first: FoundBy | None = None
        for item in items:
            found_by = FoundBy.of(item)
            first = first or found_by
            record = record_of(item, scope)
            if words is not None:
                is_left_out = not is_relevant(found_by, words, record.text, threshold)
            else:
                below = threshold is not None and found_by.cosine is not None and found_by.cosine < threshold
                is_left_out = below and not found_by.by_words
            if record.has_expired(now) or is_left_out:
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
        return MemoryRecall(
            memories=tuple(memories),
            retrieval=first.retrieval if first else "recent",
            degraded=first.degraded if first else None,
        )

    def _count_expired(self, scope: MemoryScope, items: Iterable[SearchItem]) -> int:
        now = self._settings.clock()
        return sum(record_of(item, scope).has_expired(now) for item in items)

    def _shown(self, scope: MemoryScope, result: MemoryRecall) -> Body[MemoryRecall]:
        """Redact, and mark what was concluded from a statement that is not the current one any more."""
        records = yield from self._settings.redacted_records(found.record for found in result)
        parents = list(dict.fromkeys(pin for record in records for pin in record.derived_from))
        current: set[str] = set()
        if parents:
            items = yield self._settings.backing.batch([GetOp(scope.memories, key_of_version(pin)) for pin in parents])
            current = {record_of(item, scope).version_key for item in items if item is not None}
        memories = tuple(
            dataclasses.replace(found, record=record, outdated=not current.issuperset(record.derived_from))
            for found, record in zip(result, records, strict=True)
        )
        return dataclasses.replace(result, memories=memories)


def not_found(key: str) -> NotFoundError:
    """The one answer for a key that is unknown, expired or in another scope."""
    return NotFoundError(f"no memory {key!r} in this scope")


def _without_evidence(said: MemoryRecall, others: Iterable[MemoryRecall]) -> MemoryRecall:
    """What was said, without the words that a memory found beside them was made of: the memory says it already."""
    cited = {
        (source.thread_id, source.message_id) for layer in others for found in layer for source in found.record.sources
    }
    kept = tuple(
        found for found in said if (found.record.source.thread_id, found.record.source.message_id) not in cited
    )
    return dataclasses.replace(said, memories=kept)


def _newest_first(record: MemoryRecord) -> tuple[float, str]:
    return (-record.updated_at.timestamp(), record.key)
