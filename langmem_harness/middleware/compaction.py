"""`HistoryCompactionMiddleware`: what the model sees of a long thread; the thread itself stays whole."""

from __future__ import annotations

import dataclasses
import logging
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, BaseMessage
from langgraph.config import get_config
from langgraph.store.base import BaseStore

from langmem_harness.errors import ConfigurationError
from langmem_harness.events import ContextOverflowed, EventCallback, HistoryCompacted, HistoryRepaired, emit
from langmem_harness.memory.scope import thread_from_config
from langmem_harness.middleware.compaction_state import CompactionState
from langmem_harness.middleware.compaction_window import WindowSize, is_context_overflow, measure_window, split_request
from langmem_harness.middleware.driving import Ask, Body, adrive, computed, drive, immediate
from langmem_harness.window.fit import FittedRequest, fit_request
from langmem_harness.window.limits import Size, TriggerForm, needs_window, parse_size, parse_trigger
from langmem_harness.window.marker import marker_message
from langmem_harness.window.plan import WindowPlan, plan_walked
from langmem_harness.window.policy import MARKER_TOKENS, WindowPolicy
from langmem_harness.window.remembered import RememberedWalks
from langmem_harness.window.tokens import TokenCache, TokenCounter

logger = logging.getLogger("langmem_harness")

_COMPUTED_ELSEWHERE = 1_000  # histories longer than this are walked in a worker thread, not on the event loop
_RETRY_SHARE = 0.7  # a request that was refused as too long is sent again with at most this share of its size

Result = ModelResponse[Any]


@dataclass(frozen=True, kw_only=True)
class _Call:
    """What was worked out for one model call."""

    request: ModelRequest[Any]
    thread_id: str | None
    plan: WindowPlan
    size: WindowSize
    overhead_tokens: int
    fitted: FittedRequest


class HistoryCompactionMiddleware(AgentMiddleware[CompactionState, Any, Any]):
    """Shortens what the model sees of a long history, in the request only: the thread is never edited.

    The request is ``[system][opening][marker][newest groups]``. Where it is cut depends on the history alone, so the
    start of the prompt stays the same bytes between two cuts, and restarts, forks and time travel need nothing special.

    Args:
        trigger: When the cut moves: ``("tokens", n)``, ``("messages", n)``, ``("fraction", f)`` of the model's window,
            a dict of these (all have to be reached) or a list (any). System prompt and tools count. None: never.
        keep: What stays behind a new cut, in one of the three forms.
        keep_first: Opening groups, counted from the first human message (the task), that always stay; 0 or more.
        pin: Says which messages always stay, with their whole group.
        token_counter: Counts the tokens of messages; None estimates.
        context_window: Tokens of the model's window; None takes it from the model's profile, and if that says nothing,
            warns once and assumes a small one for fractions.
        reserve_output_tokens: Kept free for the answer; None takes the model's own ``max_tokens``.
        safety_margin: Share of the window kept free because counts are estimates; 0 to below 1.
        is_overflow: Says, beside the errors known here, which errors of a model mean that the request was too long.
        store: Used instead of the store of the graph.
        on_event: Gets every event.
        name: Name of this middleware in the graph, for agents with several.

    Raises:
        ConfigurationError: A setting that cannot work.

    Example:
        >>> HistoryCompactionMiddleware(("tokens", 100_000), ("tokens", 30_000)).name
        'HistoryCompactionMiddleware'
    """

    state_schema = CompactionState

    def __init__(
        self,
        trigger: TriggerForm | None = ("fraction", 0.8),
        keep: Size = ("fraction", 0.3),
        *,
        keep_first: int = 1,
        pin: Callable[[BaseMessage], bool] | None = None,
        token_counter: TokenCounter | None = None,
        context_window: int | None = None,
        reserve_output_tokens: int | None = None,
        safety_margin: float = 0.05,
        is_overflow: Callable[[Exception], bool] | None = None,
        store: BaseStore | None = None,
        on_event: EventCallback | None = None,
        name: str = "HistoryCompactionMiddleware",
    ) -> None:
        super().__init__()
        self._clauses = parse_trigger(trigger)
        self._trigger = trigger
        self._keep = parse_size(keep, name="keep")
        if context_window is not None and context_window < 1:
            raise ConfigurationError(f"context_window must be 1 or more, not {context_window!r}")
        if reserve_output_tokens is not None and reserve_output_tokens < 0:
            raise ConfigurationError(f"reserve_output_tokens must be 0 or more, not {reserve_output_tokens!r}")
        if not 0.0 <= safety_margin < 1.0:
            raise ConfigurationError(f"safety_margin must be 0 to below 1, not {safety_margin!r}")
        if keep_first < 0:
            raise ConfigurationError(f"keep_first must be 0 or more, not {keep_first!r}")
        self._keep_first = keep_first
        self._pin = pin
        self._context_window = context_window
        self._reserve_output_tokens = reserve_output_tokens
        self._safety_margin = safety_margin
        self._is_overflow = is_overflow
        self._store = store
        self._on_event = on_event
        self._name = name
        self._tokens = TokenCache(token_counter)
        self._walks = RememberedWalks(self._tokens)
        self._warned = False

    @property
    def name(self) -> str:
        """Name of this middleware in the graph."""
        return self._name

    # -- hooks ------------------------------------------------------------------------------------------------------

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Result]
    ) -> Result | AIMessage:
        """Send the window instead of the whole history."""
        return drive(self._call_model(request, handler))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Result]]
    ) -> Result | AIMessage:
        """Async twin of `wrap_model_call`."""
        return await adrive(self._call_model(request, handler))

    # -- steps ------------------------------------------------------------------------------------------------------

    def _call_model(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Body[Result]:
        place = computed if len(request.messages) > _COMPUTED_ELSEWHERE else immediate
        call: _Call = yield place(lambda: self._prepare(request))
        self._report(call)
        try:
            response: Result = yield _handled(handler, call.request)
        except Exception as error:
            smaller = self._smaller_request(call, error)
            if smaller is None:
                raise
            response = yield _handled(handler, smaller)  # once: what this raises is raised
        return response

    def _prepare(self, request: ModelRequest[Any]) -> _Call:
        """Plan, mark and fit."""
        history, placed = split_request(request)
        size = self._measure(request)
        policy = self._policy(size)
        overhead = self._count_overhead(request)
        thread_id = _thread_id(request)
        key = (thread_id, getattr(_execution(request), "checkpoint_ns", None), history[0].id if history else None)
        seen = self._walks.walk(key, history, policy, overhead_tokens=policy.round_overhead(overhead))
        plan = plan_walked(history, seen.walk, placed=placed)
        self._walks.remember(key, seen, history)
        fitted = self._fit(plan, size, overhead, sum(self._tokens.count(one.message) for one in placed))
        if plan.omitted or plan.repairs or fitted.reclaimed:
            request = request.override(messages=list(fitted.messages))  # type: ignore[arg-type]
        return _Call(
            request=request, thread_id=thread_id, plan=plan, size=size, overhead_tokens=overhead, fitted=fitted
        )

    def _fit(self, plan: WindowPlan, size: WindowSize, overhead_tokens: int, placed_tokens: int) -> FittedRequest:
        tokens = plan.window_tokens + placed_tokens
        fits = size.target_tokens is None or tokens <= size.target_tokens
        if not self._clauses or (not plan.omitted and fits):
            return FittedRequest(messages=plan.messages(), dropped=(), reclaimed={}, tokens=tokens)
        return fit_request(
            plan.head,
            plan.tail,
            make_marker=lambda more: _marker(plan, more),
            count=self._tokens.count,
            overhead_tokens=overhead_tokens,
            target_tokens=sys.maxsize if size.target_tokens is None else size.target_tokens,
            limit_tokens=size.limit_tokens,
            is_pinned=self._pin,
        )

    def _smaller_request(self, call: _Call, error: Exception) -> ModelRequest[Any] | None:
        """The request once more, smaller, after the model refused it as too long; None when that is not the reason or
        nothing more can be left out."""
        if not self._clauses:
            return None
        if not is_context_overflow(error) and not (self._is_overflow is not None and self._is_overflow(error)):
            return None
        fitted = fit_request(
            call.plan.head,
            call.plan.tail,
            make_marker=lambda more: _marker(call.plan, more),
            count=self._tokens.count,
            overhead_tokens=call.overhead_tokens,
            target_tokens=int(call.fitted.tokens * _RETRY_SHARE),
            limit_tokens=None,
            is_pinned=self._pin,
        )
        emit(
            ContextOverflowed(
                sent_tokens=call.fitted.tokens, limit_tokens=call.size.limit_tokens, thread_id=call.thread_id
            ),
            self._on_event,
        )
        if fitted.tokens >= call.fitted.tokens:
            return None
        self._report(dataclasses.replace(call, fitted=fitted))
        return call.request.override(messages=list(fitted.messages))  # type: ignore[arg-type]

    # -- parts ------------------------------------------------------------------------------------------------------

    def _measure(self, request: ModelRequest[Any]) -> WindowSize:
        size = measure_window(
            request,
            context_window=self._context_window,
            reserve_output_tokens=self._reserve_output_tokens,
            safety_margin=self._safety_margin,
        )
        if size.limit_tokens is None and not self._warned and self._clauses and needs_window(self._clauses, self._keep):
            self._warned = True
            logger.warning(
                "the model's profile does not say how large its context window is; assuming %d usable tokens: "
                "pass context_window= to HistoryCompactionMiddleware",
                size.usable_tokens,
            )
        return size

    def _policy(self, size: WindowSize) -> WindowPolicy:
        return WindowPolicy.create(
            self._trigger,
            self._keep,
            window_tokens=size.usable_tokens,
            keep_first=self._keep_first,
            pin=self._pin,
            marker_tokens=MARKER_TOKENS,
        ).within(size.target_tokens)

    def _count_overhead(self, request: ModelRequest[Any]) -> int:
        system = 0 if request.system_message is None else self._tokens.count(request.system_message)
        return system + self._tokens.count_tools(request.tools)

    def _report(self, call: _Call) -> None:
        plan, fitted = call.plan, call.fitted
        if plan.repairs:
            emit(HistoryRepaired(repairs=plan.repairs, thread_id=call.thread_id), self._on_event)
        omitted = len(plan.omitted) + len(fitted.dropped)
        if omitted or fitted.reclaimed:
            emit(
                HistoryCompacted(
                    thread_messages=plan.history_messages,
                    sent_messages=len(fitted.messages),
                    thread_tokens=plan.history_tokens,
                    sent_tokens=max(0, fitted.tokens - call.overhead_tokens),
                    omitted_messages=omitted,
                    cut_moved=plan.cut_moved,
                    reclaimed=fitted.reclaimed,
                    thread_id=call.thread_id,
                ),
                self._on_event,
            )


def _handled(handler: Callable[[ModelRequest[Any]], Any], request: ModelRequest[Any]) -> Ask:
    return Ask(do=lambda: handler(request), ado=lambda: handler(request))


def _marker(plan: WindowPlan, more: int) -> BaseMessage | None:
    omitted = len(plan.omitted) + more
    return marker_message(omitted) if omitted else None


def _execution(request: ModelRequest[Any]) -> Any:
    return getattr(request.runtime, "execution_info", None)


def _thread_id(request: ModelRequest[Any]) -> str | None:
    thread_id = getattr(_execution(request), "thread_id", None)
    if thread_id is not None:
        return str(thread_id)
    try:
        return thread_from_config(get_config())
    except RuntimeError:  # outside a graph
        return None
