"""`IdlePromotionMiddleware`: notes at the end of each turn that a thread waits for its promotion."""

from __future__ import annotations

from typing import Any

from langchain.agents.middleware import AgentMiddleware, AgentState
from langgraph.config import get_config
from langgraph.runtime import Runtime

from langmem_harness.memory.idle import IdlePromoter
from langmem_harness.memory.scope import MemoryScope, scope_from_runtime, thread_from_config


class IdlePromotionMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Tells an `IdlePromoter` that something happened in this thread; whose it is comes from the runtime.

    Nothing is promoted in the turn. A run without a thread is not noted: there will be nothing to read.

    Args:
        promoter: Promotes later, here or in another process.
        share_between_agents: Promote into the user's one memory whatever agent runs; as in `LongTermMemoryMiddleware`.
    """

    def __init__(self, promoter: IdlePromoter, *, share_between_agents: bool = False) -> None:
        super().__init__()
        self._promoter = promoter
        self._share_between_agents = share_between_agents

    def after_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """Touch the thread."""
        thread = self._thread(runtime)
        if thread is not None:
            self._promoter.touch(*thread)

    async def aafter_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """Async twin of `after_agent`."""
        thread = self._thread(runtime)
        if thread is not None:
            await self._promoter.atouch(*thread)

    def _thread(self, runtime: Runtime[Any]) -> tuple[MemoryScope, str] | None:
        config = get_config()
        thread_id = thread_from_config(config)
        scope = scope_from_runtime(runtime.context, config)
        return None if thread_id is None else (scope.shared if self._share_between_agents else scope, thread_id)
