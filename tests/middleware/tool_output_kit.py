"""What the tests of tool outputs share: an agent that calls given tools once, and stores that misbehave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.state import CompiledStateGraph
from langgraph.store.base import BaseStore, GetOp, Op, PutOp, Result
from langgraph.store.memory import InMemoryStore

from langmem_harness.events import MemoryEvent
from langmem_harness.middleware.tool_output import ToolOutputSummarizationMiddleware
from langmem_harness.testing import ScriptedChatModel

LOG = "\n".join(f"2024-01-01 00:00:{i % 60:02d} INFO worker step {i} of the nightly import is done" for i in range(600))
"""About 11,000 tokens."""


class Spy(InMemoryStore):
    """A store that records writes and can be told to fail."""

    def __init__(self, *, fault: str | None = None, only_async: bool = False) -> None:
        super().__init__()
        self.fault = fault
        self.only_async = only_async
        self.writes: list[PutOp] = []

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        assert not self.only_async, "the sync face was used from an event loop"
        return super().batch(self._seen(ops))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return await super().abatch(self._seen(ops))

    def _seen(self, ops: Iterable[Op]) -> list[Op]:
        seen: list[Op] = []
        for op in ops:
            if self.fault == "read" and isinstance(op, GetOp):
                raise ConnectionError("the store is down")
            if isinstance(op, PutOp):
                if self.fault == "write":
                    raise OSError("read-only file system")
                self.writes.append(op)
                if self.fault == "forget":
                    op = GetOp(op.namespace, op.key)
            seen.append(op)
        return seen


def tool_returning(result: Any, name: str = "search") -> StructuredTool:
    """A tool that gives back this value; a callable is called with the id of the call, an exception raised."""

    def run(q: str = "") -> Any:
        """Search."""
        if isinstance(result, BaseException):
            raise result
        return result() if callable(result) else result

    return StructuredTool.from_function(func=lambda q="": run(q), name=name, description="Search.")


def call(name: str, call_id: str = "c1", **arguments: Any) -> dict[str, Any]:
    return {"name": name, "args": arguments, "id": call_id}


class Run:
    """One turn of an agent that makes the given rounds of calls, and what came of it."""

    def __init__(
        self,
        tools: Sequence[Any],
        rounds: Sequence[Sequence[dict[str, Any]] | Callable[[list[BaseMessage]], AIMessage]],
        *,
        store: BaseStore | None = None,
        context_schema: type | None = None,
        **settings: Any,
    ) -> None:
        self.events: list[MemoryEvent] = []
        self.store = InMemoryStore() if store is None else store
        self.middleware = ToolOutputSummarizationMiddleware(on_event=self.events.append, **settings)
        self.model = ScriptedChatModel(
            responses=[
                *(each if callable(each) else AIMessage("", tool_calls=list(each)) for each in rounds),
                "done",
            ]
        )
        self.agent: CompiledStateGraph[Any, Any, Any, Any] = create_agent(
            self.model,
            list(tools),
            middleware=[self.middleware],
            checkpointer=InMemorySaver(),
            store=self.store,
            context_schema=context_schema,
        )

    def __call__(self, face: Any, *, thread_id: str = "t", **options: Any) -> list[ToolMessage]:
        """The tool messages of the turn."""
        config = {"configurable": {"thread_id": thread_id}}
        state = face(self.agent, "invoke", {"messages": [("user", "go")]}, config, **options)
        return [message for message in state["messages"] if isinstance(message, ToolMessage)]

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


def handle_of(message: BaseMessage) -> str:
    return str(message.additional_kwargs["langmem_harness"]["handle"])


def read_back(**arguments: Any) -> Callable[[list[BaseMessage]], AIMessage]:
    """A reply that reads the output of the first shortened result."""

    def reply(messages: list[BaseMessage]) -> AIMessage:
        handle = next(handle_of(each) for each in messages if "langmem_harness" in each.additional_kwargs)
        return AIMessage("", tool_calls=[call("read_tool_output", "r1", handle=handle, **arguments)])

    return reply


def inner(block: str) -> str:
    """What stands in the data block of a text."""
    return block.split(">\n", 1)[1].rsplit("\n</untrusted-data>", 1)[0]
