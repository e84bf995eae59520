"""Summaries of single tool outputs: what is asked for, and the record of what came back.

Pure but for the store operations it describes. The summarizer reads the raw text, redacted, as one transcript entry.
"""

from __future__ import annotations

from datetime import datetime

from langchain_core.messages import ToolMessage
from langgraph.store.base import PutOp, SearchItem, SearchOp

from langmem_harness.errors import RecordError
from langmem_harness.events import SummaryWritten
from langmem_harness.layout import summaries_namespace
from langmem_harness.redaction import Redactor
from langmem_harness.summaries.record import SummaryRecord, policy_fingerprint
from langmem_harness.summaries.summarizer import Summarizer, SummaryDraft, SummaryRequest
from langmem_harness.summaries.transcript import TranscriptEntry
from langmem_harness.window.tokens import estimate_text_tokens

POLICY = "tool_output"


def summary_request(text: str, *, tool: str, max_tokens: int, redactor: Redactor) -> SummaryRequest:
    """What the summarizer is given for one output: all of it, without secrets."""
    entry = TranscriptEntry(speaker=f"result of {tool}", text=redactor.redact(text).text)
    return SummaryRequest(entries=[entry], max_tokens=max_tokens)


def create_record(
    draft: SummaryDraft,
    message: ToolMessage,
    *,
    summarizer: Summarizer,
    thread_id: str,
    handle: str,
    token_count: int,
    max_tokens: int,
    now: datetime,
) -> SummaryRecord:
    """The record of a summary of one output.

    Args:
        draft: What the summarizer gave.
        message: The result as the tool gave it: the source.
        summarizer: What wrote the text.
        thread_id: The conversation.
        handle: Where the raw text is.
        token_count: Size of the raw text.
        max_tokens: What the summarizer was allowed.
        now: Aware UTC time.
    """
    return SummaryRecord.create(
        sources=[message],
        thread_id=thread_id,
        created_at=now,
        kind="tool_output",
        model=summarizer.model,
        prompt_version=summarizer.prompt_version,
        policy=POLICY,
        policy_fingerprint=policy_fingerprint(POLICY, max_tokens=max_tokens),
        content=draft.text,
        token_count_before=token_count,
        token_count_after=estimate_text_tokens(draft.text),
        coverage=draft.coverage,
        usage=dict(draft.usage),
        raw_ref=handle,
    )


def keep_operation(record: SummaryRecord, *, thread_id: str) -> PutOp:
    """The write of a record. It is not embedded."""
    return PutOp(summaries_namespace(thread_id), record.id, record.to_dict(), index=False)


def find_operation(*, thread_id: str, handle: str) -> SearchOp:
    """The search for records of one output."""
    return SearchOp(summaries_namespace(thread_id), filter={"kind": "tool_output", "raw_ref": handle}, limit=10)


def select_record(items: list[SearchItem], *, summarizer: Summarizer, max_tokens: int) -> SummaryRecord | None:
    """The newest undamaged record that this summarizer would write again, or None."""
    wanted = (summarizer.model, summarizer.prompt_version, policy_fingerprint(POLICY, max_tokens=max_tokens))
    records = []
    for item in items:
        try:
            record = SummaryRecord.from_dict(item.value)
        except RecordError:  # damaged, or written by a newer version: it is made again
            continue
        if record.verify() and (record.model, record.prompt_version, record.policy_fingerprint) == wanted:
            records.append(record)
    return max(records, key=lambda record: (record.created_at, record.id), default=None)


def written_event(record: SummaryRecord) -> SummaryWritten:
    """The event of a new record."""
    return SummaryWritten(
        thread_id=record.thread_id,
        summary_id=record.id,
        purpose=record.purpose,
        source_messages=len(record.source_message_ids),
        token_count_before=record.token_count_before,
        token_count_after=record.token_count_after,
        coverage=record.coverage,
        model=record.model,
        usage=dict(record.usage),
        cost=record.cost,
    )
