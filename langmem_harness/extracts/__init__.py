"""Short texts that show what a long tool output is, made by code alone."""

from langmem_harness.extracts.kinds import extract
from langmem_harness.extracts.pieces import Extract

__all__ = ["Extract", "extract"]
