"""`SummaryService`: a valid record for messages that are left out, made once, paid once, never stale in silence."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict, Unpack

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage

from langmem_harness.driving import Ask, Body, adrive, computed, drive, immediate
from langmem_harness.errors import ConfigurationError, StaleSummaryError, SummarizerError
from langmem_harness.events import EventCallback, MemoryEvent, SummaryFailed, SummaryStale, SummaryWritten, emit
from langmem_harness.summaries.facts import count_facts, find_values, merge_facts
from langmem_harness.summaries.identities import IdentityCache
from langmem_harness.summaries.ledger import SummaryLedger
from langmem_harness.summaries.plan import SummaryPlan, count_rolls, plan_summary
from langmem_harness.summaries.record import SummaryPurpose, SummaryRecord
from langmem_harness.summaries.summarizer import Summarizer, SummaryDraft, SummaryRequest, create_summarizer
from langmem_harness.summaries.transcript import TranscriptEntry, clean_text, map_texts, transcript_entries
from langmem_harness.window.tokens import TokenCounter, estimate_text_tokens, estimate_tokens

logger = logging.getLogger("langmem_harness")

_COMPUTED_ELSEWHERE = 1_000  # so many messages or more are checked in a worker thread, not on the event loop

OnStale: TypeAlias = Literal["regenerate", "trim", "raise"]
OnFailure: TypeAlias = Literal["keep", "trim", "raise"]
Prices: TypeAlias = Mapping[str, Mapping[str, float]]
"""Model name -> prices per million tokens: ``input``, ``output``, ``cached`` (if not given, the price of ``input``)."""


@dataclass(frozen=True, kw_only=True)
class SummaryOutcome:
    """What came of asking for a summary.

    Attributes:
        record: May stand in for all the messages; None: nothing may.
        action: ``"reused"``: it was there; ``"written"``: it is new and stored; ``"nothing"``: there was nothing to
            summarize; ``"failed"``: the summarizer gave no valid text; ``"trimmed"``: stale, and `on_stale` is
            ``"trim"``.
        partial: Without a record, a fresh one that covers some of the messages; None when there is none.
        reason: Why it failed or is stale, without user text.
    """

    record: SummaryRecord | None
    action: Literal["reused", "written", "nothing", "failed", "trimmed"]
    partial: SummaryRecord | None = None
    reason: str | None = None


class SummaryCall(TypedDict):
    """What `SummaryService.summarize` is told besides the messages.

    Attributes:
        policy: Name of the policy that leaves messages out.
        policy_fingerprint: Of its settings; a record made under another one is stale.
        records: Records this branch of the thread carries itself, such as those in its graph state.
        record_ids: Ids of records in the ledger that this branch refers to, the newest last. One that is not there is
            as good as none, and an event says so.
        ledger: Where all records of the thread are; None: only `records` are known, and a new record is only returned,
            to be carried.
        thread_id: The conversation.
        purpose: Records of the other purpose are neither used nor replaced; ``"prompt_compaction"`` by default.
        history: The whole thread, to tell a deleted message from one that is only not left out any more.
        ahead: Whether this is prepared before it is needed; goes into the event.
    """

    policy: str
    policy_fingerprint: str
    records: NotRequired[Sequence[SummaryRecord]]
    record_ids: NotRequired[Sequence[str]]
    ledger: NotRequired[SummaryLedger | None]
    thread_id: NotRequired[str | None]
    purpose: NotRequired[SummaryPurpose]
    history: NotRequired[Sequence[BaseMessage] | None]
    ahead: NotRequired[bool]


class SummaryService:
    """Finds, extends or makes the record that stands in for messages.

    Holds settings and a cache of hashes: one object serves any number of threads, runs and branches at once. The
    summarizer is called outside of any lock or transaction. A new record is written to the ledger before it is
    returned, so a process that dies later finds it there and does not pay again. Two calls at once on one thread may
    both make a record; both are valid, neither overwrites the other.

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
        if rebuild_every is not None and rebuild_every < 1:
            raise ConfigurationError(f"rebuild_every must be 1 or more, or None, not {rebuild_every!r}")
        if max_summary_tokens < 1 or facts_tokens < 0:
            raise ConfigurationError("max_summary_tokens must be 1 or more, facts_tokens 0 or more")
        if summary_ttl is not None and summary_ttl <= timedelta():
            raise ConfigurationError(f"summary_ttl must be above 0, or None, not {summary_ttl!r}")
        self.summarizer = create_summarizer(summarizer)
        self._count = token_counter or estimate_tokens
        self._on_stale = on_stale
        self._on_failure = on_failure
        self._summary_ttl = summary_ttl
        self._regenerate_on_model_change = regenerate_on_model_change
        self._rebuild_every = rebuild_every
        self._max_summary_tokens = max_summary_tokens
        self._facts_tokens = facts_tokens
        self._prices = prices or {}
        self._on_event = on_event
        self._redact = redact
        self._clock = clock
        self._identities = IdentityCache()

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
        if not messages:
            return SummaryOutcome(record=None, action="nothing")
        carried = {record.id: record for record in records if record.thread_id == thread_id}
        referenced = frozenset({*carried, *record_ids})
        known = dict(carried)

        def plan() -> SummaryPlan:
            return plan_summary(
                messages,
                list(known.values()),
                purpose=purpose,
                policy=policy,
                policy_fingerprint=policy_fingerprint,
                prompt_version=self.summarizer.prompt_version,
                model=self.summarizer.model if self._regenerate_on_model_change else None,
                ttl=self._summary_ttl,
                now=self._clock(),
                history=history,
                carried_ids=referenced,
                name=self._identities.identities,
            )

        place = immediate if len(messages) < _COMPUTED_ELSEWHERE else computed
        planned: SummaryPlan = yield place(plan)
        if planned.uncovered and ledger is not None and thread_id is not None:
            try:
                # The newest record of this branch is nearly always the one; then the others; then whatever there is.
                for wanted in (record_ids[-1:], record_ids[:-1]):
                    if wanted and planned.uncovered:
                        found = yield from ledger.getting_many(wanted)
                        known.update({record.id: record for record in found if record.thread_id == thread_id})
                        planned = yield place(plan)
                if planned.uncovered:
                    stored = yield from ledger.listing(thread_id)
                    known = {**{record.id: record for record in stored}, **known}
                    planned = yield computed(plan)
            except Exception as error:  # noqa: BLE001 - any store: what is not known to be unpaid is not paid again
                return self._failed(error, planned.record, thread_id)
        if planned.record is not None and not planned.uncovered:
            return SummaryOutcome(record=planned.record, action="reused")
        lost = record_ids[-1] if record_ids and record_ids[-1] not in known else None
        if lost is not None and ledger is not None:
            action = "trim" if self._on_stale == "raise" else self._on_stale  # gone is not wrong: no error
            self._emit(SummaryStale(summary_id=lost, reasons=("record_missing",), action=action, thread_id=thread_id))
            if action == "trim":
                return SummaryOutcome(record=None, action="trimmed", partial=planned.record, reason="record_missing")
        if planned.stale is not None:
            reasons = planned.stale.reasons
            stale = SummaryStale(
                summary_id=planned.stale.record_id, reasons=reasons, action=self._on_stale, thread_id=thread_id
            )
            self._emit(stale)
            if self._on_stale == "raise":
                raise StaleSummaryError(f"summary {planned.stale.record_id!r} is stale: {', '.join(reasons)}")
            if self._on_stale == "trim":
                return SummaryOutcome(record=None, action="trimmed", partial=planned.record, reason=", ".join(reasons))

        parent = self._parent(planned.record, known)
        sources = list(planned.uncovered if parent is not None else messages)
        try:
            entries: list[TranscriptEntry] = yield computed(lambda: self._entries(sources))
            if not entries and parent is None:
                return SummaryOutcome(record=None, action="nothing")
            draft = yield from self._drafting(entries, parent)
            record: SummaryRecord = yield computed(
                lambda: self._record(
                    draft,
                    messages,
                    sources=sources,
                    entries=entries,
                    parent=parent,
                    thread_id=thread_id,
                    policy=policy,
                    policy_fingerprint=policy_fingerprint,
                    purpose=purpose,
                )
            )
            if ledger is not None:
                yield from ledger.writing(record, () if self._redact is not None else sources)
        except Exception as error:  # noqa: BLE001 - any summarizer, redactor or store: said by an event, never in silence
            return self._failed(error, planned.record, thread_id)
        self._emit(self._written(record, known, ahead=ahead))
        return SummaryOutcome(record=record, action="written")

    def _failed(self, error: Exception, partial: SummaryRecord | None, thread_id: str | None) -> SummaryOutcome:
        """The outcome without a record.

        Raises:
            SummarizerError: `on_failure` is ``"raise"``.
        """
        failure = error if isinstance(error, SummarizerError) else None
        reason = type(error).__name__ if failure is None else failure.reason
        attempts = 0 if failure is None else failure.attempts
        self._emit(SummaryFailed(reason=reason, action=self._on_failure, attempts=attempts, thread_id=thread_id))
        if self._on_failure == "raise":
            if failure is not None:
                raise failure  # with the cause it has
            raise SummarizerError(f"no summary: {reason}", reason=reason, attempts=0) from error
        return SummaryOutcome(record=None, action="failed", partial=partial, reason=reason)

    def _parent(self, record: SummaryRecord | None, known: Mapping[str, SummaryRecord]) -> SummaryRecord | None:
        """The record to extend; None to read all the messages."""
        if record is None or getattr(self.summarizer, "from_source", False):
            return None
        if self._rebuild_every is not None and count_rolls(record, known) + 1 > self._rebuild_every:
            return None
        return record

    def _entries(self, sources: Sequence[BaseMessage]) -> list[TranscriptEntry]:
        entries = transcript_entries(sources)
        return entries if self._redact is None else map_texts(entries, self._redact)

    def _drafting(self, entries: Sequence[TranscriptEntry], parent: SummaryRecord | None) -> Body[SummaryDraft]:
        if not entries and parent is not None:
            return SummaryDraft(text=parent.content, attempts=0)  # nothing was said since: the text still holds
        request = SummaryRequest(
            entries=entries, previous="" if parent is None else parent.content, max_tokens=self._max_summary_tokens
        )
        draft: SummaryDraft = yield Ask(
            do=lambda: self.summarizer.summarize(request), ado=lambda: self.summarizer.asummarize(request)
        )
        if not draft.text.strip():
            raise SummarizerError("the summarizer gave an empty text", reason="empty", attempts=draft.attempts)
        return draft

    def _record(
        self,
        draft: SummaryDraft,
        messages: Sequence[BaseMessage],
        *,
        sources: Sequence[BaseMessage],
        entries: Sequence[TranscriptEntry],
        parent: SummaryRecord | None,
        thread_id: str | None,
        policy: str,
        policy_fingerprint: str,
        purpose: SummaryPurpose,
    ) -> SummaryRecord:
        facts = merge_facts(_facts_of(parent), entries, max_tokens=self._facts_tokens)
        content = clean_text(draft.text)
        before = self._count(messages)
        earlier = 1.0 if parent is None else parent.coverage
        share = self._count(sources) / before if before else 1.0
        return SummaryRecord.create(
            sources=messages,
            thread_id=thread_id,
            purpose=purpose,
            parent_id=None if parent is None else parent.id,
            model=self.summarizer.model,
            prompt_version=self.summarizer.prompt_version,
            policy=policy,
            policy_fingerprint=policy_fingerprint,
            content=content,
            facts=facts,
            token_count_before=before,
            token_count_after=estimate_text_tokens(content) + count_facts(facts),
            coverage=min(1.0, max(0.0, draft.coverage * share + earlier * (1.0 - share))),
            usage=dict(draft.usage),
            cost=self._cost(draft.usage),
            created_at=self._clock(),
        )

    def _cost(self, usage: Mapping[str, int]) -> float | None:
        model = self.summarizer.model
        price = self._prices.get(model, self._prices.get(model.partition(":")[2]))  # with or without "provider:"
        if price is None:
            return None
        cached = min(usage.get("cached_tokens", 0), usage.get("input_tokens", 0))
        new = usage.get("input_tokens", 0) - cached
        input_price = price.get("input", 0.0)
        millionths = new * input_price + cached * price.get("cached", input_price)
        return (millionths + usage.get("output_tokens", 0) * price.get("output", 0.0)) / 1_000_000

    def _written(self, record: SummaryRecord, known: Mapping[str, SummaryRecord], *, ahead: bool) -> SummaryWritten:
        usage: Counter[str] = Counter()
        everything = {**known, record.id: record}.values()
        for one in everything:
            usage.update(one.usage)
        costs = [one.cost for one in everything if one.cost is not None]
        return SummaryWritten(
            summary_id=record.id,
            purpose=record.purpose,
            source_messages=len(record.source_message_ids),
            token_count_before=record.token_count_before,
            token_count_after=record.token_count_after,
            coverage=record.coverage,
            model=record.model,
            usage=dict(record.usage),
            cost=record.cost,
            thread_usage=dict(usage),
            thread_cost=sum(costs) if costs else None,
            ahead=ahead,
            thread_id=record.thread_id,
        )

    def _emit(self, event: MemoryEvent) -> None:
        emit(event, self._on_event)


def _facts_of(parent: SummaryRecord | None) -> list[str]:
    """What a record carries: values its text has and its list has not, then its list."""
    if parent is None:
        return []
    listed = " ".join(parent.facts)
    in_text = [fact for value, fact in find_values(parent.content) if value not in listed]
    return [*dict.fromkeys(in_text), *parent.facts]
