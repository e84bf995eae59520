"""One SQLite file, opened the way everything in this package needs it.

`Database` is the only way to SQLite: WAL journal, a busy timeout, foreign keys on, owner-only files,
transactions that begin immediately and roll back on any `BaseException`, one writer connection and one reader
connection per thread, connections that are never carried over a fork, numbered migrations per component, and one
border where `sqlite3` errors become ours. A file that cannot be written is opened for reading, and left as it is.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from langmem_harness.errors import (
    ConfigurationError,
    SchemaVersionError,
    StorageBusyError,
    StorageClosedError,
    StorageUnavailableError,
)
from langmem_harness.sqlite_file import (
    can_write,
    connect_for_reading,
    create_private_file,
    state_of_files,
    translate_sqlite_error,
)

Migration = str | Callable[[sqlite3.Connection], None]
"""SQL statements separated by ``;``, or a function; runs inside the migration transaction."""

MEMORY_LOCATION = ":memory:"

_VERSIONS_TABLE = """
CREATE TABLE IF NOT EXISTS langmem_harness_schema (
    component TEXT PRIMARY KEY,
    version INTEGER NOT NULL
) WITHOUT ROWID
"""


def holds_component(location: str | os.PathLike[str], component: str) -> bool:
    """Whether an existing file holds tables of this component.

    Opens it for reading only: `Database` would switch somebody else's database to another journal, and whoever
    migrates it would leave tables there.

    Raises:
        CorruptionError: The file is damaged or not a SQLite database.
        StorageUnavailableError: It cannot be opened.
    """
    try:
        with contextlib.closing(connect_for_reading(Path(location))) as connection:
            if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'langmem_harness_schema'").fetchone():
                found = connection.execute("SELECT 1 FROM langmem_harness_schema WHERE component = ?", (component,))
                return found.fetchone() is not None
            return False
    except sqlite3.Error as error:
        raise translate_sqlite_error(error, os.fspath(location)) from error


class Database:
    """A SQLite file (or a private in-memory database) with one writer and many readers.

    Safe to share between threads and event loops. After a fork the child opens its own connections. In a transaction
    nothing slow may happen: models and embedders are called before it.

    A file that this process may not write is opened for reading only: nothing is created beside it or migrated, every
    write is a `StorageUnavailableError`. What others commit meanwhile is seen by the next read.

    Args:
        location: Path of the file; its folder must exist. ``":memory:"`` gives a private database that lives as long
            as this object.
        busy_timeout_seconds: How long a write waits for another writer before `StorageBusyError`; 0 or more.
        synchronous: ``"normal"`` survives a killed process but may lose the last commits when the machine loses
            power; ``"full"`` survives that too, at the price of a disk flush per transaction.

    Attributes:
        location: As given.
        in_memory: Whether it is a private in-memory database.
        read_only: Whether the file, or the folder its journal would be made in, cannot be written.

    Raises:
        ConfigurationError: `busy_timeout_seconds` is negative.
        StorageUnavailableError: The file cannot be created or opened.
        CorruptionError: The file is not a SQLite database.
    """

    def __init__(
        self,
        location: str | os.PathLike[str],
        *,
        busy_timeout_seconds: float = 10.0,
        synchronous: Literal["normal", "full"] = "normal",
    ) -> None:
        if not busy_timeout_seconds >= 0:
            raise ConfigurationError(f"busy_timeout_seconds must be 0 or more, not {busy_timeout_seconds!r}")
        self.location = os.fspath(location)
        self.in_memory = self.location == MEMORY_LOCATION
        self._busy_timeout_seconds = busy_timeout_seconds
        self._synchronous = synchronous
        self._write_lock = threading.RLock()
        self._local = threading.local()
        self._readers: dict[sqlite3.Connection, int] = {}  # every open reader, and how many reads it is in
        self._readers_lock = threading.Lock()
        self._closed = False
        self._pid = os.getpid()
        if not self.in_memory:
            create_private_file(Path(self.location))
        self.read_only = not self.in_memory and not can_write(Path(self.location))
        self._writer = self._connect()

    # -- connections --------------------------------------------------------------------------------------------

    def _connect(self, *, for_reading: bool = False) -> sqlite3.Connection:
        if not self.in_memory and not Path(self.location).exists():
            # SQLite would make an empty one, and every read would find nothing without a word
            raise StorageUnavailableError(f"{self.location} is gone: it was deleted or moved while it was open")
        try:
            if self.read_only:
                connection = connect_for_reading(Path(self.location), timeout_seconds=self._busy_timeout_seconds)
            else:
                connection = sqlite3.connect(
                    self.location,
                    timeout=self._busy_timeout_seconds,
                    isolation_level=None,  # we say BEGIN and COMMIT ourselves
                    check_same_thread=False,
                )
        except sqlite3.Error as error:
            raise translate_sqlite_error(error, self.location) from error
        try:
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute(f"PRAGMA synchronous = {self._synchronous.upper()}")
            if for_reading or self.read_only:
                connection.execute("PRAGMA query_only = ON")
                connection.execute("PRAGMA schema_version")  # reads the file: what is no database shows here
            elif not self.in_memory:
                try:
                    connection.execute("PRAGMA journal_mode = WAL")
                except sqlite3.OperationalError:
                    # a read-only file keeps its journal mode and can still be read; anything else shows below
                    connection.execute("PRAGMA schema_version")
        except sqlite3.Error as error:
            connection.close()
            raise translate_sqlite_error(error, self.location) from error
        return connection

    def _check_usable(self) -> None:
        if self._closed:
            raise StorageClosedError(f"{self.location} is closed")
        if self._pid != os.getpid():
            self._reopen_after_fork()

    def _check_writable(self) -> None:
        self._check_usable()
        if self.read_only:
            raise StorageUnavailableError(f"{self.location} is read-only: the file or its folder cannot be written")

    def _reopen_after_fork(self) -> None:
        if self.in_memory:
            raise StorageUnavailableError("an in-memory database cannot be used after a fork; use a file")
        # The parent's connections must not even be closed here: that would drop the parent's file locks.
        self._abandoned = (self._writer, self._readers, self._local)
        self._readers = {}
        self._local = threading.local()
        self._readers_lock = threading.Lock()
        self._write_lock = threading.RLock()
        self._pid = os.getpid()
        self._writer = self._connect()

    def _enter_reader(self) -> sqlite3.Connection:
        """This thread's reader, counted as in use until `_leave_reader`."""
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        state = state_of_files(Path(self.location)) if self.read_only else None
        if connection is not None and state != self._local.state and not self._readers.get(connection):
            self._forget_reader(connection)  # it was opened without regard to writers, and there was one
            self._local.owner = connection = None  # here: its end takes the lock that is taken below
        fresh = self._connect(for_reading=True) if connection is None else None
        with self._readers_lock:
            if not self._closed:
                if fresh is not None:
                    connection = fresh
                    self._readers[connection] = 0
                    self._local.connection = connection
                    self._local.state = state
                    self._local.owner = _CloseWithThread(self, connection)
                assert connection is not None  # noqa: S101 - one of the two is there
                self._readers[connection] += 1
                return connection
        if fresh is not None:
            fresh.close()
        raise StorageClosedError(f"{self.location} is closed")

    def _leave_reader(self, connection: sqlite3.Connection) -> None:
        """Count the reader as free; after `close` the last one out closes it, never another thread."""
        with self._readers_lock:
            self._readers[connection] -= 1
            if not self._closed or self._readers[connection]:
                return
            del self._readers[connection]
        connection.close()

    def _forget_reader(self, connection: sqlite3.Connection) -> None:
        with self._readers_lock:
            known = self._readers.pop(connection, None)
        if known is not None:
            connection.close()

    # -- use ----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """A write transaction: begins immediately, commits on success, rolls back on any `BaseException`.

        Re-entrant in one thread: an inner ``write`` joins the outer transaction.

        Raises:
            StorageBusyError: Another writer held the lock longer than the busy timeout.
            StorageUnavailableError: The disk is full, or the file is read-only. Nothing of the transaction was kept.
        """
        self._check_writable()
        with self._write_lock:
            if self._closed:
                raise StorageClosedError(f"{self.location} is closed")
            connection = self._writer
            if connection.in_transaction:
                yield connection
                return
            try:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
            except sqlite3.Error as error:
                raise translate_sqlite_error(error, self.location) from error

    @contextlib.contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A read transaction: all statements inside see one state of the database.

        Inside this thread's own ``write`` it sees that transaction's changes.
        """
        self._check_usable()
        if self.in_memory or self.writes_in_this_thread():
            with self._write_lock:
                if self._closed:
                    raise StorageClosedError(f"{self.location} is closed")
                try:
                    yield self._writer
                except sqlite3.Error as error:
                    raise translate_sqlite_error(error, self.location) from error
            return
        connection = self._enter_reader()
        try:
            if connection.in_transaction:
                yield connection
                return
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                if connection.in_transaction:
                    connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise translate_sqlite_error(error, self.location) from error
        finally:
            self._leave_reader(connection)

    def writes_in_this_thread(self) -> bool:
        """Whether this thread is inside a `write`: what it reads may still be undone."""
        if not self._write_lock.acquire(blocking=False):
            return False
        try:
            return not self._closed and self._writer.in_transaction
        finally:
            self._write_lock.release()

    def vacuum(self) -> None:
        """Give free pages back to the disk and empty the journal. Copies the whole file; other writers wait.

        Nothing that was deleted before is in the bytes of file and journal afterwards.

        Raises:
            StorageBusyError: Somebody was reading for longer than the busy timeout, so that the old journal is still
                there; everything else was done. Call it again.
            StorageUnavailableError: The file is read-only.
            StorageError: A transaction of this thread is open, or the disk has no room for the copy.
        """
        self._check_writable()
        with self._write_lock:
            if self._closed:
                raise StorageClosedError(f"{self.location} is closed")
            try:
                self._writer.execute("VACUUM")
                if self.in_memory:
                    return
                (is_busy, *_) = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            except sqlite3.Error as error:
                raise translate_sqlite_error(error, self.location) from error
        if is_busy:
            raise StorageBusyError(
                f"{self.location} was rewritten, but a reader keeps its old journal; call again when it is done"
            )

    def migrate(self, component: str, migrations: Sequence[Migration]) -> None:
        """Bring the tables of one component to the newest version, in one transaction.

        Args:
            component: Name of the part, for example ``"store"``.
            migrations: All of them, oldest first; the version is how many have run. Never change one that was
                released.

        Raises:
            SchemaVersionError: The file is newer than `migrations`. Nothing was changed.
            StorageUnavailableError: It is older, or has no such tables yet, and is read-only.
        """
        found = self._schema_version(component)
        if found == len(migrations):
            return
        if found > len(migrations):
            raise SchemaVersionError(component, found=found, supported=len(migrations))
        if self.read_only:
            state = "of an older version, and have to be" if found else "not there, and would have to be"
            change = "migrated" if found else "made"
            raise StorageUnavailableError(
                f"{self.location} is read-only: its {component} tables are {state} {change}; open a copy of it"
            )
        with self.write() as connection:
            connection.execute(_VERSIONS_TABLE)
            found = self._schema_version(component)  # another process may have been faster
            for migration in migrations[found:]:
                if callable(migration):
                    migration(connection)
                else:
                    for statement in _split_statements(migration):
                        connection.execute(statement)
            connection.execute(
                "INSERT INTO langmem_harness_schema (component, version) VALUES (?, ?) "
                "ON CONFLICT (component) DO UPDATE SET version = excluded.version",
                (component, len(migrations)),
            )

    def _schema_version(self, component: str) -> int:
        with self.read() as connection:
            known = connection.execute(
                "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'langmem_harness_schema'"
            ).fetchone()
            if known is None:
                return 0
            row = connection.execute(
                "SELECT version FROM langmem_harness_schema WHERE component = ?", (component,)
            ).fetchone()
            return int(row[0]) if row else 0

    def close(self) -> None:
        """Close every connection. Safe to call twice.

        A running write of another thread finishes first. A running read of another thread goes on and closes its own
        connection when it is done: SQLite connections must not be closed under a statement.
        """
        if self._closed or self._pid != os.getpid():
            self._closed = True
            return
        with self._write_lock:
            with self._readers_lock:
                self._closed = True
                idle = [connection for connection, reads in self._readers.items() if not reads]
                for connection in idle:
                    del self._readers[connection]
            for connection in idle:
                connection.close()
            self._writer.close()


class _CloseWithThread:
    """Closes a thread's reader when the thread ends and its `threading.local` values are dropped."""

    def __init__(self, database: Database, connection: sqlite3.Connection) -> None:
        self._database = database
        self._connection = connection
        self._pid = os.getpid()

    def __del__(self) -> None:
        if self._pid == os.getpid():
            self._database._forget_reader(self._connection)


def _split_statements(script: str) -> Iterator[str]:
    """The single statements of a script (`executescript` would commit the surrounding transaction)."""
    statement = ""
    for piece in script.split(";"):
        statement += piece + ";"
        if sqlite3.complete_statement(statement):
            if statement.strip(" \t\r\n;"):
                yield statement
            statement = ""
    if statement.strip(" \t\r\n;"):  # no closing ";", which SQLite does not ask for
        yield statement
