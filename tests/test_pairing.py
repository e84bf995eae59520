"""`open_memory`: one place, every way it can be opened, and nothing lost."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.store.memory import InMemoryStore

from langmem_harness import MemoryContext, open_memory
from langmem_harness.errors import (
    ConfigurationError,
    CorruptionError,
    IdentityError,
    MissingExtraError,
    SchemaVersionError,
    StorageClosedError,
    StorageUnavailableError,
)
from langmem_harness.testing import DeterministicEmbeddings, ScriptedChatModel
from tests.conftest import Face

ADA = MemoryContext(user_id="ada")
CONFIG: Any = {"configurable": {"thread_id": "t1"}}


def test_an_agent_remembers_after_a_restart_on_both_faces(face: Face, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "agent memory é"
    for reply in ("first", "second"):
        with open_memory(folder, embeddings=DeterministicEmbeddings()) as memory:
            agent = create_agent(
                ScriptedChatModel(responses=[reply]),
                checkpointer=memory.checkpointer,
                store=memory.store,
                middleware=memory.middleware(),
                context_schema=MemoryContext,
            )
            result = face(agent, "invoke", {"messages": [("user", "hello")]}, CONFIG, context=ADA)
            face(memory.store, "put", ("notes",), reply, {"text": f"the {reply} answer"})
    assert [message.text for message in result["messages"]] == ["hello", "first", "hello", "second"]
    with open_memory(folder, embeddings=DeterministicEmbeddings()) as memory:
        found = face(memory.store, "search", ("notes",), query="first answer")
        assert [item.key for item in found] == ["first", "second"]
        assert found[0].retrieval == "hybrid"


def test_one_checkpointer_serves_both_faces_of_one_graph(tmp_path: Path) -> None:
    with open_memory(tmp_path / "m") as memory:
        agent = create_agent(ScriptedChatModel(responses=["a", "b", "c"]), checkpointer=memory.checkpointer)
        agent.invoke({"messages": [("user", "1")]}, CONFIG)
        asyncio.run(agent.ainvoke({"messages": [("user", "2")]}, CONFIG))
        last = agent.invoke({"messages": [("user", "3")]}, CONFIG)
    assert [message.text for message in last["messages"]] == ["1", "a", "2", "b", "3", "c"]


def test_async_with_and_memory_location() -> None:
    async def use() -> str:
        async with open_memory(":memory:") as memory:
            await memory.store.aput(("a",), "k", {"text": "green tea"})
            return (await memory.store.asearch(("a",), query="tea"))[0].retrieval  # type: ignore[attr-defined,no-any-return]

    assert asyncio.run(use()) == "keyword"


def test_the_folder_is_for_its_owner_only(tmp_path: Path) -> None:
    with open_memory(tmp_path / "m") as memory:
        memory.store.put(("a",), "k", {"text": "x"})
        assert stat.S_IMODE((tmp_path / "m").stat().st_mode) == 0o700
        for file in (tmp_path / "m").iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file.name


def test_opened_twice_both_see_everything(tmp_path: Path) -> None:
    with open_memory(tmp_path) as first, open_memory(tmp_path) as second:
        first.store.put(("a",), "k", {"text": "green tea"})
        assert second.store.search(("a",), query="tea")[0].key == "k"
        second.store.delete(("a",), "k")
        assert first.store.search(("a",), query="tea") == []


def test_a_closed_memory_says_so(tmp_path: Path) -> None:
    memory = open_memory(tmp_path)
    memory.close()
    memory.close()
    with pytest.raises(StorageClosedError):
        memory.store.get(("a",), "k")
    with pytest.raises(StorageClosedError):
        memory.checkpointer.get_tuple(CONFIG)
    with pytest.raises(StorageClosedError), memory:
        pass


def test_wrong_places(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(StorageUnavailableError, match="is a file"):
        open_memory(file)
    with pytest.raises(StorageUnavailableError, match="cannot be created"):
        open_memory(file / "below")
    with pytest.raises(ConfigurationError, match=r"PostgresSaver and PostgresStore.*docs/postgres\.md"):
        open_memory("postgresql://localhost/x")
    with pytest.raises(ConfigurationError, match="redis"):
        open_memory("redis://localhost")
    for nowhere in ("  ", None, 5, b"folder", "nul\0"):
        with pytest.raises(ConfigurationError, match="location"):
            open_memory(nowhere)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="home folder"):
        open_memory("~no-such-user-here/memory")


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(tmp_path)
    for place in ("~/memory", Path("~/memory")):
        with open_memory(place) as memory:
            assert memory.location == str(home / "memory")
    assert [folder.name for folder in tmp_path.iterdir()] == ["home"]


@pytest.mark.parametrize(
    "settings",
    [
        {"on_event": "print"},
        {"busy_timeout_seconds": "10"},
        {"busy_timeout_seconds": True},
        {"busy_timeout_seconds": -1},
        {"busy_timeout_seconds": float("nan")},
        {"embeddings": 5},
        {"retrieval": "magic"},
    ],
    ids=repr,
)
def test_a_setting_of_open_memory_that_cannot_work_is_refused_at_once(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        open_memory(":memory:", **settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"trigger": ("messages", 6), "keep": ("messages", 40)},
        {"keep_first": "1"},
        {"summarizer": "no-such-provider:model"},
        {"summarizer": 5},
        {"memory_mode": "all"},
        {"top_k": "5"},
        {"top_k": 0},
        {"history": "yes"},
        {"durable_turns": 1},
        {"redactor": "yes"},
        {"tool_output_trigger": "2000"},
        {"store": "here"},
        {"long_term": {"recent": "5"}},
        {"long_term": [("recent", 5)]},
        {"turns": {"lease_seconds": "5"}},
        {"turns": {"safe_to_repeat": "search"}},
        {"tool_outputs": {"trusted_tools": "search"}},
        {"tool_outputs": {"trusted_tools": None}},
        {"compaction": {"context_window": 0}},
        {"turns": {"lease_seconds": 5}, "durable_turns": False},
        {"long_term": {"recent": 5}, "memory_mode": None},
        {"tool_outputs": {"ttl_minutes": 5}, "tool_output_trigger": None},
    ],
    ids=repr,
)
def test_a_setting_of_the_stack_that_cannot_work_is_refused_at_once(settings: dict[str, Any]) -> None:
    with open_memory(":memory:") as memory, pytest.raises(ConfigurationError):
        memory.middleware(**settings)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"compaction": {"contextwindow": 8_000}}, ["'contextwindow' is no setting of", "context_window"]),
        ({"compaction": {"trigger": None}}, ["'trigger' is given directly", "context_window"]),
        ({"long_term": {"store": None}}, ["'store' is given directly", "require_evidence"]),
        ({"tool_outputs": {"summarizer": None}}, ["'summarizer' is given directly", "exclude"]),
        ({"turns": {"self": 1}}, ["'self' is no setting of", "lease_seconds, safe_to_repeat, wait_seconds"]),
    ],
    ids=repr,
)
def test_a_name_that_is_no_setting_is_answered_with_the_known_ones(settings: dict[str, Any], said: list[str]) -> None:
    with open_memory(":memory:") as memory, pytest.raises(ConfigurationError) as caught:
        memory.middleware(**settings)
    assert all(part in str(caught.value) for part in [next(iter(settings)), *said])


def test_settings_of_each_part_reach_it(face: Face) -> None:
    def look_up() -> str:
        """Look it up."""
        return "plain words"

    def export_rows() -> str:
        """Export all rows."""
        return "row of data, " * 4_000

    calls = AIMessage(
        "",
        tool_calls=[
            {"id": "c1", "name": "look_up", "args": {}},
            {"id": "c2", "name": "export_rows", "args": {}},
            {"id": "c3", "name": "save_memory", "args": {"text": "The user prefers tea", "quote": "never said"}},
        ],
    )
    with open_memory(":memory:") as memory:
        stack = memory.middleware(
            turns={"lease_seconds": 5, "safe_to_repeat": ["look_up"]},
            long_term={"require_evidence": False},
            compaction={"context_window": 60_000, "name": "MyCompaction"},
            tool_outputs={"trusted_tools": [look_up, export_rows], "exclude": ["export_rows"]},
        )
        assert "MyCompaction" in [middleware.name for middleware in stack]
        agent = create_agent(
            ScriptedChatModel(responses=[calls, "done"]),
            tools=[look_up, export_rows],
            checkpointer=memory.checkpointer,
            store=memory.store,
            middleware=stack,
            context_schema=MemoryContext,
        )
        result = face(agent, "invoke", {"messages": [("user", "Go.")]}, CONFIG, context=ADA)
        told = {message.tool_call_id: message.text for message in result["messages"] if message.type == "tool"}
        assert told["c1"] == "plain words"
        assert told["c2"] == export_rows()
        assert len(memory.store.search(("memories",))) == 1


def test_another_store_is_used_by_every_part(face: Face, caplog: pytest.LogCaptureFixture) -> None:
    other = InMemoryStore()
    save = AIMessage(
        "", tool_calls=[{"id": "c1", "name": "save_memory", "args": {"text": "I prefer tea", "quote": "I prefer tea"}}]
    )
    with open_memory(":memory:") as memory:
        for given, middleware in ((other, memory.middleware(store=other)), (other, memory.middleware())):
            agent = create_agent(
                ScriptedChatModel(responses=[save, "Noted."]),
                checkpointer=memory.checkpointer,
                store=given,
                middleware=middleware,
                context_schema=MemoryContext,
            )
            thread: Any = {"configurable": {"thread_id": str(len(caplog.records))}}
            face(agent, "invoke", {"messages": [("user", "I prefer tea")]}, thread, context=ADA)
            told = [record.getMessage() for record in caplog.records if "store of its own" in record.getMessage()]
            if not told:
                assert len(other.search(("memories",))) == 1
                assert memory.store.search(("memories",)) == []
                caplog.clear()
        # the second stack works with the store of the memory, not with the agent's
        assert [line.split()[1] for line in told] == ["LongTermMemoryMiddleware", "HistoryCompactionMiddleware"]
        assert len(memory.store.search(("memories",))) == 1


def test_credentials_of_a_url_are_not_in_the_error() -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_memory("postgresql://ada:s3cret@localhost/x")
    assert "s3cret" not in str(caught.value)


def test_a_damaged_file_and_a_newer_one_are_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "memory.sqlite").write_bytes(b"not a database at all, but long enough " * 200)
    with pytest.raises(CorruptionError):
        open_memory(tmp_path)
    assert (tmp_path / "memory.sqlite").read_bytes().startswith(b"not a database")

    newer = tmp_path / "newer"
    open_memory(newer).close()
    connection = sqlite3.connect(newer / "memory.sqlite")
    connection.execute("UPDATE langmem_harness_schema SET version = 99")
    connection.commit()
    connection.close()
    with pytest.raises(SchemaVersionError, match="upgrade"):
        open_memory(newer)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can mount a read-only file system here")
def test_a_read_only_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("cannot mount a file system here")
    try:
        with open_memory(disk / "m") as memory:
            memory.store.put(("a",), "k", {"text": "kept"})
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with pytest.raises(StorageUnavailableError):
            open_memory(disk / "other")
        try:
            with open_memory(disk / "m") as memory:
                assert memory.store.get(("a",), "k").value == {"text": "kept"}  # type: ignore[union-attr]
                with pytest.raises(StorageUnavailableError):
                    memory.store.put(("a",), "k2", {"text": "new"})
        except StorageUnavailableError:
            pass  # SQLite cannot always read a WAL database it may not write beside; then it says so
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        with open_memory(disk / "m") as memory:
            assert memory.store.get(("a",), "k").value == {"text": "kept"}  # type: ignore[union-attr]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


WRITER = """
import sys
from langmem_harness import open_memory
from langmem_harness.testing import DeterministicEmbeddings
with open_memory(sys.argv[1], embeddings=DeterministicEmbeddings()) as memory:
    index = 0
    while True:
        memory.store.put(("p", sys.argv[2]), f"k{index}", {"text": f"number {index}"})
        print(index, flush=True)
        index += 1
"""


def test_two_processes_write_and_are_killed_and_nothing_committed_is_lost(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), name], stdout=subprocess.PIPE, text=True)
        for name in ("one", "two")
    ]
    written = {}
    for name, writer in zip(("one", "two"), writers, strict=True):
        assert writer.stdout is not None
        while (index := int(writer.stdout.readline())) < 20:
            pass
        written[name] = index
    for writer in writers:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        assert writer.stdout is not None
        writer.stdout.close()
    with open_memory(tmp_path, embeddings=DeterministicEmbeddings()) as memory:
        for name, last in written.items():
            assert memory.store.search(("p", name), query=f"number {last}", limit=1)[0].key == f"k{last}"
        assert memory.store.verify().problems == ()


def test_without_a_user_the_recommended_stack_refuses_to_run() -> None:
    with open_memory(":memory:") as memory:
        common: dict[str, Any] = {"checkpointer": memory.checkpointer, "store": memory.store}
        agent = create_agent(ScriptedChatModel(responses=["never"]), middleware=memory.middleware(), **common)
        with pytest.raises(IdentityError):
            agent.invoke({"messages": [("user", "hello")]}, CONFIG)
        without = memory.middleware(memory_mode=None)
        plain = create_agent(ScriptedChatModel(responses=["fine"]), middleware=without, **common)
        other: Any = {"configurable": {"thread_id": "t2"}}
        assert plain.invoke({"messages": [("user", "hello")]}, other)["messages"][-1].text == "fine"


@pytest.mark.parametrize(
    "fields", [{"user_id": ""}, {"user_id": " \u200b"}, {"user_id": None}, {"user_id": "ada", "tenant": ""}]
)
def test_a_context_without_a_user_is_refused_where_it_is_made(fields: dict[str, Any]) -> None:
    with pytest.raises(IdentityError):
        MemoryContext(**fields)
    assert MemoryContext(user_id=7).user_id == 7  # type: ignore[arg-type,comparison-overlap]


def test_the_stack_compacts_offloads_and_recalls_together(face: Face) -> None:
    events: list[str] = []
    big = "row of data, " * 4_000

    def export_rows() -> str:
        """Export all rows."""
        return big

    call = AIMessage("", tool_calls=[{"id": "c1", "name": "export_rows", "args": {}}])
    save = AIMessage(
        "", tool_calls=[{"id": "c2", "name": "save_memory", "args": {"text": "I prefer tea", "quote": "I prefer tea"}}]
    )
    model = ScriptedChatModel(responses=[save, "noted", call, "exported", *["and so on"] * 6, "tea"])
    with open_memory(":memory:", on_event=lambda event: events.append(event.kind)) as memory:
        agent = create_agent(
            model,
            tools=[export_rows],
            checkpointer=memory.checkpointer,
            store=memory.store,
            middleware=memory.middleware(trigger=("messages", 12), keep=("messages", 4)),
            context_schema=MemoryContext,
        )
        for text in ("I prefer tea, remember that", "export the rows", *["go on"] * 6, "which drink do I prefer?"):
            result = face(agent, "invoke", {"messages": [("user", text)]}, CONFIG, context=ADA)
    assert len(result["messages"]) == 22  # the thread is whole
    assert {"memory_written", "tool_output_offloaded", "history_compacted", "memory_recalled"} <= set(events)
    last = model.requests[-1]
    assert any("I prefer tea" in message.text for message in last[1:-1])
    assert last[-1].text == "which drink do I prefer?"
    assert all(len(message.text) < 10_000 for message in last)


def test_a_turn_of_the_recommended_stack_is_done_once_and_can_be_asked_again(face: Face) -> None:
    paid: list[int] = []
    events: list[Any] = []

    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount}"

    first, second = (
        AIMessage("", tool_calls=[{"id": call_id, "name": "pay", "args": {"amount": 5}}]) for call_id in ("c1", "c2")
    )
    look = AIMessage("", tool_calls=[{"id": "c3", "name": "search_memory", "args": {"query": "payments"}}])
    model = ScriptedChatModel(responses=[first, look, RuntimeError("down"), "it is paid", second, "as I said: paid"])
    question = {"messages": [HumanMessage("Pay 5.", id="m1")]}
    with open_memory(":memory:", on_event=events.append) as memory:
        agent = create_agent(
            model,
            tools=[pay],
            checkpointer=memory.checkpointer,
            store=memory.store,
            middleware=memory.middleware(),
            context_schema=MemoryContext,
        )
        with pytest.raises(RuntimeError):
            face(agent, "invoke", question, CONFIG, context=ADA)
        for _ in range(2):
            told = face(agent, "invoke", question, CONFIG, context=ADA)
            assert told["messages"][-1].text == "it is paid"
        assert (paid, model.calls) == ([5], 4)
        states = [state for state in agent.get_state_history(CONFIG) if state.next == ("model",)]
        again = face(agent, "invoke", None, states[-1].config, context=ADA)
        assert again["messages"][-1].text == "as I said: paid"
        assert paid == [5]
        assert memory.thread_log.verify("t1").is_intact
    assert "asked_again" in [event.action for event in events if event.kind == "turn_replayed"]


def test_the_local_extra_is_named_when_it_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with (
        pytest.raises(MissingExtraError, match=r"langmem-harness\[local\]"),
        open_memory(tmp_path, embeddings="local") as m,
    ):
        m.store.put(("a",), "k", {"text": "x"})


def test_with_history_a_later_thread_is_shown_what_was_said_after_a_restart(face: Face, tmp_path: Path) -> None:
    secret = "AKIA" + "IOSFODNN7EXAMPLE"
    requests = []
    for thread, text, reply in (
        ("monday", f"Which seal fits? My key is {secret}.", "The grey seal fits."),
        ("thursday", "What did we say about the seal?", "Grey."),
    ):
        with open_memory(tmp_path / "m", embeddings=DeterministicEmbeddings()) as memory:
            model = ScriptedChatModel(responses=[reply])
            agent = create_agent(
                model,
                checkpointer=memory.checkpointer,
                store=memory.store,
                middleware=memory.middleware(history=True),
                context_schema=MemoryContext,
            )
            config: Any = {"configurable": {"thread_id": thread}}
            face(agent, "invoke", {"messages": [("user", text)]}, config, context=ADA)
            requests += model.requests
            rows = memory.store.search(("episodes",), limit=100)
    block = requests[1][-2].text
    assert "assistant: The grey seal fits." in block
    assert "in thread monday" in block
    assert len(rows) == 4
    assert secret not in block + repr(rows)


def test_the_redactor_can_be_left_out() -> None:
    with open_memory(":memory:") as memory:
        model = ScriptedChatModel(responses=["Noted."])
        agent = create_agent(
            model,
            checkpointer=memory.checkpointer,
            middleware=memory.middleware(history=True, redactor=None),
            context_schema=MemoryContext,
        )
        agent.invoke({"messages": [("user", "Write to ada@example.com.")]}, CONFIG, context=ADA)
        item = memory.store.search(("episodes",), query="write")[0]
        assert "ada@example.com" in item.value["said"]
