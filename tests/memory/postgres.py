"""A Postgres server for tests: one that is named in the environment, or one of our own while it is needed."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

VARIABLE = "LANGMEM_HARNESS_TEST_POSTGRES"
_PLACES = ("/usr/lib/postgresql", "/usr/local/pgsql", "/opt/homebrew/opt")


@contextmanager
def running_postgres() -> Iterator[str]:
    """The URL of a server; its database ``postgres`` is used and emptied. Skips where there is none."""
    if url := os.environ.get(VARIABLE):
        yield url
        return
    initdb, pg_ctl = _find("initdb"), _find("pg_ctl")
    if initdb is None or pg_ctl is None:
        pytest.skip(f"no Postgres here: install the server, or set {VARIABLE} to the URL of a database to empty")
    user = _user()
    folder = Path(tempfile.mkdtemp(prefix="lmh-pg-"))
    try:
        if user is not None:
            shutil.chown(folder, user)
        data = str(folder / "data")
        _run([initdb, "-D", data, "-U", "tests", "--auth=trust", "-N"], user)
        options = f"-c listen_addresses='' -c unix_socket_directories='{folder}' -c fsync=off"
        _run([pg_ctl, "-D", data, "-l", str(folder / "log"), "-w", "-o", options, "start"], user)
        try:
            yield f"postgresql://tests@/postgres?host={folder}"
        finally:
            _run([pg_ctl, "-D", data, "-m", "immediate", "stop"], user)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(command: list[str], user: str | None) -> None:
    subprocess.run(command, user=user, check=True, stdout=subprocess.DEVNULL, cwd="/", timeout=50)


def _find(program: str) -> str | None:
    found = shutil.which(program)
    if found is not None:
        return found
    versions = (path for place in _PLACES for path in Path(place).glob(f"*/bin/{program}"))
    return str(max(versions, default="")) or None


def _user() -> str | None:
    """Whose server it is: it refuses to run as root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in names), None)
