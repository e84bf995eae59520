"""Tracebacks of Python, Java, JavaScript, Go, Rust and C#: what was raised, where, and how often.

Pure.
"""

from __future__ import annotations

import re
from collections import Counter

from langmem_harness.extracts.pieces import Extract, Piece, assemble, clip, count_noun, ranked

LONGEST_LINE = 2_000
"""Characters of a line that are looked at."""

_START = re.compile(
    r"^[+|\s]*Traceback \(most recent call last\)|^panic: |^goroutine \d+ |^thread '.*' panicked at"
    r"|^Unhandled exception"
)
_FRAME = re.compile(
    r'^[+|\s]*File "[^"\n]{1,400}", line \d+|^\s+at [\w.$<>/@:\\ \[\]-]{1,300}[(:]|^\s+at .{1,300}:\d+'
    r"|^\t[\w/.-]{1,200}\.go:\d+|^\s+\d+: \S"
)
_RAISED = re.compile(
    r"^(?:[|+ ]*)(?:Caused by: |Exception in thread .{0,200}|Unhandled .{0,40}|panic: )?"
    r"(?:[\w$]{1,80}\.){0,12}[A-Z]\w{0,80}"
    r"(?:Error|Exception|Exit|Interrupt|Warning|Fault|Panic|Failure|Iteration|Group)\b.{0,2000}$"
    r"|^panic: .{1,2000}$|^thread '.{1,200}' panicked at.{0,2000}$|^Caused by: .{1,2000}$"
)


def extract_traceback(text: str, *, max_tokens: int) -> Extract | None:
    """Extract of one or more tracebacks, or None when they are not what the text mostly is."""
    lines = [line[:LONGEST_LINE] for line in text.splitlines() if line.strip()]
    frames = [index for index, line in enumerate(lines) if _FRAME.match(line)]
    starts = [index for index, line in enumerate(lines) if _START.match(line)]
    raised = [index for index, line in enumerate(lines) if _RAISED.match(line)]
    if not (frames and (starts or raised)) or 3 * (len(frames) + len(starts) + len(raised)) < len(lines):
        return None
    reasons = Counter(clip(lines[index].strip(), 400) for index in raised)
    description = f"traceback of {count_noun(len(frames), 'frame')}" + (
        f" in {count_noun(len(starts), 'trace')}" if len(starts) > 1 else ""
    )
    first, last = frames[0], frames[-1]
    is_python = len(starts) == 1 and "most recent call last" in lines[starts[0]]  # others begin with the innermost
    pieces = [
        *ranked(0, (reason if count == 1 else f"×{count} {reason}" for reason, count in reasons.most_common(20))),
        Piece(text="outermost frame:" if is_python else "first frame:", rank=2),
        Piece(text=_frame(lines, first), rank=2),
        Piece(text="innermost frames:" if is_python else "last frames:", rank=1),
        *ranked(3, (_frame(lines, index) for index in frames[-5:-1])),
        Piece(text=_frame(lines, last), rank=1),
        *ranked(4, [clip(lines[0], 200)]),
        *ranked(2, [clip(lines[-1], 400)] if last != len(lines) - 1 else []),
    ]
    return Extract(kind="traceback", description=description, text=assemble(pieces, max_tokens=max_tokens))


def _frame(lines: list[str], index: int) -> str:
    """A frame with the source line under it, when there is one."""
    following = lines[index + 1] if index + 1 < len(lines) else ""
    indented = following[:1] in (" ", "\t") and not _FRAME.match(following)
    shown = clip(lines[index].strip(), 240)
    return f"{shown}\n    {clip(following.strip(), 160)}" if indented else shown
