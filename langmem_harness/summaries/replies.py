"""Whether a model's reply is a summary. Pure."""

from __future__ import annotations

import re
from typing import Any, Literal, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage

from langmem_harness.window.tokens import estimate_text_tokens

Fault: TypeAlias = Literal["empty", "cut_off", "tool_call", "question", "refusal", "error_text", "too_long", "language"]

_CUT_OFF = {"length", "max_tokens", "max_output_tokens", "model_length", "incomplete"}
_SHORT_TOKENS = 80  # a refusal, an error or a question is short; a long text that begins like one is not looked at
_REFUSAL = re.compile(
    r"^\W*(?:i['’]?m sorry|i am sorry|sorry,|i apologi[sz]e|i can(?:not|['’]t)|i(?: a|['’])m (?:unable|not able)|"
    r"as an ai\b|unfortunately,? i)",
    re.IGNORECASE,
)
_ERROR = re.compile(
    r"^\W*(?:error\b|traceback\b|exception\b|(?:http )?(?:4\d\d|5\d\d)\b|rate limit|summary unavailable|"
    r"service unavailable|internal server error|bad gateway|too many requests|\w*(?:error|exception):)",
    re.IGNORECASE,
)
_OFFER = re.compile(
    r"(?:how (?:can|may) i (?:help|assist)|please (?:provide|share|paste|send)|"
    r"could you (?:please )?(?:provide|clarify)|"
    r"(?:would|do) you (?:like|want) me to)",
    re.IGNORECASE,
)
_SCRIPTS = {
    "latin": re.compile(r"[A-Za-z\u00c0-\u024f]"),
    "han": re.compile(r"[\u3400-\u9fff]"),
    "kana": re.compile(r"[\u3040-\u30ff]"),
    "hangul": re.compile(r"[\uac00-\ud7af]"),
    "cyrillic": re.compile(r"[\u0400-\u052f]"),
    "arabic": re.compile(r"[\u0600-\u06ff]"),
    "hebrew": re.compile(r"[\u0590-\u05ff]"),
    "greek": re.compile(r"[\u0370-\u03ff]"),
    "thai": re.compile(r"[\u0e00-\u0e7f]"),
    "indic": re.compile(r"[\u0900-\u0dff]"),
}
_LEAST_SHARE = 0.02  # a script with less of the source than this is not a language of the conversation


def check_reply(reply: BaseMessage, *, source: str, max_tokens: int) -> Fault | None:
    """What is wrong with a reply, or None.

    Args:
        reply: Of the model.
        source: The text it had to summarize.
        max_tokens: How long it should be at most; up to half as much again is accepted.

    Returns:
        The first fault found. Rules for refusals, errors and questions look at short replies only, and are wordings:
        they catch what models are known to say, not everything they could say.
    """
    if isinstance(reply, AIMessage) and (reply.tool_calls or reply.invalid_tool_calls):
        return "tool_call"
    text = text_of_reply(reply)
    if was_cut_off(reply):
        return "cut_off"
    if not text:
        return "empty"
    tokens = estimate_text_tokens(text)
    if tokens <= _SHORT_TOKENS:
        if _ERROR.search(text):
            return "error_text"
        if _REFUSAL.search(text):
            return "refusal"
        if text.endswith(("?", "？", "؟")) and (_OFFER.search(text) or ("\n" not in text and _is_one_question(text))):
            return "question"
        if _OFFER.match(text):
            return "question"
    if tokens > max_tokens * 1.5 + 16:
        return "too_long"
    if _is_foreign(text, source):
        return "language"
    return None


def text_of_reply(reply: BaseMessage) -> str:
    """The text of a reply, stripped; reasoning and other blocks are not text. Tagged reasoning is taken out too."""
    return re.sub(r"^\s*<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", "", str(reply.text), flags=re.DOTALL).strip()


def was_cut_off(reply: BaseMessage) -> bool:
    """Whether the provider says that the reply ended because it became too long."""
    metadata: dict[str, Any] = reply.response_metadata
    reasons = [metadata.get(key) for key in ("finish_reason", "stop_reason", "done_reason", "finishReason", "status")]
    return any(isinstance(reason, str) and reason.lower() in _CUT_OFF for reason in reasons)


def usage_of(reply: BaseMessage) -> dict[str, int]:
    """``input_tokens``, ``output_tokens``, ``cached_tokens``, as far as the provider reported them."""
    usage = reply.usage_metadata if isinstance(reply, AIMessage) else None
    if usage is None:
        return {}
    cached = (usage.get("input_token_details") or {}).get("cache_read") or 0
    return {
        "input_tokens": int(usage["input_tokens"]),
        "output_tokens": int(usage["output_tokens"]),
        "cached_tokens": int(cached),
    }


def _is_one_question(text: str) -> bool:
    """Whether the text is nothing but one sentence that asks."""
    return not re.search(r"[.!。！](?:\s|$)", text) and sum(text.count(mark) for mark in "?？؟") == 1


def _is_foreign(text: str, source: str) -> bool:
    """Whether the text is mostly in a script that the source hardly has: another language for certain. Languages that
    share a script are not told apart."""
    counts = {name: len(script.findall(text)) for name, script in _SCRIPTS.items()}
    script = max(counts, key=lambda name: counts[name])
    if counts[script] < 20:
        return False
    sample = source if len(source) <= 200_000 else source[:100_000] + source[-100_000:]
    in_source = {name: len(one.findall(sample)) for name, one in _SCRIPTS.items()}
    total = sum(in_source.values())
    return total > 0 and in_source[script] / total < _LEAST_SHARE
