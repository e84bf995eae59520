"""Retrieval quality: keyword, semantic and hybrid beside the built-in store and LangChain's ensemble, in one run.

    python -m benchmarks.retrieval --data FOLDER [--sets locomo,beam,cranfield] [--variants] [--limit N]

The question sets are not part of this repository; without them the run says so and measures nothing. `--variants` adds
what was considered for the defaults: other weights, rank fusion, other BM25 settings, and ways to score long items by
their chunks.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings
from langgraph.store.base import PutOp
from langgraph.store.memory import InMemoryStore

from langmem_harness.embeddings import CachedEmbeddings, LocalEmbeddings
from langmem_harness.errors import ConfigurationError
from langmem_harness.evaluation.datasets import DATASETS, Collection, Dataset, load_dataset
from langmem_harness.evaluation.retrieval import (
    RetrievalReport,
    Search,
    System,
    measure_retrieval,
    render_retrieval_table,
)
from langmem_harness.store import FaissStore
from langmem_harness.store.keywords import KeywordIndex, Tokenizer
from langmem_harness.store.ranking import Leg, fuse, select_top

NAMESPACE = ("benchmark",)
CHUNK_CHARACTERS = 900
RRF_CONSTANT = 60


def faiss_store(embeddings: Embeddings, mode: str, stack: ExitStack) -> System:
    def system(collection: Collection) -> Search:
        index = {"embed": embeddings, "fields": ["text"]}
        store = stack.enter_context(FaissStore(":memory:", index=index, retrieval=mode))
        store.batch([PutOp(NAMESPACE, key, {"text": text}) for key, text in collection.items.items()])

        def search(question: str, limit: int) -> list[str]:
            result = store.recall(NAMESPACE, query=question, top_k=limit, mode=mode)
            assert result.degraded is None, result.degraded
            return [item.key for item in result.items]

        return search

    return system


def in_memory_store(embeddings: Embeddings) -> System:
    def system(collection: Collection) -> Search:
        store = InMemoryStore(index={"dims": LocalEmbeddings.dims, "embed": embeddings, "fields": ["text"]})
        embeddings.embed_documents(list(collection.items.values()))  # all at once; they come from the cache then
        for key, text in collection.items.items():  # its batch refuses to hold the same text twice
            store.put(NAMESPACE, key, {"text": text})
        return lambda question, limit: [item.key for item in store.search(NAMESPACE, query=question, limit=limit)]

    return system


def ensemble_retriever(embeddings: Embeddings) -> System:
    """LangChain's documented recipe: BM25Retriever and a FAISS retriever, half and half.

    Raises:
        ImportError: langchain-classic, langchain-community or rank_bm25 is not installed.
    """
    import rank_bm25  # noqa: F401 - what BM25Retriever needs, and only says so when it is used

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # langchain-community says that its days are numbered
        from langchain_classic.retrievers import EnsembleRetriever
        from langchain_community.retrievers import BM25Retriever
        from langchain_community.vectorstores import FAISS
    from langchain_core.documents import Document

    def system(collection: Collection) -> Search:
        documents = [Document(text, metadata={"key": key}) for key, text in collection.items.items()]
        keyword = BM25Retriever.from_documents(documents, k=10)
        dense = FAISS.from_documents(documents, embeddings).as_retriever(search_kwargs={"k": 10})
        ensemble = EnsembleRetriever(retrievers=[keyword, dense], weights=[0.5, 0.5])
        return lambda question, limit: [found.metadata["key"] for found in ensemble.invoke(question)[:limit]]

    return system


class Scores:
    """All BM25 scores and all cosines of one collection, to try ways of putting them together."""

    def __init__(self, collection: Collection, embeddings: Embeddings, *, k1: float = 1.5, b: float = 0.75) -> None:
        self.keys = list(collection.items)
        self._embeddings = embeddings
        self._tokenizer = Tokenizer()
        self._keywords = KeywordIndex(k1, b)
        texts = list(collection.items.values())
        for row, text in enumerate(texts):
            terms = self._tokenizer.terms(text)
            self._keywords.add(row, {term: terms.count(term) for term in set(terms)})
        self._whole = np.array(embeddings.embed_documents(texts), dtype=np.float32)
        chunks = [list(split_into_chunks(text)) for text in texts]
        self._owner = np.repeat(np.arange(len(texts)), [len(pieces) for pieces in chunks])
        flat = [piece for pieces in chunks for piece in pieces]
        self._chunks = np.array(embeddings.embed_documents(flat), dtype=np.float32)

    def keyword_leg(self, question: str, weight: float) -> Leg:
        hits = self._keywords.search(self._tokenizer.query_terms(question))
        return Leg(name="keyword", weight=weight, rows=hits.rows, scores=hits.scores, floor=0.0)

    def dense_leg(self, question: str, weight: float, combine: str = "whole") -> Leg:
        query = np.array(self._embeddings.embed_query(question), dtype=np.float32)
        scores = self._combine(self._whole @ query, self._chunks @ query, combine)
        return Leg(name="semantic", weight=weight, rows=np.arange(len(self.keys)), scores=scores)

    def _combine(self, whole: np.ndarray, chunks: np.ndarray, combine: str) -> np.ndarray:
        if combine == "whole":
            return whole
        best = np.full(len(whole), -np.inf, dtype=np.float32)
        np.maximum.at(best, self._owner, chunks)
        mean = np.bincount(self._owner, weights=chunks) / np.bincount(self._owner)
        return {"best chunk": best, "mean chunk": mean, "whole and best": (whole + best) / 2}[combine]

    def ranked(self, legs: Sequence[Leg], limit: int) -> list[str]:
        fused = fuse(legs)
        return [self.keys[fused.rows[position]] for position in select_top(fused.scores, fused.rows, limit)]


def split_into_chunks(text: str) -> Iterator[str]:
    """Pieces of at most `CHUNK_CHARACTERS`, cut at white space where there is some; at least one."""
    rest = text
    while len(rest) > CHUNK_CHARACTERS:
        cut = max(rest.rfind(" ", 1, CHUNK_CHARACTERS), rest.rfind("\n", 1, CHUNK_CHARACTERS))
        cut = cut if cut > 0 else CHUNK_CHARACTERS
        yield rest[:cut]
        rest = rest[cut:]
    yield rest


def by_rank(leg: Leg) -> Leg:
    """The same leg with reciprocal ranks for scores (reciprocal rank fusion)."""
    order = select_top(leg.scores, leg.rows)
    return replace(leg, rows=leg.rows[order], scores=1 / (RRF_CONSTANT + 1 + np.arange(len(order))), floor=0.0)


def variants(embeddings: Embeddings) -> dict[str, System]:
    """What else could be the default, by name."""

    def of_scores(rank: Callable[[Scores, str, int], list[str]], **settings: float) -> System:
        def system(collection: Collection) -> Search:
            scores = Scores(collection, embeddings, **settings)
            return lambda question, limit: rank(scores, question, limit)

        return system

    def weighted(weight: float, combine: str = "whole") -> Callable[[Scores, str, int], list[str]]:
        return lambda scores, question, limit: scores.ranked(
            [scores.dense_leg(question, weight, combine), scores.keyword_leg(question, 1 - weight)], limit
        )

    def reciprocal(scores: Scores, question: str, limit: int) -> list[str]:
        legs = [by_rank(scores.dense_leg(question, 0.5)), by_rank(scores.keyword_leg(question, 0.5))]
        return scores.ranked(legs, limit)

    found = {f"weighted, dense {weight}": of_scores(weighted(weight)) for weight in (0.3, 0.5, 0.6, 0.7, 0.8, 0.9)}
    found["reciprocal rank fusion"] = of_scores(reciprocal)
    for k1, b in ((0.9, 0.4), (1.2, 0.75), (2.0, 0.75)):
        found[f"BM25 {k1}/{b}"] = of_scores(weighted(0.0), k1=k1, b=b)
    for combine in ("best chunk", "mean chunk", "whole and best"):
        found[f"dense, {combine}"] = of_scores(weighted(1.0, combine))
        found[f"weighted 0.7, {combine}"] = of_scores(weighted(0.7, combine))
    return found


def measure(dataset: Dataset, embeddings: Embeddings, *, with_variants: bool) -> Iterator[RetrievalReport]:
    with ExitStack() as stack:
        systems = {f"FaissStore {mode}": faiss_store(embeddings, mode, stack) for mode in MODES}
        systems["InMemoryStore"] = in_memory_store(embeddings)
        try:
            systems["EnsembleRetriever"] = ensemble_retriever(embeddings)
        except ImportError as error:
            print(f"EnsembleRetriever is left out: {error}", file=sys.stderr)
        if with_variants:
            systems |= variants(embeddings)
        for name, system in systems.items():
            yield measure_retrieval(dataset, system, name=name)


MODES = ("keyword", "semantic", "hybrid")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.retrieval", description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with the question sets")
    parser.add_argument("--sets", default=",".join(DATASETS), help="comma-separated names of question sets")
    parser.add_argument("--variants", action="store_true", help="also measure what else could be the default")
    parser.add_argument("--limit", type=int, help="collections of each set, for a quick look")
    parser.add_argument("--json", type=Path, help="also write all numbers to this file")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    embeddings: CachedEmbeddings | None = None
    reports: list[dict[str, Any]] = []
    for name in options.sets.split(","):
        try:
            dataset = load_dataset(name, options.data)
        except ConfigurationError as error:
            print(f"not measured: {error}")
            continue
        dataset = replace(dataset, collections=dataset.collections[: options.limit])
        if embeddings is None:  # one cache for all systems, so that each text is embedded once
            embeddings = CachedEmbeddings(
                LocalEmbeddings(), fingerprint="benchmark", dims=LocalEmbeddings.dims, max_entries=200_000
            )
        print(f"{name}: {len(dataset.collections)} namespaces, {dataset.question_count} questions", flush=True)
        found = list(measure(dataset, embeddings, with_variants=options.variants))
        print(render_retrieval_table(found), flush=True)
        reports += [report.to_dict() for report in found]
    if options.json is not None:
        options.json.write_text(json.dumps(reports, indent=2), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
