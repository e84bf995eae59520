"""Instructions inside data: found by rules, neutralised visibly, kept in labelled blocks."""

from langmem_harness.screening.delimit import delimit
from langmem_harness.screening.screen import Finding, ScreeningResult, screen_part, screen_text

__all__ = ["Finding", "ScreeningResult", "delimit", "screen_part", "screen_text"]
