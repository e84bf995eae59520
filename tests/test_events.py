"""Events: one line in the log, and a callback that can fail nothing."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage

from langmem_harness import MemoryContext, open_memory
from langmem_harness.errors import ConfigurationError
from langmem_harness.events import (
    EpisodesWritten,
    MemoryEvent,
    MemoryRecalled,
    SecretsRedacted,
    SummaryFailed,
    check_callback,
    emit,
)
from langmem_harness.testing import ScriptedChatModel
from tests.conftest import Face

ADA = MemoryContext(user_id="ada")


def test_a_callback_that_raises_fails_no_run(face: Face, caplog: pytest.LogCaptureFixture) -> None:
    kinds: list[str] = []

    def broken(event: MemoryEvent) -> None:
        kinds.append(event.kind)
        raise LookupError("the words of ada")

    save = AIMessage(
        "", tool_calls=[{"id": "c1", "name": "save_memory", "args": {"text": "I prefer tea", "quote": "I prefer tea"}}]
    )
    config: Any = {"configurable": {"thread_id": "t1"}}
    with open_memory(":memory:", on_event=broken) as memory:
        agent = create_agent(
            ScriptedChatModel(responses=[save, "Noted.", "Tea."]),
            checkpointer=memory.checkpointer,
            store=memory.store,
            middleware=memory.middleware(),
            context_schema=MemoryContext,
        )
        face(agent, "invoke", {"messages": [("user", "I prefer tea")]}, config, context=ADA)
        result = face(agent, "invoke", {"messages": [("user", "What do I prefer?")]}, config, context=ADA)
        assert len(memory.store.search(("memories",))) == 1
    assert result["messages"][-1].text == "Tea."
    assert "memory_written" in kinds
    told = [record.getMessage() for record in caplog.records if "on_event" in record.getMessage()]
    assert len(told) == len(kinds)  # each failure once
    assert all("LookupError" in line for line in told)
    assert "words of ada" not in caplog.text


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_what_stops_a_program_stops_it(stop: type[BaseException]) -> None:
    def stopping(_: MemoryEvent) -> None:
        raise stop

    with pytest.raises(stop):
        emit(EpisodesWritten(items=1), stopping)


def test_what_cannot_be_called_is_refused() -> None:
    check_callback(None)
    check_callback(print)
    with pytest.raises(ConfigurationError, match="'print'"):
        check_callback("print")


def test_a_line_says_kind_reason_and_counts(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "langmem_harness"):
        emit(SummaryFailed(reason="AuthenticationError", action="keep", attempts=3, thread_id="t1"))
        emit(SecretsRedacted(surface="memory", findings={"email": 2}))
        emit(MemoryRecalled(keys=tuple("abcdefg"), retrieval="hybrid", thread_id="line\nbreak x=1"))
    assert [record.getMessage() for record in caplog.records] == [
        "langmem_harness: summary_failed reason=AuthenticationError action=keep attempts=3 thread_id=t1",
        "langmem_harness: secrets_redacted surface=memory findings={email: 2}",
        r"langmem_harness: memory_recalled keys=(7) retrieval=hybrid token_count=0 surface=inject "
        r"thread_id='line\nbreak x=1'",
    ]


def test_without_any_set_up_of_logging_a_warning_reads_as_a_sentence() -> None:
    script = (
        "from langmem_harness.events import SummaryFailed as E, emit; emit(E(reason='TimeoutError', action='trim'))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == "langmem_harness: summary_failed reason=TimeoutError action=trim attempts=1\n"
