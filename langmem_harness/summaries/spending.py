"""What summaries cost: tokens and money, of attempts that failed too, and the events that say so. One home for it."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self, TypeAlias

from langmem_harness.events import SummaryWritten
from langmem_harness.summaries.record import SummaryRecord

Prices: TypeAlias = Mapping[str, Mapping[str, float]]
"""Model name -> prices per million tokens: ``input``, ``output``, ``cached`` (if not given, the price of ``input``)."""


@dataclass(frozen=True, kw_only=True)
class Spending:
    """Tokens and their price.

    Attributes:
        usage: ``input_tokens``, ``output_tokens``, ``cached_tokens``, as far as they were reported.
        cost: In the currency of the prices; None when no price is known.
    """

    usage: Mapping[str, int] = field(default_factory=dict)
    cost: float | None = None

    @classmethod
    def priced(cls, usage: Mapping[str, int], *, model: str, prices: Prices) -> Self:
        """What these tokens cost; a price is found by the model's name, with or without ``provider:``."""
        price = prices.get(model, prices.get(model.partition(":")[2]))
        if price is None:
            return cls(usage=dict(usage))
        cached = min(usage.get("cached_tokens", 0), usage.get("input_tokens", 0))
        new = usage.get("input_tokens", 0) - cached
        input_price = price.get("input", 0.0)
        millionths = new * input_price + cached * price.get("cached", input_price)
        millionths += usage.get("output_tokens", 0) * price.get("output", 0.0)
        return cls(usage=dict(usage), cost=millionths / 1_000_000)

    @classmethod
    def of_records(cls, records: Iterable[SummaryRecord]) -> Spending:
        """What these records cost together."""
        return cls().plus(cls(usage=record.usage, cost=record.cost) for record in records)

    def plus(self, others: Iterable[Spending]) -> Spending:
        """The sum; a cost that is not known adds nothing."""
        everything: list[Spending] = [self, *others]
        usage: Counter[str] = Counter()
        for one in everything:
            usage.update(one.usage)
        costs = [one.cost for one in everything if one.cost is not None]
        return Spending(usage=dict(usage), cost=sum(costs) if costs else None)


NOTHING_SPENT = Spending()


class FailedSpending:
    """What the attempts of this object that gave no valid text cost, by thread.

    Each thread has one running sum under a key of its own, so that writing it down again replaces it, and objects in
    other processes do not overwrite it. Safe to share between threads.

    Args:
        max_threads: How many are remembered, 1 or more; a sum that is forgotten goes on under a new key.
    """

    def __init__(self, *, max_threads: int = 10_000) -> None:
        self._max_threads = max_threads
        self._sums: dict[str | None, tuple[str, Spending]] = {}
        self._lock = threading.Lock()

    def add(self, thread_id: str | None, spending: Spending) -> tuple[str, Spending]:
        """Add to a thread's sum; gives its key and the sum."""
        with self._lock:
            key, total = self._sums.pop(thread_id, (uuid.uuid4().hex, Spending()))
            while len(self._sums) >= self._max_threads:
                del self._sums[next(iter(self._sums))]
            self._sums[thread_id] = (key, total.plus([spending]))
            return self._sums[thread_id]

    def of(self, thread_id: str | None) -> dict[str, Spending]:
        """The thread's sum by its key; empty when nothing failed."""
        found = self._sums.get(thread_id)
        return {} if found is None else {found[0]: found[1]}


def written_event(record: SummaryRecord, *, thread: Spending, ahead: bool = False) -> SummaryWritten:
    """The event of a new record.

    Args:
        record: The record.
        thread: What summaries of its thread cost so far, this one included.
        ahead: Whether it was prepared before it is needed.
    """
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
        thread_usage=dict(thread.usage),
        thread_cost=thread.cost,
        ahead=ahead,
        thread_id=record.thread_id,
    )
