"""Content of tool results, whatever its shape: where its text is, and the same shape with other text.

Pure. A content is a string or a list of blocks. Text blocks are read and rewritten; media blocks pass through
untouched; blocks of a kind nobody knows keep their shape, with the strings inside rewritten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from langmem_harness.window.messages import canonical_json
from langmem_harness.window.tokens import estimate_text_tokens

Content: TypeAlias = str | list[str | dict[Any, Any]]

TEXT_TYPES = frozenset({"text", "input_text", "output_text", "text-plain"})
MEDIA_TYPES = frozenset(
    "image image_url input_image audio input_audio video video_url file input_file media".split()  # noqa: SIM905
)
LARGE_BLOCK_TOKENS = 250
"""A block of an unknown kind that is larger than this is stored with the text and becomes a labelled reference."""

_OPAQUE_KEYS = frozenset("type id data base64 url uri mime_type mimeType file_id tool_call_id name role".split())  # noqa: SIM905


def text_of(content: Content) -> str:
    """All text of a content: its text blocks, and large blocks of unknown kind as JSON, a line break between them."""
    if isinstance(content, str):
        return content
    return "\n".join(text for block in content if (text := _text_of_block(block)) is not None)


def with_texts(content: Content, rewrite: Callable[[str], str], *, inside: Callable[[str], str]) -> Content:
    """The same shape with every text rewritten.

    Args:
        content: Left unchanged.
        rewrite: For the text of text blocks that are not blank.
        inside: For strings inside blocks of unknown kind, where labels would break what reads them.
    """
    if isinstance(content, str):
        return rewrite(content) if content.strip() else content
    return [_rewritten(block, rewrite, inside) for block in content]


def with_text(content: Content, text: str) -> Content:
    """The same shape with one text in place of all text; media and small unknown blocks stay where they are."""
    if isinstance(content, str):
        return text
    blocks: list[str | dict[Any, Any]] = []
    placed = False
    for block in content:
        if _text_of_block(block) is None:
            blocks.append(block)
        elif not placed:
            blocks.append(text if isinstance(block, str) else {"type": "text", "text": text})
            placed = True
        if _is_unknown(block) and _text_of_block(block) is not None:
            kind = str(block.get("type") or "unknown")[:40] if isinstance(block, Mapping) else "unknown"
            blocks.append({"type": "text", "text": f"(a block of type {kind!r} is part of the stored output)"})
    return blocks


def _text_of_block(block: Any) -> str | None:
    """The text a block adds, or None when it has none or stays as it is."""
    if isinstance(block, str):
        return block
    if not isinstance(block, Mapping):
        return None
    if block.get("type") in TEXT_TYPES:
        return block["text"] if isinstance(block.get("text"), str) else None
    if _is_unknown(block):
        body = canonical_json(block)
        return body if len(body) > LARGE_BLOCK_TOKENS and estimate_text_tokens(body) > LARGE_BLOCK_TOKENS else None
    return None


def _is_unknown(block: Any) -> bool:
    return isinstance(block, Mapping) and block.get("type") not in TEXT_TYPES and not _is_media(block)


def _is_media(block: Mapping[Any, Any]) -> bool:
    """Whether a block is a picture, sound, film or file; a document may also hold plain text, and is then none."""
    if block.get("type") == "document":
        source = block.get("source")
        return isinstance(source, Mapping) and source.get("type") in ("base64", "url", "file")
    return block.get("type") in MEDIA_TYPES


def _rewritten(block: Any, rewrite: Callable[[str], str], inside: Callable[[str], str]) -> Any:
    if isinstance(block, str):
        return rewrite(block) if block.strip() else block
    if not isinstance(block, Mapping):
        return block
    if block.get("type") in TEXT_TYPES:
        text = block.get("text")
        return {**block, "text": rewrite(text)} if isinstance(text, str) and text.strip() else block
    if _is_media(block):
        return block
    return _strings_rewritten(block, inside)


def _strings_rewritten(value: Any, inside: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return inside(value)
    if isinstance(value, Mapping):
        return {
            key: member
            if isinstance(member, str) and key in _OPAQUE_KEYS and (key != "data" or value.get("type") != "text")
            else _strings_rewritten(member, inside)
            for key, member in value.items()
        }
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_strings_rewritten(member, inside) for member in value]
    return value
