"""A worker that runs one turn of a graph with two agents, and is killed (signal 9) when it comes to a number of writes.

    python turn_parts_worker.py FOLDER WRITES FACE HOW

WRITES: at which write to log, claims or checkpoints it dies, from 1; 0: never. HOW: "again" sends the input (the same
message id), "resume" goes on where the graph stands.

The writer pays 5, the critic wants more, the writer pays 7. If an outcome is unknown, the ledger is asked.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph

from langmem_harness.middleware.turns import DurableTurnsMiddleware
from langmem_harness.testing import ScriptedChatModel
from langmem_harness.threads import SqliteCheckpointer, ThreadLog

folder, dies_at, face, how = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
ledger = folder / "ledger"
writes = 0


def reach() -> None:
    global writes
    writes += 1
    if writes == dies_at:
        os.kill(os.getpid(), signal.SIGKILL)


class KilledSaver(SqliteCheckpointer):
    def put(self, *args: Any) -> Any:
        reach()
        return super().put(*args)

    def put_writes(self, *args: Any, **options: Any) -> Any:
        reach()
        return super().put_writes(*args, **options)


@tool
def pay(amount: int) -> str:
    """Pay."""
    reach()
    with ledger.open("a") as file:
        file.write(f"{amount}\n")
    reach()
    return f"paid {amount}"


@tool
def look_up() -> str:
    """See what was paid."""
    return (ledger.read_text() if ledger.exists() else "") or "nothing"


def write(messages: list[BaseMessage]) -> AIMessage:
    reach()
    last, amount = messages[-1], 7 if any(message.text == "more" for message in messages) else 5
    if last.type != "tool":
        return AIMessage("", tool_calls=[{"name": "pay", "args": {"amount": amount}, "id": f"pay-{amount}"}])
    if "outcome unknown" in last.text.lower():
        return AIMessage("", tool_calls=[{"name": "look_up", "args": {}, "id": f"look-{amount}"}])
    if last.text.startswith("paid") or str(amount) in last.text:
        return AIMessage(f"draft {amount}")
    return AIMessage("", tool_calls=[{"name": "pay", "args": {"amount": amount}, "id": f"pay-{amount}-2"}])


def review(messages: list[BaseMessage]) -> AIMessage:
    reach()
    return AIMessage("good" if messages[-1].text == "draft 7" else "more")


def is_good(messages: list[BaseMessage]) -> bool:
    return any(message.text == "good" for message in messages)


def main() -> None:
    with KilledSaver(folder / "threads.sqlite") as saver:
        log = ThreadLog(saver.database)

        def agent(decide: Any) -> Any:
            model = ScriptedChatModel(responses=[decide], on_exhausted="repeat")
            turns = DurableTurnsMiddleware(log, safe_to_repeat={"look_up"}, lease_seconds=0.3)
            return create_agent(model, [pay, look_up], middleware=[turns])

        graph = StateGraph(MessagesState)
        graph.add_node("writer", agent(write))
        graph.add_node("critic", agent(review))
        graph.add_edge(START, "writer")
        graph.add_edge("writer", "critic")
        graph.add_conditional_edges("critic", lambda state: END if is_good(state["messages"]) else "writer")
        built: Any = graph.compile(checkpointer=saver)
        config: Any = {"configurable": {"thread_id": "t"}}
        given: Any = {"messages": [HumanMessage("write", id="h1")]}
        if how == "resume" and built.get_state(config).next:
            given = None
        result = asyncio.run(built.ainvoke(given, config)) if face == "async" else built.invoke(given, config)
        answer = log.answer("t", "h1")
        found = {
            "said": [message.text for message in result["messages"] if message.type == "ai" and message.text],
            "humans": [message.text for message in log.messages("t") if message.type == "human"],
            "answer": None if answer is None else answer.text,
            "intact": log.verify("t").is_intact,
            "writes": writes,
        }
    print(json.dumps(found))


main()
