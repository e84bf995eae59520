"""`HistoryCompactionMiddleware`: what the model sees of a long thread; the thread itself stays whole."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, Self, TypeAlias

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain.agents.middleware.types import ExtendedModelResponse
from langchain_core.messages import AIMessage, BaseMessage
from langgraph.store.base import BaseStore
from langgraph.types import Command

from langmem_harness.driving import Ask, Body, adrive, computed, drive, immediate
from langmem_harness.errors import ConfigurationError, StaleSummaryError, SummarizerError
from langmem_harness.events import (
    ContextOverflowed,
    EventCallback,
    HistoryCompacted,
    HistoryRepaired,
    check_callback,
    emit,
)
from langmem_harness.middleware.compaction_limits import RETRY_SHARE, LearnedLimits
from langmem_harness.middleware.compaction_plan import CallPlanner, PlannedCall
from langmem_harness.middleware.compaction_state import CompactionState
from langmem_harness.middleware.compaction_summaries import CompactionSummaries
from langmem_harness.middleware.compaction_window import WindowSize, is_context_overflow, thread_of_run, whole_history
from langmem_harness.middleware.own_store import StoreChoice
from langmem_harness.summaries.calls import SummaryOutcome
from langmem_harness.summaries.record import SummaryRecord
from langmem_harness.summaries.service import SummaryService
from langmem_harness.window.fit import FittedRequest
from langmem_harness.window.limits import Size, TriggerForm, check_count, check_function
from langmem_harness.window.model import model_name
from langmem_harness.window.plan import WindowPlan
from langmem_harness.window.policy import MARKER_TOKENS
from langmem_harness.window.tokens import TokenCounter

_COMPUTED_ELSEWHERE = 1_000  # histories longer than this are walked in a worker thread, not on the event loop

Result = ModelResponse[Any]
Answer: TypeAlias = Result | AIMessage | ExtendedModelResponse[Any]


@dataclass(frozen=True, kw_only=True)
class _Call:
    """One model call, ready to be made."""

    request: ModelRequest[Any]
    planned: PlannedCall
    plan: WindowPlan
    record: SummaryRecord | None
    fitted: FittedRequest


class _PreparesAhead:
    """The step after each turn that prepares the next summary; mixed in where it is asked for."""

    _prepare_ahead: Callable[[Any, Any], Body[dict[str, Any] | None]]

    def after_agent(self, state: CompactionState, runtime: Any) -> dict[str, Any] | None:
        """Prepare the next summary."""
        return drive(self._prepare_ahead(state, runtime))

    async def aafter_agent(self, state: CompactionState, runtime: Any) -> dict[str, Any] | None:
        """Async twin of `after_agent`."""
        return await adrive(self._prepare_ahead(state, runtime))


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
        summarizer: Writes what stands in for left-out messages: a model or its name, a callable, or one of the
            summarizers of this package. None leaves a bare marker.
        on_stale: What to do when a summary may not be used any more: write it again, trim with a bare marker, or raise
            `StaleSummaryError`.
        on_failure: What to do without a valid summary: ``"keep"`` the history while it fits, ``"trim"`` with a bare
            marker, or ``"raise"`` `SummarizerError`.
        summary_ttl: How old a summary may become; None: as old as it likes.
        regenerate_on_model_change: Whether a summary by another model is stale.
        rebuild_every: After so many rolls, write from the messages instead of the summary before; None: never.
        max_summary_tokens: Longest summary in the marker.
        facts_tokens: Room in the marker for values carried verbatim.
        summarize_ahead: Prepare the next summary at the end of a turn, before it is needed.
        prices: Prices per million tokens by model name, for costs in events and records.
        redact: Applied to text before a summarizer reads it.
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

    def __new__(cls, *_: Any, summarize_ahead: bool = False, **__: Any) -> Self:
        """Only an agent that prepares summaries ahead gets a step after each turn."""
        if summarize_ahead and cls.after_agent is AgentMiddleware.after_agent:
            return super().__new__(type(cls.__name__, (_PreparesAhead, cls), {}))
        return super().__new__(cls)

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
        summarizer: Any = None,
        on_stale: Literal["regenerate", "trim", "raise"] = "regenerate",
        on_failure: Literal["keep", "trim", "raise"] = "keep",
        summary_ttl: timedelta | None = None,
        regenerate_on_model_change: bool = False,
        rebuild_every: int | None = 8,
        max_summary_tokens: int = 1_000,
        facts_tokens: int = 1_000,
        summarize_ahead: bool = False,
        prices: Mapping[str, Any] | None = None,
        redact: Callable[[str], str] | None = None,
        is_overflow: Callable[[Exception], bool] | None = None,
        store: BaseStore | None = None,
        on_event: EventCallback | None = None,
        name: str = "HistoryCompactionMiddleware",
    ) -> None:
        super().__init__()
        check_callback(on_event)
        check_function(redact, "redact")
        check_function(is_overflow, "is_overflow")
        if not isinstance(name, str) or not name.strip():
            raise ConfigurationError(f"name must be a text that is not blank, not {name!r}")
        writer: SummaryService | None = None
        marker_tokens = MARKER_TOKENS
        check_count(max_summary_tokens, "max_summary_tokens", least=1)
        check_count(facts_tokens, "facts_tokens", least=0)
        if summarizer is not None:
            marker_tokens += max_summary_tokens + facts_tokens
            writer = SummaryService(
                summarizer,
                token_counter=token_counter,
                on_stale=on_stale,
                on_failure=on_failure,
                summary_ttl=summary_ttl,
                regenerate_on_model_change=regenerate_on_model_change,
                rebuild_every=rebuild_every,
                max_summary_tokens=max_summary_tokens,
                facts_tokens=facts_tokens,
                prices=prices,
                on_event=on_event,
                redact=redact,
            )
        self._planner = CallPlanner(
            trigger,
            keep,
            keep_first=keep_first,
            pin=pin,
            token_counter=token_counter,
            context_window=context_window,
            reserve_output_tokens=reserve_output_tokens,
            safety_margin=safety_margin,
            marker_tokens=marker_tokens,
            prepare_ahead=summarize_ahead and writer is not None,
        )
        self._summaries = CompactionSummaries(
            writer,
            policy=name,
            policy_fingerprint=self._planner.fingerprint,
            store=StoreChoice(store, owner=name),
        )
        self._summarize_ahead = summarize_ahead
        self._on_failure = on_failure
        self._is_overflow = is_overflow
        self._limits = LearnedLimits()
        self._on_event = on_event
        self._name = name

    @property
    def name(self) -> str:
        """Name of this middleware in the graph."""
        return self._name

    # -- hooks ------------------------------------------------------------------------------------------------------

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Result]) -> Answer:
        """Send the window instead of the whole history."""
        answer: Answer = drive(self._call_model(request, handler))
        return answer

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Result]]
    ) -> Answer:
        """Async twin of `wrap_model_call`."""
        answer: Answer = await adrive(self._call_model(request, handler))
        return answer

    # -- steps ------------------------------------------------------------------------------------------------------

    def _call_model(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Body[Any]:
        place = computed if len(request.messages) > _COMPUTED_ELSEWHERE else immediate
        state: Any = request.state
        self._summaries.check_store(request.runtime)
        model = model_name(request.model)
        learned = self._limits.limit_for(model, state.get("compaction_limits"))
        planned: PlannedCall = yield place(lambda: self._planner.plan(request, learned_tokens=learned))
        outcome = yield from self._summaries.asking(
            planned.plan.omitted,
            state,
            request.runtime,
            planned.thread_id,
            history=whole_history(request, planned.history),
        )
        call = yield from self._finish(planned, outcome)
        self._report(call)
        limits: dict[str, int] = {}
        try:
            response: Result = yield _handled(handler, call.request)
        except Exception as error:
            if not self._is_too_long(error):
                raise
            self._learn(model, call)
            smaller = self._smaller_call(call)
            if smaller is None:
                raise
            self._report(smaller)
            try:
                response = yield _handled(handler, smaller.request)
            except Exception as again:  # once: what this raises is raised
                if self._is_too_long(again):
                    self._learn(model, smaller)
                raise
            refused, accepted = call.fitted.tokens, smaller.fitted.tokens
            limits = {model: self._limits.learn(model, refused_tokens=refused, accepted_tokens=accepted)}
        update = self._state_update(planned, None if outcome is None else outcome.record, limits)
        return ExtendedModelResponse(model_response=response, command=Command(update=update)) if update else response

    def _finish(self, planned: PlannedCall, outcome: SummaryOutcome | None) -> Body[_Call]:
        """Mark and fit."""
        plan = planned.plan
        record = None if outcome is None else outcome.record
        if outcome is not None and outcome.action == "failed" and self._on_failure == "keep":
            records = yield from self._summaries.usable(
                planned.request.state, planned.request.runtime, planned.thread_id
            )
            records += [] if outcome.partial is None else [outcome.partial]
            plan, record = self._planner.earlier_window(planned, records)
        self._planner.remember(planned)
        fitted = self._planner.fit(planned, plan, record)
        request = planned.request
        if plan.omitted or plan.repairs or fitted.reclaimed:
            request = request.override(messages=list(fitted.messages))  # type: ignore[arg-type]
        return _Call(request=request, planned=planned, plan=plan, record=record, fitted=fitted)

    def _is_too_long(self, error: Exception) -> bool:
        """Whether a model's error says that the request was too long, for a middleware that may shorten it."""
        known = is_context_overflow(error) or (self._is_overflow is not None and self._is_overflow(error))
        return known and not self._planner.is_off

    def _learn(self, model: str, call: _Call) -> None:
        learned = self._limits.learn(model, refused_tokens=call.fitted.tokens)
        overflowed = ContextOverflowed(
            sent_tokens=call.fitted.tokens,
            limit_tokens=call.planned.size.limit_tokens,
            learned_tokens=learned,
            thread_id=call.planned.thread_id,
        )
        emit(overflowed, self._on_event)

    def _smaller_call(self, call: _Call) -> _Call | None:
        """The call once more, smaller, after the model refused it; None when nothing more can be left out."""
        sent = call.fitted.tokens
        fitted = self._planner.fit_to(call.planned, call.plan, call.record, int(sent * RETRY_SHARE), None)
        if fitted.tokens >= sent:
            return None
        request = call.request.override(messages=list(fitted.messages))  # type: ignore[arg-type]
        return dataclasses.replace(call, request=request, fitted=fitted)

    def _state_update(
        self, planned: PlannedCall, record: SummaryRecord | None, limits: Mapping[str, int]
    ) -> dict[str, Any]:
        """What the state does not know yet."""
        state: Any = planned.request.state
        update = self._summaries.update(record, state, planned.request.runtime)
        if limits:
            update["compaction_limits"] = dict(limits)
        if self._summarize_ahead:
            window = {
                "limit_tokens": planned.size.limit_tokens,
                "usable_tokens": planned.size.usable_tokens,
                "target_tokens": planned.size.target_tokens,
                "overhead_tokens": planned.overhead_tokens,
            }
            if (state.get("compaction_windows") or {}).get(self._name) != window:
                update["compaction_windows"] = {self._name: window}
        return update

    def _prepare_ahead(self, state: Any, runtime: Any) -> Body[dict[str, Any] | None]:
        """Write the record that the next cut will need, now that the turn is over."""
        window = (state.get("compaction_windows") or {}).get(self._name)
        if window is None or not self._summaries.are_written:
            return None
        limit, usable = window["limit_tokens"], window["usable_tokens"]
        target = window.get("target_tokens", None if limit is None else usable)  # not there in a state of before
        size = WindowSize(limit_tokens=limit, usable_tokens=usable, target_tokens=target)
        messages: list[BaseMessage] = state["messages"]
        omitted = self._planner.left_out_next(messages, size, window["overhead_tokens"])
        try:
            outcome = yield from self._summaries.asking(
                omitted, state, runtime, thread_of_run(runtime), history=messages, ahead=True
            )
        except (SummarizerError, StaleSummaryError):
            return None  # an event said so; the turn is answered, and the call that needs the record decides
        return self._summaries.update(None if outcome is None else outcome.record, state, runtime) or None

    # -- events -----------------------------------------------------------------------------------------------------

    def _report(self, call: _Call) -> None:
        plan, fitted, thread_id = call.plan, call.fitted, call.planned.thread_id
        if plan.repairs:
            emit(HistoryRepaired(repairs=plan.repairs, thread_id=thread_id), self._on_event)
        omitted = len(plan.omitted) + len(fitted.dropped)
        if omitted or fitted.reclaimed:
            emit(
                HistoryCompacted(
                    thread_messages=plan.history_messages,
                    sent_messages=len(fitted.messages),
                    thread_tokens=plan.history_tokens,
                    sent_tokens=max(0, fitted.tokens - call.planned.overhead_tokens),
                    omitted_messages=omitted,
                    cut_moved=plan.cut_moved,
                    summary_id=None if call.record is None else call.record.id,
                    reclaimed=fitted.reclaimed,
                    thread_id=thread_id,
                ),
                self._on_event,
            )


def _handled(handler: Callable[[ModelRequest[Any]], Any], request: ModelRequest[Any]) -> Ask:
    return Ask(do=lambda: handler(request), ado=lambda: handler(request))
