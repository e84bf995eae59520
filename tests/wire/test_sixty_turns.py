"""Sixty turns over a real wire, with tools, streaming and compaction: nothing is refused."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import httpx
import pytest
from langchain.agents import create_agent
from langchain_core.messages import BaseMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from langmem_harness.events import HistoryCompacted, MemoryEvent, SummaryFailed
from langmem_harness.middleware.compaction import HistoryCompactionMiddleware
from langmem_harness.summaries import ExtractiveSummarizer, ModelSummarizer
from langmem_harness.window.messages import is_tagged
from tests.wire.openai_server import Messages, OpenAIServer

TURNS = 60
NOTES = "The user goes through numbered stations one after the other and looks up each of them."


def play(messages: Messages) -> dict[str, Any]:
    """The model: looks up one to three stations for a question, then answers; some turns look twice."""
    last = messages[-1]
    if last["role"] == "user" and "</transcript>" in str(last["content"]):
        return {"content": NOTES}
    question = next(message for message in reversed(messages) if message["role"] == "user")
    turn = int(re.findall(r"station (\d+)", str(question["content"]))[-1])
    rounds = 0
    for message in reversed(messages):
        if message["role"] == "user":
            break
        rounds += message["role"] == "assistant"
    if rounds < (0, 1, 1, 2)[turn % 4]:
        calls = [
            {
                "id": f"call_{turn}_{rounds}_{number}",
                "type": "function",
                "function": {"name": "look_up", "arguments": json.dumps({"station": turn, "part": number})},
            }
            for number in range(1 + turn % 3)
        ]
        return {"content": "Let me look." if turn % 2 else None, "tool_calls": calls}
    return {"content": f"Station {turn} is in order, all parts of it were looked at and nothing is missing."}


@tool
def look_up(station: int, part: int) -> str:
    """Look up a part of a station."""
    return f"station {station}, part {part}: " + "temperature, pressure and flow are as they should be; " * 4


def summarizer(name: str, model: Any) -> Any:
    return {"none": None, "extractive": ExtractiveSummarizer(), "model": ModelSummarizer(model)}[name]


CASES = [
    pytest.param("none", "sync", True),
    pytest.param("model", "async", True),
    pytest.param("extractive", "async", False, marks=pytest.mark.slow),
    pytest.param("model", "sync", False, marks=pytest.mark.slow),
    pytest.param("model", "sync", True, marks=pytest.mark.slow),
    pytest.param("none", "async", False, marks=pytest.mark.slow),
]


@pytest.mark.network
@pytest.mark.parametrize(("name", "face", "streaming"), CASES)
def test_nothing_is_refused(name: str, face: str, streaming: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from langchain_openai import ChatOpenAI

    monkeypatch.setenv("NO_PROXY", "*")
    events: list[MemoryEvent] = []
    with OpenAIServer(play, window_tokens=6_000) as server, httpx.Client() as client:
        aclient = httpx.AsyncClient()
        model = ChatOpenAI(
            model="wire",
            base_url=server.base_url,
            api_key="none",  # type: ignore[arg-type]
            max_retries=0,
            streaming=streaming,
            http_client=client,
            http_async_client=aclient,
        )
        compaction = HistoryCompactionMiddleware(
            ("tokens", 3_000),
            ("tokens", 800),
            context_window=6_000,
            summarizer=summarizer(name, model),
            max_summary_tokens=300,
            facts_tokens=300,
            on_event=events.append,
        )
        agent = create_agent(
            model,
            [look_up],
            system_prompt="You look after stations.",
            middleware=[compaction],
            checkpointer=InMemorySaver(),
            store=InMemoryStore(),
        )
        config: Any = {"configurable": {"thread_id": "t"}}

        def question(turn: int) -> Any:
            return {"messages": [("user", f"Please check station {turn} for me.")]}

        async def talk() -> None:
            for turn in range(TURNS):
                async for _ in agent.astream(question(turn), config, stream_mode="messages"):
                    pass
            await aclient.aclose()

        if face == "async":
            asyncio.run(talk())
        else:
            for turn in range(TURNS):
                for _ in agent.stream(question(turn), config, stream_mode="messages"):
                    pass
            asyncio.run(aclient.aclose())
        thread: list[BaseMessage] = agent.get_state(config).values["messages"]

    assert server.refused == []
    assert sum(message.type == "human" for message in thread) == TURNS
    assert not any(is_tagged(message, "marker") for message in thread)
    cuts = [event for event in events if isinstance(event, HistoryCompacted) and event.cut_moved]
    assert len(cuts) >= 2
    assert not [event for event in events if isinstance(event, SummaryFailed)]
    agent_requests = [body for body in server.requests if body.get("tools")]
    assert "station 0 " in agent_requests[-1]["messages"][1]["content"]
    notes = [body for body in agent_requests if NOTES in json.dumps(body["messages"])]
    assert bool(notes) == (name == "model")
