"""The asked figures: what is found of generated values, and what of ordinary lines is left alone."""

from __future__ import annotations

import pytest

from benchmarks import redaction as benchmark
from langmem_harness.redaction import Redactor


def test_every_kind_is_found_in_ninety_five_of_a_hundred(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "VALUES_A_KIND", 60)
    rows = benchmark.measure_recall(Redactor())
    assert len(rows) >= 20
    assert {kind: share for kind, share in rows if share < 0.95} == {}


def test_a_detector_that_is_missing_shows() -> None:
    only = [detector for detector in Redactor()._detectors if "email" not in detector.kinds]
    assert dict(benchmark.measure_recall(Redactor(detectors=only)))["email"] < 0.95


@pytest.mark.slow
def test_real_lines_are_left_alone() -> None:
    if not benchmark.DATA.is_dir():
        pytest.skip(f"the real logs and dialogues are not here: {benchmark.DATA}")
    lines = benchmark.lines_of(benchmark.DATA, benchmark.REAL_TEXTS, limit=50_000)
    total, touched, kinds = benchmark.measure_false_positives(benchmark.MACHINES_ALLOWED, lines)
    assert total > 1_000
    assert touched / total < 0.005, kinds
