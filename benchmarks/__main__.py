"""Runs the measurements named on the command line, or all: ``python -m benchmarks [NAME ...] [-- ARGUMENTS]``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

NAMES = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_"))


def main(arguments: list[str]) -> int:
    names, extra = arguments, []
    if "--" in arguments:
        split = arguments.index("--")
        names, extra = arguments[:split], arguments[split + 1 :]
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"unknown: {', '.join(unknown)}; known: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    for name in names or NAMES:
        print(f"\n# {name}\n", flush=True)
        importlib.import_module(f"benchmarks.{name}").main(extra)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
