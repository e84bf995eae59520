"""Long-term memory over any LangGraph store: scoped to one owner, filled by rules, recalled as data."""

from langmem_harness.memory.scope import MemoryContext, MemoryScope, scope_from_runtime

__all__ = ["MemoryContext", "MemoryScope", "scope_from_runtime"]
