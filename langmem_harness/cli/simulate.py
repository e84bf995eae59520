"""``langmem-harness simulate``: one long run with different middleware, side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from langmem_harness.evaluation.simulation import CONTENDERS, Scenario, SimulationReport, simulate_run

_BILLED = "billed: uncached + 0.1 x cached + what the summarizer read and wrote, in tokens"


def simulate(
    tool_calls: Annotated[int, typer.Option(help="Tool calls of the run.", min=1)] = 40,
    result_tokens: Annotated[int, typer.Option(help="Tokens of each result, about.", min=1)] = 5_000,
    window: Annotated[int, typer.Option(help="The model's context window, in tokens.", min=1)] = 128_000,
    trigger: Annotated[int, typer.Option(help="Compact at this many tokens.", min=1)] = 100_000,
    keep: Annotated[int, typer.Option(help="Tokens that stay.", min=1)] = 30_000,
    as_json: Annotated[bool, typer.Option("--json", help="The same numbers as JSON.")] = False,
) -> None:
    """Simulate one user message and many tool calls, and show what each middleware makes of it."""
    scenario = Scenario(
        tool_calls=tool_calls,
        result_tokens=result_tokens,
        window_tokens=window,
        trigger_tokens=trigger,
        keep_tokens=keep,
    )
    progress = Console(stderr=True)
    reports = [
        simulate_run(name, scenario)
        for name in track(list(CONTENDERS), description="Simulating", console=progress, transient=True)
    ]
    if as_json:
        print(json.dumps([report.to_dict() for report in reports], ensure_ascii=False, indent=2))
    else:
        _print_table(reports)


def _print_table(reports: Sequence[SimulationReport]) -> None:
    """Names first and numbers after, so that a line is readable on a terminal of 80 columns."""
    console = Console()
    console.print("One long run, with")
    for number, report in enumerate(reports, start=1):
        console.print(f"  {number}  {report.name}", highlight=False)
    console.print()
    table = Table("", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for heading in ("reusable", "breaks", "largest", "task", "newest", "covered", "thread", "billed"):
        table.add_column(heading, justify="right", overflow="fold")
    for number, report in enumerate(reports, start=1):
        table.add_row(str(number), *simulation_cells(report))
    console.print(table)
    console.print(f"\n{_BILLED}", highlight=False)


def simulation_cells(report: SimulationReport) -> list[str]:
    """The numbers of one report as the cells of a table, in the order of its headings."""
    calls = len(report.calls)
    return [
        f"{100 * report.reusable_share:.1f} %",
        str(report.prefix_breaks),
        f"{report.largest_request_tokens:,}",
        f"{report.task_visible}/{calls}",
        f"{report.newest_visible}/{calls}",
        "-" if report.coverage is None else f"{report.coverage:.2f}",
        "whole" if report.thread_unchanged else "rewritten",
        f"{report.billed_tokens:,}",
    ]
