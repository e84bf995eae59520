"""`DurableTurnsMiddleware`: a turn that is retried is answered once, and nothing in it is done twice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse, hook_config
from langchain.agents.middleware.types import ExtendedModelResponse
from langchain.tools.tool_node import ToolCallRequest
from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage, ToolMessage
from langgraph.config import get_config
from langgraph.errors import GraphBubbleUp
from langgraph.runtime import Runtime
from langgraph.types import Command

from langmem_harness.driving import Ask, Body, adrive, computed, drive
from langmem_harness.errors import ConfigurationError, TurnConflictError, TurnInProgressError
from langmem_harness.events import EventCallback, TurnReplayed, TurnsOverlap, TurnWaiting, emit
from langmem_harness.memory.scope import thread_from_config
from langmem_harness.middleware.structured_answers import STRUCTURED_KEY, structured_answer, structured_value
from langmem_harness.middleware.turn_identity import Turn, TurnFinder, TurnState, messages_in, prefix_hash
from langmem_harness.middleware.turn_open_calls import OpenCalls
from langmem_harness.middleware.turn_parts import is_nested
from langmem_harness.middleware.turn_plan import (
    ToolResult,
    call_hash,
    has_copies,
    newest_human,
    occurrence,
    plan_retry,
    result_again,
    result_body,
    result_of,
    tool_step,
    unknown_result,
    with_id,
)
from langmem_harness.threads.events import TurnEvent, messages_body
from langmem_harness.threads.log import ThreadLog
from langmem_harness.threads.steps import Busy, Claim, ClaimOutcome, Lost, TurnSteps
from langmem_harness.window.messages import content_hash

_POLL_SECONDS = 0.05


class DurableTurnsMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Makes turns durable: every step is logged when it is done, and a retried turn takes from the log what is there.

    The incoming message is logged before anything else, every model answer before its tools run, every tool result
    before the model sees it. A turn that is already answered gives its logged answer without a model call. A turn that
    died in the middle goes on: logged answers and results are used again. A tool call that was started and has no
    logged result gives "outcome unknown, check before you repeat it", unless the tool is safe to repeat. Two workers
    with the same turn run each step once.

    Which turn it is comes from the caller: attribute or key ``turn_id`` of the runtime context, or
    ``config["configurable"]["turn_id"]``, for one thread and user. Otherwise it is the newest human message (id and
    content) with what precedes it, for one thread and user: a retry is the same turn, an edited or forked history is
    another. A run that is told to start from a checkpoint of an answered turn asks the model again; a call of that turn
    that is made again, name and arguments alike, gets its logged result unless the tool is safe to repeat.

    Put it first in the list, so that it is around the other middleware.

    Args:
        thread_log: Where steps are logged.
        safe_to_repeat: Names of tools that may run again when their outcome is unknown (look-ups, idempotent writes).
            A tool with ``metadata={"safe_to_repeat": True}`` is one, too.
        lease_seconds: How long a worker that stopped responding keeps its step; above 0. A retry after a crash waits
            this long at most.
        wait_seconds: How long to wait for another worker that runs the same step; 0 or more.
        on_event: Gets a `TurnReplayed` for everything taken from the log.

    Raises:
        ConfigurationError: A time is out of range.

    Example:
        >>> middleware = DurableTurnsMiddleware(ThreadLog(":memory:"), safe_to_repeat={"search"})
    """

    state_schema = TurnState

    def __init__(
        self,
        thread_log: ThreadLog,
        *,
        safe_to_repeat: Collection[str] = (),
        lease_seconds: float = 15.0,
        wait_seconds: float = 120.0,
        on_event: EventCallback | None = None,
    ) -> None:
        super().__init__()
        if lease_seconds <= 0:
            raise ConfigurationError(f"lease_seconds must be above 0, not {lease_seconds!r}")
        if wait_seconds < 0:
            raise ConfigurationError(f"wait_seconds must be 0 or more, not {wait_seconds!r}")
        if isinstance(safe_to_repeat, str):
            raise ConfigurationError("safe_to_repeat takes a collection of tool names, not one text")
        self._log = thread_log
        self._finder = TurnFinder(thread_log, self._emit_asked_again)
        self._steps = TurnSteps(thread_log, lease_seconds=lease_seconds)
        self._open_calls = OpenCalls(thread_log, self._steps)
        self._safe_to_repeat = frozenset(safe_to_repeat)
        self._wait_seconds = wait_seconds
        self._on_event = on_event

    # -- hooks --------------------------------------------------------------------------------------------------

    @hook_config(can_jump_to=["end"])
    def before_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Log the incoming message; answer or prepare a turn that came before."""
        return self._begin(state, runtime.context, get_config())

    @hook_config(can_jump_to=["end"])
    async def abefore_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Async twin of `before_agent`."""
        return await asyncio.to_thread(self._begin, state, runtime.context, get_config())

    def after_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Log that the turn is answered."""
        return self._end(state, runtime.context, get_config())

    async def aafter_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Async twin of `after_agent`."""
        return await asyncio.to_thread(self._end, state, runtime.context, get_config())

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Run a model call once; its logged answer is used again."""
        response: ModelResponse[Any] | ExtendedModelResponse[Any] = drive(
            self._model_call(request, partial(_from_sync, handler))
        )
        return response

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Async twin of `wrap_model_call`."""
        response: ModelResponse[Any] | ExtendedModelResponse[Any] = await adrive(
            self._model_call(request, partial(_from_async, handler))
        )
        return response

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolResult]) -> ToolResult:
        """Run a tool call once; its logged result is used again."""
        result: ToolResult = drive(self._tool_call(request, _from_sync(handler, request)))
        return result

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolResult]]
    ) -> ToolResult:
        """Async twin of `wrap_tool_call`."""
        result: ToolResult = await adrive(self._tool_call(request, _from_async(handler, request)))
        return result

    # -- beginning and end of a turn ----------------------------------------------------------------------------

    def _begin(self, state: Any, context: Any, config: Any) -> dict[str, Any] | None:
        if is_nested(config):
            return self._begin_part(state, context, config)
        turn = self._finder.find(state, context, config, begins=True)
        if turn is None or turn.human is None:
            return None
        logged = self._log.get_event(turn.thread_id, turn.turn_id, "user")
        if logged is None:
            try:
                self._log.append_event(turn.thread_id, turn.turn_id, "user", turn.user_body(turn.human))
            except TurnConflictError:  # another worker was first, with another copy of the message or another message
                return self._begin(state, context, config)
            if others := [each for each in self._steps.running(turn.thread_id) if each != turn.turn_id]:
                event = TurnsOverlap(thread_id=turn.thread_id, turn_id=turn.turn_id, others=tuple(others))
                emit(event, self._on_event)
            # What follows the message in the state answers it on another branch, or for another user.
            stale = [RemoveMessage(id=message.id) for message in turn.since if message.id is not None]
            return {"messages": [*turn.leftovers, *stale], "durable_turn": turn.mark.to_dict()}
        if content_hash(logged.messages()[0]) != content_hash(turn.human):
            raise TurnConflictError(
                f"turn {turn.turn_id!r} is in the log with another message: use a new turn_id for other content"
            )
        events = self._log.events(turn.thread_id, turn_id=turn.turn_id)
        messages, said = messages_in(state), self._log.messages(turn.thread_id, turn_id=turn.turn_id)
        plan = plan_retry(
            messages,
            said,
            known_ids=self._finder.known_ids(turn.thread_id) if has_copies(messages, said[0]) else (),
            is_done=any(event.kind == "done" for event in events),
        )
        update: dict[str, Any] = {"messages": list(plan.update), "durable_turn": turn.mark.to_dict()}
        if not plan.is_answered:
            return update
        return self._answered(turn, update, events, messages)

    def _answered(
        self, turn: Turn, update: dict[str, Any], events: Sequence[TurnEvent], messages: Sequence[BaseMessage]
    ) -> dict[str, Any]:
        self._emit(turn, "answered")
        last = _last_structured(events)
        kept = {message.id for message in last.messages()} if last is not None else set()
        removed = {each.id for each in update["messages"] if isinstance(each, RemoveMessage)}
        newest = [each.id for each in messages if each.id not in removed][-1:]
        if last is not None and (turn.mark.part or kept & {*newest, *(each.id for each in update["messages"])}):
            # The state has no structured answer, or as plain JSON (a strict serializer made that of it), and only the
            # model step knows its type: it takes that from the log.
            update["messages"] = [message for message in update["messages"] if message.id not in kept]
            update["durable_turn"]["asked"] = _number_of(last)
            if turn.mark.part is None:  # a copy of the logged message is not in the state any more
                update["durable_turn"]["human_id"] = events[0].messages()[0].id
        else:
            update["jump_to"] = "end"
        return update

    def _begin_part(self, state: Any, context: Any, config: Any) -> dict[str, Any] | None:
        begun = self._finder.begin_part(state, context, config)
        if begun is None:  # an earlier mark may be in the state of an agent that keeps it from turn to turn
            human = newest_human(messages_in(state))
            turn_id = "" if human is None else str(human[1].id)
            event = TurnReplayed(thread_id=thread_from_config(config), turn_id=turn_id, action="passed_through")
            emit(event, self._on_event)
            return {"durable_turn": {}}
        turn, part = begun
        update: dict[str, Any] = {"messages": list(part.update), "durable_turn": turn.mark.to_dict()}
        if not part.is_answered:
            return update
        events = self._log.events(turn.thread_id, turn_id=turn.turn_id)
        return self._answered(turn, update, events, messages_in(state))

    def _end(self, state: Any, context: Any, config: Any) -> dict[str, Any] | None:
        turn = self._finder.find(state, context, config)
        if turn is None or (turn.mark.part is not None and self._finder.is_done(turn.thread_id, turn.turn_id)):
            return None  # an answered part may have said its logged answer again, as a copy
        answers = [
            event
            for event in self._log.events(turn.thread_id, turn_id=turn.turn_id)
            if event.kind.startswith("assistant:")
        ]
        logged = {message.id: event for event in answers for message in event.messages()}
        since = [message for message in turn.since if turn.human is not None or message.id in logged]
        if not since or not _is_answer(since[-1], logged):
            return None  # stopped on the way: there is no answer yet
        number = 1 + max(map(_number_of, answers), default=-1)
        for message in since:
            event = logged.get(message.id)
            if not isinstance(message, AIMessage):
                continue
            if event is None:
                # Another middleware said this in the model's place, or the model did before the turn was asked again.
                self._steps.finish(turn.thread_id, turn.turn_id, f"assistant:{number}", messages_body([message]))
                number += 1
            elif content_hash(event.messages()[0]) != content_hash(message):
                # Another middleware changed what the model said, to redact it perhaps. What was given out counts.
                self._steps.finish(
                    turn.thread_id,
                    turn.turn_id,
                    f"assistant:{_number_of(event)}:given",
                    messages_body([message, *event.messages()[1:]]),
                    supersedes=event.seq,
                )
        self._log.append_event(turn.thread_id, turn.turn_id, "done", {})
        if turn.human is None or turn.mark.part is not None:
            return None
        messages = messages_in(state)
        prefix = prefix_hash(messages[: len(messages) - len(turn.since) - 1])
        if prefix == turn.mark.prefix_hash:
            return None
        return {"durable_turn": {**turn.mark.to_dict(), "prefix_hash": prefix}}  # trimmed since; still this turn

    # -- steps --------------------------------------------------------------------------------------------------

    def _model_call(self, request: ModelRequest[Any], ask: Callable[[ModelRequest[Any]], Ask]) -> Body[Any]:
        state, config = request.state, get_config()
        turn = yield computed(lambda: self._finder.find(state, request.runtime.context, config))
        if turn is None:
            return (yield ask(request))
        step = f"assistant:{turn.mark.asked}"
        outcome = yield from self._claim(turn, step, repeatable=True)
        if isinstance(outcome, Lost):  # only a step that must not be repeated can be
            return (yield ask(request))
        if isinstance(outcome, TurnEvent):
            structured = structured_answer(outcome.body.get(STRUCTURED_KEY), request.response_format)
            if outcome.body.get(STRUCTURED_KEY) and structured is None:
                return (yield ask(request))  # it could not be kept, or has another type now; asking again has no effect
            self._emit(turn, "model_reused")
            return _with_mark(ModelResponse(result=outcome.messages(), structured_response=structured), turn)
        said = yield computed(lambda: self._open_calls.settle(turn.thread_id, request.messages))
        response = yield from self._run(outcome, ask(request.override(messages=said)), repeatable=True)
        if isinstance(response, AIMessage):
            response = ModelResponse(result=[response])
        answered: Any = getattr(response, "model_response", response)
        answered.result = [with_id(message) for message in answered.result]
        body = messages_body(answered.result)
        if answered.structured_response is not None:
            body[STRUCTURED_KEY] = structured_value(answered.structured_response)
        event = yield computed(lambda: self._steps.finish(turn.thread_id, turn.turn_id, step, body))
        if event.body.get("messages") != body["messages"]:  # this worker was too slow; the other one's answer counts
            structured = structured_answer(event.body.get(STRUCTURED_KEY), request.response_format)
            response = ModelResponse(result=event.messages(), structured_response=structured)
        return _with_mark(response, turn)

    def _tool_call(self, request: ToolCallRequest, run: Ask) -> Body[Any]:
        call, state, config = request.tool_call, request.state, get_config()
        turn = yield computed(lambda: self._finder.find(state, getattr(request.runtime, "context", None), config))
        if turn is None:
            return (yield run)
        step, is_repeatable = tool_step(turn.since, call), self._is_repeatable(request)
        outcome = yield from self._claim(turn, step, repeatable=is_repeatable)
        if isinstance(outcome, TurnEvent):
            self._emit(turn, "tool_reused", call["id"])
            return result_of(call, outcome.body)
        earlier: TurnEvent | None = None
        if isinstance(outcome, Claim) and turn.is_variant and not is_repeatable:
            earlier = yield computed(
                lambda: self._finder.earlier_result(turn, call_hash(call), occurrence(turn.since, call))
            )
        if isinstance(outcome, Lost):
            self._emit(turn, "outcome_unknown", call["id"])
            result = unknown_result(call)
        elif earlier is not None and turn.is_asked_again:
            self._emit(turn, "tool_reused", call["id"])
            result = result_again(call, earlier.body)
        else:
            if earlier is not None:
                self._emit(turn, "repeated", call["id"])
            result = yield from self._run(outcome, run, repeatable=False)
        result, body = result_body(call, result)
        event = yield computed(lambda: self._steps.finish(turn.thread_id, turn.turn_id, step, body))
        return result if event.body == body else result_of(call, event.body)

    def _run(self, claim: Claim, step: Ask, *, repeatable: bool) -> Body[Any]:
        try:
            with self._steps.held(claim):
                return (yield step)
        except GraphBubbleUp:
            # The tool paused itself, to ask a human for example. It runs from its beginning when it is resumed.
            self._steps.pause(claim)
            raise
        except BaseException:
            if repeatable:
                self._steps.withdraw(claim)
            else:
                self._steps.abandon(claim)
            raise

    def _claim(self, turn: Turn, step: str, *, repeatable: bool) -> Body[TurnEvent | Claim | Lost]:
        deadline, waits = time.monotonic() + self._wait_seconds, False
        while True:
            outcome: ClaimOutcome = yield computed(
                lambda: self._steps.claim(turn.thread_id, turn.turn_id, step, repeatable=repeatable)
            )
            if not isinstance(outcome, Busy):
                return outcome
            if time.monotonic() >= deadline:
                raise TurnInProgressError(
                    f"another worker still runs {step!r} of turn {turn.turn_id!r} after {self._wait_seconds} seconds; "
                    "try again later"
                )
            if not waits:
                waits = True
                emit(
                    TurnWaiting(
                        thread_id=turn.thread_id, turn_id=turn.turn_id, step=step, at_most_seconds=self._wait_seconds
                    ),
                    self._on_event,
                )
            yield Ask(do=lambda: time.sleep(_POLL_SECONDS), ado=lambda: asyncio.sleep(_POLL_SECONDS))

    def _is_repeatable(self, request: ToolCallRequest) -> bool:
        metadata = getattr(request.tool, "metadata", None) or {}
        return request.tool_call["name"] in self._safe_to_repeat or metadata.get("safe_to_repeat") is True

    def _emit_asked_again(self, thread_id: str, turn_id: str) -> None:
        emit(TurnReplayed(thread_id=thread_id, turn_id=turn_id, action="asked_again"), self._on_event)

    def _emit(self, turn: Turn, action: str, tool_call_id: str | None = None) -> None:
        emit(
            TurnReplayed(thread_id=turn.thread_id, turn_id=turn.turn_id, action=action, tool_call_id=tool_call_id),
            self._on_event,
        )


def _with_mark(response: Any, turn: Turn) -> ExtendedModelResponse[Any]:
    """The response, with one more model call in the state's mark."""
    update = {"durable_turn": {**turn.mark.to_dict(), "asked": turn.mark.asked + 1}}
    return ExtendedModelResponse(model_response=response, command=Command(update=update))


def _is_answer(message: BaseMessage, logged: Mapping[str | None, TurnEvent]) -> bool:
    if isinstance(message, ToolMessage):  # the call that carried a structured answer has a result, which ends the turn
        return message.id in logged and bool(logged[message.id].body.get(STRUCTURED_KEY))
    return isinstance(message, AIMessage) and not message.tool_calls


def _last_structured(events: Sequence[TurnEvent]) -> TurnEvent | None:
    """The model answer that ended the turn, if it was a structured one that was kept."""
    answers = [event for event in events if event.kind.startswith("assistant:") and event.supersedes is None]
    return answers[-1] if answers and isinstance(answers[-1].body.get(STRUCTURED_KEY), Mapping) else None


def _number_of(event: TurnEvent) -> int:
    return int(event.kind.split(":")[1])


def _from_sync(handler: Callable[[Any], Any], request: Any) -> Ask:
    async def wrong_face() -> Any:
        raise TypeError("a sync hook was driven from an event loop")

    return Ask(do=lambda: handler(request), ado=wrong_face)


def _from_async(handler: Callable[[Any], Awaitable[Any]], request: Any) -> Ask:
    def wrong_face() -> Any:
        raise TypeError("an async hook was driven without an event loop")

    return Ask(do=wrong_face, ado=lambda: handler(request))
