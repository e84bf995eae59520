"""What of a request's history the model sees: the planner of `HistoryCompactionMiddleware`. No model, no store."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from langchain.agents.middleware import ModelRequest
from langchain_core.messages import BaseMessage

from langmem_harness.errors import ConfigurationError
from langmem_harness.middleware.compaction_window import WindowSize, measure_window, split_request, thread_of_run
from langmem_harness.summaries.identities import identities
from langmem_harness.summaries.record import SummaryRecord, policy_fingerprint
from langmem_harness.window.fit import FittedRequest, fit_request
from langmem_harness.window.limits import (
    Size,
    TriggerForm,
    check_count,
    check_function,
    check_keep,
    needs_window,
    parse_size,
    parse_trigger,
)
from langmem_harness.window.marker import marker_message, outputs_of
from langmem_harness.window.model import FALLBACK_WINDOW_TOKENS, model_name
from langmem_harness.window.plan import PlacedMessage, WindowPlan, plan_walked
from langmem_harness.window.policy import WindowPolicy
from langmem_harness.window.remembered import RememberedWalks, SeenHistory
from langmem_harness.window.tokens import TokenCache, TokenCounter
from langmem_harness.window.walk import HistoryWalk

logger = logging.getLogger("langmem_harness")


@dataclass(frozen=True, kw_only=True)
class PlannedCall:
    """What was worked out of a request before a summary is asked for.

    Attributes:
        request: The request as it came.
        thread_id: The conversation; None outside of one.
        history: Its messages that are of the thread.
        placed: Its messages that are only in the request.
        key: Where the walk is remembered.
        seen: The walk.
        plan: The newest window.
        policy: In numbers for this model's window.
        size: Of this model's window.
        overhead_tokens: System prompt and tool schemas.
    """

    request: ModelRequest[Any]
    thread_id: str | None
    history: Sequence[BaseMessage]
    placed: Sequence[PlacedMessage]
    key: Hashable
    seen: SeenHistory
    plan: WindowPlan
    policy: WindowPolicy
    size: WindowSize
    overhead_tokens: int


class CallPlanner:
    """Plans and fits the requests of one middleware. Remembers counts and walks, nothing that could change an answer.

    Args: as for `HistoryCompactionMiddleware`; and
        marker_tokens: Budget of the marker.
        prepare_ahead: Whether the next cut is decided at the end of a turn.

    Raises:
        ConfigurationError: A setting that cannot work.
    """

    def __init__(
        self,
        trigger: TriggerForm | None,
        keep: Size,
        *,
        keep_first: int,
        pin: Callable[[BaseMessage], bool] | None,
        token_counter: TokenCounter | None,
        context_window: int | None,
        reserve_output_tokens: int | None,
        safety_margin: float,
        marker_tokens: int,
        prepare_ahead: bool,
    ) -> None:
        self._clauses = parse_trigger(trigger)
        self._trigger = trigger
        self._keep = parse_size(keep, name="keep")
        check_keep(self._clauses, self._keep)
        if context_window is not None:
            check_count(context_window, "context_window", least=1)
        if reserve_output_tokens is not None:
            check_count(reserve_output_tokens, "reserve_output_tokens", least=0)
        if isinstance(safety_margin, bool) or not isinstance(safety_margin, int | float) or not 0 <= safety_margin < 1:
            raise ConfigurationError(f"safety_margin must be 0 to below 1, not {safety_margin!r}")
        check_count(keep_first, "keep_first", least=0)
        check_function(pin, "pin")
        check_function(token_counter, "token_counter")
        self._keep_first = keep_first
        self._pin = pin
        self._context_window = context_window
        self._reserve_output_tokens = reserve_output_tokens
        self._safety_margin = safety_margin
        self._marker_tokens = marker_tokens
        self._prepare_ahead = prepare_ahead
        self._tokens = TokenCache(token_counter)
        self._walks = RememberedWalks(self._tokens)

    @property
    def is_off(self) -> bool:
        """Whether nothing is ever left out."""
        return not self._clauses

    @property
    def fingerprint(self) -> str:
        """Of everything that was set about what is left out. As it was set: what a fraction comes to for the window of
        one model or another is no change of policy."""
        return policy_fingerprint(
            "window",
            trigger=[dict(clause) for clause in self._clauses],
            keep=list(self._keep),
            keep_first=self._keep_first,
            pin=self._pin is not None,
        )

    def plan(self, request: ModelRequest[Any], *, learned_tokens: int | None = None) -> PlannedCall:
        """The window of a request. Give it back with `remember` when its walk is no longer read.

        Args:
            request: The request.
            learned_tokens: What a refusal of its model taught.
        """
        history, placed = split_request(request)
        size = self._measure(request, learned_tokens)
        policy = self.policy(size)
        overhead = self._count_overhead(request)
        thread_id = thread_of_run(request.runtime)
        namespace = getattr(getattr(request.runtime, "execution_info", None), "checkpoint_ns", None)
        key = (thread_id, namespace, history[0].id if history else None)
        seen = self._walks.walk(key, history, policy, overhead_tokens=policy.round_overhead(overhead))
        return PlannedCall(
            request=request,
            thread_id=thread_id,
            history=history,
            placed=placed,
            key=key,
            seen=seen,
            plan=plan_walked(history, seen.walk, placed=placed),
            policy=policy,
            size=size,
            overhead_tokens=overhead,
        )

    def remember(self, planned: PlannedCall) -> None:
        """Keep the walk of a planned call for the next one."""
        self._walks.remember(planned.key, planned.seen, planned.history)

    def earlier_window(
        self, planned: PlannedCall, records: Iterable[SummaryRecord]
    ) -> tuple[WindowPlan, SummaryRecord | None]:
        """The window as of the newest cut whose summary is known, or without a cut, whichever comes first and fits;
        else the newest cut with a bare marker."""
        known = list(records)
        for cuts in range(planned.plan.cuts - 1, -1, -1):
            plan = plan_walked(planned.history, planned.seen.walk, placed=planned.placed, cuts=cuts)
            record = _find_record(known, plan.omitted) if plan.omitted else None
            target = planned.size.target_tokens
            if (record is not None or not plan.omitted) and (target is None or plan.window_tokens <= target):
                return plan, record
        return planned.plan, None

    def left_out_next(
        self, messages: Sequence[BaseMessage], size: WindowSize, overhead_tokens: int
    ) -> list[BaseMessage]:
        """The messages the next cut will leave out, if that is decided already; else those left out now."""
        policy = self.policy(size)
        walk = HistoryWalk(policy, self._tokens.count, overhead_tokens=policy.round_overhead(overhead_tokens))
        walk.extend(messages)
        return [messages[position] for position in walk.left_out_next()]

    def fit(self, planned: PlannedCall, plan: WindowPlan, record: SummaryRecord | None) -> FittedRequest:
        """The measured request."""
        size = planned.size
        tokens = plan.window_tokens + sum(self._tokens.count(one.message) for one in planned.placed)
        fits = size.target_tokens is None or tokens <= size.target_tokens
        if self.is_off or (not plan.omitted and fits):
            return FittedRequest(messages=plan.messages(), dropped=(), reclaimed={}, tokens=tokens)
        target = sys.maxsize if size.target_tokens is None else size.target_tokens
        return self.fit_to(planned, plan, record, target, size.limit_tokens)

    def fit_to(
        self,
        planned: PlannedCall,
        plan: WindowPlan,
        record: SummaryRecord | None,
        target_tokens: int,
        limit_tokens: int | None,
    ) -> FittedRequest:
        """The request with at most `target_tokens`, if that is possible.

        Raises:
            WindowOverflowError: It cannot be made smaller than `limit_tokens`.
        """
        omitted, budget = plan.omitted, planned.policy.marker_tokens
        return fit_request(
            plan.head,
            plan.tail,
            make_marker=lambda more: _marker_for(omitted, more, record, max_tokens=budget),
            count=self._tokens.count,
            overhead_tokens=planned.overhead_tokens,
            target_tokens=target_tokens,
            limit_tokens=limit_tokens,
            is_pinned=self._pin,
            placed=[one.message for one in planned.placed],
        )

    def policy(self, size: WindowSize) -> WindowPolicy:
        """The settings in numbers for a window."""
        policy = WindowPolicy.create(
            self._trigger,
            self._keep,
            window_tokens=size.usable_tokens,
            keep_first=self._keep_first,
            pin=self._pin,
            prepare_ahead=self._prepare_ahead,
        )
        return policy.with_marker(self._marker_tokens).within(size.target_tokens)

    def _measure(self, request: ModelRequest[Any], learned_tokens: int | None) -> WindowSize:
        size = measure_window(
            request,
            context_window=self._context_window,
            reserve_output_tokens=self._reserve_output_tokens,
            safety_margin=self._safety_margin,
            learned_tokens=learned_tokens,
        )
        if size.limit_tokens is None and self._clauses and needs_window(self._clauses, self._keep):
            _warn_of_unknown_window(model_name(request.model))
        return size

    def _count_overhead(self, request: ModelRequest[Any]) -> int:
        system = 0 if request.system_message is None else self._tokens.count(request.system_message)
        return system + self._tokens.count_tools(request.tools)


_MODELS_WARNED_OF: set[str] = set()


def _warn_of_unknown_window(model: str) -> None:
    """Once for each model of a process, however many agents use it."""
    if model in _MODELS_WARNED_OF:
        return
    _MODELS_WARNED_OF.add(model)
    logger.warning(
        "langmem_harness: the profile of the model %r does not say how large its context window is; fractions are "
        "taken of %d tokens: pass context_window= to HistoryCompactionMiddleware, "
        'or compaction={"context_window": ...} to memory.middleware()',
        model,
        FALLBACK_WINDOW_TOKENS,
    )


def _find_record(records: Sequence[SummaryRecord], messages: Sequence[BaseMessage]) -> SummaryRecord | None:
    """The newest record that covers exactly these messages, as they are now."""
    wanted = identities(messages)
    return next((record for record in reversed(records) if record.sources == wanted), None)


def _marker_for(
    omitted: Sequence[BaseMessage], more: int, record: SummaryRecord | None, *, max_tokens: int
) -> BaseMessage | None:
    """The marker for a plan that leaves `omitted` out, and `more` messages on top of it; None when there are none."""
    count = len(omitted) + more
    if not count:
        return None
    if record is None:
        return marker_message(count, outputs=outputs_of(omitted), max_tokens=max_tokens)
    return marker_message(
        count,
        summary_id=record.id,
        summary=record.content,
        facts=record.facts,
        summarized=len(omitted),
        max_tokens=max_tokens,
    )
