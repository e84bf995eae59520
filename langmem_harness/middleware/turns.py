"""`DurableTurnsMiddleware`: a turn that is retried is answered once, and nothing in it is done twice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse, hook_config
from langchain.tools.tool_node import ToolCallRequest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.config import get_config
from langgraph.errors import GraphBubbleUp
from langgraph.runtime import Runtime

from langmem_harness.driving import Ask, Body, adrive, computed, drive
from langmem_harness.errors import ConfigurationError, IdentityError, TurnConflictError, TurnInProgressError
from langmem_harness.events import EventCallback, TurnReplayed, emit
from langmem_harness.memory.scope import thread_from_config
from langmem_harness.middleware.turn_plan import (
    ToolResult,
    find_leftovers,
    forked_turn_id,
    model_step,
    newest_human,
    plan_retry,
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
_STRUCTURED = "structured"


class _Turn:
    """Which turn a hook runs in."""

    def __init__(self, thread_id: str, turn_id: str) -> None:
        self.thread_id = thread_id
        self.turn_id = turn_id


class DurableTurnsMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Makes turns durable: every step is logged when it is done, and a retried turn takes from the log what is there.

    The incoming message is logged before anything else, every model answer before its tools run, every tool result
    before the model sees it. A turn that is already answered gives its logged answer without a model call. A turn that
    died in the middle goes on: logged answers and results are used again. A tool call that was started and has no
    logged result gives "outcome unknown, check before you repeat it", unless the tool is safe to repeat. Two workers
    with the same turn run each step once.

    Which turn it is comes from the caller: attribute or key ``turn_id`` of the runtime context, or
    ``config["configurable"]["turn_id"]``; otherwise the id of the newest human message.

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
        self._steps = TurnSteps(thread_log, lease_seconds=lease_seconds)
        self._safe_to_repeat = frozenset(safe_to_repeat)
        self._wait_seconds = wait_seconds
        self._on_event = on_event

    # -- hooks --------------------------------------------------------------------------------------------------

    @hook_config(can_jump_to=["end"])
    def before_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Log the incoming message; answer or prepare a turn that came before."""
        return self._begin(state["messages"], runtime.context, get_config())

    @hook_config(can_jump_to=["end"])
    async def abefore_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Async twin of `before_agent`."""
        return await asyncio.to_thread(self._begin, state["messages"], runtime.context, get_config())

    def after_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Log that the turn is answered."""
        self._end(state["messages"], runtime.context, get_config())
        return None

    async def aafter_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Async twin of `after_agent`."""
        await asyncio.to_thread(self._end, state["messages"], runtime.context, get_config())
        return None

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Run a model call once; its logged answer is used again."""
        response: ModelResponse[Any] = drive(self._model_call(request, _from_sync(handler, request)))
        return response

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """Async twin of `wrap_model_call`."""
        response: ModelResponse[Any] = await adrive(self._model_call(request, _from_async(handler, request)))
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

    def _begin(self, messages: Sequence[BaseMessage], context: Any, config: Any) -> dict[str, Any] | None:
        found = newest_human(messages)
        turn = self._turn(messages, context, config)
        if found is None or turn is None:
            return None
        position, human = found
        logged = self._log.get_event(turn.thread_id, turn.turn_id, "user")
        if logged is None:
            self._log.append_event(turn.thread_id, turn.turn_id, "user", messages_body([human]))
            previous = messages[position - 1] if position else None
            if not isinstance(previous, HumanMessage):
                return None
            return {"messages": find_leftovers(messages[:position], human, self._known_ids(turn))}
        if content_hash(logged.messages()[0]) != content_hash(human):
            raise TurnConflictError(
                f"turn {turn.turn_id!r} is in the log with another message: use a new turn_id for other content"
            )
        is_done = self._log.get_event(turn.thread_id, turn.turn_id, "done") is not None
        said = self._log.messages(turn.thread_id, turn_id=turn.turn_id)
        plan = plan_retry(messages, said, known_ids=self._known_ids(turn), is_done=is_done)
        update: dict[str, Any] = {"messages": list(plan.update)}
        if plan.is_answered:
            self._emit(turn, "answered")
            update["jump_to"] = "end"
        return update

    def _known_ids(self, turn: _Turn) -> set[str | None]:
        return {message.id for message in self._log.messages(turn.thread_id)}

    def _end(self, messages: Sequence[BaseMessage], context: Any, config: Any) -> None:
        found = newest_human(messages)
        turn = self._turn(messages, context, config)
        if found is None or turn is None:
            return
        since = messages[found[0] + 1 :]
        if not since or not isinstance(since[-1], AIMessage) or since[-1].tool_calls:
            return  # stopped on the way: there is no answer yet
        for number, message in enumerate(message for message in since if isinstance(message, AIMessage)):
            logged = self._log.get_event(turn.thread_id, turn.turn_id, f"assistant:{number}")
            if logged is None:  # another middleware said this in the model's place
                self._log.append_event(turn.thread_id, turn.turn_id, f"assistant:{number}", messages_body([message]))
            elif content_hash(logged.messages()[0]) != content_hash(message):
                # Another middleware changed what the model said, to redact it perhaps. What was given out counts.
                self._steps.finish(
                    turn.thread_id,
                    turn.turn_id,
                    f"assistant:{number}:given",
                    messages_body([message, *logged.messages()[1:]]),
                    supersedes=logged.seq,
                )
        self._log.append_event(turn.thread_id, turn.turn_id, "done", {})

    # -- steps --------------------------------------------------------------------------------------------------

    def _model_call(self, request: ModelRequest[Any], call: Ask) -> Body[Any]:
        messages, config = request.state["messages"], get_config()
        turn = yield computed(lambda: self._turn(messages, request.runtime.context, config))
        if turn is None:
            return (yield call)
        step = model_step(messages)
        outcome = yield from self._claim(turn, step, repeatable=True)
        if isinstance(outcome, Lost):  # only a step that must not be repeated can be
            return (yield call)
        if isinstance(outcome, TurnEvent):
            if outcome.body.get(_STRUCTURED):
                return (yield call)  # the parsed object is not in the log; asking a model again has no effect
            self._emit(turn, "model_reused")
            return ModelResponse(result=outcome.messages())
        response = yield from self._run(outcome, call, repeatable=True)
        if isinstance(response, AIMessage):
            response = ModelResponse(result=[response])
        answered: Any = getattr(response, "model_response", response)
        answered.result = [with_id(message) for message in answered.result]
        body = messages_body(answered.result)
        if answered.structured_response is not None:
            body[_STRUCTURED] = True
        event = yield computed(lambda: self._steps.finish(turn.thread_id, turn.turn_id, step, body))
        if event.body.get("messages") != body["messages"]:
            return ModelResponse(result=event.messages())  # this worker was too slow; the other one's answer counts
        return response

    def _tool_call(self, request: ToolCallRequest, run: Ask) -> Body[Any]:
        call, state, config = request.tool_call, request.state, get_config()
        messages = state["messages"] if isinstance(state, dict) else getattr(state, "messages", [])
        turn = yield computed(lambda: self._turn(messages, getattr(request.runtime, "context", None), config))
        if turn is None:
            return (yield run)
        step = tool_step(messages, call)
        outcome = yield from self._claim(turn, step, repeatable=self._is_repeatable(request))
        if isinstance(outcome, TurnEvent):
            self._emit(turn, "tool_reused", call["id"])
            return result_of(call, outcome.body)
        if isinstance(outcome, Lost):
            self._emit(turn, "outcome_unknown", call["id"])
            result = unknown_result(call)
        else:
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
            self._steps.withdraw(claim)
            raise
        except BaseException:
            if repeatable:
                self._steps.withdraw(claim)
            else:
                self._steps.abandon(claim)
            raise

    def _claim(self, turn: _Turn, step: str, *, repeatable: bool) -> Body[TurnEvent | Claim | Lost]:
        deadline = time.monotonic() + self._wait_seconds
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
            yield Ask(do=lambda: time.sleep(_POLL_SECONDS), ado=lambda: asyncio.sleep(_POLL_SECONDS))

    def _is_repeatable(self, request: ToolCallRequest) -> bool:
        metadata = getattr(request.tool, "metadata", None) or {}
        return request.tool_call["name"] in self._safe_to_repeat or metadata.get("safe_to_repeat") is True

    # -- which turn ---------------------------------------------------------------------------------------------

    def _turn(self, messages: Sequence[BaseMessage], context: Any, config: Any) -> _Turn | None:
        """The turn the state is in; None when nobody said anything."""
        found = newest_human(messages)
        configurable = config.get("configurable") or {}
        given = context.get("turn_id") if isinstance(context, dict) else getattr(context, "turn_id", None)
        given = configurable.get("turn_id") if given is None else given
        if found is None:
            return None
        thread_id = thread_from_config(config)
        if thread_id is None:
            raise IdentityError("durable turns need a thread_id in config['configurable']")
        human = found[1]
        is_nested = "|" in str(configurable.get("checkpoint_ns") or "")  # an agent inside a tool or node of another
        if given is not None:
            if not str(given).strip():
                raise IdentityError(f"turn_id must not be blank, not {given!r}")
            return _Turn(thread_id, f"{given}/{human.id}" if is_nested else str(given))
        if human.id is None:
            return None
        logged = self._log.get_event(thread_id, human.id, "user")
        if logged is not None and content_hash(logged.messages()[0]) != content_hash(human):
            return _Turn(thread_id, forked_turn_id(human.id, human))
        return _Turn(thread_id, human.id)

    def _emit(self, turn: _Turn, action: str, tool_call_id: str | None = None) -> None:
        emit(
            TurnReplayed(thread_id=turn.thread_id, turn_id=turn.turn_id, action=action, tool_call_id=tool_call_id),
            self._on_event,
        )


def _from_sync(handler: Callable[[Any], Any], request: Any) -> Ask:
    async def wrong_face() -> Any:
        raise TypeError("a sync hook was driven from an event loop")

    return Ask(do=lambda: handler(request), ado=wrong_face)


def _from_async(handler: Callable[[Any], Awaitable[Any]], request: Any) -> Ask:
    def wrong_face() -> Any:
        raise TypeError("an async hook was driven without an event loop")

    return Ask(do=wrong_face, ado=lambda: handler(request))
