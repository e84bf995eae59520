"""A worker that runs one turn and is killed (signal 9) at a named point.

    python turns_worker.py FOLDER POINT FACE [HOW]

HOW: "ask" (under a turn id), "by message id", "again" (an answered turn, from its first checkpoint), "fork" (with an
edited message), or what a human in the loop does: "human: ask", "human: approve", "human: go on".

The ledger is a file the payment tool appends to: what the outside world saw. The model is scripted to do what it is
told: if the outcome of a payment is unknown, it looks into the ledger and pays only if nothing is there.
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
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.types import Command

from langmem_harness.middleware.turns import DurableTurnsMiddleware
from langmem_harness.testing import ScriptedChatModel
from langmem_harness.threads import SqliteCheckpointer, ThreadLog

folder, point, face = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
ledger = folder / "ledger"
seen: dict[str, int] = {}


def reach(name: str) -> None:
    """Die here if this is the point; ``name:2`` means the second time it is reached."""
    seen[name] = seen.get(name, 0) + 1
    if point in (f"{name}:{seen[name]}", name):
        os.kill(os.getpid(), signal.SIGKILL)


class Killer(AgentMiddleware[Any, Any, Any]):
    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    @property
    def name(self) -> str:
        return f"Killer-{self.where}"

    def before_agent(self, state: Any, runtime: Any) -> None:
        reach(f"{self.where}_begin")

    def after_agent(self, state: Any, runtime: Any) -> None:
        reach(f"{self.where}_end")

    def after_model(self, state: Any, runtime: Any) -> None:
        reach(f"{self.where}_after_model")

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        reach(f"{self.where}_before_call")
        response = handler(request)
        reach(f"{self.where}_after_call")
        return response

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        reach(f"{self.where}_before_call")
        response = await handler(request)
        reach(f"{self.where}_after_call")
        return response

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        reach(f"{self.where}_before_tool")
        result = handler(request)
        reach(f"{self.where}_after_tool")
        return result

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        reach(f"{self.where}_before_tool")
        result = await handler(request)
        reach(f"{self.where}_after_tool")
        return result


class KilledSaver(SqliteCheckpointer):
    def put(self, *args: Any) -> Any:
        reach("before_checkpoint")
        saved = super().put(*args)
        reach("after_checkpoint")
        return saved


@tool
def pay(amount: int) -> str:
    """Pay."""
    reach("before_effect")
    with ledger.open("a") as file:
        file.write(f"{amount}\n")
    reach("after_effect")
    return f"paid {amount}"


@tool
def look_up() -> str:
    """See what was paid."""
    return (ledger.read_text() if ledger.exists() else "") or "nothing"


def decide(messages: list[BaseMessage]) -> AIMessage:
    last = messages[-1]
    if last.type == "human":
        return AIMessage("", tool_calls=[{"name": "pay", "args": {"amount": 5}, "id": "pay-1"}])
    if "outcome unknown" in last.text.lower():
        return AIMessage("", tool_calls=[{"name": "look_up", "args": {}, "id": "look-1"}])
    if last.text == "nothing":
        return AIMessage("", tool_calls=[{"name": "pay", "args": {"amount": 5}, "id": "pay-2"}])
    return AIMessage("It is paid.")


def main() -> None:
    with KilledSaver(folder / "threads.sqlite") as saver:
        log = ThreadLog(saver.database)
        middleware: list[Any] = [
            Killer("outer"),
            DurableTurnsMiddleware(log, safe_to_repeat={"look_up"}, lease_seconds=0.5),
            Killer("inner"),
        ]
        model = ScriptedChatModel(responses=[decide], on_exhausted="repeat")
        how = sys.argv[4] if len(sys.argv) > 4 else "ask"
        config: Any = {"configurable": {"thread_id": "t", "turn_id": "turn-1"}}
        given: Any = {"messages": [HumanMessage("pay 5")]}
        if how.startswith("human: "):
            middleware.append(HumanInTheLoopMiddleware(interrupt_on={"pay": True}))
        agent: Any = create_agent(model, [pay, look_up], middleware=middleware, checkpointer=saver)
        if how in ("by message id", "again", "fork"):
            del config["configurable"]["turn_id"]
            given = {"messages": [HumanMessage("pay 5", id="m1")]}
        if how in ("again", "fork"):
            states = [state for state in agent.get_state_history(config) if state.next == ("model",)]
            config, given = states[-1].config, None
        if how == "fork":
            config = agent.update_state(config, {"messages": [HumanMessage("pay 5 now", id="m1")]})
        if how == "human: approve":
            given = Command(resume={"decisions": [{"type": "approve"}]})
        if how == "human: go on":
            given = None
        found = asyncio.run(agent.ainvoke(given, config)) if face == "async" else agent.invoke(given, config)
        messages = found["messages"]
        print(
            json.dumps(
                {
                    "types": [message.type for message in messages],
                    "calls": [[call["id"] for call in getattr(m, "tool_calls", [])] for m in messages],
                    "results": [getattr(message, "tool_call_id", None) for message in messages],
                    "answer": messages[-1].text,
                    "log": [event.kind for event in log.events("t")],
                    "intact": log.verify("t").is_intact and saver.verify().is_intact,
                }
            )
        )


main()
