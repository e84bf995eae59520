"""``langmem-harness memories``: what is remembered about a user, to see, change and delete."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from langchain.chat_models import init_chat_model
from rich.console import Console
from rich.table import Table

from langmem_harness.cli.printing import cell, plain
from langmem_harness.errors import ConfigurationError, StorageUnavailableError
from langmem_harness.memory.export import MemoryExport
from langmem_harness.memory.idle import IdlePromoter
from langmem_harness.memory.promotion import Promoter
from langmem_harness.memory.recall import date_text, source_text
from langmem_harness.memory.records import MemoryRecord
from langmem_harness.memory.scope import DEFAULT_TENANT, MemoryScope
from langmem_harness.memory.service import LongTermMemory
from langmem_harness.pairing import open_memory

app = typer.Typer(
    name="memories", help="See, search, change and delete what is remembered about a user.", no_args_is_help=True
)

Format = Literal["jsonl", "markdown"]
Folder = Annotated[Path, typer.Option("--memory", help="Folder of the memory.")]
User = Annotated[str, typer.Option(help="Whose memories.")]
Tenant = Annotated[str, typer.Option(help="Tenant of the user.")]
Agent = Annotated[str | None, typer.Option(help="Agent, when agents have memories of their own.")]
Embeddings = Annotated[str | None, typer.Option(help="As in open_memory, for example local; without it by keyword.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@dataclass(frozen=True)
class _Opened:
    memory: LongTermMemory
    scope: MemoryScope


@contextmanager
def _open(folder: Path, user: str, tenant: str, agent: str | None, embeddings: str | None = None) -> Iterator[_Opened]:
    scope = MemoryScope(tenant=tenant, user=user, agent=agent)
    _check_folder(folder)
    with open_memory(folder, embeddings=embeddings) as opened:
        yield _Opened(LongTermMemory(opened.store), scope)


@app.command(name="list")
def list_memories(
    memory: Folder,
    user: User,
    tenant: Tenant = DEFAULT_TENANT,
    agent: Agent = None,
    kind: Annotated[str | None, typer.Option(help="Only this kind.")] = None,
    as_json: AsJson = False,
) -> None:
    """Everything remembered about a user, newest first."""
    with _open(memory, user, tenant, agent) as opened:
        _print_records(opened.memory.list(opened.scope, kind=kind), as_json)


@app.command()
def search(
    query: Annotated[str, typer.Argument(help="What to look for.")],
    memory: Folder,
    user: User,
    tenant: Tenant = DEFAULT_TENANT,
    agent: Agent = None,
    top_k: Annotated[int, typer.Option(help="How many.", min=1)] = 5,
    embeddings: Embeddings = None,
    as_json: AsJson = False,
) -> None:
    """Search, and say how each memory was found."""
    with _open(memory, user, tenant, agent, embeddings) as opened:
        result = opened.memory.search(opened.scope, query, top_k=top_k, threshold=None)
    if as_json:
        found = [
            {**hit.record.to_dict(), "retrieval": hit.retrieval, "score": hit.score, "cosine": hit.cosine}
            for hit in result
        ]
        _print_json({"retrieval": result.retrieval, "degraded": result.degraded, "memories": found})
        return
    table = Table("id", "score", "date", "source", "text")
    for hit in result:
        score = "" if hit.score is None else f"{hit.score:.3f}"
        table.add_row(hit.record.key, score, *map(cell, _cells(hit.record)))
    console = Console()
    console.print(table)
    console.print(f"found by: {result.retrieval}" + (f" (degraded: {result.degraded})" if result.degraded else ""))


@app.command()
def show(
    key: Annotated[str, typer.Argument(help="Id of the memory.")],
    memory: Folder,
    user: User,
    tenant: Tenant = DEFAULT_TENANT,
    agent: Agent = None,
) -> None:
    """One memory with its sources and its history, as JSON."""
    with _open(memory, user, tenant, agent) as opened:
        _print_json([record.to_dict() for record in opened.memory.history(opened.scope, key)])


@app.command()
def forget(
    memory: Folder,
    user: User,
    key: Annotated[str | None, typer.Argument(help="Id of the memory.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Everything of this scope.")] = False,
    tenant: Tenant = DEFAULT_TENANT,
    agent: Agent = None,
    yes: Yes = False,
) -> None:
    """Forget one memory, or all of one scope, and print the receipt."""
    if (key is None) != everything:
        raise ConfigurationError("name one memory, or say --all")
    with _open(memory, user, tenant, agent) as opened:
        if key is not None:
            opened.memory.history(opened.scope, key)  # one that is not there is said before anything is asked
        if not yes:
            what = f"everything about {user!r}" if key is None else f"memory {key!r} of {user!r}"
            typer.confirm(f"Forget {what} (tenant {tenant!r}, agent {agent!r})?", abort=True)
        receipt = opened.memory.forget_all(opened.scope) if key is None else opened.memory.delete(opened.scope, key)
    _print_json(receipt.to_dict())
    if not receipt.complete:
        raise typer.Exit(1)


@app.command()
def export(
    target: Annotated[Path, typer.Argument(help="A file for jsonl, a folder for markdown.")],
    memory: Folder,
    user: User,
    tenant: Tenant = DEFAULT_TENANT,
    agent: Agent = None,
    format: Annotated[Format, typer.Option(help="jsonl, or markdown to read and edit.")] = "jsonl",
) -> None:
    """Write the memories of a user to files."""
    with _open(memory, user, tenant, agent) as opened:
        exported = opened.memory.export(opened.scope)
    pages = {target: exported.to_jsonl()} if format == "jsonl" else {}
    if format == "markdown":
        target.mkdir(parents=True, exist_ok=True)
        pages = {target / name: text for name, text in exported.to_markdown().items()}
    for path, text in pages.items():
        path.write_text(text, encoding="utf-8", errors="surrogatepass", newline="\n")
    Console().print(f"{len(exported.records)} memories written")


@app.command(name="import")
def import_memories(
    source: Annotated[Path, typer.Argument(help="A jsonl file, or a folder of Markdown pages.")],
    memory: Folder,
    user: User,
    tenant: Tenant = DEFAULT_TENANT,
    agent: Agent = None,
    embeddings: Embeddings = None,
) -> None:
    """Bring exported memories back: additions, edits and deletions."""
    with _open(memory, user, tenant, agent, embeddings) as opened:
        if source.is_dir():
            pages = {path.name: _read(path) for path in sorted(source.glob("*.md"))}
            export = MemoryExport.from_markdown(pages, opened.scope, now=datetime.now(UTC))
        else:
            export = MemoryExport.from_jsonl(_read(source))
        report = opened.memory.import_(opened.scope, export)
    Console().print(
        f"{len(report.added)} added, {len(report.edited)} edited, {len(report.deleted)} deleted, "
        f"{report.unchanged} unchanged, {sum(report.refused.values())} refused"
    )


@app.command(name="promote-idle")
def promote_idle(
    memory: Folder,
    idle_minutes: Annotated[float, typer.Option(help="How long nothing must have happened in a thread.")] = 30,
    model: Annotated[str | None, typer.Option(help="A chat model that proposes beside the rules.")] = None,
    embeddings: Embeddings = None,
    as_json: AsJson = False,
) -> None:
    """Promote every waiting thread that has gone quiet: for a scheduler. Exit code 1 when one of them failed."""
    _check_folder(memory)
    with open_memory(memory, embeddings=embeddings) as opened:
        promoter = Promoter(
            LongTermMemory(opened.store),
            checkpointer=opened.checkpointer,
            model=None if model is None else init_chat_model(model),
            thread_log=opened.thread_log,
        )
        report = IdlePromoter(promoter, idle=timedelta(minutes=idle_minutes)).run_due()
    rows: list[dict[str, Any]] = [
        {"thread_id": thread_id, **scope.to_dict(), "kept": list(done.kept), "dropped": dict(done.dropped)}
        for (scope, thread_id), done in report.promoted.items()
    ]
    failed = [
        {"thread_id": thread_id, **scope.to_dict(), "error": type(error).__name__}
        for (scope, thread_id), error in report.failed.items()
    ]
    if as_json:
        _print_json({"promoted": rows, "failed": failed})
    else:
        kept, dropped = sum(len(row["kept"]) for row in rows), sum(sum(row["dropped"].values()) for row in rows)
        typer.echo(f"{len(rows)} threads promoted: {kept} memories kept, {dropped} proposals dropped")
        for row in failed:
            typer.echo(f"failed, waits for the next run: {plain(str(row['thread_id']))}: {row['error']}", err=True)
    if failed:
        raise typer.Exit(1)


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise StorageUnavailableError(f"there is no memory folder {str(folder)!r}")


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="surrogatepass", newline="") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise StorageUnavailableError(f"{str(path)!r} cannot be read: {type(error).__name__}") from error


def _cells(record: MemoryRecord) -> tuple[str, str, str]:
    return date_text(record.stated_at), source_text(record), record.text[:200]


def _print_records(records: tuple[MemoryRecord, ...], as_json: bool) -> None:
    if as_json:
        _print_json([record.to_dict() for record in records])
        return
    table = Table("id", "kind", "date", "source", "text")
    for record in records:
        table.add_row(record.key, cell(record.kind), *map(cell, _cells(record)))
    Console().print(table)


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2))
