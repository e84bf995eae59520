"""Prune, archive, restore, erase, import: nothing else is touched, and what is gone is gone."""

from __future__ import annotations

import json
import operator
import sqlite3
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from langmem_harness.errors import (
    ConfigurationError,
    CorruptionError,
    IdentityError,
    NotFoundError,
    RecordError,
    StorageUnavailableError,
    ThreadErasedError,
    TurnConflictError,
)
from langmem_harness.layout import memory_links_namespace, summaries_namespace, tool_outputs_namespace
from langmem_harness.memory.scope import MemoryScope
from langmem_harness.receipts import ErasureReceipt
from langmem_harness.threads import Retention, SqliteCheckpointer, ThreadLog, import_langgraph_file
from langmem_harness.threads.archiving import restore_archive
from langmem_harness.threads.events import messages_body

SECRET = "the-word-that-must-go-xyzzy"


def _append(state: list[str], writes: Any) -> list[str]:
    return state + [item for write in writes for item in write]


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    log: Annotated[list[str], DeltaChannel(_append, snapshot_frequency=4)]
    count: Annotated[int, operator.add]


def build(saver: Any) -> Any:
    builder = StateGraph(State)
    builder.add_node("work", lambda state: {"log": [f"step {len(state['log'])}"], "count": 1})
    builder.add_edge(START, "work")
    return builder.compile(checkpointer=saver)


class Memories:
    def __init__(self) -> None:
        self.threads: list[str] = []
        self.scopes: list[MemoryScope] = []

    def erase_thread(self, thread_id: str) -> ErasureReceipt:
        self.threads.append(thread_id)
        return ErasureReceipt(target={"thread_id": thread_id}, counts={"memories": 2})

    def forget_all(self, scope: MemoryScope) -> ErasureReceipt:
        self.scopes.append(scope)
        return ErasureReceipt(target=scope.to_dict(), counts={"memories": 3})


class Place:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "threads.sqlite"
        self.saver = SqliteCheckpointer(self.path)
        self.log = ThreadLog(self.saver.database)
        self.store = InMemoryStore()
        self.memory = Memories()
        self.retention = Retention(checkpointer=self.saver, thread_log=self.log, store=self.store, memory=self.memory)
        self.graph = build(self.saver)

    def talk(self, thread_id: str, turns: int = 3, **configurable: Any) -> Any:
        config = {"configurable": {"thread_id": thread_id, **configurable}}
        for number in range(turns):
            text = f"{thread_id} {number} {SECRET if thread_id == 'victim' else 'other'} " + "x" * 600
            self.graph.invoke({"messages": [HumanMessage(text)], "log": [text]}, config)
            self.log.append_event(thread_id, f"turn {number}", "user", messages_body([HumanMessage(text)]))
        for namespace in (summaries_namespace, tool_outputs_namespace, memory_links_namespace):
            self.store.put(namespace(thread_id), "k", {"text": SECRET if thread_id == "victim" else "other"})
        return config


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    opened = Place(tmp_path)
    yield opened
    opened.saver.close()


@pytest.mark.filterwarnings("ignore")
class TestPrune:
    def test_the_newest_state_stays(self, place: Place, face: Any) -> None:
        config, other = place.talk("a", 9), place.talk("b", 2)
        expected, bystander = place.graph.get_state(config).values, place.graph.get_state(other).values
        report = face(place.retention, "prune", ["a"])
        assert report.checkpoints_before == 27
        assert report.checkpoints_after <= 9
        assert place.graph.get_state(config).values == expected
        assert place.graph.get_state(other).values == bystander
        assert len(place.log.messages("a")) == 9
        assert len(place.store.search(("threads", "a"))) == 3  # summaries, raw outputs, links
        assert face(place.retention, "prune").threads == 2
        assert place.saver.verify().is_intact

    def test_nothing_to_prune(self, place: Place) -> None:
        assert place.retention.prune(["unknown"]).checkpoints_before == 0
        assert place.retention.prune().threads == 0
        with pytest.raises(ConfigurationError):
            place.retention.prune(["a"], keep_last=0)


@pytest.mark.filterwarnings("ignore")
class TestArchive:
    def test_there_and_back(self, place: Place, face: Any, tmp_path: Path) -> None:
        config = place.talk("a", 5)
        place.talk("b")
        expected = place.graph.get_state(config).values
        history = [state.values for state in place.graph.get_state_history(config)]
        file = tmp_path / "a.jsonl"
        lines = face(place.retention, "archive", "a", file)
        assert lines == len(file.read_text().splitlines())
        assert file.stat().st_mode & 0o077 == 0
        place.saver.delete_thread("a")
        place.log.delete_thread("a")
        for _ in range(2):
            assert face(place.retention, "restore", file) == "a"
            assert place.graph.get_state(config).values == expected
            assert [state.values for state in place.graph.get_state_history(config)] == history
            assert len(place.log.messages("a")) == 5
            assert place.log.verify("a").is_intact
        place.graph.invoke({"messages": [HumanMessage("on")]}, config)

    def test_what_is_no_archive_is_refused(self, place: Place, tmp_path: Path) -> None:
        place.talk("a")
        file = tmp_path / "a.jsonl"
        place.retention.archive("a", file)
        good = file.read_text()
        lines = good.splitlines(keepends=True)
        for text, error in (
            ("", CorruptionError),
            ("{}\n", RecordError),
            ("no json", RecordError),
            ("".join(lines[:-1]), CorruptionError),
            ("".join([*lines[:2], *lines[3:]]), CorruptionError),
            (good.replace("turn 0", "turn 9"), CorruptionError),
            (json.dumps({**json.loads(lines[0]), "format_version": 9}) + "\n", RecordError),
        ):
            file.write_text(text)
            with pytest.raises(error):
                place.retention.restore(file)
        file.write_bytes(b"\xff\xfe")
        with pytest.raises(RecordError):
            place.retention.restore(file)
        with pytest.raises(StorageUnavailableError):
            place.retention.restore(tmp_path / "nowhere")
        with pytest.raises(StorageUnavailableError):
            place.retention.archive("a", tmp_path / "no folder" / "a")
        with pytest.raises(NotFoundError):
            place.retention.archive("unknown", file)
        assert not list(tmp_path.glob("*.unfinished"))

    def test_another_history_is_not_overwritten(self, place: Place, tmp_path: Path) -> None:
        place.talk("a")
        place.retention.archive("a", tmp_path / "a")
        place.log.delete_thread("a")
        place.log.append_event("a", "turn 0", "user", {"other": True})
        with pytest.raises(TurnConflictError):
            place.retention.restore(tmp_path / "a")
        assert len(place.log.events("a")) == 1

    @pytest.mark.parametrize("what", ["checkpoints", "log"])
    def test_a_thread_that_has_gone_on_is_left_as_it_is(
        self, place: Place, face: Any, tmp_path: Path, what: str
    ) -> None:
        config = place.talk("a", 2)
        place.retention.archive("a", tmp_path / "a")
        if what == "checkpoints":
            place.graph.invoke({"messages": [HumanMessage("newer")]}, config)
        else:
            place.log.append_event("a", "newer", "user", {})
        state, entries = place.graph.get_state(config).values, place.log.events("a")
        with pytest.raises(TurnConflictError, match="gone on"):
            face(place.retention, "restore", tmp_path / "a")
        assert place.graph.get_state(config).values == state
        assert place.log.events("a") == entries

    def test_what_was_pruned_is_put_back(self, place: Place, tmp_path: Path) -> None:
        config = place.talk("a", 3)
        history = [state.values for state in place.graph.get_state_history(config)]
        place.retention.archive("a", tmp_path / "a")
        place.retention.prune(["a"])
        report = restore_archive(tmp_path / "a", checkpointer=place.saver, thread_log=place.log)
        assert report.rows > 0
        assert [state.values for state in place.graph.get_state_history(config)] == history
        assert restore_archive(tmp_path / "a", checkpointer=place.saver, thread_log=place.log).rows == 0

    def test_a_file_is_not_overwritten_unasked(self, place: Place, face: Any, tmp_path: Path) -> None:
        place.talk("a", 1)
        file = tmp_path / "a"
        file.write_text("the only copy")
        with pytest.raises(StorageUnavailableError, match="overwrite"):
            face(place.retention, "archive", "a", file)
        assert file.read_text() == "the only copy"
        face(place.retention, "archive", "a", file, overwrite=True)
        assert place.retention.restore(file) == "a"


def raw_bytes(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir() if file.is_file())


@pytest.mark.filterwarnings("ignore")
class TestErase:
    @pytest.mark.parametrize("secure", [False, True])
    def test_a_thread_is_gone_from_every_place(self, place: Place, face: Any, tmp_path: Path, secure: bool) -> None:
        config, other = place.talk("victim", 4), place.talk("bystander", 4)
        bystander = place.graph.get_state(other).values
        receipt = face(place.retention, "erase", thread_id="victim", secure=secure)
        assert receipt.complete
        assert receipt.counts["log_events"] == 4
        assert receipt.counts["checkpoints"] == 12
        assert (receipt.counts["summaries"], receipt.counts["tool_outputs"], receipt.counts["memories"]) == (1, 1, 3)
        assert SECRET not in json.dumps(receipt.to_dict())
        assert place.saver.get_tuple(config) is None
        assert place.log.events("victim") == []
        assert place.store.search(("threads", "victim")) == []
        assert place.memory.threads == ["victim"]
        with sqlite3.connect(place.path) as connection:
            dump = "\n".join(connection.iterdump())
        connection.close()
        assert SECRET not in dump
        assert SECRET.encode().hex().upper() not in dump
        if secure:
            assert SECRET.encode() not in raw_bytes(tmp_path)
        assert place.graph.get_state(other).values == bystander
        assert len(place.log.messages("bystander")) == 4
        assert len(place.store.search(("threads", "bystander"))) == 3

    def test_late_writes_are_refused_and_erasing_again_is_fine(self, place: Place) -> None:
        config = place.talk("victim")
        place.retention.erase(thread_id="victim")
        with pytest.raises(ThreadErasedError):
            place.graph.invoke({"messages": [HumanMessage("late")]}, config)
        with pytest.raises(ThreadErasedError):
            place.log.append_event("victim", "t", "user", {})
        with pytest.raises(ThreadErasedError):
            place.saver.copy_thread("other", "victim")
        assert place.retention.erase(thread_id="victim").complete
        assert place.saver.thread_ids() == []

    def test_an_unknown_thread_is_not_found_and_its_id_stays_usable(self, place: Place, face: Any) -> None:
        said: list[Any] = []
        retention = Retention(checkpointer=place.saver, thread_log=place.log, store=place.store, on_event=said.append)
        receipt = face(retention, "erase", thread_id="mistyped")
        assert (receipt.found, receipt.complete, dict(receipt.counts)) == (False, True, {})
        assert ErasureReceipt.from_dict(receipt.to_dict()) == receipt
        assert said == []
        place.talk("mistyped", turns=1)
        assert len(place.log.messages("mistyped")) == 1

        # a thread that is only in the store is known, and an erased one stays known
        place.store.put(summaries_namespace("stored"), "k", {"text": "short"})
        assert face(retention, "erase", thread_id="stored").found
        again = face(retention, "erase", thread_id="stored")
        assert (again.found, again.complete) == (True, True)
        assert len(said) == 2

    def test_an_id_is_taken_as_it_was_stored(self, place: Place) -> None:
        name = uuid.UUID(int=7)
        config: Any = {"configurable": {"thread_id": name}}
        place.graph.invoke({"messages": [HumanMessage("hi")]}, config)
        receipt = place.retention.erase(thread_id=name)  # type: ignore[arg-type]
        assert receipt.counts["checkpoints"] == 3
        with pytest.raises(IdentityError):
            place.retention.erase(thread_id="\ud800")

    def test_a_thread_that_only_a_memory_cites_is_known(self, place: Place) -> None:
        receipt = place.retention.erase(thread_id="cited")  # `Memories` finds two for every thread
        assert receipt.found
        assert receipt.counts["memories"] == 4
        with pytest.raises(ThreadErasedError):
            place.talk("cited")

    def test_a_failure_in_the_middle_is_retried(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        place.talk("victim")
        with monkeypatch.context() as patch:
            patch.setattr(InMemoryStore, "batch", lambda store, ops: (_ for _ in ()).throw(OSError("down")))
            with pytest.raises(OSError, match="down"):
                place.retention.erase(thread_id="victim")
        receipt = place.retention.erase(thread_id="victim")
        assert receipt.complete
        assert receipt.counts["log_events"] == 3

    def test_a_scope_is_its_threads_and_memories(self, place: Place) -> None:
        place.talk("victim", user_id="ada")
        place.talk("ada's other", user_id="ada", tenant="acme")
        place.talk("bob's", user_id="bob")
        receipt = place.retention.erase(scope=MemoryScope(user="ada"))
        assert receipt.complete
        assert receipt.counts["checkpoints"] == 9
        assert sorted(place.saver.thread_ids()) == ["ada's other", "bob's"]
        assert place.memory.scopes == [MemoryScope(user="ada")]

    def test_exactly_one_target(self, place: Place) -> None:
        for wrong in ({}, {"thread_id": "a", "scope": MemoryScope(user="a")}):
            with pytest.raises(ConfigurationError):
                place.retention.erase(**wrong)  # type: ignore[arg-type]

    def test_an_archive_of_an_erased_thread_stays_out(self, place: Place, tmp_path: Path) -> None:
        place.talk("victim")
        place.retention.archive("victim", tmp_path / "v")
        place.retention.erase(thread_id="victim")
        with pytest.raises(ThreadErasedError):
            place.retention.restore(tmp_path / "v")


def test_log_and_checkpointer_must_share_a_file(tmp_path: Path) -> None:
    with (
        SqliteCheckpointer(tmp_path / "a") as saver,
        ThreadLog(tmp_path / "b") as log,
        pytest.raises(ConfigurationError),
    ):
        Retention(checkpointer=saver, thread_log=log)


@pytest.mark.filterwarnings("ignore")
def test_a_langgraph_file_is_taken_over(tmp_path: Path) -> None:
    def ask(state: Any) -> dict[str, Any]:
        return {"log": [str(interrupt("go on?"))]}

    def build_asking(saver: Any) -> Any:
        builder = StateGraph(State)
        builder.add_node("ask", ask)
        builder.add_edge(START, "ask")
        return builder.compile(checkpointer=saver)

    path = tmp_path / "old.sqlite"
    waiting: Any = {"configurable": {"thread_id": "waiting"}}
    with SqliteSaver.from_conn_string(str(path)) as old:
        graph = build(old)
        for name in ("a", "b"):
            for number in range(6):
                graph.invoke(
                    {"messages": [HumanMessage(f"{number}")], "log": ["in"]}, {"configurable": {"thread_id": name}}
                )
        build_asking(old).invoke({"messages": [HumanMessage("wait")]}, waiting)
        expected = [state.values for state in graph.get_state_history({"configurable": {"thread_id": "a"}})]
    before = path.read_bytes()
    with SqliteCheckpointer(tmp_path / "new.sqlite") as saver:
        seen: list[str] = []
        for _ in range(2):
            report = import_langgraph_file(path, saver, progress=lambda name, count: seen.append(name))
            assert (report.threads, report.checkpoints > 36, report.writes > 0) == (3, True, True)
        assert seen == ["a", "b", "waiting"] * 2
        graph = build(saver)
        assert [s.values for s in graph.get_state_history({"configurable": {"thread_id": "a"}})] == expected
        assert build_asking(saver).invoke(Command(resume="yes"), waiting)["log"] == ["yes"]
        assert saver.verify().is_intact
    assert path.read_bytes() == before
    with SqliteCheckpointer(":memory:") as saver:
        assert import_langgraph_file(path, saver, thread_ids=["b"]).threads == 1
        (tmp_path / "text").write_text("no database at all, but long enough to be read as one" * 10)
        with pytest.raises(RecordError):
            import_langgraph_file(tmp_path / "text", saver)
        with pytest.raises(RecordError):
            import_langgraph_file(tmp_path / "new.sqlite", saver)
        with pytest.raises(StorageUnavailableError):
            import_langgraph_file(tmp_path / "nowhere", saver)
