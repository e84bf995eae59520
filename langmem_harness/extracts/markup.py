"""HTML: title, headings, counts of links and forms, and the beginning and end of the text people see.

Pure. A scanner for tags, no parser: broken markup gives a worse extract, never an error, and time stays linear.
"""

from __future__ import annotations

import html
import re

from langmem_harness.extracts.pieces import Extract, Piece, assemble, clip, count_noun, ranked

_NAME = re.compile(r"</?([a-zA-Z][a-zA-Z0-9-]{0,20})")
_SKIPPED = ("script", "style", "svg", "noscript", "template")
_BREAKS = {
    *("p", "div", "br", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "section", "article", "table"),
    *("ul", "ol", "title", "td", "th", "pre", "blockquote", "option"),
}
_HEADINGS = {"title", "h1", "h2", "h3"}


def extract_html(text: str, *, max_tokens: int) -> Extract | None:
    """Extract of an HTML page, or None when the text is none."""
    beginning = text[:2000].lower()
    if "<html" not in beginning and "<!doctype html" not in beginning and not _is_fragment(beginning):
        return None
    shown, headings, links = _scan(text)
    blocks = [" ".join(block.split()) for block in shown.split("\n")]
    blocks = [block for block in blocks if len(block) > 1]
    description = (
        f"HTML page of {len(text):,} characters, {sum(map(len, blocks)):,} of them text, {count_noun(links, 'link')}"
    )
    long_blocks = [block for block in blocks if len(block) > 60 and block not in headings]
    pieces = [
        *ranked(0, (clip(heading, 160) for heading in headings[:1])),
        *ranked(2, (clip(heading, 120) for heading in headings[1:20])),
        Piece(text="text:", rank=1),
        *ranked(1, (clip(block, 400) for block in (long_blocks or blocks)[:2])),
        *ranked(3, (clip(block, 240) for block in (long_blocks or blocks)[2:12])),
        *ranked(2, (clip(block, 240) for block in blocks[-1:])),
    ]
    return Extract(kind="html", description=description, text=assemble(pieces, max_tokens=max_tokens))


def visible_text(text: str) -> str:
    """The text of a page without tags, scripts and styles; blocks stand on lines of their own."""
    return _scan(text)[0]


def _is_fragment(beginning: str) -> bool:
    usual = ("<div", "<p>", "<span", "<body", "<head", "<table", "<ul", "<a href")
    return beginning.lstrip().startswith("<") and sum(tag in beginning for tag in usual) >= 3


def _scan(text: str) -> tuple[str, list[str], int]:
    parts: list[str] = []
    headings: list[str] = []
    links = 0
    heading_from: int | None = None
    lower = text.lower()
    position = 0
    while True:
        opening = text.find("<", position)
        if opening < 0:
            break
        parts.append(text[position:opening])
        if text.startswith("<!--", opening):
            end = text.find("-->", opening)
            position = len(text) if end < 0 else end + 3
            continue
        closing = text.find(">", opening)
        if closing < 0:
            position = len(text)
            break
        position = closing + 1
        match = _NAME.match(text, opening)
        if match is None:
            continue
        name = match.group(1).lower()
        if name in _SKIPPED and text[opening + 1] != "/":
            end = lower.find(f"</{name}", position)
            position = len(text) if end < 0 else end
            continue
        links += name == "a" and text[opening + 1] != "/"
        if name in _BREAKS:
            parts.append("\n")
        if name in _HEADINGS:
            if text[opening + 1] != "/":
                heading_from = len(parts)
            elif heading_from is not None:
                heading = " ".join(html.unescape("".join(parts[heading_from:])).split())
                headings += [heading] if heading else []
                heading_from = None
    parts.append(text[position:])
    return html.unescape("".join(parts)), headings, links
