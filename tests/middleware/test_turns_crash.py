"""The crash matrix: a worker is killed (signal 9) at every boundary of a turn, then the turn is retried."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

WORKER = Path(__file__).with_name("turns_worker.py")
GRAPH_WORKER = Path(__file__).with_name("turn_parts_worker.py")

BOUNDARIES = [
    "outer_begin",  # the input is in a checkpoint, nothing is logged
    "inner_begin",  # the human message is logged
    "inner_before_call",
    "inner_after_call",  # the model has answered, its answer is not logged
    "outer_after_call",  # logged, not in a checkpoint
    "inner_after_model",
    "outer_before_tool",
    "inner_before_tool",  # the call is claimed
    "before_effect",
    "after_effect",
    "inner_after_tool",
    "outer_after_tool",  # the result is logged, not in a checkpoint
    "inner_before_call:2",
    "inner_after_call:2",
    "outer_after_call:2",
    "inner_end",
    "outer_end",
    *(f"{side}_checkpoint:{number}" for side in ("before", "after") for number in range(1, 8)),
]
REPRESENTATIVE = ["outer_begin", "after_effect"]


def run(folder: Path, point: str, face: str, *more: str) -> tuple[int, dict[str, Any] | None]:
    process = subprocess.run(
        [sys.executable, str(WORKER), str(folder), point, face, *more], capture_output=True, text=True, timeout=60
    )
    assert process.returncode in (0, -9), process.stderr
    return process.returncode, json.loads(process.stdout) if process.returncode == 0 else None


def check(folder: Path, found: dict[str, Any] | None, *, turns: int = 1, payments: int = 1) -> None:
    assert found is not None
    assert (folder / "ledger").read_text() == "5\n" * payments
    assert found["answer"] == "It is paid."
    assert found["types"].count("human") == 1
    assert found["types"][0] == "human"
    assert found["log"].count("user") == turns
    assert found["log"].count("done") == turns
    assert found["intact"]
    waiting: list[str] = []
    for calls, result in zip(found["calls"], found["results"], strict=True):
        if result is not None:
            waiting.remove(result)
        else:
            assert waiting == []
        waiting += calls
    assert waiting == []


def kill_and_retry(folder: Path, point: str, face: str, *, retries: int = 2) -> None:
    code, _ = run(folder, point, face)
    assert code == -9, f"{point} was not reached"
    for _ in range(retries):
        _, found = run(folder, "nowhere", face)
        check(folder, found)


@pytest.mark.parametrize("point", REPRESENTATIVE)
def test_a_killed_turn_is_finished_once(tmp_path: Path, point: str) -> None:
    kill_and_retry(tmp_path, point, "sync", retries=1)


@pytest.mark.slow
@pytest.mark.parametrize("face", ["sync", "async"])
@pytest.mark.parametrize("point", BOUNDARIES)
def test_every_boundary(tmp_path: Path, point: str, face: str) -> None:
    kill_and_retry(tmp_path, point, face)


@pytest.mark.slow
@pytest.mark.parametrize("first", BOUNDARIES[:-14])
def test_killed_twice(tmp_path: Path, first: str) -> None:
    run(tmp_path, first, "sync")
    run(tmp_path, "outer_after_tool", "sync")
    _, found = run(tmp_path, "nowhere", "sync")
    check(tmp_path, found)


@pytest.mark.slow
@pytest.mark.parametrize(
    "point", ["inner_before_tool", "before_effect", "after_effect", "outer_after_tool", "outer_end"]
)
def test_killed_after_a_human_approved(tmp_path: Path, point: str) -> None:
    run(tmp_path, "nowhere", "sync", "human: ask")
    code, _ = run(tmp_path, point, "sync", "human: approve")
    assert code == -9
    _, found = run(tmp_path, "nowhere", "sync", "human: go on")
    if found is not None and found["log"].count("done") == 0:  # it paid nothing and asks the human again
        _, found = run(tmp_path, "nowhere", "sync", "human: approve")
    check(tmp_path, found)


@pytest.mark.slow
@pytest.mark.parametrize("point", BOUNDARIES)
def test_every_boundary_without_a_turn_id(tmp_path: Path, point: str) -> None:
    code, _ = run(tmp_path, point, "sync", "by message id")
    assert code == -9, f"{point} was not reached"
    for _ in range(2):
        _, found = run(tmp_path, "nowhere", "sync", "by message id")
        check(tmp_path, found)


IN_A_RUN = [
    point for point in BOUNDARIES if "checkpoint" not in point and "begin" not in point and "effect" not in point
]


@pytest.mark.slow
@pytest.mark.parametrize("point", [*IN_A_RUN, "before_checkpoint:2", "after_checkpoint:3"])
def test_killed_while_an_answered_turn_is_asked_again(tmp_path: Path, point: str) -> None:
    run(tmp_path, "nowhere", "sync", "by message id")
    code, _ = run(tmp_path, point, "sync", "again")
    assert code == (
        0 if point == "inner_before_tool" or point == "inner_after_tool" else -9
    )  # the tool is not run again
    _, found = run(tmp_path, "nowhere", "sync", "again")
    check(tmp_path, found, turns=2 if code == -9 and point != "outer_end" else 3)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["inner_before_call", "outer_after_call", "after_effect", "outer_after_tool"])
def test_killed_on_a_fork(tmp_path: Path, point: str) -> None:
    run(tmp_path, "nowhere", "sync", "by message id")
    code, _ = run(tmp_path, point, "sync", "fork")
    assert code == -9
    for turns in (2, 3):  # the second time it is answered, and asked again
        _, found = run(tmp_path, "nowhere", "sync", "fork")
        check(tmp_path, found, turns=turns, payments=2)  # an edited message is another turn, with effects of its own


def run_graph(folder: Path, *more: str) -> dict[str, Any] | None:
    process = subprocess.run(
        [sys.executable, str(GRAPH_WORKER), str(folder), *more], capture_output=True, text=True, timeout=60
    )
    assert process.returncode in (0, -9), process.stderr
    return json.loads(process.stdout) if process.returncode == 0 else None


@pytest.mark.parametrize(
    ("writes", "face", "how"),
    [
        (14, "sync", "again"),
        (21, "async", "resume"),
        *(
            pytest.param(writes, ("sync", "async")[writes % 2], how, marks=pytest.mark.slow)
            for writes in range(1, 64, 3)
            for how in ("again", "resume")
        ),
    ],
)
def test_a_killed_turn_of_two_agents_in_a_loop_is_finished_once(
    tmp_path: Path, writes: int, face: str, how: str
) -> None:
    found = run_graph(tmp_path, str(writes), face, "again")
    for _ in range(2):
        found = run_graph(tmp_path, "0", face, how) if found is None else found
    assert found is not None
    assert (tmp_path / "ledger").read_text() == "5\n7\n"
    assert found["said"] == ["draft 5", "more", "draft 7", "good"]
    assert (found["humans"], found["answer"], found["intact"]) == (["write"], "good", True)
