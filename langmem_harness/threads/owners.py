"""Whose a thread is, kept as hashes: an owner's threads can be found, and the table names nobody.

Every save notes the scope it was made for. A thread may have several: agents with a memory each, or several people.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from langmem_harness.memory.scope import MemoryScope
from langmem_harness.threads.facts import owner_of
from langmem_harness.window.messages import HASH_TAG, canonical_json, text_hash

TABLE = """
CREATE TABLE thread_owners (
    thread INTEGER NOT NULL REFERENCES thread_keys (thread),
    scope_hash TEXT NOT NULL,
    person_hash TEXT NOT NULL,
    PRIMARY KEY (thread, scope_hash)
) WITHOUT ROWID
"""


@dataclass(frozen=True, slots=True)
class OwnerHash:
    """A scope without its names.

    Attributes:
        scope: Tagged hash of tenant, user and agent; None where only the person is known.
        person: Tagged hash of tenant and user: the same for all agents of one person.
    """

    scope: str | None
    person: str

    @classmethod
    def of(cls, scope: MemoryScope) -> OwnerHash:
        """The hashes of a scope."""
        return cls(
            scope=text_hash(canonical_json([scope.tenant, scope.user, scope.agent])),
            person=text_hash(canonical_json([scope.tenant, scope.user])),
        )


def note_owner(connection: sqlite3.Connection, thread: int, scope: MemoryScope) -> None:
    """Note that a thread has something of this scope. Noting it twice is fine."""
    owner = OwnerHash.of(scope)
    connection.execute("INSERT OR IGNORE INTO thread_owners VALUES (?, ?, ?)", (thread, owner.scope, owner.person))


def copy_owners(connection: sqlite3.Connection, source: int, target: int) -> None:
    """Note every owner of one thread for another."""
    connection.execute(
        "INSERT OR IGNORE INTO thread_owners SELECT ?, scope_hash, person_hash FROM thread_owners WHERE thread = ?",
        (target, source),
    )


def read_owners(connection: sqlite3.Connection) -> Mapping[str, set[OwnerHash]]:
    """The owners of every thread that has a row of the checkpointer; none for a thread whose runs named nobody."""
    owners: dict[str, set[OwnerHash]] = defaultdict(set)
    for thread_id, scope, person in connection.execute(
        "SELECT thread_id, scope_hash, person_hash FROM thread_keys LEFT JOIN thread_owners USING (thread)"
    ):
        owners[thread_id].update([] if scope is None else [OwnerHash(scope, person)])
    return owners


def read_people_in_log(connection: sqlite3.Connection) -> Mapping[str, set[OwnerHash]]:
    """Who spoke in which thread, by the log: durable turns write the hash of the person beside every human message."""
    people: dict[str, set[OwnerHash]] = defaultdict(set)
    for thread_id, person in connection.execute(
        "SELECT DISTINCT thread_id, json_extract(body, '$.user') FROM thread_events "
        "WHERE kind = 'user' AND json_valid(body)"
    ):
        # Entries are anybody's to write: only a hash of ours says something.
        people[thread_id].update([OwnerHash(None, person)] if str(person).startswith(f"{HASH_TAG}:") else [])
    return people


def note_owners_in_metadata(connection: sqlite3.Connection) -> None:
    """Note the owners that stored metadata names: for files written before owners were noted."""
    for thread, metadata in connection.execute("SELECT DISTINCT thread, metadata FROM checkpoints").fetchall():
        scope = owner_of({"configurable": {}}, json.loads(metadata))
        if scope is not None:
            note_owner(connection, thread, scope)
