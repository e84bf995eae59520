"""Summaries of single tool outputs: asked for once for each output, kept as records, with what they cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from langchain_core.messages import ToolMessage
from langgraph.store.base import BaseStore, SearchItem, SearchOp

from langmem_harness.driving import Ask, Body, computed
from langmem_harness.errors import RecordError, SummarizerError
from langmem_harness.events import EventCallback, SummaryFailed, emit
from langmem_harness.layout import summaries_namespace
from langmem_harness.redaction import Redactor
from langmem_harness.summaries.accounts import Accounts
from langmem_harness.summaries.ledger import SummaryLedger
from langmem_harness.summaries.record import SummaryRecord, policy_fingerprint
from langmem_harness.summaries.spending import Prices, Spending, written_event
from langmem_harness.summaries.summarizer import Summarizer, SummaryDraft, SummaryRequest
from langmem_harness.summaries.transcript import TranscriptEntry
from langmem_harness.window.tokens import estimate_text_tokens

POLICY = "tool_output"


@dataclass(frozen=True, kw_only=True)
class ToolOutput:
    """One stored output.

    Attributes:
        message: The result as the tool gave it: the source.
        text: Its raw text.
        tool: Name of the tool.
        thread_id: The conversation.
        handle: Where the raw text is.
        token_count: Size of the raw text.
        max_tokens: What a summary of it may take.
    """

    message: ToolMessage
    text: str
    tool: str
    thread_id: str
    handle: str
    token_count: int
    max_tokens: int


class OutputSummaries:
    """Summaries by one summarizer. The same output gets the summary it has: a repeated call costs nothing and reads the
    same.

    Args:
        summarizer: Reads the raw text, redacted, as one transcript entry.
        redactor: Takes secrets out of it first.
        prices: For costs.
        clock: The current time, aware UTC.
        on_event: Gets every event.
    """

    def __init__(
        self,
        summarizer: Summarizer,
        *,
        redactor: Redactor,
        prices: Prices | None,
        clock: Callable[[], datetime],
        on_event: EventCallback | None,
    ) -> None:
        self._summarizer = summarizer
        self._redactor = redactor
        self._accounts = Accounts(summarizer.model, prices)
        self._clock = clock
        self._on_event = on_event

    def summarizing(self, store: BaseStore, output: ToolOutput) -> Body[SummaryRecord | None]:
        """The record of an output; None when the summarizer gave no valid text, which an event says."""
        summarizer, ledger = self._summarizer, SummaryLedger(store)
        usage: Mapping[str, int] = {}
        try:
            search = SearchOp(
                summaries_namespace(output.thread_id), filter={"kind": POLICY, "raw_ref": output.handle}, limit=10
            )
            (items,) = yield Ask(do=lambda: store.batch([search]), ado=lambda: store.abatch([search]))
            known = self._select(items, output.max_tokens)
            if known is not None:
                return known
            before = yield from ledger.totaling(output.thread_id)
            request = yield computed(lambda: self._request(output))
            draft: SummaryDraft = yield Ask(
                do=lambda: summarizer.summarize(request), ado=lambda: summarizer.asummarize(request)
            )
            usage = draft.usage
            record = self._record(draft, output)
            yield from ledger.writing(record, ())
        except Exception as error:  # noqa: BLE001 - the call has happened: no summarizer's error may lose its result
            usage = error.usage if isinstance(error, SummarizerError) else usage
            spent = yield from self._accounts.noting_failure(ledger, output.thread_id, usage)
            self._report_failed(error, output, spent)
            return None
        emit(written_event(record, thread=before.plus([Spending.of_records([record])])), self._on_event)
        return record

    def _request(self, output: ToolOutput) -> SummaryRequest:
        entry = TranscriptEntry(speaker=f"result of {output.tool}", text=self._redactor.redact(output.text).text)
        return SummaryRequest(entries=[entry], max_tokens=output.max_tokens)

    def _record(self, draft: SummaryDraft, output: ToolOutput) -> SummaryRecord:
        return SummaryRecord.create(
            sources=[output.message],
            thread_id=output.thread_id,
            created_at=self._clock(),
            kind="tool_output",
            model=self._summarizer.model,
            prompt_version=self._summarizer.prompt_version,
            policy=POLICY,
            policy_fingerprint=policy_fingerprint(POLICY, max_tokens=output.max_tokens),
            content=draft.text,
            token_count_before=output.token_count,
            token_count_after=estimate_text_tokens(draft.text),
            coverage=draft.coverage,
            usage=dict(draft.usage),
            cost=self._accounts.price(draft.usage).cost,
            raw_ref=output.handle,
        )

    def _select(self, items: Sequence[SearchItem], max_tokens: int) -> SummaryRecord | None:
        """The newest undamaged record that this summarizer would write again, or None."""
        fingerprint = policy_fingerprint(POLICY, max_tokens=max_tokens)
        wanted = (self._summarizer.model, self._summarizer.prompt_version, fingerprint)
        records = []
        for item in items:
            try:
                record = SummaryRecord.from_dict(item.value)
            except RecordError:  # damaged, or written by a newer version: it is made again
                continue
            if record.verify() and (record.model, record.prompt_version, record.policy_fingerprint) == wanted:
                records.append(record)
        return max(records, key=lambda record: (record.created_at, record.id), default=None)

    def _report_failed(self, error: Exception, output: ToolOutput, spent: Spending) -> None:
        failure = error if isinstance(error, SummarizerError) else None
        failed = SummaryFailed(
            reason=type(error).__name__ if failure is None else failure.reason,
            action="extract",
            attempts=0 if failure is None else failure.attempts,
            model=self._summarizer.model,
            usage=dict(spent.usage),
            cost=spent.cost,
            thread_id=output.thread_id,
        )
        emit(failed, self._on_event)
