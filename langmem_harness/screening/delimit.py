"""One labelled block around untrusted text, with delimiters the text cannot imitate.

Pure. Inside the block our own delimiter is written ``&lt;untrusted^data``, also where it is spelled with look-alike
letters, hidden characters, blanks or other case; nothing else is changed.
"""

from __future__ import annotations

import re

from langmem_harness.screening.folding import fold

TAG = "untrusted-data"

_HARMLESS_TAG = TAG.replace("-", "^")
_DELIMITER = re.compile(r"[<\u2039\u27e8\u3008\uff1c]?[ /\\]{0,8}untrusted[ _-]{0,4}data", re.I)
_ATTRIBUTE = re.compile(r"[^\w .:@/+#-]")


def delimit(text: str, *, label: str, source: str | None = None) -> str:
    """Put text into one data block.

    Delimiting a block again with the same label and source gives the block back unchanged. An empty text gives an
    empty block.

    Args:
        text: Untrusted text; screened before, if it should be (`screen_text`).
        label: What it is: ``"tool result"``, ``"memory"``.
        source: Where it comes from, for example the tool's name. Characters other than letters, digits, blanks and
            ``.:@/+#-_`` are written ``_``, so a source cannot leave its attribute.
    """
    opening = f'<{TAG} label="{_attribute(label)}"' + (f' source="{_attribute(source)}">' if source else ">")
    closing = f"</{TAG}>"
    if text.startswith(f"{opening}\n") and text.endswith(f"\n{closing}"):
        inner = text[len(opening) + 1 : -len(closing) - 1] if len(text) > len(opening) + len(closing) + 1 else ""
        if escape_delimiters(inner) == inner:
            return text
    return f"{opening}\n{escape_delimiters(text)}\n{closing}"


def undelimited(text: str, *, label: str) -> str:
    """What was put into a block of this label, with any source; the text itself when it is no such block.

    The exact way back from `delimit` unless that had to change the text inside: what stood for a delimiter stays
    harmless.
    """
    match = re.match(rf'<{TAG} label="{re.escape(_attribute(label))}"(?: source="[^"\n]{{0,120}}")?>\n', text)
    closing = f"\n</{TAG}>"
    if match is None or not text.endswith(closing):
        return text
    inner = text[match.end() : -len(closing)] if len(text) - len(closing) >= match.end() else ""
    return inner if escape_delimiters(inner) == inner else text


def escape_delimiters(text: str) -> str:
    """The text with everything that reads like our delimiter made harmless; unchanged when nothing does."""
    folded = fold(text)
    if "untrusted" not in folded.text:
        return text
    parts = []
    position = 0
    for match in _DELIMITER.finditer(folded.text):
        start, end = folded.source_span(*match.span())
        opens = match.group()[:1] != "u"
        parts += [text[position:start], "&lt;" if opens else "", _HARMLESS_TAG]
        position = end
    parts.append(text[position:])
    return "".join(parts)


def _attribute(value: str) -> str:
    return _ATTRIBUTE.sub("_", value.strip())[:120]
