"""Which texts of an item are indexed, and the packed form of their terms. Pure.

Field paths are LangGraph's (``"title"``, ``"tags[*]"``, ``"$"`` for the whole value). The semantic leg embeds exactly
the text LangGraph would embed. The keyword leg reads the same places, but of a structure it takes the words of the
leaves: searching ``text`` must not find every item that has a key of that name.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from langgraph.store.base import get_text_at_path, tokenize_path

from langmem_harness.errors import CorruptionError, ItemValueError
from langmem_harness.store.chunks import check_chunk_tokens, join_chunks
from langmem_harness.store.keywords import Tokenizer
from langmem_harness.store.terms import pack_terms

POSITION_BITS = 10
MAX_TEXTS = 1 << POSITION_BITS
"""How many texts of one item can be indexed; a path with ``[*]`` may give many."""

Indexing = Literal[False] | list[str] | None
"""LangGraph's ``index`` argument of ``put``: the store's fields, not at all, or these paths."""

_HEADER = struct.Struct("<HI")
_JSON_START = ("{", "[")


class FieldText(NamedTuple):
    """One text of an item.

    Attributes:
        field: The path it was found by, as configured (``"tags[*]"``).
        text: What is embedded.
        words: What the keyword leg reads.
    """

    field: str
    text: str
    words: str


class FieldPaths:
    """The configured paths, taken apart once.

    Args:
        fields: Paths; ``("$",)`` is the whole value.
        chunk_tokens: Texts longer than this are embedded in chunks (`chunks`); None: as they are.

    Raises:
        ConfigurationError: `chunk_tokens` is out of range.
    """

    def __init__(self, fields: Sequence[str] = ("$",), *, chunk_tokens: int | None = None) -> None:
        self.chunk_tokens = check_chunk_tokens(chunk_tokens)
        self.fields = tuple(fields)
        self._tokens = {field: tokenize_path(field) for field in self.fields}
        # most stores index a text right under a name: there is nothing to look for
        self._names = {field for field, tokens in self._tokens.items() if tokens == [field] and _is_name(field)}

    def texts(self, value: Mapping[str, Any], index: Indexing = None) -> list[FieldText]:
        """Texts to index, in the order of the paths; empty for ``index=False``.

        Raises:
            ItemValueError: More than `MAX_TEXTS` texts.
        """
        if index is False:
            return []
        found: list[FieldText] = []
        for field in self.fields if index is None else index:
            if not field or field == "$":
                found.append(FieldText(field="$", text=get_text_at_path(value, "$")[0], words=_words(value)))
            elif field in self._names and type(value) is dict and type(text := value.get(field)) is str:
                found.append(FieldText(field=field, text=text, words=_unpack_words(text)))
            else:
                tokens = self._tokens.get(field) or tokenize_path(field)
                texts = get_text_at_path(value, tokens)
                found += [FieldText(field=field, text=text, words=_unpack_words(text)) for text in texts]
        if len(found) > MAX_TEXTS:
            raise ItemValueError(f"an item may have {MAX_TEXTS} indexed texts, this one has {len(found)}: index fewer")
        if self.chunk_tokens is not None:
            found = [entry._replace(text=join_chunks(entry.text, self.chunk_tokens)) for entry in found]
        return found


def _is_name(step: str) -> bool:
    """Whether LangGraph takes the step of a path as a key, not as a pattern."""
    return step != "*" and not step.startswith(("[", "{"))


def _unpack_words(text: str) -> str:
    """LangGraph gives a structure as JSON text; its words are those of its leaves."""
    if not text.startswith(_JSON_START):
        return text
    try:
        return _words(json.loads(text))
    except (ValueError, RecursionError):
        return text  # a text that only looks like JSON


def _words(value: Any) -> str:
    return "\n".join(_leaves(value))


def _leaves(value: Any) -> Iterator[str]:
    stack = [value]
    while stack:
        part = stack.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, Mapping):
            stack.extend(reversed(list(part.values())))
        elif isinstance(part, list | tuple):
            stack.extend(reversed(part))
        elif part is not None and not isinstance(part, bool):
            yield str(part)


def embeddable(text: str) -> str | None:
    """The text an embedder can be given: lone surrogates replaced; None for a blank text, which providers refuse."""
    if text.isascii():
        return text if text.strip() else None
    cleaned = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return cleaned if cleaned.strip() else None


def pack_item_terms(texts: Sequence[FieldText], tokenizer: Tokenizer) -> bytes:
    """Fields and term counts of an item's texts, in order, as SQLite keeps them."""
    parts: list[bytes] = []
    for entry in texts:
        field = entry.field.encode("utf-8", "surrogatepass")
        terms = pack_terms(Counter(tokenizer.terms(entry.words)))
        parts += (_HEADER.pack(len(field), len(terms)), field, terms)
    return b"".join(parts)


def unpack_item_terms(data: bytes) -> list[tuple[str, bytes]]:
    """(field, packed terms) of each text of an item, in order.

    Raises:
        CorruptionError: The bytes are cut off.
    """
    _, fields, packed = unpack_items((data,))
    return list(zip(fields, packed, strict=True))


def unpack_items(items: Iterable[bytes]) -> tuple[list[int], list[str], list[bytes]]:
    """What `pack_item_terms` packed, for many items at once.

    Returns:
        How many texts each item has; then the field and the packed terms of every text, one item after the other.

    Raises:
        CorruptionError: The bytes of an item are cut off.
    """
    sizes: list[int] = []
    fields: list[str] = []
    packed: list[bytes] = []
    names: dict[bytes, str] = {}  # few fields, many texts: one object for each field
    try:
        for data in items:
            before, position, end = len(packed), 0, len(data)
            while position < end:
                field_size, term_size = _HEADER.unpack_from(data, position)
                middle = position + _HEADER.size + field_size
                position = middle + term_size
                if position > end:
                    raise CorruptionError("stored terms are cut off; reindex the store")
                encoded = data[middle - field_size : middle]
                name = names.get(encoded)
                if name is None:
                    name = names[encoded] = encoded.decode("utf-8", "surrogatepass")
                fields.append(name)
                packed.append(data[middle:position])
            sizes.append(len(packed) - before)
    except (struct.error, UnicodeDecodeError) as error:
        raise CorruptionError("stored terms are damaged; reindex the store") from error
    return sizes, fields, packed
