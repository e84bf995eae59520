"""Messages this process has just written or read, so that a long thread is not encoded and decoded again at every step.

A cache and nothing more: what is in it is proven by content each time, never by object identity. Graph code may change
a message in place and hand the same object back, so a message counts as known only if its class and every field are
equal to those of the stored one. What it hands out shares nothing that can be changed.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import ormsgpack
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import EXT_PYDANTIC_V2, JsonPlusSerializer

from langmem_harness.threads.nodes import ChunkNodes, Node, NodeKind, split_hashes

_KNOWN_CLASSES: frozenset[type[BaseMessage]] = frozenset({AIMessage, HumanMessage, SystemMessage, ToolMessage})
_CLASS_OF_NAME = {(kind.__module__, kind.__name__): kind for kind in _KNOWN_CLASSES}
_PLAIN = frozenset({str, int, float, bool, type(None)})
_fields_of = attrgetter("__dict__")
_extra_of = attrgetter("__pydantic_extra__")


class _Entry(NamedTuple):
    """A message taken apart: enough to compare with one and to build one without validating again.

    `containers` are the fields that can be changed in place, packed: unpacking makes new ones faster than copying does.
    """

    node: Node
    kind: type[BaseMessage]
    fields: dict[str, Any]
    fields_set: set[str]
    containers: bytes


class _Chunk(NamedTuple):
    """A whole chunk of a message list: compared at once, which is several times faster than one by one."""

    entries: Sequence[_Entry]
    kinds: Sequence[type[BaseMessage]]
    fields: Sequence[dict[str, Any]]
    nodes: ChunkNodes


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
        self._chunk_by_name: dict[bytes, _Chunk] = {}
        self._chunk_by_first_id: dict[str, _Chunk] = {}
        self._lock = threading.Lock()

    def __contains__(self, node_name: object) -> bool:
        return node_name in self._by_name or node_name in self._chunk_by_name

    def node_of(self, message: BaseMessage, serde: SerializerProtocol) -> Node:
        """The leaf node of a message, without encoding it again if it is known and unchanged."""
        entry = self._by_id.get(message.id) if message.id is not None else None
        if entry is not None and _is_unchanged(message, entry):
            return entry.node
        type_, data = serde.dumps_typed(message)
        node = Node.make(NodeKind.LEAF, type_, bytes(data))
        if message.id is not None and type(message) in _KNOWN_CLASSES:
            self._remember(_entry_of(node, serde)[0])
        return node

    def read_leaf(self, node: Node, serde: SerializerProtocol) -> Any:
        """What a leaf node decodes to, the caller's own; a plain message is remembered."""
        entry, value = _entry_of(node, serde)
        self._remember(entry)
        return value if entry is None else _build(entry)

    def known_chunk(self, messages: Sequence[Any]) -> ChunkNodes | None:
        """The nodes of these list elements, if they are a remembered chunk and unchanged."""
        first = messages[0]
        chunk = self._chunk_by_first_id.get(first.id) if isinstance(first, BaseMessage) and first.id else None
        # Every save of a long thread comes through here for every message: loops that run in C only.
        if chunk is None or list(map(type, messages)) != chunk.kinds or any(map(_extra_of, messages)):
            return None
        try:
            unchanged = list(map(_fields_of, messages)) == chunk.fields
        except Exception:  # noqa: BLE001 - see `_is_unchanged`
            return None
        return chunk.nodes if unchanged else None

    def value_of(self, node_name: bytes) -> BaseMessage | list[BaseMessage] | None:
        """A fresh copy of the message, or of the chunk of messages, with this name; None when it is not known."""
        if (entry := self._by_name.get(node_name)) is not None:
            return _build(entry)
        if (chunk := self._chunk_by_name.get(node_name)) is not None:
            return [_build(entry) for entry in chunk.entries]
        return None

    def _remember(self, entry: _Entry | None) -> None:
        message_id = None if entry is None else entry.fields["id"]
        if entry is None or message_id is None or len(entry.node.value) * 8 > self._max_bytes:
            return
        with self._lock:
            self._by_id[message_id] = entry
            if self._by_name.setdefault(entry.node.hash, entry) is entry:
                self._bytes += len(entry.node.value)
                while self._bytes > self._max_bytes:
                    self._drop_oldest()

    def remember_chunk(self, node: Node, messages: Sequence[Any]) -> None:
        """Keep the tree node of a chunk whose elements are all messages that are remembered."""
        if not all(isinstance(message, BaseMessage) for message in messages):
            return
        names = split_hashes(node.children)
        with self._lock:
            entries = [self._by_name[name] for name in names if name in self._by_name]
            if not entries or len(entries) != len(messages):
                return
            chunk = _Chunk(
                entries=entries,
                kinds=[entry.kind for entry in entries],
                fields=[entry.fields for entry in entries],
                nodes=ChunkNodes(node.hash, {node.hash: node, **{entry.node.hash: entry.node for entry in entries}}),
            )
            self._chunk_by_name[node.hash] = self._chunk_by_first_id[entries[0].fields["id"]] = chunk

    def clear(self) -> None:
        """Forget everything; the memory holds no message text afterwards."""
        with self._lock:
            for known in (self._by_name, self._by_id, self._chunk_by_name, self._chunk_by_first_id):
                known.clear()
            self._bytes = 0

    def _drop_oldest(self) -> None:
        name = next(iter(self._by_name))
        entry = self._by_name.pop(name)
        self._bytes -= len(entry.node.value)
        message_id = entry.fields["id"]
        if self._by_id.get(message_id) is entry:
            del self._by_id[message_id]
        # A chunk goes with its first message, which is the oldest one in it.
        if (chunk := self._chunk_by_first_id.pop(message_id, None)) is not None:
            self._chunk_by_name.pop(chunk.nodes.name, None)


def _is_unchanged(message: BaseMessage, entry: _Entry) -> bool:
    if type(message) is not entry.kind or message.__pydantic_extra__:
        return False
    try:
        return bool(message.__dict__ == entry.fields)
    except Exception:  # noqa: BLE001 - a foreign __eq__ (an array as artifact, say) may raise anything: then encode anew
        return False


def _entry_of(node: Node, serde: SerializerProtocol) -> tuple[_Entry | None, Any]:
    """The parts of the message in a leaf node; or None, and what the serializer makes of the node."""
    if type(serde) is JsonPlusSerializer and node.type == "msgpack":
        entry = _parse(node)
        if entry is not None:
            return entry, None
    value = serde.loads_typed((node.type, node.value))
    return (_take_apart(node, value) if isinstance(value, BaseMessage) else None), value


def _parse(node: Node) -> _Entry | None:
    """The parts of a plain message as LangGraph's serializer wrote it, without constructing and validating it again.

    Its format is (module, class, fields, method). The fields of these classes were valid when they were written, and
    the serializer rebuilds them in every mode. Anything else is left to the serializer.
    """

    def read(code: int, data: bytes) -> Any:
        if code != EXT_PYDANTIC_V2:
            raise ValueError("not a plain message")
        return ormsgpack.unpackb(data)

    try:
        module, name, fields, _ = ormsgpack.unpackb(node.value, ext_hook=read)
        kind = _CLASS_OF_NAME[module, name]
    except (ValueError, TypeError, KeyError):
        return None
    if type(fields) is not dict or fields.keys() != kind.model_fields.keys():
        return None
    return _sort_fields(node, kind, fields, set(fields))


def _take_apart(node: Node, message: BaseMessage) -> _Entry | None:
    """The parts of a plain message; None for anything that cannot be compared and copied field by field."""
    if type(message) not in _KNOWN_CLASSES or message.__pydantic_extra__ or message.__pydantic_private__:
        return None
    return _sort_fields(node, type(message), message.__dict__, message.__pydantic_fields_set__)


def _sort_fields(
    node: Node, kind_of_message: type[BaseMessage], fields: dict[str, Any], fields_set: set[str]
) -> _Entry | None:
    containers = {name: value for name, value in fields.items() if type(value) not in _PLAIN}
    if not _is_plain(containers):
        return None
    try:
        packed = ormsgpack.packb(containers)
    except (TypeError, ValueError):  # a number or a text that the format has no room for
        return None
    return _Entry(node, kind_of_message, fields, fields_set, packed)


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind is dict:
        return all(type(key) is str and _is_plain(item) for key, item in value.items())
    return kind is list and all(map(_is_plain, value))


_set = object.__setattr__


def _build(entry: _Entry) -> BaseMessage:
    """A new message with these fields, which were validated when they were decoded; doing it again costs ten times."""
    message = entry.kind.__new__(entry.kind)
    _set(message, "__dict__", entry.fields | ormsgpack.unpackb(entry.containers))
    _set(message, "__pydantic_fields_set__", entry.fields_set.copy())
    _set(message, "__pydantic_extra__", {})
    _set(message, "__pydantic_private__", None)
    return message
