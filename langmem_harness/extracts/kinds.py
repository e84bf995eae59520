"""Which kind of output a text is, and its extract.

Pure and deterministic: the same text and budget always give the same extract.
"""

from __future__ import annotations

from dataclasses import replace

from langmem_harness.extracts.diffs import extract_diff
from langmem_harness.extracts.json_values import extract_json
from langmem_harness.extracts.logs import extract_log, mask_lines
from langmem_harness.extracts.markup import extract_html
from langmem_harness.extracts.pieces import Extract, count_noun
from langmem_harness.extracts.prose import extract_prose
from langmem_harness.extracts.tables import extract_table
from langmem_harness.extracts.tracebacks import extract_traceback
from langmem_harness.window.tokens import estimate_text_tokens

_KINDS = (extract_json, extract_diff, extract_html, extract_traceback, extract_table, extract_log)
"""Tried in this order; what can be recognised for certain comes first."""


def extract(text: str, *, max_tokens: int) -> Extract:
    """A short text that shows what a long one is: kind, counts, first and last parts, everything that reports trouble.

    A text within the budget is returned whole. Time is linear in the text.

    Args:
        text: Output of a tool.
        max_tokens: Budget of `Extract.text`, 1 or more, by the estimate of `window.tokens`.
    """
    if len(text) <= 20 * max_tokens and estimate_text_tokens(text) <= max_tokens:
        return Extract(
            kind="prose", description=f"text of {count_noun(len(text), 'character')}", text=text, complete=True
        )
    for kind in _KINDS:
        found = kind(text, max_tokens=max_tokens)
        if found is not None and _fits(found, max_tokens):
            return found
    if _is_program_output(text):
        found = extract_log(text, max_tokens=max_tokens, certain=True)
        if found is not None and _fits(found, max_tokens):
            return found
    return _cut(extract_prose(text, max_tokens=max_tokens), max_tokens)


def _cut(found: Extract, max_tokens: int) -> Extract:
    """The extract with as much of its beginning as a budget of a few tokens holds."""
    text = found.text
    while (tokens := estimate_text_tokens(text)) > max_tokens:
        text = text[: min(len(text) - 1, len(text) * max_tokens // tokens)]
    return found if text == found.text else replace(found, text=text, complete=False)


def _fits(found: Extract, max_tokens: int) -> bool:
    """A frame (headings, ellipses) may be more than a budget of a few tokens holds."""
    return estimate_text_tokens(found.text) <= max_tokens


def _is_program_output(text: str) -> bool:
    """Whether a text has many alike lines: output of a build, a test run, a shell."""
    lines = [line for line in text.splitlines() if line.strip()]
    return len(lines) >= 15 and len(set(mask_lines(lines))) <= 0.6 * len(lines)
