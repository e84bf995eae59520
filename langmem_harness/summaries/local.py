"""Summarizers that need no model: sentences of the conversation itself, and its two ends."""

from __future__ import annotations

import asyncio
import heapq
import math
import re
from collections import Counter
from collections.abc import Sequence

from langmem_harness.errors import ConfigurationError, SummarizerError
from langmem_harness.summaries.facts import find_values
from langmem_harness.summaries.summarizer import SummaryDraft, SummaryRequest
from langmem_harness.summaries.transcript import TranscriptEntry, render_transcript, split_text
from langmem_harness.window.tokens import estimate_text_tokens

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_WORD = re.compile(r"[^\W_]{2,}")
_WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\u0e00-\u0e7f]")
_USER_WEIGHT, _VALUE_WEIGHT, _EDGE_WEIGHT = 1.5, 0.15, 1.25
_LONGEST_SENTENCE = 60  # tokens; longer ones are looked at in pieces


class ExtractiveSummarizer:
    """Selects sentences of the conversation, word for word, within the token budget; no model, no cost.

    Sentences score by the words they share with many other sentences, by exact values in them, and by who said them
    (the user counts more); each further sentence is picked for the words that are not covered yet. The same input
    always gives the same text. Limit: it copies sentences and concludes nothing.
    """

    model = "extractive"
    prompt_version = "extractive-1"
    from_source = True

    def summarize(self, request: SummaryRequest) -> SummaryDraft:
        """Select the sentences.

        Raises:
            SummarizerError: There is no text to select from.
        """
        entries = list(request.entries)
        if request.previous:
            entries.insert(0, TranscriptEntry(speaker="earlier notes", text=request.previous))
        text = select_sentences(entries, request.max_tokens)
        if not text:
            raise SummarizerError("there is no text to select sentences from")
        return SummaryDraft(text=text, attempts=0)

    async def asummarize(self, request: SummaryRequest) -> SummaryDraft:
        """Async twin of `summarize`, in a worker thread."""
        return await asyncio.to_thread(self.summarize, request)


class HeadTailSummarizer:
    """The first and the last turns, word for word, with a note of how many are left out between them.

    A turn is one entry of the transcript: what one side said, a call, or a result.

    Args:
        max_chars: A text up to so many characters, inclusive, is returned whole; 0 or more.
        keep: Turns kept at each end; below 1 counts as 1. With at most twice as many turns, everything is returned,
            however long.

    Raises:
        ConfigurationError: `max_chars` is below 0.
    """

    model = "head-tail"
    from_source = True

    def __init__(self, max_chars: int = 4_000, keep: int = 3) -> None:
        if max_chars < 0:
            raise ConfigurationError(f"max_chars must be 0 or more, not {max_chars!r}")
        self.max_chars = max_chars
        self.keep = max(1, keep)
        self.prompt_version = f"head-tail-1:{max_chars}:{self.keep}"

    def summarize(self, request: SummaryRequest) -> SummaryDraft:
        """Both ends.

        Raises:
            SummarizerError: There are no turns.
        """
        entries = list(request.entries)
        if request.previous:
            entries.insert(0, TranscriptEntry(speaker="earlier notes", text=request.previous))
        text = render_transcript(entries)
        if not text.strip():
            raise SummarizerError("there are no turns to keep")
        if len(text) > self.max_chars and len(entries) > 2 * self.keep:
            omitted = len(entries) - 2 * self.keep
            head, tail = render_transcript(entries[: self.keep]), render_transcript(entries[-self.keep :])
            text = f"{head}\n[...{omitted} earlier turns omitted...]\n{tail}"
        return SummaryDraft(text=text, attempts=0)

    async def asummarize(self, request: SummaryRequest) -> SummaryDraft:
        """Async twin of `summarize`."""
        return self.summarize(request)


def select_sentences(entries: Sequence[TranscriptEntry], max_tokens: int) -> str:
    """The sentences that say most, in their order, each line with its speaker, within `max_tokens` estimated tokens.

    ``""`` when there is no text; the start of the best sentence when the budget is too small for any.
    """
    candidates = [(entry.speaker, sentence) for entry in entries for sentence in _sentences(entry.text)]
    if not candidates:
        return ""
    words = [frozenset(_words(sentence)) for _, sentence in candidates]
    weights = _word_weights(words)
    bases = [_base_weight(candidate, position, len(candidates)) for position, candidate in enumerate(candidates)]
    costs = [estimate_text_tokens(f"[{speaker}] {sentence}\n") for speaker, sentence in candidates]
    chosen: list[int] = []
    covered: set[str] = set()
    left = max_tokens
    # Lazy greedy: a gain only falls as words get covered, so the best one is final once it was computed afresh.
    queue = [(-_gain(words[position], covered, weights, bases[position]), position) for position in range(len(words))]
    heapq.heapify(queue)
    while queue:
        gain, best = heapq.heappop(queue)
        if costs[best] > left:
            continue
        fresh = _gain(words[best], covered, weights, bases[best])
        if fresh < -gain:
            heapq.heappush(queue, (-fresh, best))
            continue
        if fresh <= 0 and chosen:
            break
        chosen.append(best)
        covered |= words[best]
        left -= costs[best]
    if not chosen:
        best = max(range(len(candidates)), key=lambda position: (bases[position], -position))
        return next(split_text(candidates[best][1], max(1, max_tokens)))
    return _render([candidates[position] for position in sorted(chosen)])


def _render(lines: Sequence[tuple[str, str]]) -> str:
    parts: list[str] = []
    speaker_before = None
    for speaker, sentence in lines:
        if speaker == speaker_before:
            parts.append(f" {sentence}")
        else:
            parts.append(f"{chr(10) if parts else ''}[{speaker}] {sentence}")
        speaker_before = speaker
    return "".join(parts)


def _sentences(text: str) -> list[str]:
    """Sentences and lines, without white space around them; long ones in pieces."""
    found = []
    for sentence in _SENTENCE_END.split(text):
        sentence = sentence.strip()
        if not sentence:
            continue
        if estimate_text_tokens(sentence) <= _LONGEST_SENTENCE:
            found.append(sentence)
        else:
            found += [piece.strip() for piece in split_text(sentence, _LONGEST_SENTENCE) if piece.strip()]
    return found


def _words(sentence: str) -> list[str]:
    """Words, and pairs of characters where a script has no spaces."""
    words = [word.lower() for word in _WORD.findall(sentence) if not _WIDE.search(word)]
    wide = "".join(_WIDE.findall(sentence))
    return words + [wide[start : start + 2] for start in range(max(0, len(wide) - 1))]


def _word_weights(sentences: Sequence[frozenset[str]]) -> dict[str, float]:
    """Words of many sentences weigh more, but not those of nearly all, which carry nothing."""
    frequency = Counter(word for sentence in sentences for word in sentence)
    total = len(sentences)
    return {word: math.sqrt(count) * math.log(1 + total / count) for word, count in frequency.items()}


def _base_weight(candidate: tuple[str, str], position: int, total: int) -> float:
    speaker, sentence = candidate
    weight = 1.0 + _VALUE_WEIGHT * min(4, len(find_values(sentence)))
    if speaker.startswith("user") or speaker == "earlier notes":
        weight *= _USER_WEIGHT
    return weight * (_EDGE_WEIGHT if position < 2 or position >= total - 2 else 1.0)


def _gain(words: frozenset[str], covered: set[str], weights: dict[str, float], base: float) -> float:
    new = sum(weights[word] for word in sorted(words - covered))
    return base * new / math.sqrt(8 + len(words))
