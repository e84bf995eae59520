"""Filters over item values: checked, compiled to one Python predicate, and narrowed in SQL where that is exact. Pure.

The truth table is in ``docs/store.md``. Values are compared by JSON type: ``True`` is not ``1``, ``"5"`` is not ``5``,
integers of any size are exact. SQL only narrows the candidates (conditions that never lose a match, JSON paths and
operands bound as parameters); the predicate has the last word.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from langmem_harness.errors import FilterError

Predicate = Callable[[Any], bool]

MISSING: Any = object()
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EXACT_INTEGER = 1 << 53
_MAX_DEPTH = 50


def compile_filter(condition: Mapping[str, Any] | None) -> Predicate | None:
    """A function of an item's value that says whether it matches; None for no filter.

    Raises:
        FilterError: An unknown operator, an operand that cannot be compared, operators mixed with keys.
    """
    if not condition:
        if condition is not None and not isinstance(condition, Mapping):
            raise FilterError(f"a filter is a mapping, not {type(condition).__name__}")
        return None
    return _compile_mapping(condition, 0)


def _compile_mapping(condition: Any, depth: int) -> Predicate:
    """Every entry must hold for a value that is a mapping."""
    if not isinstance(condition, Mapping):
        raise FilterError(f"a filter is a mapping, not {type(condition).__name__}")
    _check_depth(depth)
    parts: list[Predicate] = []
    for key, operand in condition.items():
        if not isinstance(key, str):
            raise FilterError(f"filter keys are texts, not {type(key).__name__}")
        if key in ("$and", "$or"):
            parts.append(_compile_list(key, operand, depth))
        elif key == "$not":
            parts.append(_negate(_compile_mapping(operand, depth + 1)))
        elif key.startswith("$"):
            raise FilterError(f"unknown operator {key!r} where a key was expected; known: $and, $or, $not")
        else:
            parts.append(_at(key, _compile_operand(operand, depth + 1)))
    return lambda value: isinstance(value, Mapping) and all(part(value) for part in parts)


def _compile_list(operator: str, operand: Any, depth: int) -> Predicate:
    if not isinstance(operand, list | tuple) or not operand:
        raise FilterError(f"{operator} takes a list of filters that is not empty")
    parts = [_compile_mapping(part, depth + 1) for part in operand]
    decide = all if operator == "$and" else any
    return lambda value: decide(part(value) for part in parts)


def _at(key: str, test: Predicate) -> Predicate:
    return lambda value: test(value.get(key, MISSING))


def _negate(test: Predicate) -> Predicate:
    return lambda value: not test(value)


def _compile_operand(operand: Any, depth: int) -> Predicate:
    """Test of the value found at one key (`MISSING` when there is none)."""
    _check_depth(depth)
    if not isinstance(operand, Mapping):
        _check_json(operand, depth)
        return lambda value: is_equal(value, operand, subset=True)
    operators = [key for key in operand if isinstance(key, str) and key.startswith("$")]
    if not operators:
        return _compile_mapping(operand, depth)
    if len(operators) != len(operand):
        raise FilterError("operators and plain keys cannot stand in one mapping")
    parts = [_compile_operator(operator, operand[operator], depth) for operator in operators]
    return lambda value: all(part(value) for part in parts)


def _compile_operator(operator: str, operand: Any, depth: int) -> Predicate:
    if operator in _ORDER:
        if isinstance(operand, bool) or not isinstance(operand, int | float | str) or operand != operand:
            raise FilterError(f"{operator} compares numbers or texts, not {type(operand).__name__}")
        holds = _ORDER[operator]
        of_text = isinstance(operand, str)
        return lambda value: _is_orderable(value, of_text) and holds(value, operand)
    if operator in ("$in", "$nin"):
        if not isinstance(operand, list | tuple):
            raise FilterError(f"{operator} takes a list")
        _check_json(operand, depth)
        inside: Predicate = lambda value: any(is_equal(value, option) for option in operand)  # noqa: E731
        return inside if operator == "$in" else _negate(inside)
    if operator == "$exists":
        if not isinstance(operand, bool):
            raise FilterError("$exists takes true or false")
        return lambda value: (value is not MISSING) is operand
    if operator == "$not":
        return _negate(_compile_operand(operand, depth + 1))
    _check_json(operand, depth)
    if operator == "$eq":
        return lambda value: is_equal(value, operand)
    if operator == "$ne":
        return lambda value: not is_equal(value, operand)
    if operator == "$contains":
        return lambda value: _contains(value, operand)
    raise FilterError(f"unknown operator {operator!r}; known: {', '.join(KNOWN_OPERATORS)}")


_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": lambda value, operand: value > operand,
    "$gte": lambda value, operand: value >= operand,
    "$lt": lambda value, operand: value < operand,
    "$lte": lambda value, operand: value <= operand,
}
KNOWN_OPERATORS = ("$eq", "$ne", *_ORDER, "$in", "$nin", "$exists", "$contains", "$not")


def _is_orderable(value: Any, of_text: bool) -> bool:
    if of_text:
        return isinstance(value, str)
    return isinstance(value, int | float) and not isinstance(value, bool)


def _contains(value: Any, operand: Any) -> bool:
    if isinstance(value, str):
        return isinstance(operand, str) and operand in value
    return isinstance(value, list | tuple) and any(is_equal(part, operand) for part in value)


def is_equal(value: Any, operand: Any, *, subset: bool = False) -> bool:
    """Equality of JSON values: by type, integers exact, ``1 == 1.0``; null also equals a missing key.

    Args:
        subset: Mappings inside lists match when they have at least the operand's entries, as in LangGraph.
    """
    if operand is None:
        return value is None or value is MISSING
    if isinstance(operand, bool) or isinstance(value, bool):
        return value is operand
    if isinstance(operand, str):
        return isinstance(value, str) and value == operand
    if isinstance(operand, int | float):
        return isinstance(value, int | float) and value == operand
    if isinstance(operand, list | tuple):
        return (
            isinstance(value, list | tuple)
            and len(value) == len(operand)
            and all(is_equal(part, other, subset=subset) for part, other in zip(value, operand, strict=True))
        )
    if not isinstance(value, Mapping) or (not subset and len(value) != len(operand)):
        return False
    return all(
        (key in value or subset) and is_equal(value.get(key, MISSING), other, subset=subset)
        for key, other in operand.items()
    )


def _check_depth(depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise FilterError(f"a filter may be nested {_MAX_DEPTH} deep")


def _check_json(operand: Any, depth: int) -> None:
    _check_depth(depth)
    if isinstance(operand, list | tuple):
        for part in operand:
            _check_json(part, depth + 1)
    elif isinstance(operand, Mapping):
        for key, part in operand.items():
            if not isinstance(key, str):
                raise FilterError(f"filter keys are texts, not {type(key).__name__}")
            _check_json(part, depth + 1)
    elif isinstance(operand, float) and not math.isfinite(operand):
        raise FilterError("a filter operand must be a finite number")
    elif operand is not None and not isinstance(operand, str | int | float):
        raise FilterError(f"a filter operand must be a JSON value, not {type(operand).__name__}")


def plan_sql(condition: Mapping[str, Any] | None) -> tuple[str, list[Any]]:
    """SQL over ``value`` that every matching row meets, and its parameters; ``""`` when SQL cannot help.

    Only top-level keys of plain letters, and operands that SQLite compares without loss. Keys travel as bound JSON
    paths; the SQL text is made of our own constants.
    """
    clauses: list[str] = []
    parameters: list[Any] = []
    for key, operand in (condition or {}).items():
        if not _PLAIN_KEY.fullmatch(key):
            continue
        operators = operand if isinstance(operand, Mapping) else {"$eq": operand}
        for operator, wanted in operators.items():
            planned = _plan_operator(operator, wanted)
            if planned is not None:
                clauses.append(f"json_extract(value, ?) {planned[0]}")
                parameters += [f"$.{key}", *planned[1]]
    return " AND ".join(clauses), parameters


def _plan_operator(operator: str, wanted: Any) -> tuple[str, list[Any]] | None:
    if operator == "$eq" and _is_lossless(wanted):
        return "= ?", [wanted]
    if operator == "$in" and 0 < len(wanted) <= 100 and all(_is_lossless(option) for option in wanted):
        return f"IN ({', '.join('?' * len(wanted))})", list(wanted)
    if operator in _ORDER and _is_lossless(wanted):
        if isinstance(wanted, str):
            return (">= ?", [wanted]) if operator.startswith("$g") else ("<= ?", [wanted])
        return (">= ?", [wanted - 1]) if operator.startswith("$g") else ("<= ?", [wanted + 1])
    return None


def _is_lossless(operand: Any) -> bool:
    """Whether SQLite compares it as we do: a text without NUL and lone surrogates, or a small integer.

    SQLite may still round row values (integers beyond 64 bits become floats); a small operand is never near one.
    """
    if isinstance(operand, bool):
        return False
    if isinstance(operand, str):
        return "\0" not in operand and not any("\ud800" <= character <= "\udfff" for character in operand)
    return isinstance(operand, int) and abs(operand) < _EXACT_INTEGER
