"""The command line as a shell sees it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from langmem_harness import __version__
from langmem_harness.cli import main
from langmem_harness.cli.main import app
from langmem_harness.cli.replay import parse_limit, parse_output_trigger
from langmem_harness.errors import ConfigurationError

RECORDING = Path(__file__).parent.parent.parent / "examples" / "recorded_conversation.json"
DATA = Path(__file__).parent.parent.parent.parent / "shared" / "data"
POLICIES = [("messages:12", "messages:6"), ("tokens:2000", "tokens:800")]


def run(*arguments: str) -> Any:
    return CliRunner(env={"COLUMNS": "160"}).invoke(app, list(arguments))


def shell(*arguments: str, code: str = "pass") -> subprocess.CompletedProcess[str]:
    script = f"{code}; import sys; sys.argv[0] = 'langmem-harness'; from langmem_harness.cli import main; main()"
    return subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False)


def test_version_and_help() -> None:
    assert run("--version").stdout == f"langmem-harness {__version__}\n"
    shown = run("--help").stdout
    for command in ("replay", "simulate", "store", "threads", "memories"):
        assert command in shown
    assert run().exit_code == 2


@pytest.mark.parametrize(("trigger", "keep"), POLICIES)
def test_replay_gives_the_same_numbers_as_table_and_as_json(trigger: str, keep: str) -> None:
    policy = ("--trigger", trigger, "--keep", keep)
    table = run("replay", str(RECORDING), *policy)
    assert table.exit_code == 0
    report = json.loads(run("replay", str(RECORDING), *policy, "--json").stdout)
    totals = report["totals"]
    assert totals["calls"] == len(report["conversations"][0]["calls"]) == 19
    assert f"{totals['input_tokens']:,}" in table.stdout
    assert f"{totals['input_tokens_without']:,}" in table.stdout
    assert totals["input_tokens"] < totals["input_tokens_without"]
    assert totals["violations"] == 0
    assert totals["first_human_in_every_request"]
    assert totals["newest_human_in_every_request"]
    assert totals["cuts"] >= 1


def test_without_trigger_nothing_is_left_out(tmp_path: Path) -> None:
    untouched = ("--tool-outputs", "none", "--memory", str(tmp_path / "m"), "--json")
    totals = json.loads(run("replay", str(RECORDING), *untouched).stdout)["totals"]
    assert totals["input_tokens"] == totals["input_tokens_without"]
    assert totals["prefix_breaks"] == totals["cuts"] == 0
    assert (tmp_path / "m" / "threads.sqlite").stat().st_size > 0


def recorded_exports(tmp_path: Path) -> Path:
    """Two turns, each with a large tool result, and one small."""
    rows = "\n".join(f"row {number}: an item of the export, {number * 7} pieces" for number in range(900))
    messages: list[Any] = []
    for number, content in enumerate((rows, "nothing new", rows.upper())):
        call = {"id": f"c{number}", "function": {"name": "export", "arguments": json.dumps({"page": number})}}
        messages += [
            {"role": "user", "content": f"export page {number}"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": content},
            {"role": "assistant", "content": f"page {number} is there"},
        ]
    file = tmp_path / "exports.json"
    file.write_text(json.dumps(messages))
    return file


def test_replay_shows_tool_outputs_offloaded_and_turns_replayed(tmp_path: Path) -> None:
    file = recorded_exports(tmp_path)
    report = json.loads(run("replay", str(file), "--json").stdout)
    totals, conversation = report["totals"], report["conversations"][0]
    assert (totals["turns"], totals["turns_replayed"], totals["calls"]) == (3, 3, 6)
    assert totals["tool_outputs_offloaded"] == len(conversation["tool_outputs"]) == 2
    assert [output["call"] for output in conversation["tool_outputs"]] == [2, 6]
    for output in conversation["tool_outputs"]:
        assert output["tool"] == "export"
        assert output["handle"].startswith("out_")
        assert output["token_count_before"] > 5_000 > 600 > output["token_count_after"] > 0
    saved = totals["tool_output_tokens_before"] - totals["tool_output_tokens_after"]
    assert totals["input_tokens_without"] - totals["input_tokens"] > saved
    assert totals["violations"] == totals["prefix_breaks"] == 0
    shown = run("replay", str(file))
    assert shown.exit_code == 0
    assert "Tool outputs offloaded" in shown.stdout
    assert f"2, {totals['tool_output_tokens_before']:,} tokens shortened to" in shown.stdout
    assert shown.stdout.count("out_") == 2
    assert "turns, of them replayed from the log" in shown.stdout


def test_replay_without_offloading_and_retries(tmp_path: Path) -> None:
    options = ("--tool-outputs", "none", "--no-retry", "--json")
    totals = json.loads(run("replay", str(recorded_exports(tmp_path)), *options).stdout)["totals"]
    assert (totals["tool_outputs_offloaded"], totals["turns_replayed"]) == (0, 0)
    assert totals["input_tokens"] == totals["input_tokens_without"]


@pytest.mark.parametrize("text", ["", "tokens", "tokens:0", "tokens:-1", "bytes:x", "messages:3", "fraction:2"])
def test_a_tool_output_limit_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--tool-outputs"):
        parse_output_trigger(text)
    assert parse_output_trigger("none") is None
    assert parse_output_trigger("bytes:8_000") == ("bytes", 8000)


def test_many_conversations_get_a_line_each_and_limit_cuts(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    file = tmp_path / "many.jsonl"
    file.write_text("\n".join(json.dumps({"id": f"n{number}", "messages": messages}) for number in range(5)))
    assert "conversation 5 (n4)" in run("replay", str(file)).stdout
    report = json.loads(run("replay", str(file), "--limit", "2", "--json").stdout)
    assert report["totals"]["conversations"] == 2


def test_errors_are_one_line_and_exit_code_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text(json.dumps([{"role": "user", "content": "hi"}, {"role": "wizard", "content": "x"}]))
    done = shell("replay", str(broken))
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.strip() == (
        f"error: {broken}: conversation 1, message 2: unknown role 'wizard'; known are "
        "ai, assistant, developer, function, human, system, tool, user"
    )
    for arguments, named in (
        (["replay", str(tmp_path / "none.json")], "none.json"),
        (["replay", str(RECORDING), "--trigger", "many"], "messages:12"),
    ):
        monkeypatch.setattr(sys, "argv", ["langmem-harness", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 1
        error = capsys.readouterr().err
        assert error.startswith("error: ")
        assert named in error


@pytest.mark.parametrize(
    "command",
    [
        ("store", "verify", "nowhere"),
        ("store", "reindex", "nowhere", "--embeddings", "local"),
        ("store", "stats", str(RECORDING)),
        ("threads", "list", "--memory", "nowhere"),
        ("memories", "list", "--memory", "nowhere", "--user", "ada"),
    ],
    ids=" ".join,
)
def test_every_command_fails_in_the_same_form(command: tuple[str, ...]) -> None:
    done = shell(*command)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_simulate_is_readable_at_80_columns_and_gives_the_same_numbers_as_json() -> None:
    options = ("simulate", "--tool-calls", "3", "--result-tokens", "900", "--trigger", "2000", "--keep", "1000")
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(app, list(options)).stdout
    assert max(map(len, shown.splitlines())) <= 80
    rows = {line.split()[0]: line.split()[1:] for line in shown.splitlines() if line[:1].isdigit()}
    reports = json.loads(run(*options, "--json").stdout)
    assert len(rows) == len(reports) >= 7
    for number, report in enumerate(reports, start=1):
        assert f"  {number}  {report['name']}\n" in shown
        assert rows[str(number)][-1] == f"{report['billed_tokens']:,}"


def test_a_missing_extra_is_named() -> None:
    done = shell("--version", code="import sys; sys.modules['typer'] = None")
    assert done.returncode == 2
    assert "langmem-harness[cli]" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("text", ["", "messages", "messages:", "messages:x", "messages:0", "apples:3", "fraction:2"])
def test_a_limit_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_limit(text, option="--trigger")
    assert parse_limit("tokens:2_000", option="--trigger") == ("tokens", 2000)


@pytest.mark.parametrize(("trigger", "keep"), POLICIES)
@pytest.mark.parametrize("folder", ["tau_bench", "swe_agent"])
def test_real_recordings_break_no_rule(folder: str, trigger: str, keep: str) -> None:
    if not (DATA / folder).is_dir():
        pytest.skip(f"the real recordings are not here: {DATA / folder}")
    for file in sorted(path for path in (DATA / folder).rglob("*") if path.suffix in (".json", ".jsonl", ".traj")):
        done = run("replay", str(file), "--trigger", trigger, "--keep", keep, "--limit", "20", "--json")
        assert done.exit_code == 0, file
        assert json.loads(done.stdout)["totals"]["violations"] == 0


CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "function": {"name": "t", "arguments": "{}"}}]}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "r"}
ASK, ANSWER = {"role": "user", "content": "x"}, {"role": "assistant", "content": "ok"}
LANGCHAIN = [
    {"type": "human", "data": {"content": "x", "id": "1"}},
    {"type": "ai", "data": {"content": "", "tool_calls": [{"name": "t", "args": {}, "id": None}]}},
    {"type": "ai", "data": {"content": "y", "id": "1"}},
]


@pytest.mark.parametrize(
    ("messages", "calls"),
    [
        ([ASK, CALL, RESULT, ASK, ANSWER], 3),
        ([ASK, CALL, RESULT], 2),
        ([ASK, CALL, ASK, RESULT, ANSWER], 3),
        ([ASK, CALL, RESULT, ASK, CALL, RESULT, ANSWER, ASK, ANSWER], 5),
        (LANGCHAIN, 2),
    ],
)
def test_interrupted_turns_are_played_as_they_were(messages: Any, calls: int, tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    file.write_text(json.dumps(messages))
    done = run("replay", str(file), "--trigger", "messages:3", "--keep", "messages:1", "--json")
    assert done.exit_code == 0, done.exception
    assert json.loads(done.stdout)["totals"]["calls"] == calls
