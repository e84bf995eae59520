"""One middleware of a stack, made from settings of the stack and a mapping of its own."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from langmem_harness.errors import ConfigurationError

Part = TypeVar("Part")


def make_part(part: type[Part], settings: Mapping[str, Any] | None, *, name: str, fixed: Mapping[str, Any]) -> Part:
    """The middleware, with every setting checked before it is made.

    Args:
        part: Class of the middleware.
        settings: Settings of that class by name; None for none.
        name: The argument `settings` came in, for messages.
        fixed: Settings the stack has decided.

    Raises:
        ConfigurationError: A name the class does not have or the stack has decided, or a value that cannot work.
    """
    settings = _checked(settings, name)
    known = [one for one in inspect.signature(part.__init__).parameters if one != "self" and one not in fixed]
    for setting in settings:
        if setting in known:
            continue
        why = "is given directly" if setting in fixed else f"is no setting of {part.__name__}"
        raise ConfigurationError(f"{name}: {setting!r} {why}; known here are {', '.join(sorted(known))}")
    try:
        return part(**fixed, **settings)
    except TypeError as error:  # a comparison or a call with a value of the wrong kind
        raise ConfigurationError(f"{name}: a setting of {part.__name__} has a wrong type: {error}") from error


def with_own(settings: Mapping[str, Any] | None, setting: str, own: Iterable[Any], *, name: str) -> dict[str, Any]:
    """The settings, where one of them is a collection that the stack has something for, too.

    Raises:
        ConfigurationError: The settings are no mapping, or the one is no collection.
    """
    given = _checked(settings, name)
    more = given.get(setting, ())
    if isinstance(more, str | bytes) or not isinstance(more, Iterable):
        raise ConfigurationError(f"{name}: {setting} takes a collection, not {more!r}")
    return {**given, setting: [*own, *more]}


def _checked(settings: Any, name: str) -> Mapping[str, Any]:
    if settings is None:
        return {}
    if not isinstance(settings, Mapping):
        raise ConfigurationError(f"{name} takes a mapping of settings by name, not {settings!r}")
    return settings
