"""What `ThreadLog.verify` finds. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from langmem_harness.threads.events import START_OF_CHAIN, chain_hash
from langmem_harness.window.messages import text_hash


class StoredEntry(NamedTuple):
    """A log entry as it lies in the file, its body unread."""

    seq: int
    thread_id: str
    turn_id: str
    kind: str
    body: str
    content_hash: str
    chain_hash: str
    supersedes: int | None
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class LogReport:
    """What `ThreadLog.verify` found.

    Attributes:
        events: Entries looked at.
        damaged: Numbers of entries whose body or place in the chain is not what was written.
        missing: Numbers that should be there and are not.
    """

    events: int
    damaged: tuple[int, ...]
    missing: tuple[int, ...]

    @property
    def is_intact(self) -> bool:
        """Whether every entry is there as it was written."""
        return not self.damaged and not self.missing


def check_chain(entries: Sequence[StoredEntry], head: tuple[int, str]) -> LogReport:
    """Re-derive the hashes of a thread's entries.

    Args:
        entries: In order of `seq`.
        head: Number and chain hash of the newest entry, kept apart from the entries so that a cut-off end shows.
    """
    damaged: list[int] = []
    before = START_OF_CHAIN
    for entry in entries:
        expected = chain_hash(
            before,
            seq=entry.seq,
            thread_id=entry.thread_id,
            turn_id=entry.turn_id,
            kind=entry.kind,
            content_hash=entry.content_hash,
            supersedes=entry.supersedes,
            created_at=entry.created_at,
        )
        if text_hash(entry.body) != entry.content_hash or expected != entry.chain_hash:
            damaged.append(entry.seq)
        before = entry.chain_hash  # so that one changed entry is one finding, not all that follow
    last, last_hash = head
    present = {entry.seq for entry in entries}
    missing = tuple(seq for seq in range(1, max(last, 0) + 1) if seq not in present)
    if entries and not missing and (entries[-1].seq, entries[-1].chain_hash) != (last, last_hash):
        damaged.append(entries[-1].seq)
    return LogReport(events=len(entries), damaged=tuple(dict.fromkeys(damaged)), missing=missing)
