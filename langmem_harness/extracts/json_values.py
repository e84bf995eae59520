"""JSON and JSON lines: elements about problems, shape, counts, ranges, rare values, first and last elements.

Pure. Counts and ranges are of all elements, at any depth. What is shown is JSON-like text, with ``…`` and counts where
something is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from langmem_harness.extracts.json_survey import (
    MOST_PLACES,
    MOST_VALUES,
    Place,
    Shape,
    Survey,
    Tally,
    place_name,
    printable,
    survey,
    type_name,
)
from langmem_harness.extracts.json_troubles import REPORTS, Troubles
from langmem_harness.extracts.pieces import Extract, Piece, assemble, clip, clip_to_tokens, count_noun, ranked

MOST_KEYS = 30
MOST_LINES = 60
"""Lines of the outline; the budget is nearly always reached before."""
MOST_TROUBLE_LINES = 8
RARE_SHARE = 0.02
"""A value that is not more often than this in a field of few values is shown with its first element."""
FEW_ELEMENTS = 4
"""Elements that are shown of an object that is a collection under names."""
FEW_VALUES = 24
"""So many different values or fewer are counted one by one."""


def extract_json(text: str, *, max_tokens: int) -> Extract | None:
    """Extract of a JSON document or of JSON lines, or None when the text is neither."""
    value, label, unread = _parse(text)
    if label is None:
        return None
    found = survey(value)
    # the description stands outside of the data block: nothing of the document's own words may be in it
    what = _kinds(found.root, named=False)
    description = f"{label} {what}" if label == "JSON" else f"{label}: {what}"
    if unread:
        description += f", {count_noun(unread, 'further line')} no JSON"
    description += _troubles_in_all(found)
    members = MOST_LINES if found.root.elements is None else FEW_ELEMENTS
    pieces = [*ranked(0, _trouble_lines(found)), *_members(value, most=members), *ranked(2, _outline(found))]
    if isinstance(value, list) and value:
        pieces += [Piece(text=f"first: {_short(value[0], 400)}", rank=1)]
        pieces += [Piece(text=f"last: {_short(value[-1], 400)}", rank=1)] if len(value) > 1 else []
    elif not isinstance(value, dict | list):
        pieces.append(Piece(text=clip_to_tokens(str(value), max(1, max_tokens - 20)), rank=1))
    pieces += _telling_elements(found)
    return Extract(kind="json", description=description, text=assemble(pieces, max_tokens=max_tokens))


def _parse(text: str) -> tuple[Any, str | None, int]:
    """The value, what it was read from, and how many lines could not be read."""
    stripped = text.strip().removeprefix("\ufeff")
    if not stripped or stripped[0] not in '{["':
        return None, None, 0
    try:
        return json.loads(stripped), "JSON", 0
    except (ValueError, RecursionError):  # cut off, nested too deep for the parser, or several documents
        pass
    lines = [line for line in stripped.splitlines() if line.strip()]
    if len(lines) < 2 or lines[0].lstrip()[0] not in "{[":
        return None, None, 0
    values = []
    for line in lines:
        try:
            values.append(json.loads(line))
        except (ValueError, RecursionError):
            if len(values) < 2:
                return None, None, 0
            continue
    if len(values) < 0.9 * len(lines):
        return None, None, 0
    return values, "JSON lines", len(lines) - len(values)


def _troubles_in_all(found: Survey) -> str:
    """How many elements of the whole document are about problems; empty for none."""
    reports = sum(shape.reports for shape in found.shapes())
    mentions = sum(shape.mentions for shape in found.shapes())
    parts = [f"{count_noun(reports, 'element')} {_verb('report', reports)} problems"] if reports else []
    if mentions:
        parts.append(f"{count_noun(mentions, 'element')} {_verb('mention', mentions)} problems in a text")
    return "".join(f", {part}" for part in parts)


def _trouble_lines(found: Survey) -> Iterator[str]:
    """Where the elements are that are about problems: one line a path, the surer ones first."""
    for verb in ("report", "mention"):
        troubled: list[tuple[Shape, int, list[Place]]] = []
        for shape in found.shapes():
            reports = verb == "report"
            count = shape.reports if reports else shape.mentions
            if count and shape is not found.root:
                troubled.append((shape, count, shape.reporting if reports else shape.mentioning))
        for shape, count, places in troubled[:MOST_TROUBLE_LINES]:
            objects = "elements" if shape.path.endswith(("[]", "*")) else "values"
            named = ", ".join(clip(place_name(place), 80) for place in places[:10])
            rest = f", … {count - 10:,} more" if count > 10 else ""
            total = f"{count:,} of {shape.count:,} {objects} at {clip(shape.path, 120)}"
            yield f"{total} {_verb(verb, count)} problems: {named}{rest}"
        if left := sum(count for _, count, _ in troubled[MOST_TROUBLE_LINES:]):
            yield f"{left:,} more at other paths {_verb(verb, left)} problems"


def _verb(verb: str, count: int) -> str:
    return f"{verb}s" if count == 1 else verb


def _members(value: Any, *, most: int) -> list[Piece]:
    """The members of a document that is an object, those about problems first in rank."""
    if not isinstance(value, dict):
        return []
    troubles = Troubles()
    pieces = []
    for key, member in list(value.items())[:most]:
        sure = troubles.of_member(key, member) == REPORTS or troubles.role(key) in ("state", "code", "warning")
        pieces.append(Piece(text=f"{_name(key)}: {_short(member, 240)}", rank=1 if sure else 2))
        if isinstance(member, list) and len(member) > 1:
            pieces.append(Piece(text=f"{clip(printable(key), 60)}, last: {_short(member[-1], 240)}", rank=3))
    if len(value) > most:
        pieces.append(Piece(text=f"({len(value) - most:,} more keys)", rank=1))
    return pieces


def _telling_elements(found: Survey) -> list[Piece]:
    """Elements about problems, elements with a rare value, and those with the smallest and largest numbers."""
    pieces: list[Piece] = []
    shown: set[str] = set()

    def show(places: Sequence[Place], rank: int) -> None:
        for place in places:
            name = place_name(place)
            if place is not None and name not in shown:
                shown.add(name)
                pieces.append(Piece(text=f"{clip(name, 80)} {_short(found.at(place), 200)}", rank=rank))

    shapes = list(found.shapes())
    for shape in shapes:
        show(shape.reporting[:3], 2)
    for shape in shapes:
        show(shape.reporting[3:12], 3)
    for shape in shapes[:200]:
        show([_element(tally.first, shape) for tally in _rare(shape)[:4]], 3)
    for shape in shapes:
        show(shape.mentioning[:6], 3)
    for shape in [shape for shape in shapes[:MOST_LINES] if shape.count > 1]:
        ends = [end[1] for end in (shape.low, shape.high) if end is not None and _is_inside(found, end[1])]
        show([_element(place, shape) for place in ends], 4)
    return pieces[: 3 * MOST_PLACES]


def _outline(found: Survey) -> list[str]:
    """What stands at each path: kinds and counts, keys, and what is known of each field."""
    lines: list[str] = []
    for shape in found.shapes():
        if shape is found.others or len(lines) >= MOST_LINES:
            continue
        elements = shape.elements
        if elements is not None and elements is not found.others:
            if shape is not found.root:
                lines.append(f"{clip(shape.path, 120)}: {_kinds(shape)}")
            lines += _field_lines(found, elements, of=elements.kinds.get("object"))
            lines += [f"  {line}" for line in [_values(found, elements)] if line]
        elif shape.members and not shape.path.endswith(("[]", "*")) and shape is not found.root:
            lines.append(f"{clip(shape.path, 120)}: {_kinds(shape)}")
            lines += _field_lines(found, shape, of=shape.kinds.get("object"))
    return lines[:MOST_LINES]


def _field_lines(found: Survey, shape: Shape, *, of: Tally | None) -> list[str]:
    """The keys of objects at one path, and one line for each field of which something can be said."""
    if not shape.members or of is None:
        return []
    names: list[str] = []
    for key, member in list(shape.members.items())[:MOST_KEYS]:
        names.append(
            clip(printable(key), 40) + ("" if member.count == of.count else f" ({member.count:,} of {of.count:,})")
        )
    more = len(shape.members) - MOST_KEYS
    names += [f"… {more:,} more" if not shape.has_more else "… and more"] if more > 0 or shape.has_more else []
    lines = [f"  keys: {', '.join(names)}"]
    for key, member in list(shape.members.items())[:MOST_KEYS]:
        said = _values(found, member)
        if said:
            lines.append(f"  {clip(printable(key), 40)}: {said}")
    return lines


def _values(found: Survey, shape: Shape) -> str:
    """Ranges and frequent and rare values at one path, of all its values; empty when there is nothing to say."""
    if shape.count < 2:
        return ""
    parts = []
    if shape.low is not None and shape.high is not None:
        if shape.low[0] == shape.high[0]:
            parts.append(f"always {_number(shape.low[0])}" if shape.kinds["number"].count == shape.count else "")
        else:
            parts.append(
                " to ".join(_number(value) + _where(found, place, shape) for value, place in (shape.low, shape.high))
            )
    numbers = len(shape.scalars or ())
    if shape.scalars is not None and 1 < numbers <= 8 and shape.count > numbers + 1:
        parts.append(_frequencies(shape.scalars, shape))
    elif "boolean" in shape.kinds:
        parts.append(f"boolean ×{shape.kinds['boolean'].count:,}")
    if shape.texts is None:
        parts.append(f"more than {MOST_VALUES:,} different texts")
    elif shape.texts and len(shape.texts) < shape.kinds["text"].count:
        parts.append(_frequencies(shape.texts, shape))
    elif shape.texts and len(shape.kinds) > 1:
        parts.append(f"text ×{len(shape.texts):,}{_first(shape.kinds['text'], shape)}")
    odd = [(kind, shape.kinds[kind]) for kind in ("null", "NaN") if kind in shape.kinds and len(shape.kinds) > 1]
    parts += [f"{kind} ×{tally.count:,}{_first(tally, shape)}" for kind, tally in odd]
    return "; ".join(part for part in parts if part)


def _frequencies(values: dict[str, Tally], shape: Shape) -> str:
    """The most frequent values and the rarest, each with its count; the rare ones with their first element."""
    ordered = sorted(values.items(), key=lambda each: -each[1].count)
    if len(ordered) > FEW_VALUES and ordered[0][1].count < 0.5 * shape.count:
        return f"{len(ordered):,} different values"
    shown = ordered if len(ordered) <= 8 else [*ordered[:4], *ordered[-4:]]
    texts = [f"{clip(printable(value), 40)} ×{tally.count:,}{_first(tally, shape)}" for value, tally in shown]
    if len(shown) < len(ordered):
        texts.insert(4, f"… {count_noun(len(ordered) - len(shown), 'other value')} …")
    return ", ".join(texts)


def _first(tally: Tally, shape: Shape) -> str:
    if tally.count > max(1, RARE_SHARE * shape.count):
        return ""
    return f" ({'in' if tally.count == 1 else 'first in'} {_element_name(tally.first, shape)})"


def _rare(shape: Shape) -> list[Tally]:
    """Rare values at a path of few values, the rarest first."""
    rare = []
    for values in (shape.texts, shape.scalars):
        if values and 1 < len(values) <= FEW_VALUES:
            rare += [tally for tally in values.values() if tally.count <= RARE_SHARE * shape.count]
    return sorted(rare, key=lambda tally: tally.count)


def _where(found: Survey, place: Place, shape: Shape) -> str:
    """The element of an extreme number, unless that is the first or last of its array, which are shown anyway."""
    return f" (in {_element_name(place, shape)})" if _is_inside(found, place) else ""


def _is_inside(found: Survey, place: Place) -> bool:
    if place is None or place[0] is None:
        return place is not None and isinstance(place[1], int) and 0 < place[1] < len(found.value) - 1
    array, index = place[0]
    return not isinstance(index, int) or 0 < index < len(found.at(array)) - 1


def _element(place: Place, shape: Shape) -> Place:
    """The element a value belongs to: the object whose member it is, or itself in an array or a collection."""
    is_member = place is not None and place[0] is not None and not shape.path.endswith(("[]", "*"))
    return place[0] if is_member and place is not None else place


def _element_name(place: Place, shape: Shape) -> str:
    return clip(place_name(_element(place, shape)), 80)


def _kinds(shape: Shape, *, named: bool = True) -> str:
    """``array of 4,812 objects``: what stands at one path, with all elements of all arrays there.

    Args:
        shape: All values at the path.
        named: Whether to say where the first element of a rare kind is; places are made of the document's keys.
    """
    kinds = ", ".join(count_noun(tally.count, kind) for kind, tally in shape.kinds.items())
    only = next(iter(shape.kinds)) if shape.count == 1 else ""
    elements = shape.elements
    if elements is None or not shape.containers:
        if only == "object":
            return "object with " + ("many keys" if shape.has_more else count_noun(len(shape.members), "key"))
        return only or kinds
    if not elements.count:
        return f"{only or kinds}, empty"
    mixed = len(elements.kinds) > 1
    size = count_noun(elements.count, "element" if mixed else next(iter(elements.kinds)))
    if mixed:
        counted = sorted(elements.kinds.items(), key=lambda each: -each[1].count)
        shown = (count_noun(tally.count, kind) + (_first(tally, elements) if named else "") for kind, tally in counted)
        size += f" ({', '.join(shown)})"
    if only:
        return f"{only} of {size}"
    if shape.containers == shape.count:
        return f"{kinds} with together {size}"
    return f"{kinds}; {shape.containers:,} of these with together {size}"


def _describe(value: Any) -> str:
    """What a value is, in a few words."""
    if isinstance(value, list):
        return f"array of {count_noun(len(value), 'element')}"
    return f"object with {count_noun(len(value), 'key')}" if isinstance(value, dict) else type_name(value)


def _name(key: str) -> str:
    return clip(json.dumps(key, ensure_ascii=False), 80)


def _number(value: float) -> str:
    return clip(str(value), 40)


def _short(value: Any, max_characters: int) -> str:
    """JSON of a value with long strings clipped and long arrays shortened, at most this many characters."""
    return clip(json.dumps(_pruned(value, 0), ensure_ascii=False, separators=(", ", ": ")), max_characters)


def _pruned(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return clip(value, 120)
    if depth >= 4 and isinstance(value, dict | list):
        return f"({_describe(value)})"
    if isinstance(value, list):
        if len(value) > 4:
            return [_pruned(value[0], depth + 1), f"({len(value) - 2:,} more)", _pruned(value[-1], depth + 1)]
        return [_pruned(element, depth + 1) for element in value]
    if isinstance(value, dict):
        pruned = {clip(str(key), 60): _pruned(member, depth + 1) for key, member in list(value.items())[:20]}
        if len(value) > 20:
            pruned["…"] = f"({len(value) - 20:,} more keys)"
        return pruned
    return value
