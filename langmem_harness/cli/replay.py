"""``langmem-harness replay``: what a compaction policy does to your own conversations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from langmem_harness.errors import ConfigurationError
from langmem_harness.evaluation.recordings import RecordedConversation, read_recordings
from langmem_harness.evaluation.replay import REPLAY_WINDOW_TOKENS, ReplayReport, replay_conversation, replay_totals
from langmem_harness.middleware.compaction import HistoryCompactionMiddleware
from langmem_harness.middleware.tool_settings import Trigger, parse_trigger
from langmem_harness.pairing import open_memory
from langmem_harness.window.limits import Size, parse_size

MANY = 3
"""From this many conversations on there is a line per conversation instead of one per call."""


def parse_limit(text: str, *, option: str) -> Size:
    """``"messages:12"`` as ``("messages", 12)``.

    Raises:
        ConfigurationError: Not of the form unit:number.
    """
    unit, separator, number = text.partition(":")
    try:
        parsed: int | float = float(number) if unit == "fraction" else int(number.replace("_", ""))
    except ValueError:
        separator = ""
        parsed = 0
    if not separator:
        raise ConfigurationError(f"{option} must look like messages:12, tokens:2000 or fraction:0.8, not {text!r}")
    return parse_size((unit, parsed), name=option)


def parse_output_trigger(text: str) -> Trigger | None:
    """``"tokens:2000"`` as ``("tokens", 2000)``; ``"none"`` as None.

    Raises:
        ConfigurationError: Not of the form unit:number.
    """
    if text == "none":
        return None
    unit, _, number = text.partition(":")
    try:
        parsed: int | float = float(number) if unit == "fraction" else int(number.replace("_", ""))
    except ValueError:
        parsed = 0
    if unit not in ("tokens", "bytes", "fraction") or not parsed > 0:
        raise ConfigurationError(
            f"--tool-outputs must look like tokens:2000, bytes:8000, fraction:0.02 or none, not {text!r}"
        )
    return parse_trigger((unit, parsed), "--tool-outputs")


def replay(
    file: Annotated[
        Path, typer.Argument(help="Recorded conversations: OpenAI messages (JSON, JSONL), LangChain dicts.")
    ],
    trigger: Annotated[str, typer.Option(help="Compact when this is reached: messages:N, tokens:N, fraction:F.")] = (
        "fraction:0.8"
    ),
    keep: Annotated[str, typer.Option(help="What stays behind the cut.")] = "fraction:0.3",
    keep_first: Annotated[int, typer.Option(help="Opening messages that always stay.", min=0)] = 1,
    tool_outputs: Annotated[
        str, typer.Option(help="Store and shorten tool results above this: tokens:N, bytes:N, fraction:F; or none.")
    ] = "tokens:2000",
    retry: Annotated[
        bool, typer.Option(help="Send every turn again when it is answered; the log must answer it then.")
    ] = True,
    memory: Annotated[Path | None, typer.Option(help="Keep threads in this folder; in memory by default.")] = None,
    limit: Annotated[int | None, typer.Option(help="Play only the first N conversations.", min=1)] = None,
    show_calls: Annotated[bool, typer.Option("--calls", help="A line per call, however many there are.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The same numbers as JSON.")] = False,
) -> None:
    """Play recorded conversations through a real agent and show what each model call would see.

    Exit code 1 when a request breaks a rule of the providers, or a turn that was sent again was not answered from the
    log. Fractions are of a window of 128,000 tokens.
    """
    output_trigger = parse_output_trigger(tool_outputs)
    trigger_size, keep_size = parse_limit(trigger, option="--trigger"), parse_limit(keep, option="--keep")
    compaction = HistoryCompactionMiddleware(
        trigger=trigger_size, keep=keep_size, keep_first=keep_first, context_window=REPLAY_WINDOW_TOKENS
    )
    conversations = read_recordings(file)[:limit]
    reports = _play(conversations, compaction, memory, output_trigger, sends_twice=retry)
    if as_json:
        print(
            json.dumps(
                {"conversations": [report.to_dict() for report in reports], "totals": replay_totals(reports)}, indent=2
            )
        )
    else:
        _show(reports, with_calls=show_calls or len(reports) < MANY)
    is_answered_twice = not retry or all(report.turns_replayed == report.turns for report in reports)
    if not is_answered_twice or any(call.violations for report in reports for call in report.calls):
        raise typer.Exit(1)


def _play(
    conversations: Sequence[RecordedConversation],
    compaction: HistoryCompactionMiddleware,
    memory_folder: Path | None,
    output_trigger: Trigger | None,
    *,
    sends_twice: bool,
) -> list[ReplayReport]:
    console = Console(stderr=True)
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with open_memory(memory_folder or ":memory:") as memory, progress:
        task = progress.add_task("playing", total=len(conversations))
        reports = []
        for conversation in conversations:
            progress.update(task, description=escape(conversation.name))
            reports.append(
                replay_conversation(
                    conversation,
                    memory,
                    [compaction],
                    tool_output_trigger=output_trigger,
                    sends_twice=sends_twice,
                )
            )
            progress.advance(task)
    return reports


def _show(reports: Sequence[ReplayReport], *, with_calls: bool) -> None:
    console = Console()
    for report in reports if with_calls else ():
        console.print(_calls_table(report))
        if report.tool_outputs:
            console.print(_outputs_table(report))
        for note, count in report.notes.items():
            console.print(f"note: {note}: {count}", style="yellow")
    if not with_calls:
        console.print(_conversations_table(reports))
    console.print(_totals_table(replay_totals(reports)))
    for report in reports:
        for call in report.calls:
            for violation in call.violations:
                where = f"{escape(report.name)}, call {call.call}, message {violation.position}"
                console.print(
                    f"rule broken: {where}: {violation.rule}",
                    style="bold red",
                )


def _calls_table(report: ReplayReport) -> Table:
    table = Table(title=escape(report.name), title_justify="left")
    for heading in ("call", "thread msgs", "thread tok", "sent msgs", "sent tok", "same prefix", "cut"):
        table.add_column(heading, justify="right")
    for call in report.calls:
        table.add_row(
            str(call.call),
            str(call.thread_messages),
            f"{call.thread_tokens:,}",
            str(call.request_messages),
            f"{call.request_tokens:,}",
            f"{call.prefix_share:.1%}",
            "moved" if call.cut_moved else "",
        )
    return table


def _outputs_table(report: ReplayReport) -> Table:
    table = Table(title="Tool outputs offloaded", title_justify="left")
    table.add_column("before call", justify="right")
    table.add_column("tool")
    for heading in ("tokens before", "after"):
        table.add_column(heading, justify="right")
    table.add_column("handle")
    for output in report.tool_outputs:
        table.add_row(
            str(output.call),
            escape(output.tool),
            f"{output.token_count_before:,}",
            f"{output.token_count_after:,}",
            escape(output.handle),
        )
    return table


def _conversations_table(reports: Sequence[ReplayReport]) -> Table:
    table = Table()
    table.add_column("conversation")
    for heading in (
        "calls",
        "input tok",
        "without",
        "same prefix",
        "breaks",
        "largest",
        "outputs",
        "turns",
        "replayed",
        "notes",
    ):
        table.add_column(heading, justify="right")
    for report in reports:
        totals = report.totals()
        table.add_row(
            escape(report.name),
            str(totals["calls"]),
            f"{totals['input_tokens']:,}",
            f"{totals['input_tokens_without']:,}",
            f"{totals['reusable_prefix_share']:.1%}",
            str(totals["prefix_breaks"]),
            f"{totals['largest_request_tokens']:,}",
            str(totals["tool_outputs_offloaded"] or ""),
            str(totals["turns"]),
            str(totals["turns_replayed"] or ""),
            str(sum(report.notes.values()) or ""),
        )
    return table


def _totals_table(totals: dict[str, Any]) -> Table:
    table = Table(title="Totals", title_justify="left", show_header=False)
    sent, without = totals["input_tokens"], totals["input_tokens_without"]
    saved = f" ({1 - sent / without:.1%} less)" if without else ""
    for name, shown in (
        ("conversations, model calls", f"{totals['conversations']}, {totals['calls']}"),
        ("input tokens as recorded", f"{without:,}"),
        ("input tokens sent", f"{sent:,}{saved}"),
        ("reusable prefix", f"{totals['reusable_prefix_share']:.1%}"),
        ("prefix breaks", str(totals["prefix_breaks"])),
        ("largest request", f"{totals['largest_request_tokens']:,} tokens"),
        ("first human message in every request", "yes" if totals["first_human_in_every_request"] else "NO"),
        ("newest human message in every request", "yes" if totals["newest_human_in_every_request"] else "NO"),
        (
            "tool outputs offloaded",
            f"{totals['tool_outputs_offloaded']}, {totals['tool_output_tokens_before']:,} tokens shortened to "
            f"{totals['tool_output_tokens_after']:,}",
        ),
        ("turns, of them replayed from the log", f"{totals['turns']}, {totals['turns_replayed']}"),
        ("rules of providers broken", str(totals["violations"])),
    ):
        table.add_row(name, shown)
    return table
