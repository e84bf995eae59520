"""The thread log: once, in order, copies, verifiable, many writers."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langmem_harness.errors import IdentityError, NotFoundError, RecordError, TurnConflictError
from langmem_harness.threads import SqliteCheckpointer, ThreadLog, TurnEvent
from langmem_harness.threads.events import messages_body


@pytest.fixture
def log(tmp_path: Path) -> Iterator[ThreadLog]:
    with ThreadLog(tmp_path / "threads.sqlite") as opened:
        yield opened


def test_an_entry_is_appended_once(log: ThreadLog, face: Any) -> None:
    first = face(log, "append_event", "t", "1", "user", {"text": "hi"})
    assert face(log, "append_event", "t", "1", "user", {"text": "hi"}) == first
    with pytest.raises(TurnConflictError, match="turn '1'") as caught:
        face(log, "append_event", "t", "1", "user", {"text": "other"})
    assert "other" not in str(caught.value).replace("another", "").replace("for other content", "")
    assert [event.seq for event in face(log, "events", "t")] == [1]
    assert face(log, "events", "unknown") == []
    assert face(log, "verify", "t").is_intact
    assert face(log, "verify", "unknown").is_intact


def test_readers_get_copies(log: ThreadLog) -> None:
    body = {"list": [1]}
    event = log.append_event("t", "1", "note", body)
    body["list"].append(2)
    event.body["list"].append(3)
    assert log.events("t")[0].body == {"list": [1]}
    log.append_event("t", "1", "user", messages_body([HumanMessage("hi", id="h")]))
    log.messages("t")[0].content = "changed"
    assert log.messages("t")[0].content == "hi"


def test_messages_follow_supersession(log: ThreadLog) -> None:
    log.append_event("t", "1", "user", messages_body([HumanMessage("hi")]))
    second = log.append_event("t", "1", "assistant:0", messages_body([AIMessage("wrong")]))
    log.append_event("t", "2", "user", messages_body([HumanMessage("and?")]))
    corrected = log.append_event("t", "1", "correction:1", messages_body([AIMessage("right")]), supersedes=second.seq)
    assert [message.text for message in log.messages("t")] == ["hi", "right", "and?"]
    log.append_event("t", "1", "correction:2", messages_body([AIMessage("best")]), supersedes=corrected.seq)
    assert [message.text for message in log.messages("t")] == ["hi", "best", "and?"]
    assert len(log.events("t")) == 5
    with pytest.raises(NotFoundError):
        log.append_event("t", "3", "x", {}, supersedes=99)


def test_turns_and_answers(log: ThreadLog, face: Any) -> None:
    log.append_event("t", "1", "user", messages_body([HumanMessage("hi")]))
    log.append_event("t", "2", "user", messages_body([HumanMessage("ho")]))
    log.append_event("t", "1", "assistant:0", messages_body([AIMessage("hello")]))
    assert face(log, "answer", "t", "1") is None
    log.append_event("t", "1", "done", {})
    assert [(turn.turn_id, turn.is_done, turn.events) for turn in face(log, "turns", "t")] == [
        ("1", True, 3),
        ("2", False, 1),
    ]
    answer = face(log, "answer", "t", "1")
    assert answer is not None
    assert answer.text == "hello"


@pytest.mark.parametrize(
    "text", ["", "NUL \x00 inside", "lone \ud800", "日本語 👩‍👩‍👧", "a\r\nb", "'; DROP TABLE x; --"]
)
def test_any_text_comes_back(log: ThreadLog, text: str) -> None:
    log.append_event("t", "1", "tool:c", messages_body([ToolMessage(text, tool_call_id="c")]))
    assert log.messages("t")[0].content == text
    event = log.events("t")[0]
    assert TurnEvent.from_dict({**event.to_dict(), "later": 1}) == event
    assert log.verify("t").is_intact


@pytest.mark.parametrize("bad", ["", "  ", None, 7, "\ud800"])
def test_bad_ids_and_bodies_are_refused(log: ThreadLog, bad: Any) -> None:
    for ids in ((bad, "1", "k"), ("t", bad, "k"), ("t", "1", bad)):
        with pytest.raises(IdentityError):
            log.append_event(*ids, {})
    with pytest.raises(RecordError):
        log.append_event("t", "1", "k", {"x": object()})
    with pytest.raises(RecordError):
        TurnEvent.from_dict({"seq": 1})
    assert log.events("t") == []


@pytest.mark.parametrize(
    ("damage", "damaged", "missing"),
    [
        ("UPDATE thread_events SET body = '{\"n\":9}' WHERE seq = 2", (2,), ()),
        ("UPDATE thread_events SET body = 'not json' WHERE seq = 2", (2,), ()),
        ("UPDATE thread_events SET turn_id = 'x' WHERE seq = 3", (3,), ()),
        ("DELETE FROM thread_events WHERE seq = 2", (3,), (2,)),
        ("DELETE FROM thread_events WHERE seq = 4", (), (4,)),
        ("DELETE FROM thread_events", (), (1, 2, 3, 4)),
    ],
)
def test_tampering_shows(log: ThreadLog, damage: str, damaged: tuple[int, ...], missing: tuple[int, ...]) -> None:
    for number in range(4):
        log.append_event("t", "1", f"k{number}", {"n": number})
    with log.database.write() as connection:
        connection.execute(damage)
    report = log.verify("t")
    assert (report.damaged, report.missing) == (damaged, missing)
    assert not report.is_intact


def test_many_threads_write_in_strict_order(log: ThreadLog) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: log.append_event("t", f"turn {n % 50}", "note", {"n": n % 50}), range(200)))
    events = log.events("t")
    assert [event.seq for event in events] == list(range(1, 51))
    assert log.verify("t").is_intact


def test_two_processes_write_one_thread(tmp_path: Path) -> None:
    path = tmp_path / "threads.sqlite"
    code = textwrap.dedent(f"""
        from langmem_harness.threads import ThreadLog
        with ThreadLog({str(path)!r}) as log:
            print("ready", flush=True)
            for n in range(60):
                log.append_event("t", f"theirs {{n}}", "note", {{}})
                log.append_event("t", f"both {{n}}", "note", {{}})
    """)
    with ThreadLog(path) as log:
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout is not None
            other.stdout.readline()
            for n in range(60):
                log.append_event("t", f"ours {n}", "note", {})
                log.append_event("t", f"both {n}", "note", {})
        assert other.returncode == 0
        assert [event.seq for event in log.events("t")] == list(range(1, 181))
        assert log.verify("t").is_intact


def test_log_and_checkpointer_share_one_file(tmp_path: Path) -> None:
    with SqliteCheckpointer(tmp_path / "threads.sqlite") as saver:
        log = ThreadLog(saver.database)
        log.append_event("t", "1", "note", {})
        assert log.thread_ids() == ["t"]
        assert log.delete_thread("t") == 1
        assert log.verify("t").is_intact
