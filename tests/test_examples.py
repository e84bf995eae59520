"""The example scripts run as a user runs them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name: str, *arguments: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "OPENAI_API_KEY"}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(importlib.util.find_spec("onnxruntime") is None, reason="needs the extra local")
def test_monday_is_remembered_on_thursday_in_another_process(tmp_path: Path) -> None:
    told = run("travel_assistant.py", "--memory", str(tmp_path / "memory"))
    monday, thursday = told.split("Thursday (process")
    assert "Monday (process" in monday
    assert monday.split("Monday (process ")[1].split(",")[0] != thursday.split(",")[0].strip()
    assert told.count("SCRIPTED stand-in") == 2
    assert monday.count("stored whole") == 3
    assert "memory: added" in monday
    assert "Since you are vegetarian" in thursday
    assert "memory: recalled 1 by " in thursday
    assert "'The traveller is vegetarian.'" in thursday
    assert "in thread 'monday', retrieval: " in thursday
    assert "flight search in what the model saw: no" in thursday


def test_compaction_alone_keeps_the_thread_whole() -> None:
    told = run("existing_agent.py")
    assert "thread: 40 messages" in told
    assert "human: Question 1:" in told
    assert "human: Question 20:" in told
