"""How well `EpisodeIndex` finds the gold turns of LoCoMo: share of gold turns among the first ten.

    python benchmarks/episodes.py DATA_FOLDER [--conversations N]

DATA_FOLDER has the LoCoMo release (``locomo10.json``, or one such JSON list in any ``*.json`` below a folder named
``locomo``). Without it the script says so and ends with exit code 2; it prints no figure that it did not measure.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from langmem_harness.memory import LongTermMemory, MemoryScope
from langmem_harness.memory.episodes import EpisodeIndex, Utterance
from langmem_harness.pairing import open_memory

TOP_K = 10
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}


def find_conversations(folder: Path) -> list[dict[str, Any]]:
    """Every LoCoMo conversation below the folder."""
    for path in sorted([*folder.glob("locomo10.json"), *folder.rglob("locomo*/*.json"), *folder.rglob("locomo*.json")]):
        data = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(data, list) and data and "conversation" in data[0] and "qa" in data[0]:
            return data
    return []


def read_sessions(conversation: dict[str, Any]) -> dict[str, list[tuple[str, Utterance]]]:
    """Utterances with their dialogue ids, by session."""
    sessions: dict[str, list[tuple[str, Utterance]]] = {}
    names = sorted((key for key in conversation if re.fullmatch(r"session_\d+", key)), key=lambda key: int(key[8:]))
    for number, name in enumerate(names):
        said_at = _parse_date(conversation.get(f"{name}_date_time", "")) or datetime(
            2023, 1, 1, tzinfo=UTC
        ) + timedelta(days=number)
        sessions[name] = [
            (
                turn["dia_id"],
                Utterance(message_id=turn["dia_id"], speaker=turn["speaker"], text=turn["text"], said_at=said_at),
            )
            for turn in conversation[name]
        ]
    return sessions


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--conversations", type=int, default=None)
    parser.add_argument("--embeddings", default="local")
    arguments = parser.parse_args()
    conversations = find_conversations(arguments.folder) if arguments.folder.is_dir() else []
    if not conversations:
        print(f"no LoCoMo data below {str(arguments.folder)!r}: nothing was measured", file=sys.stderr)
        return 2
    shares: dict[str, list[float]] = defaultdict(list)
    seconds = 0.0
    with open_memory(":memory:", embeddings=arguments.embeddings) as opened:
        index = EpisodeIndex(LongTermMemory(opened.store, redactor=None))
        for number, conversation in enumerate(conversations[: arguments.conversations]):
            scope = MemoryScope(user=f"conversation-{number}")
            for name, turns in read_sessions(conversation["conversation"]).items():
                index.index_thread(scope, f"{number}-{name}", [utterance for _, utterance in turns])
            for question in conversation["qa"]:
                gold = set(question.get("evidence") or ())
                if not gold or question.get("category") not in CATEGORIES:
                    continue
                started = time.perf_counter()
                found = index.search(scope, question["question"], top_k=TOP_K)
                seconds += time.perf_counter() - started
                ids = {episode.utterance.message_id for episode in found.episodes}
                share = len(gold & ids) / len(gold)
                shares[CATEGORIES[question["category"]]].append(share)
                shares["all"].append(share)
    for name, values in sorted(shares.items()):
        print(f"{name:12} recall_at_{TOP_K} {100 * sum(values) / len(values):5.1f}  questions {len(values)}")
    print(f"seconds per question {seconds / max(1, len(shares['all'])):.4f}")
    return 0


def _parse_date(text: str) -> datetime | None:
    match = re.search(r"(\d{1,2}) (\w+),? (\d{4})", text)
    if match is None:
        return None
    try:
        return datetime.strptime(" ".join(match.groups()), "%d %B %Y").replace(tzinfo=UTC)
    except ValueError:
        return None


if __name__ == "__main__":
    sys.exit(main())
