"""Structured answers of an agent in the thread log: as plain JSON, and back as what its response format says. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from langchain.agents.structured_output import ToolStrategy
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from langmem_harness.errors import RecordError
from langmem_harness.threads.events import write_body

STRUCTURED_KEY = "structured"
"""Of the body of a model answer: the structured answer; True in place of one that has no JSON form."""


def structured_value(answer: Any) -> Any:
    """The stored form of a structured answer: ``{"schema": <name of its type>, "value": <plain JSON>}``.

    Returns:
        True for an answer without a JSON form: then it is known that there was one.
    """
    try:
        stored = {"schema": type(answer).__name__, "value": to_jsonable_python(answer)}
        write_body(stored)
    except (PydanticSerializationError, RecordError):
        return True
    return stored


def structured_answer(stored: Any, response_format: Any) -> Any:
    """The structured answer in its stored form, as an instance of the type the agent's response format names.

    Args:
        stored: What `structured_value` gave.
        response_format: The agent's: a strategy of LangChain, or None.

    Returns:
        None when it was not kept, or does not fit the response format (any more).
    """
    schema = getattr(response_format, "schema", None)
    if not isinstance(stored, Mapping) or schema is None:
        return None
    specs = ToolStrategy(schema=schema).schema_specs  # the members of a union, one by one
    for spec in sorted(specs, key=lambda spec: spec.name != stored.get("schema")):
        value = json.loads(write_body({"value": stored.get("value")}))["value"]
        if isinstance(spec.schema, dict):  # a JSON schema: LangChain gives the object as it came
            return value
        try:
            return TypeAdapter(spec.schema).validate_python(value)
        except ValidationError:
            continue
    return None
