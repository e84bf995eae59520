"""What a run says about its checkpoints: where they belong, whose they are, when they were made."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint

from langmem_harness.errors import IdentityError
from langmem_harness.memory.scope import MemoryScope, scope_from_runtime
from langmem_harness.threads.blobs import CheckpointKey

RUNTIME_KEY = "__pregel_runtime"
"""Where LangGraph keeps the runtime, and with it the runtime context, in the config of a step."""


def thread_id_of(config: RunnableConfig) -> str:
    """The thread a config names, as text.

    Raises:
        IdentityError: It cannot be stored as text.
    """
    return as_stored(config["configurable"]["thread_id"])


def as_stored(thread_id: object) -> str:
    """A thread id as the files have it: LangGraph lets it be a number or a UUID.

    Raises:
        IdentityError: It cannot be stored as text.
    """
    text = str(thread_id)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise IdentityError(f"thread_id {text!r} has a lone surrogate and cannot be stored") from None
    return text


def namespace_of(config: RunnableConfig) -> str:
    """The checkpoint namespace a config names; empty for the graph itself."""
    return str(config["configurable"].get("checkpoint_ns") or "")


def config_of(key: CheckpointKey, checkpoint_id: str) -> RunnableConfig:
    """The config of a checkpoint in the thread and namespace of this key."""
    return {
        "configurable": {
            "thread_id": key.thread_id,
            "checkpoint_ns": key.checkpoint_ns,
            "checkpoint_id": checkpoint_id,
        }
    }


def owner_of(config: RunnableConfig, metadata: Mapping[str, Any]) -> MemoryScope | None:
    """Whose run it is, by its runtime context, its config, or the metadata of a checkpoint taken over; None: nobody's.

    A blank or unusable user is nobody here: saving does not fail for it, the middleware that needs a user does.
    """
    context = getattr(config["configurable"].get(RUNTIME_KEY), "context", None)
    for said, source in ((context, config), (None, {"configurable": metadata})):
        try:
            return scope_from_runtime(said, source)
        except IdentityError:
            continue
    return None


def created_at_of(checkpoint: Checkpoint) -> int:
    """When a checkpoint says it was made, in epoch milliseconds; now, when it does not say so."""
    try:
        made = datetime.fromisoformat(checkpoint["ts"])
    except (KeyError, TypeError, ValueError):
        made = datetime.now(UTC)
    return int(made.timestamp() * 1000)
