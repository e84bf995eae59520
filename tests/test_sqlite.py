"""The one place that opens SQLite: transactions, faults, forks, versions."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from langmem_harness.errors import (
    ConfigurationError,
    CorruptionError,
    SchemaVersionError,
    StorageBusyError,
    StorageClosedError,
    StorageUnavailableError,
)
from langmem_harness.sqlite import Database
from tests.unprivileged import run_unprivileged

MIGRATIONS = ["CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT NOT NULL)"]


@pytest.fixture(params=["file", "memory"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    location = tmp_path / "d.sqlite" if request.param == "file" else ":memory:"
    database = Database(location)
    database.migrate("notes", MIGRATIONS)
    yield database
    database.close()


def texts(database: Database) -> list[str]:
    with database.read() as connection:
        return [row[0] for row in connection.execute("SELECT text FROM note ORDER BY id")]


def add(database: Database, text: str) -> None:
    with database.write() as connection:
        connection.execute("INSERT INTO note (text) VALUES (?)", (text,))


def test_a_transaction_is_all_or_nothing(database: Database) -> None:
    add(database, "kept")
    with pytest.raises(KeyboardInterrupt), database.write() as connection:
        connection.execute("INSERT INTO note (text) VALUES ('lost')")
        raise KeyboardInterrupt  # any BaseException rolls back, not only Exception
    assert texts(database) == ["kept"]
    add(database, "next")  # and the connection is usable again
    assert texts(database) == ["kept", "next"]


def test_an_inner_write_joins_the_outer_one_and_reads_see_it(database: Database) -> None:
    with pytest.raises(ValueError, match="outer"), database.write():
        add(database, "inner")
        assert texts(database) == ["inner"]
        raise ValueError("outer")
    assert texts(database) == []


def test_a_read_sees_one_state(tmp_path: Path) -> None:
    database = Database(tmp_path / "d.sqlite")
    database.migrate("notes", MIGRATIONS)
    add(database, "one")
    with database.read() as connection:
        assert connection.execute("SELECT count(*) FROM note").fetchone() == (1,)
        writer = threading.Thread(target=add, args=(database, "two"))
        writer.start()
        writer.join()
        assert connection.execute("SELECT count(*) FROM note").fetchone() == (1,)
    assert texts(database) == ["one", "two"]
    database.close()


def test_readers_cannot_write(tmp_path: Path) -> None:
    database = Database(tmp_path / "d.sqlite")
    database.migrate("notes", MIGRATIONS)
    with pytest.raises(StorageUnavailableError), database.read() as connection:
        connection.execute("INSERT INTO note (text) VALUES ('x')")
    database.close()


def test_migrations_run_once_and_a_newer_file_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "d.sqlite"
    more = [*MIGRATIONS, "CREATE TABLE extra (id INTEGER); INSERT INTO extra VALUES (1);"]
    with_more = Database(path)
    with_more.migrate("notes", MIGRATIONS)
    with_more.migrate("notes", more)
    with_more.migrate("notes", more)
    with with_more.read() as connection:
        assert connection.execute("SELECT count(*) FROM extra").fetchone() == (1,)
    with_more.close()

    older = Database(path)
    with pytest.raises(SchemaVersionError) as caught:
        older.migrate("notes", MIGRATIONS)
    assert (caught.value.component, caught.value.found, caught.value.supported) == ("notes", 2, 1)
    older.close()


def test_a_migration_that_fails_leaves_the_old_version(tmp_path: Path) -> None:
    database = Database(tmp_path / "d.sqlite")
    database.migrate("notes", MIGRATIONS)

    def breaks(connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE half (id INTEGER)")
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError):
        database.migrate("notes", [*MIGRATIONS, breaks])
    with database.read() as connection:
        assert connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'half'").fetchone() is None
    database.migrate("notes", MIGRATIONS)
    database.close()


def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "d.sqlite"
    database = Database(path)
    database.migrate("notes", MIGRATIONS)
    for file in tmp_path.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file.name
    database.close()


def test_places_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailableError, match="folder"):
        Database(tmp_path)
    with pytest.raises(StorageUnavailableError, match="cannot be created"):
        Database(tmp_path / "missing" / "d.sqlite")
    other = tmp_path / "other.sqlite"
    other.write_bytes(b"this is not a database, but long enough to look like one" * 100)
    with pytest.raises(CorruptionError):
        Database(other)
    with pytest.raises(ConfigurationError, match="-1"):
        Database(":memory:", busy_timeout_seconds=-1)


def test_another_writer_gives_a_clear_error_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "d.sqlite"
    first, second = Database(path), Database(path, busy_timeout_seconds=0.05)
    first.migrate("notes", MIGRATIONS)
    with first.write() as connection:
        connection.execute("INSERT INTO note (text) VALUES ('first')")
        with pytest.raises(StorageBusyError):
            add(second, "second")
        assert texts(second) == []  # readers never wait for a writer
    add(second, "second")
    assert texts(first) == ["first", "second"]
    first.close()
    second.close()


def test_a_full_disk_keeps_what_was_committed(database: Database) -> None:
    add(database, "kept")
    with database.write() as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
    with database._write_lock:
        database._writer.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(StorageUnavailableError, match="full"):
        add(database, "x" * 1_000_000)
    assert texts(database) == ["kept"]


def test_closed_is_closed(database: Database) -> None:
    database.close()
    database.close()
    with pytest.raises(StorageClosedError), database.write():
        pass
    with pytest.raises(StorageClosedError), database.read():
        pass


def test_readers_of_ended_threads_are_closed(tmp_path: Path) -> None:
    database = Database(tmp_path / "d.sqlite")
    database.migrate("notes", MIGRATIONS)
    for _ in range(20):
        thread = threading.Thread(target=texts, args=(database,))
        thread.start()
        thread.join()
    gc.collect()
    assert len(database._readers) <= 2
    database.close()


def test_many_threads_write_and_read(tmp_path: Path) -> None:
    database = Database(tmp_path / "d.sqlite")
    database.migrate("notes", MIGRATIONS)
    failures: list[BaseException] = []

    def work(name: int) -> None:
        try:
            for index in range(25):
                add(database, f"{name}:{index}")
                assert f"{name}:{index}" in texts(database)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(texts(database)) == 150
    database.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_opens_its_own_connections(tmp_path: Path) -> None:
    database = Database(tmp_path / "d.sqlite")
    database.migrate("notes", MIGRATIONS)
    add(database, "parent")
    assert texts(database) == ["parent"]
    child = os.fork()
    if child == 0:
        status = 1
        try:
            add(database, "child")
            status = 0 if texts(database) == ["parent", "child"] else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    add(database, "parent again")
    assert texts(database) == ["parent", "child", "parent again"]
    database.close()


def test_a_killed_writer_loses_nothing_committed_and_leaves_no_half(tmp_path: Path) -> None:
    path = tmp_path / "d.sqlite"
    script = """
import sys
from langmem_harness.sqlite import Database
from tests.unprivileged import run_unprivileged
database = Database(sys.argv[1])
database.migrate("notes", ["CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT NOT NULL)"])
index = 0
while True:
    with database.write() as connection:
        connection.execute("INSERT INTO note (text) VALUES (?)", (f"{index}a",))
        connection.execute("INSERT INTO note (text) VALUES (?)", (f"{index}b",))
    print(index, flush=True)
    index += 1
"""
    process = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    last = -1
    deadline = time.monotonic() + 20
    while last < 30 and time.monotonic() < deadline:
        last = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    database = Database(path)
    found = texts(database)
    database.close()
    assert len(found) % 2 == 0
    assert len(found) // 2 >= last + 1


def test_stored_text_is_not_in_the_error(database: Database) -> None:
    with database.write() as connection:
        connection.execute("INSERT INTO note (text) VALUES (CAST(x'736563726574ff' AS TEXT))")
    with pytest.raises(CorruptionError) as caught:
        texts(database)
    assert "secret" not in str(caught.value)


CLOSE_UNDER_READERS = """
import tempfile, threading, time
from langmem_harness.errors import StorageClosedError
from langmem_harness.sqlite import Database
from tests.unprivileged import run_unprivileged
for _ in range(10):
    database = Database(tempfile.mkdtemp() + "/d.sqlite")
    with database.write() as connection:
        connection.execute("CREATE TABLE note (id INTEGER)")
        connection.executemany("INSERT INTO note VALUES (?)", [(number,) for number in range(20_000)])
    ended = []
    def read():
        try:
            while True:
                with database.read() as connection:
                    assert len(connection.execute("SELECT id FROM note").fetchall()) == 20_000
        except StorageClosedError:
            ended.append("closed")
    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.03)
    database.close()
    for thread in threads:
        thread.join()
    assert ended == ["closed"] * 3, ended
    assert not database._readers
"""


def test_closing_under_running_reads_lets_them_finish() -> None:
    # in a process of its own: closing a connection under a statement kills the process
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", CLOSE_UNDER_READERS], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_file_deleted_while_it_is_open_is_not_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "d.sqlite"
    problems: list[Exception] = []

    def read() -> None:
        try:
            with database.read() as connection:
                connection.execute("SELECT 1")
        except StorageUnavailableError as error:
            problems.append(error)

    with contextlib.closing(Database(path)) as database:
        path.unlink()
        thread = threading.Thread(target=read)  # a thread's first read opens a connection of its own
        thread.start()
        thread.join()
        assert not path.exists()
    (problem,) = problems
    assert "is gone" in str(problem)


READ_ONLY = """
import os, sys
from pathlib import Path
from langmem_harness.errors import StorageUnavailableError
from langmem_harness.sqlite import Database, holds_component

path = Path(sys.argv[1])
known = sorted(os.listdir(path.parent))
assert holds_component(path, "notes")
database = Database(path)
assert database.read_only
database.migrate("notes", ["anything"])  # this version: nothing to do
with database.read() as connection:
    print(*(row[0] for row in connection.execute("SELECT text FROM note ORDER BY id")))
attempts = [
    lambda: database.write().__enter__(),
    database.vacuum,
    lambda: database.migrate("notes", ["anything", "more"]),
    lambda: database.migrate("others", ["anything"]),
    lambda: Database(path.with_name("new.sqlite")),
]
for attempt in attempts[: None if sys.argv[2] == "closed folder" else -1]:
    try:
        attempt()
    except StorageUnavailableError as error:
        assert "read-only" in str(error) or "cannot be created" in str(error), error
    else:
        raise AssertionError(attempt)
database.close()
assert sorted(os.listdir(path.parent)) == known
"""


@pytest.mark.parametrize("journal", ["no journal", "open elsewhere", "left by a crash", "copied"])
@pytest.mark.parametrize("folder", ["closed folder", "open folder"])
def test_a_file_that_cannot_be_written_can_be_read(tmp_path: Path, journal: str, folder: str) -> None:
    place = tmp_path / "place"
    place.mkdir()
    name = "50%? #ü.sqlite"  # it has to survive being part of a URI
    path = place / name
    database = Database(path)
    database.migrate("notes", MIGRATIONS)
    add(database, "told")
    if journal in ("left by a crash", "copied"):
        left = tmp_path / "left"
        left.mkdir()
        for file in place.iterdir():
            if journal == "left by a crash" or not file.name.endswith("-shm"):
                (left / file.name).write_bytes(file.read_bytes())
        place, path = left, left / name
    if journal != "open elsewhere":
        database.close()
    for file in place.iterdir():
        file.chmod(0o444)
    place.chmod(0o555 if folder == "closed folder" else 0o755)
    try:
        assert run_unprivileged(READ_ONLY, path, folder) == "told\n"
    finally:
        place.chmod(0o755)
        database.close()


def test_who_only_reads_sees_what_others_write_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "d.sqlite"
    writer = Database(path)
    writer.migrate("notes", MIGRATIONS)
    add(writer, "0")
    writer.close()
    with monkeypatch.context() as patch:
        patch.setattr("langmem_harness.sqlite.can_write", lambda path: False)
        reader = Database(path)
    expected = ["0"]
    for _ in range(3):
        assert texts(reader) == expected
        writer = Database(path)
        for _ in range(200):  # pages split and move
            expected.append("x" * 200)
            add(writer, expected[-1])
        assert texts(reader) == expected
        add(writer, "more")
        expected.append("more")
        assert texts(reader) == expected
        writer.close()
    with reader.read():
        assert texts(reader) == expected  # a read inside a read stays in its transaction
    path.unlink()
    with pytest.raises(StorageUnavailableError):
        texts(reader)
    reader.close()


def test_a_folder_that_cannot_be_written_makes_its_files_read_only(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    database = Database(place / "d.sqlite")
    database.migrate("notes", MIGRATIONS)
    add(database, "told")
    database.close()
    place.chmod(0o555)
    try:
        assert run_unprivileged(READ_ONLY, place / "d.sqlite", "closed folder") == "told\n"
    finally:
        place.chmod(0o755)
    with contextlib.closing(Database(place / "d.sqlite")) as again:
        assert not again.read_only
