"""The payment example does what it says."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "payment_survives_kill.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=60)


def test_the_payment_is_made_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(tmp_path), "dies").returncode == -9
    example = runpy.run_path(str(SCRIPT))
    for model_calls in (2, 0):
        example["run_turn"](tmp_path, dies=False)
        out = capsys.readouterr().out
        assert "Invoice A-17 is paid: 250 euros, once." in out
        assert f"model calls in this process: {model_calls}; log intact: True" in out
    assert (tmp_path / "bank_ledger.txt").read_text() == "A-17: 250 euros\n"


@pytest.mark.slow
def test_the_whole_script_says_so() -> None:
    done = run()
    assert done.returncode == 0, done.stderr
    assert "(exit code -9)" in done.stdout
    assert done.stdout.count("Invoice A-17 is paid: 250 euros, once.") == 2
    assert "model calls in this process: 0" in done.stdout
    assert "Payments in the bank's ledger: 1 (A-17: 250 euros)" in done.stdout
