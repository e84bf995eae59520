"""Public question sets with known answers, read in the formats their authors publish.

Nothing is downloaded: point `load_dataset` at a folder that holds the files, at any depth.

| name | files | one namespace is | licence of the data |
|---|---|---|---|
| ``locomo`` | ``locomo10.json`` | a conversation | CC BY-NC 4.0 |
| ``beam`` | ``chat.json`` beside ``probing_questions/probing_questions.json`` | a chat | see the data set |
| ``realtalk`` | a JSON file for each chat, with ``session_N`` and ``qa`` | a chat | see the data set |
| ``cranfield`` | ``cran.all.1400``, ``cran.qry``, ``cranqrel`` | the whole collection | none stated |
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langmem_harness.errors import ConfigurationError, RecordError

UNDATED = datetime(1970, 1, 1, tzinfo=UTC)
"""Stands for a date that cannot be read."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question and the keys of all items that answer it; never without one."""

    text: str
    gold: frozenset[str]
    category: str


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One utterance of a dialogue.

    Attributes:
        key: Its key in `Collection.items`.
        thread: The session it belongs to.
        speaker: A name, ``"user"`` or ``"assistant"``.
        text: What was said, with what a shared picture shows.
        said_at: Aware UTC, to the day; `UNDATED` when the date cannot be read.
    """

    key: str
    thread: str
    speaker: str
    text: str
    said_at: datetime


@dataclass(frozen=True, kw_only=True)
class Collection:
    """What is searched together.

    Attributes:
        name: Of the conversation.
        items: Texts by key, in their order; of dialogues with date and speaker.
        questions: About them.
        turns: The same items taken apart, where they are a dialogue; else empty.
    """

    name: str
    items: dict[str, str]
    questions: tuple[Question, ...]
    turns: tuple[Turn, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A question set.

    Attributes:
        name: As given to `load_dataset`.
        collections: In the order of the files.
    """

    name: str
    collections: tuple[Collection, ...]

    @property
    def question_count(self) -> int:
        """Questions in all collections."""
        return sum(len(collection.questions) for collection in self.collections)


def load_dataset(name: str, folder: Path) -> Dataset:
    """Read a question set from wherever it lies below a folder.

    Questions whose evidence is missing or not among the items are left out, as are LoCoMo's adversarial ones
    (category 5).

    Args:
        name: ``"locomo"``, ``"beam"``, ``"realtalk"`` or ``"cranfield"``.
        folder: Searched at any depth.

    Raises:
        ConfigurationError: The name is unknown, or the files are not there.
        RecordError: A file is not what its name says.
    """
    loader = _LOADERS.get(name)
    if loader is None:
        raise ConfigurationError(f"unknown question set {name!r}; known: {', '.join(sorted(_LOADERS))}")
    if not folder.is_dir():
        raise ConfigurationError(f"{name} needs its data, and {str(folder)!r} is not a folder")
    return Dataset(name=name, collections=tuple(loader(folder)))


def _load_locomo(folder: Path) -> Iterator[Collection]:
    (path,) = _find(folder, "locomo10.json", "locomo")[:1]
    for sample in _read_json(path):
        items, turns = {}, []
        for message, date in _sessions(sample["conversation"]):
            key, speaker, caption = message["dia_id"], message["speaker"], message.get("blip_caption")
            text = message.get("text", "") + (f" [shares a photo of {caption}]" if caption else "")
            items[key] = f"[{date}] {speaker}: {text}"
            turns.append(_turn(key, key.partition(":")[0], speaker, text, date))
        yield _dialogue(str(sample["sample_id"]), items, turns, sample["qa"], leave_out={"5"})


def _load_realtalk(folder: Path) -> Iterator[Collection]:
    chats = [path for path in sorted(folder.rglob("*.json")) if _looks_like_realtalk(path)]
    if not chats:
        raise ConfigurationError(f"realtalk: no chat with session_N and qa was found below {str(folder)!r}")
    for path in chats:
        chat = _read_json(path)
        items, turns = {}, []
        for message, session_date in _sessions(chat):
            key, speaker, text = message["dia_id"], message["speaker"], message.get("clean_text", "")
            date = message.get("date_time", session_date)
            items[key] = f"[{date}] {speaker}: {text}"
            turns.append(_turn(key, key.partition(":")[0], speaker, text, date))
        yield _dialogue(path.stem, items, turns, chat["qa"], leave_out=set())


def _looks_like_realtalk(path: Path) -> bool:
    with path.open("rb") as file:
        start = file.read(1 << 16)
    return b'"session_1"' in start and b'"clean_text"' in start


def _sessions(conversation: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """(message, date of its session), in order."""
    numbers = sorted(int(name[8:]) for name in conversation if re.fullmatch(r"session_\d+", name))
    for number in numbers:
        date = conversation.get(f"session_{number}_date_time", "")
        for message in conversation[f"session_{number}"]:
            yield message, date


def _turn(key: str, thread: str, speaker: str, text: str, date: str) -> Turn:
    return Turn(key=key, thread=thread, speaker=speaker, text=text, said_at=parse_date(date))


def parse_date(text: str) -> datetime:
    """The day in a date as the sets write it (``"1:56 pm on 8 May, 2023"``, ``"29.12.2023, 10:00:00"``,
    ``"March-15-2024"``), or `UNDATED`."""
    if found := re.search(r"(\d{1,2})\.(\d{1,2})\.(\d{4})", text):
        day, month, year = map(int, found.groups())
    elif found := re.search(r"(\d{1,2}) ([A-Za-z]{3})[a-z]*,? (\d{4})", text):
        day, month, year = int(found[1]), _month(found[2]), int(found[3])
    elif found := re.search(r"([A-Za-z]{3})[a-z]*-(\d{1,2})-(\d{4})", text):
        day, month, year = int(found[2]), _month(found[1]), int(found[3])
    else:
        return UNDATED
    try:
        return datetime(year, month, day, tzinfo=UTC)
    except ValueError:  # no such day
        return UNDATED


def _month(name: str) -> int:
    return "janfebmaraprmayjunjulaugsepoctnovdec".find(name.lower()) // 3 + 1


def _dialogue(
    name: str, items: dict[str, str], turns: list[Turn], entries: list[dict[str, Any]], leave_out: set[str]
) -> Collection:
    questions = []
    for entry in entries:
        category = str(entry.get("category"))
        # evidence is written "D1:3", sometimes "D8:6; D9:17", "D:11:26" or "D30:05"
        written = re.findall(r"D:?(\d+):(\d+)", json.dumps(entry.get("evidence", [])))
        gold = {f"D{int(session)}:{int(number)}" for session, number in written} & items.keys()
        if gold and category not in leave_out:
            questions.append(Question(text=str(entry["question"]), gold=frozenset(gold), category=category))
    return Collection(name=name, items=items, questions=tuple(questions), turns=tuple(turns))


_BEAM_TURN_MARK = re.compile(r"\s*->->[\s\w,/.-]*$")


def _load_beam(folder: Path) -> Iterator[Collection]:
    chats = [path for path in _find(folder, "chat.json", "beam") if _beam_questions_path(path).is_file()]
    if not chats:
        raise ConfigurationError(f"beam: no chat.json below {str(folder)!r} has its probing_questions.json beside it")
    for path in chats:
        items, turns = {}, []
        for message, date in _beam_messages(_read_json(path), ""):
            key, role, text = str(message["id"]), message["role"], _BEAM_TURN_MARK.sub("", message["content"])
            items[key] = f"[{date}] {role}: {text}"
            turns.append(_turn(key, "chat", role, text, date))
        questions = []
        for category, entries in _read_json(_beam_questions_path(path)).items():
            for entry in entries:
                gold = {str(number) for number in _integers(entry.get("source_chat_ids"))} & items.keys()
                if gold:
                    questions.append(Question(text=entry["question"], gold=frozenset(gold), category=category))
        name = f"{path.parent.parent.name}/{path.parent.name}"
        yield Collection(name=name, items=items, questions=tuple(questions), turns=tuple(turns))


def load_beam_chats(folder: Path) -> dict[str, list[BaseMessage]]:
    """The chats of BEAM as messages, by name, turn marks left out.

    Raises:
        ConfigurationError: No ``chat.json`` lies below the folder.
    """
    return {
        f"{path.parent.parent.name}/{path.parent.name}": [
            (HumanMessage if message["role"] == "user" else AIMessage)(_BEAM_TURN_MARK.sub("", message["content"]))
            for message, _ in _beam_messages(_read_json(path), "")
        ]
        for path in _find(folder, "chat.json", "beam")
    }


def _beam_questions_path(chat: Path) -> Path:
    return chat.parent / "probing_questions" / "probing_questions.json"


def _beam_messages(node: Any, date: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Messages at any depth (batches of turns of messages), with the nearest time anchor around them."""
    if isinstance(node, list):
        for child in node:
            yield from _beam_messages(child, date)
    elif isinstance(node, dict):
        date = node.get("time_anchor") or date
        if {"role", "id", "content"} <= node.keys():
            yield node, date
        else:
            for child in node.values():
                yield from _beam_messages(child, date)


def _integers(node: Any) -> Iterator[int]:
    if isinstance(node, int):
        yield node
    elif isinstance(node, list | dict):
        for child in node.values() if isinstance(node, dict) else node:
            yield from _integers(child)


def _load_cranfield(folder: Path) -> Iterator[Collection]:
    documents, queries, judgements = (
        _find(folder, name, "cranfield")[0].read_text(encoding="utf-8", errors="replace")
        for name in ("cran.all.1400", "cran.qry", "cranqrel")
    )
    items = {}
    for number, fields in _cranfield_records(documents):
        items[number] = fields.get("W") or fields.get("T", "")
    gold: dict[int, set[str]] = {}
    for line in judgements.splitlines():
        query, document, grade = line.split()[:3]
        if 1 <= int(grade) <= 4:  # 1 is a complete answer, 4 of minimum interest, 5 (and -1) not relevant
            gold.setdefault(int(query), set()).add(document)
    questions = []
    # judgements count the queries from 1 in file order; the numbers in the query file have gaps
    for position, (_, fields) in enumerate(_cranfield_records(queries), start=1):
        found = gold.get(position, set()) & items.keys()
        if found:
            questions.append(Question(text=fields.get("W", ""), gold=frozenset(found), category="all"))
    yield Collection(name="cranfield", items=items, questions=tuple(questions))


def _cranfield_records(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """(number, text by field letter) of each record; line breaks become spaces."""
    for record in re.split(r"^\.I +", text, flags=re.MULTILINE)[1:]:
        number, *parts = re.split(r"^\.([TABW])\s*$", record, flags=re.MULTILINE)
        fields = dict(zip(parts[::2], (" ".join(part.split()) for part in parts[1::2]), strict=True))
        yield str(int(number)), fields


def _find(folder: Path, name: str, dataset: str) -> list[Path]:
    found = sorted(folder.rglob(name), key=lambda path: [_number_or_text(part) for part in path.parts])
    if not found:
        raise ConfigurationError(f"{dataset}: no {name} was found below {str(folder)!r}")
    return found


def _number_or_text(part: str) -> tuple[int, str]:
    return (int(part), "") if part.isdecimal() else (-1, part)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RecordError(f"{path.name} is not JSON: {error}") from error


_LOADERS: dict[str, Callable[[Path], Iterator[Collection]]] = {
    "locomo": _load_locomo,
    "beam": _load_beam,
    "realtalk": _load_realtalk,
    "cranfield": _load_cranfield,
}

DATASETS = tuple(_LOADERS)
"""Names `load_dataset` knows."""
