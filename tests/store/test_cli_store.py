"""``langmem-harness store`` on a real file."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from langmem_harness.sqlite import Database
from langmem_harness.store import FaissStore
from langmem_harness.testing import DeterministicEmbeddings

typer_testing = pytest.importorskip("typer.testing")


def run(*arguments: str) -> tuple[int, str]:
    from langmem_harness.cli.store import app

    result = typer_testing.CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output


@pytest.fixture
def path(tmp_path: Path) -> str:
    with FaissStore(
        tmp_path / "memory.sqlite", index={"embed": DeterministicEmbeddings(32), "fields": ["text"]}
    ) as store:
        store.put(("a",), "k", {"text": "tea"})
        store.put(("a",), "gone", {"text": "tea"}, ttl=0)
    return str(tmp_path / "memory.sqlite")


def test_verify_stats_and_vacuum(path: str) -> None:
    assert run("verify", path) == (0, "2 items, 2 vectors, 0 problems\n")
    code, output = run("stats", str(Path(path).parent), "--json")
    sizes = json.loads(output)
    assert (code, sizes["items"], sizes["expired"], sizes["provenance"]["chunk_count"]) == (0, 2, 1, 2)
    code, output = run("stats", path)
    assert code == 0
    code, output = run("vacuum", path)
    assert code == 0
    assert output.startswith("1 expired items deleted")
    assert run("verify", path, "--json")[0] == 0


def test_problems_and_missing_files_have_exit_codes(path: str, tmp_path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM store_vectors_1")
    connection.commit()
    connection.close()
    assert run("verify", path)[0] == 1
    assert run("verify", str(tmp_path / "nothing.sqlite"))[0] == 1
    (tmp_path / "bad.sqlite").write_bytes(b"no database" * 100)
    assert run("stats", str(tmp_path / "bad.sqlite"))[0] == 1


@pytest.mark.parametrize("command", ["verify", "stats", "vacuum", "reindex"])
@pytest.mark.parametrize("kind", ["foreign", "empty", "no database", "other component"])
def test_what_is_no_store_is_left_as_it_is(tmp_path: Path, command: str, kind: str) -> None:
    place = tmp_path / "odd name %20?#.sqlite"
    if kind == "other component":
        database = Database(place)
        database.migrate("threads", ["CREATE TABLE other (id INTEGER)"])
        database.close()
    elif kind == "foreign":
        connection = sqlite3.connect(place)
        connection.execute("CREATE TABLE mine (id INTEGER)")
        connection.close()
    else:
        place.write_bytes(b"" if kind == "empty" else b"no database" * 100)
    before = place.read_bytes()
    assert run(command, str(place), *(["--embeddings", "local"] if command == "reindex" else []))[0] == 1
    assert place.read_bytes() == before
    if kind != "other component":  # SQLite leaves an empty journal beside a file of ours
        assert [path.name for path in tmp_path.iterdir()] == [place.name]


def test_a_file_whose_pages_are_damaged_has_an_exit_code(path: str) -> None:
    body = bytearray(Path(path).read_bytes())
    body[4096:] = b"\xff" * (len(body) - 4096)
    Path(path).write_bytes(body)
    for command in ("verify", "stats", "vacuum"):
        code, output = run(command, path)
        assert code == 1, command
        assert "Traceback" not in output
