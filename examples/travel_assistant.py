"""An assistant that remembers across a restart: Monday a booking, Thursday, in a new process, dinner.

    python examples/travel_assistant.py                    # offline: scripted chat model, local embeddings
    python examples/travel_assistant.py --memory FOLDER    # keep the memory in a folder of yours
    OPENAI_API_KEY=... python examples/travel_assistant.py # the same flow on a real model (extra `openai`)

Needs the extra ``local``. Monday and Thursday are two processes on one folder; nothing else connects them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain.tools import tool
from langchain_core.messages import AIMessage, HumanMessage

from langmem_harness import AgentMemory, LongTermMemory, MemoryContext, MemoryEvent, MemoryScope, open_memory
from langmem_harness.testing import ScriptedChatModel
from langmem_harness.window.tokens import estimate_tokens

USER = MemoryContext(user_id="ada")
SYSTEM_PROMPT = (
    "You are a travel assistant. When the traveller tells you something lasting about themselves, save it with "
    "save_memory, quoting their words."
)


@tool
def search_flights(origin: str, destination: str, day: str) -> str:
    """Search flights for a day."""
    flights = [
        {
            "flight": f"XY{100 + 7 * number}",
            "from": origin,
            "to": destination,
            "departs": f"{day} {6 + number % 16:02}:{(number * 13) % 60:02}",
            "price_eur": 79 + (number * 37) % 240,
            "fare_rules": "Changes up to 24 hours before departure for a fee; one cabin bag; meals on request.",
        }
        for number in range(60)
    ]
    return json.dumps(flights)


@tool
def book_flight(flight: str) -> str:
    """Book a flight."""
    return f"Booked {flight}. Reference LIS-4711."


class Narrator(AgentMiddleware[Any, Any]):
    """Tells what the model saw: the innermost middleware, so this is the finished request."""

    def __init__(self) -> None:
        super().__init__()
        self.call = 0
        self.seen = ""

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        self._tell(request)
        return handler(request)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        self._tell(request)
        return await handler(request)

    def _tell(self, request: ModelRequest[Any]) -> None:
        self.call += 1
        self.seen += "\n".join(message.text for message in request.messages)
        thread = request.state["messages"]
        sent_ids = {message.id for message in request.messages}
        left_out = sum(message.id not in sent_ids for message in thread)
        print(
            f"  model call {self.call}: thread {len(thread)} messages, {estimate_tokens(thread):,} tokens; "
            f"sent {len(request.messages)} messages, {estimate_tokens(request.messages):,} tokens; left out {left_out}"
        )


def tell_event(event: MemoryEvent) -> None:
    """Tell what the memory did."""
    details = event.to_dict()
    match event.kind:
        case "memory_written":
            print(f"  memory: {details['action']} (key {details['key'][:8]}…, source: {details['source_kind']})")
        case "memory_recalled":
            print(
                f"  memory: recalled {len(details['keys'])} by {details['retrieval']}, degraded: {details['degraded']}"
            )
        case "tool_output_offloaded":
            print(
                f"  tool output: {details['tool']} stored whole ({details['characters']:,} characters), "
                f"{details['token_count_before']:,} tokens shortened to {details['token_count_after']:,}"
            )


def call(name: str, **arguments: Any) -> AIMessage:
    """A scripted tool call."""
    call_id = "-".join([name, *map(str, arguments.values())])[:40]
    return AIMessage("", tool_calls=[{"id": call_id, "name": name, "args": arguments}])


MONDAY: list[tuple[str, list[AIMessage | str]]] = [
    (
        "I am vegetarian, please keep that in mind. Now find me a flight from Berlin to Lisbon on Friday.",
        [
            call("save_memory", text="The traveller is vegetarian.", quote="I am vegetarian"),
            call("search_flights", origin="BER", destination="LIS", day="Friday"),
            "There are sixty flights on Friday, from 79 euro.",
        ],
    ),
    (
        "And on Saturday?",
        [call("search_flights", origin="BER", destination="LIS", day="Saturday"), "Saturday is a little dearer."],
    ),
    (
        "And back on Monday?",
        [
            call("search_flights", origin="LIS", destination="BER", day="Monday"),
            "There are sixty flights back as well.",
        ],
    ),
    ("Book XY107, please.", [call("book_flight", flight="XY107"), "Booked XY107, reference LIS-4711."]),
]


def suggest_dinner(messages: list[Any]) -> str:
    """The scripted model reads what it was given: without the recalled memory it could not know."""
    seen = " ".join(message.text for message in messages).lower()
    if "vegetarian" in seen:
        return "Since you are vegetarian: try the vegetable rice and the grilled peppers by the river."
    return "Try the grilled sardines by the river."


THURSDAY: list[tuple[str, list[Any]]] = [("I am in Lisbon. Where should I eat dinner? I am hungry.", [suggest_dinner])]


def create_assistant(memory: AgentMemory, script: list[Any], narrator: Narrator) -> tuple[Any, str]:
    """The agent, and which chat model it runs on."""
    if os.environ.get("OPENAI_API_KEY"):
        from langchain_openai import ChatOpenAI

        model: Any = ChatOpenAI(model=os.environ.get("OPENAI_MODEL", "gpt-5-mini"))
        kind = f"the real model {model.model_name}"
    else:
        model = ScriptedChatModel(responses=script, profile={"max_input_tokens": 128_000})
        kind = "a SCRIPTED stand-in: its answers were written beforehand, everything else here is real"
    agent = create_agent(
        model,
        tools=[search_flights, book_flight],
        system_prompt=SYSTEM_PROMPT,
        checkpointer=memory.checkpointer,
        store=memory.store,
        middleware=[*memory.middleware(), narrator],
        context_schema=MemoryContext,
    )
    return agent, kind


def run_day(folder: str, day: str) -> None:
    """One day of the story, in this process."""
    turns = MONDAY if day == "monday" else THURSDAY
    with open_memory(folder, embeddings="local", on_event=tell_event) as memory:
        narrator = Narrator()
        agent, kind = create_assistant(memory, [reply for _, replies in turns for reply in replies], narrator)
        print(f"\n{day.title()} (process {os.getpid()}, thread {day!r}). The chat model is {kind}.")
        config: Any = {"configurable": {"thread_id": day}}
        for question, _ in turns:
            print(f"\n  user: {question}")
            result = agent.invoke({"messages": [HumanMessage(question)]}, config, context=USER)
            print(f"  assistant: {result['messages'][-1].text}")
        if day == "thursday":
            tell_recall(memory, turns[-1][0])
            seen = "yes" if "XY1" in narrator.seen else "no"
            print(f"  Anything of Monday's flight search in what the model saw: {seen}")
        else:
            print(f"\n  The thread keeps all of its {len(agent.get_state(config).values['messages'])} messages.")


def tell_recall(memory: AgentMemory, question: str) -> None:
    """What long-term memory holds for a question of this user, and how it is found."""
    found = LongTermMemory(memory.store).search(MemoryScope(tenant="default", user="ada"), question, threshold=None)
    print("\n  What long-term memory holds for this question:")
    for item in found.memories:
        record = item.record
        print(
            f"    {record.text!r}, saved on {record.created_at:%Y-%m-%d} in thread {record.sources[0].thread_id!r}, "
            f"retrieval: {item.retrieval}, score {item.score or 0:.2f} ({item.score_kind})"
        )


def main() -> None:
    """Both days, or one of them in this process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory", metavar="FOLDER", help="keep the memory here instead of in a temporary folder")
    parser.add_argument("--day", choices=["monday", "thursday"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.day:
        run_day(arguments.memory, arguments.day)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.memory or os.path.join(temporary, "agent_memory")
        for day in ("monday", "thursday"):  # two processes: only the folder is shared
            subprocess.run([sys.executable, __file__, "--memory", folder, "--day", day], check=True)


if __name__ == "__main__":
    main()
