"""The rules every provider agrees on, checked on a finished request. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from langchain_core.messages import BaseMessage, ToolMessage

from langmem_harness.window.messages import calls_of, is_blank, role_of

Rule = Literal[
    "result_without_call",
    "call_without_result",
    "result_not_after_call",
    "empty_content",
    "first_not_human",
    "system_not_first",
]


@dataclass(frozen=True, kw_only=True)
class RuleViolation:
    """One message of a request that a provider would refuse.

    Attributes:
        position: Index of the message in the request, from 0; for a call without its result, that of the call.
        rule: Which rule.
        call_id: The call or result it is about, if it is about one.
    """

    position: int
    rule: Rule
    call_id: str | None = None


def check_request(messages: Sequence[BaseMessage]) -> list[RuleViolation]:
    """Every violation of the providers' rules, by position; an empty list is a request that will be taken.

    The rules: results directly after the message that called, one for each call; no result without its call; no
    message without content (unless it calls tools); a human message first after the system prompt; system messages
    only at the start. The system prompt may be the first message or left out.
    """
    violations: list[RuleViolation] = []
    waiting: Counter[str] = Counter()  # calls of the last assistant message that still lack a result
    caller = -1
    ever_called: Counter[str] = Counter()
    conversation_began = False
    for position, message in enumerate(messages):
        role = role_of(message)
        if role != "tool" and waiting:
            violations += _unanswered(waiting, caller)
            waiting = Counter()
        if role == "system":
            if conversation_began:
                violations.append(RuleViolation(position=position, rule="system_not_first"))
        elif not conversation_began:
            conversation_began = True
            if role != "human":
                violations.append(RuleViolation(position=position, rule="first_not_human"))
        if role == "tool":
            call_id = message.tool_call_id if isinstance(message, ToolMessage) else ""
            if waiting[call_id] > 0:
                waiting[call_id] -= 1
                ever_called[call_id] -= 1
            else:
                late = ever_called[call_id] > 0
                rule: Rule = "result_not_after_call" if late else "result_without_call"
                violations.append(RuleViolation(position=position, rule=rule, call_id=call_id))
        calls = [call_id for call_id, _ in calls_of(message)]
        if calls:
            waiting, caller = Counter(calls), position
            ever_called.update(calls)
        elif is_blank(message):
            violations.append(RuleViolation(position=position, rule="empty_content"))
    violations += _unanswered(waiting, caller)
    return sorted(violations, key=lambda violation: violation.position)


def _unanswered(waiting: Counter[str], caller: int) -> list[RuleViolation]:
    return [
        RuleViolation(position=caller, rule="call_without_result", call_id=call_id) for call_id in waiting.elements()
    ]
