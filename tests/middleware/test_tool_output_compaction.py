"""From the summary of a history back to the raw output it covers, after many compactions."""

from __future__ import annotations

import re
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langmem_harness import MemoryContext, open_memory
from langmem_harness.testing import ScriptedChatModel
from tests.conftest import Face
from tests.middleware.tool_output_kit import LOG, call, handle_of, inner

FACT = "the vault code of the night shift is 7719-K"


@pytest.mark.parametrize("summarizer", [lambda text: "They went on.", None])
def test_an_old_output_is_reached_through_its_handle_after_many_compactions(face: Face, summarizer: Any) -> None:
    def fetch() -> str:
        """Fetch the log."""
        return f"{LOG}\n{FACT}\n{LOG}"

    def read_from_window(messages: list[BaseMessage]) -> AIMessage:
        handles = re.findall(r"out_[a-z2-7]{12}", "\n".join(message.text for message in messages))
        assert handles, "the handle is not in the window any more"
        return AIMessage("", tool_calls=[call("read_tool_output", "r", handle=handles[0], pattern="vault code")])

    events: list[Any] = []
    replies: list[Any] = [
        "hello",
        AIMessage("", tool_calls=[call("fetch")]),
        "fetched",
        *["and so on"] * 29,
        read_from_window,
        "there it is",
    ]
    with open_memory(":memory:", on_event=events.append) as memory:
        agent = create_agent(
            ScriptedChatModel(responses=replies),
            [fetch],
            checkpointer=memory.checkpointer,
            store=memory.store,
            middleware=memory.middleware(
                trigger=("messages", 8),
                keep=("messages", 4),
                summarizer=summarizer,
                memory_mode=None,
            ),
            context_schema=MemoryContext,
        )
        thread: Any = {"configurable": {"thread_id": "t"}}
        for text in ("begin", "fetch the log", *["go on"] * 29, "what was the code?"):
            state = face(agent, "invoke", {"messages": [("user", text)]}, thread, context=MemoryContext(user_id="ada"))
        results = [message for message in state["messages"] if isinstance(message, ToolMessage)]
    assert sum(event.kind == "history_compacted" for event in events) >= 3
    assert handle_of(results[0]).startswith("out_")
    assert FACT in inner(results[-1].text)
