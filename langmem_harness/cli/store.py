"""``langmem-harness store``: look after a memory file from the shell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from langmem_harness.cli.printing import cell, plain
from langmem_harness.errors import StorageUnavailableError
from langmem_harness.sqlite import holds_component
from langmem_harness.store import FaissStore
from langmem_harness.store.database import COMPONENT

app = typer.Typer(help="Check, measure, rebuild and tidy a store.", no_args_is_help=True)

MEMORY_FILE = "memory.sqlite"

Location = Annotated[Path, typer.Argument(help="A store's SQLite file, or a folder made by open_memory.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Language = Annotated[str, typer.Option(help="Language the store's keyword leg uses; 'none' for no stemming.")]
Fields = Annotated[list[str] | None, typer.Option("--field", help="Field path the store indexes; repeat for several.")]


@app.command()
def verify(location: Location, fields: Fields = None, language: Language = "english", as_json: AsJson = False) -> None:
    """Derive again everything that can be derived and report; exit code 1 when something does not add up."""
    with _opened(location, language=language) as store:
        report = store.verify()
    if as_json:
        typer.echo(json.dumps(report.to_dict()))
    else:
        typer.echo(f"{report.items} items, {report.vectors} vectors, {report.problem_count} problems")
        for problem in report.problems:
            typer.echo(f"- {plain(problem)}")
    if not report.ok:
        raise typer.Exit(1)


@app.command()
def stats(location: Location, as_json: AsJson = False) -> None:
    """Sizes, and what the vector index was built from."""
    with _opened(location) as store:
        sizes, passport = store.stats(), store.provenance()
    body: dict[str, Any] = {
        **sizes.to_dict(),
        # a command has no embedder, so what waits for one is read from the file
        "provenance": None if passport is None else passport.to_dict(),
    }
    for name in ("cached_partitions", "cached_bytes", "vector_search"):
        del body[name]  # about a process that searches, not about the file
    if as_json:
        typer.echo(json.dumps(body))
        return
    table = Table("what", "value", title=cell(str(location)))
    for name, value in {**body, **(body.pop("provenance") or {})}.items():
        if name != "provenance":
            table.add_row(name, cell(str(value)))
    Console().print(table)


@app.command()
def reindex(
    location: Location,
    embeddings: Annotated[str, typer.Option(help="'local', or a name such as openai:text-embedding-3-small.")],
    fields: Fields = None,
    language: Language = "english",
) -> None:
    """Embed everything anew and switch to the new index in one transaction."""
    columns = (TextColumn("items"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with (
        _opened(location, embed=embeddings, fields=fields, language=language) as store,
        Progress(*columns, console=Console(stderr=True)) as bar,
    ):
        task = bar.add_task("items", total=None)
        vectors = store.reindex(lambda done, total: bar.update(task, completed=done, total=total))
        pending = store.pending_embeddings()
    typer.echo(f"{vectors} vectors, {pending} items pending")


@app.command()
def vacuum(location: Location) -> None:
    """Delete what has expired and give free pages back to the disk."""
    with _opened(location) as store:
        before = store.stats().file_bytes
        swept = store.sweep()
        store.vacuum()
        after = store.stats().file_bytes
    typer.echo(f"{swept} expired items deleted, {before} bytes before, {after} after")


@contextmanager
def _opened(
    location: Path, *, embed: str | None = None, fields: list[str] | None = None, language: str = "english"
) -> Iterator[FaissStore]:
    """The store at a place that exists."""
    path = location / MEMORY_FILE if location.is_dir() else location
    if not path.is_file():
        raise StorageUnavailableError(f"there is no store at {str(path)!r}")
    if not holds_component(path, COMPONENT):
        raise StorageUnavailableError(f"{str(path)!r} is no store; it was left as it is")
    index = {"embed": embed, "fields": fields or ["$"]}
    with FaissStore(path, index=index, language=None if language == "none" else language) as store:
        yield store
