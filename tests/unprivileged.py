"""Runs a script that obeys the rights of files, also when the tests run as root."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

_DROP_FROM_BOUNDING_SET = 24
_OVERRIDING = (1, 2)  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
_ROOT = Path(__file__).parents[1]


def run_unprivileged(script: str, *arguments: str | os.PathLike[str]) -> str:
    """What the script printed; it must end well. Its arguments are ``sys.argv[1:]``."""
    done = subprocess.run(
        [sys.executable, "-c", script, *map(os.fspath, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=_ROOT,
        preexec_fn=_drop if os.geteuid() == 0 else None,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _drop() -> None:
    library = ctypes.CDLL(None, use_errno=True)
    for capability in _OVERRIDING:
        if library.prctl(_DROP_FROM_BOUNDING_SET, capability, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "root cannot give up its rights here")
