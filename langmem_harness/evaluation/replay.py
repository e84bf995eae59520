"""Plays a recorded conversation through a real agent graph and measures what every model call saw.

The graph is `create_agent` with the real checkpointer, store, thread log and middleware. A chat model plays the
recorded assistant messages, tools return the recorded results. What is measured is the finished request, read right
before the model. A turn can be sent a second time, as a client does that lost the answer.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain.agents.middleware.types import ToolCallRequest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.types import Command

from langmem_harness.evaluation.recordings import RecordedConversation
from langmem_harness.events import MemoryEvent, ToolOutputOffloaded, TurnReplayed
from langmem_harness.middleware.tool_output import ToolOutputSummarizationMiddleware
from langmem_harness.middleware.tool_settings import Trigger
from langmem_harness.middleware.turns import DurableTurnsMiddleware
from langmem_harness.pairing import AgentMemory
from langmem_harness.testing import ScriptedChatModel
from langmem_harness.window.messages import canonical_json, content_hash, tag_of
from langmem_harness.window.rules import RuleViolation, check_request
from langmem_harness.window.tokens import estimate_tokens

REPLAY_WINDOW_TOKENS = 128_000
"""Context window of the replay model, for triggers that are fractions."""


@dataclass(frozen=True, kw_only=True)
class CallMeasurement:
    """One model call.

    Attributes:
        call: Number of the call in its conversation, from 1.
        thread_messages: Messages in the thread, system prompt included.
        thread_tokens: Their estimated tokens, tool results in their full size: the request without this package.
        request_messages: Messages in the request.
        request_tokens: Their estimated tokens.
        prefix_share: Share of the request's bytes that the previous request began with, 0 to 1; 0 for the first call.
        is_prefix_break: Whether the previous request is not wholly the start of this one.
        cut_moved: Whether more was left out than in the previous request.
        first_human_sent: Whether the opening human message was in the request, unchanged.
        newest_human_sent: Whether the newest one was.
        violations: Providers' rules the request breaks.
    """

    call: int
    thread_messages: int
    thread_tokens: int
    request_messages: int
    request_tokens: int
    prefix_share: float
    is_prefix_break: bool
    cut_moved: bool
    first_human_sent: bool
    newest_human_sent: bool
    violations: tuple[RuleViolation, ...]


@dataclass(frozen=True, kw_only=True)
class OffloadedOutput:
    """A tool result that was stored and shortened.

    Attributes:
        call: Number of the model call that saw it first; one more than there are, if none did.
        tool: Name of the tool.
        handle: What the raw text is read back with.
        token_count_before: Estimated tokens of the result.
        token_count_after: Of what stands in its place.
    """

    call: int
    tool: str
    handle: str
    token_count_before: int
    token_count_after: int


@dataclass(frozen=True, kw_only=True)
class ReplayReport:
    """All model calls of one conversation; the totals are derived.

    Attributes:
        source: File of the recording.
        name: Its place in the file.
        turns: Turns played.
        turns_replayed: Turns that were sent again and answered from the log, without a model call.
        calls: In order.
        tool_outputs: Tool results that were stored and shortened, in order.
        notes: What had to be mended in the recording, counted by kind.
    """

    source: str
    name: str
    turns: int
    turns_replayed: int
    calls: tuple[CallMeasurement, ...]
    tool_outputs: tuple[OffloadedOutput, ...]
    notes: dict[str, int]

    def totals(self) -> dict[str, Any]:
        """The totals of this conversation, as `replay_totals` gives them."""
        return replay_totals([self])

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, totals included."""
        return {**asdict(self), "totals": self.totals()}


def replay_totals(reports: Sequence[ReplayReport]) -> dict[str, Any]:
    """Totals over conversations.

    Returns:
        ``input_tokens`` and ``input_tokens_without`` (compaction), ``reusable_prefix_share`` (tokens a prompt cache can
        serve, of all input tokens), ``prefix_breaks``, ``cuts``, ``largest_request_tokens``,
        ``first_human_in_every_request``, ``newest_human_in_every_request``, ``violations``, ``calls``,
        ``conversations``, ``turns``, ``turns_replayed``, ``tool_outputs_offloaded``, ``tool_output_tokens_before`` and
        ``tool_output_tokens_after``.
    """
    calls = [call for report in reports for call in report.calls]
    outputs = [output for report in reports for output in report.tool_outputs]
    sent = sum(call.request_tokens for call in calls)
    return {
        "conversations": len(reports),
        "calls": len(calls),
        "input_tokens": sent,
        "input_tokens_without": sum(call.thread_tokens for call in calls),
        "reusable_prefix_share": sum(call.prefix_share * call.request_tokens for call in calls) / sent if sent else 0.0,
        "prefix_breaks": sum(call.is_prefix_break for call in calls),
        "cuts": sum(call.cut_moved for call in calls),
        "largest_request_tokens": max((call.request_tokens for call in calls), default=0),
        "first_human_in_every_request": all(call.first_human_sent for call in calls),
        "newest_human_in_every_request": all(call.newest_human_sent for call in calls),
        "violations": sum(len(call.violations) for call in calls),
        "turns": sum(report.turns for report in reports),
        "turns_replayed": sum(report.turns_replayed for report in reports),
        "tool_outputs_offloaded": len(outputs),
        "tool_output_tokens_before": sum(output.token_count_before for output in outputs),
        "tool_output_tokens_after": sum(output.token_count_after for output in outputs),
    }


def replay_conversation(
    conversation: RecordedConversation,
    memory: AgentMemory,
    middleware: Sequence[AgentMiddleware[Any, Any]],
    *,
    tool_output_trigger: Trigger | None = None,
    sends_twice: bool = False,
    on_call: Callable[[CallMeasurement], None] | None = None,
) -> ReplayReport:
    """Play one conversation on a thread of its own, with durable turns.

    Args:
        conversation: What was said.
        memory: Checkpointer, store and thread log of the graph.
        middleware: The policy that is tried, outermost first.
        tool_output_trigger: Tool results above this are stored and shortened; None leaves them as they are. Recorded
            tools count as trusted: their results are not delimited.
        sends_twice: Whether every turn is sent again when it is answered, as a client does that lost the answer.
        on_call: Gets every measurement as it is made, for progress bars.
    """
    turns = list(_turns(conversation.messages))
    script = [message for _, answers in turns for message in answers if isinstance(message, AIMessage)]
    probe = RequestProbe(conversation.system_prompt, on_call)
    seen = _Seen(probe)
    results = {
        message.tool_call_id: message for _, answers in turns for message in answers if isinstance(message, ToolMessage)
    }
    model = ScriptedChatModel(responses=script, profile={"max_input_tokens": REPLAY_WINDOW_TOKENS})
    agent: Any = create_agent(
        model,
        tools=_recorded_tools(script),
        system_prompt=conversation.system_prompt,
        middleware=[
            DurableTurnsMiddleware(memory.thread_log, on_event=seen.note),
            *middleware,
            *_shorteners(tool_output_trigger, memory, seen),
            probe,
            _RecordedResults(results),
        ],
        checkpointer=memory.checkpointer,
        store=memory.store,
    )
    thread_id = f"replay-{uuid.uuid4()}"
    played = [(said, answers) for said, answers in turns if answers]
    for number, (said, _) in enumerate(played, start=1):
        given = [
            message.model_copy(update={"id": f"turn-{number}-{part}"}) for part, message in enumerate(said, start=1)
        ]
        config = {
            "configurable": {"thread_id": thread_id, "turn_id": f"turn-{number}"},
            "recursion_limit": 4 * len(script) + 50,
        }
        for _ in range(2 if sends_twice else 1):
            agent.invoke({"messages": given}, config)
    return ReplayReport(
        source=conversation.source,
        name=conversation.name,
        turns=len(played),
        turns_replayed=seen.turns_replayed,
        calls=tuple(probe.calls),
        tool_outputs=tuple(seen.tool_outputs),
        notes=dict(conversation.notes),
    )


class _Seen:
    """Collects what the middleware of one conversation reports."""

    def __init__(self, probe: RequestProbe) -> None:
        self.turns_replayed = 0
        self.tool_outputs: list[OffloadedOutput] = []
        self._probe = probe

    def note(self, event: MemoryEvent) -> None:
        if isinstance(event, TurnReplayed):
            self.turns_replayed += event.action == "answered"
        if isinstance(event, ToolOutputOffloaded):
            self.tool_outputs.append(
                OffloadedOutput(
                    call=len(self._probe.calls) + 1,
                    tool=event.tool,
                    handle=event.handle,
                    token_count_before=event.token_count_before,
                    token_count_after=event.token_count_after,
                )
            )
            self._probe.saved_tokens[event.tool_call_id] = event.token_count_before - event.token_count_after


def _shorteners(trigger: Trigger | None, memory: AgentMemory, seen: _Seen) -> list[AgentMiddleware[Any, Any]]:
    if trigger is None:
        return []
    return [
        ToolOutputSummarizationMiddleware(
            trigger,
            untrusted_tools=(),
            store=memory.store,
            context_window=REPLAY_WINDOW_TOKENS,
            on_event=seen.note,
        )
    ]


def _turns(messages: Sequence[BaseMessage]) -> Iterator[tuple[list[BaseMessage], list[BaseMessage]]]:
    """``(what comes in, what the assistant did)`` per turn; an assistant's opening belongs to what comes in first."""
    said: list[BaseMessage] = []
    parts = [
        (is_input, list(part))
        for is_input, part in groupby(messages, key=lambda message: isinstance(message, HumanMessage | SystemMessage))
    ]
    for is_input, part in parts:
        if is_input or not any(isinstance(message, HumanMessage) for message in said):
            said += part
            continue
        yield said, part
        said = []


def _recorded_tools(script: Sequence[AIMessage]) -> list[BaseTool]:
    def not_recorded(**_: Any) -> str:
        raise AssertionError("recorded results answer every call")

    names = sorted({call["name"] for message in script for call in message.tool_calls})
    schema = {"type": "object", "properties": {}, "additionalProperties": True}
    return [
        StructuredTool.from_function(not_recorded, name=name, description="A recorded tool.", args_schema=schema)
        for name in names
    ]


class _RecordedResults(AgentMiddleware[Any, Any]):
    """Answers every tool call with its recorded result."""

    def __init__(self, results: dict[str, ToolMessage]) -> None:
        super().__init__()
        self._results = results

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]]
    ) -> ToolMessage | Command[Any]:
        return self._results[request.tool_call["id"] or ""].model_copy(deep=True)

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
    ) -> ToolMessage | Command[Any]:
        return self._results[request.tool_call["id"] or ""].model_copy(deep=True)


class RequestProbe(AgentMiddleware[Any, Any]):
    """Measures every finished request; put it last (innermost), right before the model.

    Args:
        system_prompt: The agent's, for the size of the thread.
        on_call: Gets every measurement as it is made.

    Attributes:
        calls: All measurements so far, in order.
        saved_tokens: By tool call id, the tokens by which a result in the thread is shorter than it was.
    """

    def __init__(
        self, system_prompt: str | None = None, on_call: Callable[[CallMeasurement], None] | None = None
    ) -> None:
        super().__init__()
        self.calls: list[CallMeasurement] = []
        self.saved_tokens: dict[str, int] = {}
        self._system_prompt = system_prompt
        self._on_call = on_call
        self._previous: list[str] = []
        self._omitted = 0

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        self._measure(request)
        return handler(request)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        self._measure(request)
        return await handler(request)

    def _measure(self, request: ModelRequest[Any]) -> None:
        system = [request.system_message] if request.system_message is not None else []
        sent: list[BaseMessage] = [*system, *request.messages]
        thread: list[BaseMessage] = [*system, *request.state["messages"]]
        written = [_as_sent(message) for message in sent]
        shared = _shared_characters(self._previous, written)
        omitted = sum((tag_of(message) or {}).get("omitted", 0) for message in sent)
        people = [message for message in thread if isinstance(message, HumanMessage)]
        hashes = {content_hash(message) for message in sent}
        measurement = CallMeasurement(
            call=len(self.calls) + 1,
            thread_messages=len(thread),
            thread_tokens=estimate_tokens(thread)
            + sum(
                self.saved_tokens.get(message.tool_call_id, 0) for message in thread if isinstance(message, ToolMessage)
            ),
            request_messages=len(sent),
            request_tokens=estimate_tokens(sent),
            prefix_share=shared / sum(map(len, written)),
            is_prefix_break=shared < sum(map(len, self._previous)),
            cut_moved=omitted > self._omitted,
            first_human_sent=not people or content_hash(people[0]) in hashes,
            newest_human_sent=not people or content_hash(people[-1]) in hashes,
            violations=tuple(check_request(sent)),
        )
        self.calls.append(measurement)
        self._previous, self._omitted = written, omitted
        if self._on_call is not None:
            self._on_call(measurement)


def _as_sent(message: BaseMessage) -> str:
    """What of a message a provider gets, as one text."""
    calls = (
        [[call["id"], call["name"], call["args"]] for call in message.tool_calls]
        if isinstance(message, AIMessage)
        else []
    )
    call_id = message.tool_call_id if isinstance(message, ToolMessage) else ""
    return canonical_json([message.type, message.name or "", call_id, calls, message.content])


def _shared_characters(previous: Sequence[str], current: Sequence[str]) -> int:
    """Length of the common start of two requests."""
    shared = 0
    for before, now in zip(previous, current, strict=False):
        if before == now:
            shared += len(now)
            continue
        return shared + next(
            (index for index, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), min(len(before), len(now))
        )
    return shared
