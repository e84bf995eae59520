"""An agent is killed in the middle of a payment, started again, and pays exactly once.

    python examples/payment_survives_kill.py

Three processes share one folder. The first is killed (signal 9) after the money has left and before that could be
noted. The second retries the same turn: the payment is not made again, the agent is told that its outcome is unknown,
looks into the bank's ledger, and answers. The third retries once more and gets the same answer without any model call.
The chat model is scripted, so no account is needed; everything else is real.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import tool

from langmem_harness.middleware.turns import DurableTurnsMiddleware
from langmem_harness.testing import ScriptedChatModel
from langmem_harness.threads import SqliteCheckpointer, ThreadLog


def decide(messages: list[BaseMessage]) -> AIMessage:
    """What a careful model does: pay, and if the outcome is unknown, look before paying again."""
    last = messages[-1].text
    if messages[-1].type == "human":
        return AIMessage("", tool_calls=[{"name": "pay", "args": {"invoice": "A-17", "amount": 250}, "id": "pay-1"}])
    if "Outcome unknown" in last:
        return AIMessage("", tool_calls=[{"name": "read_ledger", "args": {}, "id": "read-1"}])
    if "A-17" in last:
        return AIMessage("Invoice A-17 is paid: 250 euros, once.")
    return AIMessage("", tool_calls=[{"name": "pay", "args": {"invoice": "A-17", "amount": 250}, "id": "pay-2"}])


def run_turn(folder: Path, *, dies: bool) -> None:
    """One process: run the turn ``pay-invoice-A-17``."""
    ledger = folder / "bank_ledger.txt"

    @tool
    def pay(invoice: str, amount: int) -> str:
        """Pay an invoice."""
        with ledger.open("a") as file:
            file.write(f"{invoice}: {amount} euros\n")
        if dies:
            print("  the money has left; the process is killed before it can note that", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return f"{invoice} paid"

    @tool
    def read_ledger() -> str:
        """Read what was paid."""
        return ledger.read_text() if ledger.exists() else "nothing was paid"

    with SqliteCheckpointer(folder / "threads.sqlite") as checkpointer:
        log = ThreadLog(checkpointer.database)
        model = ScriptedChatModel(responses=[decide], on_exhausted="repeat")
        agent = create_agent(
            model,
            [pay, read_ledger],
            checkpointer=checkpointer,
            middleware=[DurableTurnsMiddleware(log, safe_to_repeat={"read_ledger"}, lease_seconds=1)],
        )
        result = agent.invoke(
            {"messages": [HumanMessage("Please pay invoice A-17, 250 euros.")]},
            {"configurable": {"thread_id": "accounting", "turn_id": "pay-invoice-A-17"}},
        )
        for message in result["messages"]:
            calls = ", ".join(call["name"] for call in getattr(message, "tool_calls", []))
            print(f"  {message.type}: {message.text or 'calls ' + calls}".rstrip())
        print(f"  model calls in this process: {model.calls}; log intact: {log.verify('accounting').is_intact}")


def main() -> None:
    """Start the three processes and show the ledger."""
    if len(sys.argv) > 1:
        run_turn(Path(sys.argv[1]), dies=sys.argv[2] == "dies")
        return
    with tempfile.TemporaryDirectory() as folder:
        for title, fate in (
            ("First try", "dies"),
            ("Second try, same turn", "lives"),
            ("Third try, same turn", "lives"),
        ):
            print(title, flush=True)
            process = subprocess.run([sys.executable, __file__, folder, fate], check=False)
            print(f"  (exit code {process.returncode})", flush=True)
        entries = (Path(folder) / "bank_ledger.txt").read_text().splitlines()
        print(f"Payments in the bank's ledger: {len(entries)} ({entries[0]})")


if __name__ == "__main__":
    main()
