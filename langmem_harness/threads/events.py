"""`TurnEvent`: one thing that happened in a turn, and the chain that holds a thread's events together. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from langchain_core.messages import BaseMessage, message_to_dict, messages_from_dict

from langmem_harness.errors import RecordError
from langmem_harness.window.messages import text_hash

FORMAT_VERSION = 1

START_OF_CHAIN = text_hash("")
"""What the first event of a thread is chained to."""

_UNREADABLE = "the log entry is not a message"


@dataclass(frozen=True, kw_only=True)
class TurnEvent:
    """One entry of a thread log. Entries are never changed; a later one may supersede an earlier one.

    Attributes:
        seq: Position in the thread, from 1, without gaps.
        thread_id: The conversation.
        turn_id: The user turn it belongs to: the caller's idempotency key.
        kind: ``"user"``, ``"assistant:<n>"`` (n-th model call of the turn, from 0), ``"tool:<call id>"``,
            ``"summary"``, ``"done"``, or a name of the caller's own. One entry per thread, turn and kind.
        body: Plain JSON values.
        content_hash: Tagged hash of the canonical body.
        chain_hash: Tagged hash of this entry and of the chain before it.
        supersedes: `seq` of the earlier entry of this thread that this one stands in for.
        created_at: Aware UTC, to the millisecond.
    """

    seq: int
    thread_id: str
    turn_id: str
    kind: str
    body: Mapping[str, Any]
    content_hash: str
    chain_hash: str
    created_at: datetime
    supersedes: int | None = None
    format_version: int = FORMAT_VERSION

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "seq": self.seq,
            "thread_id": self.thread_id,
            "turn_id": self.turn_id,
            "kind": self.kind,
            "body": json.loads(write_body(self.body)),
            "content_hash": self.content_hash,
            "chain_hash": self.chain_hash,
            "created_at": self.created_at.astimezone(UTC).isoformat(),
            "supersedes": self.supersedes,
            "format_version": self.format_version,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The entry written by `to_dict`; unknown keys are ignored.

        Raises:
            RecordError: Not an entry.
        """
        try:
            return cls(
                seq=int(data["seq"]),
                thread_id=str(data["thread_id"]),
                turn_id=str(data["turn_id"]),
                kind=str(data["kind"]),
                body=dict(data["body"]),
                content_hash=str(data["content_hash"]),
                chain_hash=str(data["chain_hash"]),
                created_at=datetime.fromisoformat(data["created_at"]),
                supersedes=None if data.get("supersedes") is None else int(data["supersedes"]),
                format_version=int(data.get("format_version", FORMAT_VERSION)),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RecordError("not an entry of a thread log") from error

    def messages(self) -> list[BaseMessage]:
        """The messages in the body; empty when there is none.

        Raises:
            RecordError: The body says it has messages and they cannot be read.
        """
        return messages_of(self.body)


@dataclass(frozen=True, kw_only=True)
class TurnRecord:
    """One turn of a thread.

    Attributes:
        turn_id: The caller's idempotency key.
        is_done: Whether it was answered.
        events: Number of its entries.
        first_seq: Position of its first entry.
        started_at: Time of its first entry, aware UTC.
        updated_at: Time of its last entry, aware UTC.
    """

    turn_id: str
    is_done: bool
    events: int
    first_seq: int
    started_at: datetime
    updated_at: datetime


def write_body(body: Mapping[str, Any]) -> str:
    """Canonical JSON in ASCII, so that every text SQLite could trip over (NUL, lone surrogates) comes back as it was.

    Raises:
        RecordError: The body holds something JSON does not know.
    """
    try:
        return json.dumps(body, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise RecordError("the body of a log entry must be plain JSON values with text keys") from error


def chain_hash(
    before: str,
    *,
    seq: int,
    thread_id: str,
    turn_id: str,
    kind: str,
    content_hash: str,
    supersedes: int | None,
    created_at: datetime,
) -> str:
    """Hash of an entry and, through the hash before it, of everything before it."""
    facts = [before, seq, thread_id, turn_id, kind, content_hash, supersedes, epoch_milliseconds(created_at)]
    return text_hash(json.dumps(facts))


def epoch_milliseconds(moment: datetime) -> int:
    """Whole milliseconds since 1970, exact for times this package made."""
    return round(moment.timestamp() * 1000)


def from_epoch_milliseconds(milliseconds: int) -> datetime:
    """Aware UTC time."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def messages_body(messages: list[BaseMessage]) -> dict[str, Any]:
    """A body that holds messages. Objects without a JSON form are left out of artifacts, and named elsewhere."""
    return {"messages": [_message_dict(message) for message in messages]}


def messages_of(body: Mapping[str, Any]) -> list[BaseMessage]:
    """The messages of a body made by `messages_body`; a fresh copy each time."""
    stored = body.get("messages", [])
    try:
        return messages_from_dict(json.loads(write_body({"m": stored}))["m"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecordError(_UNREADABLE) from error


def _message_dict(message: BaseMessage) -> dict[str, Any]:
    stored = message_to_dict(message)
    try:
        write_body(stored)
    except RecordError:
        # Only an artifact, or an extra of a provider, can hold an object without a JSON form. No model ever sees it.
        stored["data"]["artifact"] = None
        return dict(json.loads(json.dumps(stored, default=repr, skipkeys=True)))
    return stored
