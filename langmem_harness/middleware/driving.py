"""How hooks are driven: see `langmem_harness.driving`, which every room uses."""

from langmem_harness.driving import Ask, Body, adrive, computed, drive, immediate

__all__ = ["Ask", "Body", "adrive", "computed", "drive", "immediate"]
