"""`LongTermMemoryMiddleware`: memory tools, and recalled memories as one data block in the request."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, NotRequired

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
from langchain.agents.middleware.types import PrivateStateAttr
from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore

from langmem_harness.driving import Body, adrive, computed, drive
from langmem_harness.errors import ConfigurationError
from langmem_harness.events import ContentScreened, EventCallback, MemoryRecalled, RetrievalDegraded, emit
from langmem_harness.memory.admission import AdmissionPolicy
from langmem_harness.memory.evidence import human_messages
from langmem_harness.memory.found import MemoryRecall
from langmem_harness.memory.past import Past
from langmem_harness.memory.recall import RecallBlock, render_recall
from langmem_harness.memory.relevance import DEFAULT_FLOOR
from langmem_harness.memory.scope import MemoryScope, scope_from_runtime, thread_from_config
from langmem_harness.memory.service import DEFAULT_REDACTOR, LongTermMemory
from langmem_harness.memory.settings import TextRedactor, utc_now
from langmem_harness.memory.speakers import (
    SPEAKERS_KEY,
    mark_of,
    merge_speakers,
    note_arrived,
    person_of,
    speakers_in_log,
    turns_of,
)
from langmem_harness.memory.tools import SEARCH_MEMORY, check_not_replaced, create_history_tool, create_memory_tools
from langmem_harness.memory.utterances import TurnLog, utterances_of
from langmem_harness.middleware.own_store import StoreChoice
from langmem_harness.middleware.recall_pins import PinnedRecall, pin_recall, unpin_recall
from langmem_harness.window.messages import TAG_KEY, message_identity, tag_of
from langmem_harness.window.tokens import estimate_text_tokens

Mode = Literal["tools", "inject", "both"]

MAX_QUERY_CHARACTERS = 2_000
"""How much of the newest human message is searched with: its beginning; embedders read less than this."""


class LongTermMemoryState(AgentState[Any]):
    """What the middleware keeps in the graph state, invisible from outside.

    LangGraph takes a reducer only from the last place of an annotation.
    """

    memory_recall: NotRequired[Annotated[PinnedRecall | None, PrivateStateAttr]]
    memory_speakers: NotRequired[Annotated[dict[str, str], PrivateStateAttr, merge_speakers]]


class LongTermMemoryMiddleware(AgentMiddleware[LongTermMemoryState, Any, Any]):
    """Gives an agent the memory of the user it runs for.

    ``"tools"`` lets the model save, search, list and forget; ``"inject"`` puts what fits the newest human message in
    front of it; ``"both"`` does both. Whose memory it is comes from the runtime (`MemoryContext` or
    ``config["configurable"]``), never from the model. The block is one human message before the newest human message,
    the same bytes for every model call of a turn, and only in the request: the thread is not touched.

    A thread can have several users: each run notes whose the messages are that it brings, and only what a user said
    themselves is saved for them or kept as their history.

    Put it outside `HistoryCompactionMiddleware`, so that the block is measured with the rest.

    Args:
        mode: ``"tools"``, ``"inject"`` or ``"both"``.
        top_k: How many memories a search brings, in the block and for the tool; 1 or more.
        recent: How many of the newest memories the block shows beside them; 0 or more.
        summaries: How many summaries of conversations; 0 or more.
        history: Every completed turn becomes searchable for later threads (see `EpisodeIndex`), the block shows what
            was said in other threads, and the model gets ``search_history``.
        utterances: How many utterances of other threads the block shows with `history`; 0 or more.
        limit: Most entries of the block, of all layers together; the longest layer gives up its last. 1 or more.
        threshold: Smallest cosine of what the block shows beside the newest memories; what shares enough words stays.
            None: the best, however far away.
        token_budget: Largest size of the block; what does not fit is left out, least important first.
        store: Used instead of the store of the graph.
        thread_log: Log of durable turns, any `ThreadLog`: says who said what before this middleware took notes.
        policy: What is admitted into memory.
        redactor: Takes secrets and personal data out of what is stored, searched with and recalled; None: off.
        share_between_agents: Use the user's one memory whatever agent runs. Off: each agent named in the runtime has
            its own.
        require_evidence: The save tool keeps only what the user said in this thread.
        require_recall: The first model call of a turn has to search; needs the tools.
        token_counter: Estimates the tokens of a text.
        clock: Returns the current time, aware UTC.
        on_event: Gets every event.

    Raises:
        ConfigurationError: A setting that cannot work; also at the first run when there is no store, or when the
            app has a tool with the name of one of ours.

    Example:
        >>> [tool.name for tool in LongTermMemoryMiddleware(mode="tools").tools]
        ['save_memory', 'search_memory', 'list_memories', 'forget_memory']
    """

    state_schema = LongTermMemoryState

    def __init__(
        self,
        mode: Mode = "both",
        *,
        top_k: int = 5,
        recent: int = 5,
        summaries: int = 2,
        history: bool = False,
        utterances: int = 3,
        limit: int = 10,
        threshold: float | None = DEFAULT_FLOOR,
        token_budget: int = 1_500,
        store: BaseStore | None = None,
        thread_log: TurnLog | None = None,
        policy: AdmissionPolicy | None = None,
        redactor: TextRedactor | None = DEFAULT_REDACTOR,
        share_between_agents: bool = False,
        require_evidence: bool = True,
        require_recall: bool = False,
        token_counter: Callable[[str], int] = estimate_text_tokens,
        clock: Callable[[], datetime] = utc_now,
        on_event: EventCallback | None = None,
    ) -> None:
        super().__init__()
        if mode not in ("tools", "inject", "both"):
            raise ConfigurationError(f"mode must be 'tools', 'inject' or 'both', not {mode!r}")
        if min(top_k, limit, token_budget) < 1 or min(recent, summaries, utterances) < 0:
            raise ConfigurationError(
                "top_k, limit and token_budget must be 1 or more, recent, summaries and utterances 0 or more"
            )
        if threshold is not None and not -1 <= threshold <= 1:
            raise ConfigurationError(f"threshold is a cosine, from -1 to 1, or None, not {threshold!r}")
        if require_recall and mode == "inject":
            raise ConfigurationError("require_recall needs the search tool: use mode='tools' or 'both'")
        self.mode = mode
        self._injects = mode != "tools"
        self._top_k = top_k
        self._recent = recent
        self._summaries = summaries
        self._history = history
        self._utterances = utterances if history else 0
        self._limit = limit
        self._threshold = threshold
        self._token_budget = token_budget
        self._stores = StoreChoice(store, owner=type(self).__name__)
        self._thread_log = thread_log
        self._policy = policy
        self._redactor = redactor
        self._share_between_agents = share_between_agents
        self._require_recall = require_recall
        self._token_counter = token_counter
        self._clock = clock
        self._on_event = on_event
        self._rendered = _RenderedTurns()
        self.tools = []
        if mode != "inject":
            self.tools += create_memory_tools(self._resolve_tool, top_k=top_k, require_evidence=require_evidence)
            if history:
                self.tools.append(create_history_tool(self._resolve_tool))

    # -- hooks ------------------------------------------------------------------------------------------------------

    def before_agent(self, state: LongTermMemoryState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Check identity and store, note whose the new messages are, and recall once for this turn."""
        memory, scope = self._resolve(runtime, get_config())
        return drive(self._begin(state, memory, scope))

    async def abefore_agent(self, state: LongTermMemoryState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Async twin of `before_agent`."""
        memory, scope = self._resolve(runtime, get_config())
        return await adrive(self._begin(state, memory, scope))

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any] | AIMessage:
        """Put the block in front of the newest human message of the request."""
        check_not_replaced(self.tools, request.tools)
        memory, scope = self._resolve(request.runtime, get_config())
        text = drive(self._block_text(request, memory, scope))
        response = handler(self._request_with(request, text))
        self._drop_finished(request, response)
        return response

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any] | AIMessage:
        """Async twin of `wrap_model_call`."""
        check_not_replaced(self.tools, request.tools)
        memory, scope = self._resolve(request.runtime, get_config())
        text = await adrive(self._block_text(request, memory, scope))
        response = await handler(self._request_with(request, text))
        self._drop_finished(request, response)
        return response

    def after_agent(self, state: LongTermMemoryState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """With `history`, make what was said in this turn searchable."""
        if self._history:
            drive(self._keep_turn(state, *self._resolve(runtime, get_config())))
        return None

    async def aafter_agent(self, state: LongTermMemoryState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Async twin of `after_agent`."""
        if self._history:
            await adrive(self._keep_turn(state, *self._resolve(runtime, get_config())))
        return None

    # -- bodies ------------------------------------------------------------------------------------------------------

    def _begin(self, state: LongTermMemoryState, memory: LongTermMemory, scope: MemoryScope) -> Body[dict[str, Any]]:
        recalled = yield from self._recall_for_turn(state["messages"], memory, scope)
        return {**(recalled or {}), SPEAKERS_KEY: (yield from self._arrived(state, person_of(scope)))}

    def _arrived(self, state: LongTermMemoryState, person: str) -> Body[dict[str, str]]:
        known, log, thread_id = state.get("memory_speakers") or {}, self._thread_log, thread_from_config(get_config())
        logged: dict[str, str] = {}
        unknown = sum(mark_of(message) not in known for message in human_messages(state["messages"]))
        if log is not None and thread_id is not None and unknown > 1:  # one is what every run brings
            logged = speakers_in_log((yield computed(lambda: log.events(thread_id))))
        return note_arrived(state["messages"], known, person, logged)

    def _recall_for_turn(
        self, messages: Sequence[BaseMessage], memory: LongTermMemory, scope: MemoryScope
    ) -> Body[dict[str, Any] | None]:
        index = find_newest_human(messages) if self._injects else None
        if index is None:
            return None
        result = yield from self._recall(messages[index], memory, scope)
        block = self._render(result)
        if block is not None:
            self._emit(block, result)
        pinned = pin_recall(message_identity(messages[index]), result)
        self._rendered.put(pinned["turn"], scope, "" if block is None else block.text)
        return {"memory_recall": pinned}

    def _block_text(self, request: ModelRequest[Any], memory: LongTermMemory, scope: MemoryScope) -> Body[str | None]:
        """The block of this turn: as rendered before; else from its pins (the run was resumed); else recalled now."""
        index = find_newest_human(request.messages) if self._injects else None
        if index is None:
            return None
        message = request.messages[index]
        state: Any = request.state
        pinned: PinnedRecall | None = state.get("memory_recall")
        if pinned is not None and pinned["message"] == message_identity(message):
            rendered = self._rendered.get(pinned["turn"], scope)
            if rendered is not None:
                return rendered or None
            records = yield from memory.reading.pinned(scope, [pin["version"] for pin in pinned["pins"]])
            result = unpin_recall(pinned, records)
        else:
            result = yield from self._recall(message, memory, scope)
        block = self._render(result)
        return None if block is None else block.text

    def _keep_turn(self, state: LongTermMemoryState, memory: LongTermMemory, scope: MemoryScope) -> Body[None]:
        """The turn is over and answered: a store that is down is said, and costs the user nothing."""
        thread_id = thread_from_config(get_config())
        if thread_id is None:
            return
        turns = turns_of(state["messages"], state.get("memory_speakers") or {}, person_of(scope))
        said = utterances_of(turns, self._clock())
        try:
            yield from Past(memory.settings).extend(scope, thread_id, said)
        except Exception as error:  # noqa: BLE001 - stores raise their own kinds
            reason = type(error).__name__
            emit(
                RetrievalDegraded(operation="write", leg="history", reason=reason, thread_id=thread_id), self._on_event
            )

    def _recall(self, message: BaseMessage, memory: LongTermMemory, scope: MemoryScope) -> Body[MemoryRecall]:
        return (
            yield from memory.reading.recall(
                scope,
                message.text[:MAX_QUERY_CHARACTERS],
                semantic=self._top_k,
                recent=self._recent,
                summaries=self._summaries,
                history=self._utterances,
                limit=self._limit,
                threshold=self._threshold,
                leave_out_thread=thread_from_config(get_config()),
            )
        )

    # -- parts ------------------------------------------------------------------------------------------------------

    def _resolve(self, runtime: Any, config: RunnableConfig) -> tuple[LongTermMemory, MemoryScope]:
        scope = scope_from_runtime(getattr(runtime, "context", None), config)
        store = self._stores.of(runtime)
        if store is None:
            raise ConfigurationError(
                "long-term memory needs a store: pass store= to create_agent, or to LongTermMemoryMiddleware"
            )
        memory = LongTermMemory(
            store, policy=self._policy, redactor=self._redactor, clock=self._clock, on_event=self._on_event
        )
        return memory, scope.shared if self._share_between_agents else scope

    def _resolve_tool(self, runtime: ToolRuntime) -> tuple[LongTermMemory, MemoryScope]:
        return self._resolve(runtime, runtime.config)

    def _render(self, result: MemoryRecall) -> RecallBlock | None:
        return render_recall(result, token_counter=self._token_counter, token_budget=self._token_budget)

    def _request_with(self, request: ModelRequest[Any], text: str | None) -> ModelRequest[Any]:
        messages = list(request.messages)
        index = find_newest_human(messages)
        if text is not None and index is not None:
            request = request.override(messages=[*messages[:index], recall_message(text), *messages[index:]])
        if self._require_recall and index is not None and index == len(messages) - 1:
            request = request.override(tool_choice=SEARCH_MEMORY)
        return request

    def _drop_finished(self, request: ModelRequest[Any], response: ModelResponse[Any] | AIMessage) -> None:
        """An answer without tool calls ends the turn: its block is not needed any more."""
        result = [response] if isinstance(response, AIMessage) else response.result
        state: Any = request.state
        pinned: PinnedRecall | None = state.get("memory_recall")
        if pinned is not None and not any(getattr(message, "tool_calls", ()) for message in result):
            self._rendered.drop(pinned["turn"])

    def _emit(self, block: RecallBlock, result: MemoryRecall) -> None:
        thread_id = thread_from_config(get_config())
        if block.screened:
            emit(ContentScreened(source="memory", findings=block.screened, thread_id=thread_id), self._on_event)
        emit(
            MemoryRecalled(
                keys=block.keys,
                retrieval=result.retrieval,
                degraded=result.degraded,
                token_count=block.token_count,
                thread_id=thread_id,
            ),
            self._on_event,
        )


class _RenderedTurns:
    """Blocks of the turns that run now, so that a memory forgotten in a turn does not change that turn's block.

    In memory only, bounded, and only for the scope it was rendered for; a turn that is not here is rendered again from
    its pins.
    """

    def __init__(self, limit: int = 256) -> None:
        self._limit = limit
        self._texts: dict[str, tuple[MemoryScope, str]] = {}
        self._lock = threading.Lock()

    def get(self, turn: str, scope: MemoryScope) -> str | None:
        """The text (empty: this turn has no block), or None when it is not here."""
        owner, text = self._texts.get(turn, (None, None))
        return text if owner == scope else None

    def put(self, turn: str, scope: MemoryScope, text: str) -> None:
        with self._lock:
            self._texts[turn] = (scope, text)
            while len(self._texts) > self._limit:
                del self._texts[next(iter(self._texts))]

    def drop(self, turn: str) -> None:
        with self._lock:
            self._texts.pop(turn, None)


def find_newest_human(messages: Sequence[BaseMessage]) -> int | None:
    """Position of the newest message a person wrote, or None; messages of this package do not count."""
    for index in range(len(messages) - 1, -1, -1):
        if isinstance(messages[index], HumanMessage) and tag_of(messages[index]) is None:
            return index
    return None


def recall_message(text: str) -> HumanMessage:
    """The block as a message: role human, known by its tag."""
    return HumanMessage(content=text, additional_kwargs={TAG_KEY: {"kind": "recall"}})
