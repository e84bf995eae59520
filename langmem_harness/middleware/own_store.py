"""Which store a middleware works with: its own, or that of the graph; two different ones are said once."""

from __future__ import annotations

import logging
from typing import Any

from langgraph.store.base import BaseStore

from langmem_harness.errors import ConfigurationError

logger = logging.getLogger("langmem_harness")


class StoreChoice:
    """The store of one middleware.

    Args:
        own: Used instead of the store of the graph; None takes that one.
        owner: Name of the middleware, for the log.

    Raises:
        ConfigurationError: `own` is no store.
    """

    def __init__(self, own: BaseStore | None, *, owner: str) -> None:
        if own is not None and not isinstance(own, BaseStore):
            raise ConfigurationError(f"store must be a LangGraph BaseStore or None, not {type(own).__name__}")
        self._own = own
        self._owner = owner
        self._has_warned = False

    def of(self, runtime: Any) -> BaseStore | None:
        """The store for this run; None when there is none."""
        given: BaseStore | None = getattr(runtime, "store", None)
        if self._own is None:
            return given
        if given is not None and given is not self._own and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "langmem_harness: %s has a store of its own (%s) and does not use the one the agent was created with "
                "(%s): pass the same object to both, for example memory.middleware(store=...)",
                self._owner,
                type(self._own).__name__,
                type(given).__name__,
            )
        return self._own
