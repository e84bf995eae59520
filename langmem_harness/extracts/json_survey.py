"""One pass over a whole JSON document: what stands at which path, in which range, how often, and where trouble is.

Pure. Every element is looked at, so that whatever is said about "all" is true of all; time and memory are linear in the
document. Values at the same path (``items[].price``) are counted together as one `Shape`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from langmem_harness.extracts.json_troubles import MENTIONS, NONE, REPORTS, Troubles

Place: TypeAlias = "tuple[Place, str | int] | None"
"""Where a value is: the place of its container and its key or index there; None is the document itself."""

MOST_SHAPES = 3_000
"""Paths that are told apart; further ones are counted as one, so that a document of a million keys stays small."""
LONGEST_PATH = 500
"""Characters of a path; what is nested deeper is counted with the further ones."""
MOST_VALUES = 1_000
"""Different values of one path that are counted one by one."""
MOST_PLACES = 40
"""Places of trouble that are remembered for one path; the count goes on."""
MAP_OF_CONTAINERS, MAP_OF_SCALARS = 20, 200
"""An object with more keys than this, all alike, is a collection under names: its members are elements."""


@dataclass(kw_only=True)
class Tally:
    """How often something was seen, and where first."""

    count: int
    first: Place


@dataclass(kw_only=True, eq=False)
class Shape:
    """All values at one path.

    Attributes:
        path: ``items[].price``; empty for the document itself.
        count: How many values.
        kinds: Their types.
        low, high: Smallest and largest number, and where; None when there is no number.
        texts: Different texts; None when there are more than `MOST_VALUES`.
        scalars: The same for numbers and booleans, as JSON.
        containers: How many arrays (and objects that are collections) `elements` are of.
        members: Shapes of the members of objects, in the order in which they were first seen.
        elements: Shape of the elements of arrays and of objects that are collections.
        reports, mentions: How many values report trouble, and how many only mention it in a text.
        reporting, mentioning: The first of their places.
        has_more: Whether there are members that are not in `members`.
    """

    path: str
    count: int = 0
    kinds: dict[str, Tally] = field(default_factory=dict)
    low: tuple[float, Place] | None = None
    high: tuple[float, Place] | None = None
    texts: dict[str, Tally] | None = field(default_factory=dict)
    scalars: dict[str, Tally] | None = field(default_factory=dict)
    containers: int = 0
    members: dict[str, Shape] = field(default_factory=dict)
    elements: Shape | None = None
    reports: int = 0
    mentions: int = 0
    reporting: list[Place] = field(default_factory=list)
    mentioning: list[Place] = field(default_factory=list)
    has_more: bool = False

    def note(self, value: Any, place: Place) -> None:
        """Count one value."""
        self.count += 1
        kind = type_name(value)
        tally = self.kinds.get(kind)
        if tally is None:
            self.kinds[kind] = Tally(count=1, first=place)
        else:
            tally.count += 1
        if kind == "text":
            self.texts = _counted(self.texts, value, place)
        elif kind == "number":
            if self.low is None or value < self.low[0]:
                self.low = (value, place)
            if self.high is None or value > self.high[0]:
                self.high = (value, place)
            if self.scalars is not None:
                self.scalars = _counted(self.scalars, str(value), place)
        elif kind == "boolean":
            self.scalars = _counted(self.scalars, "true" if value else "false", place)

    def note_trouble(self, degree: int, place: Place) -> None:
        """Count one value that reports or mentions trouble."""
        if degree == REPORTS:
            self.reports += 1
            places = self.reporting
        elif degree == MENTIONS:
            self.mentions += 1
            places = self.mentioning
        else:
            return
        if len(places) < MOST_PLACES:
            places.append(place)


@dataclass(kw_only=True)
class Survey:
    """What is in a document.

    Attributes:
        value: The document.
        root: Its shape.
        others: Values at paths beyond `MOST_SHAPES`.
    """

    value: Any
    root: Shape
    others: Shape

    def shapes(self) -> Iterator[Shape]:
        """All shapes, outer ones first, in the order of the document."""
        waiting = [self.root]
        while waiting:
            shape = waiting.pop()
            yield shape
            inner = [*shape.members.values(), *([shape.elements] if shape.elements else [])]
            waiting += [each for each in reversed(inner) if each is not self.others]
        yield self.others

    def at(self, place: Place) -> Any:
        """The value at a place."""
        steps = []
        while place is not None:
            place, step = place
            steps.append(step)
        value = self.value
        for step in reversed(steps):
            value = value[step]
        return value


def survey(value: Any) -> Survey:
    """Look at every value of a document once."""
    return _Surveyor(value).run()


def type_name(value: Any) -> str:
    """What JSON calls a value; what is no number (``NaN``) is called so."""
    if isinstance(value, str):
        return "text"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number" if value == value else "NaN"  # NaN is not itself
    return "object" if isinstance(value, dict) else "array"


def place_name(place: Place) -> str:
    """``data.orders[3000]``; empty for the document itself."""
    steps = []
    while place is not None:
        place, step = place
        steps.append(step)
    name = ""
    for step in reversed(steps):
        name = f"{name}[{step}]" if isinstance(step, int) else joined_path(name, step)
    return name


def joined_path(path: str, key: str) -> str:
    """The path of a member."""
    short = printable(key if len(key) <= 60 else f"{key[:40]}…{key[-16:]}")
    return f"{path}.{short}" if path else short


def printable(text: str) -> str:
    """The text on one line, with what cannot be seen written as JSON does."""
    return text if text.isprintable() else json.dumps(text, ensure_ascii=False)[1:-1]


_PLAIN, _ERROR_LIST, _ERROR_OBJECT = range(3)
"""How a container is reached: elements of an ``errors`` array all report; the object under ``error`` is part of its
owner's report and is not counted a second time."""


class _Surveyor:
    def __init__(self, value: Any) -> None:
        self._troubles = Troubles()
        self._shapes = 1
        self._result = Survey(value=value, root=Shape(path=""), others=Shape(path="(other paths)"))

    def run(self) -> Survey:
        result = self._result
        result.root.note(result.value, None)
        stack = [(result.value, result.root, None, _PLAIN)] if isinstance(result.value, dict | list) else []
        while stack:  # no recursion: a document may be nested deeper than Python calls
            value, shape, place, way = stack.pop()
            inner = (
                self._array(value, shape, place, way)
                if isinstance(value, list)
                else self._object(value, shape, place, way)
            )
            stack += reversed(inner)
        return result

    def _array(self, value: list[Any], shape: Shape, place: Place, way: int) -> list[Any]:
        elements = self._elements_of(shape, "[]")
        shape.containers += 1
        inner = []
        for index, element in enumerate(value):
            element_place = (place, index)
            elements.note(element, element_place)
            if isinstance(element, dict | list):
                inner.append((element, elements, element_place, way if way == _ERROR_LIST else _PLAIN))
            elif isinstance(element, str):
                degree = REPORTS if way == _ERROR_LIST else self._troubles.of_text(element)
                elements.note_trouble(degree, element_place)
        return inner

    def _object(self, value: dict[str, Any], shape: Shape, place: Place, way: int) -> list[Any]:
        is_map = _is_map(value)
        shape.containers += is_map
        elements = self._elements_of(shape, ".*") if is_map else None
        degree = REPORTS if way == _ERROR_LIST else NONE
        inner = []
        for key, member in value.items():
            member_place = (place, key)
            member_shape = elements or self._member_of(shape, key)
            member_shape.note(member, member_place)
            found = self._troubles.of_member(key, member)
            if elements is not None and isinstance(member, str) and found == MENTIONS:
                elements.note_trouble(found, member_place)
            elif found > degree:
                degree = found
            if isinstance(member, dict | list):
                is_error = found == REPORTS and self._troubles.role(key) == "error"
                reached = (_ERROR_LIST if isinstance(member, list) else _ERROR_OBJECT) if is_error else _PLAIN
                inner.append((member, member_shape, member_place, reached))
        if way != _ERROR_OBJECT:
            shape.note_trouble(degree, place)
        return inner

    def _elements_of(self, shape: Shape, suffix: str) -> Shape:
        if shape.elements is None:
            shape.elements = self._new(shape.path + suffix if shape.path or suffix == "[]" else "*", shape)
        return shape.elements

    def _member_of(self, shape: Shape, key: str) -> Shape:
        member = shape.members.get(key)
        if member is None:
            member = self._new(joined_path(shape.path, key), shape)
            if member is self._result.others:
                shape.has_more = True
            else:
                shape.members[key] = member
        return member

    def _new(self, path: str, owner: Shape) -> Shape:
        if owner is self._result.others or self._shapes >= MOST_SHAPES or len(path) > LONGEST_PATH:
            return self._result.others
        self._shapes += 1
        return Shape(path=path)


def _is_map(value: dict[str, Any]) -> bool:
    """Whether an object is a collection under names and not a record."""
    if len(value) <= MAP_OF_CONTAINERS:
        return False
    containers = sum(isinstance(member, dict | list) for member in value.values())
    return containers >= 0.9 * len(value) or (len(value) > MAP_OF_SCALARS and containers <= 0.1 * len(value))


def _counted(values: dict[str, Tally] | None, value: str, place: Place) -> dict[str, Tally] | None:
    if values is None:
        return None
    tally = values.get(value)
    if tally is not None:
        tally.count += 1
    elif len(values) >= MOST_VALUES:
        return None
    else:
        values[value] = Tally(count=1, first=place)
    return values
