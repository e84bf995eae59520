"""What a tool call may give back, whatever its shape: every tool message in it is rewritten, all else stays.

A tool node knows a message, a `Command` with messages in its update, and a list of both; an update is a mapping or
a plain list of messages, and a message in it may be a dictionary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.messages.utils import convert_to_messages
from langgraph.types import Command

from langmem_harness.driving import Body

Rewrite = Callable[[ToolMessage], Body[ToolMessage]]


def rewrite_result(result: Any, rewrite: Rewrite) -> Body[Any]:
    """The same shape with every tool message rewritten; nothing given is changed in place."""
    if isinstance(result, ToolMessage):
        return (yield from rewrite(result))
    if isinstance(result, Command):
        return (yield from _rewrite_command(result, rewrite))
    if isinstance(result, list):
        rewritten = []
        for part in result:
            rewritten.append((yield from rewrite_result(part, rewrite)))  # noqa: PERF401 - it yields
        return rewritten
    return result


def _rewrite_command(command: Command[Any], rewrite: Rewrite) -> Body[Command[Any]]:
    update = command.update
    if isinstance(update, Mapping):
        if "messages" not in update:
            return command
        messages = yield from _rewrite_messages(update["messages"], rewrite)
        return dataclasses.replace(command, update={**update, "messages": messages})
    if not isinstance(update, list | tuple) or not update:
        return command
    if any(isinstance(part, BaseMessage) for part in update):
        return dataclasses.replace(command, update=(yield from _rewrite_messages(list(update), rewrite)))
    return command


def _rewrite_messages(messages: Any, rewrite: Rewrite) -> Body[Any]:
    if not isinstance(messages, list | tuple):
        return (yield from _rewrite_message(messages, rewrite))
    rewritten = []
    for message in messages:
        rewritten.append((yield from _rewrite_message(message, rewrite)))  # noqa: PERF401 - it yields
    return rewritten


def _rewrite_message(message: Any, rewrite: Rewrite) -> Body[Any]:
    if isinstance(message, Mapping) and (message.get("role") or message.get("type")) == "tool":
        message = convert_to_messages([dict(message)])[0]
    return (yield from rewrite(message)) if isinstance(message, ToolMessage) else message
