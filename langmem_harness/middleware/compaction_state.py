"""What compaction keeps in the graph state: summary records by id, invisible from outside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NotRequired

from langchain.agents.middleware import AgentState
from langchain.agents.middleware.types import PrivateStateAttr

MAX_RECORDS = 16
"""How many records a thread's state carries; older ones are only in the store."""

Records = Mapping[str, Mapping[str, Any]]


def merge_records(known: Records | None, added: Records | None) -> dict[str, Mapping[str, Any]]:
    """Reducer: records of both sides by id, so that parallel branches and several middlewares do not overwrite each
    other; the newest `MAX_RECORDS` stay."""
    merged = {**(known or {}), **(added or {})}
    return dict(list(merged.items())[-MAX_RECORDS:])


def merge_windows(known: Records | None, added: Records | None) -> dict[str, Mapping[str, Any]]:
    """Reducer: the newest window of each middleware by its name."""
    return {**(known or {}), **(added or {})}


class CompactionState(AgentState[Any]):
    """State of an agent that compacts: plain JSON, left out of input and output.

    LangGraph takes a reducer only from the last place of an annotation.
    """

    compaction_records: NotRequired[Annotated[dict[str, Mapping[str, Any]], PrivateStateAttr, merge_records]]
    compaction_windows: NotRequired[Annotated[dict[str, Mapping[str, Any]], PrivateStateAttr, merge_windows]]
