"""What a turn is, and what to do when it comes again. Pure."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
)
from langgraph.types import Command

from langmem_harness.errors import RecordError, TurnConflictError
from langmem_harness.threads.events import messages_body, messages_of, write_body
from langmem_harness.window.messages import canonical_json, content_hash, text_hash

ToolResult: TypeAlias = ToolMessage | Command[Any]

UNKNOWN_OUTCOME = (
    "Outcome unknown: this call was started before an interruption, and whether it took effect was not recorded. "
    "Check before you repeat it."
)
RESULT_NOT_KEPT = (
    "This call has already run to its end, but its result could not be recorded. Check its effect before you repeat it."
)


@dataclass(frozen=True, kw_only=True)
class RetryPlan:
    """What to do with the state when a turn comes that is in the log already.

    Attributes:
        update: Messages for the graph's reducer: removals, and what the state lacks.
        is_answered: Nothing is left to do; go to the end.
    """

    update: Sequence[BaseMessage] = field(default_factory=tuple)
    is_answered: bool


def newest_human(messages: Sequence[BaseMessage]) -> tuple[int, HumanMessage] | None:
    """Position and message of the newest human message, or None. A summary in the human role is nobody's word."""
    for position in range(len(messages) - 1, -1, -1):
        message = messages[position]
        if isinstance(message, HumanMessage) and message.additional_kwargs.get("lc_source") != "summarization":
            return position, message
    return None


def tool_step(since: Sequence[BaseMessage], call: ToolCall) -> str:
    """Name of a tool call of the current turn: ``tool:<call id>``.

    Ids come from the provider, and some providers use them again (or leave them empty): a later call of the turn with
    the same id gets ``#<n>`` behind it.

    Args:
        since: Messages behind the turn's human message.
        call: The call.
    """
    same = [other for other in _calls(since) if (other["id"] or "") == (call["id"] or "")]
    matching = [position for position, other in enumerate(same) if call_hash(other) == call_hash(call)]
    position = matching[-1] if matching else max(0, len(same) - 1)
    return f"tool:{call['id'] or ''}" + (f"#{position}" if position else "")


def occurrence(since: Sequence[BaseMessage], call: ToolCall) -> int:
    """How many calls of the same tool with the same arguments stand before this one in its turn."""
    same = [other["id"] for other in _calls(since) if call_hash(other) == call_hash(call)]
    return len(same) - 1 - same[::-1].index(call["id"]) if call["id"] in same else len(same)


def _calls(messages: Sequence[BaseMessage]) -> list[ToolCall]:
    return [call for message in messages if isinstance(message, AIMessage) for call in message.tool_calls]


def call_hash(call: ToolCall) -> str:
    """Tagged hash of what is called and with what."""
    return text_hash(canonical_json([call["name"], call["args"]]))


def plan_retry(
    messages: Sequence[BaseMessage], logged: Sequence[BaseMessage], *, known_ids: Collection[str | None], is_done: bool
) -> RetryPlan:
    """What to do with a state whose newest human message belongs to a turn that is in the log.

    Args:
        messages: The state, ending with the turn's human message or with what was saved after it.
        logged: Messages of the turn in the log, its human message first.
        known_ids: Ids of every message in the thread's log: a human message that is not among them was left by a run
            that died before it came to the log.
        is_done: Whether the turn was answered.

    Returns:
        For an answered turn: take out the repeated human message, put in what the state lacks, and end. Otherwise take
        out the repeated human message and what was saved of the unfinished turn; the run then goes through the turn
        again and gets what is logged from the log.

    Raises:
        TurnConflictError: The turn was not finished and another turn followed it.
    """
    first = logged[0]
    # The same message comes again with every retry, under an id of its own: the logged one is the one that stays.
    repeated = {message.id for message in messages if _repeats(message, first, known_ids)}
    repeated |= _repeated_company(messages, first, repeated, known_ids)
    removals: list[BaseMessage] = [RemoveMessage(id=name) for name in sorted(filter(None, repeated))]
    messages = [message for message in messages if message.id not in repeated]
    position = next((index for index, message in enumerate(messages) if message.id == first.id), None)
    later = [] if position is None else messages[position + 1 :]
    another_turn_followed = any(isinstance(message, HumanMessage) for message in later)
    if is_done:
        present = {message.id for message in messages}
        lacking = [] if another_turn_followed else [message for message in logged if message.id not in present]
        if lacking:  # what the state has in their place answers the message on another branch, or for another user
            own = {message.id for message in logged}
            removals += [RemoveMessage(id=message.id) for message in later if message.id and message.id not in own]
        return RetryPlan(update=[*removals, *lacking], is_answered=True)
    if position is None:  # it was logged, and the checkpoint that had it was never written
        return RetryPlan(update=[*removals, first], is_answered=False)
    if another_turn_followed:
        raise TurnConflictError(
            "this turn was not finished and another one followed it in the thread: send it again under a new turn_id"
        )
    removals += [RemoveMessage(id=message.id) for message in later if message.id is not None]
    return RetryPlan(update=removals, is_answered=False)


def _repeated_company(
    messages: Sequence[BaseMessage],
    first: BaseMessage,
    repeated: Collection[str | None],
    known_ids: Collection[str | None],
) -> set[str | None]:
    """Ids of the copies of what came in before the human message: a retry sends that again, too."""
    position = next((index for index, message in enumerate(messages) if message.id == first.id), None)
    copy = next((index for index in range(len(messages) - 1, -1, -1) if messages[index].id in repeated), None)
    company: set[str | None] = set()
    if position is None or copy is None:
        return company
    for before, again in zip(reversed(messages[:position]), reversed(messages[position + 1 : copy]), strict=False):
        is_input = isinstance(again, HumanMessage | SystemMessage) and again.id not in known_ids
        if not is_input or content_hash(before) != content_hash(again):
            break
        company.add(again.id)
    return company


def find_leftovers(
    before: Sequence[BaseMessage], human: BaseMessage, known_ids: Collection[str | None]
) -> list[BaseMessage]:
    """Removals of copies of a new turn's message that runs left in the state which died before they could log it."""
    leftovers: list[BaseMessage] = []
    for message in reversed(before):
        if message.id is None or not _repeats(message, human, known_ids):
            break
        leftovers.append(RemoveMessage(id=message.id))
    return leftovers


def has_copies(messages: Sequence[BaseMessage], human: BaseMessage) -> bool:
    """Whether a human message says the same under another id."""
    return any(_repeats(message, human, ()) for message in messages)


def _repeats(message: BaseMessage, human: BaseMessage, known_ids: Collection[str | None]) -> bool:
    return (
        isinstance(message, HumanMessage)
        and message.id is not None
        and message.id != human.id
        and message.id not in known_ids
        and content_hash(message) == content_hash(human)
    )


def with_id(message: BaseMessage) -> BaseMessage:
    """The message, or a copy with an id if it has none: log and state must agree on it."""
    return message if message.id is not None else message.model_copy(update={"id": str(uuid.uuid4())})


def unknown_result(call: ToolCall, text: str = UNKNOWN_OUTCOME) -> ToolMessage:
    """What the model gets for a call nobody knows the end of."""
    return ToolMessage(text, tool_call_id=call["id"] or "", name=call["name"], status="error", id=str(uuid.uuid4()))


def result_body(call: ToolCall, result: Any) -> tuple[Any, dict[str, Any]]:
    """The result with message ids, and the log body it is written as.

    A result that plain JSON cannot hold is logged as finished without a result.
    """
    result = _with_ids(result)
    body: dict[str, Any] = {"call": call_hash(call)}
    try:
        stored = _result_dict(result)
        write_body(stored)
    except RecordError:
        return result, {**body, "result_not_kept": True}
    return result, {**body, **stored}


def result_of(call: ToolCall, body: Mapping[str, Any]) -> Any:
    """The result in a log body.

    Raises:
        TurnConflictError: It is the result of another call under the same id.
        RecordError: It cannot be read.
    """
    if body.get("call") != call_hash(call):
        raise TurnConflictError(
            f"tool call {call['id']!r} of this turn is in the log with another name or other arguments"
        )
    if body.get("result_not_kept"):
        return unknown_result(call, RESULT_NOT_KEPT)
    return _result_from(json.loads(write_body(body)))


def result_again(call: ToolCall, body: Mapping[str, Any]) -> Any:
    """The result in the log body of an earlier call, as the result of this one.

    Raises:
        RecordError: It cannot be read.
    """
    return _readdressed(result_of(call, body), call)


def _readdressed(result: Any, call: ToolCall) -> Any:
    if isinstance(result, ToolMessage):
        return result.model_copy(update={"tool_call_id": call["id"] or "", "id": str(uuid.uuid4())})
    if isinstance(result, list):
        return [_readdressed(item, call) for item in result]
    if isinstance(result, Command) and isinstance(result.update, dict):
        update = {key: _readdressed(value, call) for key, value in result.update.items()}
        return Command(graph=result.graph, update=update, resume=result.resume, goto=result.goto)
    return result


def _with_ids(result: Any) -> Any:
    if isinstance(result, BaseMessage):
        return with_id(result)
    if isinstance(result, list):
        return [_with_ids(item) for item in result]
    if isinstance(result, Command) and isinstance(result.update, dict):
        update = {
            key: _with_ids(value) if isinstance(value, BaseMessage | list) else value
            for key, value in result.update.items()
        }
        return Command(graph=result.graph, update=update, resume=result.resume, goto=result.goto)
    return result


def _result_dict(result: Any) -> dict[str, Any]:
    if isinstance(result, BaseMessage):
        return messages_body([result])
    if isinstance(result, list):
        return {"several": [_result_dict(item) for item in result]}
    if isinstance(result, Command) and (result.update is None or isinstance(result.update, dict)):
        update = {key: _value_dict(value) for key, value in (result.update or {}).items()}
        return {"command": {"update": update, "graph": result.graph, "resume": result.resume, "goto": result.goto}}
    raise RecordError("a tool result of this kind has no JSON form")


def _value_dict(value: Any) -> dict[str, Any]:
    if isinstance(value, list) and value and all(isinstance(item, BaseMessage) for item in value):
        return messages_body(value)
    return {"value": value}


def _result_from(body: Mapping[str, Any]) -> Any:
    if "several" in body:
        return [_result_from(item) for item in body["several"]]
    if "command" in body:
        stored = body["command"]
        update = {
            key: messages_of(value) if "messages" in value else value.get("value")
            for key, value in stored["update"].items()
        }
        return Command(graph=stored["graph"], update=update, resume=stored["resume"], goto=stored["goto"])
    return messages_of(body)[0]
