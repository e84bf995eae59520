"""Unified diffs: files with added and removed lines, hunk headers, the first changes of each file.

Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from langmem_harness.extracts.pieces import Extract, Piece, assemble, clip, count_noun, ranked

_FILE = re.compile(r"^(?:diff --git .{0,400}|--- [^\n]{1,400})$")
_HUNK = re.compile(r"^@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@")


@dataclass
class _Changed:
    name: str
    added: int = 0
    removed: int = 0
    hunks: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)


def extract_diff(text: str, *, max_tokens: int) -> Extract | None:
    """Extract of a unified diff, or None when the text is none."""
    lines = text.splitlines()
    hunks = sum(1 for line in lines if _HUNK.match(line))
    if not hunks or not any(line.startswith(("+++ ", "diff --git ")) for line in lines):
        return None
    files = _files(lines)
    added, removed = sum(each.added for each in files), sum(each.removed for each in files)
    size = f"{count_noun(len(files), 'file')} in {count_noun(hunks, 'hunk')}"
    description = f"diff of {size}, {added:,} lines added, {removed:,} removed"
    pieces: list[Piece] = []
    for each in files:
        pieces.append(Piece(text=f"{clip(each.name, 200)} +{each.added} -{each.removed}", rank=0))
        pieces += ranked(2, (clip(hunk, 120) for hunk in each.hunks[:20]))
        pieces += ranked(1, (clip(line, 200) for line in each.lines[:3]))
        pieces += ranked(3, (clip(line, 200) for line in each.lines[3:12]))
    return Extract(kind="diff", description=description, text=assemble(pieces, max_tokens=max_tokens, gap=""))


def _files(lines: list[str]) -> list[_Changed]:
    files: list[_Changed] = []
    inside = False
    for line in lines:
        if line.startswith("diff --git "):
            files.append(_Changed(name=line.rsplit(" b/", 1)[-1]))
            inside = False
        elif line.startswith("--- ") and not inside and (not files or files[-1].hunks):
            files.append(_Changed(name=line[4:].split("\t")[0].removeprefix("a/")))
        elif line.startswith("+++ ") and not inside and files:
            name = line[4:].split("\t")[0].removeprefix("b/")
            files[-1].name = name if name != "/dev/null" else f"{files[-1].name} (deleted)"
        elif _HUNK.match(line) and files:
            files[-1].hunks.append(line)
            inside = True
        elif inside and line[:1] in "+-" and line and files:
            files[-1].added += line[0] == "+"
            files[-1].removed += line[0] == "-"
            files[-1].lines.append(line)
        elif inside and line[:1] not in (" ", "\\", ""):
            inside = False
            if line.startswith("--- "):
                files.append(_Changed(name=line[4:].split("\t")[0].removeprefix("a/")))
    return files
