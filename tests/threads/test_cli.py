"""The ``threads`` commands, run as a user would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from typer.testing import CliRunner

from langmem_harness import open_memory
from langmem_harness.cli.threads import app
from langmem_harness.errors import IdentityError, NotFoundError, StorageUnavailableError, TurnConflictError
from langmem_harness.layout import summaries_namespace
from langmem_harness.memory import LongTermMemory, MemoryScope
from langmem_harness.testing import DeterministicEmbeddings
from langmem_harness.threads import SqliteCheckpointer, ThreadLog
from langmem_harness.threads.events import messages_body
from tests.unprivileged import run_unprivileged


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    folder = tmp_path / "memory"
    folder.mkdir()
    with SqliteCheckpointer(folder / "threads.sqlite") as saver:
        log = ThreadLog(saver.database)
        build(saver).invoke({"messages": [HumanMessage("hi")]}, {"configurable": {"thread_id": "both"}})
        build(saver).invoke({"messages": [HumanMessage("only saved")]}, {"configurable": {"thread_id": "saved"}})
        log.append_event("both", "1", "user", messages_body([HumanMessage("hi")]))
        log.append_event("both", "1", "done", {})
    return folder


def build(saver: Any) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("answer", lambda state: {"messages": [AIMessage("hello")]})
    builder.add_edge(START, "answer")
    return builder.compile(checkpointer=saver)


def run(*arguments: object, code: int = 0, **options: Any) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], **options)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout


def test_list_and_show(memory: Path) -> None:
    rows = json.loads(run("list", "--memory", memory, "--json"))
    assert [(row["thread_id"], row["checkpoints"], row["turns"], row["answered"]) for row in rows] == [
        ("both", 3, 1, 1),
        ("saved", 3, 0, 0),
    ]
    assert "both" in run("list", "--memory", memory)
    assert run("show", "both", "--memory", memory) == "human: hi\n"
    assert run("show", "saved", "--memory", memory / "threads.sqlite") == "human: only saved\nai: hello\n"
    assert json.loads(run("show", "both", "--memory", memory, "--json"))["messages"][0]["content"] == "hi"
    with pytest.raises(NotFoundError):
        run("show", "nobody", "--memory", memory)
    with pytest.raises(StorageUnavailableError, match="--memory"):
        run("list", "--memory", memory / "elsewhere")
    for command in ("show", "verify", "erase"):
        with pytest.raises(IdentityError, match="lone surrogate"):
            run(command, "\udcff", "--memory", memory)


def test_verify(memory: Path) -> None:
    assert json.loads(run("verify", "--memory", memory, "--json"))["intact"]
    assert "0 damaged" in run("verify", "both", "--memory", memory)
    with SqliteCheckpointer(memory / "threads.sqlite") as saver, saver.database.write() as connection:
        connection.execute("DELETE FROM checkpoint_nodes WHERE kind = 0")
        connection.execute("UPDATE thread_events SET body = '{}' WHERE seq = 1")
    assert "1 broken" in run("verify", "--memory", memory, code=1)


def test_archive_erase_restore(memory: Path, tmp_path: Path) -> None:
    file = tmp_path / "both.jsonl"
    run("archive", "both", file, "--memory", memory)
    with pytest.raises(StorageUnavailableError, match="--force"):
        run("archive", "both", file, "--memory", memory)
    run("archive", "both", file, "--memory", memory, "--force")
    assert "nothing to do" in run("restore", file, "--memory", memory)
    with pytest.raises(NotFoundError, match="no thread 'bth'"):
        run("erase", "bth", "--memory", memory, "--yes")
    run("erase", "both", "--memory", memory, input="n\n", code=1)
    receipt = json.loads(run("erase", "both", "--memory", memory, "--secure", "--yes"))
    assert receipt["counts"]["checkpoints"] == 3
    assert receipt["complete"]
    assert [row["thread_id"] for row in json.loads(run("list", "--memory", memory, "--json"))] == ["saved"]
    assert "restored" in run("restore", file, "--memory", tmp_path / "other")
    assert run("show", "both", "--memory", tmp_path / "other") == "human: hi\n"
    with SqliteCheckpointer(tmp_path / "other" / "threads.sqlite") as saver:
        build(saver).invoke({"messages": [HumanMessage("on")]}, {"configurable": {"thread_id": "both"}})
    with pytest.raises(TurnConflictError, match="gone on"):
        run("restore", file, "--memory", tmp_path / "other")


def test_stored_text_steers_no_terminal(memory: Path) -> None:
    hostile = "\x1b]0;title\x07\u202eevil[red]"
    with SqliteCheckpointer(memory / "threads.sqlite") as saver:
        build(saver).invoke({"messages": [HumanMessage(hostile)]}, {"configurable": {"thread_id": hostile}})
        ThreadLog(saver.database).append_event(hostile, "1", "note", {})
        with saver.database.write() as connection:
            connection.execute("UPDATE thread_events SET body = '{\"a\": 1}' WHERE thread_id = ?", (hostile,))
    for command, code in (("list", 0), ("show", 0), ("verify", 1)):
        names = [hostile] if command == "show" else []
        out = run(command, *names, "--memory", memory, code=code)
        assert not set(out) & set("\x1b\x07\u202e"), command
        assert "evil[red]" in out or command == "list"  # a narrow table breaks the line anywhere


def test_erase_a_user(memory: Path) -> None:
    with SqliteCheckpointer(memory / "threads.sqlite") as saver:
        for user, thread_id in (("ada", "ada's"), ("bob", "bob's"), ("ada", "shared"), ("bob", "shared")):
            config: Any = {"configurable": {"thread_id": thread_id, "user_id": user}}
            build(saver).invoke({"messages": [HumanMessage("hi")]}, config)
    run("erase", "--memory", memory, code=2)
    run("erase", "both", "--user", "ada", "--memory", memory, code=2)
    assert "1 threads" in run("erase", "--user", "ada", "--memory", memory, input="n\n", code=1)
    receipt = json.loads(run("erase", "--user", "ada", "--memory", memory, "--yes", code=1))
    assert receipt["remaining"] == {"shared_threads": 1}
    assert receipt["unattributed_threads"] == 2
    assert json.loads(run("erase", "--user", "ada", "--tenant", "acme", "--memory", memory, "--yes"))["counts"] == {}
    threads = [row["thread_id"] for row in json.loads(run("list", "--memory", memory, "--json"))]
    assert threads == ["bob's", "both", "saved", "shared"]


READING = """
import json, os, sys
from pathlib import Path
from typer.testing import CliRunner
from langmem_harness import open_memory
from langmem_harness.cli.main import app
from langmem_harness.errors import StorageUnavailableError
from langmem_harness.testing import DeterministicEmbeddings

folder, out = Path(sys.argv[1]), Path(sys.argv[2])
known = sorted(os.listdir(folder))

def run(line):
    words = [{"FOLDER": str(folder), "ALONE": str(folder / "alone.sqlite")}.get(word, word) for word in line.split()]
    return CliRunner().invoke(app, words)

for line in (
    "threads list --memory FOLDER",
    "threads show both --memory FOLDER",
    "threads verify --memory FOLDER",
    f"threads archive both {out}/both.jsonl --memory FOLDER",
    "threads list --memory ALONE",
    "threads show t --memory ALONE",
    f"threads archive t {out}/t.jsonl --memory ALONE",
    "memories list --memory FOLDER --user ada",
    "memories search tea --memory FOLDER --user ada",
    f"memories export {out}/ada.jsonl --memory FOLDER --user ada",
    "store stats FOLDER",
    "store verify FOLDER",
):
    done = run(line)
    assert done.exit_code == 0, (line, done.output, done.exception)
for line in (
    "threads erase both --yes --memory FOLDER",
    "threads erase --user ada --yes --memory FOLDER",
    f"threads restore {out}/both.jsonl --memory FOLDER",
    "memories forget --all --yes --memory FOLDER --user ada",
    "store vacuum FOLDER",
):
    done = run(line)
    assert done.exit_code, line
    assert "read-only" in f"{done.exception} {done.output}", (line, done.output, done.exception)
with open_memory(folder, embeddings=DeterministicEmbeddings()) as memory:
    (found,) = memory.store.search(("notes",), query="green tea")
    assert found.retrieval == "hybrid", found
    assert memory.checkpointer.get_tuple({"configurable": {"thread_id": "both"}}) is not None
    try:
        memory.store.put(("notes",), "k", {"text": "new"})
    except StorageUnavailableError:
        print("refused")
assert sorted(os.listdir(folder)) == known
"""


def test_the_threads_file_stands_for_its_folder_when_a_thread_is_erased(memory: Path) -> None:
    with open_memory(memory) as opened:
        opened.store.put(summaries_namespace("both"), "k", {"text": "said"})
    receipt = json.loads(run("erase", "both", "--memory", memory / "threads.sqlite", "--yes"))
    assert receipt["counts"]["summaries"] == 1


def test_a_folder_that_cannot_be_written_is_shown_and_left_as_it_is(memory: Path, tmp_path: Path) -> None:
    with open_memory(memory, embeddings=DeterministicEmbeddings()) as opened:
        LongTermMemory(opened.store).upsert(MemoryScope(user="ada"), "Ada likes green tea.", explicit=True)
        opened.store.put(("notes",), "tea", {"text": "green tea"})
    with SqliteCheckpointer(memory / "alone.sqlite") as saver:  # a file that never had a log
        build(saver).invoke({"messages": [HumanMessage("hi")]}, {"configurable": {"thread_id": "t"}})
    for file in memory.iterdir():
        file.chmod(0o444)
    memory.chmod(0o555)
    (tmp_path / "out").mkdir()
    try:
        assert run_unprivileged(READING, memory, tmp_path / "out") == "refused\n"
    finally:
        memory.chmod(0o755)


def test_import(tmp_path: Path) -> None:
    with SqliteSaver.from_conn_string(str(tmp_path / "old.sqlite")) as old:
        build(old).invoke({"messages": [HumanMessage("hi")]}, {"configurable": {"thread_id": "t"}})
    result = CliRunner().invoke(app, ["import", str(tmp_path / "old.sqlite"), "--memory", str(tmp_path / "new")])
    assert result.stdout.startswith("1 threads, 3 checkpoints")
    assert result.stderr == ""  # no progress bar where nobody looks
    assert run("show", "t", "--memory", tmp_path / "new") == "human: hi\nai: hello\n"
