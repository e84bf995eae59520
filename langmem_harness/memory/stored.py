"""How memories lie in a store: values, versions, and links from threads to what cites them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from langgraph.store.base import Item, Op, PutOp

from langmem_harness.layout import memory_links_namespace
from langmem_harness.memory.chunks import split_passages
from langmem_harness.memory.records import MemoryRecord
from langmem_harness.memory.scope import MemoryScope

TEXT_FIELD = "text"
PASSAGES_FIELD = "passages"
EXACT_FIELD = "exact"
"""The whole value as JSON in ASCII, when it has characters that not every store keeps."""

_UNKEPT_ESCAPE = re.compile(r"\\u(?:0000|d[89a-f])")
_UNKEPT = re.compile("[\x00\ud800-\udfff]")


def record_of(item: Item, scope: MemoryScope, *, key: str | None = None) -> MemoryRecord:
    """The record of a stored item; key and scope are where it lies, whatever its value says."""
    value = item.value if EXACT_FIELD not in item.value else json.loads(item.value[EXACT_FIELD])
    return MemoryRecord.from_dict({**value, "key": key or item.key, "scope": scope.to_dict()})


def value_of(record: MemoryRecord) -> dict[str, Any]:
    """The stored form of a record: everything but its place.

    Postgres keeps no NUL and orjson no half of a surrogate pair; where a record has one, what was said exactly stands
    beside it, escaped.
    """
    value = record.to_dict()
    del value["key"], value["scope"]
    exact = json.dumps(value)
    if _UNKEPT_ESCAPE.search(exact) and (kept := _kept(value)) != value:
        return {**kept, EXACT_FIELD: exact}
    return value


def put_current(record: MemoryRecord) -> list[Op]:
    """Write a record as the current one under its key; a long text is searched by its passages."""
    value = value_of(record)
    passages = list(dict.fromkeys(split_passages(value[TEXT_FIELD])))  # the same passage twice finds nothing more
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


def _kept(value: Any) -> Any:
    if isinstance(value, str):
        return _UNKEPT.sub("\ufffd", value)
    if isinstance(value, dict):
        return {name: _kept(one) for name, one in value.items()}
    return [_kept(one) for one in value] if isinstance(value, list) else value


def _links(record: MemoryRecord) -> list[Op]:
    value = {"scope": record.scope.to_dict(), "key": record.key}
    return [PutOp(memory_links_namespace(thread), record.key, value, False) for thread in threads_of([record])]
