"""`FaissStore`: a LangGraph store in one SQLite file that searches by meaning and by words and says how it found."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self, cast

from langchain_core.stores import ByteStore
from langgraph.store.base import BaseStore, IndexConfig, Op, Result, TTLConfig
from typing_extensions import Unpack

from langmem_harness.errors import (
    ConfigurationError,
    StorageBusyError,
    StorageError,
    StorageUnavailableError,
)
from langmem_harness.events import EventCallback, EventLoopBlocked, RetrievalDegraded, emit
from langmem_harness.sqlite import Database
from langmem_harness.store import database as tables
from langmem_harness.store import maintenance
from langmem_harness.store.execution import BatchOutcome, Executor
from langmem_harness.store.indexing import Indexer, Progress
from langmem_harness.store.keywords import Tokenizer
from langmem_harness.store.partition import PartitionCache
from langmem_harness.store.pending import PendingItems
from langmem_harness.store.plan import BatchPlan, RecallOptions, check_mode, plan_batch, plan_recall
from langmem_harness.store.provenance import IndexProvenance
from langmem_harness.store.ranking import DENSE_WEIGHT
from langmem_harness.store.records import Mode, RecallResult, StoreReport, StoreStats
from langmem_harness.store.searching import SearchOutcome, Vectors
from langmem_harness.store.settings import (
    check_fields,
    check_search_settings,
    check_ttl_config,
    check_whole,
    make_embedder,
)
from langmem_harness.store.steps import Call, Steps, arun, run
from langmem_harness.store.sweeper import Sweeper
from langmem_harness.store.texts import FieldPaths
from langmem_harness.store.vectors import EXACT_LIMIT, load_faiss

MAX_CACHE_BYTES = 512 * 1024 * 1024
"""Bound of the partitions in memory: some 250,000 vectors of 384 numbers with their words."""


class FaissStore(BaseStore):
    """A LangGraph store in one SQLite file.

    SQLite is the truth: one transaction writes an item with its vectors and its keyword terms. What is searched lies in
    memory, one partition for each searched namespace prefix, and is read anew from SQLite at any time. Sync and async
    methods do the same on one object, which may be shared by threads, event loops and (opened in each) processes.

    Args:
        location: Path of the file, ``":memory:"``, or a `Database` that is shared and closed by its owner.
        index: LangGraph's ``IndexConfig``: ``embed`` (an `Embeddings`, ``"local"``, a name for ``init_embeddings``, or
            a function), ``dims`` (found out when left out), ``fields`` (``["$"]``, the whole value). None for a store
            that searches by words only. ``fields`` without ``embed`` names what the words are taken from.
        retrieval: Legs a search uses: ``"hybrid"``, ``"semantic"`` or ``"keyword"``.
        dense_weight: Share of the semantic leg in hybrid scores, 0 to 1.
        language: Stop words and stemming of the keyword leg; None for neither.
        k1: BM25: how slowly repetition saturates, 0 or more.
        b: BM25: how much long texts are discounted, 0 to 1.
        ttl: LangGraph's ``TTLConfig``. Expired items are never returned, whatever ``omit_expired`` says.
        embedding_timeout_seconds: Longest wait for one call of the embedder, in a thread of its own; None waits for
            ever, in the calling thread, which saves a change of threads per search.
        chunk_tokens: Texts longer than this (16 or more; somewhat below what the embedder reads at once) are embedded
            in chunks, as the mean of their vectors; None: as they are. Changed, it holds for what is written from then
            on, `verify` names the rest, and `reindex` brings it to them.
        embedding_cache: A LangChain `ByteStore` that keeps vectors by text beyond this file, shared by stores.
        max_cache_bytes: Bound of the partitions in memory.
        exact_limit: Vectors of a partition below which the semantic leg is exact.
        on_event: Gets every event.
        busy_timeout_seconds: How long a write waits for another process.
        clock: Aware UTC time, for tests.

    Raises:
        ConfigurationError: A setting cannot work.
        StorageError: The file cannot be opened, is newer than this package, or is no database.

    Example:
        >>> with FaissStore(":memory:") as store:
        ...     store.put(("users", "ada"), "diet", {"text": "Ada eats no meat"})
        ...     store.search(("users", "ada"), query="meat")[0].retrieval
        'keyword'
    """

    supports_ttl = True

    def __init__(
        self,
        location: str | os.PathLike[str] | Database,
        *,
        index: IndexConfig | Mapping[str, Any] | None = None,
        retrieval: Mode = "hybrid",
        dense_weight: float = DENSE_WEIGHT,
        language: str | None = "english",
        k1: float = 1.5,
        b: float = 0.75,
        ttl: TTLConfig | None = None,
        embedding_timeout_seconds: float | None = 30.0,
        chunk_tokens: int | None = None,
        embedding_cache: ByteStore | None = None,
        max_cache_bytes: int = MAX_CACHE_BYTES,
        exact_limit: int = EXACT_LIMIT,
        on_event: EventCallback | None = None,
        busy_timeout_seconds: float = 10.0,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        check_mode(retrieval)
        check_whole("max_cache_bytes", max_cache_bytes)
        settings = check_search_settings(dense_weight=dense_weight, k1=k1, b=b, exact_limit=exact_limit)
        sweep_minutes = check_ttl_config(ttl)
        self.retrieval = retrieval
        self.ttl_config = ttl
        self._on_event = on_event
        self._clock = clock
        self._paths = FieldPaths(check_fields(index), chunk_tokens=chunk_tokens)
        self._tokenizer = Tokenizer(language)
        self._embedder = make_embedder(index, embedding_timeout_seconds, embedding_cache)
        self._owns_database = not isinstance(location, Database)
        self._database = (
            location
            if isinstance(location, Database)
            else Database(location, busy_timeout_seconds=busy_timeout_seconds)
        )
        try:
            self._executor = Executor(
                self._database,
                paths=self._paths,
                tokenizer=self._tokenizer,
                settings=settings,
                cache=PartitionCache(max_cache_bytes),
                has_embedder=self._embedder is not None,
            )
            self._database.migrate(tables.COMPONENT, tables.MIGRATIONS)
        except BaseException:
            if self._owns_database:
                self._database.close()
            raise
        self._indexer = (
            None
            if self._embedder is None
            else Indexer(
                self._database,
                self._embedder,
                paths=self._paths,
                tokenizer=self._tokenizer,
                tokenizer_number=self._executor.tokenizer_number,
                clock=clock,
            )
        )
        self._pending = None if self._indexer is None else PendingItems(self._indexer)
        self._pid = os.getpid()
        self._said_blocked = False
        self._sweeper = Sweeper(self, sweep_minutes, self._say_sweep_failed)

    # -- the two doors of BaseStore -----------------------------------------------------------------------------

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Perform operations in their order, in one transaction: all of them, or none.

        Raises:
            NamespaceError, ItemValueError, FilterError: One operation is wrong; nothing was done.
            StorageError: The database refused; nothing was kept.
        """
        self._note_event_loop("batch", "abatch")
        return run(self._batch(ops), self._embedder)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Async twin of `batch`. Cancelled while the database writes, the batch still ends, whole or not at all."""
        return await arun(self._batch(ops), self._embedder)

    def _batch(self, ops: Iterable[Op]) -> Steps[list[Result]]:
        given = list(ops)  # the caller's iterator runs in the caller's thread, splitting texts into words need not
        plan: BatchPlan = yield Call(
            lambda: plan_batch(given, paths=self._paths, tokenizer=self._tokenizer, mode=self.retrieval)
        )
        outcome = yield from self._perform(plan)
        return [cast(Result, found.items if isinstance(found, SearchOutcome) else found) for found in outcome.results]

    def _perform(self, plan: BatchPlan) -> Steps[BatchOutcome]:
        self._after_fork()
        vectors = Vectors()
        if self._indexer is not None:
            vectors = yield from self._indexer.prepare(plan.documents, plan.queries)
        outcome: BatchOutcome = yield Call(lambda: self._commit(plan, vectors))
        healthy = vectors.problem is None and vectors.documents.generation
        if self._pending is not None and plan.documents and healthy and outcome.others_wait:
            yield from self._pending.embed_some()
        return outcome

    def _commit(self, plan: BatchPlan, vectors: Vectors) -> BatchOutcome:
        now = self._now()
        outcome = self._executor.run(plan, vectors, now)
        if outcome.to_refresh:
            try:
                self._executor.refresh(outcome.to_refresh, now)
            except (StorageBusyError, StorageUnavailableError) as error:
                # what was read is still the answer; its time to live goes on from where it was
                self._say("search", "ttl", f"time to live not refreshed: {type(error).__name__}")
        if outcome.pending and self._indexer is not None:
            reason = vectors.problem or "the index was replaced meanwhile"
            self._say("write", "semantic", reason, pending=outcome.pending)
        for result in outcome.results:
            if isinstance(result, SearchOutcome) and result.degraded is not None:
                self._say("search", "semantic", result.degraded)
        return outcome

    # -- search that says how -----------------------------------------------------------------------------------

    def recall(self, namespace_prefix: tuple[str, ...], **options: Unpack[RecallOptions]) -> RecallResult:
        """Search, and say how: which legs answered, whether one is missing and why, and how long it took.

        Args:
            namespace_prefix: Where; everything below it is searched.
            **options: See `RecallOptions`.

        Returns:
            Items best first, equal scores by key. Without a query, those written last.

        Raises:
            NamespaceError, FilterError, ConfigurationError: An argument cannot work.
        """
        self._note_event_loop("recall", "arecall")
        return run(self._recall(namespace_prefix, options), self._embedder)

    async def arecall(self, namespace_prefix: tuple[str, ...], **options: Unpack[RecallOptions]) -> RecallResult:
        """Async twin of `recall`."""
        return await arun(self._recall(namespace_prefix, options), self._embedder)

    def _recall(self, namespace_prefix: tuple[str, ...], options: RecallOptions) -> Steps[RecallResult]:
        started = time.perf_counter()
        search = plan_recall(namespace_prefix, options, mode=self.retrieval, ttl=self.ttl_config)
        queries = (search.text,) if search.text is not None else ()
        plan = BatchPlan(operations=(search,), documents=(), queries=queries, writes=False)
        self._after_fork()
        vectors = Vectors()
        if self._indexer is not None:
            vectors = yield from self._indexer.prepare((), queries)
        embedded = time.perf_counter()
        outcome: BatchOutcome = yield Call(lambda: self._commit(plan, vectors))
        (found,) = outcome.results
        return RecallResult(
            items=tuple(found.items),
            retrieval=found.retrieval,
            legs=found.legs,
            degraded=found.degraded,
            seconds=time.perf_counter() - started,
            embedding_seconds=embedded - started,
        )

    # -- trust --------------------------------------------------------------------------------------------------

    def provenance(self) -> IndexProvenance | None:
        """What the vector index was built from; None while there is none."""
        return maintenance.read_provenance(self._database)

    def reindex(self, progress: Progress | None = None) -> int:
        """Embed everything anew into a second index and switch to it in one transaction; how many vectors it has.

        Searches and writes go on meanwhile, on the old index. Also makes the keyword terms anew.

        Args:
            progress: Called with (items done, items in all).

        Raises:
            ConfigurationError: The store has no embedder.
            EmbeddingError: The embedder failed; the old index is still in use.
            StorageBusyError: Another process is doing the same.
        """
        self._note_event_loop("reindex", "areindex")
        return run(self._present_indexer().reindex(progress), self._embedder)

    async def areindex(self, progress: Progress | None = None) -> int:
        """Async twin of `reindex`."""
        return await arun(self._present_indexer().reindex(progress), self._embedder)

    def pending_embeddings(self) -> int:
        """Items that are stored and found by words, and wait for their vectors; 0 for a store without an embedder."""
        if self._embedder is None:
            return 0
        with self._database.read() as connection:
            return tables.count_pending(connection)

    def embed_pending(self) -> int:
        """Embed items that wait; how many are complete now. Asks the embedder even if it failed a moment ago.

        Raises:
            ConfigurationError: The store has no embedder.
        """
        self._note_event_loop("embed_pending", "aembed_pending")
        return run(self._present_pending().embed_all(), self._embedder)

    async def aembed_pending(self) -> int:
        """Async twin of `embed_pending`."""
        return await arun(self._present_pending().embed_all(), self._embedder)

    def sweep(self) -> int:
        """Delete expired items; how many. They were not returned any more anyway."""
        self._note_event_loop("sweep")
        self._after_fork()
        return maintenance.sweep(self._database, self._now())

    def verify(self) -> StoreReport:
        """Derive again everything that can be derived (hashes, terms, numbers, vectors' shapes) and report."""
        self._note_event_loop("verify")
        self._after_fork()
        return maintenance.verify(self._database, self._paths, self._tokenizer, self._executor.tokenizer_number)

    def stats(self) -> StoreStats:
        """Sizes of the file and of what is in memory."""
        self._note_event_loop("stats")
        self._after_fork()
        kind = "none" if self._embedder is None else "numpy" if load_faiss() is None else "faiss"
        return maintenance.read_stats(self._database, self._executor, self._now(), kind)

    def vacuum(self) -> None:
        """Forget empty namespaces and listed deletions, and give free pages back to the disk; blocks other writers."""
        self._note_event_loop("vacuum")
        self._after_fork()
        maintenance.vacuum(self._database)

    # -- life ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the file (unless the database was given) and free the memory. Safe to call twice."""
        self._after_fork()
        self._sweeper.stop()
        self._executor.forget()
        if self._embedder is not None:
            self._embedder.close()
        if self._owns_database:
            self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    # -- inside -------------------------------------------------------------------------------------------------

    def _now(self) -> int:
        return tables.to_milliseconds(self._clock())

    def _present_indexer(self) -> Indexer:
        self._after_fork()
        if self._indexer is None:
            raise ConfigurationError("this store was opened without an embedder (index=None); reopen it with one")
        return self._indexer

    def _present_pending(self) -> PendingItems:
        indexer = self._present_indexer()
        return self._pending or PendingItems(indexer)

    def _after_fork(self) -> None:
        """In a child process: the parent's locks may be held by threads that are not here."""
        if self._pid == os.getpid():
            return
        self._pid = os.getpid()
        self._executor.after_fork()
        if self._embedder is not None:
            self._embedder.forget_threads()

    def _say(self, operation: str, leg: str, reason: str, *, pending: int | None = None) -> None:
        emit(RetrievalDegraded(operation=operation, leg=leg, reason=reason, pending=pending), self._on_event)

    def _say_sweep_failed(self, error: StorageError) -> None:
        self._say("write", "ttl", f"sweep failed: {type(error).__name__}")

    def _note_event_loop(self, operation: str, use: str = "asyncio.to_thread") -> None:
        if self._said_blocked:
            return
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        self._said_blocked = True
        emit(EventLoopBlocked(operation=operation, use=use), self._on_event)
