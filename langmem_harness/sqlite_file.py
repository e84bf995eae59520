"""A SQLite file before `Database` works with it: its rights, the way to read it only, and what its errors mean."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from langmem_harness.errors import (
    CorruptionError,
    StorageBusyError,
    StorageClosedError,
    StorageError,
    StorageUnavailableError,
)


def translate_sqlite_error(error: sqlite3.Error, location: str) -> StorageError:
    """The error of our tree that says what this `sqlite3` error means.

    Args:
        error: What `sqlite3` raised.
        location: File name for the message.
    """
    code = getattr(error, "sqlite_errorcode", None)
    primary = code & 0xFF if code is not None else None
    detail = str(error)
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StorageBusyError(f"{location} is locked by another writer for longer than the busy timeout; try again")
    if primary in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL):
        return StorageUnavailableError(f"{location} cannot be opened or written: {detail}")
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return CorruptionError(f"{location} is damaged or not a SQLite database: {detail}; restore it from a backup")
    if primary == sqlite3.SQLITE_IOERR:
        return StorageUnavailableError(f"{location}: the disk reported an error: {detail}")
    if "closed database" in detail:
        return StorageClosedError(f"{location} was closed while in use")
    if "decode to UTF-8" in detail:  # SQLite's own words go on with the stored text
        return CorruptionError(f"{location} holds a text that is not UTF-8; restore it from a backup")
    return StorageError(f"{location}: {detail}")


def create_private_file(path: Path) -> None:
    """Create the file with owner-only permissions before SQLite would create it with the process's default ones."""
    if path.is_dir():
        raise StorageUnavailableError(f"{str(path)!r} is a folder, a file was expected")
    if path.exists():
        return
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise StorageUnavailableError(f"{str(path)!r} cannot be created: {error.strerror}") from error


def can_write(path: Path) -> bool:
    """Whether SQLite could write the file: it needs a journal beside it, and makes one where there is none."""
    return os.access(path, os.W_OK) and (_is_beside(path, "-wal") or os.access(path.resolve().parent, os.W_OK))


def connect_for_reading(path: Path, *, timeout_seconds: float = 5.0) -> sqlite3.Connection:
    """Open a file so that everything committed is seen and nothing is created or changed.

    SQLite makes journal and shared memory where they are missing, with the rights of whoever only looks at the file:
    its owner could not write into them afterwards. So it is told not to need them.
    """
    how, alone = "mode=ro", False
    if _is_beside(path, "-wal") or _is_beside(path, "-journal"):
        if not _is_beside(path, "-shm"):  # a copy: nobody has it open, so nobody has to be locked out
            how, alone = "mode=ro&vfs=unix-none", True
    else:
        how = "mode=ro&immutable=1"
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{how}",
        timeout=timeout_seconds,
        isolation_level=None,
        check_same_thread=False,
        uri=True,
    )
    try:
        if alone:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")  # the index of the journal in memory of our own
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def state_of_files(path: Path) -> tuple[object, ...]:
    """Something that changes when somebody opens the file for writing or writes it; cheap: no page is read.

    Raises:
        StorageUnavailableError: The file is gone.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise StorageUnavailableError(f"{str(path)!r} cannot be read: {error.strerror}") from error
    return (
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        _is_beside(path, "-wal"),
        _is_beside(path, "-shm"),
    )


def _is_beside(path: Path, suffix: str) -> bool:
    real = path.resolve()  # SQLite follows links before it looks for its other files
    return real.with_name(real.name + suffix).exists()
