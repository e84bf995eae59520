"""Forgetting a thread, or an owner, in every place: an order that can be done again after any failure.

A thread is marked as erased before anything is deleted, so that a late write cannot bring it back and a second attempt
finds what the first one left. What leads to its other parts (the links to memories, the rows of the log) goes last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from langgraph.store.base import BaseStore, PutOp
from langgraph.store.memory import InMemoryStore

from langmem_harness.errors import ConfigurationError
from langmem_harness.layout import EPISODES, MEMORIES, THREADS, decode_label, thread_namespace
from langmem_harness.memory.scope import MemoryScope
from langmem_harness.receipts import ErasureReceipt
from langmem_harness.threads import tombstones
from langmem_harness.threads.checkpointer import SqliteCheckpointer
from langmem_harness.threads.log import ThreadLog
from langmem_harness.threads.owners import OwnerHash, read_owners, read_people_in_log

_PAGE = 500
_TABLES = {
    "log_events": "SELECT count(*) FROM thread_events WHERE thread_id = ?",
    "checkpoints": "SELECT count(*) FROM checkpoints JOIN thread_keys USING (thread) WHERE thread_id = ?",
    "checkpoint_nodes": "SELECT count(*) FROM checkpoint_nodes JOIN thread_keys USING (thread) WHERE thread_id = ?",
}


class ThreadMemories(Protocol):
    """Forgets what was learnt from threads. Implemented by `LongTermMemory`; `Retention.erase` relies on it."""

    def erase_thread(self, thread_id: str) -> ErasureReceipt:
        """Take a thread out of every memory that cites it."""
        ...

    def forget_all(self, scope: MemoryScope) -> ErasureReceipt:
        """Forget every memory of a scope."""
        ...


@runtime_checkable
class Vacuumable(Protocol):
    """A store that can rewrite its file without what was deleted. Implemented by `FaissStore`."""

    def vacuum(self) -> None:
        """Rewrite the file."""
        ...


@dataclass(frozen=True, kw_only=True)
class ScopeThreads:
    """The threads of an owner, sorted.

    Attributes:
        own: Only this person takes part in them, and this scope is among those they were run for.
        shared: Other people take part as well.
        unattributed: Nothing says whose they are; they may belong to anybody.
    """

    own: tuple[str, ...]
    shared: tuple[str, ...]
    unattributed: tuple[str, ...]


class Eraser:
    """Finds and erases; see `Retention` for the arguments."""

    def __init__(
        self,
        *,
        checkpointer: SqliteCheckpointer,
        thread_log: ThreadLog,
        store: BaseStore | None,
        memory: ThreadMemories | None,
    ) -> None:
        self._checkpointer = checkpointer
        self._log = thread_log
        self._database = checkpointer.database
        self._store = store
        self._memory = memory

    def check_can_rewrite(self) -> None:
        """Refuse before anything is deleted.

        Raises:
            ConfigurationError: The store has a file that nobody here can rewrite.
        """
        if not isinstance(self._store, Vacuumable | InMemoryStore | None):
            raise ConfigurationError(
                f"secure=True cannot rewrite the files of a {type(self._store).__name__}: erase without it, and have "
                "its database remove deleted rows"
            )

    def rewrite_files(self) -> None:
        """Rewrite every file without its free space and empty its journal."""
        self._database.vacuum()
        if isinstance(self._store, Vacuumable):
            self._store.vacuum()

    def erase_scope(self, scope: MemoryScope) -> ErasureReceipt:
        """Erase the threads that are only this owner's, then its memories; finish erasures that were begun before."""
        found = self.threads_of(scope)
        with self._database.write() as connection:
            for name in found.own:
                tombstones.bury(connection, name)
        receipt = ErasureReceipt(
            target=scope.to_dict(),
            remaining={"shared_threads": len(found.shared)} if found.shared else {},
            unattributed_threads=len(found.unattributed),
        )
        for name in dict.fromkeys([*found.own, *self._begun()]):
            receipt = receipt.merged(self.erase_thread(name))
        if self._memory is not None:
            receipt = receipt.merged(self._memory.forget_all(scope))
        return receipt

    def erase_thread(self, thread_id: str) -> ErasureReceipt:
        """Erase one thread; of one that nobody knows nothing is done, and its id stays usable."""
        counts: Counter[str] = Counter()
        if not self._is_known(thread_id):
            if self._memory is not None:  # only the memory can say whether it cites the thread, by forgetting it
                counts.update(self._memory.erase_thread(thread_id).counts)
            if not any(counts.values()):
                return ErasureReceipt(target={"thread_id": thread_id}, found=False)
        with self._database.write() as connection:
            tombstones.bury(connection, thread_id)
        forgotten, remaining = self._forget_derived(thread_id)
        counts.update(forgotten)
        counts.update(self.rows_of(thread_id))
        with self._database.write() as connection:
            self._log.delete_thread(thread_id)
            if _has_table(connection, "turn_steps"):
                connection.execute("DELETE FROM turn_steps WHERE thread_id = ?", (thread_id,))
            self._checkpointer.delete_thread(thread_id)
        self._checkpointer.forget_cached()
        if self._store is not None and any(_stored(self._store, thread_id)):
            # A run that was under way wrote on; from here on its next save fails, and it ends.
            late, remaining = self._forget_derived(thread_id)
            counts.update(late)
        remaining.update(self.rows_of(thread_id))
        return ErasureReceipt(
            target={"thread_id": thread_id},
            counts={place: count for place, count in counts.items() if count},
            remaining={place: count for place, count in remaining.items() if count},
        )

    def threads_of(self, scope: MemoryScope) -> ScopeThreads:
        """Which threads are an owner's: by what their runs said, and by the memories and episodes that cite them."""
        owners = self._owners()
        wanted = OwnerHash.of(scope)
        named = {name for name, found in owners.items() if wanted in found}
        if scope.agent is None:  # of these nobody knows which agent it was: they go with the person's own memory
            alone = OwnerHash(None, wanted.person)
            named |= {
                name for name, found in owners.items() if alone in found and not any(each.scope for each in found)
            }
        shared = {name for name in named if any(each.person != wanted.person for each in owners[name])}
        return ScopeThreads(
            own=tuple(sorted(named - shared)),
            shared=tuple(sorted(shared)),
            unattributed=tuple(sorted(name for name, found in owners.items() if not found)),
        )

    def rows_of(self, thread_id: str) -> dict[str, int]:
        """Rows of a thread by place, in the threads file."""
        with self._database.read() as connection:
            return {name: connection.execute(query, (thread_id,)).fetchone()[0] for name, query in _TABLES.items()}

    # -- parts --------------------------------------------------------------------------------------------------

    def _is_known(self, thread_id: str) -> bool:
        """Whether anything was ever kept of a thread here; one that was erased, or half of it, by its tombstone."""
        with self._database.read() as connection:
            if tombstones.is_erased(connection, thread_id) or any(self.rows_of(thread_id).values()):
                return True
            if connection.execute("SELECT 1 FROM thread_keys WHERE thread_id = ?", (thread_id,)).fetchone():
                return True
            if _has_table(connection, "turn_steps"):
                steps = connection.execute("SELECT 1 FROM turn_steps WHERE thread_id = ?", (thread_id,))
                if steps.fetchone():
                    return True
        return self._store is not None and any(_stored(self._store, thread_id))

    def _forget_derived(self, thread_id: str) -> tuple[Counter[str], Counter[str]]:
        """Erase what was made of a thread and lies in the store; how much by place, and what is still found."""
        counts: Counter[str] = Counter()
        remaining: Counter[str] = Counter()
        if self._memory is not None:  # first: the links to its memories lie below the thread's namespace
            forgotten = self._memory.erase_thread(thread_id)
            counts.update(forgotten.counts)
            remaining.update(forgotten.remaining)
        if self._store is not None:
            counts.update(self._erase_from_store(self._store, thread_id))
            remaining.update(Counter(place for place, _, _ in _stored(self._store, thread_id)))
        return counts, remaining

    def _owners(self) -> Mapping[str, set[OwnerHash]]:
        with self._database.read() as connection:
            owners = {name: set(found) for name, found in read_owners(connection).items()}
            for name, found in read_people_in_log(connection).items():
                owners.setdefault(name, set()).update(found)
        for name in self._log.thread_ids():
            owners.setdefault(name, set())
        for namespace in [] if self._store is None else _thread_namespaces(self._store):
            found = owners.setdefault(decode_label(namespace[1]), set())
            if self._store is not None and namespace[2:] in ((MEMORIES,), (EPISODES,)):
                found.update(
                    OwnerHash.of(MemoryScope.from_dict(item.value["scope"]))
                    for item in _items(self._store, namespace)
                    if "scope" in item.value
                )
        return owners

    def _begun(self) -> list[str]:
        """Threads that are marked as erased and still have something."""
        with self._database.read() as connection:
            return [name for name in self._owners() if tombstones.is_erased(connection, name)]

    def _erase_from_store(self, store: BaseStore, thread_id: str) -> Counter[str]:
        found = list(_stored(store, thread_id))
        for start in range(0, len(found), _PAGE):
            store.batch([PutOp(namespace, key, None) for _, namespace, key in found[start : start + _PAGE]])
        return Counter(place for place, _, _ in found)


def _stored(store: BaseStore, thread_id: str) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Place (the label below the thread), namespace and key of everything the store keeps for a thread."""
    prefix = thread_namespace(thread_id)
    for item in _items(store, prefix):
        place = item.namespace[len(prefix)] if len(item.namespace) > len(prefix) else "items"
        yield place, item.namespace, item.key


def _items(store: BaseStore, prefix: tuple[str, ...]) -> Iterator[Any]:
    offset = 0
    while items := store.search(prefix, limit=_PAGE, offset=offset):
        yield from items
        offset += len(items)


def _thread_namespaces(store: BaseStore) -> Sequence[tuple[str, ...]]:
    """Every namespace of a thread, down to the label below it."""
    found: list[tuple[str, ...]] = []
    while page := store.list_namespaces(prefix=(THREADS,), max_depth=3, limit=_PAGE, offset=len(found)):
        found += page
    return [namespace for namespace in found if len(namespace) > 1]


def _has_table(connection: Any, name: str) -> bool:
    row = connection.execute("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", (name,)).fetchone()
    return row is not None
