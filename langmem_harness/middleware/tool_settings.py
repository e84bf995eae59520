"""Settings of the tool output middleware in the forms people write, and what a call says about itself. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

from langchain.tools.tool_node import ToolCallRequest
from langchain_core.messages import BaseMessage
from langchain_core.tools import BaseTool

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
    if isinstance(value, str) or not isinstance(value, Collection) or not all(isinstance(each, str) for each in value):
        raise ConfigurationError(f"{name} takes a list of tool names or a predicate, not {value!r}")
    names = frozenset(value)
    return lambda request: request.tool_call["name"] in names


def parse_trusted(value: Any) -> tuple[Any, ...]:
    """The trusted tools, checked: objects only, because a server chooses the names of its tools.

    Raises:
        ConfigurationError: No list, or something in it is neither a tool nor a function.
    """
    tools = tuple(value) if _is_list(value) else None
    wrong = value if tools is None else [tool for tool in tools if not _is_tool_object(tool)]
    if tools is None or wrong:
        raise ConfigurationError(
            f"trusted_tools takes a list of the tool objects themselves, not {wrong!r}: a name could be taken by any "
            "server"
        )
    return tools


def parse_untrusted(value: Any) -> tuple[Any, ...] | None:
    """The untrusted tools, names or objects, checked; None for all but the trusted ones.

    Raises:
        ConfigurationError: No list, or something in it is neither a name, a tool nor a function.
    """
    if value is None:
        return None
    if not _is_list(value) or not all(isinstance(tool, str) or _is_tool_object(tool) for tool in value):
        raise ConfigurationError(f"untrusted_tools takes a list of tool names or tools, not {value!r}")
    return tuple(value)


def check_minutes(value: Any, name: str) -> None:
    """Refuse what is no number of minutes above 0, or None.

    Raises:
        ConfigurationError: Another type, or not above 0.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (number and 0 < value < float("inf")):
        raise ConfigurationError(f"{name} must be a number above 0, not {value!r}; use None to keep outputs")


def check_kind(value: Any, kind: type, name: str) -> None:
    """Refuse what is neither None nor of a class.

    Raises:
        ConfigurationError: Something else.
    """
    if value is not None and not isinstance(value, kind):
        raise ConfigurationError(f"{name} must be a {kind.__name__} or None, not {value!r}")


def _is_list(value: Any) -> bool:
    return isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping)


def _is_tool_object(tool: Any) -> bool:
    return callable(tool) or isinstance(tool, BaseTool)


def parse_trigger(value: Trigger | None, name: str) -> Trigger | None:
    """The trigger, checked.

    Raises:
        ConfigurationError: Not one of the forms, or a number out of range.
    """
    if value is None:
        return None
    if isinstance(value, tuple | list) and len(value) == 2 and value[0] in ("tokens", "bytes", "fraction"):
        unit, size = value
        number = isinstance(size, int | float) and not isinstance(size, bool) and math.isfinite(size)
        if number and (0 < size <= 1 if unit == "fraction" else size >= 1 and size == int(size)):
            return unit, size
    raise ConfigurationError(
        f'{name} must look like ("tokens", 2000), ("bytes", 8000) or ("fraction", 0.02), not {value!r}'
    )
