"""Real logs: the extract is at most 3 % of the tokens and says what every problem line says."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.tool_outputs import DATA, is_shown, problem_templates
from langmem_harness.extracts import extract
from langmem_harness.middleware.tool_shortening import extract_budget
from langmem_harness.window.tokens import estimate_text_tokens

LOGS = sorted(DATA.rglob("*.log")) if DATA.is_dir() else []


@pytest.mark.skipif(not LOGS, reason="the real logs are not on this machine")
@pytest.mark.parametrize("log", LOGS, ids=[log.name for log in LOGS])
def test_real_log(log: Path) -> None:
    text = log.read_text(encoding="utf-8", errors="replace")
    tokens = estimate_text_tokens(text)
    found = extract(text, max_tokens=extract_budget(tokens))
    assert estimate_text_tokens(found.text) <= max(0.03 * tokens, 250)
    assert [template for template in problem_templates(log) if not is_shown(template, found.text)] == []
