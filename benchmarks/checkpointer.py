"""What a long thread costs: LangGraph's SQLite saver and ours, side by side in one run.

    python -m benchmarks.checkpointer [--turns 200] [--only ours] [--synchronous full] [--json]

Every turn of the scripted agent is two model calls around one tool call with a 1.9 kB result: four messages. Reported:
size of the file, time per turn at the start and at the end of the thread, and the time to read the newest state. The
column "platform" is the same agent without any saver, given the same history: what LangChain itself needs for a thread
of this length, whoever stores it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite import SqliteSaver

from langmem_harness.sqlite import Database
from langmem_harness.threads import SqliteCheckpointer

RESULT_CHARACTERS = 1_900


class _Model(BaseChatModel):
    """Calls the tool once per turn, then answers. As fast as a model can be."""

    @property
    def _llm_type(self) -> str:
        return "benchmark"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> BaseChatModel:  # type: ignore[override]
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        if isinstance(messages[-1], HumanMessage):
            call = {"name": "look_up", "args": {"number": len(messages)}, "id": f"call-{len(messages)}"}
            message = AIMessage("", tool_calls=[call])
        else:
            message = AIMessage(f"Found it under number {len(messages)}; is there anything else?")
        return ChatResult(generations=[ChatGeneration(message=message)])


@tool
def look_up(number: int) -> str:
    """Look something up."""
    return (f"row {number}: " + f"{number * 7919 % 10007:05d} " * 400)[:RESULT_CHARACTERS]


@contextlib.contextmanager
def _builtin(path: Path) -> Iterator[BaseCheckpointSaver[Any]]:
    with contextlib.closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        yield SqliteSaver(connection)


def _ours(synchronous: str) -> Callable[[Path], contextlib.AbstractContextManager[BaseCheckpointSaver[Any]]]:
    @contextlib.contextmanager
    def open_saver(path: Path) -> Iterator[BaseCheckpointSaver[Any]]:
        with (
            contextlib.closing(Database(path, synchronous=synchronous)) as database,  # type: ignore[arg-type]
            SqliteCheckpointer(database) as saver,
        ):
            yield saver

    return open_saver


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


def _best(action: Callable[[], Any], repeats: int = 7) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times) * 1000


def measure(open_saver: Any, turns: int) -> dict[str, Any]:
    """Run the thread on one saver; times in milliseconds, sizes in bytes."""
    config: Any = {"configurable": {"thread_id": "benchmark"}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with open_saver(folder / "threads.sqlite") as saver:
            agent = create_agent(_Model(), [look_up], checkpointer=saver)
            agent.invoke({"messages": [HumanMessage("warm up")]}, {"configurable": {"thread_id": "warm"}})
            times = []
            for turn in range(turns):
                start = time.perf_counter()
                agent.invoke({"messages": [HumanMessage(f"Question {turn}: what is in the next row?")]}, config)
                times.append((time.perf_counter() - start) * 1000)
            size = _size(folder)
            warm_read = _best(lambda: saver.get_tuple(config))
        cold_reads = []
        for _ in range(7):
            with open_saver(folder / "threads.sqlite") as saver:
                start = time.perf_counter()
                found = saver.get_tuple(config)
                cold_reads.append((time.perf_counter() - start) * 1000)
        assert found is not None
        messages = len(found.checkpoint["channel_values"]["messages"])
        assert messages == turns * 4
        return {
            "bytes": size,
            "first_turns_ms": round(statistics.median(times[: max(1, turns // 10)]), 2),
            "last_turns_ms": round(statistics.median(times[-max(1, turns // 10) :]), 2),
            "cold_read_ms": round(statistics.median(cold_reads), 2),
            "warm_read_ms": round(warm_read, 2),
            "messages": messages,
        }


def measure_platform(turns: int) -> dict[str, Any]:
    """One turn of the agent without a saver, on an empty history and on one of this length; milliseconds."""
    agent = create_agent(_Model(), [look_up])
    history: list[BaseMessage] = []
    for turn in range(turns - 1):
        call = {"name": "look_up", "args": {"number": turn}, "id": f"call-{turn}"}
        history += [
            HumanMessage("What is in the next row?", id=f"h{turn}"),
            AIMessage("", tool_calls=[call], id=f"a{turn}"),
            look_up.invoke({**call, "type": "tool_call"}).model_copy(update={"id": f"t{turn}"}),
            AIMessage("Found it; is there anything else?", id=f"b{turn}"),
        ]
    question = HumanMessage("What is in the next row?")
    return {
        "first_turns_ms": round(_best(lambda: agent.invoke({"messages": [question]})), 2),
        "last_turns_ms": round(_best(lambda: agent.invoke({"messages": [*history, question]})), 2),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the measurement and print it; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpointer", description=__doc__)
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--only", choices=["ours", "builtin"], help="measure one saver")
    parser.add_argument("--synchronous", choices=["normal", "full"], default="normal", help="disk flushes of ours")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    results: dict[str, Any] = {"turns": arguments.turns, "platform": measure_platform(arguments.turns)}
    if arguments.only != "builtin":
        results["ours"] = measure(_ours(arguments.synchronous), arguments.turns)
    if arguments.only != "ours":
        results["builtin"] = measure(_builtin, arguments.turns)
    if arguments.json:
        print(json.dumps(results))
        return 0
    print(f"{arguments.turns} turns of two model calls and one {RESULT_CHARACTERS} byte tool result")
    for name in ("ours", "builtin"):
        if name in results:
            row = results[name]
            print(
                f"{name:>8}: {row['bytes'] / 1e6:8.1f} MB   turn {row['first_turns_ms']:6.1f} ms at first, "
                f"{row['last_turns_ms']:6.1f} ms at last ({row['last_turns_ms'] / row['first_turns_ms']:.2f} x)   "
                f"newest state of {row['messages']} messages: {row['cold_read_ms']:.1f} ms after opening, "
                f"{row['warm_read_ms']:.1f} ms again"
            )
    row = results["platform"]
    print(
        f"platform: a turn without saver {row['first_turns_ms']:.1f} ms, at this length {row['last_turns_ms']:.1f} ms"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
