"""Memories as files that people can read, edit and bring back. Pure."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from langmem_harness.errors import RecordError
from langmem_harness.memory.recall import date_text, json_line, source_text
from langmem_harness.memory.records import MemoryRecord, text_key, version_of
from langmem_harness.memory.scope import MemoryScope

_LISTED = re.compile(r"^<!-- listed (\[.*\]) -->$", re.MULTILINE)
_RECORD = re.compile(r"^<!-- memory (\{.*\}) -->$")
_HEADING = re.compile(r"^## +(.*)$")
_TITLE = re.compile(r"\A# Memories: (.*\S)")
_SUPERSEDED = "superseded"
_HELP = (
    "Edit the quoted text to change a memory. Delete a whole section to forget it. Add a section with a heading of "
    "your own and a quoted text to remember something new. Leave the comments as they are: they say where each memory "
    "is from."
)


@dataclass(frozen=True, kw_only=True)
class MemoryExport:
    """Memories of one scope with their histories, on their way out or in.

    Attributes:
        records: The current memories.
        versions: The statements they superseded, by key, newest first.
        listed: Keys that were in the file when it was written: one that has no record any more was deleted by hand.
            Empty for JSON lines, where a missing line means nothing.
    """

    records: tuple[MemoryRecord, ...]
    versions: tuple[MemoryRecord, ...] = ()
    listed: frozenset[str] = frozenset()

    def to_jsonl(self) -> str:
        """One record per line, superseded ones marked; nothing is lost, and lines can be added to other files."""
        lines = [record.to_dict() for record in self.records]
        lines += [{_SUPERSEDED: True, **version.to_dict()} for version in self.versions]
        return "".join(f"{json_line(line)}\n" for line in lines)

    @classmethod
    def from_jsonl(cls, text: str) -> Self:
        """The records of `to_jsonl`; blank lines are skipped.

        Raises:
            RecordError: A line that is not a record; says which.
        """
        records: list[MemoryRecord] = []
        versions: list[MemoryRecord] = []
        for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
            if line.strip():
                try:
                    values = json.loads(line)
                    record = MemoryRecord.from_dict(values)
                except (ValueError, RecursionError) as error:
                    raise RecordError(f"line {number} is not a memory record") from error
                (versions if values.get(_SUPERSEDED) is True else records).append(record)
        return cls(records=tuple(records), versions=tuple(versions))

    def to_markdown(self) -> dict[str, str]:
        """One page per kind by file name (``"preference.md"``); histories are listed, to be read only."""
        by_kind: dict[str, list[MemoryRecord]] = defaultdict(list)
        for record in self.records:
            by_kind[record.kind].append(record)
        earlier: dict[str, list[MemoryRecord]] = defaultdict(list)
        for version in self.versions:
            earlier[version.key].append(version)
        pages: dict[str, str] = {}
        taken: set[str] = set()
        for kind, records in sorted(by_kind.items()):
            stem = _file_stem(kind)
            while stem.casefold() in taken:  # kinds are any text, and some file systems know no case
                stem += "_"
            taken.add(stem.casefold())
            pages[f"{stem}.md"] = _render_page(kind, records, earlier)
        return pages

    @classmethod
    def from_markdown(cls, pages: Mapping[str, str], scope: MemoryScope, *, now: datetime) -> Self:
        """What the pages of `to_markdown` say now, after somebody edited them.

        Args:
            pages: Text by file name; the kind of a new section is that of the page's title, else the name without
                ``.md``.
            scope: Whose memories these are; that of the records is not trusted.
            now: Time of what is new or changed.

        Raises:
            RecordError: A comment that is not as it was written; says in which file and section.
        """
        records: list[MemoryRecord] = []
        listed: set[str] = set()
        for name, page in pages.items():
            page = page.removeprefix("\ufeff").replace("\r\n", "\n")
            if match := _LISTED.search(page):
                listed.update(_parse_listed(name, match.group(1)))
            title = _TITLE.match(page)
            records += _parse_page(name, title.group(1) if title else name.removesuffix(".md"), page, scope, now)
        return cls(records=tuple(records), listed=frozenset(listed))


@dataclass(frozen=True, kw_only=True)
class ImportReport:
    """What an import did.

    Attributes:
        added, edited, deleted: Keys written or removed.
        unchanged: Number of memories that were there already, or were superseded since.
        restored: Number of superseded statements that went into histories.
        refused: Number by reason.
    """

    added: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    unchanged: int = 0
    restored: int = 0
    refused: Mapping[str, int] = dataclasses.field(default_factory=dict)


def quoted(text: str) -> str:
    """The text as a Markdown quotation."""
    return "\n".join(f"> {line}" if line else ">" for line in _lines(text))


def reads_the_same(text: str, other: str) -> bool:
    """Whether two texts look the same on a page, where kinds of line breaks cannot be told apart."""
    return quoted(text) == quoted(other)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in re.split(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]", text)]


def _render_page(kind: str, records: Sequence[MemoryRecord], earlier: Mapping[str, Sequence[MemoryRecord]]) -> str:
    keys = json_line([record.key for record in records])
    sections = [_render_section(record, earlier.get(record.key, ())) for record in records]
    return "\n".join([f"# Memories: {_one_line(kind)}", "", _HELP, "", f"<!-- listed {keys} -->", "", *sections])


def _render_section(record: MemoryRecord, earlier: Sequence[MemoryRecord]) -> str:
    values = {name: value for name, value in record.to_dict().items() if name not in ("text", "scope")}
    # "--" may not stand inside a comment; JSON can say a hyphen in another way
    comment = json_line(values).replace("--", "-\\u002d")
    about = f"{date_text(record.stated_at)}, {_one_line(source_text(record))}"
    parts = [f"## {record.key}", about, quoted(record.text)]
    if earlier:
        lines = [f"- {date_text(version.stated_at)}: {_one_line(version.text)}" for version in earlier]
        parts.append("\n".join(["Before that (not read back):", "", *lines]))
    return "\n\n".join([*parts, f"<!-- memory {comment} -->\n"])


def _parse_page(name: str, kind: str, page: str, scope: MemoryScope, now: datetime) -> list[MemoryRecord]:
    records = []
    heading: str | None = None
    quote: list[str] = []
    values: dict[str, Any] | None = None

    def finish() -> None:
        text = "\n".join(quote)
        if heading is not None and text.strip():
            records.append(_section_record(kind, text, values, scope, now))

    for line in page.split("\n"):
        if match := _HEADING.match(line):
            finish()
            heading, quote, values = match.group(1), [], None
        elif line.startswith(">"):
            quote.append(line[1:].removeprefix(" "))
        elif match := _RECORD.match(line):
            try:
                values = json.loads(match.group(1))
            except (ValueError, RecursionError) as error:
                raise RecordError(f"{name}: the comment below {heading!r} was changed and cannot be read") from error
    finish()
    return records


def _parse_listed(name: str, text: str) -> list[str]:
    try:
        keys = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{name}: the comment that lists the memories was changed and cannot be read") from error
    if not all(isinstance(key, str) for key in keys):
        raise RecordError(f"{name}: the comment that lists the memories was changed and cannot be read")
    return keys  # type: ignore[no-any-return]


def _section_record(
    kind: str, text: str, values: dict[str, Any] | None, scope: MemoryScope, now: datetime
) -> MemoryRecord:
    if values is not None:
        return MemoryRecord.from_dict({**values, "text": text, "scope": scope.to_dict()})
    ordinal = round(now.timestamp() * 1_000_000)
    return MemoryRecord(
        key=text_key(scope, text),
        scope=scope,
        text=text,
        kind=kind,
        source_kind="import",
        ordinal=ordinal,
        version=version_of(text, ordinal),
        created_at=now,
        updated_at=now,
    )


def _file_stem(kind: str) -> str:
    return re.sub(r"[^\w-]", "_", kind)[:60] or "_"


def _one_line(text: str) -> str:
    return " ".join(text.split())
