"""`open_memory`: checkpointer, store and thread log of one place, opened and closed together."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from langchain.agents.middleware import AgentMiddleware
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool
from langgraph.store.base import BaseStore

from langmem_harness.embeddings import resolve_embeddings
from langmem_harness.errors import ConfigurationError, StorageClosedError, StorageUnavailableError
from langmem_harness.events import EventCallback, check_callback
from langmem_harness.memory.service import DEFAULT_REDACTOR
from langmem_harness.memory.settings import TextRedactor
from langmem_harness.memory.tools import LIST_MEMORIES, SEARCH_HISTORY, SEARCH_MEMORY
from langmem_harness.middleware.assembly import make_part, with_own
from langmem_harness.middleware.compaction import HistoryCompactionMiddleware
from langmem_harness.middleware.long_term import LongTermMemoryMiddleware, Mode
from langmem_harness.middleware.tool_output import ToolOutputSummarizationMiddleware
from langmem_harness.middleware.tool_settings import Trigger as ToolOutputTrigger
from langmem_harness.middleware.turns import DurableTurnsMiddleware
from langmem_harness.redaction import Redactor
from langmem_harness.sqlite import MEMORY_LOCATION, Database
from langmem_harness.store import FaissStore
from langmem_harness.store.records import Mode as RetrievalMode
from langmem_harness.summaries import Summarizer, create_summarizer
from langmem_harness.threads import SqliteCheckpointer, ThreadLog
from langmem_harness.window.limits import Size, TriggerForm, check_count

THREADS_FILE = "threads.sqlite"
MEMORY_FILE = "memory.sqlite"

MEMORY_READERS = frozenset({SEARCH_MEMORY, LIST_MEMORIES, SEARCH_HISTORY})
"""Memory tools that change nothing: they run again when an interrupted turn goes on."""

_URL = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://")


class AgentMemory:
    """What `open_memory` returns: everything an agent needs to remember, closed by one call.

    Use it as a context manager (``with`` or ``async with``) or call `close`.

    Attributes:
        location: The folder, or ``":memory:"``.
        checkpointer: LangGraph checkpointer that serves ``invoke`` and ``ainvoke``.
        store: LangGraph store: SQLite is the truth, vector and keyword index are caches.
        thread_log: Append-only log of turns, in the checkpointer's file.
    """

    def __init__(
        self,
        *,
        location: str,
        checkpointer: SqliteCheckpointer,
        store: FaissStore,
        thread_log: ThreadLog,
        threads: Database,
        on_event: EventCallback | None,
    ) -> None:
        self.location = location
        self.checkpointer = checkpointer
        self.store = store
        self.thread_log = thread_log
        self._threads = threads
        self._on_event = on_event
        self._closed = False

    def middleware(
        self,
        *,
        trigger: TriggerForm | None = ("fraction", 0.8),
        keep: Size = ("fraction", 0.3),
        keep_first: int = 1,
        summarizer: Summarizer | BaseChatModel | str | Callable[[str], Any] | None = None,
        memory_mode: Mode | None = "both",
        top_k: int = 5,
        history: bool = False,
        redactor: TextRedactor | None = DEFAULT_REDACTOR,
        tool_output_trigger: ToolOutputTrigger | None = ("tokens", 2_000),
        durable_turns: bool = True,
        store: BaseStore | None = None,
        turns: Mapping[str, Any] | None = None,
        long_term: Mapping[str, Any] | None = None,
        compaction: Mapping[str, Any] | None = None,
        tool_outputs: Mapping[str, Any] | None = None,
    ) -> list[AgentMiddleware[Any, Any, Any]]:
        """The recommended stack, outermost first: durable turns, long-term memory, compaction, tool outputs.

        Recalled memories are added outside compaction, so that they are measured with everything else; tool outputs are
        shortened innermost, before anything else sees them. Each class also works alone.

        Args:
            trigger: When history is compacted; None: never.
            keep: What stays behind the cut.
            keep_first: Opening groups that always stay.
            summarizer: Writes what stands in for left-out history and large tool outputs: a model or its name, a
                callable, or one of `langmem_harness.summaries`. None: a bare marker, and extracts made by code.
            memory_mode: ``"tools"``, ``"inject"`` or ``"both"``; None leaves it out, and then no user id is
                needed.
            top_k: How many memories a search brings.
            history: Completed turns become searchable: later threads are shown what was said, and the model gets
                ``search_history``. Off: only what was saved or promoted is remembered.
            redactor: Takes secrets and personal data out of what memory stores, searches with and recalls, and of what
                a summarizer of history reads; None: off. A summarizer of tool outputs never reads unredacted text.
            tool_output_trigger: Results above this are stored and shortened; None leaves them as they are.
            durable_turns: Log every step, so that a retried turn repeats no side effect. The run needs a thread id.
                Mark your own tools that may run again with ``metadata={"safe_to_repeat": True}``.
            store: A LangGraph store to use instead of this memory's own, for example a ``PostgresStore``; give the
                agent the same object.
            turns: More settings of `DurableTurnsMiddleware`, by name: ``{"lease_seconds": 5}``.
            long_term: More settings of `LongTermMemoryMiddleware`: ``{"token_budget": 800}``.
            compaction: More settings of `HistoryCompactionMiddleware`: ``{"context_window": 128_000}``.
            tool_outputs: More settings of `ToolOutputSummarizationMiddleware`: ``{"trusted_tools": [look_up]}``.

        Raises:
            ConfigurationError: A setting that cannot work, that no class knows, that is given twice, or that is for a
                part which is left out; the message names the known ones.
            MissingExtraError: The summarizer is named and its provider's extra is not installed.
        """
        for name, value in (("history", history), ("durable_turns", durable_turns)):
            if not isinstance(value, bool):
                raise ConfigurationError(f"{name} must be True or False, not {value!r}")
        check_count(top_k, "top_k", least=1)
        if redactor is not None and not callable(getattr(redactor, "redact", None)):
            raise ConfigurationError(f"redactor must have a method redact(text), or be None, not {redactor!r}")
        if store is not None and not isinstance(store, BaseStore):
            raise ConfigurationError(f"store must be a LangGraph BaseStore or None, not {type(store).__name__}")
        left_out = {
            "turns": turns if not durable_turns else None,
            "long_term": long_term if memory_mode is None else None,
            "tool_outputs": tool_outputs if tool_output_trigger is None else None,
        }
        for name, unused in left_out.items():
            if unused:
                raise ConfigurationError(f"{name} has settings, but that part is left out of the stack")
        writer = None if summarizer is None else create_summarizer(summarizer)
        fixed: dict[str, Any]
        common: dict[str, Any] = {"store": self.store if store is None else store, "on_event": self._on_event}
        stack: list[AgentMiddleware[Any, Any, Any]] = []
        if durable_turns:
            settings = with_own(turns, "safe_to_repeat", MEMORY_READERS, name="turns")
            fixed = {"thread_log": self.thread_log, "on_event": self._on_event}
            stack.append(make_part(DurableTurnsMiddleware, settings, name="turns", fixed=fixed))
        own_tools: list[BaseTool] = []
        if memory_mode is not None:
            fixed = {"mode": memory_mode, "top_k": top_k, "history": history, "redactor": redactor, **common}
            fixed["thread_log"] = self.thread_log
            remembering = make_part(LongTermMemoryMiddleware, long_term, name="long_term", fixed=fixed)
            own_tools += remembering.tools
            stack.append(remembering)
        fixed = {"trigger": trigger, "keep": keep, "keep_first": keep_first, "summarizer": writer, **common}
        if redactor is not None:
            fixed["redact"] = partial(_redacted, redactor)
        stack.append(make_part(HistoryCompactionMiddleware, compaction, name="compaction", fixed=fixed))
        if tool_output_trigger is not None:
            # own tools delimit and screen what they recall themselves
            settings = with_own(tool_outputs, "trusted_tools", own_tools, name="tool_outputs")
            if isinstance(redactor, Redactor):
                settings.setdefault("redactor", redactor)
            fixed = {"trigger": tool_output_trigger, "summarizer": writer, **common}
            stack.append(make_part(ToolOutputSummarizationMiddleware, settings, name="tool_outputs", fixed=fixed))
        return stack

    def close(self) -> None:
        """Close store and checkpointer. Safe to call twice; using either afterwards is a `StorageClosedError`."""
        if self._closed:
            return
        self._closed = True
        try:
            self.store.close()
        finally:
            self.checkpointer.close()
            self._threads.close()

    def __enter__(self) -> Self:
        if self._closed:
            raise StorageClosedError(f"the memory at {self.location!r} was closed; open it again")
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _redacted(redactor: TextRedactor, text: str) -> str:
    return redactor.redact(text)[0]


def open_memory(
    location: str | os.PathLike[str],
    *,
    embeddings: Embeddings | str | None = None,
    retrieval: RetrievalMode = "hybrid",
    busy_timeout_seconds: float = 10.0,
    on_event: EventCallback | None = None,
) -> AgentMemory:
    """Open (or create) the memory of an agent.

    A folder holds two SQLite files in WAL mode: ``threads.sqlite`` (checkpoints and thread log, flushed to disk at
    every commit) and ``memory.sqlite`` (the store). Several processes, and several objects of one process, may have the
    same folder open.

    Args:
        location: A folder, created with owner-only permissions if it is not there (``~`` is your home folder); or
            ``":memory:"`` for tests.
        embeddings: None for keyword search only; ``"local"`` for the local model (extra ``local``); any string that
            LangChain's ``init_embeddings`` takes (``"openai:text-embedding-3-small"``); or LangChain `Embeddings`.
        retrieval: How the store searches unless a call says otherwise; without embeddings always by keyword.
        busy_timeout_seconds: How long a write waits for another process; 0 or more.
        on_event: Gets every event of the store and of the middleware that `AgentMemory.middleware` makes.

    Raises:
        ConfigurationError: A setting that cannot work.
        MissingExtraError: An extra is not installed; its name is in the message.
        StorageUnavailableError: The folder cannot be created or written, or is a file.
        SchemaVersionError: Written by a newer version of this package; nothing was changed.
        CorruptionError: A file is damaged or not a SQLite database.
        StorageBusyError: Another process held a write lock for too long.

    Example:
        >>> with open_memory(":memory:") as memory:
        ...     memory.store.put(("users", "ada"), "tea", {"text": "likes green tea"})
        ...     memory.store.search(("users", "ada"), query="tea")[0].retrieval
        'keyword'
    """
    place = _place_of(location)
    check_callback(on_event)
    if isinstance(busy_timeout_seconds, bool) or not isinstance(busy_timeout_seconds, int | float):
        raise ConfigurationError(f"busy_timeout_seconds must be a number, not {busy_timeout_seconds!r}")
    if not 0 <= busy_timeout_seconds < math.inf:
        raise ConfigurationError(f"busy_timeout_seconds must be 0 or more, not {busy_timeout_seconds!r}")
    resolved = resolve_embeddings(embeddings)
    threads_place, memory_place = (
        (MEMORY_LOCATION, MEMORY_LOCATION) if place == MEMORY_LOCATION else _prepare_folder(Path(place))
    )
    threads = Database(threads_place, busy_timeout_seconds=busy_timeout_seconds, synchronous="full")
    checkpointer: SqliteCheckpointer | None = None
    try:
        checkpointer = SqliteCheckpointer(threads)
        thread_log = ThreadLog(threads)
        store = FaissStore(
            memory_place,
            index=None if resolved is None else {"embed": resolved},
            retrieval=retrieval,
            busy_timeout_seconds=busy_timeout_seconds,
            on_event=on_event,
        )
    except BaseException:
        if checkpointer is not None:
            checkpointer.close()
        threads.close()
        raise
    return AgentMemory(
        location=place,
        checkpointer=checkpointer,
        store=store,
        thread_log=thread_log,
        threads=threads,
        on_event=on_event,
    )


def _place_of(location: Any) -> str:
    """The folder, with ``~`` written out, or ``":memory:"``."""
    place = os.fspath(location) if isinstance(location, str | os.PathLike) else None
    if not isinstance(place, str) or not place.strip() or "\0" in place:
        raise ConfigurationError(f"location must be a folder or ':memory:', not {location!r}")
    url = _URL.match(place)
    if url is not None:
        raise _unsupported(url.group(1))
    try:
        return os.fspath(Path(place).expanduser()) if place.startswith("~") else place
    except RuntimeError as error:  # no such user
        raise ConfigurationError(f"the home folder in {place!r} is not known; write the folder out") from error


def _prepare_folder(folder: Path) -> tuple[str, str]:
    if folder.exists() and not folder.is_dir():
        raise StorageUnavailableError(f"{str(folder)!r} is a file; open_memory needs a folder")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StorageUnavailableError(f"the folder {str(folder)!r} cannot be created: {error.strerror}") from error
    return str(folder / THREADS_FILE), str(folder / MEMORY_FILE)


def _unsupported(scheme: str) -> ConfigurationError:
    if scheme.partition("+")[0] not in ("postgres", "postgresql"):
        return ConfigurationError(f"{scheme!r} URLs are not supported; give a folder or ':memory:'")
    return ConfigurationError(
        "open_memory opens folders, not Postgres: give LangGraph's PostgresSaver and PostgresStore to create_agent and "
        "the same store to the middleware (packages: langgraph-checkpoint-postgres, psycopg); see docs/postgres.md"
    )
