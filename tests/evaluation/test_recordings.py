"""Recordings of every accepted format, and what real ones have wrong with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage, messages_to_dict

from langmem_harness.errors import RecordingError
from langmem_harness.evaluation.recordings import read_recordings
from langmem_harness.window.rules import check_request

ROOT = Path(__file__).parents[2]
SHARED_DATA = ROOT.parent / "shared" / "data"
USER = {"role": "user", "content": "How deep is the lake?"}
ANSWER = {"role": "assistant", "content": "Ninety metres."}
PLAIN = [{"role": "system", "content": "Be brief."}, USER, ANSWER]


def call(*ids: str | None, arguments: Any = "{}") -> dict[str, Any]:
    calls = [{"id": call_id, "function": {"name": "sound", "arguments": arguments}} for call_id in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(call_id: str | None, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def write(folder: Path, value: Any) -> Path:
    path = folder / "recording.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def only(folder: Path, messages: list[Any]) -> Any:
    (conversation,) = read_recordings(write(folder, messages))
    assert check_request(conversation.messages) == []
    return conversation


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (PLAIN, 1),
        ({"messages": PLAIN}, 1),
        ([{"task_id": 7, "reward": 1.0, "info": {}, "traj": PLAIN}] * 2, 2),
        ({"trajectory": [{"action": "ls"}], "history": [{**m, "agent": "main"} for m in PLAIN]}, 1),
        ("\n".join(json.dumps(message) for message in PLAIN), 1),
        ("\n".join([json.dumps({"messages": PLAIN}), "", json.dumps(PLAIN)]), 2),
        ("\ufeff" + json.dumps(PLAIN), 1),
        (
            json.dumps([USER, {"role": "assistant", "content": "a\u2028b"}], ensure_ascii=False)
            + "\n"
            + json.dumps(PLAIN),
            2,
        ),
        (messages_to_dict([HumanMessage("How deep is the lake?"), AIMessage("Ninety metres.")]), 1),
        ([[{**m, "content": [{"type": "text", "text": m["content"]}]} for m in PLAIN]], 1),
    ],
)
def test_formats_are_detected(tmp_path: Path, value: Any, count: int) -> None:
    conversations = read_recordings(write(tmp_path, value))
    assert len(conversations) == count
    assert conversations[-1].messages[0].text == USER["content"]
    assert conversations[-1].system_prompt in ("Be brief.", None)


@pytest.mark.parametrize(
    ("value", "position", "reason"),
    [
        ("", "file", "empty"),
        ("[]", "file", "no conversation"),
        ("not json", "line 1", "not JSON"),
        (json.dumps(PLAIN) + "\n{", "line 2", "not JSON"),
        ("[" * 100_000, "file", "nested too deeply"),
        ("9" * 5000, "file", "too long"),
        ("3", "conversation 1", "a number"),
        ({"dialog": []}, "conversation 1", "none of the lists"),
        ([{"messages": PLAIN}, None], "conversation 2", "null"),
        ([USER, 5], "message 2", "a number"),
        ([USER, {"role": "wizard", "content": "x"}], "message 2", "'wizard'"),
        ([USER, {"role": "assistant", "content": 5}], "message 2", "content"),
        ([USER, {"role": "assistant", "tool_calls": [{"id": "a"}]}], "message 2", "function name"),
        ([{"type": "nonsense", "data": {}}], "message 1", "LangChain"),
        ([ANSWER], "conversation 1", "no user message"),
    ],
)
def test_a_bad_file_is_told_by_file_position_and_reason(tmp_path: Path, value: Any, position: str, reason: str) -> None:
    path = write(tmp_path, value)
    with pytest.raises(RecordingError) as raised:
        read_recordings(path)
    assert raised.value.source == str(path)
    assert position in raised.value.position
    assert reason in raised.value.reason


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    binary = tmp_path / "binary.json"
    binary.write_bytes(b"[\xff\xfe]")
    for path in (binary, tmp_path, tmp_path / "missing.json"):
        with pytest.raises(RecordingError):
            read_recordings(path)


def test_parallel_calls_get_their_own_results(tmp_path: Path) -> None:
    messages = only(tmp_path, [USER, call("a", "b"), result("b", "two"), result("a", "one"), ANSWER]).messages
    assert [(m.tool_call_id, m.text) for m in messages if isinstance(m, ToolMessage)] == [("a", "one"), ("b", "two")]


def test_missing_and_repeated_ids_are_paired_in_order(tmp_path: Path) -> None:
    recorded = [USER, call(None, None), result(None, "1"), result(None, "2"), call("x"), result("x", "3")]
    conversation = only(tmp_path, [*recorded, call("x"), result("x", "4"), ANSWER])
    results = [m for m in conversation.messages if isinstance(m, ToolMessage)]
    assert [m.text for m in results] == ["1", "2", "3", "4"]
    assert len({m.tool_call_id for m in results}) == 4
    assert conversation.notes == {"missing or repeated call ids, renamed": 3}


def test_results_and_calls_without_a_partner(tmp_path: Path) -> None:
    recorded = [USER, result("lost", "?"), call("a", "b"), result("a", "one"), ANSWER, USER, call("last")]
    conversation = only(tmp_path, recorded)
    assert conversation.notes == {
        "results without a call, left out": 1,
        "calls without a result": 1,
        "calls at the end without results, left out": 1,
    }
    assert [m.status for m in conversation.messages if isinstance(m, ToolMessage)] == ["success", "error"]


def test_the_id_of_a_recording_is_safe_on_a_terminal(tmp_path: Path) -> None:
    (conversation,) = read_recordings(write(tmp_path, [{"id": "a\x1b[2J\ud800" + "b" * 99, "messages": PLAIN}]))
    assert conversation.name.startswith("conversation 1 (a?[2J?b")
    assert len(conversation.name) < 80


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        ('{"depth": 3}', {"depth": 3}),
        ({"depth": 3}, {"depth": 3}),
        ("", {}),
        (None, {}),
        ("{broken", {"unreadable_arguments": "{broken"}),
        ("[1]", {"arguments": [1]}),
        (4, {"arguments": 4}),
        ("9" * 5000, {"unreadable_arguments": "9" * 5000}),
    ],
)
def test_arguments_of_every_kind(tmp_path: Path, arguments: Any, read: dict[str, Any]) -> None:
    conversation = only(tmp_path, [USER, call("a", arguments=arguments), result("a", "ok"), ANSWER])
    assert conversation.messages[1].tool_calls[0]["args"] == read


def test_old_style_functions_and_runs_of_one_role(tmp_path: Path) -> None:
    legacy = {"role": "assistant", "content": None, "function_call": {"name": "sound", "arguments": "{}"}}
    answers = [legacy, {"role": "function", "name": "sound", "content": "90"}, ANSWER, ANSWER]
    conversation = only(tmp_path, [USER, USER, *answers, {"role": "system", "content": "Now in feet."}, ANSWER])
    assert [m.type for m in conversation.messages] == ["human", "human", "ai", "tool", "ai", "human", "ai"]
    assert conversation.messages[4].text == "Ninety metres.\n\nNinety metres."
    assert conversation.notes["system messages in the middle, played as user messages"] == 1


@pytest.mark.parametrize("folder", ["tau_bench", "swe_agent"])
def test_real_recordings_load(folder: str) -> None:
    files = sorted(path for path in (SHARED_DATA / folder).rglob("*") if path.suffix in (".json", ".jsonl", ".traj"))
    if not files:
        pytest.skip(f"the real recordings are not here: {SHARED_DATA / folder}")
    for path in files:
        for conversation in read_recordings(path):
            assert check_request(conversation.messages) == []
