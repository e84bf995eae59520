"""What `SummaryService` is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NotRequired, TypedDict

from langchain_core.messages import BaseMessage

from langmem_harness.summaries.ledger import SummaryLedger
from langmem_harness.summaries.record import SummaryPurpose, SummaryRecord


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
        policy: Name of the policy that leaves messages out; records of others are not looked at.
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


@dataclass(frozen=True, kw_only=True)
class SummaryCase:
    """One call of the service; see `SummaryCall`. Without a thread there is no ledger."""

    messages: Sequence[BaseMessage]
    policy: str
    policy_fingerprint: str
    carried: Mapping[str, SummaryRecord]
    record_ids: Sequence[str]
    ledger: SummaryLedger | None
    thread_id: str | None
    purpose: SummaryPurpose
    history: Sequence[BaseMessage] | None
    ahead: bool
