"""The fakes do what real ones do, where a test could tell the difference."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.tools import tool
from langchain_core.messages import AIMessage, HumanMessage

from langmem_harness.errors import ConfigurationError
from langmem_harness.testing import DeterministicEmbeddings, FixedClock, ScriptedChatModel
from tests.conftest import Face

CALL = AIMessage("", tool_calls=[{"id": "c1", "name": "add", "args": {"left": 1, "right": 2}}])


@tool
def add(left: int, right: int) -> int:
    """Add two numbers."""
    return left + right


def test_it_plays_its_script_in_an_agent(face: Face) -> None:
    model = ScriptedChatModel(responses=[CALL, "It is three."])
    result = face(create_agent(model, [add]), "invoke", {"messages": [("user", "1 + 2?")]})
    assert [message.text for message in result["messages"]] == ["1 + 2?", "", "3", "It is three."]
    assert [len(request) for request in model.requests] == [1, 3]


def test_it_streams_word_by_word_and_whole_tool_calls() -> None:
    agent = create_agent(ScriptedChatModel(responses=[CALL, "It is three."]), [add])
    chunks = [chunk for chunk, _ in agent.stream({"messages": [("user", "?")]}, stream_mode="messages")]
    assert [chunk.text for chunk in chunks if chunk.text] == ["3", "It ", "is ", "three."]
    assert chunks[0].tool_calls[0]["args"] == {"left": 1, "right": 2}


def test_what_it_recorded_does_not_change_later() -> None:
    model = ScriptedChatModel(responses=["a", "b"])
    message = HumanMessage("before")
    model.invoke([message])
    message.content = "after"
    assert model.requests[0][0].content == "before"


def test_errors_callables_and_the_end_of_the_script() -> None:
    model = ScriptedChatModel(responses=[ValueError("429"), lambda messages: f"you said {messages[-1].text}"])
    with pytest.raises(ValueError, match="429"):
        model.invoke("one")
    assert model.invoke("two").text == "you said two"
    with pytest.raises(IndexError, match="2 replies"):
        model.invoke("three")
    assert [ScriptedChatModel(responses=["x"], on_exhausted="repeat").invoke("?").text for _ in range(2)] == ["x", "x"]


def test_vectors_are_the_same_in_every_process() -> None:
    script = "from langmem_harness.testing import *; print(DeterministicEmbeddings(8).embed_query('green tea'))"
    runs = {subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout for _ in range(2)}
    assert runs == {f"{DeterministicEmbeddings(8).embed_query('green tea')}\n".encode()}


def test_shared_words_mean_similarity(face: Face) -> None:
    embeddings = DeterministicEmbeddings(256)
    cat, same, dog = face(embeddings, "embed_documents", ["the cat sat", "the cat sat down", "dog"])
    assert cosine(cat, same) > 0.8 > 0.1 > cosine(cat, dog)
    assert cosine(cat, cat) == pytest.approx(1.0)
    assert face(embeddings, "embed_query", "the cat sat") == cat
    assert any(embeddings.embed_query(""))
    other = DeterministicEmbeddings(256, name="other").embed_query("the cat sat")
    assert cosine(cat, other) < 0.5
    assert DeterministicEmbeddings(256, query_differs=True).embed_query("cat") != cat


def cosine(left: list[float], right: list[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize(
    ("fault", "shows"),
    [
        ("nan", lambda v: v[0][0] != v[0][0]),
        ("zero", lambda v: not any(v[0])),
        ("wrong_length", lambda v: len(v[0]) == 9),
    ],
)
def test_faults_on_demand(fault: Any, shows: Any) -> None:
    embeddings = DeterministicEmbeddings(8)
    embeddings.fault = fault
    assert shows(embeddings.embed_documents(["a"]))
    embeddings.fault = "too_few"
    assert embeddings.embed_documents(["a", "b"])[1:] == []
    embeddings.fault = "raise"
    with pytest.raises(RuntimeError):
        embeddings.embed_query("a")


def test_the_clock_moves_when_told() -> None:
    clock = FixedClock(datetime(2026, 1, 1, tzinfo=UTC))
    assert clock() == clock()
    assert clock.advance(minutes=5) == datetime(2026, 1, 1, 0, 5, tzinfo=UTC)
    assert clock.advance(timedelta(days=-1)) == datetime(2025, 12, 31, 0, 5, tzinfo=UTC)
    with pytest.raises(ConfigurationError, match="aware"):
        FixedClock(datetime(2026, 1, 1))
    with pytest.raises(ConfigurationError, match="0"):
        DeterministicEmbeddings(0)
