"""Values that prose loses, found by code and carried verbatim from summary to summary. Pure.

Numbers, amounts, dates, order numbers, ids, paths, URLs and quoted names are copied letter by letter. A summarizer may
forget all of them and they are still there. The list is bounded: the values mentioned least recently go first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from langmem_harness.summaries.transcript import TranscriptEntry, clean_text
from langmem_harness.window.tokens import estimate_text_tokens

VALUES_PER_TOOL_RESULT = 24
"""At most so many values are taken from one tool result or call, the first ones: a log has thousands."""

LONGEST_VALUE = 300
"""Values longer than this many characters are not carried."""

_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sep(?:t(?:ember)?)?|"
    r"oct(?:ober)?|nov(?:ember)?|dec(?:ember)?|januar|februar|märz|mai|juni|juli|oktober|dezember)"
)
_CURRENCY = r"(?:USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD|SEK|NOK|DKK|PLN|BRL|dollars?|euros?|pounds?|[$€£¥₹元円원])"
_CODE = r"(?:USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD)"
_UNIT = r"(?:%|°[CF]?|(?:km|cm|mm|kg|mg|ms|[KMGT]i?B|kWh|MHz|GHz|hours?|minutes?|days?|weeks?|months?|years?)\b)"
_NUMBER = r"\d++(?:[.,'\u00a0\u202f]\d++)*"

# One scan, first alternative first. Possessive parts and look-behinds keep it linear in the length of the text.
_VALUE = re.compile(
    "|".join(
        (
            # Most of any text, passed over at once.
            rf"(?P<word>(?<!\w)(?!(?i:{_MONTH})\b|{_CODE}\b)[^\W\d_]++(?:[\s,;!?]++|\Z))",
            r"(?P<url>\b[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s<>\"'`|\\^{}\[\]「」《》“”]++)",
            r"(?P<email>(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+)",
            r"(?P<quoted>\"[^\"\n]{1,80}\"(?!\s*:)|“[^”\n]{1,80}”|„[^“”\n]{1,80}[“”]|«[^»\n]{1,80}»|‹[^›\n]{1,80}›"
            r"|「[^」\n]{1,80}」|『[^』\n]{1,80}』|《[^》\n]{1,80}》|`[^`\n]{1,120}`|(?<!\w)'[^'\n]{2,60}'(?!\w)"
            r"|(?<!\w)‘[^’\n]{2,60}’(?!\w))",
            r"(?P<path>(?<![\w/\\.~@+-])(?:[A-Za-z]:\\(?:[\w.$@+ -]++\\)*[\w.$@+-]++|~?(?:\.{1,2})?/(?:[\w.@+~%-]++/)*+"
            r"[\w.@+~%-]++/?|(?:[\w@+-][\w.@+-]*+/)++[\w.@+-]*\.\w{1,8}))",
            r"(?P<date>(?<![\w.-])(?:\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?"
            r"|\d{4}/\d{1,2}/\d{1,2}|\d{1,2}[./]\d{1,2}[./]\d{2,4}|\d{1,4}年(?:\d{1,2}月(?:\d{1,2}日)?)?|\d{1,2}月\d{1,2}日"
            rf"|(?i:\d{{1,2}}(?:st|nd|rd|th|\.)?\s{_MONTH}\b\.?(?:,?\s\d{{4}})?"
            rf"|\b{_MONTH}\b\.?\s\d{{1,2}}(?:st|nd|rd|th)?\b(?:,?\s\d{{4}})?|\b{_MONTH}\b\s\d{{4}})"
            r"|\d{1,2}:\d{2}(?::\d{2})?(?:\s?[ap]\.?m\b\.?)?)(?!\w))",
            rf"(?P<amount>(?:[$€£¥₹]|\b{_CODE}\b)\s?{_NUMBER}(?:\s?(?:k|m|bn|million|billion)\b)?"
            rf"|(?<![\w.-]){_NUMBER}\s?(?:{_CURRENCY}(?!\w)|{_UNIT}))",
            r"(?P<phone>(?<!\w)\+\d{1,3}[\s-]?(?:\(?\d{1,5}\)?[\s-]?){1,5}\d(?!\w))",
            r"(?P<id>(?<![\w.#-])#?(?=[A-Za-z_.:-]{0,40}\d)[A-Za-z0-9]++(?:[-_.:/#][A-Za-z0-9]++)+(?![\w])"
            r"|(?<![\w.#-])#?(?=[A-Za-z]{1,40}\d|\d{1,40}[A-Za-z])[A-Za-z0-9]{3,80}(?!\w)|(?<!\w)#\d++)",
            rf"(?P<number>(?<![\w.])[+-]?{_NUMBER}(?![A-Za-z_]))",
        )
    )
)
_LABELLED = {"amount", "number"}
_LABEL = re.compile(r"(?<![\w'’#-])[^\W\d_]+(?:['’-][^\W\d_]+)?(?: [^\W\d_]+(?:['’-][^\W\d_]+)?){0,2}[ :=]{1,3}$")
_TRAILING = ".,;:!?)»”’。、，；：！？"


def find_values(text: str) -> list[tuple[str, str]]:
    """``(value, fact)`` of every value in a text, in order of appearance, repeated ones too.

    The value is the text as it was written; the fact is what is carried: the value, for a bare number or amount with up
    to three words in front of it that say what it is.
    """
    found: list[tuple[str, str]] = []
    for match in _VALUE.finditer(text):
        kind = match.lastgroup or ""
        if kind == "word":
            continue
        value = match.group()
        if kind == "quoted":
            value = value[1:-1].strip()
        elif kind in ("url", "path"):
            value = _trim(value)
        if not value or len(value) > LONGEST_VALUE or (kind == "number" and not _is_telling(value)):
            continue
        label = _LABEL.search(text, max(0, match.start() - 40), match.start()) if kind in _LABELLED else None
        value = clean_text(value)
        found.append((value, f"{label.group() if label else ''}{value}"))
    return found


def merge_facts(known: Sequence[str], entries: Iterable[TranscriptEntry], *, max_tokens: int) -> tuple[str, ...]:
    """The facts so far and those of newer messages, within a budget.

    Args:
        known: Facts carried so far, least recently mentioned first.
        entries: What was said since, oldest first.
        max_tokens: Budget of the list in estimated tokens, one more for each fact; 0 carries nothing.

    Returns:
        Facts, least recently mentioned first, each value once. A value that is mentioned again moves to the end. When
        the budget is short, those at the front are gone.
    """
    latest: dict[str, str] = {}
    for fact in known:
        values = find_values(fact)
        latest[values[-1][0] if values else fact] = fact
    for entry in entries:
        is_tool = entry.speaker.startswith(("result of ", "assistant calls "))
        for value, fact in find_values(entry.text)[: VALUES_PER_TOOL_RESULT if is_tool else None]:
            earlier = latest.pop(value, fact)
            latest[value] = max(earlier, fact, key=len)
    return fit_facts(tuple(latest.values()), max_tokens)


def fit_facts(facts: Sequence[str], max_tokens: int) -> tuple[str, ...]:
    """The facts that fit into a budget, in their order; those at the front make way first."""
    kept: list[str] = []
    left = max_tokens
    for fact in reversed(facts):
        cost = estimate_text_tokens(fact) + 1
        if cost <= left:
            kept.append(fact)
            left -= cost
    return tuple(kept[::-1])


def count_facts(facts: Sequence[str]) -> int:
    """Estimated tokens of a list of facts."""
    return sum(estimate_text_tokens(fact) + 1 for fact in facts)


def _trim(value: str) -> str:
    """A URL or path without the punctuation of the sentence around it; a bracket it opened itself stays."""
    while value and value[-1] in _TRAILING:
        if value[-1] == ")" and value.count("(") >= value.count(")"):
            break
        value = value[:-1]
    return value


def _is_telling(number: str) -> bool:
    """Whether a bare number is worth carrying: three digits or a fraction; small counts are not."""
    return sum(character.isdigit() for character in number) >= 3 or any(sign in number for sign in ".,")
