"""JSON and JSON lines: shape, counts, keys, first and last elements.

Pure. What is shown is JSON-like text, with ``…`` and counts where something is left out.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from langmem_harness.extracts.pieces import Extract, Piece, assemble, clip, clip_to_tokens, count_noun, ranked
from langmem_harness.extracts.problems import is_problem

_PROBLEM_KEYS = ("error", "errors", "exception", "warning", "warnings", "message", "status", "detail", "reason", "code")


def extract_json(text: str, *, max_tokens: int) -> Extract | None:
    """Extract of a JSON document or of JSON lines, or None when the text is neither."""
    value, label = _parse(text)
    if label is None:
        return None
    description = f"{label} {_describe(value)}" if label == "JSON" else f"{label}: {_describe(value)}"
    pieces = ranked(2, _outline(value, depth=0, name="")[1:40])  # its first line is the description
    if isinstance(value, list) and value:
        pieces += [Piece(text=f"first: {_short(value[0], 400)}", rank=1)]
        pieces += [Piece(text=f"last: {_short(value[-1], 400)}", rank=1)] if len(value) > 1 else []
        troubled = [(index, element) for index, element in enumerate(value) if _is_troubled(element)]
        pieces += ranked(3, (f"[{index}] {_short(element, 200)}" for index, element in troubled[:12]))
    elif isinstance(value, dict):
        pieces += [
            Piece(
                text=f"{json.dumps(key, ensure_ascii=False)}: {_short(member, 240)}",
                rank=1 if _is_problem_key(key) else 2,
            )
            for key, member in list(value.items())[:60]
        ]
        for key, member in value.items():
            if isinstance(member, list) and len(member) > 1:
                pieces.append(Piece(text=f"{key}, last: {_short(member[-1], 240)}", rank=3))
    else:
        pieces.append(Piece(text=clip_to_tokens(str(value), max(1, max_tokens - 20)), rank=1))
    return Extract(kind="json", description=description, text=assemble(pieces, max_tokens=max_tokens))


def _parse(text: str) -> tuple[Any, str | None]:
    stripped = text.strip().removeprefix("\ufeff")
    if not stripped or stripped[0] not in '{["':
        return None, None
    try:
        return json.loads(stripped), "JSON"
    except (ValueError, RecursionError):  # cut off, nested too deep for the parser, or several documents
        pass
    lines = [line for line in stripped.splitlines() if line.strip()]
    if len(lines) < 2 or lines[0].lstrip()[0] not in "{[":
        return None, None
    values = []
    for line in lines:
        try:
            values.append(json.loads(line))
        except (ValueError, RecursionError):
            if len(values) < 2:
                return None, None
            continue
    return (values, "JSON lines") if len(values) >= 0.9 * len(lines) else (None, None)


def _describe(value: Any) -> str:
    if isinstance(value, list):
        kinds = Counter(_type_name(element) for element in value)
        if not kinds:
            return "array, empty"
        if len(kinds) == 1:
            return f"array of {count_noun(len(value), next(iter(kinds)))}"
        parts = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common(4))
        return f"array of {count_noun(len(value), 'element')} ({parts})"
    if isinstance(value, dict):
        return f"object with {count_noun(len(value), 'key')}"
    return _type_name(value)


def _outline(value: Any, *, depth: int, name: str) -> list[str]:
    """Names and types, one line each, indented by depth; arrays are described by the union of their elements' keys."""
    indent = "  " * depth
    label = f"{indent}{clip(name, 60)}: " if name else indent
    lines = [f"{label}{_describe(value)}"]
    if depth >= 4:
        return lines
    if isinstance(value, dict):
        for key, member in list(value.items())[:30]:
            if isinstance(member, dict | list):
                lines += _outline(member, depth=depth + 1, name=str(key))
    elif isinstance(value, list):
        objects = [element for element in value[:2000] if isinstance(element, dict)]
        if objects:
            keys = Counter(key for element in objects for key in element)
            lines.append(
                f"{indent}  keys: "
                + ", ".join(
                    clip(str(key), 40) + ("" if count == len(objects) else f" ({count:,} of {len(objects):,})")
                    for key, count in keys.most_common(30)
                )
            )
            lines += _numbers(objects, list(keys)[:30], indent)
    return lines


def _numbers(objects: list[dict[str, Any]], keys: list[str], indent: str) -> list[str]:
    """Range of every key that holds numbers, number of different values of every key that holds few texts."""
    lines = []
    for key in keys:
        values = [element[key] for element in objects if key in element]
        numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
        texts = [value for value in values if isinstance(value, str)]
        if len(numbers) == len(values) > 1:
            lines.append(f"{indent}  {clip(str(key), 40)}: {min(numbers)} to {max(numbers)}")
        elif len(texts) == len(values) > 1:
            common = Counter(texts)
            if len(common) <= 8 < len(texts):
                shown = ", ".join(f"{clip(text, 30)} ×{count}" for text, count in common.most_common(8))
                lines.append(f"{indent}  {clip(str(key), 40)}: {shown}")
    return lines


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
        return {clip(str(key), 60): _pruned(member, depth + 1) for key, member in list(value.items())[:20]}
    return value


def _is_problem_key(key: str) -> bool:
    return key.lower() in _PROBLEM_KEYS


def _is_troubled(element: Any) -> bool:
    """Whether an element reports trouble in one of its own short values."""
    if isinstance(element, dict):
        return any(
            (key.lower() in ("error", "exception", "errors") and member)
            or (isinstance(member, str) and len(member) < 300 and is_problem(member))
            for key, member in element.items()
        )
    return isinstance(element, str) and is_problem(element[:300])


def _type_name(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "text"
    return "object" if isinstance(value, dict) else "array"
