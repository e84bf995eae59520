"""Internal model calls that stay out of the user's stream and are still traced."""

from __future__ import annotations

from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tracers._streaming import _StreamingCallbackHandler
from langchain_core.tracers.base import AsyncBaseTracer, BaseTracer
from langgraph.constants import TAG_NOSTREAM

_STREAMS = (_StreamingCallbackHandler,)  # what every handler that turns tokens into a stream of events inherits


def quiet_config(run_name: str) -> RunnableConfig:
    """The config for a model call inside a run: no token of it reaches any stream of the run.

    Two locks, because each was once opened alone: LangGraph's tag for ``stream_mode="messages"``, and the run's
    callbacks cut down to tracers, so that event streams and a user's own handlers hear nothing. Tracers stay, so the
    call is in the trace under its parent.
    """
    parent = var_child_runnable_config.get()
    inherited = None if parent is None else parent.get("callbacks")
    callbacks: list[BaseCallbackHandler] | BaseCallbackManager = []
    if isinstance(inherited, BaseCallbackManager):
        callbacks = inherited.copy()
        callbacks.set_handlers([one for one in inherited.handlers if _is_tracer(one)], inherit=True)
    elif inherited:
        callbacks = [one for one in inherited if _is_tracer(one)]
    return {
        "callbacks": callbacks,
        "tags": [TAG_NOSTREAM],
        "run_name": run_name,
        "metadata": {"lc_source": "summarization"},
    }


def _is_tracer(handler: BaseCallbackHandler) -> bool:
    return isinstance(handler, BaseTracer | AsyncBaseTracer) and not isinstance(handler, _STREAMS)
