"""Who said what in a thread, as the runtime knew it when the message arrived. Pure.

A thread can have several users, and nothing a message says tells whose it is. So each run notes the messages it brought
with a hash of its tenant and user; a person's memory takes from a thread only what is noted as theirs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langmem_harness.memory.evidence import human_messages
from langmem_harness.memory.scope import MemoryScope
from langmem_harness.memory.utterances import LoggedEntry
from langmem_harness.window.messages import HASH_TAG, canonical_json, content_hash, message_identity, text_hash

SPEAKERS_KEY = "memory_speakers"
"""State key of the notes: mark of a human message to who said it, see `note_arrived`."""

NOBODY = ""
"""Noted for a message that was there before anybody noted; see `turns_of` for whose it is."""

Speakers = Mapping[str, str]


def person_of(scope: MemoryScope) -> str:
    """Hash of tenant and user, the same for all agents of a person: 32 hexadecimal digits."""
    return _short(text_hash(canonical_json([scope.tenant, scope.user])))


def mark_of(message: BaseMessage) -> str:
    """Tells a message from every other, also from another text that was sent under the same id."""
    return text_hash(f"{message_identity(message)} {content_hash(message)}")[7:23]


def merge_speakers(known: Speakers | None, new: Speakers | None) -> dict[str, str]:
    """Reducer of the notes: the first note of a message stays."""
    return {**(new or {}), **(known or {})}


def note_arrived(
    messages: Sequence[BaseMessage], known: Speakers, person: str, logged: Speakers | None = None
) -> dict[str, str]:
    """New notes at the beginning of a run.

    What stands behind the last answer and is not noted has come with this run. With several users in the thread that is
    said of the newest message only: another may be left from a run that was refused. Older messages are nobody's.

    Args:
        messages: The thread with the messages of this run.
        known: The notes so far.
        person: Whose run it is.
        logged: Who said it by a log, by mark; it knows better than the order.
    """
    fresh = [message for message in human_messages(messages) if mark_of(message) not in known]
    notes = {mark_of(message): NOBODY for message in fresh}
    answered = max((at for at, one in enumerate(messages) if isinstance(one, AIMessage | ToolMessage)), default=-1)
    arrived = human_messages(messages[answered + 1 :])
    if others_than(person, known.values(), (logged or {}).values()):
        arrived = arrived[-1:]
    notes.update({mark: person for message in arrived if (mark := mark_of(message)) in notes})
    notes.update({mark: said for mark, said in (logged or {}).items() if mark in notes})
    return notes


def turns_of(
    messages: Iterable[BaseMessage], speakers: Speakers, person: str, others: Collection[str] = ()
) -> list[BaseMessage]:
    """The messages of a person and what answers them, in order.

    What nobody noted is theirs as long as there is no sign of another user in the thread, and nobody's else.

    Args:
        messages: The thread.
        speakers: The notes.
        person: See `person_of`.
        others: Who else is known to have spoken here.
    """
    messages = list(messages)
    theirs = {person} if others_than(person, speakers.values(), others) else {person, NOBODY}
    spoken = {id(message) for message in human_messages(messages)}
    kept: list[BaseMessage] = []
    is_theirs = True
    for message in messages:
        if id(message) in spoken:
            is_theirs = speakers.get(mark_of(message), NOBODY) in theirs
        if is_theirs:
            kept.append(message)
    return kept


def others_than(person: str, *people: Iterable[str]) -> bool:
    """Whether somebody else is among them."""
    return any(one not in (person, NOBODY) for group in people for one in group)


def speakers_in_log(entries: Iterable[LoggedEntry]) -> dict[str, str]:
    """Who said the human messages of a log, by mark; entries that do not say it are left out."""
    return {
        mark_of(message): person
        for entry in entries
        if entry.kind == "user" and (person := person_of_entry(entry)) is not None
        for message in human_messages(entry.messages())
    }


def turns_in_log(entries: Iterable[LoggedEntry], person: str) -> set[str]:
    """The turns of a person in a log; those of nobody in particular only when no other user is in it."""
    people = {entry.turn_id: person_of_entry(entry) or NOBODY for entry in entries if entry.kind == "user"}
    theirs = {person} if others_than(person, people.values()) else {person, NOBODY}
    return {turn_id for turn_id, said in people.items() if said in theirs}


def person_of_entry(entry: LoggedEntry) -> str | None:
    """Whose turn the entry of a human message begins, as durable turns write it; None when it does not say."""
    person = entry.body.get("user")
    return _short(person) if isinstance(person, str) and person.startswith(f"{HASH_TAG}:") else None


def _short(tagged_hash: str) -> str:
    return tagged_hash.removeprefix(f"{HASH_TAG}:")[:32]
