"""The way back from a tool message in the state to what the tool gave: for user interfaces, parsers and tests.

Three forms are told apart: a result that was only delimited (the block is taken off), one whose text was changed or
shortened (the stored text is read), and one that stands as the tool gave it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import ToolMessage
from langgraph.store.base import BaseStore, Item, ListNamespacesOp, MatchCondition

from langmem_harness.driving import Body, adrive, drive
from langmem_harness.errors import ConfigurationError, NotFoundError
from langmem_harness.layout import decode_label, tool_outputs_namespace
from langmem_harness.middleware.raw_outputs import (
    OutputPlace,
    asking,
    parse_handle,
    parse_item,
    read_operation,
    utc_now,
)
from langmem_harness.middleware.tool_content import Content
from langmem_harness.middleware.tool_shortening import ORIGINAL, SHOWN, without_blocks
from langmem_harness.window.messages import tag_of

THREADS_AT_ONCE = 500


def original_content(message: ToolMessage, store: BaseStore | None = None, *, thread_id: str | None = None) -> Content:
    """What a tool gave, for a message that went through `ToolOutputSummarizationMiddleware`.

    A result that was only delimited for the model is given back exactly, without a store; so is one that was not
    touched. For a result that was shortened or screened the stored text is read: all text of the result, also when it
    was a list of blocks. This function is for the application and asks for no user: who may see a thread is the
    application's to decide. A message that never went through the middleware is given back as it is, unless its whole
    text imitates our block.

    Args:
        message: A tool message of the state.
        store: Where raw outputs are; needed for results with a handle in their tag.
        thread_id: The conversation of the message. Without it all threads of the store are looked through, one read
            each.

    Raises:
        ConfigurationError: The result is stored, and `store` is missing.
        NotFoundError: The raw text is not kept (any more).

    Example:
        >>> block = '<untrusted-data label="tool result" source="get_order">\\n{"order": 7}\\n</untrusted-data>'
        >>> original_content(ToolMessage(block, tool_call_id="1"))
        '{"order": 7}'
    """
    return drive(_original(message, store, thread_id))


async def aoriginal_content(
    message: ToolMessage, store: BaseStore | None = None, *, thread_id: str | None = None
) -> Content:
    """`original_content` for stores that are read on the event loop."""
    return await adrive(_original(message, store, thread_id))


def _original(message: ToolMessage, store: BaseStore | None, thread_id: str | None) -> Body[Content]:
    tag = tag_of(message)
    if tag is None or tag["kind"] != "tool_output":
        return without_blocks(message.content)
    if SHOWN in tag:
        return message.content
    if ORIGINAL in tag:
        original: Content = tag[ORIGINAL]
        return original
    handle = parse_handle(str(tag.get("handle") or ""))
    if handle is None:
        raise NotFoundError("the original of this tool result was not stored: there was no store or no thread_id")
    if store is None:
        raise ConfigurationError("the original of this tool result is stored: pass store=")
    known = [thread_id] if thread_id is not None else (yield from _threads(store))
    for each in known:
        place = OutputPlace(thread_id=each, owner=None)
        (item,) = yield asking(store, read_operation(place, handle))
        raw = parse_item(item, OutputPlace(thread_id=each, owner=_owner(item)), now=utc_now())
        if raw is not None:
            return raw.text
    raise NotFoundError(f"no tool output {handle} is stored" + (" for this thread" if thread_id is not None else ""))


def _threads(store: BaseStore) -> Body[list[str]]:
    """The threads that have stored outputs. A handle is made from its thread, so it is found in no other."""
    first, _, last = tool_outputs_namespace("any")
    conditions = (MatchCondition("prefix", (first,)), MatchCondition("suffix", (last,)))
    threads: list[str] = []
    while True:
        search = ListNamespacesOp(conditions, max_depth=3, limit=THREADS_AT_ONCE, offset=len(threads))
        (found,) = yield asking(store, search)
        threads += [decode_label(namespace[1]) for namespace in found]
        if len(found) < THREADS_AT_ONCE:
            return threads


def _owner(item: Item | None) -> tuple[str, str] | None:
    owner: Any = item.value.get("owner") if item is not None and isinstance(item.value, Mapping) else None
    return (str(owner[0]), str(owner[1])) if isinstance(owner, list | tuple) and len(owner) == 2 else None
