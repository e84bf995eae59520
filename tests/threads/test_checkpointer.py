"""The checkpointer under real graphs: both faces, history, forks, interrupts, sub-graphs, delta channels, faults."""

from __future__ import annotations

import asyncio
import operator
import os
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

from langmem_harness.errors import (
    ConfigurationError,
    CorruptionError,
    SchemaVersionError,
    StorageUnavailableError,
)
from langmem_harness.sqlite import Database
from langmem_harness.threads import SqliteCheckpointer
from langmem_harness.threads.message_cache import MessageCache
from langmem_harness.threads.nodes import ValueDecoder, ValueEncoder

CONFIG: Any = {"configurable": {"thread_id": "t"}}


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    notes: Annotated[list[str], operator.add]


@pytest.fixture
def saver(tmp_path: Path) -> Iterator[SqliteCheckpointer]:
    with SqliteCheckpointer(tmp_path / "threads.sqlite") as opened:
        yield opened


def build(saver: Any) -> Any:
    def answer(state: State) -> dict[str, Any]:
        return {"messages": [AIMessage(f"answer {len(state['messages'])}")], "notes": ["n" * 700]}

    graph = StateGraph(State)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    return graph.compile(checkpointer=saver)


def ask(text: str) -> dict[str, Any]:
    return {"messages": [HumanMessage(text)]}


def texts(values: Any) -> list[str]:
    return [message.text for message in values["messages"]]


def test_one_object_serves_both_faces(saver: SqliteCheckpointer) -> None:
    graph = build(saver)
    graph.invoke(ask("one"), CONFIG)
    asyncio.run(graph.ainvoke(ask("two"), CONFIG))
    assert texts(graph.get_state(CONFIG).values) == ["one", "answer 1", "two", "answer 3"]
    assert texts(asyncio.run(graph.aget_state(CONFIG)).values) == ["one", "answer 1", "two", "answer 3"]


@pytest.mark.anyio
async def test_sync_methods_work_on_the_event_loop(saver: SqliteCheckpointer) -> None:
    graph = build(saver)
    graph.invoke(ask("one"), CONFIG)
    await graph.ainvoke(ask("two"), CONFIG)
    assert len(list(saver.list(CONFIG))) == len([found async for found in saver.alist(CONFIG)]) == 6


def test_history_time_travel_and_forks(saver: SqliteCheckpointer) -> None:
    graph = build(saver)
    for number in range(40):
        graph.invoke(ask(f"q{number}"), CONFIG)
    history = list(graph.get_state_history(CONFIG))
    assert [len(state.values.get("messages", [])) for state in history][:3] == [80, 79, 78]
    past = next(state for state in history if len(state.values.get("messages", [])) == 40 and not state.next)
    graph.invoke(ask("another way"), past.config)
    forked = graph.get_state(CONFIG)
    assert texts(forked.values)[-2:] == ["another way", "answer 41"]
    edited = graph.update_state(
        past.config, {"messages": [past.values["messages"][0].model_copy(update={"content": "x"})]}
    )
    assert texts(graph.get_state(edited).values)[0] == "x"
    assert texts(graph.get_state(past.config).values)[0] == "q0"
    assert saver.verify().is_intact


def test_a_message_changed_in_place_is_saved_as_changed_and_history_keeps_the_old_one(
    saver: SqliteCheckpointer,
) -> None:
    def shout(state: State) -> dict[str, Any]:
        first = state["messages"][0]
        first.content = first.text.upper()
        first.additional_kwargs["changed"] = True
        return {"messages": [first]}

    builder = StateGraph(State)
    builder.add_node("shout", shout)
    builder.add_edge(START, "shout")
    graph = builder.compile(checkpointer=saver)
    many = [HumanMessage(f"m{number}", id=f"m{number}") for number in range(100)]
    graph.invoke({"messages": many}, CONFIG, durability="sync")  # else the save races with the change
    for cold in (False, True):
        if cold:
            saver._messages.clear()
        newest, *older = graph.get_state_history(CONFIG)
        assert newest.values["messages"][0].content == "M0"
        assert newest.values["messages"][0].additional_kwargs == {"changed": True}
        assert older[0].values["messages"][0].content == "m0"
        assert older[0].values["messages"][0].additional_kwargs == {}


def test_what_is_read_is_the_callers_own(saver: SqliteCheckpointer) -> None:
    graph = build(saver)
    graph.invoke({"messages": [HumanMessage(f"m{number}", id=f"m{number}") for number in range(64)]}, CONFIG)
    first = saver.get_tuple(CONFIG)
    assert first is not None
    first.checkpoint["channel_values"]["messages"][0].additional_kwargs["x"] = 1
    first.checkpoint["channel_values"]["messages"][0].content = "changed"
    second = saver.get_tuple(CONFIG)
    assert second is not None
    assert second.checkpoint["channel_values"]["messages"][0].additional_kwargs == {}
    assert second.checkpoint["channel_values"]["messages"][0].content == "m0"


def test_interrupts_resume_after_reopening(tmp_path: Path) -> None:
    def approve(state: State) -> dict[str, Any]:
        return {"messages": [AIMessage(str(interrupt("pay?")))]}

    builder = StateGraph(State)
    builder.add_node("approve", approve)
    builder.add_edge(START, "approve")
    with SqliteCheckpointer(tmp_path / "a.sqlite") as saver:
        found = builder.compile(checkpointer=saver).invoke(ask("pay"), CONFIG)
        assert found["__interrupt__"][0].value == "pay?"
    with SqliteCheckpointer(tmp_path / "a.sqlite") as saver:
        graph = builder.compile(checkpointer=saver)
        assert graph.get_state(CONFIG).interrupts[0].value == "pay?"
        assert texts(graph.invoke(Command(resume="yes"), CONFIG)) == ["pay", "yes"]


def test_subgraphs_keep_their_own_state(saver: SqliteCheckpointer) -> None:
    inner = StateGraph(State)
    inner.add_node("ask", lambda state: {"messages": [AIMessage(str(interrupt("inner?")))]})
    inner.add_edge(START, "ask")
    outer = StateGraph(State)
    outer.add_node("inner", inner.compile())
    outer.add_edge(START, "inner")
    graph = outer.compile(checkpointer=saver)
    graph.invoke(ask("go"), CONFIG)
    state = graph.get_state(CONFIG, subgraphs=True)
    assert texts(state.tasks[0].state.values) == ["go"]
    saver.copy_thread("t", "copy")
    saver.prune(["t"])
    assert texts(graph.invoke(Command(resume="done"), CONFIG)) == ["go", "done"]
    copied: Any = {"configurable": {"thread_id": "copy"}}
    assert texts(graph.invoke(Command(resume="too"), copied)) == ["go", "too"]


def _append(state: list[str], writes: Any) -> list[str]:
    return state + [item for write in writes for item in write]


class DeltaState(TypedDict):
    log: Annotated[list[str], DeltaChannel(_append, snapshot_frequency=5)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("turns", [1, 3, 5, 6, 13])
def test_delta_channels_survive_reading_pruning_and_copying(saver: SqliteCheckpointer, turns: int) -> None:
    def build_delta(checkpointer: Any) -> Any:
        builder = StateGraph(DeltaState)
        builder.add_node("add", lambda state: {"log": [f"out {len(state['log'])}"]})
        builder.add_edge(START, "add")
        return builder.compile(checkpointer=checkpointer)

    graph, oracle = build_delta(saver), build_delta(InMemorySaver())
    for number in range(turns):
        for each in (graph, oracle):
            each.invoke({"log": [f"in {number}"]}, CONFIG)
    expected = oracle.get_state(CONFIG).values
    assert graph.get_state(CONFIG).values == expected
    assert [s.values for s in graph.get_state_history(CONFIG)] == [s.values for s in oracle.get_state_history(CONFIG)]
    saver.copy_thread("t", "copy")
    saver.prune(["t", "copy"])
    assert graph.get_state(CONFIG).values == expected
    assert graph.get_state({"configurable": {"thread_id": "copy"}}).values == expected
    assert len(list(saver.list(CONFIG))) < turns * 3 or turns < 5
    graph.invoke({"log": ["later"]}, CONFIG)
    assert graph.get_state(CONFIG).values["log"][:-2] == expected["log"]
    assert saver.verify().is_intact


def test_send_arguments_and_long_dicts_come_back(saver: SqliteCheckpointer) -> None:
    many = [HumanMessage(f"m{number}", id=str(number)) for number in range(70)]
    value = {
        "sent": [Send("node", {"state": {"messages": many}})],
        "long": {number: {"text": "x" * 600, "n": number} for number in range(100)},
        "tuple": (1, (2, 3)),
        "set": {1, 2},
        "bytes": b"\x00" * 2000,
        "when": datetime(2026, 1, 1, tzinfo=UTC),
    }
    assert roundtrip(value) == JsonPlusSerializer().loads_typed(JsonPlusSerializer().dumps_typed(value))


def roundtrip(value: Any) -> Any:
    cache, serde = MessageCache(max_bytes=10_000_000), JsonPlusSerializer()
    encoder = ValueEncoder(serde, cache)
    root = encoder.encode(value)
    cache.clear()
    return ValueDecoder(serde, cache, encoder.node).decode(root)


_scalars = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary()
)
_messages = st.builds(HumanMessage, content=st.text(), id=st.none() | st.text(max_size=3)) | st.builds(
    ToolMessage, content=st.text(), tool_call_id=st.text(), artifact=_scalars
)
_values = st.recursive(
    _scalars | _messages,
    lambda inner: st.lists(inner, max_size=40) | st.dictionaries(st.text() | st.integers(0, 99), inner, max_size=40),
    max_leaves=60,
)


@given(_values)
@settings(max_examples=60)
def test_any_value_comes_back_as_from_langgraphs_serializer(value: Any) -> None:
    serde = JsonPlusSerializer()
    assert roundtrip(value) == serde.loads_typed(serde.dumps_typed(value))


def test_same_state_as_langgraphs_saver_after_edits_and_removals(saver: SqliteCheckpointer) -> None:
    ours, theirs = build(saver), build(InMemorySaver())
    for number in range(30):
        for graph in (ours, theirs):
            graph.invoke({"messages": [HumanMessage("q", id=f"q{number}")]}, CONFIG)
            if number % 7 == 3:
                graph.update_state(CONFIG, {"messages": [RemoveMessage(f"q{number - 2}")]})
            if number % 5 == 2:
                graph.update_state(CONFIG, {"messages": [HumanMessage("edited", id=f"q{number - 1}")]})
    assert texts(ours.get_state(CONFIG).values) == texts(theirs.get_state(CONFIG).values)
    assert [texts(s.values) for s in ours.get_state_history(CONFIG) if s.values] == [
        texts(s.values) for s in theirs.get_state_history(CONFIG) if s.values
    ]


def test_storage_grows_with_the_thread(saver: SqliteCheckpointer, tmp_path: Path) -> None:
    graph = build(saver)
    sizes = []
    for number in range(120):
        graph.invoke(ask("x" * 1000 + str(number)), CONFIG)
        if number in (59, 119):
            with saver.database.read() as connection:
                pages = connection.execute("PRAGMA page_count").fetchone()[0]
            sizes.append(pages * 4096)
    assert sizes[1] < 2.4 * sizes[0]
    assert sizes[1] < 2_500_000


def test_garbage_is_collected_and_bystanders_stay(saver: SqliteCheckpointer) -> None:
    graph = build(saver)
    other: Any = {"configurable": {"thread_id": "other"}}
    for number in range(5):
        graph.invoke(ask(f"q{number}"), CONFIG)
        graph.invoke(ask(f"o{number}"), other)
    before = graph.get_state(CONFIG).values
    saver.prune(["t"])
    report = saver.verify("t")
    assert (report.checkpoints, report.unused, report.is_intact) == (1, 0, True)
    assert graph.get_state(CONFIG).values == before
    saver.delete_thread("t")
    assert saver.get_tuple(CONFIG) is None
    assert saver.thread_ids() == ["other"]
    assert saver.verify().nodes == saver.verify("other").nodes
    assert texts(graph.get_state(other).values)[0] == "o0"


def test_prune_keeps_the_newest_and_the_young(saver: SqliteCheckpointer) -> None:
    graph = build(saver)
    for number in range(4):
        graph.invoke(ask(f"q{number}"), CONFIG)
    saver.prune(["t"], keep_last=5)
    assert len(list(saver.list(CONFIG))) == 5
    saver.prune(["t"], older_than=datetime.now(UTC) - timedelta(days=1))
    assert len(list(saver.list(CONFIG))) == 5
    for wrong in ({"strategy": "all"}, {"keep_last": 0}, {"older_than": datetime(2026, 1, 1)}):
        with pytest.raises(ConfigurationError):
            saver.prune(["t"], **wrong)


@pytest.mark.parametrize(
    "damage", ["UPDATE checkpoint_nodes SET value = CAST(value || x'00' AS BLOB)", "DELETE FROM checkpoint_nodes"]
)
def test_damage_is_found_and_never_read_as_something_else(saver: SqliteCheckpointer, damage: str) -> None:
    graph = build(saver)
    graph.invoke(ask("one"), CONFIG)
    with saver.database.write() as connection:
        connection.execute(f"{damage} WHERE kind = 0")
    report = saver.verify()
    assert not report.is_intact
    assert bool(report.damaged) != bool(report.missing)
    saver._messages.clear()
    with pytest.raises(CorruptionError):
        saver.get_tuple(CONFIG)


def test_strict_serializer_and_allowlist(tmp_path: Path) -> None:
    serde = JsonPlusSerializer(allowed_msgpack_modules=None)
    with SqliteCheckpointer(tmp_path / "a.sqlite", serde=serde) as saver:
        graph = build(saver)
        graph.invoke(ask("one"), CONFIG)
        assert texts(graph.get_state(CONFIG).values) == ["one", "answer 1"]
        clone = saver.with_allowlist([("somewhere", "Thing")])
        assert isinstance(clone, SqliteCheckpointer)
        assert clone.get_tuple(CONFIG) is not None


def test_a_langgraph_file_is_refused_and_untouched(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    with SqliteSaver.from_conn_string(str(path)) as old:
        build(old).invoke(ask("one"), CONFIG)
    with pytest.raises(ConfigurationError, match="threads import"):
        SqliteCheckpointer(path)
    with SqliteSaver.from_conn_string(str(path)) as old:
        assert texts(build(old).get_state(CONFIG).values) == ["one", "answer 1"]


def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    SqliteCheckpointer(tmp_path / "a.sqlite").close()
    connection = sqlite3.connect(tmp_path / "a.sqlite")
    connection.execute("UPDATE langmem_harness_schema SET version = 99 WHERE component = 'checkpoints'")
    connection.commit()
    connection.close()
    with pytest.raises(SchemaVersionError):
        SqliteCheckpointer(tmp_path / "a.sqlite")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailableError):
        SqliteCheckpointer(tmp_path)


def test_the_cache_may_be_off_or_tiny(tmp_path: Path) -> None:
    for size in (0, 5_000):
        with SqliteCheckpointer(tmp_path / f"{size}.sqlite", cache_bytes=size) as saver:
            graph = build(saver)
            for number in range(40):
                graph.invoke(ask(f"q{number}"), CONFIG)
            assert len(graph.get_state(CONFIG).values["messages"]) == 80
            assert saver._messages._bytes <= size
    with pytest.raises(ConfigurationError):
        SqliteCheckpointer(":memory:", cache_bytes=-1)


WRITER = """
    import sys
    sys.path.insert(0, {root!r})
    from tests.threads.test_checkpointer import build, ask
    from langmem_harness.threads import SqliteCheckpointer
    with SqliteCheckpointer({path!r}) as saver:
        graph = build(saver)
        for number in range({turns}):
            graph.invoke(ask(f"{{number}}"), {{"configurable": {{"thread_id": sys.argv[1]}}}})
            print(number, flush=True)
"""


def start_writer(path: Path, thread_id: str, turns: int) -> subprocess.Popen[str]:
    root = str(Path(__file__).parents[2])
    code = textwrap.dedent(WRITER).format(root=root, path=str(path), turns=turns)
    return subprocess.Popen([sys.executable, "-c", code, thread_id], stdout=subprocess.PIPE, text=True)


def test_two_processes_and_kill_nine(tmp_path: Path) -> None:
    path = tmp_path / "threads.sqlite"
    with SqliteCheckpointer(path) as saver:
        graph = build(saver)
        victim = start_writer(path, "b", 10_000)
        assert victim.stdout is not None
        victim.stdout.readline()
        for number in range(12):  # both write the file at once
            graph.invoke(ask(f"{number}"), {"configurable": {"thread_id": "a"}})
        for _ in range(4):
            victim.stdout.readline()
        os.kill(victim.pid, 9)
        victim.communicate()
        assert len(graph.get_state({"configurable": {"thread_id": "a"}}).values["messages"]) == 24
        survived: Any = {"configurable": {"thread_id": "b"}}
        assert len(graph.get_state(survived).values["messages"]) >= 9
        graph.invoke(ask("again"), survived)
        assert texts(graph.get_state(survived).values)[-2] == "again"
        assert saver.verify().is_intact


def test_a_shared_database_stays_open(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.sqlite")
    SqliteCheckpointer(database).close()
    with SqliteCheckpointer(database) as saver:
        build(saver).invoke(ask("one"), CONFIG)
    database.close()


_contents = st.text() | st.lists(st.text() | st.dictionaries(st.text(), st.text() | st.integers(0, 9)), max_size=3)
_plain_messages = st.one_of(
    st.builds(HumanMessage, content=_contents, id=st.text(min_size=1), additional_kwargs=st.just({"a": [1, {"b": 2}]})),
    st.builds(ToolMessage, content=_contents, id=st.text(min_size=1), tool_call_id=st.text(), artifact=_scalars),
    st.builds(
        AIMessage,
        content=_contents,
        id=st.text(min_size=1),
        name=st.none() | st.text(),
        tool_calls=st.lists(
            st.fixed_dictionaries({"name": st.text(), "args": st.dictionaries(st.text(), _scalars), "id": st.text()}),
            max_size=2,
        ),
        usage_metadata=st.none() | st.just({"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}),
        response_metadata=st.dictionaries(st.text(), st.text()),
    ),
)


@given(_plain_messages)
@settings(max_examples=80)
def test_messages_read_without_the_serializer_are_what_it_would_have_read(message: Any) -> None:
    serde, cache = JsonPlusSerializer(), MessageCache(max_bytes=10_000_000)
    node = cache.node_of(message, serde)
    expected = serde.loads_typed((node.type, node.value))
    for found in (cache.read_leaf(node, serde), cache.value_of(node.hash) or cache.read_leaf(node, serde)):
        assert type(found) is type(expected)
        assert found == expected
        assert found.__dict__ == expected.__dict__
        assert found.model_fields_set == expected.model_fields_set
        assert repr(found) == repr(expected)
        assert serde.dumps_typed(found) == serde.dumps_typed(expected)
        assert found.model_copy(deep=True) == expected
