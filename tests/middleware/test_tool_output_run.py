"""A long run of large outputs: the window stays small, the prefix stays the same, and no fact is out of reach."""

from __future__ import annotations

from langchain.agents import create_agent
from langchain_core.messages import ToolMessage, messages_to_dict
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from benchmarks.tool_outputs import Planted, run_calls
from langmem_harness.middleware.tool_output import ToolOutputSummarizationMiddleware
from langmem_harness.testing import ScriptedChatModel
from tests.conftest import Face
from tests.middleware.tool_output_kit import Run, call, handle_of


def test_a_run_of_many_large_outputs_stays_small_and_whole(face: Face) -> None:
    planted = Planted(outputs=8, tokens=4_000, seed=1)
    with_middleware = run_calls(planted, face, middleware=[ToolOutputSummarizationMiddleware()])
    without = run_calls(planted, face, middleware=[])
    assert with_middleware.calls == without.calls == 9
    assert with_middleware.prefix_breaks == 0
    assert with_middleware.input_tokens < 0.3 * without.input_tokens
    for message, fact in zip(with_middleware.results, planted.facts, strict=True):
        handle = handle_of(message)
        reading = Run([], [[call("read_tool_output", "r", handle=handle, pattern=fact)]], store=with_middleware.store)
        (page,) = reading(face, thread_id="run")
        assert fact in page.content


def test_the_same_turn_gives_the_same_bytes(face: Face) -> None:
    planted = Planted(outputs=3, tokens=5_000, seed=2)

    def contents() -> list[object]:
        run = run_calls(planted, face, middleware=[ToolOutputSummarizationMiddleware()])
        return [message.content for message in run.results]

    assert contents() == contents()


def test_two_agents_share_one_middleware(face: Face) -> None:
    planted = Planted(outputs=2, tokens=5_000, seed=3)
    shared = ToolOutputSummarizationMiddleware()
    first = run_calls(planted, face, middleware=[shared])
    second = run_calls(planted, face, middleware=[shared])
    assert [each.content for each in first.results] == [each.content for each in second.results]


def test_the_thread_is_plain_json(face: Face) -> None:
    planted = Planted(outputs=1, tokens=5_000, seed=4)
    agent = create_agent(
        ScriptedChatModel(responses=planted.script()),
        [planted.tool()],
        middleware=[ToolOutputSummarizationMiddleware()],
        checkpointer=InMemorySaver(),
        store=InMemoryStore(),
    )
    state = face(agent, "invoke", {"messages": [("user", "go")]}, {"configurable": {"thread_id": "run"}})
    (message,) = [each for each in state["messages"] if isinstance(each, ToolMessage)]
    body = messages_to_dict([message])[0]["data"]
    assert set(body["additional_kwargs"]["langmem_harness"]) == {"kind", "handle"}
