"""Steps of a turn: who runs one, since when, and what came of it.

A step (a model call or a tool call) is claimed before it runs and finished by a log entry. The claim is a lease in
SQLite that its holder renews while the step runs. A claim that ran out without a log entry is the trace of a worker
that died in the middle: the step started, and nobody knows how it ended.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from langmem_harness.errors import StorageError
from langmem_harness.sqlite import Migration
from langmem_harness.threads import tombstones
from langmem_harness.threads.events import TurnEvent, write_body
from langmem_harness.threads.log import ThreadLog, append, find

COMPONENT = "turn_steps"

_PAUSED = -1
"""In place of a time: the step paused itself, and runs from its beginning when it is resumed."""
MIGRATIONS: tuple[Migration, ...] = (
    """
    CREATE TABLE turn_steps (
        thread_id TEXT NOT NULL,
        turn_id TEXT NOT NULL,
        step TEXT NOT NULL,
        holder TEXT NOT NULL,
        expires_at INTEGER NOT NULL,
        PRIMARY KEY (thread_id, turn_id, step)
    ) WITHOUT ROWID;
    """,
)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The right to run a step."""

    thread_id: str
    turn_id: str
    step: str
    holder: str


@dataclass(frozen=True, kw_only=True)
class Busy:
    """Another worker runs the step right now."""


@dataclass(frozen=True, kw_only=True)
class Lost:
    """A worker started the step and died; how it ended is unknown."""


ClaimOutcome = TurnEvent | Claim | Busy | Lost


class TurnSteps:
    """Claims and finishes steps in the file of a thread log.

    Args:
        log: Where finished steps are written.
        lease_seconds: How long a claim lives without being renewed; more than 0. A dead worker is noticed after this.
    """

    def __init__(self, log: ThreadLog, *, lease_seconds: float) -> None:
        self._log = log
        self._database = log.database
        self._lease_seconds = lease_seconds
        self._database.migrate(COMPONENT, MIGRATIONS)

    def claim(self, thread_id: str, turn_id: str, step: str, *, repeatable: bool) -> ClaimOutcome:
        """Try to claim a step.

        Returns:
            The log entry if the step is finished; `Busy` if another worker holds it; `Lost` if its worker died and it
            must not be repeated; else a `Claim`.
        """
        now = _now()
        with self._database.write() as connection:
            tombstones.check_not_erased(connection, thread_id)
            event = find(connection, thread_id, turn_id, step)
            if event is not None:
                return event
            row = connection.execute(
                "SELECT expires_at FROM turn_steps WHERE thread_id = ? AND turn_id = ? AND step = ?",
                (thread_id, turn_id, step),
            ).fetchone()
            if row is not None:
                if row[0] > now:
                    return Busy()
                if not repeatable and row[0] != _PAUSED:
                    return Lost()
            claim = Claim(thread_id=thread_id, turn_id=turn_id, step=step, holder=secrets.token_hex(8))
            connection.execute(
                "INSERT OR REPLACE INTO turn_steps (thread_id, turn_id, step, holder, expires_at) "
                "VALUES (?, ?, ?, ?, ?)",
                (thread_id, turn_id, step, claim.holder, now + int(self._lease_seconds * 1000)),
            )
        return claim

    def finish(
        self, thread_id: str, turn_id: str, step: str, body: Mapping[str, Any], *, supersedes: int | None = None
    ) -> TurnEvent:
        """Write how a step ended. If another worker wrote an end first, that one counts and is returned."""
        written = write_body(body)
        with self._database.write() as connection:
            event = find(connection, thread_id, turn_id, step)
            if event is None:
                event = append(
                    connection, thread_id, turn_id, step, written, supersedes=supersedes, now=self._log.now()
                )
            connection.execute(
                "DELETE FROM turn_steps WHERE thread_id = ? AND turn_id = ? AND step = ?", (thread_id, turn_id, step)
            )
        return event

    def abandon(self, claim: Claim) -> None:
        """The step failed in the middle: from now on its outcome is unknown."""
        self._set_expiry(claim, 0)

    def pause(self, claim: Claim) -> None:
        """The step may run again from its beginning; that it was started stays known."""
        self._set_expiry(claim, _PAUSED)

    def was_started(self, thread_id: str, turn_id: str, step: str) -> bool:
        """Whether a step, or one with a number behind its name (``<step>#<n>``), was ever started."""
        with self._database.read() as connection:
            for table, column in (("turn_steps", "step"), ("thread_events", "kind")):
                names = connection.execute(
                    f"SELECT {column} FROM {table} WHERE thread_id = ? AND turn_id = ? AND {column} >= ?",
                    (thread_id, turn_id, step),
                )
                if any(name == step or name.startswith(f"{step}#") for (name,) in names):
                    return True
        return False

    def running(self, thread_id: str) -> list[str]:
        """Ids of the turns of a thread with a step that a worker holds right now, sorted."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT DISTINCT turn_id FROM turn_steps WHERE thread_id = ? AND expires_at > ? ORDER BY turn_id",
                (thread_id, _now()),
            ).fetchall()
        return [row[0] for row in rows]

    def withdraw(self, claim: Claim) -> None:
        """The step may run again from its beginning."""
        with self._database.write() as connection:
            connection.execute(
                "DELETE FROM turn_steps WHERE thread_id = ? AND turn_id = ? AND step = ? AND holder = ?",
                (claim.thread_id, claim.turn_id, claim.step, claim.holder),
            )

    @contextmanager
    def held(self, claim: Claim) -> Iterator[None]:
        """Renew a claim from a thread of its own while the block runs."""
        stop = threading.Event()

        def renew() -> None:
            while not stop.wait(self._lease_seconds / 3):
                try:
                    self._set_expiry(claim, _now() + int(self._lease_seconds * 1000))
                except StorageError:
                    continue  # busy or full right now: the lease still runs, and the next round tries again

        beat = threading.Thread(target=renew, name="langmem-harness-lease", daemon=True)
        beat.start()
        try:
            yield
        finally:
            stop.set()

    def delete_thread(self, thread_id: str) -> int:
        """Delete every claim of a thread."""
        with self._database.write() as connection:
            return connection.execute("DELETE FROM turn_steps WHERE thread_id = ?", (thread_id,)).rowcount

    def _set_expiry(self, claim: Claim, expires_at: int) -> None:
        with self._database.write() as connection:
            connection.execute(
                "UPDATE turn_steps SET expires_at = ? WHERE thread_id = ? AND turn_id = ? AND step = ? AND holder = ?",
                (expires_at, claim.thread_id, claim.turn_id, claim.step, claim.holder),
            )


def _now() -> int:
    return time.time_ns() // 1_000_000
