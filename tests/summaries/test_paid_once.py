"""A process is killed after the summary and before the model call: the next one finds the record and does not pay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

WORKER = """
import os, signal, sys
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langmem_harness.middleware.compaction import HistoryCompactionMiddleware
from langmem_harness.store import FaissStore
from langmem_harness.summaries import ModelSummarizer
from langmem_harness.testing import ScriptedChatModel

folder, mode = sys.argv[1:]

def write(messages):
    with open(f"{folder}/paid", "a") as file:
        file.write("paid\\n")
    return "The user asked several questions and got answers."

def answer(messages):
    if mode == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    print(messages[1].text)
    return "done"

history = []
for number in range(6):
    history += [HumanMessage(f"question {number}", id=f"h{number}"), AIMessage(f"answer {number}", id=f"a{number}")]
history.append(HumanMessage("and now?", id="now"))
with FaissStore(f"{folder}/store.sqlite") as store:
    agent = create_agent(
        ScriptedChatModel(responses=[answer]),
        [],
        store=store,
        middleware=[
            HistoryCompactionMiddleware(
                ("messages", 6),
                ("messages", 2),
                summarizer=ModelSummarizer(ScriptedChatModel(responses=[write], on_exhausted="repeat")),
            )
        ],
    )
    agent.invoke({"messages": history}, {"configurable": {"thread_id": "t"}})
"""


def run(folder: Path, mode: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WORKER, str(folder), mode], capture_output=True, text=True, timeout=50, check=False
    )


def test_killed_between_summary_and_model_call(tmp_path: Path) -> None:
    killed = run(tmp_path, "die")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    resumed = run(tmp_path, "live")
    assert resumed.returncode == 0, resumed.stderr
    assert "several questions" in resumed.stdout
    assert (tmp_path / "paid").read_text() == "paid\n"
    assert os.path.exists(tmp_path / "store.sqlite")
