"""What has to be kept of a recall to show the same block again, also in another process. Pure."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import TypedDict

from langmem_harness.memory.found import Layer, MemoryRecall, RecalledMemory
from langmem_harness.memory.records import MemoryRecord


class RecallPin(TypedDict):
    """Which statement was recalled and how; no text of it, so that a checkpoint holds none."""

    version: str
    layer: Layer
    retrieval: str
    score: float | None
    score_kind: str | None
    outdated: bool
    updated_at: str


class PinnedRecall(TypedDict):
    """What was recalled for one human message; decided once per turn.

    No text of a memory: state is shown by ``stream`` and kept in checkpoints.
    """

    turn: str
    message: str
    retrieval: str
    degraded: str | None
    pins: list[RecallPin]


def pin_recall(message: str, result: MemoryRecall) -> PinnedRecall:
    """What has to be kept to show the same block again."""
    return PinnedRecall(
        turn=secrets.token_hex(8),
        message=message,
        retrieval=result.retrieval,
        degraded=result.degraded,
        pins=[
            RecallPin(
                version=found.record.version_key,
                layer=found.layer,
                retrieval=found.retrieval,
                score=found.score,
                score_kind=found.score_kind,
                outdated=found.outdated,
                updated_at=found.record.updated_at.isoformat(),
            )
            for found in result
        ],
    )


def unpin_recall(pinned: PinnedRecall, records: Sequence[MemoryRecord | None]) -> MemoryRecall:
    """The recall a pin stands for, without what was forgotten since; sources added since are left out."""
    memories = []
    for pin, record in zip(pinned["pins"], records, strict=True):
        if record is None:
            continue
        then = datetime.fromisoformat(pin["updated_at"])
        known = tuple(source for source in record.sources if source.stated_at is None or source.stated_at <= then)
        memories.append(
            RecalledMemory(
                record=dataclasses.replace(record, sources=known, updated_at=then),
                layer=pin["layer"],
                retrieval=pin["retrieval"],
                score=pin["score"],
                score_kind=pin["score_kind"],
                outdated=pin["outdated"],
            )
        )
    return MemoryRecall(memories=tuple(memories), retrieval=pinned["retrieval"], degraded=pinned["degraded"])
