"""What a model's refusals say about its window: a limit that was learned is kept, so that it is learned once."""

from __future__ import annotations

from collections.abc import Mapping

RETRY_SHARE = 0.7
"""A request that was refused as too long is sent again with at most this share of its size."""

_LEAST_SHARE = 0.5  # one huge message left out of a retry does not make the window tiny for ever


class LearnedLimits:
    """The largest request worth sending, by model name. Shared by threads and runs; only ever goes down."""

    def __init__(self) -> None:
        self._tokens: dict[str, int] = {}

    def learn(self, model: str, *, refused_tokens: int, accepted_tokens: int | None = None) -> int:
        """A request of so many tokens was refused; gives what is sent at most from now on, 1 or more.

        Args:
            model: Its name.
            refused_tokens: By our count, which is not the provider's: the truth lies somewhere below.
            accepted_tokens: Size of the retry that was then taken; None when none was, or is not known yet.
        """
        if accepted_tokens is None:
            learned = int(refused_tokens * RETRY_SHARE)
        else:
            learned = max(accepted_tokens, int(refused_tokens * _LEAST_SHARE))
        self._tokens[model] = max(1, min(learned, self._tokens.get(model, learned)))
        return self._tokens[model]

    def limit_for(self, model: str, in_state: Mapping[str, int] | None) -> int | None:
        """What is known here or in the state of the thread, whichever is less; None when nothing is."""
        known = [limits[model] for limits in (self._tokens, in_state or {}) if model in limits]
        return min(known, default=None)
