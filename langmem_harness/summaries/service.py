"""`SummaryService`: a valid record for messages that are left out, made once, paid once, never stale in silence."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias, Unpack

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage

from langmem_harness.driving import Body, adrive, computed, drive, immediate
from langmem_harness.errors import ConfigurationError, StaleSummaryError, SummarizerError
from langmem_harness.events import EventCallback, MemoryEvent, SummaryFailed, SummaryStale, check_callback, emit
from langmem_harness.summaries.accounts import Accounts
from langmem_harness.summaries.calls import SummaryCall, SummaryCase, SummaryOutcome
from langmem_harness.summaries.flights import Flights, Landed
from langmem_harness.summaries.identities import IdentityCache
from langmem_harness.summaries.ledger import SummaryLedger
from langmem_harness.summaries.plan import SummaryPlan, count_rolls, plan_summary
from langmem_harness.summaries.record import SummaryPurpose, SummaryRecord, check_identities
from langmem_harness.summaries.spending import NOTHING_SPENT, Prices, Spending, written_event
from langmem_harness.summaries.summarizer import Summarizer, create_summarizer
from langmem_harness.summaries.writer import RecordOrder, RecordWriter
from langmem_harness.window.limits import check_count, check_function
from langmem_harness.window.tokens import TokenCounter, estimate_tokens

logger = logging.getLogger("langmem_harness")

_COMPUTED_ELSEWHERE = 1_000  # so many messages or more are checked in a worker thread, not on the event loop

OnStale: TypeAlias = Literal["regenerate", "trim", "raise"]
OnFailure: TypeAlias = Literal["keep", "trim", "raise"]


class SummaryService:
    """Finds, extends or makes the record that stands in for messages.

    Holds settings and a cache of hashes: one object serves any number of threads, runs and branches at once. The
    summarizer is called outside of any lock or transaction. A new record is written to the ledger before it is
    returned, so a process that dies later finds it there and does not pay again. Two calls at once on one object for
    the same messages of one thread make one record: the second waits. Two processes may both make one; both are
    valid, neither overwrites the other.

    Args:
        summarizer: A summarizer, a model, the name of one, or a function of the text.
        token_counter: Counts `token_count_before`; None estimates.
        on_stale: When a record that would be used is stale: ``"regenerate"`` makes another, ``"trim"`` uses none,
            ``"raise"`` raises. An event says so each time.
        on_failure: ``"raise"`` raises; ``"keep"`` and ``"trim"`` return an outcome without a record, and are what the
            event says will happen to the messages.
        summary_ttl: How old a record may become; None: as old as it likes.
        regenerate_on_model_change: Whether a record of another model is stale.
        rebuild_every: After so many rolls the next record is made from the messages again, not from the last text; 1
            or more; None never.
        max_summary_tokens: How long a text should be, in tokens; 1 or more.
        facts_tokens: Budget of the facts; 0 carries none.
        prices: For costs.
        on_event: Gets every event.
        redact: Applied to everything a summarizer sees, and so to what is stored of it.
        clock: The current time, aware UTC.

    Raises:
        ConfigurationError: A setting that cannot work.
    """

    def __init__(
        self,
        summarizer: Summarizer | BaseChatModel | str | Callable[[str], Any],
        *,
        token_counter: TokenCounter | None = None,
        on_stale: OnStale = "regenerate",
        on_failure: OnFailure = "keep",
        summary_ttl: timedelta | None = None,
        regenerate_on_model_change: bool = False,
        rebuild_every: int | None = 8,
        max_summary_tokens: int = 1_000,
        facts_tokens: int = 1_000,
        prices: Prices | None = None,
        on_event: EventCallback | None = None,
        redact: Callable[[str], str] | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        if on_stale not in ("regenerate", "trim", "raise"):
            raise ConfigurationError(f'on_stale must be "regenerate", "trim" or "raise", not {on_stale!r}')
        if on_failure not in ("keep", "trim", "raise"):
            raise ConfigurationError(f'on_failure must be "keep", "trim" or "raise", not {on_failure!r}')
        if rebuild_every is not None:
            check_count(rebuild_every, "rebuild_every", least=1)
        check_count(max_summary_tokens, "max_summary_tokens", least=1)
        check_count(facts_tokens, "facts_tokens", least=0)
        if summary_ttl is not None and not (isinstance(summary_ttl, timedelta) and summary_ttl > timedelta()):
            raise ConfigurationError(f"summary_ttl must be a timedelta above 0, or None, not {summary_ttl!r}")
        check_function(token_counter, "token_counter")
        check_function(redact, "redact")
        check_callback(on_event)
        self.summarizer = create_summarizer(summarizer)
        self._accounts = Accounts(self.summarizer.model, prices)
        self._writer = RecordWriter(
            self.summarizer,
            token_counter=token_counter or estimate_tokens,
            max_summary_tokens=max_summary_tokens,
            facts_tokens=facts_tokens,
            price=self._accounts.price,
            redact=redact,
            clock=clock,
        )
        self._on_stale = on_stale
        self._on_failure = on_failure
        self._summary_ttl = summary_ttl
        self._regenerate_on_model_change = regenerate_on_model_change
        self._rebuild_every = rebuild_every
        self._on_event = on_event
        self._keeps_sources = redact is None
        self._clock = clock
        self._identities = IdentityCache()
        self._flights: Flights[SummaryOutcome] = Flights()

    def summarize(self, messages: Sequence[BaseMessage], **request: Unpack[SummaryCall]) -> SummaryOutcome:
        """A record for exactly these messages.

        Args:
            messages: What is left out, oldest first.
            **request: See `SummaryCall`; ``policy`` and ``policy_fingerprint`` are needed.

        Raises:
            StaleSummaryError: A record is stale and `on_stale` is ``"raise"``.
            SummarizerError: No valid text and `on_failure` is ``"raise"``.
        """
        return drive(self.serving(messages, **request))

    async def asummarize(self, messages: Sequence[BaseMessage], **request: Unpack[SummaryCall]) -> SummaryOutcome:
        """Async twin of `summarize`."""
        return await adrive(self.serving(messages, **request))

    def serving(
        self,
        messages: Sequence[BaseMessage],
        *,
        policy: str,
        policy_fingerprint: str,
        records: Sequence[SummaryRecord] = (),
        record_ids: Sequence[str] = (),
        ledger: SummaryLedger | None = None,
        thread_id: str | None = None,
        purpose: SummaryPurpose = "prompt_compaction",
        history: Sequence[BaseMessage] | None = None,
        ahead: bool = False,
    ) -> Body[SummaryOutcome]:
        """Body of `summarize`, for callers that are bodies themselves."""
        case = SummaryCase(
            messages=messages,
            policy=policy,
            policy_fingerprint=policy_fingerprint,
            carried={record.id: record for record in records if record.thread_id == thread_id},
            record_ids=record_ids,
            ledger=ledger if thread_id is not None else None,
            thread_id=thread_id,
            purpose=purpose,
            history=history,
            ahead=ahead,
        )
        if not messages:
            return SummaryOutcome(record=None, action="nothing")
        known = dict(case.carried)
        planned = yield from self._planning(case, known)
        if planned.uncovered and case.ledger is not None:
            try:
                # The newest record of this branch is nearly always the one; then the others.
                for wanted in (record_ids[-1:], record_ids[:-1]):
                    if wanted and planned.uncovered:
                        found = yield from case.ledger.getting_many(wanted)
                        known.update({record.id: record for record in found if record.thread_id == thread_id})
                        planned = yield from self._planning(case, known)
            except Exception as error:  # noqa: BLE001 - any store: what is not known to be unpaid is not paid again
                return (yield from self._failing(error, case, planned.record, NOTHING_SPENT, {}))
        if planned.record is not None and not planned.uncovered:
            return SummaryOutcome(record=planned.record, action="reused")
        key: Hashable = yield computed(lambda: self._flight_key(case))
        landed: Landed[SummaryOutcome] = yield from self._flights.flying(key, lambda: self._making(case, known))
        return self._shared(landed.value, case) if landed.waited else landed.value

    def _planning(self, case: SummaryCase, known: Mapping[str, SummaryRecord]) -> Body[SummaryPlan]:
        place = immediate if len(case.messages) < _COMPUTED_ELSEWHERE else computed
        planned: SummaryPlan = yield place(
            lambda: plan_summary(
                case.messages,
                list(known.values()),
                purpose=case.purpose,
                policy=case.policy,
                policy_fingerprint=case.policy_fingerprint,
                prompt_version=self.summarizer.prompt_version,
                model=self.summarizer.model if self._regenerate_on_model_change else None,
                ttl=self._summary_ttl,
                now=self._clock(),
                history=case.history,
                carried_ids=frozenset({*case.carried, *case.record_ids}),
                name=self._identities.identities,
            )
        )
        return planned

    def is_current(self, record: SummaryRecord, *, policy: str, policy_fingerprint: str) -> bool:
        """Whether a record is of this policy and not stale, as far as that can be told without its messages."""
        report = check_identities(
            record,
            record.sources,
            policy_fingerprint=policy_fingerprint,
            prompt_version=self.summarizer.prompt_version,
            model=self.summarizer.model if self._regenerate_on_model_change else None,
            ttl=self._summary_ttl,
            now=self._clock(),
        )
        return record.policy == policy and not report.is_stale

    def _flight_key(self, case: SummaryCase) -> Hashable:
        """Calls with one key want the same record in the same place."""
        place = None if case.ledger is None else id(case.ledger.store)
        named = (case.thread_id, place, case.purpose, case.policy, case.policy_fingerprint)
        return (*named, *self._identities.identities(case.messages))

    def _making(self, case: SummaryCase, known: dict[str, SummaryRecord]) -> Body[SummaryOutcome]:
        """Look through the whole ledger, then write."""
        planned = yield from self._planning(case, known)
        failed: Mapping[str, Spending] = {}
        if case.ledger is not None and case.thread_id is not None:
            try:
                stored = yield from case.ledger.listing(case.thread_id)
                known = {**{record.id: record for record in stored}, **known}
                failed = yield from case.ledger.failed_spending(case.thread_id)
                planned = yield from self._planning(case, known)
            except Exception as error:  # noqa: BLE001 - any store: what is not known to be unpaid is not paid again
                return (yield from self._failing(error, case, planned.record, NOTHING_SPENT, {}))
        before = self._accounts.total(case.thread_id, known.values(), failed)
        if planned.record is not None and not planned.uncovered:
            return SummaryOutcome(record=planned.record, action="reused")
        trimmed = self._trimmed(case, planned, known)
        if trimmed is not None:
            return trimmed
        parent = self._parent(planned.record, known)
        order = RecordOrder(
            messages=case.messages,
            sources=planned.uncovered if parent is not None else case.messages,
            parent=parent,
            thread_id=case.thread_id,
            purpose=case.purpose,
            policy=case.policy,
            policy_fingerprint=case.policy_fingerprint,
        )
        try:
            record = yield from self._writer.writing(order)
            if record is None:
                return SummaryOutcome(record=None, action="nothing")
            if case.ledger is not None:
                yield from case.ledger.writing(record, order.sources if self._keeps_sources else ())
        except Exception as error:  # noqa: BLE001 - any summarizer, redactor or store: said by an event, never in silence
            return (yield from self._failing(error, case, planned.record, before, order.spent))
        thread = before if record.id in known else before.plus([Spending.of_records([record])])
        self._emit(written_event(record, thread=thread, ahead=case.ahead))
        return SummaryOutcome(record=record, action="written")

    def _trimmed(
        self, case: SummaryCase, planned: SummaryPlan, known: Mapping[str, SummaryRecord]
    ) -> SummaryOutcome | None:
        """The outcome when a record is stale or gone and none may be written; None when one is to be written.

        Raises:
            StaleSummaryError: A record is stale and `on_stale` is ``"raise"``.
        """
        newest = case.record_ids[-1] if case.record_ids and case.ledger is not None else None
        if newest is not None and newest not in known:
            action = "trim" if self._on_stale == "raise" else self._on_stale  # gone is not wrong: no error
            reasons: tuple[str, ...] = ("record_missing",)
            self._emit(SummaryStale(summary_id=newest, reasons=reasons, action=action, thread_id=case.thread_id))
            if action == "trim":
                return SummaryOutcome(record=None, action="trimmed", partial=planned.record, reason=reasons[0])
        if planned.stale is None:
            return None
        reasons = planned.stale.reasons
        stale = SummaryStale(
            summary_id=planned.stale.record_id, reasons=reasons, action=self._on_stale, thread_id=case.thread_id
        )
        self._emit(stale)
        if self._on_stale == "raise":
            raise StaleSummaryError(f"summary {planned.stale.record_id!r} is stale: {', '.join(reasons)}")
        if self._on_stale == "trim":
            return SummaryOutcome(record=None, action="trimmed", partial=planned.record, reason=", ".join(reasons))
        return None

    def _failing(
        self,
        error: Exception,
        case: SummaryCase,
        partial: SummaryRecord | None,
        before: Spending,
        usage: Mapping[str, int],
    ) -> Body[SummaryOutcome]:
        """The outcome without a record; what was paid for it all the same is written down.

        Raises:
            SummarizerError: `on_failure` is ``"raise"``.
        """
        failure = error if isinstance(error, SummarizerError) else None
        reason, attempts = (type(error).__name__, 0) if failure is None else (failure.reason, failure.attempts)
        spent = yield from self._accounts.noting_failure(case.ledger, case.thread_id, usage)
        thread = before.plus([spent])
        failed = SummaryFailed(
            reason=reason,
            action=self._on_failure,
            attempts=attempts,
            model=self.summarizer.model,
            usage=dict(spent.usage),
            cost=spent.cost,
            thread_usage=dict(thread.usage),
            thread_cost=thread.cost,
            thread_id=case.thread_id,
        )
        self._emit(failed)
        if self._on_failure == "raise":
            if failure is not None:
                raise failure  # with the cause it has
            raise SummarizerError(f"no summary: {reason}", reason=reason, attempts=0) from error
        return SummaryOutcome(record=None, action="failed", partial=partial, reason=reason)

    def _shared(self, outcome: SummaryOutcome, case: SummaryCase) -> SummaryOutcome:
        """The outcome of a call that was waited for; a failure is said in this run too, without its costs."""
        if outcome.action == "failed":
            self._emit(
                SummaryFailed(
                    reason=outcome.reason or "SummarizerError",
                    action=self._on_failure,
                    attempts=0,
                    model=self.summarizer.model,
                    thread_id=case.thread_id,
                )
            )
        return replace(outcome, action="reused") if outcome.action == "written" else outcome

    def _parent(self, record: SummaryRecord | None, known: Mapping[str, SummaryRecord]) -> SummaryRecord | None:
        """The record to extend; None to read all the messages."""
        if record is None or getattr(self.summarizer, "from_source", False):
            return None
        if self._rebuild_every is not None and count_rolls(record, known) + 1 > self._rebuild_every:
            return None
        return record

    def _emit(self, event: MemoryEvent) -> None:
        emit(event, self._on_event)
