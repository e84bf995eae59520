"""What becomes of one tool result: measured, guarded, and, when it is too large, put in a short form.

Pure. The middleware asks `plan_result` what to do and does it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, ToolMessage

from langmem_harness.extracts import Extract, extract
from langmem_harness.middleware.tool_content import Content, text_of, with_text, with_texts
from langmem_harness.screening import delimit, screen_text
from langmem_harness.screening.delimit import undelimited
from langmem_harness.window.messages import TAG_KEY, canonical_json, tag_of
from langmem_harness.window.tokens import TokenCounter, estimate_text_tokens

RESULT_LABEL = "tool result"
SHOWN = "shown"
"""In the tag of an answer that went to the user as it was: the content the model reads in its place."""
ORIGINAL = "original"
"""In the tag of a result in which the block had to make an imitation of itself harmless: the content before."""
SHORT_LABEL = "short form of a tool result"

EXTRACT_SHARE = 0.03
"""Part of a large output that its extract may be, with the words around it."""
SMALLEST_EXTRACT_TOKENS = 250
"""What an extract may always be, also of an output so small that 3 % of it says nothing."""
LARGEST_EXTRACT_TOKENS = 3_000
NOTICE_TOKENS = 120
"""What the words around an extract take, a little more than measured."""


@dataclass(frozen=True, kw_only=True)
class ResultPlan:
    """What becomes of a result.

    Attributes:
        kept: Content that goes to the model when the result is not shortened: screened and delimited if untrusted.
        raw: Text to be stored when `kept` stands in the message, because taking off its blocks does not give the
            original back; None when it does.
        findings: Neutralised instructions by rule.
        text: All text of the result, raw; what is stored.
        token_count: Size of `text`.
        kept_token_count: Size of the text of `kept`.
        extract: The short form, or None when the result is small enough.
    """

    kept: Content
    raw: str | None
    findings: Mapping[str, int]
    text: str
    token_count: int
    kept_token_count: int
    extract: Extract | None


def plan_result(
    message: ToolMessage,
    *,
    is_too_large: Callable[[str, int], bool],
    untrusted: bool,
    source: str,
    token_counter: TokenCounter | None,
) -> ResultPlan:
    """Decide about one result.

    Args:
        message: Left unchanged.
        is_too_large: Gets the text and its tokens.
        untrusted: Whether to screen and delimit.
        source: Name of the tool, for the delimiters.
        token_counter: Counts the tokens of messages; None estimates.
    """
    text = text_of(message.content)
    token_count = count_text(text, token_counter)
    findings: Counter[str] = Counter()
    changed_inside = False
    kept = message.content
    if untrusted:

        def screened(part: str) -> str:
            result = screen_text(part)
            findings.update(result.counts)
            return result.text

        def screened_inside(part: str) -> str:
            nonlocal changed_inside
            clean = screened(part)
            changed_inside = changed_inside or clean != part
            return clean

        kept = with_texts(
            message.content,
            lambda part: delimit(screened(part), label=RESULT_LABEL, source=source),
            inside=screened_inside,
        )
    raw = None
    if without_blocks(kept) != message.content:
        raw = canonical_json(message.content) if changed_inside else text
    too_large = bool(text.strip()) and is_too_large(text, token_count)
    return ResultPlan(
        kept=kept,
        raw=raw,
        findings=dict(findings),
        text=text,
        token_count=token_count,
        kept_token_count=count_text(text_of(kept), token_counter) if untrusted else token_count,
        extract=extract(text, max_tokens=extract_budget(token_count)) if too_large else None,
    )


def extract_budget(token_count: int) -> int:
    """Tokens the extract of an output of this size may take."""
    share = int(token_count * EXTRACT_SHARE) - NOTICE_TOKENS
    return max(8, min(max(share, SMALLEST_EXTRACT_TOKENS), LARGEST_EXTRACT_TOKENS, token_count // 4))


def summary_budget(token_count: int) -> int:
    """Tokens a written summary of an output of this size may take; in steps, so that a few tokens do not change it."""
    return next(
        step for step in (250, 500, 1_000, LARGEST_EXTRACT_TOKENS) if step >= 3_000 or step >= token_count // 40
    )


def shortened_content(
    plan: ResultPlan, short: Extract, *, handle: str, failed: bool, untrusted: bool, source: str
) -> Content:
    """The content that stands in for a stored result.

    Args:
        plan: The result.
        short: Its short form.
        handle: Where the raw text is.
        failed: Whether the call reported an error.
        untrusted: Whether to screen and delimit the short form.
        source: Name of the tool.
    """
    text = short.text
    if untrusted:
        text = delimit(screen_text(text).text, label=SHORT_LABEL, source=source)
    outcome = "The call reported an error; its output was" if failed else "The call succeeded; its output was"
    notice = (
        f"{outcome} shortened to save space. Output: {short.description}; {len(plan.text):,} characters, about "
        f"{plan.token_count:,} tokens. Read any part of it by offset or by pattern with "
        f'read_tool_output(handle="{handle}").'
    )
    return with_text(plan.kept, f"{notice}\n{text}")


def without_blocks(content: Content) -> Content:
    """The content with our block taken off every text of it; what is in no block stays."""
    return with_texts(content, lambda text: undelimited(text, label=RESULT_LABEL), inside=lambda text: text)


def tagged(
    message: ToolMessage, content: Content, *, handle: str | None, direct: bool, original: Content | None = None
) -> ToolMessage:
    """A copy of the message with our tag; id, status, artifact and the rest stay.

    Args:
        message: Left unchanged.
        content: What the model reads.
        handle: Where the raw text is; None when it is not stored.
        direct: Whether the message is the answer to the user: its content stays, and what the model reads in later
            turns goes into the tag.
        original: What the tool gave, to go into the tag.
    """
    tag: dict[str, Any] = {"kind": "tool_output", "handle": handle}
    if direct:
        tag[SHOWN] = content
    elif original is not None:
        tag[ORIGINAL] = original
    return message.model_copy(
        update={
            "content": message.content if direct else content,
            "additional_kwargs": {**message.additional_kwargs, TAG_KEY: tag},
        }
    )


def shown_to_model(messages: list[AnyMessage]) -> list[AnyMessage]:
    """The messages with every answer that went to the user directly in the form that is meant for the model.

    The same list when there is none.
    """
    shown = [_shown(message) for message in messages]
    return messages if all(new is old for new, old in zip(shown, messages, strict=True)) else shown


def _shown(message: AnyMessage) -> AnyMessage:
    tag = tag_of(message) if isinstance(message, ToolMessage) else None
    if tag is None or tag["kind"] != "tool_output" or SHOWN not in tag:
        return message
    rest = {key: value for key, value in tag.items() if key != SHOWN}
    kwargs = {**message.additional_kwargs, TAG_KEY: rest}
    return message.model_copy(update={"content": tag[SHOWN], "additional_kwargs": kwargs})


def count_calls(messages: list[BaseMessage], tool_call_id: str | None) -> int:
    """How many calls the newest AI message with this call makes at once; 1 when there is none."""
    for message in reversed(messages):
        if isinstance(message, AIMessage) and any(call["id"] == tool_call_id for call in message.tool_calls):
            return len(message.tool_calls)
    return 1


def count_text(text: str, token_counter: TokenCounter | None) -> int:
    """Tokens of a text, by a counter of messages if there is one; 0 for the empty text."""
    if token_counter is None or not text:
        return estimate_text_tokens(text)
    return int(token_counter([ToolMessage(content=text, tool_call_id="")]))
