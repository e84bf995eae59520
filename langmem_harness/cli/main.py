"""The commands, put together."""

from __future__ import annotations

from typing import Annotated

import typer

from langmem_harness import __version__
from langmem_harness.cli import memories, store, threads
from langmem_harness.cli.replay import replay
from langmem_harness.cli.simulate import simulate

app = typer.Typer(
    name="langmem-harness",
    help="Memory for LangChain and LangGraph agents: replay, inspect, verify.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(replay)
app.command()(simulate)
app.add_typer(store.app, name="store")
app.add_typer(threads.app, name="threads")
app.add_typer(memories.app, name="memories")


def _show_version(is_asked: bool) -> None:
    if is_asked:
        print(f"langmem-harness {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Memory for LangChain and LangGraph agents: replay, inspect, verify."""
