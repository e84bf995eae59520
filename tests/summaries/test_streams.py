"""The summarizer's words stay out of every stream of the user's run, and its calls stay in the trace."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.tracers.base import BaseTracer
from langchain_core.tracers.schemas import Run
from langgraph.graph import START, MessagesState, StateGraph

from langmem_harness.middleware.compaction import HistoryCompactionMiddleware
from langmem_harness.summaries import ModelSummarizer
from langmem_harness.testing import ScriptedChatModel

SECRET = "Zanzibar"
NOTES = f"The user talked about {SECRET} and about nothing else so far."


class Tracer(BaseTracer):
    """Collects the names of finished model runs."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def _persist_run(self, run: Run) -> None:
        pass

    def _on_llm_start(self, run: Run) -> None:
        self.names.append(run.name)


class Listener(BaseCallbackHandler):
    """A user's handler that shows tokens."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_llm_new_token(self, token: str, **kwargs: Any) -> None:
        self.heard.append(token)

    def on_chat_model_start(self, serialized: Any, messages: Any, **kwargs: Any) -> None:
        self.heard.append("start")


class StreamingModel(ScriptedChatModel):
    """A summarizer's model that always streams, whoever listens."""

    @property
    def streaming(self) -> bool:
        return True


def agent(writer: ScriptedChatModel) -> Any:
    model = ScriptedChatModel(responses=["The answer is forty two."], on_exhausted="repeat")
    compaction = HistoryCompactionMiddleware(("messages", 6), ("messages", 2), summarizer=ModelSummarizer(writer))
    return create_agent(model, [], middleware=[compaction])


def history() -> dict[str, list[AnyMessage]]:
    messages: list[AnyMessage] = []
    for number in range(6):
        messages += [HumanMessage(f"question {number}"), AIMessage(f"answer {number}")]
    return {"messages": [*messages, HumanMessage("and now?")]}


@pytest.fixture(params=[ScriptedChatModel, StreamingModel])
def writer(request: pytest.FixtureRequest) -> ScriptedChatModel:
    return request.param(responses=[NOTES], on_exhausted="repeat")  # type: ignore[no-any-return]


MODES: list[Any] = ["messages", "values", "updates", "custom", ["messages", "custom", "values", "updates"]]


def collect(mode: Any, face: str, writer: ScriptedChatModel) -> list[Any]:
    """Everything a stream gives, without the private state that LangGraph shows beside the messages: records are
    there, where a debugger wants them, and nothing else of the summarizer."""

    async def acollect() -> list[Any]:
        return [chunk async for chunk in agent(writer).astream(history(), stream_mode=mode)]

    chunks = list(agent(writer).stream(history(), stream_mode=mode)) if face == "sync" else asyncio.run(acollect())
    return [_public(chunk) for chunk in chunks]


def _public(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _public(inner) for key, inner in value.items() if key != "compaction_records"}
    return tuple(map(_public, value)) if isinstance(value, tuple) else value


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("face", ["sync", "async"])
def test_no_stream_mode_shows_the_summary(writer: ScriptedChatModel, mode: Any, face: str) -> None:
    chunks = collect(mode, face, writer)
    assert writer.calls == 1
    assert chunks
    assert SECRET not in str(chunks)


@pytest.mark.parametrize("face", ["sync", "async"])
def test_the_answer_is_streamed_word_by_word(writer: ScriptedChatModel, face: str) -> None:
    chunks = collect("messages", face, writer)
    assert "".join(chunk[0].text for chunk in chunks) == "The answer is forty two."


def test_events_show_no_token_of_the_summarizer(writer: ScriptedChatModel) -> None:
    async def gather() -> list[Any]:
        return [event async for event in agent(writer).astream_events(history(), version="v2")]

    events = asyncio.run(gather())
    assert writer.calls == 1
    models = [event for event in events if event["event"] in ("on_chat_model_stream", "on_chat_model_end")]
    assert models
    assert not [event for event in models if SECRET in str(event["data"].get("chunk", event["data"].get("output")))]


@pytest.mark.parametrize("face", ["sync", "async"])
def test_a_tracer_sees_the_call_and_other_handlers_do_not(writer: ScriptedChatModel, face: str) -> None:
    tracer, listener = Tracer(), Listener()
    config: Any = {"callbacks": [tracer, listener]}
    if face == "sync":
        agent(writer).invoke(history(), config)
    else:
        asyncio.run(agent(writer).ainvoke(history(), config))
    assert "summarize_history" in tracer.names
    assert SECRET not in " ".join(listener.heard)
    assert listener.heard.count("start") == 1


def test_inside_a_plain_graph_too(writer: ScriptedChatModel) -> None:
    from langmem_harness.summaries import SummaryRequest

    def node(state: MessagesState) -> dict[str, Any]:
        text = ModelSummarizer(writer).summarize(SummaryRequest.from_messages(state["messages"])).text
        return {"messages": [AIMessage(str(len(text)))]}

    graph = StateGraph(MessagesState).add_node("node", node).add_edge(START, "node").compile()
    chunks = list(graph.stream(history(), stream_mode="messages"))
    assert SECRET not in str(chunks)
    assert [chunk[0].text for chunk in chunks] == [str(len(NOTES))]  # type: ignore[index]
