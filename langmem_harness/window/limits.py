"""``trigger`` and ``keep`` in LangChain's own forms, parsed once and turned into numbers for a model's window. Pure.

``("tokens", n)``, ``("messages", n)``, ``("fraction", f)``; a dict of such (``{"tokens": n, "messages": m}``) needs all
of its clauses; a list needs any of its entries. For ``keep`` one form only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from langmem_harness.errors import ConfigurationError

Unit = Literal["tokens", "messages", "fraction"]
Size = tuple[Unit, int | float]
TriggerForm = Size | Mapping[Unit, int | float] | Sequence[Size | Mapping[Unit, int | float]]

_UNITS = ("tokens", "messages", "fraction")


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A number of tokens and of messages; None is no limit of that kind."""

    tokens: int | None = None
    messages: int | None = None

    def is_reached(self, tokens: int, messages: int) -> bool:
        """Whether every stated number is reached (a clause with several numbers needs all of them)."""
        return (self.tokens is None or tokens >= self.tokens) and (self.messages is None or messages >= self.messages)

    def is_kept(self, tokens: int, messages: int) -> bool:
        """Whether no stated number is exceeded."""
        return (self.tokens is None or tokens <= self.tokens) and (self.messages is None or messages <= self.messages)


def parse_trigger(value: TriggerForm | None) -> tuple[Mapping[Unit, int | float], ...]:
    """Clauses of a trigger; any of them triggers, each needs all of its numbers. None gives no clause: off.

    Raises:
        ConfigurationError: Not one of the forms, or a number out of range.
    """
    if value is None:
        return ()
    entries: Sequence[object] = [value] if isinstance(value, Mapping) or _is_size(value) else _entries(value)
    clauses: list[Mapping[Unit, int | float]] = []
    for entry in entries:
        if isinstance(entry, Mapping):
            if not entry:
                raise ConfigurationError("a trigger clause must not be empty; use None to switch compaction off")
            clauses.append({_check_unit(unit): _check_number(unit, number) for unit, number in entry.items()})
        else:
            size = parse_size(entry, name="trigger")
            clauses.append({size[0]: size[1]})
    if not clauses:
        raise ConfigurationError("a trigger list must not be empty; use None to switch compaction off")
    return tuple(clauses)


def parse_size(value: Any, *, name: str) -> Size:
    """One ``(unit, number)``.

    Raises:
        ConfigurationError: Not that form, or the number is out of range.
    """
    if not _is_size(value):
        raise ConfigurationError(
            f'{name} must look like ("tokens", 20000), ("messages", 20) or ("fraction", 0.3), not {value!r}'
        )
    return _check_unit(value[0]), _check_number(value[0], value[1])


def check_keep(clauses: Sequence[Mapping[Unit, int | float]], keep: Size) -> None:
    """Refuse to keep more than what triggers, where both are said in the same unit.

    Raises:
        ConfigurationError: A cut would have nothing to leave out.
    """
    unit, number = keep
    for clause in clauses:
        if clause.keys() == {unit} and number > clause[unit]:
            raise ConfigurationError(
                f"keep {keep!r} is more than the trigger {(unit, clause[unit])!r}: "
                "nothing could be left out; keep must be the smaller one"
            )


def check_count(value: object, name: str, *, least: int) -> None:
    """Refuse what is no whole number of `least` or more.

    Raises:
        ConfigurationError: Another type, or below.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigurationError(f"{name} must be a whole number of {least} or more, not {value!r}")


def check_function(value: object, name: str) -> None:
    """Refuse what is neither None nor a function.

    Raises:
        ConfigurationError: It cannot be called.
    """
    if value is not None and not callable(value):
        raise ConfigurationError(f"{name} must be a function or None, not {value!r}")


def needs_window(clauses: Sequence[Mapping[Unit, int | float]], keep: Size) -> bool:
    """Whether any number is a fraction of the model's window."""
    return keep[0] == "fraction" or any("fraction" in clause for clause in clauses)


def resolve_clause(clause: Mapping[Unit, int | float], window_tokens: int | None) -> Limit:
    """Numbers of one clause for a window of this many tokens; tokens and a fraction both have to be reached."""
    tokens = [int(clause["tokens"])] if "tokens" in clause else []
    if "fraction" in clause:
        if window_tokens is None:
            raise ConfigurationError("a fraction needs the model's context window; pass context_window=")
        tokens.append(max(1, int(clause["fraction"] * window_tokens)))
    return Limit(
        tokens=max(tokens) if tokens else None,
        messages=int(clause["messages"]) if "messages" in clause else None,
    )


def resolve_size(size: Size, window_tokens: int | None) -> Limit:
    """The numbers of one size for a window of this many tokens."""
    return resolve_clause({size[0]: size[1]}, window_tokens)


def _entries(value: object) -> Sequence[object]:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return value
    raise ConfigurationError(
        f'trigger must look like ("tokens", 20000), a dict of such, or a list of either, not {value!r}'
    )


def _is_size(value: object) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2 and isinstance(value[0], str)


def _check_unit(unit: object) -> Unit:
    if unit not in _UNITS:
        raise ConfigurationError(f"unknown unit {unit!r}; known are {', '.join(_UNITS)}")
    return unit  # type: ignore[return-value]


def _check_number(unit: object, number: object) -> int | float:
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise ConfigurationError(f"{unit} needs a number, not {number!r}")
    if unit == "fraction":
        if not 0.0 < number <= 1.0:
            raise ConfigurationError(f"a fraction must be above 0 and at most 1, not {number!r}")
        return float(number)
    if not math.isfinite(number) or number != int(number) or number < 1:
        raise ConfigurationError(f"{unit} must be a whole number of 1 or more, not {number!r}")
    return int(number)
