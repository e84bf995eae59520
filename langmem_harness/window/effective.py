"""`effective_messages`: what a model would see of a history now. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Protocol

from langchain_core.messages import BaseMessage

from langmem_harness.window.limits import Size, TriggerForm
from langmem_harness.window.marker import marker_message, outputs_of
from langmem_harness.window.messages import content_hash, message_identity
from langmem_harness.window.plan import plan_window
from langmem_harness.window.policy import MARKER_TOKENS, WindowPolicy
from langmem_harness.window.tokens import TokenCounter


class StandIn(Protocol):
    """A text that stands in for messages: what `effective_messages` reads of a `SummaryRecord`, which implements it."""

    @property
    def id(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def purpose(self) -> str: ...
    @property
    def content(self) -> str: ...
    @property
    def facts(self) -> Sequence[str]: ...
    @property
    def sources(self) -> Sequence[tuple[str, str]]: ...
    @property
    def created_at(self) -> datetime: ...


def effective_messages(
    messages: Sequence[BaseMessage],
    *,
    trigger: TriggerForm | None = ("fraction", 0.8),
    keep: Size = ("fraction", 0.3),
    keep_first: int = 1,
    pin: Callable[[BaseMessage], bool] | None = None,
    token_counter: TokenCounter | None = None,
    context_window: int | None = None,
    overhead_tokens: int = 0,
    records: Iterable[StandIn] | None = None,
    max_summary_tokens: int = 1_000,
    facts_tokens: int = 1_000,
    summarize_ahead: bool = False,
) -> list[BaseMessage]:
    """What a model would see of a history now, for user interfaces and tests.

    The same planner as `HistoryCompactionMiddleware`'s. Pure: it reads no store and calls no summarizer, so the records
    of the thread are passed in. The marker carries the newest record that covers exactly the messages left out, as they
    are now; without one it is bare. It is known by its tag (``message.additional_kwargs["langmem_harness"]["kind"] ==
    "marker"``). The input is not changed. What the last measure of a request leaves out on top, and what other
    middlewares add to it, is not shown.

    Args:
        messages: A history, as ``graph.get_state(config).values["messages"]`` gives it.
        trigger: As for the middleware. The same for `keep`, `keep_first`, `pin` and `token_counter`.
        keep: What stays behind a new cut.
        keep_first: Opening groups that always stay.
        pin: Says which messages always stay.
        token_counter: Counts tokens; None estimates.
        context_window: Tokens a request may have, less what the middleware reserves; needed for fractions only.
        overhead_tokens: Tokens of the system prompt and of the tools.
        records: Records of the thread for a middleware that has a summarizer, in any order:
            ``SummaryLedger(store).list(thread_id)``; without a store, ``SummaryRecord.from_dict(value)`` of each value
            of the state's ``compaction_records``. None: it has no summarizer.
        max_summary_tokens: As for the middleware; read when `records` are given. The same for the next two.
        facts_tokens: Room for values carried verbatim.
        summarize_ahead: Whether summaries are prepared ahead.

    Raises:
        ConfigurationError: A setting that cannot work, or a fraction without `context_window`.
    """
    policy = WindowPolicy.create(
        trigger,
        keep,
        window_tokens=context_window,
        keep_first=keep_first,
        pin=pin,
        prepare_ahead=summarize_ahead and records is not None,
    )
    most = MARKER_TOKENS + (0 if records is None else max_summary_tokens + facts_tokens)
    policy = policy.with_marker(most).within(context_window)
    plan = plan_window(messages, policy, token_counter, overhead_tokens=overhead_tokens)
    if not plan.omitted:
        return plan.messages()
    record = _find_stand_in(records or (), plan.omitted)
    if record is None:
        outputs = outputs_of(plan.omitted)
        return plan.messages(marker_message(len(plan.omitted), outputs=outputs, max_tokens=policy.marker_tokens))
    marker = marker_message(
        len(plan.omitted),
        summary_id=record.id,
        summary=record.content,
        facts=record.facts,
        max_tokens=policy.marker_tokens,
    )
    return plan.messages(marker)


def _find_stand_in(records: Iterable[StandIn], omitted: Sequence[BaseMessage]) -> StandIn | None:
    """The newest record for the model that covers exactly these messages, unchanged."""
    wanted = [(message_identity(message), content_hash(message)) for message in omitted]
    fitting = [
        record
        for record in records
        if record.kind == "history" and record.purpose == "prompt_compaction" and list(record.sources) == wanted
    ]
    return max(fitting, key=lambda record: (record.created_at, record.id), default=None)
