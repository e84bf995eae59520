"""The payment example does what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_payment_is_made_once() -> None:
    script = Path(__file__).parents[2] / "examples" / "payment_survives_kill.py"
    out = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=True).stdout
    assert "(exit code -9)" in out
    assert out.count("Invoice A-17 is paid: 250 euros, once.") == 2
    assert "model calls in this process: 0" in out
    assert "Payments in the bank's ledger: 1 (A-17: 250 euros)" in out
