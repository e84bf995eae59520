"""The ``memories`` commands on a real folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from langmem_harness.cli.memories import app
from langmem_harness.errors import IdentityError, NotFoundError, StorageUnavailableError
from langmem_harness.memory import LongTermMemory, MemoryScope
from langmem_harness.pairing import open_memory

ADA = MemoryScope(user="ada")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with open_memory(tmp_path / "memory") as opened:
        memory = LongTermMemory(opened.store)
        memory.upsert(ADA, "Likes green tea.", kind="preference", explicit=True)
        memory.upsert(ADA, "Lives in Oslo [bold]now[/bold].", explicit=True)
        memory.upsert(MemoryScope(user="bob"), "Bob likes tea.", explicit=True)
    return tmp_path / "memory"


def use(*arguments: str | Path, user: str = "ada", folder: Path, input: str | None = None) -> str:
    command = [str(argument) for argument in arguments]
    result = CliRunner().invoke(app, [*command, "--memory", str(folder), "--user", user], input=input)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def test_list_search_show_forget(folder: Path) -> None:
    listed = json.loads(use("list", "--json", folder=folder))
    assert {record["text"] for record in listed} == {"Likes green tea.", "Lives in Oslo [bold]now[/bold]."}
    assert "bold" in use("list", folder=folder)
    found = json.loads(use("search", "green tea", "--json", folder=folder))
    assert found["retrieval"] == "keyword"
    assert [one["text"] for one in found["memories"]] == ["Likes green tea."]
    assert "found by: keyword" in use("search", "green tea", folder=folder)
    key = found["memories"][0]["key"]
    assert json.loads(use("show", key, folder=folder))[0]["kind"] == "preference"
    receipt = json.loads(use("forget", key, folder=folder))
    assert receipt["counts"]["memories"] == 1
    with pytest.raises(NotFoundError):
        use("show", key, folder=folder)


def test_forget_all_asks_and_spares_the_bystander(folder: Path) -> None:
    assert "Abort" in use("forget", "--all", folder=folder, input="n\n")
    assert len(json.loads(use("list", "--json", folder=folder))) == 2
    use("forget", "--all", "--yes", folder=folder)
    assert json.loads(use("list", "--json", folder=folder)) == []
    assert len(json.loads(use("list", "--json", user="bob", folder=folder))) == 1


@pytest.mark.parametrize("format", ["jsonl", "markdown"])
def test_export_and_import(folder: Path, tmp_path: Path, format: str) -> None:
    target = tmp_path / "out"
    assert "2 memories" in use("export", target, "--format", format, folder=folder)
    assert "2 unchanged" in use("import", target, folder=folder)
    if format == "markdown":
        page = target / "preference.md"
        page.write_text(page.read_text(encoding="utf-8").replace("green tea", "black tea"), encoding="utf-8")
        assert "1 edited" in use("import", target, folder=folder)


def test_mistakes(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(IdentityError):
        use("list", user=" ", folder=folder)
    with pytest.raises(StorageUnavailableError):
        use("list", folder=tmp_path / "nowhere")
    with pytest.raises(StorageUnavailableError):
        use("import", tmp_path / "nothing.jsonl", folder=folder)
    assert not (tmp_path / "nowhere").exists()
