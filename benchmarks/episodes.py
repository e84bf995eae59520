"""How well earlier threads are found: `EpisodeIndex` beside the built-in store and LangChain's ensemble, in one run.

    python -m benchmarks.episodes --data FOLDER [--sets generated,locomo,realtalk,beam] [--variants] [--limit N]

The question sets are not part of this repository; a set that is not there is said and not measured. The set
"generated" is always there: dialogues made by templates (see `benchmarks._dialogues`), labelled so in every table.
`--variants` adds what each part of the recipe is worth.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from langchain_core.embeddings import Embeddings

from benchmarks._dialogues import generate_dialogues
from benchmarks.retrieval import MODES, ensemble_retriever, in_memory_store
from langmem_harness.embeddings import CachedEmbeddings, LocalEmbeddings
from langmem_harness.errors import ConfigurationError
from langmem_harness.evaluation.datasets import Collection, Dataset, load_dataset
from langmem_harness.evaluation.retrieval import (
    RetrievalReport,
    Search,
    System,
    measure_retrieval,
    render_retrieval_table,
)
from langmem_harness.memory import EpisodeIndex, LongTermMemory, MemoryScope, Utterance
from langmem_harness.store import FaissStore

GENERATED = "generated"
SETS = (GENERATED, "locomo", "realtalk", "beam")
SCOPE = MemoryScope(user="benchmark")


def episode_index(embeddings: Embeddings, mode: str, stack: ExitStack, **settings: Any) -> System:
    """Each session of a conversation is a thread."""

    def system(collection: Collection) -> Search:
        store = stack.enter_context(FaissStore(":memory:", index={"embed": embeddings}, retrieval=mode))
        index = EpisodeIndex(LongTermMemory(store, redactor=None), **settings)
        threads: dict[str, list[Utterance]] = {}
        for turn in collection.turns:
            utterance = Utterance(message_id=turn.key, speaker=turn.speaker, text=turn.text, said_at=turn.said_at)
            threads.setdefault(turn.thread, []).append(utterance)
        for thread_id, utterances in threads.items():
            index.index_thread(SCOPE, thread_id, utterances)

        def search(question: str, limit: int) -> list[str]:
            result = index.search(SCOPE, question, top_k=limit)
            assert result.degraded is None, result.degraded
            return [episode.utterance.message_id for episode in result.episodes]

        return search

    return system


VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "own words only": {"field_weights": {"text": 1.0, "context": 0.0}},
    "context only": {"field_weights": {"text": 0.0, "context": 1.0}},
    "no speaker boost": {"speaker_boost": 0.0},
    "own words only, no speaker boost": {"field_weights": {"text": 1.0, "context": 0.0}, "speaker_boost": 0.0},
}
"""What is left out of the recipe, by name."""


def measure(dataset: Dataset, embeddings: Embeddings, *, with_variants: bool) -> Iterator[RetrievalReport]:
    with ExitStack() as stack:
        systems = {f"EpisodeIndex {mode}": episode_index(embeddings, mode, stack) for mode in MODES}
        systems["InMemoryStore"] = in_memory_store(embeddings)
        try:
            systems["EnsembleRetriever"] = ensemble_retriever(embeddings)
        except ImportError as error:
            print(f"EnsembleRetriever is left out: {error}", file=sys.stderr)
        for name, settings in VARIANTS.items() if with_variants else ():
            systems[f"EpisodeIndex hybrid, {name}"] = episode_index(embeddings, "hybrid", stack, **settings)
        for name, system in systems.items():
            yield measure_retrieval(dataset, system, name=name)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.episodes", description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with the question sets")
    parser.add_argument("--sets", default=",".join(SETS), help="comma-separated names of question sets")
    parser.add_argument("--variants", action="store_true", help="also measure what each part of the recipe is worth")
    parser.add_argument("--limit", type=int, help="conversations of each set, for a quick look")
    parser.add_argument("--json", type=Path, help="also write all numbers to this file")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    # one cache for all systems, so that each text is embedded once
    embeddings = CachedEmbeddings(
        LocalEmbeddings(), fingerprint="benchmark", dims=LocalEmbeddings.dims, max_entries=200_000
    )
    reports: list[dict[str, Any]] = []
    for name in options.sets.split(","):
        try:
            dataset = generate_dialogues() if name == GENERATED else load_dataset(name, options.data)
        except ConfigurationError as error:
            print(f"not measured: {error}")
            continue
        dataset = replace(dataset, collections=dataset.collections[: options.limit])
        print(
            f"{dataset.name}: {len(dataset.collections)} conversations, {dataset.question_count} questions", flush=True
        )
        found = list(measure(dataset, embeddings, with_variants=options.variants))
        print(render_retrieval_table(found))
        for report in found:
            shares = ", ".join(f"{name} {100 * share:.1f}" for name, share in report.recall_at_10_by_category.items())
            print(f"{report.system}: recall_at_10 by category: {shares}", flush=True)
        reports += [report.to_dict() for report in found]
    if options.json is not None:
        options.json.write_text(json.dumps(reports, indent=2), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
