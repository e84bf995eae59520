"""Text that was brought into a request from elsewhere, marked so that it makes way before the conversation does. Pure.

The seam for whatever retrieves: it says which text is a recalled memory, a document or a catalogue, how well it ranked,
and which sections of it matched. Nothing changes while a request fits. When it does not, the last measure drops marked
text in this order, of each kind the worst rank first: recalled text goes, documents shrink to the sections that
matched, catalogues to the sections without their descriptions.

A message that is only in the request is made with `reference_message`. A message of the thread (a person's, with a
document in it; a tool result) is marked with `tag_references`; of the thread, the newest human message and the newest
tool result are never shortened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeVar, get_args

from langchain_core.messages import BaseMessage, HumanMessage

from langmem_harness.errors import ConfigurationError
from langmem_harness.window.messages import TAG_KEY

REFERENCES_KEY = "langmem_harness_references"
"""Key in ``additional_kwargs`` of a message with marked text; providers do not see it."""

SECTION_GAP = "\n[…]\n"
"""What stands between sections where a text was shortened."""

LEFT_OUT_TEXT = "[Retrieved text, left out here to save space.]"

ReferenceKind = Literal["recall", "document", "catalogue"]
Message = TypeVar("Message", bound=BaseMessage)


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What one text of a message is.

    Attributes:
        kind: ``"recall"`` (memories, passages: goes whole), ``"document"`` (shrinks to the sections that matched) or
            ``"catalogue"`` (lists of tools, tables, skills: shrinks to its sections, the names without descriptions).
        rank: Place among what was retrieved, from 1, the best; the highest number makes way first.
        sections: ``(start, end)`` in characters of the text that stays, ascending, not overlapping, end exclusive.
            Empty: a document or catalogue stays as it is.
        block: Index of the content block; None when the content is one text.
    """

    kind: ReferenceKind
    rank: int = 1
    sections: Sequence[tuple[int, int]] = ()
    block: int | None = None


def reference_message(passages: Sequence[tuple[str, Reference]]) -> HumanMessage:
    """A message that is only in the request: a text block for each passage, in this order.

    Put it into ``request.messages``, in front of the newest human message, with a middleware that stands before
    `HistoryCompactionMiddleware`. It moves no cut. What is untrusted has to be delimited and screened before.

    Args:
        passages: Text and what it is; its `block` is not read.

    Raises:
        ConfigurationError: No passage, an empty text, or a reference that does not fit its text.
    """
    if not passages:
        raise ConfigurationError("a reference message needs at least one passage")
    content: list[str | dict[Any, Any]] = [{"type": "text", "text": text} for text, _ in passages]
    references = [replace(reference, block=index) for index, (_, reference) in enumerate(passages)]
    message = HumanMessage(content, additional_kwargs={TAG_KEY: {"kind": "reference"}})
    return tag_references(message, references)


def tag_references(message: Message, references: Sequence[Reference]) -> Message:
    """A copy of a message in which these texts are marked; marks it had are replaced.

    Raises:
        ConfigurationError: A reference that does not fit: a block that is not there or has no text, a section outside
            of the text, a rank below 1, two references for one text.
    """
    for reference in references:
        text = _text_at(message, reference.block)
        if text is None or not text.strip():
            raise ConfigurationError(f"there is no text to mark at block {reference.block!r}")
        if reference.kind not in get_args(ReferenceKind):
            raise ConfigurationError(f"kind must be one of {get_args(ReferenceKind)}, not {reference.kind!r}")
        if reference.rank < 1:
            raise ConfigurationError(f"rank must be 1 or more, not {reference.rank!r}")
        if not _are_sections(reference.sections, len(text)):
            raise ConfigurationError(
                f"sections must be ascending (start, end) within {len(text)} characters, not {reference.sections!r}"
            )
    if len({reference.block for reference in references}) != len(references):
        raise ConfigurationError("two references for one text")
    return _with_references(message, references)


def references_of(message: BaseMessage) -> list[Reference]:
    """The marked texts of a message, in stored order; marks that do not fit the message (edited since, or made by
    somebody else) are left out."""
    stored = message.additional_kwargs.get(REFERENCES_KEY) if message.additional_kwargs else None
    if not isinstance(stored, list):
        return []
    return [reference for value in stored if (reference := _parse(value, message)) is not None]


def drop_reference(message: BaseMessage, reference: Reference) -> BaseMessage | None:
    """The message without this text; None when no content is left."""
    if reference.block is None:
        return None
    content = [block for index, block in enumerate(message.content) if index != reference.block]
    if not content:
        return None
    rest = [
        one if one.block is None or one.block < reference.block else replace(one, block=one.block - 1)
        for one in references_of(message)
        if one.block != reference.block
    ]
    return _with_references(message.model_copy(update={"content": content}), rest)


def shorten_reference(message: BaseMessage, reference: Reference) -> BaseMessage:
    """The message with this text cut down to its sections, of which there is at least one, and not marked any more."""
    text = _text_at(message, reference.block) or ""
    sections = reference.sections
    kept = [text[start:end].strip("\n") for start, end in sections]
    before, after = [""] if sections[0][0] > 0 else [], [""] if sections[-1][1] < len(text) else []
    short = SECTION_GAP.join([*before, *kept, *after]).strip()
    if len(short) > len(text):
        short = text  # many gaps may be longer than what they hide
    content: Any = short
    if reference.block is not None:
        content = list(message.content)
        content[reference.block] = {**_as_block(content[reference.block]), "text": short}
    rest = [one for one in references_of(message) if one.block != reference.block]
    return _with_references(message.model_copy(update={"content": content}), rest)


def _with_references(message: Message, references: Sequence[Reference]) -> Message:
    kwargs = {key: value for key, value in message.additional_kwargs.items() if key != REFERENCES_KEY}
    if references:
        kwargs[REFERENCES_KEY] = [
            {**asdict(one), "sections": [list(section) for section in one.sections]} for one in references
        ]
    return message.model_copy(update={"additional_kwargs": kwargs})


def _parse(value: Any, message: BaseMessage) -> Reference | None:
    if not isinstance(value, Mapping) or value.get("kind") not in get_args(ReferenceKind):
        return None
    block, rank, sections = value.get("block"), value.get("rank", 1), value.get("sections", [])
    text = _text_at(message, block)
    if text is None or not isinstance(rank, int) or not isinstance(sections, list):
        return None
    if not _are_sections(sections, len(text)):
        return None
    return Reference(kind=value["kind"], rank=rank, sections=[(start, end) for start, end in sections], block=block)


def _are_sections(sections: Sequence[Any], length: int) -> bool:
    last = 0
    for section in sections:
        if not isinstance(section, list | tuple) or len(section) != 2:
            return False
        start, end = section
        if not isinstance(start, int) or not isinstance(end, int) or not last <= start < end <= length:
            return False
        last = end
    return True


def _text_at(message: BaseMessage, block: Any) -> str | None:
    """The text at a place of a message; None when there is none."""
    content: Any = message.content
    if block is None:
        return content if isinstance(content, str) else None
    if not isinstance(content, list) or not isinstance(block, int) or not 0 <= block < len(content):
        return None
    found = content[block]
    if isinstance(found, str):
        return found
    text = found.get("text") if isinstance(found, Mapping) else None
    return text if isinstance(text, str) else None


def _as_block(block: Any) -> Mapping[str, Any]:
    return block if isinstance(block, Mapping) else {"type": "text"}
