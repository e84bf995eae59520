"""Makes a group of a broken history legal, in a copy. Pure.

Histories break: a run is stopped between a call and its result, a provider returns nothing, two branches are glued
together. The thread stays as it is; what the model sees is put right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage

from langmem_harness.window.messages import TAG_KEY, calls_of, is_blank, role_of

MISSING_RESULT_TEXT = (
    "The outcome of this call is unknown: no result was recorded. Check whether it took effect before you repeat it."
)
EMPTY_TEXT = "(empty)"
OPENING_TEXT = "(The conversation begins with the assistant's message.)"


def repair_group(members: Sequence[BaseMessage], repairs: Counter[str]) -> list[BaseMessage]:
    """The messages of one group in an order every provider takes: each call directly followed by its result.

    Args:
        members: A human message, or assistant messages and all results that belong to their calls, in stored order.
        repairs: Counts what was done: ``"missing_result"`` (an error result was put in) and ``"empty_content"``.
    """
    results = [member for member in members if role_of(member) == "tool"]
    repaired: list[BaseMessage] = []
    for member in members:
        if role_of(member) == "tool":
            continue
        repaired.append(_with_content(member, repairs))
        for call_id, name in calls_of(member):
            found = next((result for result in results if result_id(result) == call_id), None)
            if found is None:
                repairs["missing_result"] += 1
                repaired.append(missing_result(call_id, name))
            else:
                results = [result for result in results if result is not found]
                repaired.append(_with_content(found, repairs))
    return repaired


def result_id(message: BaseMessage) -> str:
    """The id of the call a result answers; ``""`` when it names none."""
    return message.tool_call_id if isinstance(message, ToolMessage) else ""


def missing_result(call_id: str, name: str) -> ToolMessage:
    """An error result for a call that has none: the same message every time."""
    return ToolMessage(
        MISSING_RESULT_TEXT,
        tool_call_id=call_id,
        name=name or None,
        status="error",
        additional_kwargs={TAG_KEY: {"kind": "repair"}},
    )


def opening_message() -> HumanMessage:
    """What goes in front of a history that begins with the assistant: providers want a human message first."""
    return HumanMessage(OPENING_TEXT, additional_kwargs={TAG_KEY: {"kind": "repair"}})


def _with_content(message: BaseMessage, repairs: Counter[str]) -> BaseMessage:
    if not is_blank(message) or calls_of(message):
        return message
    repairs["empty_content"] += 1
    return message.model_copy(update={"content": EMPTY_TEXT})
