"""Secrets and personal data, taken out of text before it is stored, embedded, summarized or recalled. Pure."""

from langmem_harness.redaction.detectors import Detector, Finding, FunctionDetector, PatternDetector
from langmem_harness.redaction.patterns import DEFAULT_DETECTORS
from langmem_harness.redaction.presidio import PresidioDetector
from langmem_harness.redaction.redactor import Redaction, RedactionPolicy, Redactor

__all__ = [
    "DEFAULT_DETECTORS",
    "Detector",
    "Finding",
    "FunctionDetector",
    "PatternDetector",
    "PresidioDetector",
    "Redaction",
    "RedactionPolicy",
    "Redactor",
]
