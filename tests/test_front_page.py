"""The front page is exact, and cheap to import."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys

import pytest

import langmem_harness


def test_all_is_sorted_and_every_name_is_there() -> None:
    assert list(langmem_harness.__all__) == sorted(langmem_harness.__all__)
    for name in langmem_harness.__all__:
        assert getattr(langmem_harness, name) is not None


def test_every_name_has_a_home_and_its_type() -> None:
    assert {*langmem_harness._HOMES, "__version__"} == set(langmem_harness.__all__)
    tree = ast.parse(inspect.getsource(langmem_harness))
    typed = {
        (alias.name, (node.module or "").removeprefix("langmem_harness."))
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("langmem_harness.")
        for alias in node.names
    } - {("__version__", "_version")}
    assert typed == set(langmem_harness._HOMES.items())
    with pytest.raises(AttributeError, match="'OpenMemory'"):
        _ = langmem_harness.OpenMemory
    assert set(langmem_harness.__all__) <= set(dir(langmem_harness))


def test_importing_loads_no_heavy_library() -> None:
    script = (
        "import sys, langchain.agents; before = set(sys.modules); import langmem_harness;"
        "new = {name.split('.')[0] for name in set(sys.modules) - before};"
        "print(sorted(new & {'faiss', 'onnxruntime', 'tokenizers', 'typer', 'rich', 'Stemmer', 'mcp', 'psycopg'}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
