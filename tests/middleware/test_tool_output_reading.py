"""`read_tool_output`: from a handle to the raw text, for the thread and owner it belongs to, and for nobody else."""

from __future__ import annotations

import time
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite import SqliteStore

from langmem_harness.memory.scope import MemoryContext
from langmem_harness.middleware.raw_outputs import RawOutput
from langmem_harness.middleware.read_output import LARGEST_PAGE, PatternError, find_lines, read_page
from tests.conftest import Face
from tests.middleware.tool_output_kit import LOG, Run, call, handle_of, inner, read_back, tool_returning


def raw(text: str, *, trusted: bool = True) -> RawOutput:
    return RawOutput(text=text, tool="search", trusted=trusted)


def test_pages_put_together_are_the_raw_text(face: Face) -> None:
    offsets = range(0, len(LOG), 9_000)
    run = Run([tool_returning(LOG)], [[call("search")], *(read_back(offset=offset, limit=9_000) for offset in offsets)])
    _, *pages = run(face)
    assert "".join(inner(page.content) for page in pages) == LOG
    assert pages[0].content.startswith(f"Characters 0 to 9000 of {len(LOG)}; next offset: 9000.")
    assert "this is the end" in pages[-1].content
    assert not any(page.additional_kwargs for page in pages)  # never shortened again


def test_a_page_is_bounded_and_never_out_of_range() -> None:
    text = "abc" * 10_000
    assert len(read_page(raw(text), offset=0, limit=10**9).body) == LARGEST_PAGE
    assert read_page(raw(text), offset=10**9, limit=10).body == ""
    assert read_page(raw(""), offset=0, limit=10).heading == "Characters 0 to 0 of 0; this is the end."


def test_lines_around_a_match() -> None:
    text = "\n".join(f"line {i}" for i in range(1000))
    page = find_lines(raw(text), r"line 500$", offset=0, limit=4_000)
    assert page.heading.startswith("1 matching line with context; no more")
    assert page.body == f"[offset {text.index('line 498')}]\nline 498\nline 499\nline 500\nline 501\nline 502"


def test_matches_go_on_at_the_next_offset_until_all_are_seen() -> None:
    text = "\n".join(f"row {i} {'ERROR' if i % 10 == 0 else 'ok'}" for i in range(2000))
    seen: set[str] = set()
    offset: int | None = 0
    for _ in range(200):
        page = find_lines(raw(text), "ERROR", offset=offset or 0, limit=500)
        seen.update(line for line in page.body.splitlines() if "ERROR" in line)
        if "more from offset" not in page.heading:
            break
        offset = int(page.heading.split("more from offset ")[1].rstrip("."))
    assert seen == {line for line in text.splitlines() if "ERROR" in line}


def test_a_match_in_a_very_long_line_is_shown_around_it() -> None:
    text = "a" * 500_000 + "needle" + "b" * 500_000
    page = find_lines(raw(text), "needle", offset=0, limit=4_000)
    assert "needle" in page.body
    assert len(page.body) < 500


@pytest.mark.parametrize(
    "pattern", ["(", "(?=a)", r"(a)\1", "a{2000}", "((((a{99}){99}){99}){99})", "x" * 501, "\ud800"]
)
def test_a_pattern_that_cannot_be_used_is_explained(pattern: str) -> None:
    with pytest.raises(PatternError, match="pattern"):
        find_lines(raw("aaa"), pattern, offset=0, limit=10)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+b", "(.*)*=(.*)*", "(x+x+)+y", "(?:.{100}){9}z"])
def test_no_pattern_takes_long(pattern: str) -> None:
    start = time.perf_counter()
    find_lines(raw(("a" * 2_000 + "!\n") * 200), pattern, offset=0, limit=100)
    assert time.perf_counter() - start < 5


def test_wrong_handles_all_get_the_same_answer(face: Face) -> None:
    store = InMemoryStore()
    owner = {"context_schema": MemoryContext, "store": store}
    ada = Run([tool_returning(LOG)], [[call("search")]], **owner)
    handle = handle_of(ada(face, thread_id="shared", context=MemoryContext(user_id="ada"))[0])

    def read(key: Any, *, thread_id: str = "shared", user: str = "ada", tenant: str = "default") -> ToolMessage:
        run = Run([], [[call("read_tool_output", "r", handle=key)]], **owner)
        return run(face, thread_id=thread_id, context=MemoryContext(user_id=user, tenant=tenant))[0]

    assert read(handle).status == "success"
    assert read(f' "{handle.upper()}" ').status == "success"
    foreign = [read(handle, thread_id="other"), read(handle, user="bob"), read(handle, tenant="acme")]
    wrong = [
        read(key) for key in ("out_" + "a" * 12, "", "../../etc/passwd", "out_" + "b" * 5000, 17, "' OR 1=1", "\x00")
    ]
    answers = {(message.content, message.status) for message in [*foreign, *wrong]}
    assert len(answers) == 1
    ((text, status),) = answers
    assert status == "error"
    assert "No stored tool output has this handle" in text


def test_the_model_cannot_name_a_scope() -> None:
    tool = Run([], []).middleware.tools[0]
    assert set(tool.tool_call_schema.model_json_schema()["properties"]) == {"handle", "offset", "limit", "pattern"}


def test_bad_numbers_are_an_error_result_not_a_crash(face: Face) -> None:
    run = Run(
        [tool_returning(LOG)], [[call("search")], read_back(offset=-1), read_back(limit=0), read_back(pattern="(")]
    )
    assert [message.status for message in run(face)] == ["success", "error", "error", "error"]


def test_after_a_restart_the_handle_still_works(face: Face, tmp_path: Any) -> None:
    def turn(rounds: Any) -> list[ToolMessage]:
        if face.name == "async":
            return []
        with SqliteStore.from_conn_string(str(tmp_path / "store.sqlite")) as store:
            store.setup()
            return Run([tool_returning(LOG)], rounds, store=store)(face)

    first = turn([[call("search")]])
    if first:
        second = turn([[call("read_tool_output", "r", handle=handle_of(first[0]), pattern="step 599")]])
        assert "step 599" in second[0].content


def test_forks_of_a_thread_read_what_the_thread_stored(face: Face) -> None:
    run = Run([tool_returning(LOG)], [[call("search")], read_back(pattern="step 42 ")])
    run.agent.checkpointer = InMemorySaver()
    assert "step 42 " in run(face)[1].content
