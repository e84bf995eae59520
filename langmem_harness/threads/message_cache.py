"""Messages this process has just written or read, so that a long thread is not encoded and decoded again at every step.

A cache and nothing more: what is in it is proven by content each time, never by object identity. Graph code may change
a message in place and hand the same object back, so a message counts as known only if its class and every field are
equal to those of the stored one.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.serde.base import SerializerProtocol

from langmem_harness.threads.nodes import Node, NodeKind

_KNOWN_CLASSES: frozenset[type[BaseMessage]] = frozenset({AIMessage, HumanMessage, SystemMessage, ToolMessage})
_CONTAINERS = frozenset({dict, list})
_PLAIN = frozenset({str, int, float, bool, type(None)})


@dataclass(frozen=True, slots=True)
class _Entry:
    node: Node
    kind: type[BaseMessage]
    fields: Mapping[str, Any]
    fields_set: frozenset[str]


class MessageCache:
    """Remembers messages by id and by node name. Safe to share between threads.

    Args:
        max_bytes: Encoded size of what is kept, 0 or more; the oldest entries go first.
    """

    def __init__(self, *, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._by_name: dict[bytes, _Entry] = {}
        self._by_id: dict[str, _Entry] = {}
        self._lock = threading.Lock()

    def __contains__(self, node_name: object) -> bool:
        return node_name in self._by_name

    def node_of(self, message: BaseMessage, serde: SerializerProtocol) -> Node:
        """The leaf node of a message, without encoding it again if it is known and unchanged."""
        entry = self._by_id.get(message.id) if message.id is not None else None
        if entry is not None and _is_unchanged(message, entry):
            return entry.node
        type_, data = serde.dumps_typed(message)
        node = Node.make(NodeKind.LEAF, type_, bytes(data))
        if message.id is not None:
            decoded = serde.loads_typed((type_, data))
            if isinstance(decoded, BaseMessage):
                self.remember(node, decoded)
        return node

    def message_of(self, node_name: bytes) -> BaseMessage | None:
        """A fresh copy of the message of a node, or None when it is not known. The copy shares nothing mutable."""
        entry = self._by_name.get(node_name)
        return None if entry is None else _build(entry)

    def remember(self, node: Node, message: BaseMessage) -> None:
        """Keep what a node decodes to, if it is a plain message with an id."""
        size = len(node.value)
        if message.id is None or size * 8 > self._max_bytes or not _is_plain_message(message):
            return
        fields = {name: _copy_plain(value) for name, value in message.__dict__.items()}
        entry = _Entry(node, type(message), fields, frozenset(message.model_fields_set))
        with self._lock:
            self._by_id[message.id] = entry
            if self._by_name.setdefault(node.hash, entry) is not entry:
                return
            self._bytes += size
            while self._bytes > self._max_bytes:
                self._drop_oldest()

    def clear(self) -> None:
        """Forget everything; the memory holds no message text afterwards."""
        with self._lock:
            self._by_name.clear()
            self._by_id.clear()
            self._bytes = 0

    def _drop_oldest(self) -> None:
        name = next(iter(self._by_name))
        entry = self._by_name.pop(name)
        self._bytes -= len(entry.node.value)
        message_id = entry.fields["id"]
        if self._by_id.get(message_id) is entry:
            del self._by_id[message_id]


def _is_unchanged(message: BaseMessage, entry: _Entry) -> bool:
    if type(message) is not entry.kind or message.__pydantic_extra__:
        return False
    try:
        return bool(message.__dict__ == entry.fields)
    except Exception:  # noqa: BLE001 - a foreign __eq__ (an array as artifact, say) may raise anything: then encode anew
        return False


def _is_plain_message(message: BaseMessage) -> bool:
    return (
        type(message) in _KNOWN_CLASSES
        and not message.__pydantic_extra__
        and not message.__pydantic_private__
        and all(_is_plain(value) for value in message.__dict__.values())
    )


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind is dict:
        return all(type(key) is str and _is_plain(item) for key, item in value.items())
    return kind is list and all(_is_plain(item) for item in value)


def _copy_plain(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return {key: _copy_plain(item) if type(item) in _CONTAINERS else item for key, item in value.items()}
    if kind is list:
        return [_copy_plain(item) if type(item) in _CONTAINERS else item for item in value]
    return value


def _build(entry: _Entry) -> BaseMessage:
    """A new message with these fields, which were validated when they were decoded; validating again costs ten times."""
    message = entry.kind.__new__(entry.kind)
    fields = dict(entry.fields)
    for name, value in fields.items():
        if type(value) in _CONTAINERS:
            fields[name] = _copy_plain(value)
    object.__setattr__(message, "__dict__", fields)
    object.__setattr__(message, "__pydantic_fields_set__", set(entry.fields_set))
    object.__setattr__(message, "__pydantic_extra__", {})
    object.__setattr__(message, "__pydantic_private__", None)
    return message
