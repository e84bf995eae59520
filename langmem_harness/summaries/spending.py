"""What summaries cost: tokens and money, and the event that says so. Pure."""

from __future__ import annotations

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
