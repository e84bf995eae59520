"""Which record may stand in for messages, and what is left to summarize. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from langchain_core.messages import BaseMessage

from langmem_harness.summaries.identities import Identity, identities
from langmem_harness.summaries.record import (
    StalenessReport,
    SummaryPurpose,
    SummaryRecord,
    check_identities,
    match_sources,
)

_ABOUT_SOURCES = {"source_changed", "source_missing", "source_order_changed"}


@dataclass(frozen=True, kw_only=True)
class SummaryPlan:
    """What to do about messages that are left out.

    Attributes:
        record: The fresh record that covers most of them; None for none.
        uncovered: The messages it does not cover, in order; all of them without a record.
        stale: Report of the stale record that would have covered more; None for none.
    """

    record: SummaryRecord | None
    uncovered: Sequence[BaseMessage]
    stale: StalenessReport | None


def plan_summary(
    messages: Sequence[BaseMessage],
    records: Sequence[SummaryRecord],
    *,
    purpose: SummaryPurpose,
    policy: str,
    policy_fingerprint: str,
    prompt_version: str,
    model: str | None,
    ttl: timedelta | None,
    now: datetime,
    history: Sequence[BaseMessage] | None = None,
    carried_ids: frozenset[str] = frozenset(),
    name: Callable[[Sequence[BaseMessage]], list[Identity]] = identities,
) -> SummaryPlan:
    """Choose among records by what they cover, never by when they were made.

    A record is used only if every message it covers is among `messages`, unchanged and in its order; there may be
    others before, between and after, which are then uncovered. A record of another branch or of a later time is simply
    not for these messages; one whose messages were edited or deleted is stale.

    Args:
        messages: The left-out messages, oldest first.
        records: All candidates.
        purpose: Only records of this purpose count.
        policy: Name of the policy. Records made for another one are not for these messages: several middlewares on
            one thread leave out different messages.
        policy_fingerprint: In use now.
        prompt_version: In use now.
        model: In use now; None accepts any.
        ttl: How old a record may become; None: as old as it likes.
        now: Aware time.
        history: The whole thread, if there is more of it than `messages`: what is only there was not deleted.
        carried_ids: Records that this branch of the thread itself refers to. If a message of one of them is gone, it
            was deleted; if a message at the end of any other record is gone, that record is of another branch.
        name: Gives the identities of messages.
    """
    if not records:
        return SummaryPlan(record=None, uncovered=messages, stale=None)
    present = name(messages)
    everywhere: list[Identity] | None = None  # only looked at for records that do not simply fit: threads are long
    fresh: list[tuple[int, SummaryRecord, list[int]]] = []
    stale: list[tuple[int, SummaryRecord, StalenessReport]] = []
    for record in records:
        if record.purpose != purpose or record.policy != policy or record.kind != "history":
            continue
        positions = match_sources(record, present)
        if positions is None and everywhere is None:
            everywhere = present if history is None else name(history)
        report = check_identities(
            record,
            present if positions is not None or everywhere is None else everywhere,
            policy_fingerprint=policy_fingerprint,
            prompt_version=prompt_version,
            model=model,
            ttl=ttl,
            now=now,
        )
        if positions is not None and not report.is_stale:
            fresh.append((len(positions), record, positions))
        elif positions is not None or _ABOUT_SOURCES & set(report.reasons):
            ids = {identity for identity, _ in everywhere or present}
            overlap = sum(identity in ids for identity in record.source_message_ids)
            if overlap and not _is_of_another_branch(record, report, ids, carried_ids):
                stale.append((overlap, record, report))
    best = max(fresh, key=lambda one: (one[0], one[1].created_at, one[1].id), default=None)
    worst = max(stale, key=lambda one: (one[0], one[1].created_at, one[1].id), default=None)
    covered = set() if best is None else set(best[2])
    return SummaryPlan(
        record=None if best is None else best[1],
        uncovered=[message for position, message in enumerate(messages) if position not in covered],
        stale=None if worst is None or worst[0] <= len(covered) else worst[2],
    )


def count_rolls(record: SummaryRecord, known: Mapping[str, SummaryRecord]) -> int:
    """How often the text of a record was made from another summary: 0 for one made from messages alone."""
    rolls = 0
    seen = {record.id}
    while record.parent_id is not None and record.parent_id not in seen:
        rolls += 1
        seen.add(record.parent_id)
        parent = known.get(record.parent_id)
        if parent is None:
            break
        record = parent
    return rolls


def _is_of_another_branch(
    record: SummaryRecord, report: StalenessReport, ids: set[str], carried_ids: frozenset[str]
) -> bool:
    """Whether a record's messages just go on differently: only its last ones are not in this history."""
    if record.id in carried_ids or report.changed_ids or not report.missing_ids:
        return False
    are_present = [identity in ids for identity in record.source_message_ids]
    first_missing = are_present.index(False) if False in are_present else len(are_present)
    return not any(are_present[first_missing:])
