"""The store's side of an embedder: time limit, circuit breaker, checked vectors, and the newest ones in memory."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings
from langchain_core.stores import ByteStore
from numpy.typing import NDArray

from langmem_harness.embeddings.cache import CachedEmbeddings
from langmem_harness.embeddings.fingerprint import PROBE_TEXT, embedding_model_name, probe_digest
from langmem_harness.errors import EmbeddingError, EmbeddingTimeoutError
from langmem_harness.store.vectors import normalize

Vector = NDArray[np.float32]

MAX_ENTRIES = 2_048
_TIMEOUTS_TO_OPEN = 2
_ERRORS_TO_OPEN = 5
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class EmbedRequest:
    """Texts to embed, each once.

    Attributes:
        texts: Not blank, without lone surrogates.
        is_query: One text, embedded as a query.
        forced: Ask even while the circuit breaker is open.
    """

    texts: tuple[str, ...]
    is_query: bool = False
    forced: bool = False


@dataclass(frozen=True, kw_only=True)
class EmbedAnswer:
    """What came of it.

    Attributes:
        vectors: Unit vector by text, for the texts that got a usable one.
        problem: What went wrong, without user text, or None.
    """

    vectors: Mapping[str, Vector] = field(default_factory=dict)
    problem: str | None = None


class StoreEmbedder:
    """One embedder, asked with a time limit. Never raises for what the embedder does: the answer says it.

    Args:
        embeddings: The model.
        dims: Length its vectors must have; None takes the length of its first answer.
        timeout_seconds: Longest wait for one call; None waits for ever.
        tier: Keeps vectors beyond this process, by model and text.
        max_entries: Newest vectors kept in memory.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        embeddings: Embeddings,
        *,
        dims: int | None,
        timeout_seconds: float | None,
        tier: ByteStore | None = None,
        max_entries: int = MAX_ENTRIES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._embeddings = embeddings
        self.name = embedding_model_name(embeddings)
        self.dims = dims
        self.digest: str | None = None
        self._timeout_seconds = timeout_seconds
        self._tier = tier
        self._worker = _Worker()
        # one for each face: an embedder that is async only fails every sync call, and is in the best of health
        self._breaker, self._async_breaker = _Breaker(clock), _Breaker(clock)
        self._newest: OrderedDict[tuple[bool, str], Vector] = OrderedDict()
        self._max_entries = max_entries
        self._lock = threading.Lock()

    def probe_request(self) -> EmbedRequest:
        """The request that finds out which model this is."""
        return EmbedRequest(texts=(PROBE_TEXT,))

    def remembered(self, texts: Sequence[str], *, is_query: bool) -> dict[str, Vector]:
        """Vectors that are still in memory, by text."""
        found: dict[str, Vector] = {}
        with self._lock:
            for text in texts:
                vector = self._newest.get((is_query, text))
                if vector is not None:
                    self._newest.move_to_end((is_query, text))
                    found[text] = vector
        return found

    def embed(self, request: EmbedRequest) -> EmbedAnswer:
        """Ask in a worker thread, so that a slow model costs `timeout_seconds` and no more; without a limit, here."""
        blocked = self._breaker.reason(request.forced)
        if blocked is not None:
            return EmbedAnswer(problem=blocked)
        try:
            if self._timeout_seconds is None:
                answer = self._ask(request)
            else:
                answer = self._worker.call(functools.partial(self._ask, request), self._timeout_seconds)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - foreign code: each has its own kinds
            return self._failed(error, self._breaker)
        return self._accept(request, answer, self._breaker)

    def _ask(self, request: EmbedRequest) -> Any:
        if request.is_query:
            return [self._embeddings.embed_query(request.texts[0])]
        return self._embeddings.embed_documents(list(request.texts))

    async def aembed(self, request: EmbedRequest) -> EmbedAnswer:
        """Async twin of `embed`: awaits the model's own async methods."""
        blocked = self._async_breaker.reason(request.forced)
        if blocked is not None:
            return EmbedAnswer(problem=blocked)
        try:
            async with asyncio.timeout(self._timeout_seconds) as limit:
                answer = (
                    [await self._embeddings.aembed_query(request.texts[0])]
                    if request.is_query
                    else await self._embeddings.aembed_documents(list(request.texts))
                )
        except (Exception, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling()):
                raise  # we are cancelled, not something inside the embedder
            return self._failed(EmbeddingTimeoutError() if limit.expired() else error, self._async_breaker)
        return self._accept(request, answer, self._async_breaker)

    def forget_threads(self) -> None:
        """After a fork: the parent's threads and locks are not here."""
        self._worker = _Worker()
        self._lock = threading.Lock()

    def close(self) -> None:
        """End the threads that wait for work."""
        self._worker.close()

    def _failed(self, error: BaseException, breaker: _Breaker) -> EmbedAnswer:
        if isinstance(error, EmbeddingTimeoutError):  # ours; its own `TimeoutError` is an error like any other
            breaker.count_failure(_TIMEOUTS_TO_OPEN)
            return EmbedAnswer(problem=f"the embedder did not answer within {self._timeout_seconds} s")
        breaker.count_failure(_ERRORS_TO_OPEN)
        return EmbedAnswer(problem=f"the embedder raised {type(error).__name__}")

    def _accept(self, request: EmbedRequest, answer: Any, breaker: _Breaker) -> EmbedAnswer:
        vectors, problem = self._check(request, answer)
        if not vectors:
            breaker.count_failure(_ERRORS_TO_OPEN)
            return EmbedAnswer(problem=problem)
        breaker.reset()
        with self._lock:
            for text, vector in vectors.items():
                self._newest[request.is_query, text] = vector
                self._newest.move_to_end((request.is_query, text))
            while len(self._newest) > self._max_entries:
                self._newest.popitem(last=False)
        return EmbedAnswer(vectors=vectors, problem=problem)

    def _check(self, request: EmbedRequest, answer: Any) -> tuple[dict[str, Vector], str | None]:
        try:
            count = len(answer)
        except TypeError:
            return {}, f"the embedder answered with {type(answer).__name__}, not a list of vectors"
        if count != len(request.texts):
            return {}, f"the embedder gave {count} vectors for {len(request.texts)} texts"
        dims = self.dims
        if dims is None:
            try:
                dims = len(answer[0])
            except TypeError:
                return {}, "the embedder's answer is not a list of vectors"
        checked = zip(request.texts, normalize(answer, dims), strict=True)
        vectors = {text: vector for text, vector in checked if vector is not None}
        problem = None
        if len(vectors) != count:
            problem = f"{count - len(vectors)} of {count} vectors are zero, not finite, or not {dims} numbers long"
        if request.texts == (PROBE_TEXT,) and vectors:
            try:
                self.digest = probe_digest(vectors[PROBE_TEXT].tolist())
            except EmbeddingError as error:
                return {}, str(error)
            self.dims = dims
            if self._tier is not None:
                self._embeddings = CachedEmbeddings(
                    self._embeddings, fingerprint=self.digest, dims=dims, tier=self._tier, max_entries=0
                )
                self._tier = None
        return vectors, problem


class _Breaker:
    """Stops asking an embedder that keeps failing, for a pause that doubles up to a minute."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures = 0
        self._pause = _FIRST_PAUSE_SECONDS
        self._open_until: float | None = None

    def reason(self, forced: bool) -> str | None:
        if forced or self._open_until is None:
            return None
        left = self._open_until - self._clock()
        if left <= 0:
            return None
        return f"the embedder failed {self._failures} times in a row; it is asked again in {left:.0f} s"

    def count_failure(self, limit: int) -> None:
        self._failures += 1
        if self._failures >= limit:
            self._open_until = self._clock() + self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)

    def reset(self) -> None:
        self._failures, self._pause, self._open_until = 0, _FIRST_PAUSE_SECONDS, None


class _Worker:
    """Runs calls in daemon threads that are kept for the next call; one that hangs is left to its fate."""

    def __init__(self) -> None:
        self._idle: queue.SimpleQueue[queue.SimpleQueue[Any]] = queue.SimpleQueue()
        self._closed = False

    def call(self, function: Callable[[], Any], timeout_seconds: float | None) -> Any:
        try:
            inbox = self._idle.get_nowait()
        except queue.Empty:
            inbox = queue.SimpleQueue()
            threading.Thread(target=self._serve, args=(inbox,), daemon=True, name="langmem-embedder").start()
        outbox: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()
        inbox.put((contextvars.copy_context(), function, outbox))
        try:
            succeeded, value = outbox.get(timeout=timeout_seconds)
        except queue.Empty:
            raise EmbeddingTimeoutError(f"no answer within {timeout_seconds} s") from None
        if not succeeded:
            raise value
        return value

    def _serve(self, inbox: queue.SimpleQueue[Any]) -> None:
        while True:
            context, function, outbox = inbox.get()
            if function is None:
                return
            try:
                result = (True, context.run(function))
            except BaseException as error:  # noqa: BLE001 - handed to the caller's thread, which raises it
                result = (False, error)
            del context, function
            self._idle.put(inbox)
            outbox.put(result)
            del result, outbox
            if self._closed:
                self._end_idle()

    def close(self) -> None:
        """End the threads: the idle ones now, the others after their call."""
        self._closed = True
        self._end_idle()

    def _end_idle(self) -> None:
        while True:
            try:
                self._idle.get_nowait().put((None, None, None))
            except queue.Empty:
                return
