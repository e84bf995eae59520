"""What stands in for messages: records that know what they cover, and who writes their text."""

from langmem_harness.summaries.calls import SummaryOutcome
from langmem_harness.summaries.ledger import SummaryLedger
from langmem_harness.summaries.local import ExtractiveSummarizer, HeadTailSummarizer
from langmem_harness.summaries.model import ModelSummarizer
from langmem_harness.summaries.record import StalenessReport, SummaryRecord, check_staleness, policy_fingerprint
from langmem_harness.summaries.service import SummaryService
from langmem_harness.summaries.summarizer import Summarizer, SummaryDraft, SummaryRequest, create_summarizer
from langmem_harness.summaries.thread_summary import (
    ThreadSummary,
    ThreadSummaryPolicy,
    asummarize_thread,
    summarize_thread,
)

__all__ = [
    "ExtractiveSummarizer",
    "HeadTailSummarizer",
    "ModelSummarizer",
    "StalenessReport",
    "Summarizer",
    "SummaryDraft",
    "SummaryLedger",
    "SummaryOutcome",
    "SummaryRecord",
    "SummaryRequest",
    "SummaryService",
    "ThreadSummary",
    "ThreadSummaryPolicy",
    "asummarize_thread",
    "check_staleness",
    "create_summarizer",
    "policy_fingerprint",
    "summarize_thread",
]
