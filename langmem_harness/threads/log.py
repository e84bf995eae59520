"""The thread log: what was said and done, append-only, in order, each thing once, and verifiable.

The log is what a checkpoint is not: it is never pruned to its newest state, never rewritten by compaction, and says
what belongs to which turn. Corrections and summaries are new entries that supersede older ones.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Self

from langchain_core.messages import BaseMessage

from langmem_harness.errors import CorruptionError, IdentityError, NotFoundError, TurnConflictError
from langmem_harness.sqlite import Database, Migration
from langmem_harness.threads import tombstones
from langmem_harness.threads.events import (
    START_OF_CHAIN,
    TurnEvent,
    TurnRecord,
    chain_hash,
    epoch_milliseconds,
    from_epoch_milliseconds,
    write_body,
)
from langmem_harness.threads.log_report import LogReport, StoredEntry, check_chain
from langmem_harness.window.messages import text_hash

COMPONENT = "thread_log"

PART_OF_KEY = "part_of"
"""Of the body of a part's first entry: the turn that an agent of a larger graph had a part in."""
MIGRATIONS: tuple[Migration, ...] = (
    """
    CREATE TABLE thread_events (
        thread_id TEXT NOT NULL,
        seq INTEGER NOT NULL,
        turn_id TEXT NOT NULL,
        kind TEXT NOT NULL,
        body TEXT NOT NULL,
        content_hash TEXT NOT NULL,
        chain_hash TEXT NOT NULL,
        supersedes INTEGER,
        created_at INTEGER NOT NULL,
        PRIMARY KEY (thread_id, seq)
    );
    CREATE UNIQUE INDEX thread_events_once ON thread_events (thread_id, turn_id, kind);
    CREATE TABLE thread_log_heads (
        thread_id TEXT PRIMARY KEY,
        seq INTEGER NOT NULL,
        chain_hash TEXT NOT NULL
    ) WITHOUT ROWID;
    """,
)
_COLUMNS = "seq, thread_id, turn_id, kind, body, content_hash, chain_hash, supersedes, created_at"


class ThreadLog:
    """Append-only log of threads in one SQLite file. Safe to share between threads, event loops and processes.

    Args:
        location: Path of the file (its folder must exist), ``":memory:"``, or an open `Database` to share, which then
            stays the caller's to close.
        clock: Gives the time of new entries; for tests.

    Raises:
        SchemaVersionError: The file was written by a newer version of this package.
        StorageUnavailableError: The file cannot be opened, or is new and cannot be written.

    Example:
        >>> log = ThreadLog(":memory:")
        >>> log.append_event("thread", "turn-1", "note", {"text": "hello"}).seq
        1
        >>> log.append_event("thread", "turn-1", "note", {"text": "hello"}).seq  # again: the same entry
        1
        >>> log.close()
    """

    def __init__(
        self,
        location: str | os.PathLike[str] | Database,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._owns_database = not isinstance(location, Database)
        self._database = location if isinstance(location, Database) else Database(location)
        self._clock = clock
        try:
            tombstones.prepare(self._database)
            self._database.migrate(COMPONENT, MIGRATIONS)
        except BaseException:
            self.close()
            raise

    @property
    def database(self) -> Database:
        """The file, to share with a `SqliteCheckpointer`."""
        return self._database

    def now(self) -> datetime:
        """The time new entries get."""
        return self._clock()

    def close(self) -> None:
        """Close the file, unless it was given open. Safe to call twice."""
        if self._owns_database:
            self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def append_event(
        self, thread_id: str, turn_id: str, kind: str, body: Mapping[str, Any], *, supersedes: int | None = None
    ) -> TurnEvent:
        """Append an entry, or give the one that is there already under the same thread, turn and kind.

        Args:
            thread_id: The conversation; not blank.
            turn_id: The user turn; not blank.
            kind: What it is; not blank.
            body: Plain JSON values; a copy is kept.
            supersedes: `seq` of an earlier entry of this thread that this one stands in for.

        Raises:
            TurnConflictError: The entry is there with another body.
            ThreadErasedError: The thread was erased.
            NotFoundError: There is no entry to supersede under that number.
            IdentityError: An id is blank or cannot be stored.
            RecordError: The body is not plain JSON.
        """
        for name, text in (("thread_id", thread_id), ("turn_id", turn_id), ("kind", kind)):
            _check_id(name, text)
        written = write_body(body)
        with self._database.write() as connection:
            return append(connection, thread_id, turn_id, kind, written, supersedes=supersedes, now=self._clock())

    def events(self, thread_id: str, *, turn_id: str | None = None, after: int = 0) -> list[TurnEvent]:
        """Entries of a thread in order; empty for an unknown thread.

        Args:
            thread_id: The conversation.
            turn_id: Only entries of this turn.
            after: Only entries with a `seq` above this.
        """
        with self._database.read() as connection:
            rows = connection.execute(
                f"SELECT {_COLUMNS} FROM thread_events WHERE thread_id = ? AND seq > ? "
                "AND (? IS NULL OR turn_id = ?) ORDER BY seq",
                (thread_id, after, turn_id, turn_id),
            ).fetchall()
        return [read_row(row) for row in rows]

    def get_event(self, thread_id: str, turn_id: str, kind: str) -> TurnEvent | None:
        """One entry, or None."""
        with self._database.read() as connection:
            return find(connection, thread_id, turn_id, kind)

    def messages(self, thread_id: str, *, turn_id: str | None = None) -> list[BaseMessage]:
        """What was said, in order: the messages of all entries that are not superseded. Copies.

        Args:
            thread_id: The conversation.
            turn_id: Only what belongs to this turn.
        """
        place: dict[int, int] = {}
        spoken: dict[int, TurnEvent] = {}
        for event in self.events(thread_id):
            # An entry that supersedes another one speaks in its place, also after the third correction.
            place[event.seq] = event.seq if event.supersedes is None else place[event.supersedes]
            spoken[place[event.seq]] = event
        return [
            message
            for _, event in sorted(spoken.items())
            if turn_id is None or event.turn_id == turn_id
            for message in event.messages()
        ]

    def turns(self, thread_id: str) -> list[TurnRecord]:
        """The turns of a thread, in order of their first entry."""
        with self._database.read() as connection:
            return _read_turns(connection, thread_id)

    def parts(self, thread_id: str, turn_id: str) -> list[TurnRecord]:
        """What the agents of a graph did in a turn, in order of their first entry: one for each pass of each agent."""
        start, end = f"{turn_id}/", f"{turn_id}0"  # "0" is what comes behind "/"
        with self._database.read() as connection:
            firsts = connection.execute(
                "SELECT turn_id, body FROM thread_events "
                "WHERE thread_id = ? AND turn_id >= ? AND turn_id < ? AND kind = 'user'",
                (thread_id, start, end),
            ).fetchall()
            own = {part_id for part_id, body in firsts if json.loads(body).get(PART_OF_KEY) == turn_id}
            return [record for record in _read_turns(connection, thread_id, start, end) if record.turn_id in own]

    def answer(self, thread_id: str, turn_id: str) -> BaseMessage | None:
        """The answer of a turn, or None when it has none yet.

        The answer of a turn of a graph with several agents is that of the part that began last.
        """
        if self.get_event(thread_id, turn_id, "done") is None:
            parts = self.parts(thread_id, turn_id)
            return self.answer(thread_id, parts[-1].turn_id) if parts and parts[-1].is_done else None
        said = reversed(self.messages(thread_id, turn_id=turn_id))
        return next((message for message in said if message.type == "ai"), None)

    def thread_ids(self) -> list[str]:
        """Every thread with an entry, sorted."""
        with self._database.read() as connection:
            return [row[0] for row in connection.execute("SELECT thread_id FROM thread_log_heads ORDER BY thread_id")]

    def verify(self, thread_id: str) -> LogReport:
        """Re-derive every hash of a thread: changed, missing, moved and cut-off entries show."""
        with self._database.read() as connection:
            rows = connection.execute(
                f"SELECT {_COLUMNS} FROM thread_events WHERE thread_id = ? ORDER BY seq", (thread_id,)
            ).fetchall()
            head = connection.execute(
                "SELECT seq, chain_hash FROM thread_log_heads WHERE thread_id = ?", (thread_id,)
            ).fetchone()
        entries = [StoredEntry._make((*row[:8], from_epoch_milliseconds(row[8]))) for row in rows]
        return check_chain(entries, head or (0, START_OF_CHAIN))

    def delete_thread(self, thread_id: str) -> int:
        """Delete every entry of a thread; returns how many. To forget a thread for good, use `erase`."""
        with self._database.write() as connection:
            connection.execute("DELETE FROM thread_log_heads WHERE thread_id = ?", (thread_id,))
            return connection.execute("DELETE FROM thread_events WHERE thread_id = ?", (thread_id,)).rowcount

    def restore_events(self, events: list[TurnEvent]) -> int:
        """Put back the entries of an archived thread as they were; returns how many were not there yet.

        Raises:
            TurnConflictError: The thread has other entries already.
            ThreadErasedError: The thread was erased.
        """
        restored = 0
        with self._database.write() as connection:
            for event in events:
                count = connection.execute(
                    "SELECT count(*) FROM thread_events WHERE thread_id = ?", (event.thread_id,)
                ).fetchone()[0]
                kept = append(
                    connection,
                    event.thread_id,
                    event.turn_id,
                    event.kind,
                    write_body(event.body),
                    supersedes=event.supersedes,
                    now=event.created_at,
                )
                if kept.chain_hash != event.chain_hash:
                    raise TurnConflictError("the thread has other log entries than the archive; restore it elsewhere")
                restored += kept.seq > count
        return restored

    async def aappend_event(
        self, thread_id: str, turn_id: str, kind: str, body: Mapping[str, Any], *, supersedes: int | None = None
    ) -> TurnEvent:
        """Async twin of `append_event`."""
        return await asyncio.to_thread(self.append_event, thread_id, turn_id, kind, body, supersedes=supersedes)

    async def aevents(self, thread_id: str, *, turn_id: str | None = None, after: int = 0) -> list[TurnEvent]:
        """Async twin of `events`."""
        return await asyncio.to_thread(self.events, thread_id, turn_id=turn_id, after=after)

    async def aget_event(self, thread_id: str, turn_id: str, kind: str) -> TurnEvent | None:
        """Async twin of `get_event`."""
        return await asyncio.to_thread(self.get_event, thread_id, turn_id, kind)

    async def amessages(self, thread_id: str, *, turn_id: str | None = None) -> list[BaseMessage]:
        """Async twin of `messages`."""
        return await asyncio.to_thread(self.messages, thread_id, turn_id=turn_id)

    async def aturns(self, thread_id: str) -> list[TurnRecord]:
        """Async twin of `turns`."""
        return await asyncio.to_thread(self.turns, thread_id)

    async def aanswer(self, thread_id: str, turn_id: str) -> BaseMessage | None:
        """Async twin of `answer`."""
        return await asyncio.to_thread(self.answer, thread_id, turn_id)

    async def averify(self, thread_id: str) -> LogReport:
        """Async twin of `verify`."""
        return await asyncio.to_thread(self.verify, thread_id)


def append(
    connection: sqlite3.Connection,
    thread_id: str,
    turn_id: str,
    kind: str,
    body: str,
    *,
    supersedes: int | None = None,
    now: datetime,
) -> TurnEvent:
    """`ThreadLog.append_event` inside a transaction of the caller; `body` is what `write_body` gave."""
    tombstones.check_not_erased(connection, thread_id)
    content_hash = text_hash(body)
    found = find(connection, thread_id, turn_id, kind)
    if found is not None:
        if found.content_hash != content_hash or found.supersedes != supersedes:
            raise TurnConflictError(
                f"turn {turn_id!r} already has another {kind!r} entry (number {found.seq}): "
                "use a new turn_id for other content"
            )
        return found
    seq, before = connection.execute(
        "SELECT seq, chain_hash FROM thread_log_heads WHERE thread_id = ?", (thread_id,)
    ).fetchone() or (0, START_OF_CHAIN)
    if supersedes is not None and not 1 <= supersedes <= seq:
        raise NotFoundError(f"there is no log entry number {supersedes!r} to supersede")
    facts: dict[str, Any] = {
        "seq": seq + 1,
        "thread_id": thread_id,
        "turn_id": turn_id,
        "kind": kind,
        "content_hash": content_hash,
        "supersedes": supersedes,
        "created_at": from_epoch_milliseconds(epoch_milliseconds(now)),
    }
    event = TurnEvent(**facts, body=json.loads(body), chain_hash=chain_hash(before, **facts))
    connection.execute(
        f"INSERT INTO thread_events ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            event.seq,
            thread_id,
            turn_id,
            kind,
            body,
            content_hash,
            event.chain_hash,
            supersedes,
            epoch_milliseconds(event.created_at),
        ),
    )
    connection.execute(
        "INSERT OR REPLACE INTO thread_log_heads (thread_id, seq, chain_hash) VALUES (?, ?, ?)",
        (thread_id, event.seq, event.chain_hash),
    )
    return event


def find(connection: sqlite3.Connection, thread_id: str, turn_id: str, kind: str) -> TurnEvent | None:
    """One entry, or None."""
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM thread_events WHERE thread_id = ? AND turn_id = ? AND kind = ?",
        (thread_id, turn_id, kind),
    ).fetchone()
    return None if row is None else read_row(row)


def _read_turns(
    connection: sqlite3.Connection, thread_id: str, start: str | None = None, end: str | None = None
) -> list[TurnRecord]:
    """Turns of a thread with an id from `start` on and before `end`, in order of their first entry."""
    between, ids = ("", ()) if start is None else (" AND turn_id >= ? AND turn_id < ?", (start, end))
    rows = connection.execute(
        "SELECT turn_id, max(kind = 'done'), count(*), min(seq), min(created_at), max(created_at) "
        f"FROM thread_events WHERE thread_id = ?{between} GROUP BY turn_id ORDER BY min(seq)",
        (thread_id, *ids),
    ).fetchall()
    return [
        TurnRecord(
            turn_id=turn_id,
            is_done=bool(is_done),
            events=count,
            first_seq=first_seq,
            started_at=from_epoch_milliseconds(started),
            updated_at=from_epoch_milliseconds(updated),
        )
        for turn_id, is_done, count, first_seq, started, updated in rows
    ]


def read_row(row: tuple[Any, ...]) -> TurnEvent:
    """The entry in a row of `_COLUMNS`.

    Raises:
        CorruptionError: The body is no JSON any more.
    """
    try:
        body = json.loads(row[4])
    except ValueError as error:
        raise CorruptionError(f"log entry number {row[0]!r} is damaged; restore the file from a backup") from error
    return TurnEvent(
        seq=row[0],
        thread_id=row[1],
        turn_id=row[2],
        kind=row[3],
        body=body,
        content_hash=row[5],
        chain_hash=row[6],
        supersedes=row[7],
        created_at=from_epoch_milliseconds(row[8]),
    )


def _check_id(name: str, text: str) -> None:
    if not isinstance(text, str) or not text.strip():
        raise IdentityError(f"{name} must be a text that is not blank, not {text!r}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise IdentityError(f"{name} {text!r} has a lone surrogate and cannot be stored") from None
