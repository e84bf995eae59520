"""What can happen to a file of threads: a full disk, a killed process, several writers, a damaged or missing node."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint

from langmem_harness.errors import CorruptionError, StorageUnavailableError
from langmem_harness.threads import SqliteCheckpointer
from tests.threads.test_checkpointer import ask, build, start_writer, texts

ROOT = Path(__file__).parents[2]
CONFIG: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


def test_a_full_disk_keeps_what_was_there_and_says_so(tmp_path: Path) -> None:
    with SqliteCheckpointer(tmp_path / "threads.sqlite") as saver:
        graph = build(saver)
        graph.invoke(ask("one"), CONFIG)
        before = graph.get_state(CONFIG).values
        writer = saver.database._writer
        pages = writer.execute("PRAGMA page_count").fetchone()[0]
        writer.execute(f"PRAGMA max_page_count = {pages}")
        big = {"messages": [HumanMessage("x" * 100_000)]}
        with pytest.raises(StorageUnavailableError):
            graph.invoke(big, CONFIG)
        newest: Any = graph.get_state(CONFIG).config
        with pytest.raises(StorageUnavailableError):
            saver.put_writes(newest, [("messages", big["messages"])], "task")
        assert saver.verify().is_intact
        assert graph.get_state(CONFIG).values == before
        writer.execute("PRAGMA max_page_count = 1000000")
        assert texts(graph.invoke(ask("two"), CONFIG))[-2] == "two"
        assert saver.verify().is_intact


def test_a_flipped_byte_and_a_lost_row_are_named(tmp_path: Path) -> None:
    with SqliteCheckpointer(tmp_path / "threads.sqlite") as saver:
        graph = build(saver)
        for thread_id in ("t", "bystander"):
            for number in range(20):
                graph.invoke(ask(f"{thread_id} {number} " + "x" * 600), {"configurable": {"thread_id": thread_id}})
        with saver.database.read() as connection:
            rows = connection.execute(
                "SELECT node, hash, value FROM checkpoint_nodes JOIN thread_keys USING (thread) "
                "WHERE thread_id = 't' AND kind = 0 ORDER BY node"
            ).fetchall()
        (flipped, flipped_hash, value), (lost, lost_hash, _) = rows[3], rows[7]
        damaged = bytes([value[0] ^ 1]) + value[1:]
        with saver.database.write() as connection:
            connection.execute("UPDATE checkpoint_nodes SET value = ? WHERE node = ?", (damaged, flipped))
            connection.execute("DELETE FROM checkpoint_nodes WHERE node = ?", (lost,))
        for report in (saver.verify(), saver.verify("t")):
            assert report.damaged == (flipped_hash.hex()[:16],)
            assert report.missing == (lost_hash.hex()[:16],)
            assert not report.is_intact
        assert saver.verify("bystander").is_intact
        saver.forget_cached()
        with pytest.raises(CorruptionError, match=f"{flipped_hash.hex()[:16]}|{lost_hash.hex()[:16]}"):
            saver.get_tuple(CONFIG)
        assert len(graph.get_state({"configurable": {"thread_id": "bystander"}}).values["messages"]) == 40


def test_two_processes_write_one_thread_while_it_is_read_and_pruned(tmp_path: Path) -> None:
    path = tmp_path / "threads.sqlite"
    with SqliteCheckpointer(path) as saver:
        writers = [start_writer(path, "one", 6) for _ in range(2)]
        while any(writer.poll() is None for writer in writers):
            found = saver.get_tuple({"configurable": {"thread_id": "one"}})
            assert found is None or isinstance(found.checkpoint["channel_values"], dict)
            saver.prune(["one"], keep_last=10)
            time.sleep(0.02)
        for writer in writers:
            writer.communicate()
            assert writer.returncode == 0
        report = saver.verify()
        assert report.is_intact
        assert report.checkpoints >= 10
        for found in saver.list({"configurable": {"thread_id": "one"}}):
            assert found.checkpoint["id"]
        assert texts(build(saver).invoke(ask("on"), {"configurable": {"thread_id": "one"}}))[-2] == "on"


def test_eight_tasks_that_finish_at_once_lose_no_write(tmp_path: Path) -> None:
    with SqliteCheckpointer(tmp_path / "threads.sqlite") as saver, ThreadPoolExecutor(8) as pool:
        config = saver.put(CONFIG, empty_checkpoint(), {}, {})

        def finish(number: int) -> None:
            for _ in range(2):  # a retry changes nothing
                saver.put_writes(config, [("a", number), ("b", "x" * 600)], f"task {number}")

        list(pool.map(finish, range(8)))
        found = saver.get_tuple(CONFIG)
        assert found is not None
        writes = [(f"task {number}", *write) for number in range(8) for write in (("a", number), ("b", "x" * 600))]
        assert found.pending_writes == writes


@pytest.mark.parametrize("with_id", [True, False])
def test_images_seen_early_are_not_stored_at_every_step(tmp_path: Path, with_id: bool) -> None:
    with SqliteCheckpointer(tmp_path / "threads.sqlite") as saver:
        graph = build(saver)
        for number in range(3):
            data = base64.b64encode(os.urandom(300_000)).decode()
            image = HumanMessage([{"type": "image", "base64": data, "mime_type": "image/png"}])
            image.id = str(number) if with_id else None
            graph.invoke({"messages": [image]}, CONFIG)
        for number in range(20):
            graph.invoke(ask(f"{number}"), CONFIG)
        assert len(graph.get_state(CONFIG).values["messages"]) == 46
    copies = 1 if with_id else 2  # as it came in, and with the id LangGraph gave it
    assert (tmp_path / "threads.sqlite").stat().st_size < 3 * 400_000 * copies + 500_000


DRIVER = '''
"""Forks a child for every statement of every operation, kills it there, and looks at what is left."""
import itertools, os, shutil, signal, sys
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langmem_harness.threads import Retention, SqliteCheckpointer, ThreadLog

folder, *wanted = sys.argv[1:]
base, path = folder + "/base.sqlite", folder + "/victim.sqlite"

def checkpoint(count):
    messages = [HumanMessage(f"{number} " + "x" * 600, id=str(number)) for number in range(count)]
    return {**empty_checkpoint(), "id": f"{count:04}", "channel_values": {"messages": messages}}

START = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
with SqliteCheckpointer(base) as saver:
    config = START
    for count in (38, 39, 40):
        config = saver.put(config, checkpoint(count), {"step": count}, {})
        saver.put_writes(config, [("messages", HumanMessage("w" * 700))], "task")
newest = config

def erase(saver):
    Retention(checkpointer=saver, thread_log=ThreadLog(saver.database)).erase(thread_id="t")

OPERATIONS = {
    "put": lambda saver: saver.put(newest, checkpoint(45), {"step": 45}, {}),
    "put_writes": lambda saver: saver.put_writes(newest, [("a", "a" * 700), ("b", ["b" * 700])], "other"),
    "prune": lambda saver: saver.prune(["t"]),
    "copy_thread": lambda saver: saver.copy_thread("t", "copy"),
    "delete_thread": lambda saver: saver.delete_thread("t"),
    "erase": erase,
}

def state():
    with SqliteCheckpointer(path) as saver:
        report = saver.verify()
        assert report.is_intact and report.unused == 0, report
        return [
            (found.checkpoint["id"], found.checkpoint["channel_values"], found.pending_writes)
            for thread_id in ("t", "copy")
            for found in saver.list({"configurable": {"thread_id": thread_id}})
        ]

def restart():
    for suffix in ("", "-wal", "-shm"):
        if os.path.exists(path + suffix):
            os.remove(path + suffix)
    shutil.copyfile(base, path)

for name in wanted:
    operation = OPERATIONS[name]
    restart()
    before = state()
    with SqliteCheckpointer(path) as saver:
        operation(saver)
    after = state()
    assert before != after
    for last in itertools.count(1):
        restart()
        child = os.fork()
        if child == 0:
            saver = SqliteCheckpointer(path)
            ThreadLog(saver.database)
            statements = itertools.count(1)
            saver.database._writer.set_trace_callback(
                lambda _: os.kill(os.getpid(), signal.SIGKILL) if next(statements) == last else None
            )
            operation(saver)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        found = state()
        assert found in (before, after), (name, last)
        if not os.WIFSIGNALED(status):
            assert status == 0 and found == after
            break
        with SqliteCheckpointer(path) as saver:
            operation(saver)  # doing it again gives the same as doing it once
        assert state() == after, (name, last)
    print(name, last)
    assert last > 4
'''


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    "operations",
    [["put", "prune"], pytest.param(["put_writes", "copy_thread", "delete_thread", "erase"], marks=pytest.mark.slow)],
    ids=" ".join,
)
def test_kill_nine_at_every_statement_is_before_or_after_and_can_be_repeated(
    tmp_path: Path, operations: list[str]
) -> None:
    command = [sys.executable, "-c", DRIVER, str(tmp_path), *operations]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == operations


def test_a_save_looks_at_what_is_new(tmp_path: Path) -> None:
    """Ten times as many messages: the same statements, rows and bytes, and only a few more calls per 32 messages."""

    def cost_of_one_more(count: int) -> tuple[int, int, int]:
        with SqliteCheckpointer(tmp_path / f"{count}.sqlite") as saver:
            messages: list[Any] = [
                AIMessage("x" * 600, id=str(number), additional_kwargs={"n": [number]}) for number in range(count)
            ]
            config = saver.put(CONFIG, {**empty_checkpoint(), "channel_values": {"messages": messages}}, {}, {})
            more = {**empty_checkpoint(), "channel_values": {"messages": [*messages, HumanMessage("new", id="new")]}}
            statements: list[str] = []
            saver.database._writer.set_trace_callback(statements.append)
            with saver.database.read() as connection:
                before = connection.execute("SELECT total(length(value)) FROM checkpoint_nodes").fetchone()[0]
            calls = 0

            def count_calls(frame: Any, event: str, argument: Any) -> None:
                nonlocal calls
                calls += event in ("call", "c_call")

            sys.setprofile(count_calls)
            try:
                saver.put(config, more, {}, {})
            finally:
                sys.setprofile(None)
            saver.database._writer.set_trace_callback(None)
            with saver.database.read() as connection:
                after = connection.execute("SELECT total(length(value)) FROM checkpoint_nodes").fetchone()[0]
            assert len(saver.get_tuple(CONFIG).checkpoint["channel_values"]["messages"]) == count + 1  # type: ignore[union-attr]
            return calls, len(statements), int(after - before)

    calls, statements, stored = cost_of_one_more(320)
    many_calls, many_statements, many_stored = cost_of_one_more(3_200)
    assert many_statements <= statements + 4  # the path above a long list is one node longer
    assert many_stored < stored + 1_000
    assert many_calls < calls + 40 * (3_200 - 320) / 32
