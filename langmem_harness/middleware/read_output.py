"""`read_tool_output`: the way back from a handle to the raw text, in pages or around matches.

The tool takes no scope: thread and owner come from the runtime. Its own answers are never shortened or stored, because
they are pages of bounded size already. Untrusted text is screened and delimited again on every page.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, cast

from langchain.tools import ToolRuntime
from langchain_core.messages import ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.store.base import BaseStore, Item
from pydantic import BeforeValidator, Field

from langmem_harness.driving import Ask, Body, adrive, computed, drive
from langmem_harness.events import ContentScreened, EventCallback, emit
from langmem_harness.memory.scope import thread_from_config
from langmem_harness.middleware.raw_outputs import (
    OutputPlace,
    RawOutput,
    output_place,
    parse_handle,
    parse_item,
    read_operation,
)
from langmem_harness.screening import delimit, screen_part

READ_TOOL_OUTPUT = "read_tool_output"
LARGEST_PAGE = 16_000
"""Characters of one page, about 4,000 tokens of English: reading must not fill the window that shortening kept free."""
LONGEST_PATTERN = 500
SEARCH_SECONDS = 2.0
"""How long one search may take; matching is linear in the text, so only very long texts come near it."""
CONTEXT_LINES = 2
LONGEST_LINE = 400
"""Characters shown of a line around a match; a longer one is shown around the match."""

NOT_FOUND = (
    "No stored tool output has this handle in this conversation. Handles look like out_ followed by twelve letters or "
    "digits and stand in the shortened tool results of this conversation; copy one exactly. If the output is no longer "
    "kept, call the tool again."
)

_DESCRIPTION = (
    "Read the full output of an earlier tool call that was shortened to save space. Give the handle from the shortened "
    "result. Without a pattern it returns `limit` characters from `offset` on and the next offset. With a pattern (a "
    "regular expression in RE2 syntax; (?i) ignores case) it returns the matching lines from `offset` on with the "
    "lines around them."
)


class ReadToolOutput(StructuredTool):
    """The class tells the middleware which tool is its own: a name could be taken by any server."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """What one call returns.

    Attributes:
        heading: Which part it is and where to go on; our words.
        body: The part.
        findings: What was neutralised in it, by rule.
    """

    heading: str
    body: str
    findings: dict[str, int]


def create_read_tool_output_tool(
    *,
    find_store: Callable[[BaseStore | None], BaseStore | None],
    clock: Callable[[], datetime],
    on_event: EventCallback | None = None,
) -> ReadToolOutput:
    """The tool ``read_tool_output(handle, offset=0, limit=4000, pattern=None)``.

    Args:
        find_store: Gets the store of the runtime, gives the one outputs are in, or None.
        clock: The current time, aware UTC.
        on_event: Gets an event when something was neutralised.
    """

    def body(
        handle: str, offset: int, limit: int, pattern: str | None, runtime: ToolRuntime[Any, Any]
    ) -> Body[ToolMessage]:
        def answer(text: str, *, failed: bool = False) -> ToolMessage:
            return ToolMessage(
                content=text,
                name=READ_TOOL_OUTPUT,
                tool_call_id=runtime.tool_call_id or "",
                status="error" if failed else "success",
            )

        store, key = find_store(runtime.store), parse_handle(handle)
        place = output_place(runtime.context, runtime.config)
        raw = None
        if store is not None and place is not None and key is not None:
            raw = yield from _fetch(store, place, key, clock())
        if raw is None:
            return answer(NOT_FOUND, failed=True)
        try:
            page: Page = yield computed(
                lambda: (
                    find_lines(raw, pattern, offset=offset, limit=limit)
                    if pattern
                    else read_page(raw, offset=offset, limit=limit)
                )
            )
        except PatternError as error:
            return answer(str(error), failed=True)
        if page.findings:
            thread_id = thread_from_config(runtime.config)
            emit(ContentScreened(source=READ_TOOL_OUTPUT, findings=page.findings, thread_id=thread_id), on_event)
        return answer(f"{page.heading}\n{page.body}")

    def read(
        handle: Annotated[str, BeforeValidator(str), Field(description="From the shortened result.")],
        runtime: ToolRuntime[Any, Any],
        offset: Annotated[int, Field(ge=0, description="First character.")] = 0,
        limit: Annotated[int, Field(ge=1, description=f"Characters to return, at most {LARGEST_PAGE}.")] = 4_000,
        pattern: Annotated[str | None, Field(description="Only lines around matches of this.")] = None,
    ) -> ToolMessage:
        return drive(body(handle, offset, limit, pattern, runtime))

    async def aread(
        handle: Annotated[str, BeforeValidator(str)],
        runtime: ToolRuntime[Any, Any],
        offset: int = 0,
        limit: int = 4_000,
        pattern: str | None = None,
    ) -> ToolMessage:
        return await adrive(body(handle, offset, limit, pattern, runtime))

    tool = ReadToolOutput.from_function(
        func=read,
        coroutine=aread,
        name=READ_TOOL_OUTPUT,
        description=_DESCRIPTION,
        metadata={"safe_to_repeat": True},  # for durable turns: it only reads
    )
    return cast(ReadToolOutput, tool)  # from_function builds the class it is called on


class PatternError(ValueError):
    """A pattern that cannot be searched with; the message tells the model what to do."""


def read_page(raw: RawOutput, *, offset: int, limit: int) -> Page:
    """Characters ``[offset, offset + limit)``; pages put together in order are the whole text."""
    total = len(raw.text)
    start = min(offset, total)
    end = min(total, start + min(limit, LARGEST_PAGE))
    following = f"next offset: {end}" if end < total else "this is the end"
    body, findings = _guarded(raw, start, end)
    return Page(heading=f"Characters {start} to {end} of {total}; {following}.", body=body, findings=findings)


def find_lines(raw: RawOutput, pattern: str, *, offset: int, limit: int) -> Page:
    """Lines from `offset` on that match, with the lines around them, each with its offset, up to `limit` characters.

    Raises:
        PatternError: The pattern is no RE2 expression or too long, or the search took too long.
    """
    shown: list[str] = []
    findings: dict[str, int] = {}
    left = min(limit, LARGEST_PAGE)
    matches = 0
    next_offset: int | None = None
    covered = -1
    for line_start, line_end, match_start in _matching_lines(raw.text, pattern, offset):
        start, end = _around(raw.text, line_start, line_end, match_start)
        start = max(start, covered)
        if end > start:
            if end - start > left and matches:
                next_offset = line_start
                break
            end = min(end, start + max(left, 1))
            part, found = _screened(raw, start, end)
            shown.append(f"[offset {start}]\n{part}" if start > covered or covered < 0 else part)
            findings = {rule: findings.get(rule, 0) + found.get(rule, 0) for rule in {*findings, *found}}
            left -= end - start
            covered = end
        matches += 1
    if not matches:
        return Page(heading=f"No line from offset {offset} on matches.", body="", findings={})
    following = f"more from offset {next_offset}" if next_offset is not None else "no more after these"
    body = "\n".join(shown)
    return Page(
        heading=f"{matches} matching line{'s' if matches > 1 else ''} with context; {following}.",
        body=body if raw.trusted else delimit(body, label="tool output", source=raw.tool),
        findings=findings,
    )


def _fetch(store: BaseStore, place: OutputPlace, handle: str, now: datetime) -> Body[RawOutput | None]:
    operation = read_operation(place, handle)

    async def aget() -> list[Any]:
        return await store.abatch([operation])

    results: list[Item | None] = yield Ask(do=lambda: store.batch([operation]), ado=aget)
    return parse_item(results[0], place, now=now)


def _matching_lines(text: str, pattern: str, offset: int) -> Iterator[tuple[int, int, int]]:
    """Start and end of every line from `offset` on that matches, and where its first match starts."""
    import re2

    if len(pattern) > LONGEST_PATTERN:
        raise PatternError(f"The pattern is longer than {LONGEST_PATTERN} characters; use a shorter one.")
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except (re2.error, UnicodeError) as error:
        raise PatternError(
            "The pattern is not a regular expression in RE2 syntax (no look-around, no back-references, repetitions up "
            "to 1000); use a simpler one or plain words."
        ) from error
    deadline = time.monotonic() + SEARCH_SECONDS
    start = text.rfind("\n", 0, offset) + 1 if offset < len(text) else len(text)
    for count, line in enumerate(text[start:].split("\n")):
        if count % 256 == 0 and time.monotonic() > deadline:
            raise PatternError(f"The search took too long; go on from offset={start} or use a simpler pattern.")
        match = compiled.search(line.encode("utf-8", "replace").decode("utf-8")) if line else None
        if match:
            yield start, start + len(line), start + match.start()
        start += len(line) + 1


def _around(text: str, line_start: int, line_end: int, match_start: int) -> tuple[int, int]:
    """The stretch to show for a match: whole lines around it, or a part of a very long line."""
    start, end = line_start, line_end
    if end - start > LONGEST_LINE:
        start = max(start, match_start - LONGEST_LINE // 4)
        return start, min(end, start + LONGEST_LINE)
    for _ in range(CONTEXT_LINES):
        before = text.rfind("\n", 0, max(0, start - 1)) + 1
        start = before if start and start - before <= LONGEST_LINE else start
        after = text.find("\n", end + 1)
        after = len(text) if after < 0 else after
        end = after if end < len(text) and after - end <= LONGEST_LINE else end
    return start, end


def _guarded(raw: RawOutput, start: int, end: int) -> tuple[str, dict[str, int]]:
    part, findings = _screened(raw, start, end)
    return part if raw.trusted else delimit(part, label="tool output", source=raw.tool), findings


def _screened(raw: RawOutput, start: int, end: int) -> tuple[str, dict[str, int]]:
    if raw.trusted:
        return raw.text[start:end], {}
    result = screen_part(raw.text, start, end)
    return result.text, dict(result.counts)
