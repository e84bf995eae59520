"""What compaction keeps in the graph state: which records this branch of the thread uses, invisible from outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NotRequired

from langchain.agents import AgentState
from langchain.agents.middleware.types import PrivateStateAttr

MAX_RECORDS = 16
"""How many records a thread's state names or carries, for each middleware; the store has them all."""

Records = Mapping[str, Mapping[str, Any]]
References = Mapping[str, Sequence[str]]


def merge_records(known: Records | None, added: Records | None) -> dict[str, Mapping[str, Any]]:
    """Reducer: records of both sides by id, so that parallel branches and several middlewares do not overwrite each
    other; the newest `MAX_RECORDS` stay."""
    merged = {**(known or {}), **(added or {})}
    return dict(list(merged.items())[-MAX_RECORDS:])


def merge_references(known: References | None, added: References | None) -> dict[str, list[str]]:
    """Reducer: record ids of both sides for each middleware, each once, the newest last; `MAX_RECORDS` of them stay."""
    merged = {name: list(ids) for name, ids in (known or {}).items()}
    for name, ids in (added or {}).items():
        merged[name] = list(dict.fromkeys([*merged.get(name, ()), *ids]))[-MAX_RECORDS:]
    return merged


def merge_windows(known: Records | None, added: Records | None) -> dict[str, Mapping[str, Any]]:
    """Reducer: the newest window of each middleware by its name."""
    return {**(known or {}), **(added or {})}


def merge_limits(known: Mapping[str, int] | None, added: Mapping[str, int] | None) -> dict[str, int]:
    """Reducer: the lowest limit learned of each model."""
    merged = dict(known or {})
    for model, tokens in (added or {}).items():
        merged[model] = min(tokens, merged.get(model, tokens))
    return merged


class CompactionState(AgentState[Any]):
    """State of an agent that compacts: plain JSON, left out of input and output.

    With a store, records are in the store and only their ids are here; without one, the records themselves are.
    LangGraph takes a reducer only from the last place of an annotation.
    """

    compaction_records: NotRequired[Annotated[dict[str, Mapping[str, Any]], PrivateStateAttr, merge_records]]
    compaction_record_ids: NotRequired[Annotated[dict[str, list[str]], PrivateStateAttr, merge_references]]
    compaction_windows: NotRequired[Annotated[dict[str, Mapping[str, Any]], PrivateStateAttr, merge_windows]]
    compaction_limits: NotRequired[Annotated[dict[str, int], PrivateStateAttr, merge_limits]]
