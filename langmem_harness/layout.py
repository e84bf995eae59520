"""Where this package keeps things inside a LangGraph store: every namespace it uses, in one place.

Labels of a LangGraph namespace may not be empty, contain ``"."`` or be ``"langgraph"`` at the root, but user and thread
ids may be anything: `encode_label` makes a label of any text, one to one.

    ("memories", tenant, user, agent)          long-term memories; agent is "-" when it is not set
    ("episodes", tenant, user, agent)          completed turns of earlier threads
    ("knowledge", tenant, name)                shared documents
    ("threads", thread, "summaries")           summary records of a thread
    ("threads", thread, "tool_outputs")        raw tool results of a thread
    ("threads", thread, "memories")            which memories cite this thread
    ("threads", thread, "episodes")            which episodes are of this thread
    ("threads", thread, "promotion")           which of its messages were considered for memory
    ("idle_threads",)                          threads that wait for their promotion; never indexed
    ("episode_speakers", tenant, user, agent)  who speaks in which thread of the episodes; never indexed
    ("memory_versions", tenant, user, agent)   superseded versions of memories; never indexed
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from langmem_harness.errors import IdentityError

MEMORIES = "memories"
MEMORY_VERSIONS = "memory_versions"
EPISODES = "episodes"
EPISODE_SPEAKERS = "episode_speakers"
KNOWLEDGE = "knowledge"
THREADS = "threads"
NO_AGENT = "-"
IDLE_THREADS_NAMESPACE = ("idle_threads",)

_UNSAFE = re.compile(r"[^A-Za-z0-9_@:+-]|^-$")


def encode_label(text: str) -> str:
    """A namespace label for any non-blank text, reversible with `decode_label`; different texts give different labels.

    Raises:
        IdentityError: The text is empty or only white space.
    """
    if not isinstance(text, str) or not text.strip():
        raise IdentityError(f"an id must be a text that is not blank, not {text!r}")
    encoded = _UNSAFE.sub(lambda match: _percent(match.group()), text)
    return encoded if encoded.lower() != "langgraph" else _percent(encoded[0]) + encoded[1:]


def decode_label(label: str) -> str:
    """The text a label was made from."""
    return unquote(label, errors="surrogatepass")


def _percent(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))


def thread_namespace(thread_id: str, *path: str) -> tuple[str, ...]:
    """Namespace of everything kept for one thread; `path` goes below it."""
    return (THREADS, encode_label(thread_id), *path)


def summaries_namespace(thread_id: str) -> tuple[str, ...]:
    """Namespace of the summary records of one thread."""
    return thread_namespace(thread_id, "summaries")


def tool_outputs_namespace(thread_id: str) -> tuple[str, ...]:
    """Namespace of the raw tool results of one thread."""
    return thread_namespace(thread_id, "tool_outputs")


def memory_links_namespace(thread_id: str) -> tuple[str, ...]:
    """Namespace of the links from one thread to the memories and episodes that cite it."""
    return thread_namespace(thread_id, "memories")


def episode_links_namespace(thread_id: str) -> tuple[str, ...]:
    """Namespace of the links from one thread to the episodes made of it."""
    return thread_namespace(thread_id, "episodes")


def promotion_namespace(thread_id: str) -> tuple[str, ...]:
    """Namespace of what was read of one thread for promotion."""
    return thread_namespace(thread_id, "promotion")


def scope_namespace(root: str, tenant: str, user: str, agent: str | None) -> tuple[str, ...]:
    """Namespace below `root` for one tenant, user and agent (None: not tied to an agent)."""
    return (root, encode_label(tenant), encode_label(user), NO_AGENT if agent is None else encode_label(agent))
