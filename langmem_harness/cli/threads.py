"""``langmem-harness threads``: list, show, verify, archive, restore, erase and take over threads from the shell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn
from rich.table import Table

from langmem_harness.cli.printing import cell, plain
from langmem_harness.errors import NotFoundError, StorageUnavailableError
from langmem_harness.memory import LongTermMemory
from langmem_harness.memory.scope import DEFAULT_TENANT, MemoryScope
from langmem_harness.sqlite import MEMORY_LOCATION, Database, holds_component
from langmem_harness.store import FaissStore
from langmem_harness.threads import Retention, SqliteCheckpointer, ThreadLog, import_langgraph_file
from langmem_harness.threads.archiving import restore_archive, write_archive
from langmem_harness.threads.facts import as_stored
from langmem_harness.threads.log import COMPONENT as LOG_TABLES

app = typer.Typer(help="List, show, verify, archive, erase and import threads.", no_args_is_help=True)

THREADS_FILE = "threads.sqlite"
MEMORY_FILE = "memory.sqlite"


def _checked(thread_id: str | None) -> str | None:
    """Bytes that are no text come from the shell as lone surrogates: no thread can have that id."""
    return None if thread_id is None else as_stored(thread_id)


Location = Annotated[Path, typer.Option("--memory", help="A folder made by open_memory, or its threads file.")]
ThreadId = Annotated[str, typer.Argument(help="The conversation.", callback=_checked)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
HERE = Path("agent_memory")


@app.command("list")
def list_threads(memory: Location = HERE, as_json: AsJson = False) -> None:
    """Threads with their checkpoints, turns and log entries."""
    with _opened(memory) as (saver, log):
        rows = []
        checkpoints = saver.checkpoint_counts()
        for thread_id in sorted({*checkpoints, *log.thread_ids()}):
            turns = log.turns(thread_id)
            rows.append(
                {
                    "thread_id": thread_id,
                    "checkpoints": checkpoints.get(thread_id, 0),
                    "turns": len(turns),
                    "answered": sum(turn.is_done for turn in turns),
                    "log_events": sum(turn.events for turn in turns),
                    "updated_at": max((turn.updated_at.isoformat() for turn in turns), default=None),
                }
            )
    if as_json:
        typer.echo(json.dumps(rows))
        return
    table = Table("thread", "checkpoints", "turns", "answered", "log entries", "last entry")
    for row in rows:
        table.add_row(*("-" if value is None else cell(str(value)) for value in row.values()))
    Console().print(table)


@app.command()
def show(thread_id: ThreadId, memory: Location = HERE, as_json: AsJson = False) -> None:
    """What was said in a thread, from the log; from the newest checkpoint when nothing is logged."""
    with _opened(memory) as (saver, log):
        events = [event.to_dict() for event in log.events(thread_id)]
        said = log.messages(thread_id)
        if not said:
            found = saver.get_tuple({"configurable": {"thread_id": thread_id}})
            if found is None and not events:
                raise NotFoundError(f"there is no thread {thread_id!r}")
            said = [] if found is None else found.checkpoint["channel_values"].get("messages", [])
    if as_json:
        messages = [{"type": message.type, "id": message.id, "content": message.content} for message in said]
        typer.echo(json.dumps({"thread_id": thread_id, "messages": messages, "events": events}, default=str))
        return
    for message in said:
        calls = ", ".join(f"{call['name']}({call['id']})" for call in getattr(message, "tool_calls", []))
        typer.echo(plain(f"{message.type}: {message.text}{f' -> {calls}' if calls else ''}"))


@app.command()
def verify(
    thread_id: Annotated[
        str | None, typer.Argument(help="One conversation; all when left out.", callback=_checked)
    ] = None,
    memory: Location = HERE,
    as_json: AsJson = False,
) -> None:
    """Derive every hash again, of checkpoints and log; exit code 1 when something does not add up."""
    with _opened(memory) as (saver, log):
        checkpoints = saver.verify(thread_id)
        logs = {name: log.verify(name) for name in ([thread_id] if thread_id else log.thread_ids())}
    broken = {name: report for name, report in logs.items() if not report.is_intact}
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "intact": checkpoints.is_intact and not broken,
                    "checkpoints": checkpoints.checkpoints,
                    "nodes": checkpoints.nodes,
                    "unused_nodes": checkpoints.unused,
                    "damaged_nodes": checkpoints.damaged,
                    "missing_nodes": checkpoints.missing,
                    "logs": len(logs),
                    "broken_logs": {
                        name: {"damaged": report.damaged, "missing": report.missing} for name, report in broken.items()
                    },
                }
            )
        )
    else:
        typer.echo(
            f"{checkpoints.checkpoints} checkpoints in {checkpoints.nodes} nodes: "
            f"{len(checkpoints.damaged)} damaged, {len(checkpoints.missing)} missing; "
            f"{len(logs)} logs: {len(broken)} broken"
        )
        for name, report in broken.items():
            typer.echo(f"- log of {name!r}: damaged {list(report.damaged)}, missing {list(report.missing)}")
    if broken or not checkpoints.is_intact:
        raise typer.Exit(1)


@app.command()
def archive(
    thread_id: ThreadId,
    file: Annotated[Path, typer.Argument(help="The JSON lines file to write.")],
    memory: Location = HERE,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there already.")] = False,
) -> None:
    """Write a thread's log and checkpoints to a file; nothing is deleted."""
    with _opened(memory) as (saver, log):
        lines = write_archive(thread_id, file, checkpointer=saver, thread_log=log, overwrite=force)
    typer.echo(f"{lines} lines written to {plain(str(file))}")


@app.command()
def restore(file: Annotated[Path, typer.Argument(help="A file written by archive.")], memory: Location = HERE) -> None:
    """Put an archived thread back as it was; one that has gone on since is left as it is."""
    with _opened(memory, create=True) as (saver, log):
        report = restore_archive(file, checkpointer=saver, thread_log=log)
    done = "restored" if report.rows else "has all of it already: nothing to do"
    typer.echo(f"thread {report.thread_id!r} {done}")


@app.command()
def erase(
    thread_id: Annotated[
        str | None, typer.Argument(help="The conversation; or name its owner with --user.", callback=_checked)
    ] = None,
    memory: Location = HERE,
    user: Annotated[str | None, typer.Option(help="Erase everything of this user instead of one thread.")] = None,
    tenant: Annotated[str, typer.Option(help="The user's tenant.")] = DEFAULT_TENANT,
    agent: Annotated[str | None, typer.Option(help="Only the memory of this agent.")] = None,
    secure: Annotated[bool, typer.Option("--secure", help="Also rewrite the files, so that no trace is left.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Erase a thread or a user from checkpoints, log, store and memories for good; prints the receipt as JSON.

    Exit code 1 when something is left that needs a decision: threads that other people take part in as well.
    """
    if (thread_id is None) == (user is None):
        raise typer.BadParameter("name a thread, or a user with --user")
    scope = None if user is None else MemoryScope(tenant=tenant, user=user, agent=agent)
    with _opened(memory) as (saver, log), ExitStack() as stack:
        store = None
        store_file = (memory.parent if memory.name == THREADS_FILE else memory) / MEMORY_FILE
        if store_file.is_file():
            store = stack.enter_context(FaissStore(store_file))
        retention = Retention(
            checkpointer=saver,
            thread_log=log,
            store=store,
            memory=None if store is None else LongTermMemory(store),
        )
        if not yes:
            what = f"thread {thread_id!r}"
            if scope is not None:
                what = f"user {user!r} with {len(retention.threads_of(scope).own)} threads"
            typer.confirm(f"Erase {what} for good?", abort=True)
        receipt = retention.erase(thread_id=thread_id, scope=scope, secure=secure)
    if not receipt.found:
        raise NotFoundError(f"there is no thread {thread_id!r}")
    typer.echo(json.dumps(receipt.to_dict(), indent=2))
    if not receipt.complete:
        raise typer.Exit(1)


@app.command("import")
def import_file(
    old: Annotated[Path, typer.Argument(help="A file of LangGraph's own SQLite saver.")],
    memory: Location = HERE,
    thread_ids: Annotated[list[str] | None, typer.Option("--thread", help="Only this one; repeat for several.")] = None,
) -> None:
    """Take over the threads of a LangGraph SQLite saver file; every checkpoint is read back and compared."""
    console = Console(stderr=True)
    progress = Progress(
        SpinnerColumn(), TextColumn("{task.description}"), console=console, disable=not console.is_terminal
    )
    with _opened(memory, create=True) as (saver, _), progress:
        task = progress.add_task("reading")
        report = import_langgraph_file(
            old,
            saver,
            thread_ids=thread_ids or None,
            progress=lambda name, count: progress.update(task, description=cell(f"{name}: {count} checkpoints")),
        )
    typer.echo(f"{report.threads} threads, {report.checkpoints} checkpoints, {report.writes} pending writes taken over")


@contextmanager
def _opened(memory: Path, *, create: bool = False) -> Iterator[tuple[SqliteCheckpointer, ThreadLog]]:
    is_file = memory.suffix in (".sqlite", ".db") or memory.is_file()
    path = memory if is_file else memory / THREADS_FILE
    if create:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StorageUnavailableError(f"{str(path.parent)!r} cannot be created: {error.strerror}") from error
    elif not path.is_file():
        raise StorageUnavailableError(f"there is no threads file at {str(path)!r}: name one with --memory")
    database = Database(path, synchronous="full")
    try:
        saver = SqliteCheckpointer(database)
        has_log = not database.read_only or holds_component(path, LOG_TABLES)
        with ThreadLog(database if has_log else MEMORY_LOCATION) as log:  # without tables nothing was logged
            yield saver, log
    finally:
        database.close()
