"""The seam behind which summarizers live, and `create_summarizer`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, runtime_checkable

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage

from langmem_harness.errors import ConfigurationError, SummarizerError
from langmem_harness.summaries.transcript import (
    TranscriptEntry,
    delimit_transcript,
    render_transcript,
    transcript_entries,
)


@dataclass(frozen=True, kw_only=True)
class SummaryRequest:
    """What to summarize.

    Attributes:
        entries: What was said and done, oldest first; all of it is to be read.
        previous: Text of the summary this one extends; ``""`` for none. It belongs in the new text.
        max_tokens: How long the text should be at most; 1 or more.
    """

    entries: Sequence[TranscriptEntry]
    previous: str = ""
    max_tokens: int = 1_000

    @classmethod
    def from_messages(cls, messages: Sequence[BaseMessage], *, previous: str = "", max_tokens: int = 1_000) -> Self:
        """A request for these messages."""
        return cls(entries=transcript_entries(messages), previous=previous, max_tokens=max_tokens)

    def render(self) -> str:
        """Everything as one text."""
        transcript = render_transcript(self.entries)
        return (
            f"{delimit_transcript(self.previous, label='earlier_notes')}\n{transcript}" if self.previous else transcript
        )


@dataclass(frozen=True, kw_only=True)
class SummaryDraft:
    """A valid text. What went wrong is a `SummarizerError`, never a draft.

    Attributes:
        text: Not blank.
        coverage: Share of the request that was read, 0.0 to 1.0.
        usage: ``input_tokens``, ``output_tokens``, ``cached_tokens`` of all calls that were needed.
        attempts: Calls of a model.
    """

    text: str
    coverage: float = 1.0
    usage: Mapping[str, int] = field(default_factory=dict)
    attempts: int = 1


@runtime_checkable
class Summarizer(Protocol):
    """Writes the text of a summary. Implemented by `ModelSummarizer`, `ExtractiveSummarizer` and `HeadTailSummarizer`;
    `SummaryService` relies on it.

    A summarizer that costs nothing may set ``from_source = True``: it is then given all messages again each time, and
    never the text of an earlier summary.
    """

    @property
    def model(self) -> str:
        """Name of what writes; part of every record."""
        ...

    @property
    def prompt_version(self) -> str:
        """Changes when what it is told changes; part of every record."""
        ...

    def summarize(self, request: SummaryRequest) -> SummaryDraft:
        """Write the text.

        Raises:
            SummarizerError: No valid text.
        """
        ...

    async def asummarize(self, request: SummaryRequest) -> SummaryDraft:
        """Async twin of `summarize`."""
        ...


class CallableSummarizer:
    """A function of the text that gives a shorter text.

    Args:
        function: Called with the whole transcript; sync or async.

    Raises:
        ConfigurationError: It cannot be called with exactly one argument.
    """

    prompt_version = "callable-1"

    def __init__(self, function: Callable[[str], str | Awaitable[str]]) -> None:
        try:
            inspect.signature(function).bind("text")
        except TypeError as error:
            raise ConfigurationError(
                "a summarizer function takes one argument, the text, and returns the summary"
            ) from error
        except ValueError:  # built in, no signature to look at
            pass
        self._function = function
        call = getattr(function, "__call__", None)  # noqa: B004 - an object may have an async __call__
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
        name = getattr(function, "__qualname__", type(function).__qualname__)
        self.model = f"callable:{name}"

    def summarize(self, request: SummaryRequest) -> SummaryDraft:
        """Call the function.

        Raises:
            SummarizerError: It raised, gave nothing, or is async.
        """
        if self._is_async:
            raise SummarizerError(
                "the summarizer function is async: use the async face of the agent", reason="async_function"
            )
        return _draft(_guarded(self._function, request.render()))

    async def asummarize(self, request: SummaryRequest) -> SummaryDraft:
        """Call the function, a sync one in a worker thread."""
        if not self._is_async:
            return _draft(await asyncio.to_thread(_guarded, self._function, request.render()))
        answer: Any = self._function(request.render())
        try:
            return _draft(await answer)
        except SummarizerError:
            raise
        except Exception as error:
            raise _raised(error) from error


def _guarded(function: Callable[[str], Any], text: str) -> Any:
    try:
        return function(text)
    except Exception as error:
        raise _raised(error) from error


def _raised(error: Exception) -> SummarizerError:
    kind = type(error).__name__
    return SummarizerError(f"the summarizer function raised {kind}", reason=kind)


def _draft(answer: Any) -> SummaryDraft:
    if not isinstance(answer, str):
        raise SummarizerError(f"the summarizer function returned {type(answer).__name__}, not a text", reason="no_text")
    if not answer.strip():
        raise SummarizerError("the summarizer function returned an empty text", reason="empty")
    return SummaryDraft(text=answer.strip())


def create_summarizer(value: Summarizer | BaseChatModel | str | Callable[[str], Any]) -> Summarizer:
    """A summarizer from what people have at hand.

    Args:
        value: A summarizer; a chat model; the name of one for ``init_chat_model``, which is made at once; or a function
            from the transcript to the summary.

    Raises:
        ConfigurationError: None of these, or no model can be made from the name; the cause is kept.
        MissingExtraError: The extra of that model's provider is not installed.
    """
    from langmem_harness.summaries.model import ModelSummarizer

    if isinstance(value, str | BaseChatModel):
        return ModelSummarizer(value)
    if isinstance(value, type):
        raise ConfigurationError(f"a summarizer object is needed, not the class {value.__name__}: call it")
    if isinstance(value, Summarizer):
        return value
    if callable(value):
        return CallableSummarizer(value)
    raise ConfigurationError(
        f"not a summarizer: {type(value).__name__}; pass a Summarizer, a model, a model's name or a function"
    )
