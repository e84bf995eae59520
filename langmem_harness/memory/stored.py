"""How memories lie in a store: values, versions, and links from threads to what cites them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from langgraph.store.base import Item, Op, PutOp

from langmem_harness.layout import memory_links_namespace
from langmem_harness.memory.chunks import split_passages
from langmem_harness.memory.records import MemoryRecord
from langmem_harness.memory.scope import MemoryScope

TEXT_FIELD = "text"
PASSAGES_FIELD = "passages"


def record_of(item: Item, scope: MemoryScope, *, key: str | None = None) -> MemoryRecord:
    """The record of a stored item; key and scope are where it lies, whatever its value says."""
    return MemoryRecord.from_dict({**item.value, "key": key or item.key, "scope": scope.to_dict()})


def value_of(record: MemoryRecord) -> dict[str, Any]:
    """The stored form of a record: everything but its place."""
    value = record.to_dict()
    del value["key"], value["scope"]
    return value


def put_current(record: MemoryRecord) -> list[Op]:
    """Write a record as the current one under its key; a long text is searched by its passages."""
    value = value_of(record)
    passages = list(dict.fromkeys(split_passages(record.text)))  # the same passage twice finds nothing more
    index = [TEXT_FIELD]
    if len(passages) > 1:
        value[PASSAGES_FIELD] = passages
        index = [f"{PASSAGES_FIELD}[*]"]
    return [PutOp(record.scope.memories, record.key, value, index), *_links(record)]


def put_version(record: MemoryRecord) -> list[Op]:
    """Write a statement to the history of its key; it is never searched."""
    value = {**value_of(record), "of": record.key}
    return [PutOp(record.scope.versions, record.version_key, value, False), *_links(record)]


def remove_all(key: str, scope: MemoryScope, statements: Sequence[MemoryRecord]) -> list[Op]:
    """Remove a key with these statements and the links to it."""
    return [
        PutOp(scope.memories, key, None),
        *(PutOp(scope.versions, statement.version_key, None) for statement in statements),
        *(PutOp(memory_links_namespace(thread), key, None) for thread in threads_of(statements)),
    ]


def threads_of(records: Iterable[MemoryRecord]) -> list[str]:
    """The threads these records cite, each once."""
    return list(dict.fromkeys(source.thread_id for record in records for source in record.sources if source.thread_id))


def _links(record: MemoryRecord) -> list[Op]:
    value = {"scope": record.scope.to_dict(), "key": record.key}
    return [PutOp(memory_links_namespace(thread), record.key, value, False) for thread in threads_of([record])]
