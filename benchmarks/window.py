"""What compaction costs per model call, and what it keeps of a long run, beside LangChain's middleware."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langchain.agents.middleware import ContextEditingMiddleware, ModelRequest, ModelResponse, SummarizationMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import StructuredTool

from langmem_harness.cli.simulate import simulation_cells
from langmem_harness.evaluation.datasets import load_beam_chats
from langmem_harness.evaluation.simulation import CONTENDERS, Scenario, combine_reports, simulate_chat, simulate_run
from langmem_harness.middleware.compaction import HistoryCompactionMiddleware
from langmem_harness.testing import ScriptedChatModel

_HEADINGS = """| middleware | reusable | breaks | largest | task | newest | coverage | thread | billed |
|---|---:|---:|---:|---:|---:|---:|---|---:|"""

NEVER = 100_000_000
"""A trigger that is not reached: measured is what a middleware costs when it has nothing to do."""


def main(argv: list[str]) -> None:
    """Print both tables as Markdown."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks window --", description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--tools", type=int, default=25)
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--data", type=Path, help="a folder with BEAM chats, at any depth")
    arguments = parser.parse_args(argv)
    print(f"\nAdded to a model call, not triggering: {arguments.messages:,} messages, {arguments.tools} tools\n")
    print("| middleware | p50 ms | p95 ms | first call ms |")
    print("|---|---:|---:|---:|")
    for name, (first, times) in _measure(arguments.messages, arguments.tools, arguments.repeat).items():
        p95 = statistics.quantiles(times, n=20)[-1]
        print(f"| {name} | {statistics.median(times):.1f} | {p95:.1f} | {first:.1f} |")
    for keep in (30_000, 10_000):
        scenario = Scenario(keep_tokens=keep)
        print(
            f"\n{scenario.tool_calls} tool calls of about {scenario.result_tokens:,} tokens, "
            f"trigger {scenario.trigger_tokens:,}, keep {keep:,}\n"
        )
        print(_HEADINGS)
        for name in CONTENDERS:
            print("| " + " | ".join([name, *simulation_cells(simulate_run(name, scenario))]) + " |")
    if arguments.data is None:
        print("\nBEAM chats: not measured, no --data FOLDER was given")
        return
    chats = load_beam_chats(arguments.data)
    for trigger, keep in ((100_000, 30_000), (32_000, 10_000)):
        scenario = Scenario(trigger_tokens=trigger, keep_tokens=keep)
        print(f"\n{len(chats)} BEAM chats turn by turn, trigger {trigger:,}, keep {keep:,}\n")
        print(_HEADINGS)
        for name in CONTENDERS:
            report = combine_reports([simulate_chat(name, chat, scenario) for chat in chats.values()])
            print("| " + " | ".join([name, *simulation_cells(report)]) + " |", flush=True)


def _measure(messages: int, tools: int, repeat: int) -> dict[str, tuple[float, list[float]]]:
    history = _history(messages)
    model = ScriptedChatModel(responses=["ok"], on_exhausted="repeat")
    request = ModelRequest(
        model=model,
        messages=history,  # type: ignore[arg-type]
        system_message=SystemMessage("Be exact. " * 50),
        tools=[_tool(number) for number in range(tools)],
        state={"messages": history},  # type: ignore[typeddict-item]
    )
    answer: Any = ModelResponse(result=[AIMessage("ok")])
    summarization: Any = SummarizationMiddleware(model, trigger=("tokens", NEVER))
    editing: Any = ContextEditingMiddleware()
    editing.edits[0].trigger = NEVER
    compaction = HistoryCompactionMiddleware(("tokens", NEVER), ("tokens", 30_000))
    contenders: dict[str, Callable[[], Any]] = {
        "HistoryCompactionMiddleware": lambda: compaction.wrap_model_call(request, lambda _: answer),
        "LangChain SummarizationMiddleware": lambda: summarization.before_model({"messages": history}, None),
        "LangChain ContextEditingMiddleware": lambda: editing.wrap_model_call(request, lambda _: answer),
    }
    measured: dict[str, tuple[float, list[float]]] = {}
    for name, call in contenders.items():
        first = _time(call)
        measured[name] = (first, [_time(call) for _ in range(repeat)])
    return measured


def _time(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return 1_000 * (time.perf_counter() - start)


def _history(messages: int) -> list[BaseMessage]:
    history: list[BaseMessage] = []
    for number in range(0, messages, 4):
        call: Any = {"id": f"call-{number}", "name": "tool_0", "args": {"query": f"number {number}", "limit": 10}}
        history += [
            HumanMessage(f"Question {number}. " + "Please look it up for me. " * 4, id=f"human-{number}"),
            AIMessage("", tool_calls=[call], id=f"calling-{number}"),
            ToolMessage("A line of the result. " * 20, tool_call_id=f"call-{number}", id=f"tool-{number}"),
            AIMessage(f"Answer {number}. " + "This is what was found. " * 6, id=f"answer-{number}"),
        ]
    return history[:messages]


def _tool(number: int) -> StructuredTool:
    def look_up(query: str, limit: int = 10) -> str:
        """Look something up in one of the sources and give the lines that fit best."""
        return query[:limit]

    return StructuredTool.from_function(look_up, name=f"tool_{number}")
