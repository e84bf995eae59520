"""What the package did, as typed events without user text.

Every piece of work a user may want to see (compacted, summarised, stale, offloaded, recalled, degraded, promoted,
redacted, replayed) is one frozen dataclass here. `emit` sends it to three places: `logging` (logger
``langmem_harness``, one readable line), LangGraph's custom stream when called inside a graph run
(``stream_mode="custom"``), and a callback if one was given. Events carry ids, counts, token numbers and reasons, never
the text of a message or memory.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar

from langgraph.config import get_stream_writer

from langmem_harness.errors import ConfigurationError

logger = logging.getLogger("langmem_harness")

_LISTED = 5  # longer tuples of ids are counted in a log line


@dataclass(frozen=True, kw_only=True)
class MemoryEvent:
    """Base of all events.

    Attributes:
        kind: Stable name of the event, the same in the stream, the log and `to_dict`.
        thread_id: The conversation it belongs to, if there is one.
        at: Aware UTC time.
    """

    kind: ClassVar[str] = "event"
    level: ClassVar[int] = logging.INFO

    thread_id: str | None = None
    at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: ``{"type": "langmem_harness", "kind": ..., ...}``."""
        body = dataclasses.asdict(self)
        body["at"] = self.at.isoformat()
        return {"type": "langmem_harness", "kind": self.kind, **body}

    def to_line(self) -> str:
        """One line for a log: logger, kind, and every field that says something.

        Example:
            >>> EpisodesWritten(items=2, thread_id="t 1").to_line()
            "langmem_harness: episodes_written items=2 thread_id='t 1'"
        """
        own = [one.name for one in dataclasses.fields(self) if one.name not in ("thread_id", "at")]
        said = ((name, getattr(self, name)) for name in (*own, "thread_id"))
        shown = [f"{name}={_shown(value)}" for name, value in said if value not in (None, "", (), {})]
        return " ".join([f"{logger.name}: {self.kind}", *shown])


@dataclass(frozen=True, kw_only=True)
class HistoryCompacted(MemoryEvent):
    """A model call saw a shortened history.

    Attributes:
        thread_messages: Messages in the thread.
        sent_messages: Messages in the request, marker included.
        thread_tokens: Estimated tokens of the whole history.
        sent_tokens: Estimated tokens of the request's messages.
        omitted_messages: Messages the marker stands for.
        cut_moved: Whether this call moved the cut (the prompt prefix changed).
        summary_id: Record whose text the marker carries, or None for a bare marker.
        reclaimed: Tokens reclaimed by each stage of the final fit, by stage name.
    """

    kind: ClassVar[str] = "history_compacted"

    thread_messages: int
    sent_messages: int
    thread_tokens: int
    sent_tokens: int
    omitted_messages: int
    cut_moved: bool
    summary_id: str | None = None
    reclaimed: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class HistoryRepaired(MemoryEvent):
    """A broken history was repaired in the request copy; the thread was not touched.

    Attributes:
        repairs: Number of repairs by kind (``"missing_result"``, ``"orphan_result"``, ``"duplicate_id"``, ...).
    """

    kind: ClassVar[str] = "history_repaired"
    level: ClassVar[int] = logging.WARNING

    repairs: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class ContextOverflowed(MemoryEvent):
    """The provider refused a request as too long; it is compacted once more and tried once again.

    Attributes:
        sent_tokens: Size of the refused request, by our count.
        limit_tokens: What the model was thought to take; None when nobody knew.
        learned_tokens: What is sent to this model at most from now on; less when a smaller retry is taken.
    """

    kind: ClassVar[str] = "context_overflowed"
    level: ClassVar[int] = logging.WARNING

    sent_tokens: int
    limit_tokens: int | None
    learned_tokens: int | None = None


@dataclass(frozen=True, kw_only=True)
class SummaryWritten(MemoryEvent):
    """A summary record was made.

    Attributes:
        usage: Input, output and cached tokens of the summarizer, as far as it reported them.
        cost: In the currency of the given prices, or None when no price is known.
        thread_usage: Rolling totals of this thread, failed attempts included, same keys as `usage`.
        thread_cost: Rolling cost of this thread.
    """

    kind: ClassVar[str] = "summary_written"

    summary_id: str
    purpose: str
    source_messages: int
    token_count_before: int
    token_count_after: int
    coverage: float
    model: str
    usage: Mapping[str, int] = field(default_factory=dict)
    cost: float | None = None
    thread_usage: Mapping[str, int] = field(default_factory=dict)
    thread_cost: float | None = None
    ahead: bool = False


@dataclass(frozen=True, kw_only=True)
class SummaryFailed(MemoryEvent):
    """The summarizer gave no valid text, or its record could not be kept; no record was made.

    Attributes:
        reason: Short name of what was wrong.
        action: What happens to the messages.
        attempts: How often a model was asked; 0 or more.
        model: Name of what was asked; ``""`` when nothing was.
        usage: Tokens of these attempts, as far as they were reported.
        cost: What they cost, or None when no price is known.
        thread_usage: Rolling totals of this thread, failed attempts included, same keys as `usage`.
        thread_cost: Rolling cost of this thread.
    """

    kind: ClassVar[str] = "summary_failed"
    level: ClassVar[int] = logging.WARNING

    reason: str
    action: str
    attempts: int = 1
    model: str = ""
    usage: Mapping[str, int] = field(default_factory=dict)
    cost: float | None = None
    thread_usage: Mapping[str, int] = field(default_factory=dict)
    thread_cost: float | None = None


@dataclass(frozen=True, kw_only=True)
class SummaryStale(MemoryEvent):
    """A summary record may not stand in for its messages any more."""

    kind: ClassVar[str] = "summary_stale"
    level: ClassVar[int] = logging.WARNING

    summary_id: str
    reasons: tuple[str, ...]
    action: str


@dataclass(frozen=True, kw_only=True)
class ToolOutputOffloaded(MemoryEvent):
    """A large tool result was stored and replaced by an extract and a handle."""

    kind: ClassVar[str] = "tool_output_offloaded"

    handle: str
    tool: str
    tool_call_id: str
    characters: int
    token_count_before: int
    token_count_after: int
    summary_id: str | None = None
    deduplicated: bool = False


@dataclass(frozen=True, kw_only=True)
class ToolOutputKept(MemoryEvent):
    """The raw text of a tool result could not be stored, so the result was not shortened.

    Also of a small result whose text was screened: its original is then not kept.
    """

    kind: ClassVar[str] = "tool_output_kept"
    level: ClassVar[int] = logging.WARNING

    tool: str
    tool_call_id: str
    token_count: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class ContentScreened(MemoryEvent):
    """Instructions inside untrusted text were neutralised before a model saw them."""

    kind: ClassVar[str] = "content_screened"
    level: ClassVar[int] = logging.WARNING

    source: str
    findings: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class SecretsRedacted(MemoryEvent):
    """Secrets or personal data were taken out before text was stored, embedded, summarised or recalled."""

    kind: ClassVar[str] = "secrets_redacted"

    surface: str
    findings: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class RetrievalDegraded(MemoryEvent):
    """A search was answered without one of its legs, or a write is waiting for its vectors.

    Attributes:
        operation: ``"search"``, ``"write"`` or ``"open"``.
        leg: The leg that is missing.
        reason: What happened, without user text.
        pending: Items waiting to be embedded, when known.
    """

    kind: ClassVar[str] = "retrieval_degraded"
    level: ClassVar[int] = logging.WARNING

    operation: str
    leg: str
    reason: str
    pending: int | None = None


@dataclass(frozen=True, kw_only=True)
class EventLoopBlocked(MemoryEvent):
    """A sync method was called on the thread of a running event loop, which waited meanwhile; said once per object.

    Attributes:
        operation: The method that was called.
        use: The method to await instead.
    """

    kind: ClassVar[str] = "event_loop_blocked"
    level: ClassVar[int] = logging.WARNING

    operation: str
    use: str


@dataclass(frozen=True, kw_only=True)
class MemoryRecalled(MemoryEvent):
    """Memories were put in front of the model."""

    kind: ClassVar[str] = "memory_recalled"

    keys: tuple[str, ...]
    retrieval: str
    degraded: str | None = None
    token_count: int = 0
    surface: str = "inject"


@dataclass(frozen=True, kw_only=True)
class MemoryWritten(MemoryEvent):
    """A memory was saved, merged, superseded or forgotten."""

    kind: ClassVar[str] = "memory_written"

    key: str
    action: str
    source_kind: str
    supersedes: str | None = None


@dataclass(frozen=True, kw_only=True)
class EpisodesWritten(MemoryEvent):
    """What was said in a thread became searchable for later threads.

    Attributes:
        items: Utterances written, new ones and those whose context grew.
    """

    kind: ClassVar[str] = "episodes_written"

    items: int


@dataclass(frozen=True, kw_only=True)
class MemoryRefused(MemoryEvent):
    """A rule refused to keep something."""

    kind: ClassVar[str] = "memory_refused"

    reason: str
    source_kind: str


@dataclass(frozen=True, kw_only=True)
class MemoryPromoted(MemoryEvent):
    """Facts of a thread were considered for long-term memory.

    Attributes:
        kept: Keys written.
        dropped: Number of proposals dropped, by reason.
    """

    kind: ClassVar[str] = "memory_promoted"

    kept: tuple[str, ...]
    dropped: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class TurnReplayed(MemoryEvent):
    """A turn came again: retried, resumed, asked again, or on another branch.

    Attributes:
        action: ``"answered"`` (the logged answer was given), ``"model_reused"`` and ``"tool_reused"`` (a logged answer
            or result was used), ``"outcome_unknown"`` (a call that was started is not repeated), ``"asked_again"`` (the
            caller starts an answered turn from an older checkpoint), ``"repeated"`` (a call that another turn with the
            same human message made, too, is made: the history was edited or forked, or it is another user's turn),
            ``"passed_through"`` (an agent in a graph without checkpoints to tell its runs apart: nothing is logged).
    """

    kind: ClassVar[str] = "turn_replayed"

    turn_id: str
    action: str
    tool_call_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class TurnWaiting(MemoryEvent):
    """A step of a turn waits: another worker holds it, or died a moment ago and its claim still runs.

    Attributes:
        step: What it waits for.
        at_most_seconds: How long it waits before it gives up. A dead worker's claim runs out earlier.
    """

    kind: ClassVar[str] = "turn_waiting"

    turn_id: str
    step: str
    at_most_seconds: float


@dataclass(frozen=True, kw_only=True)
class TurnsOverlap(MemoryEvent):
    """A turn begins while another one of its thread still runs: the graph's state keeps only one of the two.

    Attributes:
        others: The turns that run, sorted.
    """

    kind: ClassVar[str] = "turns_overlap"
    level: ClassVar[int] = logging.WARNING

    turn_id: str
    others: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class DataErased(MemoryEvent):
    """Something was erased; the receipt has the counts."""

    kind: ClassVar[str] = "data_erased"

    receipt_id: str
    counts: Mapping[str, int]


EventCallback = Callable[[MemoryEvent], None]
"""Gets every event of the object it was given to. It only watches: an `Exception` it raises is logged, and the work
goes on."""


def check_callback(on_event: object) -> None:
    """Refuse what cannot be called with an event.

    Raises:
        ConfigurationError: Neither None nor callable.
    """
    if on_event is not None and not callable(on_event):
        raise ConfigurationError(f"on_event must be a function of one event, or None, not {on_event!r}")


def emit(event: MemoryEvent, on_event: EventCallback | None = None) -> None:
    """Send an event to the log, to the custom stream of the running graph (if any), and to the callback.

    What an event tells of has happened already, so a callback that fails must not fail the run: the class of its error
    is logged, never its text. ``KeyboardInterrupt`` and the like are raised.

    Args:
        event: What happened.
        on_event: Called last, in the thread of the caller.
    """
    if logger.isEnabledFor(event.level):
        logger.log(event.level, "%s", event.to_line(), extra={"langmem_harness_event": event})
    try:
        writer = get_stream_writer()
    except (
        RuntimeError,
        KeyError,
    ):  # outside a runnable, or in one that is not a graph: there is no stream to write to
        pass
    else:
        writer(event.to_dict())
    if on_event is None:
        return
    try:
        on_event(event)
    except Exception as error:  # noqa: BLE001 - any callback, any error
        logger.error(
            "langmem_harness: on_event raised %s at %s; the run goes on without it", type(error).__name__, event.kind
        )


def _shown(value: Any) -> str:
    """A value in a line: many ids as their number, a text that could be taken for several fields in quotes."""
    if isinstance(value, tuple) and len(value) > _LISTED:
        return f"({len(value)})"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_shown(name)}: {_shown(number)}" for name, number in value.items()) + "}"
    text = str(value)
    return text if text.isprintable() and not set(text) & set(" =,'\"") else repr(text)
