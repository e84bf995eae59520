"""Namespaces: what is a legal one, how SQLite keeps it, which ones a prefix or a pattern means. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from langgraph.store.base import MatchCondition

from langmem_harness.errors import ConfigurationError, NamespaceError

Namespace = tuple[str, ...]


def check_namespace(namespace: Sequence[str], *, prefix: bool = False) -> Namespace:
    """The namespace as a tuple.

    Args:
        namespace: Labels: texts that are not empty and hold neither ``"."`` nor NUL.
        prefix: Whether the empty namespace and a root label of ``"langgraph"`` are allowed, as they are in searches.

    Raises:
        NamespaceError: It is not a sequence of such labels; the message names the label.
    """
    if isinstance(namespace, str) or not isinstance(namespace, tuple | list):
        raise NamespaceError(f"a namespace is a tuple of labels, not {type(namespace).__name__}: {namespace!r}")
    path = tuple(namespace)
    for label in path:
        if not isinstance(label, str):
            raise NamespaceError(f"namespace label {label!r} in {path!r} must be a text, not {type(label).__name__}")
        if not label or "." in label or "\0" in label:
            raise NamespaceError(f"namespace label {label!r} in {path!r} must not be empty or hold '.' or NUL")
    if not prefix:
        if not path:
            raise NamespaceError("a namespace needs at least one label")
        if path[0] == "langgraph":
            raise NamespaceError(f"the root label 'langgraph' is reserved: {path!r}")
    return path


def encode_namespace(namespace: Namespace) -> bytes:
    """Labels joined by ``"."`` (which no label holds), as bytes that sort like the text.

    Bytes, because a label may hold lone surrogates, which SQLite's text cannot.
    """
    return ".".join(namespace).encode("utf-8", "surrogatepass")


def decode_namespace(path: bytes) -> Namespace:
    """What `encode_namespace` made."""
    return tuple(path.decode("utf-8", "surrogatepass").split("."))


def plan_prefix_range(prefix: Namespace) -> tuple[bytes, bytes, bytes] | None:
    """The prefix as (equal to, above, below) for encoded paths; None for the empty prefix, which means every namespace.

    Whole labels only: ``("foo",)`` never means ``("foobar",)``, and no character is a wildcard.
    """
    if not prefix:
        return None
    path = encode_namespace(prefix)
    return path, path + b".", path + b"/"  # "/" is the character after "."


def is_below(namespace: Namespace, prefix: Namespace) -> bool:
    """Whether the namespace is the prefix or lies under it."""
    return namespace[: len(prefix)] == prefix


def select_namespaces(
    namespaces: Iterable[Namespace],
    conditions: Sequence[MatchCondition],
    *,
    max_depth: int | None,
    limit: int,
    offset: int,
) -> list[Namespace]:
    """Namespaces that meet every condition, cut to `max_depth` labels, each once, sorted, one page of them.

    ``"*"`` in a condition stands for exactly one label.
    """
    matched = (path for path in namespaces if all(_matches(condition, path) for condition in conditions))
    cut = set(matched) if max_depth is None else {path[:max_depth] for path in matched}
    return sorted(cut)[offset : offset + limit]


def check_conditions(conditions: Any) -> tuple[MatchCondition, ...]:
    """The conditions of a listing; None means none.

    Raises:
        NamespaceError: A label no namespace can have.
        ConfigurationError: Not a list of `MatchCondition`, or an unknown match type.
    """
    given = () if conditions is None else conditions
    if not isinstance(given, list | tuple) or not all(isinstance(condition, MatchCondition) for condition in given):
        raise ConfigurationError("match_conditions must be a list of MatchCondition")
    for condition in given:
        check_namespace(condition.path, prefix=True)
        if condition.match_type not in ("prefix", "suffix"):
            raise ConfigurationError(f"match_type must be 'prefix' or 'suffix', not {condition.match_type!r}")
    return tuple(given)


def _matches(condition: MatchCondition, namespace: Namespace) -> bool:
    pattern = tuple(condition.path)
    if len(namespace) < len(pattern):
        return False
    part = namespace[: len(pattern)] if condition.match_type == "prefix" else namespace[len(namespace) - len(pattern) :]
    return all(expected in ("*", label) for expected, label in zip(pattern, part, strict=True))
