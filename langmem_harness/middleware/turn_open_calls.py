"""Calls that were left open: what the model is told about a tool call that another turn followed."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.messages import AIMessage, BaseMessage, ToolCall, ToolMessage

from langmem_harness.threads.log import ThreadLog
from langmem_harness.threads.steps import TurnSteps

NOT_CARRIED_OUT = (
    "This call was not carried out: it was waiting to start, for an approval perhaps, when the conversation went on."
)


class OpenCalls:
    """Tells calls that never started from those with an unknown outcome.

    Args:
        log: Says which turn a call belongs to, and which calls ended.
        steps: Says which calls were started.
    """

    def __init__(self, log: ThreadLog, steps: TurnSteps) -> None:
        self._log = log
        self._steps = steps

    def settle(self, thread_id: str, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        """The messages with a result for every call that never started; reads the log only if a call is open."""
        calls = open_calls(messages)
        if not calls:
            return list(messages)
        turn_of = {
            message.id: event.turn_id
            for event in self._log.events(thread_id)
            if event.kind.startswith("assistant:")
            for message in event.messages()
        }
        results: dict[int, list[ToolMessage]] = {}
        for position, call in calls:
            turn_id = turn_of.get(messages[position].id)
            if turn_id is not None and not self._steps.was_started(thread_id, turn_id, f"tool:{call['id'] or ''}"):
                results.setdefault(position, []).append(_not_carried_out(messages[position], call))
        return [each for position, message in enumerate(messages) for each in (message, *results.get(position, ()))]


def open_calls(messages: Sequence[BaseMessage]) -> list[tuple[int, ToolCall]]:
    """Calls without a result before the next message that is none, each with the position of its message. Pure."""
    found: list[tuple[int, ToolCall]] = []
    for position, message in enumerate(messages):
        if not isinstance(message, AIMessage) or not message.tool_calls:
            continue
        answered: set[str] = set()
        for later in messages[position + 1 :]:
            if not isinstance(later, ToolMessage):
                break
            answered.add(later.tool_call_id)
        found += [(position, call) for call in message.tool_calls if (call["id"] or "") not in answered]
    return found


def _not_carried_out(message: BaseMessage, call: ToolCall) -> ToolMessage:
    """The same message every time, so that the prefix of later requests stays the same."""
    call_id = call["id"] or ""
    return ToolMessage(
        NOT_CARRIED_OUT, tool_call_id=call_id, name=call["name"], status="error", id=f"{message.id}:{call_id}:open"
    )
