"""Settings of the tool output middleware in the forms people write, and what a call says about itself. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

from langchain.tools.tool_node import ToolCallRequest
from langchain_core.messages import BaseMessage

from langmem_harness.errors import ConfigurationError

Trigger: TypeAlias = tuple[str, int | float]
"""``("tokens", n)``, ``("bytes", n)`` or ``("fraction", f)``."""

ToolSelection: TypeAlias = Collection[str] | Callable[[ToolCallRequest], bool]
"""Names of tools, or a predicate of a call."""


def is_tool(request: ToolCallRequest, tool: Any) -> bool:
    """Whether the called tool is this very object, or was made from this very function."""
    called = request.tool
    if called is None:
        return False
    return called is tool or getattr(called, "func", None) is tool or getattr(called, "coroutine", None) is tool


def runtime_part(request: ToolCallRequest, name: str) -> Any:
    """A part of the runtime of a call, or None outside of a graph."""
    return getattr(request.runtime, name, None)


def config_of(request: ToolCallRequest) -> Mapping[str, Any]:
    """The config of a call."""
    return runtime_part(request, "config") or {}


def messages_of(request: ToolCallRequest) -> list[BaseMessage]:
    """The messages of the state, whatever its type; the state may be a list, a mapping or an object."""
    state = request.state
    messages = state if isinstance(state, list) else state.get("messages") if isinstance(state, Mapping) else None
    return list(messages or getattr(state, "messages", None) or [])


def parse_selection(value: ToolSelection | None, name: str) -> Callable[[ToolCallRequest], bool] | None:
    """A selection of tools as a predicate; None for none given.

    Raises:
        ConfigurationError: Neither names nor a predicate.
    """
    if value is None or callable(value):
        return value
    if isinstance(value, str) or not all(isinstance(each, str) for each in value):
        raise ConfigurationError(f"{name} takes a list of tool names or a predicate, not {value!r}")
    names = frozenset(value)
    return lambda request: request.tool_call["name"] in names


def parse_trigger(value: Trigger | None, name: str) -> Trigger | None:
    """The trigger, checked.

    Raises:
        ConfigurationError: Not one of the forms, or a number out of range.
    """
    if value is None:
        return None
    if isinstance(value, tuple | list) and len(value) == 2 and value[0] in ("tokens", "bytes", "fraction"):
        unit, size = value
        number = isinstance(size, int | float) and not isinstance(size, bool)
        if number and (0 < size <= 1 if unit == "fraction" else size >= 1 and size == int(size)):
            return unit, size
    raise ConfigurationError(
        f'{name} must look like ("tokens", 2000), ("bytes", 8000) or ("fraction", 0.02), not {value!r}'
    )
