"""`RecordWriter`: from messages, and the record they extend, to a new record. It decides nothing and keeps nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from langchain_core.messages import BaseMessage

from langmem_harness.driving import Ask, Body, computed
from langmem_harness.errors import SummarizerError
from langmem_harness.summaries.facts import count_facts, find_values, merge_facts
from langmem_harness.summaries.record import SummaryPurpose, SummaryRecord
from langmem_harness.summaries.spending import Spending
from langmem_harness.summaries.summarizer import Summarizer, SummaryDraft, SummaryRequest
from langmem_harness.summaries.transcript import TranscriptEntry, clean_text, map_texts, transcript_entries
from langmem_harness.window.tokens import TokenCounter, estimate_text_tokens


@dataclass(frozen=True, kw_only=True)
class RecordOrder:
    """What a record is to be.

    Attributes:
        messages: What it stands for, oldest first.
        sources: Those of them that have to be read: all without a parent.
        parent: The record it extends.
        thread_id: The conversation; None outside of one.
        purpose: Who it is for.
        policy: Name of the policy that asks for it.
        policy_fingerprint: Of its settings.
        spent: Gets the tokens of every attempt as soon as they are known, so that they are known when it fails.
    """

    messages: Sequence[BaseMessage]
    sources: Sequence[BaseMessage]
    parent: SummaryRecord | None
    thread_id: str | None
    purpose: SummaryPurpose
    policy: str
    policy_fingerprint: str
    spent: Counter[str] = field(default_factory=Counter)


class RecordWriter:
    """Makes records with one summarizer.

    Args:
        summarizer: Writes the text.
        token_counter: Counts `token_count_before`.
        max_summary_tokens: How long a text should be.
        facts_tokens: Budget of the facts.
        price: Says what tokens cost.
        redact: Applied to everything the summarizer sees.
        clock: The current time, aware UTC.
    """

    def __init__(
        self,
        summarizer: Summarizer,
        *,
        token_counter: TokenCounter,
        max_summary_tokens: int,
        facts_tokens: int,
        price: Callable[[Mapping[str, int]], Spending],
        redact: Callable[[str], str] | None,
        clock: Callable[[], datetime],
    ) -> None:
        self.summarizer = summarizer
        self._count = token_counter
        self._max_summary_tokens = max_summary_tokens
        self._facts_tokens = facts_tokens
        self._price = price
        self._redact = redact
        self._clock = clock

    def writing(self, order: RecordOrder) -> Body[SummaryRecord | None]:
        """A new record; None when the messages say nothing at all.

        Raises:
            SummarizerError: No valid text.
        """
        entries: list[TranscriptEntry] = yield computed(lambda: self._entries(order.sources))
        if not entries and order.parent is None:
            return None
        draft = yield from self._drafting(entries, order)
        record: SummaryRecord = yield computed(lambda: self._record(draft, entries, order))
        return record

    def _entries(self, sources: Sequence[BaseMessage]) -> list[TranscriptEntry]:
        entries = transcript_entries(sources)
        return entries if self._redact is None else map_texts(entries, self._redact)

    def _drafting(self, entries: Sequence[TranscriptEntry], order: RecordOrder) -> Body[SummaryDraft]:
        previous = "" if order.parent is None else order.parent.content
        if not entries:
            return SummaryDraft(text=previous, attempts=0)  # nothing was said since: the text still holds
        request = SummaryRequest(entries=entries, previous=previous, max_tokens=self._max_summary_tokens)
        try:
            draft: SummaryDraft = yield Ask(
                do=lambda: self.summarizer.summarize(request), ado=lambda: self.summarizer.asummarize(request)
            )
        except SummarizerError as error:
            order.spent.update(error.usage)
            raise
        order.spent.update(draft.usage)
        if not draft.text.strip():
            raise SummarizerError("the summarizer gave an empty text", reason="empty", attempts=draft.attempts)
        return draft

    def _record(self, draft: SummaryDraft, entries: Sequence[TranscriptEntry], order: RecordOrder) -> SummaryRecord:
        parent = order.parent
        facts = merge_facts(_facts_of(parent), entries, max_tokens=self._facts_tokens)
        content = clean_text(draft.text)
        before = self._count(order.messages)
        earlier = 1.0 if parent is None else parent.coverage
        share = self._count(order.sources) / before if before else 1.0
        return SummaryRecord.create(
            sources=order.messages,
            thread_id=order.thread_id,
            purpose=order.purpose,
            parent_id=None if parent is None else parent.id,
            model=self.summarizer.model,
            prompt_version=self.summarizer.prompt_version,
            policy=order.policy,
            policy_fingerprint=order.policy_fingerprint,
            content=content,
            facts=facts,
            token_count_before=before,
            token_count_after=estimate_text_tokens(content) + count_facts(facts),
            coverage=min(1.0, max(0.0, draft.coverage * share + earlier * (1.0 - share))),
            usage=dict(draft.usage),
            cost=self._price(draft.usage).cost,
            created_at=self._clock(),
        )


def _facts_of(parent: SummaryRecord | None) -> list[str]:
    """What a record carries: values its text has and its list has not, then its list."""
    if parent is None:
        return []
    listed = " ".join(parent.facts)
    in_text = [fact for value, fact in find_values(parent.content) if value not in listed]
    return [*dict.fromkeys(in_text), *parent.facts]
