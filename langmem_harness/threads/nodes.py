"""Values as trees of content-addressed nodes: what a checkpoint shares with the one before it is stored once.

Pure. A value is cut where sharing pays: every message, every long text or byte string, and every 32 elements of a long
list become nodes of their own; the rest stays in place. A node is named by the hash of its bytes and of the names of
its children, so equal parts have equal names, and damage shows. Appending to a list of any length makes new nodes only
for its end and for the short path above it.

What a value turns into and back is what the checkpoint serializer says (tuples come back as lists, for example). The
one thing this file adds is the cutting.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

import ormsgpack
from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Send

from langmem_harness.errors import CorruptionError

HASH_BYTES = 32
CHUNK_ITEMS = 32
"""Elements per node of a long list: few enough that rewriting the last node is cheap, enough for a flat tree."""

INLINE_CHARACTERS = 512
"""Texts, byte strings and serialized objects up to this size stay inside the node around them."""

_PACK_OPTIONS = (
    ormsgpack.OPT_NON_STR_KEYS
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_UUID
    | ormsgpack.OPT_REPLACE_SURROGATES
)
"""The options of LangGraph's own serializer, so that keys and texts come back the same."""


class NodeKind(IntEnum):
    """How the bytes of a node are read. The numbers are stored: never change one."""

    LEAF = 0
    """One object, as the serializer wrote it."""
    TREE = 1
    """A structure of plain values that refers to its children by position."""


class _Code(IntEnum):
    """Extension codes inside a tree node. The numbers are stored: never change one."""

    CHILD = 1
    CHUNKS = 2
    SEND = 3
    SNAPSHOT = 4
    OBJECT = 5
    DICT = 6


class Node(NamedTuple):
    """One stored piece of a value.

    Attributes:
        hash: Name of the node: SHA-256 of kind, type, children and bytes.
        kind: How `value` is read: a `NodeKind`.
        type: What the serializer calls the encoding of `value`.
        value: The bytes.
        children: Names of the nodes it refers to, concatenated, in order of first use.
    """

    hash: bytes
    kind: int
    type: str
    value: bytes
    children: bytes

    @classmethod
    def make(cls, kind: NodeKind, type_: str, value: bytes, children: bytes = b"") -> Node:
        """The node with this content."""
        return cls(node_hash(kind, type_, value, children), kind, type_, value, children)

    def is_intact(self) -> bool:
        """Whether the content still gives the name."""
        return node_hash(self.kind, self.type, self.value, self.children) == self.hash

    def check(self) -> None:
        """Re-derive the name.

        Raises:
            CorruptionError: The content is not what the name says.
        """
        if not self.is_intact():
            raise CorruptionError(f"stored value {self.hash.hex()[:16]} is damaged; restore the file from a backup")


def node_hash(kind: int, type_: str, value: bytes, children: bytes) -> bytes:
    """Name of a node with this content: 32 bytes."""
    digest = hashlib.sha256(b"%d:%s:%d:" % (kind, type_.encode(), len(children)))
    digest.update(children)
    digest.update(value)
    return digest.digest()


def split_hashes(children: bytes) -> list[bytes]:
    """The single names in a concatenation of names."""
    return [children[start : start + HASH_BYTES] for start in range(0, len(children), HASH_BYTES)]


class ChunkNodes(NamedTuple):
    """A chunk of a list: the name of its tree node, and that node and everything below it by name."""

    name: bytes
    nodes: Mapping[bytes, Node]


class MessageNodes(Protocol):
    """Turns messages into leaf nodes and back. Implemented by `MessageCache`; the encoder and decoder rely on it."""

    def node_of(self, message: BaseMessage, serde: SerializerProtocol) -> Node:
        """The leaf node of a message."""
        ...

    def known_chunk(self, messages: Sequence[Any]) -> ChunkNodes | None:
        """The nodes of these list elements, if they are a remembered chunk as it was."""
        ...

    def value_of(self, node_name: bytes) -> BaseMessage | list[BaseMessage] | None:
        """The caller's own copy of a remembered message or chunk, or None."""
        ...

    def read_leaf(self, node: Node, serde: SerializerProtocol) -> Any:
        """What a leaf node decodes to, the caller's own."""
        ...

    def remember_chunk(self, node: Node, messages: Sequence[Any]) -> None:
        """Note that this tree node is a chunk of these messages."""
        ...


@dataclass(slots=True)
class _Children:
    """Names referred to by the tree node under construction."""

    positions: dict[bytes, int] = field(default_factory=dict)

    def refer(self, name: bytes) -> ormsgpack.Ext:
        position = self.positions.setdefault(name, len(self.positions))
        return ormsgpack.Ext(_Code.CHILD, position.to_bytes(4, "big"))

    def joined(self) -> bytes:
        return b"".join(self.positions)


class ValueEncoder:
    """Encodes values; collects the nodes they need."""

    def __init__(self, serde: SerializerProtocol, messages: MessageNodes) -> None:
        self._nodes: dict[bytes, Node] = {}
        self._known_chunks: dict[bytes, ChunkNodes] = {}
        self._serde = serde
        self._messages = messages
        self._chunked: dict[int, tuple[Sequence[Any], list[bytes]]] = {}

    def encode(self, value: Any) -> bytes:
        """The name of the root node of a value; `node` gives it and what is below it."""
        children = _Children()
        return self._tree(self._walk(value, children), children)

    def node(self, name: bytes) -> Node:
        """A node of a value encoded so far. Ask for a parent before its children."""
        # Nearly every chunk of a long thread is stored already, and nobody asks for its nodes.
        if (chunk := self._known_chunks.pop(name, None)) is not None:
            self._nodes.update(chunk.nodes)
        return self._nodes[name]

    def _tree(self, structure: Any, children: _Children) -> bytes:
        # The bytes go through the serializer once more, so that one that encrypts encrypts them too.
        type_, value = self._serde.dumps_typed(_pack(structure))
        return self._add(Node.make(NodeKind.TREE, type_, value, children.joined()))

    def _add(self, node: Node) -> bytes:
        self._nodes[node.hash] = node
        return node.hash

    def _walk(self, value: Any, children: _Children) -> Any:
        kind = type(value)
        if value is None or kind is bool or kind is int or kind is float:
            return value
        if kind is str or kind is bytes:
            return value if len(value) <= INLINE_CHARACTERS else self._leaf(value, children)
        if kind is dict:
            return self._walk_dict(value, children)
        if kind is list or kind is tuple:
            return self._walk_list(value, children)
        if isinstance(value, BaseMessage):
            return children.refer(self._add(self._messages.node_of(value, self._serde)))
        if kind is Send:
            fields = [value.node, value.arg]
            if (timeout := getattr(value, "timeout", None)) is not None:
                fields.append(timeout)
            return ormsgpack.Ext(_Code.SEND, _pack([self._walk(item, children) for item in fields]))
        if kind is _DeltaSnapshot:
            return ormsgpack.Ext(_Code.SNAPSHOT, _pack(self._walk(value.value, children)))
        return self._leaf(value, children)

    def _leaf(self, value: Any, children: _Children) -> ormsgpack.Ext:
        type_, data = self._serde.dumps_typed(value)
        if len(data) <= INLINE_CHARACTERS:
            return ormsgpack.Ext(_Code.OBJECT, _pack([type_, data]))
        return children.refer(self._add(Node.make(NodeKind.LEAF, type_, bytes(data))))

    def _walk_dict(self, value: dict[Any, Any], children: _Children) -> Any:
        if len(value) <= CHUNK_ITEMS:
            return {key: self._walk(item, children) for key, item in value.items()}
        pairs = self._walk_list([[key, item] for key, item in value.items()], children)
        return ormsgpack.Ext(_Code.DICT, _pack(pairs))

    def _walk_list(self, value: Sequence[Any], children: _Children) -> Any:
        if len(value) <= CHUNK_ITEMS:
            return [self._walk(item, children) for item in value]
        # A list often appears twice in one checkpoint: in its channel and in what was sent to a node.
        known = self._chunked.get(id(value))
        names = known[1] if known is not None else self._chunk_names(value)
        self._chunked[id(value)] = (value, names)  # holding the list keeps its id from being used again
        return ormsgpack.Ext(_Code.CHUNKS, _pack([children.refer(name) for name in names]))

    def _chunk_names(self, value: Sequence[Any]) -> list[bytes]:
        names = []
        for start in range(0, len(value), CHUNK_ITEMS):
            chunk = value[start : start + CHUNK_ITEMS]
            if (known := self._messages.known_chunk(chunk)) is not None:
                self._known_chunks[known.name] = known
                names.append(known.name)
                continue
            children = _Children()
            structure = [self._walk(item, children) for item in chunk]
            names.append(self._tree(structure, children))
            if len(children.positions) == CHUNK_ITEMS:
                self._messages.remember_chunk(self._nodes[names[-1]], chunk)
        while len(names) > CHUNK_ITEMS:
            above = []
            for start in range(0, len(names), CHUNK_ITEMS):
                children = _Children()
                references = [children.refer(name) for name in names[start : start + CHUNK_ITEMS]]
                above.append(self._tree(ormsgpack.Ext(_Code.CHUNKS, _pack(references)), children))
            names = above
        return names


class ValueDecoder:
    """Decodes values from nodes.

    Args:
        serde: The checkpoint serializer.
        messages: Remembers messages; asked before `fetch`.
        fetch: Gives the node of a name.
    """

    def __init__(
        self, serde: SerializerProtocol, messages: MessageNodes, fetch: Callable[[bytes], Node | None]
    ) -> None:
        self._serde = serde
        self._messages = messages
        self._fetch = fetch
        self._failure: BaseException | None = None

    def decode(self, name: bytes) -> Any:
        """The value whose root node has this name.

        Raises:
            CorruptionError: A node is missing or is not one of ours.
        """
        if (remembered := self._messages.value_of(name)) is not None:
            return remembered
        node = self._fetch(name)
        if node is None:
            raise CorruptionError(f"stored value {name.hex()[:16]} is missing; restore the file from a backup")
        node.check()
        if node.kind == NodeKind.LEAF:
            return self._messages.read_leaf(node, self._serde)
        value = self._serde.loads_typed((node.type, node.value))
        structure = self.unpack(value, split_hashes(node.children))
        if len(node.children) == CHUNK_ITEMS * HASH_BYTES and type(structure) is list:
            self._messages.remember_chunk(node, structure)
        return structure

    def unpack(self, data: bytes, children: Sequence[bytes]) -> Any:
        """The structure in the bytes of a tree node, its children decoded."""

        def read(code: int, body: bytes) -> Any:
            # The unpacker hides what its hook raised, so it is kept here and raised again below.
            try:
                return self._read(code, body, children, read)
            except BaseException as error:
                self._failure = self._failure or error
                raise

        try:
            return _unpack(data, read)
        except ValueError:
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure from None
            raise

    def _read(self, code: int, body: bytes, children: Sequence[bytes], read: Callable[[int, bytes], Any]) -> Any:
        if code == _Code.CHILD:
            return self.decode(children[int.from_bytes(body, "big")])
        if code == _Code.OBJECT:
            return self._serde.loads_typed(tuple(_unpack(body, read)))
        content = _unpack(body, read)
        if code == _Code.CHUNKS:
            return [item for chunk in content for item in chunk]
        if code == _Code.DICT:
            return dict(content)
        if code == _Code.SEND:
            return Send(*content[:2], timeout=content[2]) if len(content) > 2 else Send(*content)
        if code == _Code.SNAPSHOT:
            return _DeltaSnapshot(content)
        raise CorruptionError(f"stored value uses an unknown code {code!r}; it was not written by this package")


def reachable(roots: Iterable[bytes], children_of: Callable[[bytes], bytes | None]) -> tuple[set[bytes], set[bytes]]:
    """Names that can be reached from the roots, and those among them that are missing.

    Args:
        roots: Names to start from.
        children_of: Joined child names of a node, or None when there is no such node.
    """
    found: set[bytes] = set()
    missing: set[bytes] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        children = children_of(name)
        if children is None:
            missing.add(name)
        else:
            waiting.extend(split_hashes(children))
    return found, missing


def _pack(structure: Any) -> bytes:
    return ormsgpack.packb(structure, option=_PACK_OPTIONS)


def _unpack(data: bytes, read: Callable[[int, bytes], Any]) -> Any:
    return ormsgpack.unpackb(data, ext_hook=read, option=ormsgpack.OPT_NON_STR_KEYS)
