"""Logs in the shapes of sixteen kinds of system: small extracts that say what every line about trouble says."""

from __future__ import annotations

import pytest

from benchmarks.tool_outputs import is_shown
from langmem_harness.extracts import extract
from langmem_harness.middleware.tool_shortening import extract_budget
from langmem_harness.window.tokens import estimate_text_tokens
from tests.extracts.generated_logs import LINES, SYSTEMS, System, fixed_words, render

LARGEST_SHARE = 0.03


@pytest.mark.parametrize("system", SYSTEMS, ids=[system.name for system in SYSTEMS])
def test_the_extract_is_small_and_has_every_statement_about_trouble(system: System) -> None:
    text = render(system)
    assert text.count("\n") == LINES - 1
    tokens = estimate_text_tokens(text)
    found = extract(text, max_tokens=extract_budget(tokens))
    assert found.kind == "log"
    assert estimate_text_tokens(found.text) <= LARGEST_SHARE * tokens
    missing = [statement for _, statement in system.bad if not is_shown(fixed_words(statement), found.text)]
    assert missing == []
    assert extract(text, max_tokens=extract_budget(tokens)) == found


def test_there_are_sixteen_kinds() -> None:
    assert len({system.name for system in SYSTEMS}) == len(SYSTEMS) == 16
