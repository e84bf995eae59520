"""Memory for LangChain and LangGraph agents that can be trusted."""

from langmem_harness._version import __version__

__all__ = ["__version__"]
