"""The store beside LangGraph's own stores and the raw floor: ``python -m benchmarks store [-- --sizes 10000,100000]``.

Vectors of 384 numbers are worked out beforehand; every store gets the same texts and vectors in the same run. Times are
medians in milliseconds. `SqliteStore` needs a Python whose ``sqlite3`` loads extensions; where it does not, its column
says so.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import resource
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore, PutOp
from langgraph.store.memory import InMemoryStore

from langmem_harness.store import FaissStore

DIMS = 384
PER_NAMESPACE = 1_000
QUERIES = 60


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


def fill(store: BaseStore, corpus: Corpus, count: int, per_namespace: int = PER_NAMESPACE) -> float:
    """Puts per second, in batches of 1,000."""
    started = time.perf_counter()
    for start in range(0, count, 1_000):
        store.batch(
            [
                PutOp(("users", f"u{number // per_namespace}"), str(number), {"text": corpus.texts[number]})
                for number in range(start, min(count, start + 1_000))
            ]
        )
    return count / (time.perf_counter() - started)


def single_puts(store: BaseStore, corpus: Corpus, count: int = 500) -> float:
    """Puts per second, one at a time."""
    started = time.perf_counter()
    for number in range(count):
        store.put(("single", "u"), str(number), {"text": corpus.texts[number]})
    return count / (time.perf_counter() - started)


def p50(function: Callable[[str], Any], queries: list[str], rounds: int = 3) -> float:
    """Median milliseconds; the queries go round, so that no store can answer them all from memory of the first time."""
    function(queries[0])
    times = []
    for query in queries * rounds:
        started = time.perf_counter()
        function(query)
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1_000


def resident_megabytes() -> float:
    """Memory of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1]) if Path("/proc/self/statm").exists() else 0
    return pages * resource.getpagesize() / 1e6


def row(*values: Any) -> None:
    """One line of the table."""
    print(
        "| " + " | ".join(f"{value:.3g}" if isinstance(value, float) else str(value) for value in values) + " |",
        flush=True,
    )


def modes(store: FaissStore, prefix: tuple[str, ...], corpus: Corpus, count: int) -> list[float]:
    """Median of semantic, keyword and hybrid."""
    queries = corpus.queries[:count]
    return [
        p50(lambda query, mode=mode: store.recall(prefix, query=query, mode=mode), queries)  # type: ignore[misc]
        for mode in ("semantic", "keyword", "hybrid")
    ]


def compare_with_peers(folder: Path, corpus: Corpus, count: int) -> None:
    """Namespaces of 1,000 in one store."""
    print(f"\n## A store of {count:,} items in namespaces of {PER_NAMESPACE:,}\n")
    row("store", "puts/s in batches", "single puts/s", "semantic p50 ms, one namespace", "semantic p50 ms, all")
    row(*["---"] * 5)
    ours = FaissStore(folder / "peers.sqlite", index=corpus.index)
    rates = fill(ours, corpus, count), single_puts(ours, corpus)
    one = modes(ours, ("users", "u3"), corpus, QUERIES)
    everything = modes(ours, (), corpus, 20)
    row("FaissStore", *rates, one[0], everything[0])
    row(
        "FaissStore, keyword / hybrid",
        "",
        "",
        f"{one[1]:.3g} / {one[2]:.3g}",
        f"{everything[1]:.3g} / {everything[2]:.3g}",
    )
    ours.close()
    peer = InMemoryStore(index=corpus.index)
    rates = fill(peer, corpus, count), single_puts(peer, corpus)
    search = p50(lambda query: peer.search(("users", "u3"), query=query), corpus.queries[:20], 1)
    row("InMemoryStore", *rates, search, p50(lambda query: peer.search((), query=query), corpus.queries[:2], 1))
    measure_sqlite_store(folder, corpus, count)
    measure_floor(corpus)


def measure_sqlite_store(folder: Path, corpus: Corpus, count: int) -> None:
    """LangGraph's store with sqlite-vec."""
    if not hasattr(sqlite3.connect(":memory:"), "enable_load_extension"):
        row("SqliteStore", *["not measurable here: this Python's sqlite3 loads no extensions"] * 4)
        return
    from langgraph.store.sqlite import SqliteStore

    with SqliteStore.from_conn_string(str(folder / "peer.sqlite"), index=corpus.index) as peer:
        peer.setup()
        rates = fill(peer, corpus, count), single_puts(peer, corpus)
        search = p50(lambda query: peer.search(("users", "u3"), query=query), corpus.queries[:20], 1)
        row("SqliteStore", *rates, search, p50(lambda query: peer.search((), query=query), corpus.queries[:3], 1))


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
    """The same namespace in stores of different sizes, and opening the largest."""
    print("\n## One namespace of 1,000 as the store grows\n")
    row("items in the store", "semantic", "keyword", "hybrid", "open and first search ms", "memory growth MB")
    row(*["---"] * 6)
    for size in sizes:
        path = folder / f"flat-{size}.sqlite"
        with FaissStore(path, index=corpus.index) as store:
            fill(store, corpus, size)
        gc.collect()
        before, started = resident_megabytes(), time.perf_counter()
        with FaissStore(path, index=corpus.index) as store:
            store.recall(("users", "u3"), query=corpus.queries[0], mode="semantic")
            opened, grown = (time.perf_counter() - started) * 1_000, resident_megabytes() - before
            row(f"{size:,}", *modes(store, ("users", "u3"), corpus, QUERIES), opened, grown)


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
            store.recall(("users", f"u{number}"), query=corpus.queries[number % QUERIES])
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
