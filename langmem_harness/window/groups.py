"""Groups: what is kept or left out as one. Repair of broken histories. Pure.

A group is a human message, or an AI message together with all results of all its tool calls. `repair_history` makes
every group legal in a copy; a history that is whole comes back as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from langmem_harness.window.messages import TAG_KEY, is_tagged

MISSING_RESULT_TEXT = (
    "The outcome of this call is unknown: no result was recorded. Check whether it took effect before you repeat it."
)
EMPTY_TEXT = "(empty)"
OPENING_TEXT = "(The conversation begins with the assistant's message.)"

_CALL_BLOCKS = frozenset({"tool_use", "function_call", "tool_call"})
"""Content blocks that are calls for us to answer. Server-side tools (``server_tool_use``, ``web_search_call``, ...) are
answered by the provider inside the same message and need nothing from us."""


@dataclass(frozen=True, kw_only=True)
class RepairedHistory:
    """A history in which every call has its results directly behind it and every result its call.

    Attributes:
        messages: The messages; the very objects of the input where nothing had to change.
        repairs: Number of repairs by kind: ``"missing_result"`` (an error result was put in), ``"orphan_result"`` and
            ``"duplicate_result"`` (left out of the request), ``"moved_result"``, ``"empty_message"``,
            ``"system_in_the_middle"`` (shown as a human note), ``"missing_opening"``, ``"stray_marker"``.
    """

    messages: Sequence[BaseMessage]
    repairs: Mapping[str, int]


def call_ids(message: BaseMessage) -> list[str]:
    """Ids of the tool calls of a message that need a result from us, in order, from `tool_calls` and content blocks."""
    if not isinstance(message, AIMessage):
        return []
    ids = [call["id"] for call in message.tool_calls if call["id"]]
    ids += [call["id"] for call in message.invalid_tool_calls if call.get("id")]  # type: ignore[misc]
    if isinstance(message.content, list):
        for block in message.content:
            if isinstance(block, Mapping) and block.get("type") in _CALL_BLOCKS:
                block_id = block.get("call_id") or block.get("id")
                if isinstance(block_id, str) and block_id:
                    ids.append(block_id)
    return list(dict.fromkeys(ids))


def is_empty(content: str | Sequence[Any]) -> bool:
    """Whether a content says nothing: no text but white space, no other block."""
    if isinstance(content, str):
        return not content.strip()
    return all(
        (isinstance(block, str) and not block.strip())
        or (isinstance(block, Mapping) and block.get("type") == "text" and not str(block.get("text") or "").strip())
        for block in content
    )


def repair_history(messages: Sequence[BaseMessage]) -> RepairedHistory:
    """Make a history legal for every provider, in a copy. The input and its messages are not changed."""
    if _is_whole(messages):
        return RepairedHistory(messages=messages, repairs={})
    repairs: Counter[str] = Counter()
    repaired: list[BaseMessage] = []
    used: set[int] = set()
    results = _results_by_call(messages)
    for position, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            if position not in used:
                repairs["duplicate_result" if results.get(message.tool_call_id) == [] else "orphan_result"] += 1
            continue
        kept = _repair_message(message, is_first=position == 0 or _only_system(repaired), repairs=repairs)
        if kept is None:
            continue
        repaired.append(kept)
        expected = position + 1
        for call_id in call_ids(message):
            found = next((where for where in results.get(call_id, ()) if where > position), None)
            if found is None:
                repairs["missing_result"] += 1
                repaired.append(_missing_result(call_id, message))
                continue
            results[call_id].remove(found)
            if any(not isinstance(between, ToolMessage) for between in messages[expected:found]):
                repairs["moved_result"] += 1
            used.add(found)
            result = messages[found]
            if is_empty(result.content):
                repairs["empty_message"] += 1
                result = result.model_copy(update={"content": EMPTY_TEXT})
            repaired.append(result)
    opening = next((index for index, message in enumerate(repaired) if not isinstance(message, SystemMessage)), None)
    if opening is not None and not isinstance(repaired[opening], HumanMessage):
        repairs["missing_opening"] += 1
        repaired.insert(opening, HumanMessage(OPENING_TEXT, additional_kwargs={TAG_KEY: {"kind": "repair"}}))
    return RepairedHistory(messages=repaired, repairs=dict(repairs))


def _is_whole(messages: Sequence[BaseMessage]) -> bool:
    """The common case, in one cheap pass: nothing to repair."""
    expected: list[str] = []
    opened = False
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in expected or not message.content:
                return False
            expected.remove(message.tool_call_id)
            continue
        if expected:
            return False
        if isinstance(message, SystemMessage):
            if opened:
                return False
            continue
        if not opened:
            if not isinstance(message, HumanMessage):
                return False
            opened = True
        if isinstance(message, AIMessage):
            if message.tool_calls or message.invalid_tool_calls or type(message.content) is not str:
                expected = call_ids(message)
            if not expected and is_empty(message.content):
                return False
        elif (
            not message.content
            or is_tagged(message, "marker")
            or (isinstance(message.content, str) and message.content.isspace())
        ):
            return False
    return not expected


def _results_by_call(messages: Sequence[BaseMessage]) -> dict[str, list[int]]:
    results: dict[str, list[int]] = {}
    calls = {call_id for message in messages for call_id in call_ids(message)}
    for position, message in enumerate(messages):
        if isinstance(message, ToolMessage) and message.tool_call_id in calls:
            results.setdefault(message.tool_call_id, []).append(position)
    return results


def _only_system(messages: Sequence[BaseMessage]) -> bool:
    return all(isinstance(message, SystemMessage) for message in messages)


def _repair_message(message: BaseMessage, *, is_first: bool, repairs: Counter[str]) -> BaseMessage | None:
    if isinstance(message, SystemMessage) and not is_first:
        repairs["system_in_the_middle"] += 1
        return HumanMessage(message.content, id=message.id, additional_kwargs={TAG_KEY: {"kind": "repair"}})
    if is_tagged(message, "marker"):  # from a request that somebody stored: ordinary text, never a second marker
        repairs["stray_marker"] += 1
        kwargs = {key: value for key, value in message.additional_kwargs.items() if key != TAG_KEY}
        message = message.model_copy(update={"additional_kwargs": kwargs})
    if not is_empty(message.content) or call_ids(message):
        return message
    repairs["empty_message"] += 1
    if isinstance(message, AIMessage | SystemMessage):
        return None
    return message.model_copy(update={"content": EMPTY_TEXT})


def _missing_result(call_id: str, caller: BaseMessage) -> ToolMessage:
    names = {call["id"]: call["name"] for call in caller.tool_calls} if isinstance(caller, AIMessage) else {}
    return ToolMessage(
        MISSING_RESULT_TEXT,
        tool_call_id=call_id,
        name=names.get(call_id),
        status="error",
        additional_kwargs={TAG_KEY: {"kind": "repair"}},
    )


@dataclass(frozen=True)
class Groups:
    """The groups of a legal history, as running totals: entry ``g`` is what lies before group ``g``.

    Attributes:
        starts: Index of each group's first message, and the number of messages at the end.
        tokens: Tokens before each group, and the total at the end.
        human: Indexes of the groups that are human messages, ascending.
        pinned: Indexes of the groups that always stay, ascending.
        preamble: Number of leading groups that are system messages; they always stay.
    """

    starts: Sequence[int]
    tokens: Sequence[int]
    human: Sequence[int]
    pinned: Sequence[int]
    preamble: int

    def __len__(self) -> int:
        return len(self.starts) - 1


def split_groups(
    messages: Sequence[BaseMessage], token_counts: Sequence[int], pin: Callable[[BaseMessage], bool] | None = None
) -> Groups:
    """Split a legal history into groups.

    Args:
        messages: A history as `repair_history` gives it.
        token_counts: Tokens of each message.
        pin: Says which messages always stay; their whole group stays.
    """
    starts: list[int] = []
    tokens: list[int] = []
    human: list[int] = []
    pinned: list[int] = []
    preamble = 0
    total = 0
    for position, message in enumerate(messages):
        kind = message.type
        if kind != "tool" or not starts:
            if kind == "human":
                human.append(len(starts))
            elif kind == "system" and preamble == len(starts):
                preamble += 1
            starts.append(position)
            tokens.append(total)
        if pin is not None and (not pinned or pinned[-1] != len(starts) - 1) and pin(message):
            pinned.append(len(starts) - 1)
        total += token_counts[position]
    return Groups(
        starts=[*starts, len(messages)], tokens=[*tokens, total], human=human, pinned=pinned, preamble=preamble
    )
