"""`Accounts`: what the summaries of one summarizer cost a thread so far, attempts that failed included."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterable, Mapping

from langmem_harness.driving import Body
from langmem_harness.summaries.ledger import SummaryLedger
from langmem_harness.summaries.record import SummaryRecord
from langmem_harness.summaries.spending import Prices, Spending

logger = logging.getLogger("langmem_harness")


class Accounts:
    """Prices tokens and keeps the sums of attempts that gave no valid text.

    Args:
        model: Name of the summarizer.
        prices: For costs.
    """

    def __init__(self, model: str, prices: Prices | None) -> None:
        self._model = model
        self._prices = prices or {}
        self._failed = FailedSpending()

    def price(self, usage: Mapping[str, int]) -> Spending:
        """What so many tokens of the summarizer cost."""
        return Spending.priced(usage, model=self._model, prices=self._prices)

    def total(
        self, thread_id: str | None, records: Iterable[SummaryRecord], failed: Mapping[str, Spending]
    ) -> Spending:
        """What a thread cost so far: these records, the failures that are written down, and those known here."""
        return Spending.of_records(records).plus({**failed, **self._failed.of(thread_id)}.values())

    def noting_failure(
        self, ledger: SummaryLedger | None, thread_id: str | None, usage: Mapping[str, int]
    ) -> Body[Spending]:
        """Add the tokens of a failure to the thread's sum, and write it down where that is possible."""
        spent = self.price(usage)
        if spent.usage:
            key, total = self._failed.add(thread_id, spent)
            if ledger is not None and thread_id is not None:
                try:
                    yield from ledger.keeping_failed(thread_id, key, total)
                except Exception as lost:  # noqa: BLE001 - any store; the sum stays here and is written the next time
                    logger.warning("the cost of a failed summary could not be stored: %s", type(lost).__name__)
        return spent


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
