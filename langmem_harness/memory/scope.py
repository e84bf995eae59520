"""Whose memory it is. Pure.

The scope comes from the runtime (`MemoryContext` or ``config["configurable"]``), never from the model: no tool of this
package has a scope argument. There is no default user; a missing or blank identity is an `IdentityError`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from langmem_harness.errors import IdentityError
from langmem_harness.layout import EPISODE_SPEAKERS, EPISODES, MEMORIES, MEMORY_VERSIONS, scope_namespace

DEFAULT_TENANT = "default"

USER_KEYS = ("user_id", "langgraph_auth_user_id", "langgraph_user_id")
"""Where a user is looked for in ``config["configurable"]``; the first that is there is taken."""
TENANT_KEYS = ("tenant", "tenant_id")
AGENT_KEYS = ("agent", "agent_id")


@dataclass
class MemoryContext:
    """Who a run is for; pass the class as ``context_schema`` and an instance as ``context``.

    Not frozen because LangGraph may build it from a dictionary; the scope is read from it once per step.

    Attributes:
        user_id: The user; required. Numbers and UUIDs become texts.
        tenant: The customer or workspace the user belongs to.
        agent: Name of the agent when each agent of a user has a memory of its own; None for a memory of the user.
        turn_id: The caller's idempotency key of this turn.

    Raises:
        IdentityError: A user, tenant or agent that is blank or no id; said here, where it is given.

    Example:
        >>> MemoryContext(user_id="ada").tenant
        'default'
    """

    user_id: str
    tenant: str = DEFAULT_TENANT
    agent: str | None = None
    turn_id: str | None = None

    def __post_init__(self) -> None:
        id_text(self.user_id, "user")
        id_text(self.tenant, "tenant")
        if self.agent is not None:
            id_text(self.agent, "agent")


@dataclass(frozen=True, kw_only=True)
class MemoryScope:
    """Owner of memories: every read and write of long-term memory names exactly one.

    Two scopes that differ in any part see nothing of each other; ``agent=None`` is a scope of its own, the user's
    memory that is not tied to an agent.

    Attributes:
        tenant: Not blank.
        user: Not blank.
        agent: Not blank, or None.

    Raises:
        IdentityError: A part is blank or not an id.
    """

    tenant: str = DEFAULT_TENANT
    user: str
    agent: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "tenant", id_text(self.tenant, "tenant"))
        object.__setattr__(self, "user", id_text(self.user, "user"))
        if self.agent is not None:
            object.__setattr__(self, "agent", id_text(self.agent, "agent"))

    @property
    def shared(self) -> MemoryScope:
        """The same user without the agent: what agents use when they are told to share."""
        return MemoryScope(tenant=self.tenant, user=self.user)

    @property
    def memories(self) -> tuple[str, ...]:
        """Namespace of the memories."""
        return scope_namespace(MEMORIES, self.tenant, self.user, self.agent)

    @property
    def versions(self) -> tuple[str, ...]:
        """Namespace of superseded versions; never searched."""
        return scope_namespace(MEMORY_VERSIONS, self.tenant, self.user, self.agent)

    @property
    def episodes(self) -> tuple[str, ...]:
        """Namespace of the turns of earlier threads."""
        return scope_namespace(EPISODES, self.tenant, self.user, self.agent)

    @property
    def episode_speakers(self) -> tuple[str, ...]:
        """Namespace of who speaks in which earlier thread; never searched."""
        return scope_namespace(EPISODE_SPEAKERS, self.tenant, self.user, self.agent)

    def to_dict(self) -> dict[str, str | None]:
        """Plain JSON values."""
        return {"tenant": self.tenant, "user": self.user, "agent": self.agent}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> MemoryScope:
        """The scope written by `to_dict`."""
        return cls(tenant=data.get("tenant", DEFAULT_TENANT), user=data.get("user", ""), agent=data.get("agent"))


def id_text(value: Any, what: str) -> str:
    """An id as text: texts as they are, whole numbers and UUIDs written out once; anything else is refused.

    Args:
        value: What the caller gave.
        what: Name of the part for the message.

    Raises:
        IdentityError: Missing, of another type, or without a visible character.
    """
    if isinstance(value, UUID) or (isinstance(value, int) and not isinstance(value, bool)):
        value = str(value)
    if not isinstance(value, str):
        raise IdentityError(f"the {what} must be a text, a whole number or a UUID, not {type(value).__name__}")
    if not any(unicodedata.category(character)[0] not in "ZC" for character in value):
        raise IdentityError(f"the {what} is blank ({value!r}); there is no default {what} to fall back to")
    return value


def scope_from_runtime(context: Any = None, config: Mapping[str, Any] | None = None) -> MemoryScope:
    """The scope of the running step.

    The whole scope is taken from one source: from `context` when it names a user, else from
    ``config["configurable"]`` (`USER_KEYS`, `TENANT_KEYS`, `AGENT_KEYS`). A source that names a blank user is an error
    and is not skipped.

    Args:
        context: A `MemoryContext`, any object with ``user_id``, or a mapping; None when the run has none.
        config: The run's config.

    Raises:
        IdentityError: No source names a user, or the one that does names an unusable one.
    """
    if _field(context, "user_id") is not None:
        return _scope_of(context, ("user_id",))
    configurable = (config or {}).get("configurable") or {}
    if _first(configurable, USER_KEYS) is not None:
        return _scope_of(configurable, USER_KEYS)
    raise IdentityError(
        "the run has no user: pass context=MemoryContext(user_id=...) with context_schema=MemoryContext, "
        'or config={"configurable": {"user_id": ...}}'
    )


def thread_from_config(config: Mapping[str, Any] | None) -> str | None:
    """The thread id of the running step as text, or None when there is none."""
    thread_id = ((config or {}).get("configurable") or {}).get("thread_id")
    return None if thread_id is None or not str(thread_id).strip() else str(thread_id)


def _scope_of(source: Any, user_keys: tuple[str, ...]) -> MemoryScope:
    tenant = _first(source, TENANT_KEYS)
    return MemoryScope(
        tenant=DEFAULT_TENANT if tenant is None else tenant,
        user=_first(source, user_keys),
        agent=_first(source, AGENT_KEYS),
    )


def _first(source: Any, names: tuple[str, ...]) -> Any:
    return next((value for name in names if (value := _field(source, name)) is not None), None)


def _field(source: Any, name: str) -> Any:
    return source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)
