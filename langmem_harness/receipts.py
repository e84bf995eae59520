"""`ErasureReceipt`: proof of what was erased, without a word of it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Self

from langmem_harness.errors import RecordError

FORMAT_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class ErasureReceipt:
    """What was erased, where, how much of it and when.

    Attributes:
        target: What was asked for, by ids only: ``{"thread_id": ...}``, ``{"tenant": ..., "user": ..., "key": ...}``.
        counts: Number of erased things by place (``"memories"``, ``"versions"``, ``"vectors"``, ``"keywords"``,
            ``"summaries"``, ``"tool_outputs"``, ``"checkpoints"``, ``"log_events"``, ...); places with none may be left
            out.
        remaining: What a search after the erasure still found, by place; empty when nothing was left.
        unattributed_threads: For a scope, threads that name nobody: whether they were this owner's, nothing says.
        found: Whether anything is known of the target. An erased thread stays known, by its tombstone; False means that
            nothing was done, and that the id may be mistyped.
        erased_at: Aware UTC.
        id: Random, for the log and the event.
    """

    target: Mapping[str, str | None]
    counts: Mapping[str, int] = field(default_factory=dict)
    remaining: Mapping[str, int] = field(default_factory=dict)
    unattributed_threads: int = 0
    found: bool = True
    erased_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    id: str = field(default_factory=lambda: f"erasure_{secrets.token_hex(8)}")
    format_version: int = FORMAT_VERSION

    @property
    def complete(self) -> bool:
        """Whether nothing was left of what is known to belong to the target."""
        return not any(self.remaining.values())

    def merged(self, other: ErasureReceipt) -> ErasureReceipt:
        """One receipt for both: counts and what remains are added, id, target and time are those of this one."""
        return ErasureReceipt(
            target=self.target,
            counts=_added(self.counts, other.counts),
            remaining=_added(self.remaining, other.remaining),
            unattributed_threads=self.unattributed_threads + other.unattributed_threads,
            found=self.found or other.found,
            erased_at=self.erased_at,
            id=self.id,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values. `complete` is written for whoever reads them; it follows from ``remaining``."""
        return {
            "id": self.id,
            "target": dict(self.target),
            "counts": dict(self.counts),
            "remaining": dict(self.remaining),
            "complete": self.complete,
            "unattributed_threads": self.unattributed_threads,
            "found": self.found,
            "erased_at": self.erased_at.astimezone(UTC).isoformat(),
            "format_version": self.format_version,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The receipt written by `to_dict`; unknown keys are ignored.

        Raises:
            RecordError: Not a receipt.
        """
        try:
            return cls(
                id=str(data["id"]),
                target=dict(data["target"]),
                counts={str(place): int(count) for place, count in data["counts"].items()},
                remaining={str(place): int(count) for place, count in (data.get("remaining") or {}).items()},
                unattributed_threads=int(data.get("unattributed_threads") or 0),
                found=bool(data.get("found", True)),
                erased_at=datetime.fromisoformat(data["erased_at"]),
                format_version=int(data.get("format_version", FORMAT_VERSION)),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RecordError("not an erasure receipt") from error


def _added(counts: Mapping[str, int], others: Mapping[str, int]) -> dict[str, int]:
    return {place: counts.get(place, 0) + others.get(place, 0) for place in {**counts, **others}}
