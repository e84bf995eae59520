"""Fakes for tests and examples: no network, no account, the same answer every time.

`ScriptedChatModel` plays a script and records what it was asked, `DeterministicEmbeddings` puts texts with the same
words close together, `FixedClock` tells the time it was told.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field, PrivateAttr

from langmem_harness.errors import ConfigurationError

Reply = AIMessage | str | BaseException | Callable[[list[BaseMessage]], AIMessage | str]
"""One step of a script: an answer, an error to raise, or a function of the messages that gives the answer."""


class _Played:
    """What was played so far; shared by every handle of one script."""

    def __init__(self) -> None:
        self.requests: list[list[BaseMessage]] = []
        self._lock = threading.Lock()

    def record(self, messages: Sequence[BaseMessage]) -> int:
        copies = [message.model_copy(deep=True) for message in messages]
        with self._lock:
            self.requests.append(copies)
            return len(self.requests) - 1


class ScriptedChatModel(BaseChatModel):
    """A chat model that plays a script: the n-th call gets the n-th reply.

    It is a real `BaseChatModel`: tools can be bound, it streams word by word, works sync and async, reports usage
    (one token per word), and can be shared by threads. Replies get an id of their own if they have none.

    Attributes:
        responses: The script. An exception in it is raised; a callable is called with the messages.
        on_exhausted: What happens after the last reply: ``"raise"`` an `IndexError`, or ``"repeat"`` the last one.
        requests: Copies of the messages of every call so far, oldest first.
        bound_tools: Names of the tools bound to this handle.

    Example:
        >>> model = ScriptedChatModel(responses=["Hello!"])
        >>> model.invoke("Hi").text
        'Hello!'
    """

    responses: list[Any]
    on_exhausted: Literal["raise", "repeat"] = "raise"
    bound_tools: list[str] = Field(default_factory=list)
    tool_schemas: list[dict[str, Any]] = Field(default_factory=list)
    _played: _Played = PrivateAttr(default_factory=_Played)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": "scripted"}

    @property
    def requests(self) -> list[list[BaseMessage]]:
        return list(self._played.requests)

    @property
    def calls(self) -> int:
        """How often it was called."""
        return len(self._played.requests)

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """A handle with these tools that plays the same script and records into the same `requests`."""
        schemas = [convert_to_openai_tool(tool) for tool in tools]
        bound = self.model_copy(
            update={"tool_schemas": schemas, "bound_tools": [schema["function"]["name"] for schema in schemas]}
        )
        bound._played = self._played
        return bound

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._reply(messages))])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for chunk in _split_into_chunks(self._reply(messages)):
            generation = ChatGenerationChunk(message=chunk)
            if run_manager is not None:
                run_manager.on_llm_new_token(chunk.text, chunk=generation)
            yield generation

    def _reply(self, messages: list[BaseMessage]) -> AIMessage:
        index = self._played.record(messages)
        if index >= len(self.responses):
            if self.on_exhausted == "raise" or not self.responses:
                raise IndexError(f"the script has {len(self.responses)} replies, this is call {index + 1}")
            index = len(self.responses) - 1
        reply: Reply = self.responses[index]
        if isinstance(reply, BaseException):
            raise reply
        if not isinstance(reply, AIMessage | str):
            reply = reply(messages)
        message = AIMessage(reply) if isinstance(reply, str) else reply.model_copy(deep=True)
        if message.usage_metadata is None:
            read = sum(len(earlier.text.split()) for earlier in messages)
            written = max(1, len(message.text.split()))
            message.usage_metadata = UsageMetadata(
                input_tokens=read, output_tokens=written, total_tokens=read + written
            )
        message.response_metadata = {"model_name": "scripted", "finish_reason": "stop", **message.response_metadata}
        return message


def _split_into_chunks(message: AIMessage) -> Iterator[AIMessageChunk]:
    if isinstance(message.content, str):
        pieces: list[str | list[Any]] = list(re.findall(r"\S+\s*|\s+", message.content))
    else:
        pieces = [message.content]
    for piece in pieces:
        yield AIMessageChunk(content=piece, id=message.id)
    yield AIMessageChunk(
        content="" if isinstance(message.content, str) else [],
        id=message.id,
        tool_call_chunks=[
            tool_call_chunk(
                name=call["name"], args=json.dumps(call["args"], ensure_ascii=False), id=call["id"], index=index
            )
            for index, call in enumerate(message.tool_calls)
        ],
        usage_metadata=message.usage_metadata,
        response_metadata=message.response_metadata,
        additional_kwargs=message.additional_kwargs,
        chunk_position="last",
    )


Fault = Literal["raise", "slow", "nan", "zero", "wrong_length", "too_few"]


class DeterministicEmbeddings(Embeddings):
    """Embeddings by words: the cosine of two texts is that of their word counts, hashed into `dims` numbers.

    A text gets the same unit vector in every process. Shared words mean similarity, nothing else does. Text without any
    word gets a vector of its own, so that no vector is zero.

    Args:
        dims: Length of the vectors, 1 or more. More means fewer collisions of words.
        name: Part of the model's name, and of its vectors: two names of the same size are two different models.
        query_differs: Queries get another vector than documents of the same text, as asymmetric models do.

    Attributes:
        fault: Set it to make the next calls fail: ``"raise"``, ``"slow"`` (sleeps `delay_seconds`), ``"nan"``,
            ``"zero"``, ``"wrong_length"``, ``"too_few"``; None is healthy.
        document_calls: Texts of every `embed_documents` call so far.
        query_calls: Texts of every `embed_query` call so far.

    Raises:
        ConfigurationError: `dims` is below 1.
    """

    def __init__(self, dims: int = 64, *, name: str = "words", query_differs: bool = False) -> None:
        if dims < 1:
            raise ConfigurationError(f"dims must be 1 or more, not {dims!r}")
        self.dims = dims
        self.model = f"deterministic-{name}-{dims}"
        self.query_differs = query_differs
        self.fault: Fault | None = None
        self.delay_seconds = 1.0
        self.document_calls: list[list[str]] = []
        self.query_calls: list[str] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.document_calls.append(list(texts))
        vectors = self._with_fault([self._vector(text, "") for text in texts])
        return vectors[:-1] if self.fault == "too_few" else vectors

    def embed_query(self, text: str) -> list[float]:
        self.query_calls.append(text)
        return self._with_fault([self._vector(text, "query: " if self.query_differs else "")])[0]

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        return await asyncio.to_thread(self.embed_documents, texts)

    async def aembed_query(self, text: str) -> list[float]:
        return await asyncio.to_thread(self.embed_query, text)

    def _with_fault(self, vectors: list[list[float]]) -> list[list[float]]:
        match self.fault:
            case "raise":
                raise RuntimeError("the embedding service is down")
            case "slow":
                time.sleep(self.delay_seconds)
            case "nan":
                return [[math.nan] * self.dims for _ in vectors]
            case "zero":
                return [[0.0] * self.dims for _ in vectors]
            case "wrong_length":
                return [[*vector, 0.0] for vector in vectors]
        return vectors

    def _vector(self, text: str, prefix: str) -> list[float]:
        words = Counter(re.findall(r"\w+", text.lower())) or Counter([text])
        vector = [0.0] * self.dims
        for word, count in words.items():
            digest = hashlib.blake2b(
                f"{self.model}/{prefix}{word}".encode("utf-8", "surrogatepass"), digest_size=8
            ).digest()
            vector[int.from_bytes(digest, "big") % self.dims] += count
        length = math.sqrt(sum(number * number for number in vector))
        return [number / length for number in vector]


class FixedClock:
    """A clock that stands still until it is moved: ``clock()`` gives an aware UTC `datetime`.

    Args:
        now: Aware time it starts at; 1 May 2026, noon, by default.
    """

    def __init__(self, now: datetime = datetime(2026, 5, 1, 12, tzinfo=UTC)) -> None:
        if now.tzinfo is None:
            raise ConfigurationError(f"a clock needs an aware time, not {now!r}")
        self.now = now.astimezone(UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, delta: timedelta | None = None, **parts: float) -> datetime:
        """Move the clock (also back) and give the new time: ``clock.advance(minutes=5)``."""
        self.now += (delta or timedelta()) + timedelta(**parts)
        return self.now
