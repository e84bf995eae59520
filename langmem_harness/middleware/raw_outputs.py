"""Raw tool outputs in a LangGraph store: one item each, under a short handle, in the namespace of its thread.

Pure but for the store operations it describes. A handle is made from the owner, the thread and a hash of the text: the
same output in the same thread always has the same handle, so a repeated turn stores it once and the prompt stays the
same to the byte. Nothing can be learnt from a handle, and it opens nothing outside its thread and owner.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from langgraph.store.base import BaseStore, GetOp, Item, Op, PutOp

from langmem_harness.driving import Ask, Body
from langmem_harness.errors import IdentityError, StorageError
from langmem_harness.layout import tool_outputs_namespace
from langmem_harness.memory.scope import scope_from_runtime, thread_from_config
from langmem_harness.window.messages import OUTPUT_HANDLE, text_hash

FORMAT_VERSION = 1
HANDLE_CHARACTERS = 12
"""60 bits: two outputs of one thread share a handle once in a billion threads of ten thousand outputs each."""

_NOT_JSON_EVERYWHERE = re.compile("[\x00\ud800-\udfff]")


@dataclass(frozen=True, kw_only=True)
class OutputPlace:
    """Where the outputs of the running step belong; comes from the runtime, never from the model.

    Attributes:
        thread_id: The conversation.
        owner: Tenant and user, or None when the run names no user.
    """

    thread_id: str
    owner: tuple[str, str] | None

    @property
    def namespace(self) -> tuple[str, ...]:
        """Where the outputs of the thread are."""
        return tool_outputs_namespace(self.thread_id)

    def handle_of(self, text: str, *, characters: int = HANDLE_CHARACTERS) -> str:
        """The handle of a text in this place."""
        digest = hashlib.sha256()
        for part in (self.thread_id, *(self.owner or ()), text_hash(text)):
            digest.update(hashlib.sha256(part.encode("utf-8", "surrogatepass")).digest())
        return f"out_{base64.b32encode(digest.digest()).decode().lower()[:characters]}"


@dataclass(frozen=True, kw_only=True)
class RawOutput:
    """A stored output.

    Attributes:
        text: The text, exactly as the tool gave it.
        tool: Name of the tool.
        trusted: Whether the tool was declared trusted.
    """

    text: str
    tool: str
    trusted: bool


def output_place(context: Any, config: Mapping[str, Any] | None) -> OutputPlace | None:
    """The place of the running step, or None when it has no thread."""
    thread_id = thread_from_config(config)
    if thread_id is None:
        return None
    try:
        scope = scope_from_runtime(context, config)
    except IdentityError:  # an agent without users: the thread alone is the owner
        return OutputPlace(thread_id=thread_id, owner=None)
    return OutputPlace(thread_id=thread_id, owner=(scope.tenant, scope.user))


def write_operation(
    place: OutputPlace, handle: str, raw: RawOutput, *, now: datetime, ttl_minutes: float | None, store: BaseStore
) -> PutOp:
    """The write of one output. It is not embedded and not searched.

    Args:
        place: Whose it is.
        handle: Its key.
        raw: What is stored.
        now: Aware UTC time.
        ttl_minutes: How long it is kept; a store that knows no time to live keeps it, but it is not found any more.
        store: Where it goes.
    """
    value: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "owner": list(place.owner) if place.owner else None,
        "content_hash": text_hash(raw.text),
        "tool": raw.tool,
        "trusted": raw.trusted,
        "characters": len(raw.text),
        "created_at": now.isoformat(),
        "expires_at": (now + timedelta(minutes=ttl_minutes)).isoformat() if ttl_minutes is not None else None,
    }
    if _NOT_JSON_EVERYWHERE.search(raw.text):  # PostgreSQL takes no NUL, UTF-8 no lone surrogate
        value["text_base64"] = base64.b64encode(raw.text.encode("utf-8", "surrogatepass")).decode("ascii")
    else:
        value["text"] = raw.text
    ttl = ttl_minutes if store.supports_ttl else None
    return PutOp(place.namespace, handle, value, index=False, ttl=ttl)


def read_operation(place: OutputPlace, handle: str) -> GetOp:
    """The read of one output; reading makes it live longer where the store refreshes."""
    return GetOp(place.namespace, handle)


def parse_handle(handle: str) -> str | None:
    """The handle as it is stored, or None when the text cannot be one. Quotes and blanks around it are fine."""
    cleaned = handle.strip().strip("'\"`<>").strip().lower()
    return cleaned if OUTPUT_HANDLE.fullmatch(cleaned) else None


def is_same_output(item: Item, text: str, place: OutputPlace) -> bool:
    """Whether a stored item says that it is this text of this owner, expired or not."""
    return item.value.get("content_hash") == text_hash(text) and _is_owner(item.value, place)


def parse_item(item: Item | None, place: OutputPlace, *, now: datetime) -> RawOutput | None:
    """The output in a stored item; None when there is none, it is another owner's, has expired or is not ours."""
    if item is None or not _is_owner(item.value, place):
        return None
    value = item.value
    expires_at = value.get("expires_at")
    if expires_at is not None and datetime.fromisoformat(expires_at) <= now:
        return None
    encoded = value.get("text_base64")
    text = base64.b64decode(encoded).decode("utf-8", "surrogatepass") if encoded is not None else value.get("text")
    if not isinstance(text, str) or text_hash(text) != value.get("content_hash"):
        return None
    return RawOutput(text=text, tool=str(value.get("tool") or ""), trusted=value.get("trusted") is True)


def store_raw(
    store: BaseStore, place: OutputPlace, raw: RawOutput, *, now: datetime, ttl_minutes: float | None
) -> Body[tuple[str, bool]]:
    """Write a raw output and read it back; the handle, and whether it was there already.

    Raises:
        StorageError: The store took the write and does not have it.
    """
    for characters in (HANDLE_CHARACTERS, 2 * HANDLE_CHARACTERS):
        handle = place.handle_of(raw.text, characters=characters)
        (item,) = yield asking(store, read_operation(place, handle))
        if item is None or is_same_output(item, raw.text, place):
            break  # else other content has this handle, and a longer one is tried
    if item is not None and ttl_minutes is None and parse_item(item, place, now=now) is not None:
        return handle, True
    yield asking(store, write_operation(place, handle, raw, now=now, ttl_minutes=ttl_minutes, store=store))
    known = item is not None
    (item,) = yield asking(store, read_operation(place, handle))
    written = parse_item(item, place, now=now)
    if written is None or written.text != raw.text:
        raise StorageError("the store took a tool output and does not give it back")
    return handle, known


def asking(store: BaseStore, operation: Op) -> Ask:
    """One operation of a store, for both faces."""

    async def abatch() -> Any:
        return await store.abatch([operation])

    return Ask(do=lambda: store.batch([operation]), ado=abatch)


def utc_now() -> datetime:
    """The current time, aware."""
    return datetime.now(UTC)


def _is_owner(value: Mapping[str, Any], place: OutputPlace) -> bool:
    return value.get("owner") == (list(place.owner) if place.owner else None)
