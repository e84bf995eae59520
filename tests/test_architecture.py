"""Imports point down: the rooms of the package and who may know whom."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "langmem_harness"
LEVELS = {
    "_version": 0,
    "driving": 0,
    "errors": 0,
    "events": 0,
    "layout": 0,
    "receipts": 0,
    "sqlite": 0,
    "sqlite_file": 0,
    "testing": 0,
    "window": 1,
    "extracts": 1,
    "redaction": 1,
    "screening": 1,
    "embeddings": 2,
    "summaries": 2,
    "threads": 2,
    "store": 2,
    "memory": 2,
    "middleware": 3,
    "pairing": 4,
    "evaluation": 5,
    "mcp_server": 6,
    "cli": 6,
    "__init__": 7,
}
HEAVY = {"faiss", "onnxruntime", "tokenizers", "typer", "rich", "Stemmer", "mcp", "psycopg"}


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> Iterator[tuple[str, bool]]:
    """Every imported module of a file, and whether the import runs when the file is imported."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    lazy = {
        id(node)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef)
        or (isinstance(outer, ast.If) and ast.unparse(outer.test) == "TYPE_CHECKING")
        for node in ast.walk(outer)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) not in lazy
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, id(node) not in lazy


def test_every_room_has_its_level() -> None:
    rooms = {room_of(path) for path in PACKAGE.rglob("*.py")}
    assert rooms - LEVELS.keys() == set()


def test_imports_point_down() -> None:
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for module, _ in imports_of(path):
            parts = module.split(".")
            if parts[0] == "langmem_harness" and len(parts) > 1 and LEVELS[parts[1]] > LEVELS[room_of(path)]:
                wrong.append(f"{path.relative_to(PACKAGE)} imports {module}")
    assert wrong == []


def test_rooms_do_not_import_each_other_in_circles() -> None:
    knows: dict[str, set[str]] = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        for module, _ in imports_of(path):
            parts = module.split(".")
            if parts[0] == "langmem_harness" and len(parts) > 1 and parts[1] != room_of(path):
                knows[room_of(path)].add(parts[1])
    circles = [(a, b) for a in knows for b in knows[a] if a in knows.get(b, ())]
    assert circles == []


def test_heavy_libraries_are_loaded_when_first_used() -> None:
    eager = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if room_of(path) == "cli":
            continue  # the commands are only imported by the command line
        for module, at_import in imports_of(path):
            if at_import and module.split(".")[0] in HEAVY:
                eager.append(f"{path.relative_to(PACKAGE)} imports {module}")
    assert eager == []
