"""The benchmark of earlier threads: its generated set, and that it runs over files in the published formats."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import episodes as benchmark
from benchmarks._dialogues import generate_dialogues
from tests.evaluation.test_retrieval import data

__all__ = ["data"]  # the fixture


def test_generated_dialogues_say_that_they_are_and_are_always_the_same() -> None:
    dataset = generate_dialogues()
    assert dataset == generate_dialogues()
    assert dataset != generate_dialogues(seed=8)
    assert dataset.name == "generated (no real set)"
    assert dataset.question_count == 168
    for collection in dataset.collections:
        assert [turn.key for turn in collection.turns] == list(collection.items)
        assert len({turn.speaker for turn in collection.turns}) == 2
        for question in collection.questions:
            assert question.gold <= collection.items.keys()
            (turn,) = (turn for turn in collection.turns if turn.key in question.gold)
            assert turn.speaker in question.text


def test_it_runs_every_system_over_every_set(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime", reason="the extra 'local' is not installed")
    numbers = data / "numbers.json"
    sets = "generated,locomo,realtalk,beam"
    arguments = ["--data", str(data), "--sets", sets, "--limit", "1", "--variants", "--json", str(numbers)]
    assert benchmark.main(arguments) == 0
    reports = json.loads(numbers.read_text(encoding="utf-8"))
    by_set = {report["dataset"]: set() for report in reports}  # type: ignore[var-annotated]
    for report in reports:
        by_set[report["dataset"]].add(report["system"])
    assert set(by_set) == {"generated (no real set)", "locomo", "realtalk", "beam"}
    wanted = {f"EpisodeIndex {mode}" for mode in benchmark.MODES} | {"InMemoryStore"}
    assert all(wanted < systems for systems in by_set.values())
    assert "not measured" not in capsys.readouterr().out
    found = {report["system"]: report["recall_at"]["10"] for report in reports if "generated" in report["dataset"]}
    assert found["EpisodeIndex hybrid"] > found["InMemoryStore"]
    assert found["EpisodeIndex hybrid"] > found["EpisodeIndex hybrid, own words only"]


def test_sets_that_are_not_there_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime", reason="the extra 'local' is not installed")
    assert benchmark.main(["--data", str(tmp_path / "no"), "--sets", "locomo,realtalk,beam"]) == 0
    assert capsys.readouterr().out.count("not measured") == 3
