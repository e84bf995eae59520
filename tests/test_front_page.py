"""The front page is exact, and cheap to import."""

from __future__ import annotations

import subprocess
import sys

import langmem_harness


def test_all_is_sorted_and_every_name_is_there() -> None:
    assert list(langmem_harness.__all__) == sorted(langmem_harness.__all__)
    for name in langmem_harness.__all__:
        assert getattr(langmem_harness, name) is not None


def test_nothing_public_is_missing_from_all() -> None:
    public = {
        name
        for name, value in vars(langmem_harness).items()
        if not name.startswith("_") and getattr(value, "__module__", "").startswith("langmem_harness")
    }
    assert public - set(langmem_harness.__all__) == set()


def test_importing_loads_no_heavy_library() -> None:
    script = (
        "import sys, langchain.agents; before = set(sys.modules); import langmem_harness;"
        "new = {name.split('.')[0] for name in set(sys.modules) - before};"
        "print(sorted(new & {'faiss', 'onnxruntime', 'tokenizers', 'typer', 'rich', 'Stemmer', 'mcp', 'psycopg'}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
