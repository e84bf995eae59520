"""One long run with different middleware: what each model call sees, and what it costs.

The run is the one that breaks most policies: one user message, then forty tool calls of about 5,000 tokens each, so
that the task is far back and everything between it and the newest result is one open turn. Or it is a chat that people
had with an assistant, turn by turn. Either goes through a real `create_agent` graph; only the chat model is scripted.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    SummarizationMiddleware,
)
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.memory import InMemorySaver

from langmem_harness.errors import ConfigurationError
from langmem_harness.evaluation.replay import CallMeasurement, RequestProbe
from langmem_harness.events import MemoryEvent, SummaryWritten
from langmem_harness.middleware.compaction import HistoryCompactionMiddleware
from langmem_harness.summaries.local import ExtractiveSummarizer, HeadTailSummarizer
from langmem_harness.testing import ScriptedChatModel
from langmem_harness.window.messages import content_hash
from langmem_harness.window.tokens import estimate_text_tokens, estimate_tokens

CACHED_PRICE = 0.1
"""What a token costs that the provider's prompt cache serves, of the price of one it does not."""

TASK = "Find every invoice of the last quarter that was paid twice, and list supplier, number and amount."
_WORDS = ("invoice", "supplier", "total", "paid", "open", "order", "date", "account", "transfer", "line", "amount")


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A run to simulate.

    Attributes:
        tool_calls: Number of tool calls, one after the other; there is one model call more.
        result_tokens: Tokens of each result, about.
        window_tokens: The model's window.
        trigger_tokens: When to compact.
        keep_tokens: What stays.
        seed: Of the text of the results.
    """

    tool_calls: int = 40
    result_tokens: int = 5_000
    window_tokens: int = 128_000
    trigger_tokens: int = 100_000
    keep_tokens: int = 30_000
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class SimulationReport:
    """What one middleware did in the run.

    Attributes:
        name: The middleware.
        calls: One measurement per model call.
        task_visible: Calls whose request had the user's message, word for word.
        newest_visible: Calls whose request had the newest message of the thread, unchanged.
        thread_unchanged: Whether the thread has every message of the run at its end.
        coverage: Smallest share of the left-out text that a summarizer read; None when none was asked.
        summarizer_tokens: What a summarizer read and wrote.
    """

    name: str
    calls: tuple[CallMeasurement, ...]
    task_visible: int
    newest_visible: int
    thread_unchanged: bool
    coverage: float | None
    summarizer_tokens: int

    @property
    def input_tokens(self) -> int:
        """Tokens of all requests."""
        return sum(call.request_tokens for call in self.calls)

    @property
    def reusable_tokens(self) -> float:
        """Those of them that a prompt cache can serve."""
        return sum(call.prefix_share * call.request_tokens for call in self.calls)

    @property
    def reusable_share(self) -> float:
        """Share of `input_tokens`, 0 to 1."""
        return self.reusable_tokens / self.input_tokens if self.input_tokens else 0.0

    @property
    def prefix_breaks(self) -> int:
        """Calls whose request does not begin with the whole request before."""
        return sum(call.is_prefix_break for call in self.calls)

    @property
    def largest_request_tokens(self) -> int:
        """The largest request."""
        return max((call.request_tokens for call in self.calls), default=0)

    @property
    def billed_tokens(self) -> int:
        """Uncached tokens, a tenth of the cached ones, and what the summarizer read and wrote."""
        uncached = self.input_tokens - self.reusable_tokens
        return round(uncached + CACHED_PRICE * self.reusable_tokens) + self.summarizer_tokens

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, the derived numbers included."""
        return {
            **asdict(self),
            "input_tokens": self.input_tokens,
            "reusable_share": self.reusable_share,
            "prefix_breaks": self.prefix_breaks,
            "largest_request_tokens": self.largest_request_tokens,
            "billed_tokens": self.billed_tokens,
        }


class _Summaries:
    """A scripted summarizer that counts what it reads and writes."""

    def __init__(self) -> None:
        self.tokens = 0
        text = "The agent is going through the invoices of the quarter; no double payment has been settled yet. " * 4
        self.model = ScriptedChatModel(responses=[lambda messages: self._answer(messages, text)], on_exhausted="repeat")

    def _answer(self, messages: Sequence[BaseMessage], text: str) -> str:
        self.tokens += estimate_tokens(messages) + estimate_text_tokens(text)
        return text


Contender = Callable[[Scenario, _Summaries, list[MemoryEvent]], list[AgentMiddleware[Any, Any, Any]]]


def _langchain_summarization(
    scenario: Scenario, summaries: _Summaries, events: list[MemoryEvent]
) -> list[AgentMiddleware[Any, Any, Any]]:
    return [
        SummarizationMiddleware(
            summaries.model,
            trigger=("tokens", scenario.trigger_tokens),
            keep=("tokens", scenario.keep_tokens),
            token_counter=estimate_tokens,  # type: ignore[arg-type]
        )
    ]


def _langchain_context_editing(
    scenario: Scenario, summaries: _Summaries, events: list[MemoryEvent]
) -> list[AgentMiddleware[Any, Any, Any]]:
    keep = max(1, scenario.keep_tokens // scenario.result_tokens)
    edit = ClearToolUsesEdit(trigger=scenario.trigger_tokens, keep=keep)
    return [ContextEditingMiddleware(edits=[edit], token_counter=estimate_tokens)]


def _compaction(choose: Callable[[_Summaries], Any]) -> Contender:
    def middleware(
        scenario: Scenario, summaries: _Summaries, events: list[MemoryEvent]
    ) -> list[AgentMiddleware[Any, Any, Any]]:
        return [
            HistoryCompactionMiddleware(
                ("tokens", scenario.trigger_tokens),
                ("tokens", scenario.keep_tokens),
                summarizer=choose(summaries),
                on_event=events.append,
            )
        ]

    return middleware


CONTENDERS: Mapping[str, Contender] = {
    "no middleware": lambda scenario, summaries, events: [],
    "LangChain SummarizationMiddleware": _langchain_summarization,
    "LangChain ContextEditingMiddleware": _langchain_context_editing,
    "HistoryCompactionMiddleware, bare marker": _compaction(lambda summaries: None),
    "HistoryCompactionMiddleware, model": _compaction(lambda summaries: summaries.model),
    "HistoryCompactionMiddleware, extractive": _compaction(lambda summaries: ExtractiveSummarizer()),
    "HistoryCompactionMiddleware, head and tail": _compaction(lambda summaries: HeadTailSummarizer()),
}
"""What can be simulated, by name, in the order of the table."""


def simulate_run(name: str, scenario: Scenario | None = None) -> SimulationReport:
    """Run the scenario with one of `CONTENDERS`.

    Raises:
        ConfigurationError: Unknown name.
    """
    scenario = scenario or Scenario()
    results = _result_texts(scenario)
    tool = StructuredTool.from_function(
        lambda page: results[page], name="read_invoices", description=_ABOUT, args_schema=_ARGUMENTS
    )
    said: list[BaseMessage] = [HumanMessage(TASK)]
    return _simulate(name, scenario, "You check invoices. Be exact.", [said], _script(scenario), [tool])


def simulate_chat(name: str, messages: Sequence[BaseMessage], scenario: Scenario) -> SimulationReport:
    """Play a chat without tools, one call for each answer, with one of `CONTENDERS`.

    Args:
        name: The middleware.
        messages: Human and AI messages; what was said up to an answer is sent together. After the last answer nothing
            is played. The task is the first human message.
        scenario: Window, trigger and keep; the rest of it has no meaning here.

    Raises:
        ConfigurationError: Unknown name, or no answer to a human message.
    """
    turns: list[list[BaseMessage]] = [[]]
    script: list[AIMessage] = []
    for message in messages:
        if not isinstance(message, AIMessage):
            turns[-1].append(message)
        elif turns[-1]:
            script.append(message)
            turns.append([])
    if not script:
        raise ConfigurationError("a chat needs a message and an answer to it")
    return _simulate(name, scenario, None, turns[:-1], script, [])


def _simulate(
    name: str,
    scenario: Scenario,
    system_prompt: str | None,
    turns: Sequence[list[BaseMessage]],
    script: Sequence[AIMessage],
    tools: Sequence[BaseTool],
) -> SimulationReport:
    if name not in CONTENDERS:
        raise ConfigurationError(f"unknown middleware {name!r}; known are {', '.join(map(repr, CONTENDERS))}")
    summaries = _Summaries()
    events: list[MemoryEvent] = []
    probe = _RunProbe(next(message for message in turns[0] if isinstance(message, HumanMessage)))
    agent: Any = create_agent(
        ScriptedChatModel(responses=list(script), profile={"max_input_tokens": scenario.window_tokens}),
        tools=tools,
        system_prompt=system_prompt,
        middleware=[*CONTENDERS[name](scenario, summaries, events), probe],
        checkpointer=InMemorySaver(),
    )
    config = {"configurable": {"thread_id": "simulation"}, "recursion_limit": 10 * len(script) + 100}
    for said in turns:
        final = agent.invoke({"messages": said}, config)
    written = [event for event in events if isinstance(event, SummaryWritten)]
    tool_results = sum(len(message.tool_calls) for message in script)
    return SimulationReport(
        name=name,
        calls=tuple(probe.calls),
        task_visible=probe.task_visible,
        newest_visible=probe.newest_visible,
        thread_unchanged=len(final["messages"]) == sum(map(len, turns)) + len(script) + tool_results,
        coverage=min((event.coverage for event in written), default=None),
        summarizer_tokens=summaries.tokens,
    )


def combine_reports(reports: Sequence[SimulationReport]) -> SimulationReport:
    """One report over several runs of the same middleware, as if they were one; at least one."""
    return SimulationReport(
        name=reports[0].name,
        calls=tuple(call for report in reports for call in report.calls),
        task_visible=sum(report.task_visible for report in reports),
        newest_visible=sum(report.newest_visible for report in reports),
        thread_unchanged=all(report.thread_unchanged for report in reports),
        coverage=min((report.coverage for report in reports if report.coverage is not None), default=None),
        summarizer_tokens=sum(report.summarizer_tokens for report in reports),
    )


class _RunProbe(RequestProbe):
    """Measures requests, and looks for the task and the newest message in them."""

    def __init__(self, task: HumanMessage) -> None:
        super().__init__()
        self._task = content_hash(task)
        self.task_visible = 0
        self.newest_visible = 0

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        hashes = {content_hash(message) for message in request.messages}
        self.task_visible += self._task in hashes
        self.newest_visible += content_hash(request.state["messages"][-1]) in hashes
        return super().wrap_model_call(request, handler)


_ABOUT = "Reads one page of the invoice list."
_ARGUMENTS = {"type": "object", "properties": {"page": {"type": "integer"}}, "required": ["page"]}


def _script(scenario: Scenario) -> list[AIMessage]:
    calls = [
        AIMessage("", tool_calls=[{"id": f"call-{page}", "name": "read_invoices", "args": {"page": page}}])
        for page in range(scenario.tool_calls)
    ]
    return [*calls, AIMessage("No invoice was paid twice.")]


def _result_texts(scenario: Scenario) -> list[str]:
    draw = random.Random(scenario.seed)  # noqa: S311 - made-up text, no secret
    texts = []
    for page in range(scenario.tool_calls):
        words = [f"page {page}"]
        tokens = 0
        while tokens < scenario.result_tokens:
            line = " ".join(draw.choices(_WORDS, k=12)) + f" {draw.randrange(100_000)}\n"
            tokens += estimate_text_tokens(line)
            words.append(line)
        texts.append(" ".join(words))
    return texts
