"""`ToolOutputSummarizationMiddleware`: large tool results leave the window, none is lost, and none gives orders."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
from langchain.tools.tool_node import ToolCallRequest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langgraph.store.base import BaseStore
from langgraph.types import Command

from langmem_harness.driving import Ask, Body, adrive, computed, drive, immediate
from langmem_harness.errors import ConfigurationError
from langmem_harness.events import (
    ContentScreened,
    EventCallback,
    ToolOutputKept,
    ToolOutputOffloaded,
    emit,
)
from langmem_harness.extracts import Extract
from langmem_harness.memory.scope import thread_from_config
from langmem_harness.middleware.raw_outputs import (
    RawOutput,
    output_place,
    store_raw,
    utc_now,
)
from langmem_harness.middleware.read_output import ReadToolOutput, create_read_tool_output_tool
from langmem_harness.middleware.tool_content import Content, text_of
from langmem_harness.middleware.tool_results import rewrite_result
from langmem_harness.middleware.tool_settings import (
    ToolSelection,
    Trigger,
    check_kind,
    check_minutes,
    config_of,
    is_tool,
    messages_of,
    parse_selection,
    parse_trigger,
    parse_trusted,
    parse_untrusted,
    runtime_part,
)
from langmem_harness.middleware.tool_shortening import (
    ResultPlan,
    count_calls,
    count_text,
    plan_result,
    shortened_content,
    shown_to_model,
    summary_budget,
    tagged,
)
from langmem_harness.middleware.tool_summaries import OutputSummaries, ToolOutput
from langmem_harness.redaction import Redactor
from langmem_harness.summaries.record import SummaryRecord
from langmem_harness.summaries.spending import Prices
from langmem_harness.summaries.summarizer import Summarizer, create_summarizer
from langmem_harness.window.limits import check_count, check_function
from langmem_harness.window.messages import is_tagged
from langmem_harness.window.model import FALLBACK_WINDOW_TOKENS, profile_window_tokens
from langmem_harness.window.tokens import TokenCounter

logger = logging.getLogger("langmem_harness")

Result = TypeVar("Result")

COMPUTED_ELSEWHERE = 20_000
"""Texts longer than this many characters are worked on in a worker thread, not on the event loop."""


class ToolOutputSummarizationMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Keeps large tool results out of the window: stored raw, shown as a short extract with a handle.

    A result above `trigger` is written to the store first; only when that write is confirmed does an extract with a
    handle stand in for it. The tool ``read_tool_output`` (added to the agent) reads the raw text back. When the store
    cannot be written, the original stays and `ToolOutputKept` says so. Results of tools that are not trusted are put
    into a labelled data block and screened for instructions, large or small; what is stored stays raw, and is stored
    whenever the message alone does not give the original back (`original_content` reads it). The answer of a tool with
    ``return_direct=True`` goes to the user as it is; the model reads it guarded in later turns.

    Parallel calls are budgeted together: with n calls in one message each result may have an n-th of `batch_trigger`.
    So the decision about one result depends on nothing but itself and its call, not on which call ends first.

    Args:
        trigger: ``("tokens", n)``, ``("bytes", n)`` (UTF-8) or ``("fraction", f)`` of the model's window. Only text
            counts; a result above it is shortened. None shortens nothing.
        summarizer: Writes the short form: a `Summarizer`, a chat model, a model's name or a function of the text. None
            makes an extract without a model. When it fails, the extract is used and `SummaryFailed` says so.
        batch_trigger: The same for all results of one message; None is twice `trigger`.
        include: Names of the tools whose results may be shortened, or a predicate of the `ToolCallRequest`; None: all.
        exclude: The same for tools whose results stay whole. Wins over `include`.
        trusted_tools: Tools whose results are neither delimited nor screened: the tool objects (or functions) given to
            the agent. Names are refused, because a server chooses the names of its tools.
        untrusted_tools: Names or objects of the tools that are not trusted; None means all but `trusted_tools`. Naming
            some trusts all others.
        store: Used instead of the store of the graph.
        ttl_minutes: How long raw outputs are kept; None keeps them as long as their thread.
        context_window: Tokens of the model's window, for a fraction; None takes it from the model's profile.
        token_counter: Counts the tokens of messages; None estimates.
        redactor: Takes secrets out of what the summarizer reads; None is the default `Redactor`.
        prices: Prices per million tokens by model name, for the costs of summaries.
        clock: The current time, aware UTC.
        on_event: Gets every event.

    Raises:
        ConfigurationError: A setting that cannot work.

    Example:
        >>> [tool.name for tool in ToolOutputSummarizationMiddleware().tools]
        ['read_tool_output']
    """

    def __init__(
        self,
        trigger: Trigger | None = ("tokens", 2_000),
        *,
        summarizer: Summarizer | BaseChatModel | str | Callable[[str], Any] | None = None,
        batch_trigger: Trigger | None = None,
        include: ToolSelection | None = None,
        exclude: ToolSelection | None = None,
        trusted_tools: Sequence[BaseTool | Callable[..., Any]] = (),
        untrusted_tools: Sequence[str | BaseTool | Callable[..., Any]] | None = None,
        store: BaseStore | None = None,
        ttl_minutes: float | None = None,
        context_window: int | None = None,
        token_counter: TokenCounter | None = None,
        redactor: Redactor | None = None,
        prices: Prices | None = None,
        clock: Callable[[], datetime] = utc_now,
        on_event: EventCallback | None = None,
    ) -> None:
        super().__init__()
        self._trigger = parse_trigger(trigger, "trigger")
        self._batch_trigger = parse_trigger(batch_trigger, "batch_trigger")
        check_minutes(ttl_minutes, "ttl_minutes")
        if context_window is not None:
            check_count(context_window, "context_window", least=1)
        for name, function in (("token_counter", token_counter), ("on_event", on_event)):
            check_function(function, name)
        if not callable(clock):
            raise ConfigurationError(f"clock must be a function that gives the time, not {clock!r}")
        check_kind(store, BaseStore, "store")
        check_kind(prices, Mapping, "prices")
        if redactor is not None and not callable(getattr(redactor, "redact", None)):
            raise ConfigurationError(f"redactor must have a method redact(text), or be None, not {redactor!r}")
        self._include = parse_selection(include, "include")
        self._exclude = parse_selection(exclude, "exclude")
        self._trusted_tools = parse_trusted(trusted_tools)
        self._untrusted_tools = parse_untrusted(untrusted_tools)
        self._store = store
        self._ttl_minutes = ttl_minutes
        self._context_window = context_window
        self._profile_window: int | None = None
        self._warned = False
        self._token_counter = token_counter
        self._summaries = None
        if summarizer is not None:
            self._summaries = OutputSummaries(
                create_summarizer(summarizer),
                redactor=redactor or Redactor(),
                prices=prices,
                clock=clock,
                on_event=on_event,
            )
        self._clock = clock
        self._on_event = on_event
        self.tools = [
            create_read_tool_output_tool(
                find_store=lambda graph_store: graph_store if self._store is None else self._store,
                clock=clock,
                on_event=on_event,
            )
        ]

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]]
    ) -> ToolMessage | Command[Any]:
        """Run the tool, then guard and shorten what it returned."""
        result = handler(request)
        return drive(self._process(request, result))

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
    ) -> ToolMessage | Command[Any]:
        """Run the tool, then guard and shorten what it returned."""
        result = await handler(request)
        return await adrive(self._process(request, result))

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Learn the size of the model's window; answers that went to the user directly are guarded for the model."""
        return handler(self._prepare(request))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """Learn the size of the model's window; answers that went to the user directly are guarded for the model."""
        return await handler(self._prepare(request))

    def _process(self, request: ToolCallRequest, result: Result) -> Body[Result]:
        if isinstance(request.tool, ReadToolOutput):
            return result
        rewritten: Result = yield from rewrite_result(result, lambda message: self._process_message(request, message))
        return rewritten

    def _process_message(self, request: ToolCallRequest, message: ToolMessage) -> Body[ToolMessage]:
        if is_tagged(message, "tool_output"):
            return message
        source = request.tool_call["name"]
        untrusted = self._is_untrusted(request)
        plan: ResultPlan = yield _computed(
            message,
            lambda: plan_result(
                message,
                is_too_large=self._size_check(request),
                untrusted=untrusted,
                source=source,
                token_counter=self._token_counter,
            ),
        )
        thread_id = thread_from_config(config_of(request))
        if plan.findings:
            screened = ContentScreened(source=f"tool:{source}", findings=plan.findings, thread_id=thread_id)
            emit(screened, self._on_event)
        direct = bool(getattr(request.tool, "return_direct", False))
        store = runtime_part(request, "store") if self._store is None else self._store
        place = output_place(runtime_part(request, "context"), config_of(request))
        if plan.extract is None and (plan.raw is None or not plan.findings):
            return _kept(message, plan, direct=direct)
        if store is None or place is None:
            self._report_kept(message, plan, source, "no store" if store is None else "no thread_id", thread_id)
            return _kept(message, plan, direct=direct)
        short = plan.extract

        def compose(handle: str, short: Extract) -> Content:
            return shortened_content(
                plan,
                short,
                handle=handle,
                failed=message.status == "error",
                untrusted=untrusted,
                source=source,
            )

        if short is not None:
            size = count_text(text_of(compose(place.handle_of(plan.text), short)), self._token_counter)
            short = short if size < plan.kept_token_count else None  # else it saves nothing and costs a look-up
        if short is None and (plan.raw is None or not plan.findings):
            return _kept(message, plan, direct=direct)
        raw = plan.text if short is not None or plan.raw is None else plan.raw
        try:
            handle, deduplicated = yield from store_raw(
                store,
                place,
                RawOutput(text=raw, tool=source, trusted=not untrusted),
                now=self._clock(),
                ttl_minutes=self._ttl_minutes,
            )
        except Exception as error:  # noqa: BLE001 - any store, any error: the original must not be lost to it
            self._report_kept(message, plan, source, type(error).__name__, thread_id)
            return _kept(message, plan, direct=direct)
        if short is None:
            return tagged(message, plan.kept, handle=handle, direct=direct)
        record: SummaryRecord | None = None
        if self._summaries is not None:
            output = ToolOutput(
                message=message,
                text=plan.text,
                tool=source,
                thread_id=place.thread_id,
                handle=handle,
                token_count=plan.token_count,
                max_tokens=summary_budget(plan.token_count),
            )
            record = yield from self._summaries.summarizing(store, output)
        if record is not None and record.token_count_after < plan.kept_token_count:
            short = dataclasses.replace(short, text=record.content)
        content = compose(handle, short)
        emit(
            ToolOutputOffloaded(
                handle=handle,
                tool=source,
                tool_call_id=message.tool_call_id,
                characters=len(plan.text),
                token_count_before=plan.token_count,
                token_count_after=count_text(text_of(content), self._token_counter),
                deduplicated=deduplicated,
                summary_id=record.id if record else None,
                thread_id=thread_id,
            ),
            self._on_event,
        )
        return tagged(message, content, handle=handle, direct=direct)

    def _is_untrusted(self, request: ToolCallRequest) -> bool:
        """Whether to guard the result; a text by the tool node itself (no such tool) counts as untrusted too."""
        if self._untrusted_tools is None:
            return not any(is_tool(request, tool) for tool in self._trusted_tools)
        name = request.tool_call["name"]
        return any(name == tool if isinstance(tool, str) else is_tool(request, tool) for tool in self._untrusted_tools)

    def _size_check(self, request: ToolCallRequest) -> Callable[[str, int], bool]:
        """Whether a text of so many tokens is too large for a result of this call."""
        chosen = self._include is None or self._include(request)
        if self._trigger is None or not chosen or (self._exclude is not None and self._exclude(request)):
            return lambda text, tokens: False
        unit, size = self._resolve(self._trigger)
        batch_unit, batch_size = self._resolve(self._batch_trigger) if self._batch_trigger else (unit, 2 * size)
        share = batch_size // count_calls(messages_of(request), request.tool_call["id"])

        def is_too_large(text: str, tokens: int) -> bool:
            measures = {"tokens": tokens}
            if "bytes" in (unit, batch_unit):
                measures["bytes"] = len(text.encode("utf-8", "surrogatepass"))
            return measures[unit] > size or measures[batch_unit] > share

        return is_too_large

    def _resolve(self, trigger: Trigger) -> tuple[str, int]:
        unit, size = trigger
        if unit != "fraction":
            return unit, int(size)
        window = self._context_window or self._profile_window
        if window is None:
            window = FALLBACK_WINDOW_TOKENS
            if not self._warned:
                self._warned = True
                logger.warning("the model's window is unknown, taking %d tokens: pass context_window=", window)
        return "tokens", max(1, int(size * window))

    def _prepare(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        """Remember the smallest window of the models seen: a property of the agent, not of a run."""
        window = profile_window_tokens(request.model)
        if window is not None:
            self._profile_window = min(window, self._profile_window or window)
        messages = shown_to_model(request.messages)
        return request if messages is request.messages else request.override(messages=messages)

    def _report_kept(
        self, message: ToolMessage, plan: ResultPlan, source: str, reason: str, thread_id: str | None
    ) -> None:
        emit(
            ToolOutputKept(
                tool=source,
                tool_call_id=message.tool_call_id,
                token_count=plan.token_count,
                reason=reason,
                thread_id=thread_id,
            ),
            self._on_event,
        )


def _kept(message: ToolMessage, plan: ResultPlan, *, direct: bool) -> ToolMessage:
    """The whole result, guarded, when nothing is stored; a tag says so when the original cannot be got back from it."""
    if plan.kept == message.content:  # as the tool gave it; said so when it reads like a block of ours
        return message if plan.raw is None else tagged(message, plan.kept, handle=None, direct=True)
    if direct or plan.raw is not None:
        original = None if plan.findings else message.content
        return tagged(message, plan.kept, handle=None, direct=direct, original=original)
    return message.model_copy(update={"content": plan.kept})


def _computed(message: ToolMessage, function: Callable[[], Any]) -> Ask:
    if isinstance(message.content, str) and len(message.content) < COMPUTED_ELSEWHERE:
        return immediate(function)
    return computed(function)
