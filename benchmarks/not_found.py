"""A key of another tenant beside a key of nobody: the time both answers take.

    python -m benchmarks not_found [-- --rounds 5000]

The work is the same by construction (the tests compare the statements); this shows that nothing else tells them apart.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from langmem_harness.errors import NotFoundError
from langmem_harness.memory import LongTermMemory, MemoryScope
from langmem_harness.store import FaissStore

ASKING = MemoryScope(tenant="one", user="ada")
OTHER = MemoryScope(tenant="two", user="ada")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5_000)
    parser.add_argument("--memories", type=int, default=200, help="memories of each tenant")
    options = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory() as folder,
        FaissStore(Path(folder) / "memory.sqlite", retrieval="keyword") as store,
    ):
        memory = LongTermMemory(store)
        keys = []
        for number in range(options.memories):
            memory.upsert(ASKING, f"Note {number} of the asking tenant.", explicit=True)
            written = memory.upsert(OTHER, f"Note {number} of the other tenant.", explicit=True)
            assert written.record is not None
            keys.append(written.record.key)
        chance = random.Random(7)
        unknown = ["m" + "".join(chance.choices("abcdefghijklmnopqrstuvwxyz234567", k=13)) for _ in keys]
        print("| call | another tenant's key, median | nobody's key, median | ratio |\n|---|---|---|---|")
        for method in ("get", "history", "delete"):
            foreign, nobodys = [], []
            for _ in range(options.rounds):  # in turn, so that whatever else runs weighs on both
                foreign.append(_seconds(memory, method, chance.choice(keys)))
                nobodys.append(_seconds(memory, method, chance.choice(unknown)))
            one, other = median(foreign), median(nobodys)
            print(f"| `{method}` | {one * 1e6:.1f} µs | {other * 1e6:.1f} µs | {one / other:.3f} |")
    return 0


def _seconds(memory: LongTermMemory, method: str, key: str) -> float:
    started = time.perf_counter()
    try:
        getattr(memory, method)(ASKING, key)
    except NotFoundError:
        return time.perf_counter() - started
    raise AssertionError("a key of nobody was found")


if __name__ == "__main__":
    raise SystemExit(main())
