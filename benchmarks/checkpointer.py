"""What a long thread costs: LangGraph's SQLite saver and ours, side by side in one run.

    python -m benchmarks.checkpointer [--turns 200] [--only ours] [--synchronous full] [--json]

Every turn of the scripted agent is two model calls around one tool call with a 1.9 kB result: four messages. Reported:
size of the file, time per turn in the first and in the last tenth of the thread, the processor time of it that was
spent inside the saver, and the time to read the newest state. "Floor" is the same run on a saver that stores nothing
and hands back the very objects it was given: what LangChain and LangGraph need for a thread of this length, whoever
stores it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sqlite3
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.sqlite import SqliteSaver

from langmem_harness.sqlite import Database
from langmem_harness.threads import SqliteCheckpointer

RESULT_CHARACTERS = 1_900
CONFIG: Any = {"configurable": {"thread_id": "benchmark"}}


class _Model(BaseChatModel):
    """Calls the tool once per turn, then answers. As fast as a model can be."""

    @property
    def _llm_type(self) -> str:
        return "benchmark"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> BaseChatModel:
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


class _KeepsNothing(BaseCheckpointSaver[int]):
    """The newest checkpoint of every thread, by reference. No saver can do less; a real one must not do this."""

    def __init__(self) -> None:
        super().__init__()
        self._newest: dict[str, CheckpointTuple] = {}

    def get_next_version(self, current: int | None, channel: None) -> int:
        return (current or 0) + 1

    def get_tuple(self, config: Any) -> CheckpointTuple | None:
        return self._newest.get(config["configurable"]["thread_id"])

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        where = {**config["configurable"], "checkpoint_id": checkpoint["id"]}
        saved: Any = {"configurable": {name: where[name] for name in ("thread_id", "checkpoint_ns", "checkpoint_id")}}
        self._newest[where["thread_id"]] = CheckpointTuple(saved, checkpoint, metadata, None, [])
        return saved

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        return None


class _SaverClock:
    """Processor time spent inside a saver, whatever thread it was called in."""

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        self.seconds = 0.0
        self._lock = threading.Lock()
        for name in ("get_tuple", "put", "put_writes"):
            setattr(saver, name, self._timed(getattr(saver, name)))

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.thread_time()
            try:
                return method(*args, **kwargs)
            finally:
                with self._lock:
                    self.seconds += time.thread_time() - start

        return timed


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


def _run_thread(saver: BaseCheckpointSaver[Any], turns: int) -> dict[str, float]:
    """Time per turn and inside the saver, medians of the first and of the last tenth; milliseconds."""
    agent = create_agent(_Model(), [look_up], checkpointer=saver)
    agent.invoke({"messages": [HumanMessage("warm up")]}, {"configurable": {"thread_id": "warm"}})
    clock = _SaverClock(saver)
    times, inside = [], []
    for turn in range(turns):
        start, clock.seconds = time.perf_counter(), 0.0
        agent.invoke({"messages": [HumanMessage(f"Question {turn}: what is in the next row?")]}, CONFIG)
        times.append((time.perf_counter() - start) * 1000)
        inside.append(clock.seconds * 1000)
    tenth = max(1, turns // 10)
    return {
        "first_turns_ms": round(statistics.median(times[:tenth]), 2),
        "last_turns_ms": round(statistics.median(times[-tenth:]), 2),
        "first_in_saver_ms": round(statistics.median(inside[:tenth]), 2),
        "last_in_saver_ms": round(statistics.median(inside[-tenth:]), 2),
    }


def measure(open_saver: Any, turns: int) -> dict[str, Any]:
    """Run the thread on one saver; times in milliseconds, sizes in bytes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with open_saver(folder / "threads.sqlite") as saver:
            result: dict[str, Any] = _run_thread(saver, turns)
            result["bytes"] = _size(folder)
            result["warm_read_ms"] = round(_best(lambda: saver.get_tuple(CONFIG)), 2)
        cold_reads = []
        for _ in range(7):
            with open_saver(folder / "threads.sqlite") as saver:
                start = time.perf_counter()
                found = saver.get_tuple(CONFIG)
                cold_reads.append((time.perf_counter() - start) * 1000)
        assert found is not None
        result["cold_read_ms"] = round(statistics.median(cold_reads), 2)
        result["messages"] = len(found.checkpoint["channel_values"]["messages"])
        assert result["messages"] == turns * 4
        return result


def main(argv: Sequence[str] | None = None) -> int:
    """Run the measurement and print it; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpointer", description=__doc__)
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--only", choices=["ours", "builtin"], help="measure one saver")
    parser.add_argument("--synchronous", choices=["normal", "full"], default="normal", help="disk flushes of ours")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    results: dict[str, Any] = {"turns": arguments.turns, "floor": _run_thread(_KeepsNothing(), arguments.turns)}
    if arguments.only != "builtin":
        results["ours"] = measure(_ours(arguments.synchronous), arguments.turns)
    if arguments.only != "ours":
        results["builtin"] = measure(_builtin, arguments.turns)
    if arguments.json:
        print(json.dumps(results))
        return 0
    print(f"{arguments.turns} turns of two model calls and one {RESULT_CHARACTERS} byte tool result")
    for name in ("floor", "ours", "builtin"):
        if name in results:
            row = results[name]
            print(
                f"{name:>8}: turn {row['first_turns_ms']:6.1f} ms at first, {row['last_turns_ms']:6.1f} ms at last "
                f"({row['last_turns_ms'] / row['first_turns_ms']:.2f} x); in the saver {row['first_in_saver_ms']:.1f} "
                f"and {row['last_in_saver_ms']:.1f} ms"
            )
            if "bytes" in row:
                print(
                    f"{'':>8}  {row['bytes'] / 1e6:.1f} MB; newest state of {row['messages']} messages: "
                    f"{row['cold_read_ms']:.1f} ms after opening, {row['warm_read_ms']:.1f} ms again"
                )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
