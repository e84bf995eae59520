"""History compaction added to an agent you already have: one line, any checkpointer, the thread stays whole.

    python examples/existing_agent.py

Runs offline; the chat model is scripted.
"""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver

from langmem_harness import HistoryCompactionMiddleware
from langmem_harness.testing import ScriptedChatModel


def main() -> None:
    """Twenty turns on one thread."""
    model = ScriptedChatModel(responses=["An answer of a few words."], on_exhausted="repeat")
    agent: Any = create_agent(
        model,
        system_prompt="Be brief.",
        checkpointer=InMemorySaver(),
        middleware=[HistoryCompactionMiddleware(trigger=("messages", 12), keep=("messages", 4))],  # the one line
    )
    config = {"configurable": {"thread_id": "1"}}
    for number in range(1, 21):
        agent.invoke({"messages": [("user", f"Question {number}: what about it?")]}, config)
    sent = model.requests[-1]
    print(f"thread: {len(agent.get_state(config).values['messages'])} messages; the last call saw {len(sent)}:")
    for message in sent:
        print(f"  {message.type}: {message.text[:100]}")


if __name__ == "__main__":
    main()
