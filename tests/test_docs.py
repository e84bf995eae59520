"""Code in the README and the docs runs: every ``python`` block of a page, in order, in one namespace."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.memory.postgres import running_postgres

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = page.read_text(encoding="utf-8")
    blocks = list(PYTHON_BLOCK.finditer(text))
    if not blocks:
        pytest.skip("no python block on this page")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    namespace: dict[str, object] = {"__name__": "docs"}
    with ExitStack() as needed:
        if "DATABASE_URL" in text:
            pytest.importorskip("psycopg", reason="needs the extra postgres")
            monkeypatch.setenv("DATABASE_URL", needed.enter_context(running_postgres()))
        for block in blocks:
            line = text.count("\n", 0, block.start(1))
            code = compile("\n" * line + block.group(1), str(page), "exec")  # errors name the line of the page
            exec(code, namespace)  # noqa: S102 - our own pages


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_lead_somewhere(page: Path) -> None:
    broken = [link for link in LINK.findall(page.read_text(encoding="utf-8")) if not (page.parent / link).exists()]
    assert broken == []
