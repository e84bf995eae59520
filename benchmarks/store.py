"""The store beside LangGraph's own stores and the raw floor: ``python -m benchmarks store [-- --sizes 10000,100000]``.

Vectors of 384 numbers are worked out beforehand; every store gets the same texts and vectors in the same run. Times are
medians in milliseconds. `SqliteStore` needs a Python whose ``sqlite3`` loads extensions; where it does not, its column
says so.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import itertools
import multiprocessing
import os
import platform
import resource
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore, PutOp
from langgraph.store.memory import InMemoryStore
from numpy.typing import NDArray

from langmem_harness.store import FaissStore

DIMS = 384
PER_NAMESPACE = 1_000
QUERIES = 180


class Precomputed(Embeddings):
    """The vector whose number a text begins with; queries have numbers after those of the items."""

    def __init__(self, vectors: np.ndarray) -> None:
        self._vectors = vectors

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> Any:
        number = text.split(maxsplit=1)[0]
        return self._vectors[int(number) if number.isdecimal() else -1].tolist()


class Corpus:
    """Clustered vectors and texts of twelve words with the word frequencies of a language."""

    def __init__(self, count: int) -> None:
        random = np.random.default_rng(1)
        centers = random.standard_normal((400, DIMS), dtype=np.float32)
        total = count + QUERIES + 1
        vectors = centers[random.integers(0, 400, total)] + 0.8 * random.standard_normal(
            (total, DIMS), dtype=np.float32
        )
        self.vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        words = random.zipf(1.2, size=(total, 12)) % 30_000
        self.texts = [
            f"{number} " + " ".join(f"word{word}" for word in row) for number, row in enumerate(words.tolist())
        ]
        self.queries = [
            f"{count + number} " + " ".join(self.texts[number * 7 % count].split()[1:6]) for number in range(QUERIES)
        ]
        self.embeddings = Precomputed(self.vectors)
        self.index: Any = {"embed": self.embeddings, "dims": DIMS, "fields": ["text"]}


def put_ops(corpus: Corpus, start: int, stop: int, per_namespace: int = PER_NAMESPACE) -> list[PutOp]:
    """Items of the corpus in namespaces ``users, u<number>``."""
    return [
        PutOp(("users", f"u{number // per_namespace}"), str(number), {"text": corpus.texts[number]})
        for number in range(start, stop)
    ]


def fill(store: BaseStore, corpus: Corpus, count: int, per_namespace: int = PER_NAMESPACE) -> None:
    """In batches of 1,000."""
    for start in range(0, count, 1_000):
        store.batch(put_ops(corpus, start, min(count, start + 1_000), per_namespace))


def search_semantic(store: BaseStore, prefix: tuple[str, ...], query: str) -> None:
    """Ten nearest items."""
    if isinstance(store, FaissStore):
        assert store.recall(prefix, query=query, mode="semantic").retrieval == "semantic"
    else:
        store.search(prefix, query=query, limit=10)


def seconds_of(function: Callable[[], Any]) -> float:
    """Time of one call."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def p50(function: Callable[[str], Any], queries: list[str]) -> float:
    """Median milliseconds; every query is asked once, so that none is answered from a cache of queries."""
    function(queries[0] + " once")
    return statistics.median(seconds_of(functools.partial(function, query)) for query in queries) * 1_000


def row(*values: Any) -> None:
    """One line of the table."""
    print(
        "| " + " | ".join(f"{value:.3g}" if isinstance(value, float) else str(value) for value in values) + " |",
        flush=True,
    )


def modes(store: FaissStore, prefix: tuple[str, ...], corpus: Corpus, count: int) -> list[float]:
    """Median of semantic, keyword and hybrid."""
    return [
        p50(
            lambda query, mode=mode: store.recall(prefix, query=query, mode=mode),  # type: ignore[misc]
            corpus.queries[turn * count : (turn + 1) * count],
        )
        for turn, mode in enumerate(("semantic", "keyword", "hybrid"))
    ]


@contextlib.contextmanager
def open_peers(folder: Path, corpus: Corpus) -> Iterator[dict[str, BaseStore]]:
    """Ours first."""
    with contextlib.ExitStack() as stack:
        stores: dict[str, BaseStore] = {
            "FaissStore": stack.enter_context(FaissStore(folder / "peers.sqlite", index=corpus.index)),
            "FaissStore, no time limit": stack.enter_context(
                FaissStore(folder / "unlimited.sqlite", index=corpus.index, embedding_timeout_seconds=None)
            ),
            "InMemoryStore": InMemoryStore(index=corpus.index),
        }
        if hasattr(sqlite3.connect(":memory:"), "enable_load_extension"):
            from langgraph.store.sqlite import SqliteStore

            peer = SqliteStore.from_conn_string(str(folder / "peer.sqlite"), index=corpus.index)
            stores["SqliteStore"] = stack.enter_context(peer)
            stores["SqliteStore"].setup()  # type: ignore[attr-defined]
        else:
            print("SqliteStore is not measurable here: this Python's sqlite3 loads no extensions\n")
        yield stores


def compare_with_peers(folder: Path, corpus: Corpus, count: int) -> None:
    """Namespaces of 1,000 in one store.

    The stores take turns, so that other load meets all of them: batch by batch, put by put, twenty searches at a time.
    """
    print(f"\n## A store of {count:,} items in namespaces of {PER_NAMESPACE:,}\n")
    with open_peers(folder, corpus) as stores:
        filling: dict[str, list[float]] = {name: [] for name in stores}
        for start in range(0, count, 1_000):
            for name, store in stores.items():
                ops = put_ops(corpus, start, min(count, start + 1_000))
                filling[name].append(seconds_of(functools.partial(store.batch, ops)))
        single: dict[str, list[float]] = {name: [] for name in stores}
        for number in range(500):
            for name, store in stores.items():
                value = {"text": corpus.texts[number]}
                single[name].append(seconds_of(functools.partial(store.put, ("single",), str(number), value)))
        one: dict[str, list[float]] = {name: [] for name in stores}
        everything: dict[str, list[float]] = {name: [] for name in stores}
        for prefix, times, rounds in ((("users", "u1"), one, (0, 20, 40, 60)), ((), everything, (60, 62, 64))):
            for start, stop in itertools.pairwise(rounds):
                for name, store in stores.items():
                    search_semantic(store, prefix, corpus.queries[-1] + f" {start}")  # loads, and warms the processor
                    times[name] += [
                        seconds_of(functools.partial(search_semantic, store, prefix, query))
                        for query in corpus.queries[start:stop]
                    ]
        row("store", "puts/s in batches", "single puts/s", "semantic p50 ms, one namespace", "semantic p50 ms, all")
        row(*["---"] * 5)
        for name in stores:
            row(
                name,
                1_000 / statistics.median(filling[name]),
                1 / statistics.median(single[name]),
                1_000 * statistics.median(one[name]),
                1_000 * statistics.median(everything[name]),
            )
        ours = stores["FaissStore"]
        assert isinstance(ours, FaissStore)
        _, keyword, hybrid = modes(ours, ("users", "u1"), corpus, QUERIES // 3)
        _, all_keyword, all_hybrid = modes(ours, (), corpus, 20)
        row(
            "FaissStore, keyword / hybrid",
            "",
            "",
            f"{keyword:.3g} / {hybrid:.3g}",
            f"{all_keyword:.3g} / {all_hybrid:.3g}",
        )
    measure_floor(corpus)


def measure_floor(corpus: Corpus) -> None:
    """Nothing but the arithmetic."""
    matrix = np.ascontiguousarray(corpus.vectors[:PER_NAMESPACE])
    row(
        "numpy, 1,000 vectors",
        "",
        "",
        p50(lambda query: matrix @ corpus.vectors[int(query.split()[0])], corpus.queries),
        "",
    )
    import faiss

    index = faiss.IndexFlatIP(DIMS)
    index.add(matrix)
    row(
        "faiss flat, 1,000 vectors",
        "",
        "",
        p50(lambda query: index.search(corpus.vectors[int(query.split()[0])][None], 10), corpus.queries),
        "",
    )


def measure_flat(folder: Path, corpus: Corpus, sizes: list[int]) -> None:
    """The same namespace in stores of different sizes, opened in a fresh process each."""
    print("\n## One namespace of 1,000 as the store grows\n")
    row("items in the store", "semantic", "keyword", "hybrid", "open and first search ms", "memory growth MB")
    row(*["---"] * 6)
    for size in sizes:
        with FaissStore(folder / f"flat-{size}.sqlite", index=corpus.index) as store:
            fill(store, corpus, size)
    times: dict[int, list[list[float]]] = {size: [] for size in sizes}
    opened: dict[int, list[tuple[float, float]]] = {size: [] for size in sizes}
    for _ in range(3):
        for size in sizes:
            path = folder / f"flat-{size}.sqlite"
            with FaissStore(path, index=corpus.index) as store:
                times[size].append(modes(store, ("users", "u1"), corpus, QUERIES // 3))
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                number, _, words = corpus.queries[0].partition(" ")
                vectors = corpus.vectors[[int(number), -1]]  # the last one answers the probe
                opened[size].append(pool.apply(open_and_search, (path, f"0 {words}", vectors)))
    for size in sizes:
        row(
            f"{size:,}",
            *(statistics.median(found) for found in zip(*times[size], strict=True)),
            *(statistics.median(found) for found in zip(*opened[size], strict=True)),
        )


def open_and_search(path: Path, query: str, vectors: NDArray[np.float32]) -> tuple[float, float]:
    """Milliseconds and megabytes that opening a store and its first search take in this (fresh) process.

    Everything is imported, and the embedder of another store has been asked, before the clock starts.
    """
    index: Any = {"embed": Precomputed(vectors), "dims": DIMS, "fields": ["text"]}
    with FaissStore(":memory:", index=index) as store:
        store.put(("warm",), "up", {"text": "up"})
        store.recall(("warm",), query="up")
    gc.collect()
    before, started = resident_megabytes(), time.perf_counter()
    with FaissStore(path, index=index) as store:
        found = store.recall(("users", "u1"), query=query, mode="semantic")
        seconds = time.perf_counter() - started
        grown = resident_megabytes() - before
    assert (len(found), found.retrieval) == (10, "semantic"), found.degraded
    return seconds * 1_000, grown


def resident_megabytes() -> float:
    """Memory of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1]) if Path("/proc/self/statm").exists() else 0
    return pages * resource.getpagesize() / 1e6


def measure_large(folder: Path, corpus: Corpus, count: int) -> None:
    """One namespace of many items."""
    print(f"\n## One namespace of {count:,}\n")
    with FaissStore(folder / "large.sqlite", index=corpus.index) as store:
        fill(store, corpus, count, per_namespace=count)
        started = time.perf_counter()
        store.recall(("users",), query=corpus.queries[0])
        first = time.perf_counter() - started
        row("semantic", "keyword", "hybrid", "recall_at_10 of the approximate leg", "first search s")
        row(*["---"] * 5)
        shares = []
        for query in corpus.queries:
            exact = np.argsort(-(corpus.vectors[:count] @ corpus.vectors[int(query.split()[0])]))[:10]
            found = {int(item.key) for item in store.recall(("users",), query=query, mode="semantic")}
            shares.append(len(found & set(exact.tolist())) / 10)
        row(*modes(store, ("users",), corpus, 30), statistics.mean(shares), first)


def measure_bound(folder: Path, corpus: Corpus, size: int) -> None:
    """More namespaces than fit."""
    bound = 16 * 1024 * 1024
    with FaissStore(folder / f"flat-{size}.sqlite", index=corpus.index, max_cache_bytes=bound) as store:
        most = 0
        for number in range(size // PER_NAMESPACE):
            store.recall(("users", f"u{number}"), query=corpus.queries[number % QUERIES] + str(number))
            most = max(most, store._executor.cache.nbytes)
        print(
            f"\nMemory: {size // PER_NAMESPACE} namespaces searched, bound {bound / 1e6:.1f} MB, "
            f"most kept {most / 1e6:.1f} MB"
        )


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks store")
    parser.add_argument("--items", type=int, default=100_000, help="items of the comparison and of the large namespace")
    parser.add_argument("--sizes", default="10000,100000,500000", help="stores of the growth table")
    options = parser.parse_args(arguments)
    sizes = [int(size) for size in options.sizes.split(",")]
    corpus = Corpus(max([options.items, *sizes]))
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    print(
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {os.cpu_count()} cores, load {load:.1f}"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        compare_with_peers(folder, corpus, options.items)
        measure_large(folder, corpus, options.items)
        measure_flat(folder, corpus, sizes)
        measure_bound(folder, corpus, sizes[0] if len(sizes) == 1 else sizes[1])
