"""Erasing from a whole folder: text planted in every place is in no table, no index and, if asked, no byte."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from typer.testing import CliRunner

from langmem_harness import MemoryContext, open_memory
from langmem_harness.cli.threads import app
from langmem_harness.errors import ConfigurationError, StorageBusyError, ThreadErasedError
from langmem_harness.layout import summaries_namespace, tool_outputs_namespace
from langmem_harness.memory import LongTermMemory, MemoryScope, MemorySource
from langmem_harness.memory.episodes import EpisodeIndex, utterances_of
from langmem_harness.middleware.turns import DurableTurnsMiddleware
from langmem_harness.sqlite import Database
from langmem_harness.testing import DeterministicEmbeddings, ScriptedChatModel
from langmem_harness.threads import Retention, SqliteCheckpointer, ThreadLog
from langmem_harness.threads.events import messages_body

CANARY = "zyxquorl"
VICTIM, BYSTANDER = MemoryScope(user="vic"), MemoryScope(user="ada")


@tool
def look_up(word: str) -> str:
    """Look a word up."""
    return "\n".join(f"line {number}: {word} is in the house of {word}" for number in range(400))


def plant(memory: Any, scope: MemoryScope, thread_id: str, word: str, *, turns: int = 4) -> None:
    """Put a word into checkpoints, log, a summary, a raw tool output, a memory with history, and episodes."""
    script = [
        AIMessage("", tool_calls=[{"name": "look_up", "args": {"word": word}, "id": f"call-{thread_id}"}]),
        f"I have seen {word}.",
        *[f"Answer {number} about {word}." + " and more" * 60 for number in range(turns)],
    ]
    agent = create_agent(
        ScriptedChatModel(responses=script),
        [look_up],
        checkpointer=memory.checkpointer,
        store=memory.store,
        middleware=memory.middleware(
            trigger=("tokens", 500),
            keep=("tokens", 200),
            summarizer=lambda text: f"They spoke about {word}.",
            tool_output_trigger=("tokens", 200),
            durable_turns=True,
        ),
        context_schema=MemoryContext,
    )
    config: Any = {"configurable": {"thread_id": thread_id}}
    for number in range(turns):
        question = f"What about {word}, question {number}?" + " please" * 40
        agent.invoke({"messages": [("user", question)]}, config, context=MemoryContext(user_id=scope.user))
    service = LongTermMemory(memory.store)
    for text in (f"Likes {word} in the morning.", f"Likes {word} more than tea at noon."):
        source = MemorySource(thread_id=thread_id, message_id="m", quote=text, stated_at=datetime.now(UTC))
        kept = service.upsert(scope, text, subject="user", attribute="taste", source=source, explicit=True)
        assert kept.record is not None
    messages = memory.checkpointer.get_tuple(config).checkpoint["channel_values"]["messages"]
    EpisodeIndex(service).index_thread(scope, thread_id, utterances_of(messages, datetime.now(UTC)))
    memory.store.search(scope.memories, query=f"who likes {word}?")  # into the cache of embeddings
    assert memory.store.search(summaries_namespace(thread_id)) or turns < 4
    assert memory.store.search(tool_outputs_namespace(thread_id))


def retention_of(memory: Any) -> Retention:
    return Retention(
        checkpointer=memory.checkpointer,
        thread_log=memory.thread_log,
        store=memory.store,
        memory=LongTermMemory(memory.store),
    )


def raw_bytes(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()).lower()


def dump_of(folder: Path) -> str:
    """Every value of every table of every file, as text and as bytes."""
    cells: list[str] = []
    for path in folder.glob("*.sqlite"):
        connection = sqlite3.connect(path)
        connection.text_factory = bytes
        for (table,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
            for row in connection.execute(f"SELECT * FROM {table.decode()}"):
                cells += [cell.decode("latin-1") for cell in row if isinstance(cell, bytes)]
        connection.close()
    return "\n".join(cells).lower()


def everything_of(memory: Any, scope: MemoryScope, thread_id: str) -> Any:
    found = memory.checkpointer.get_tuple({"configurable": {"thread_id": thread_id}})
    return (
        found.checkpoint["channel_values"]["messages"],
        [event.to_dict() for event in memory.thread_log.events(thread_id)],
        sorted((item.namespace, item.key, str(item.value)) for item in memory.store.search(("threads", thread_id))),
        LongTermMemory(memory.store).list(scope),
        sorted((item.key, str(item.value)) for item in memory.store.search(scope.episodes, limit=100)),
        [item.key for item in memory.store.search(scope.memories, query="who likes marmalade?")],
    )


@pytest.mark.parametrize(("what", "secure"), [("thread", True), ("scope", True), ("thread", False)])
def test_a_planted_word_is_gone_from_the_whole_folder(tmp_path: Path, what: str, secure: bool) -> None:
    with open_memory(tmp_path, embeddings=DeterministicEmbeddings()) as memory:
        plant(memory, BYSTANDER, "bystander", "marmalade")
        plant(memory, VICTIM, "victim", CANARY)
        bystander = everything_of(memory, BYSTANDER, "bystander")
        assert CANARY.encode() in raw_bytes(tmp_path)
        target: Any = {"thread_id": "victim"} if what == "thread" else {"scope": VICTIM}
        receipt = retention_of(memory).erase(**target, secure=secure)
        assert receipt.complete
        assert receipt.unattributed_threads == 0
        for place in ("checkpoints", "log_events", "summaries", "tool_outputs", "memories", "versions", "episodes"):
            assert receipt.counts.get(place), (place, receipt.counts)
        assert CANARY not in json.dumps(receipt.to_dict())
        assert CANARY not in dump_of(tmp_path)
        if secure:
            assert CANARY.encode() not in raw_bytes(tmp_path)  # with the files still open: journals included
        assert everything_of(memory, BYSTANDER, "bystander") == bystander
        assert memory.store.verify().problem_count == 0
        assert memory.checkpointer.verify().is_intact
    if secure:
        assert CANARY.encode() not in raw_bytes(tmp_path)
    with open_memory(tmp_path, embeddings=DeterministicEmbeddings()) as memory:
        assert everything_of(memory, BYSTANDER, "bystander") == bystander


def test_from_the_shell_a_folder_with_vectors_is_erased_without_its_embedder(tmp_path: Path) -> None:
    with open_memory(tmp_path, embeddings=DeterministicEmbeddings()) as memory:
        plant(memory, BYSTANDER, "bystander", "marmalade", turns=1)
        plant(memory, VICTIM, "victim", CANARY, turns=1)
        bystander = everything_of(memory, BYSTANDER, "bystander")
    result = CliRunner().invoke(app, ["erase", "--user", "vic", "--memory", str(tmp_path), "--secure", "--yes"])
    assert result.exit_code == 0, result.output
    assert CANARY.encode() not in raw_bytes(tmp_path)
    with open_memory(tmp_path, embeddings=DeterministicEmbeddings()) as memory:
        assert everything_of(memory, BYSTANDER, "bystander") == bystander
        assert memory.store.verify().problem_count == 0


class Died(BaseException):
    """Stands for the end of the process: nobody catches it."""


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a bystander and a victim with two threads; copy it."""
    folder = tmp_path_factory.mktemp("planted") / "memory"
    with open_memory(folder) as memory:
        plant(memory, BYSTANDER, "bystander", "marmalade", turns=1)
        plant(memory, VICTIM, "victim", CANARY, turns=1)
        plant(memory, VICTIM, "victim 2", CANARY, turns=1)
    return folder


@pytest.mark.parametrize("target", [{"thread_id": "victim"}, {"scope": VICTIM}], ids=["thread", "scope"])
def test_an_erasure_that_died_anywhere_is_finished_by_the_next(
    planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: Any
) -> None:
    real = Database.write
    died = 0
    for last in range(1, 100):
        folder = tmp_path / str(last)
        shutil.copytree(planted, folder)
        with open_memory(folder) as memory, monkeypatch.context() as patch:
            writes = 0

            @contextlib.contextmanager
            def write(self: Database) -> Iterator[sqlite3.Connection]:
                nonlocal writes
                writes += 1
                if writes == last:  # noqa: B023 - used in this round only
                    raise Died
                with real(self) as connection:
                    yield connection

            patch.setattr(Database, "write", write)
            try:
                retention_of(memory).erase(**target)
            except Died:
                died += 1
            else:
                break
        with open_memory(folder) as memory:
            if last > 1:  # it is marked from the first write on
                with pytest.raises(ThreadErasedError):
                    memory.thread_log.append_event("victim", "late", "user", {})
            receipt = retention_of(memory).erase(**target)
            assert receipt.complete
            assert LongTermMemory(memory.store).list(BYSTANDER)
            assert memory.checkpointer.get_tuple({"configurable": {"thread_id": "bystander"}})
            gone = ["victim"] if "thread_id" in target else ["victim", "victim 2"]
            for thread_id in gone:
                assert memory.checkpointer.get_tuple({"configurable": {"thread_id": thread_id}}) is None
                assert memory.thread_log.events(thread_id) == []
                assert memory.store.search(("threads", thread_id)) == []
        if len(gone) == 2:
            assert CANARY not in dump_of(folder)
        shutil.rmtree(folder)
    assert died > 5


KILLED = """
    import os, signal, sys
    from langmem_harness.memory import LongTermMemory, MemoryScope
    from langmem_harness.store import FaissStore
    from langmem_harness.threads import Retention, SqliteCheckpointer, ThreadLog
    saver, store = SqliteCheckpointer(sys.argv[1] + "/threads.sqlite"), FaissStore(sys.argv[1] + "/memory.sqlite")
    memory = LongTermMemory(store)
    retention = Retention(
        checkpointer=saver, thread_log=ThreadLog(saver.database), store=store, memory=memory
    )
    memory.forget_all = lambda scope: os.kill(os.getpid(), signal.SIGKILL)
    saver.delete_thread = memory.forget_all
    retention.erase(scope=MemoryScope(user="vic"), secure=True)
"""


def test_kill_nine_in_the_middle(planted: Path, tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    shutil.copytree(planted, folder)
    root = str(Path(__file__).parents[2])
    code = textwrap.dedent(KILLED)
    done = subprocess.run([sys.executable, "-c", code, str(folder)], cwd=root, env={**os.environ, "PYTHONPATH": root})
    assert done.returncode == -signal.SIGKILL
    with open_memory(folder) as memory:
        assert retention_of(memory).erase(scope=VICTIM, secure=True).complete
        assert CANARY.encode() not in raw_bytes(folder)
        assert LongTermMemory(memory.store).list(BYSTANDER)


def test_every_kind_of_late_write_is_refused(planted: Path, tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    shutil.copytree(planted, folder)
    with open_memory(folder) as memory:
        retention = retention_of(memory)
        retention.archive("victim", tmp_path / "victim.jsonl")
        found = memory.checkpointer.get_tuple({"configurable": {"thread_id": "victim"}})
        retention.erase(scope=VICTIM)
        for late in (
            lambda: memory.checkpointer.put(found.config, found.checkpoint, found.metadata, {}),
            lambda: memory.checkpointer.put_writes(found.config, [("messages", HumanMessage(CANARY))], "task"),
            lambda: memory.checkpointer.copy_thread("bystander", "victim"),
            lambda: memory.thread_log.append_event("victim", "late", "user", messages_body([HumanMessage(CANARY)])),
            lambda: retention.restore(tmp_path / "victim.jsonl"),
        ):
            with pytest.raises(ThreadErasedError):
                late()
        # A thread of another owner, and a new one of the same, are nobody's business.
        memory.checkpointer.copy_thread("bystander", "new")
    assert CANARY not in dump_of(folder)


def test_what_a_run_under_way_stores_meanwhile_is_erased_too(
    planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "memory"
    shutil.copytree(planted, folder)
    with open_memory(folder) as memory:
        service, delete_thread = LongTermMemory(memory.store), memory.checkpointer.delete_thread
        source = MemorySource(thread_id="victim", message_id="m", quote=CANARY, stated_at=datetime.now(UTC))

        def store_late(thread_id: str) -> None:
            memory.store.put(tool_outputs_namespace("victim"), "late", {"text": CANARY})
            service.upsert(VICTIM, f"Wants {CANARY} at night.", source=source, explicit=True)
            delete_thread(thread_id)

        monkeypatch.setattr(memory.checkpointer, "delete_thread", store_late)
        receipt = retention_of(memory).erase(thread_id="victim")
        assert receipt.complete
        assert receipt.counts["tool_outputs"] == 2
        assert memory.store.search(("threads", "victim")) == []
        assert [record.text for record in service.list(VICTIM) if "night" in record.text] == []


class Threads:
    """A place without memories: whose a thread is comes from its runs alone."""

    def __init__(self, path: Path, store: BaseStore | None = None) -> None:
        self.saver = SqliteCheckpointer(path)
        self.log = ThreadLog(self.saver.database)
        self.store = store or InMemoryStore()
        self.retention = Retention(
            checkpointer=self.saver, thread_log=self.log, store=self.store, memory=LongTermMemory(self.store)
        )
        builder = StateGraph(MessagesState, context_schema=MemoryContext)
        builder.add_node("answer", lambda state: {"messages": [AIMessage("Noted.")]})
        builder.add_edge(START, "answer")
        self.graph = builder.compile(checkpointer=self.saver)

    def run(self, thread_id: str, face: Any, context: Any = None, **configurable: Any) -> None:
        config = {"configurable": {"thread_id": thread_id, **configurable}}
        face(self.graph, "invoke", {"messages": [HumanMessage("hello")]}, config, context=context)


@pytest.fixture
def threads(tmp_path: Path) -> Iterator[Threads]:
    place = Threads(tmp_path / "threads.sqlite")
    yield place
    place.saver.close()


def test_the_threads_of_an_owner_are_found_wherever_the_owner_was_named(threads: Threads, face: Any) -> None:
    ada = MemoryScope(user="ada")
    threads.run("context", face, MemoryContext(user_id="ada"))
    threads.run("mapping", face, {"user_id": "ada"})
    threads.run("config", face, user_id="ada")
    threads.run("number", face, MemoryContext(user_id="7"))
    threads.run("another agent", face, MemoryContext(user_id="ada", agent="critic"))
    threads.run("another tenant", face, MemoryContext(user_id="ada", tenant="acme"))
    threads.run("another user", face, MemoryContext(user_id="bob"))
    threads.run("shared", face, MemoryContext(user_id="ada"))
    threads.run("shared", face, MemoryContext(user_id="bob"))
    threads.run("nobody's", face)
    threads.log.append_event("only logged", "1", "user", {"user": "ada"})
    threads.log.append_event("config", "1", "user", {"user": "a note of somebody else's"})
    source = MemorySource(thread_id="cited", message_id="m", quote="tea", stated_at=datetime.now(UTC))
    threads.retention.prune()  # whose a thread is outlives its old checkpoints
    threads.saver.copy_thread("context", "copied")
    kept = LongTermMemory(threads.store).upsert(ada, "Likes tea in the morning.", source=source, explicit=True)
    assert kept.record is not None
    found = face(threads.retention, "threads_of", ada)
    assert found.own == ("cited", "config", "context", "copied", "mapping")
    assert found.shared == ("shared",)
    assert found.unattributed == ("nobody's", "only logged")
    receipt = face(threads.retention, "erase", scope=ada)
    assert dict(receipt.remaining) == {"shared_threads": 1}
    assert not receipt.complete
    assert receipt.unattributed_threads == 2
    assert type(receipt).from_dict(receipt.to_dict()) == receipt
    left = ["number", "another agent", "another tenant", "another user", "shared", "nobody's"]
    assert sorted(threads.saver.thread_ids()) == sorted(left)
    assert threads.retention.threads_of(ada).own == ()
    assert threads.retention.erase(scope=MemoryScope(user="ada", agent="critic")).counts["checkpoints"] == 1


def test_a_thread_that_is_only_in_the_log_is_its_speakers(tmp_path: Path, face: Any) -> None:
    place = Threads(tmp_path / "threads.sqlite")
    for thread_id, users in (("ada's", ["ada"]), ("both", ["ada", "bob"])):
        for user in users:
            agent = create_agent(
                ScriptedChatModel(responses=["Noted."]),
                middleware=[DurableTurnsMiddleware(place.log)],
                context_schema=MemoryContext,
            )
            message = HumanMessage("hello", id=user)
            config: Any = {"configurable": {"thread_id": thread_id}}
            face(agent, "invoke", {"messages": [message]}, config, context=MemoryContext(user_id=user))
    found = place.retention.threads_of(MemoryScope(user="ada"))
    assert (found.own, found.shared, found.unattributed) == (("ada's",), ("both",), ())
    assert place.retention.threads_of(MemoryScope(user="ada", agent="critic")).own == ()
    place.retention.erase(scope=MemoryScope(user="ada"))
    assert place.log.thread_ids() == ["both"]
    place.saver.close()


def test_one_persons_agents_share_a_thread_with_nobody_else(threads: Threads, face: Any) -> None:
    threads.run("t", face, MemoryContext(user_id="ada"))
    threads.run("t", face, MemoryContext(user_id="ada", agent="critic"))
    assert threads.retention.threads_of(MemoryScope(user="ada")).own == ("t",)


def test_files_from_before_owners_were_noted_and_archives_know_theirs(tmp_path: Path, face: Any) -> None:
    old = Threads(tmp_path / "old.sqlite")
    old.run("t", face, user_id="ada")
    old.run("context", face, MemoryContext(user_id="ada"))
    old.retention.archive("context", tmp_path / "context.jsonl")
    with old.saver.database.write() as connection:
        connection.execute("DROP TABLE thread_owners")
        connection.execute("UPDATE langmem_harness_schema SET version = 2 WHERE component = 'checkpoints'")
    old.saver.close()
    place = Threads(tmp_path / "old.sqlite")
    found = place.retention.threads_of(MemoryScope(user="ada"))
    assert (found.own, found.unattributed) == (("t",), ("context",))  # what nobody wrote down nobody knows
    place.saver.delete_thread("context")
    place.retention.restore(tmp_path / "context.jsonl")
    assert place.retention.threads_of(MemoryScope(user="ada")).own == ("context", "t")
    place.saver.close()


class Foreign(BaseStore):
    """A store with files of its own."""

    def batch(self, ops: Any) -> Any:
        raise AssertionError("nothing may be deleted before it is known that all of it can be")

    async def abatch(self, ops: Any) -> Any:
        raise AssertionError


def test_a_store_that_cannot_rewrite_its_files_is_said_before_anything_is_deleted(tmp_path: Path) -> None:
    place = Threads(tmp_path / "threads.sqlite", Foreign())
    with pytest.raises(ConfigurationError, match="Foreign"):
        place.retention.erase(thread_id="t", secure=True)
    place.log.append_event("t", "1", "user", {})
    place.saver.close()


def test_a_reader_that_keeps_the_journal_is_said_and_the_next_call_finishes(tmp_path: Path) -> None:
    database = Database(tmp_path / "threads.sqlite", busy_timeout_seconds=0.1)
    saver = SqliteCheckpointer(database)
    log = ThreadLog(database)
    retention = Retention(checkpointer=saver, thread_log=log)
    log.append_event("t", "1", "user", {"text": CANARY})
    reader = sqlite3.connect(tmp_path / "threads.sqlite")
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM thread_events").fetchall()
    with pytest.raises(StorageBusyError):
        retention.erase(thread_id="t", secure=True)
    reader.close()
    assert retention.erase(thread_id="t", secure=True).complete
    assert CANARY.encode() not in raw_bytes(tmp_path)
    database.close()
