"""`LongTermMemory`: what is known about an owner beyond one thread, over any LangGraph store."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Unpack

from langgraph.store.base import BaseStore

from langmem_harness.driving import adrive, drive
from langmem_harness.events import EventCallback
from langmem_harness.memory.admission import AdmissionPolicy
from langmem_harness.memory.backing import Backing, StoreCapabilities
from langmem_harness.memory.erasing import Erasing
from langmem_harness.memory.export import ImportReport, MemoryExport
from langmem_harness.memory.found import MemoryRecall
from langmem_harness.memory.importing import Importing
from langmem_harness.memory.options import RecallOptions, SearchOptions, UpsertOptions, UpsertResult
from langmem_harness.memory.reading import Reading
from langmem_harness.memory.records import MemoryRecord
from langmem_harness.memory.scope import MemoryScope
from langmem_harness.memory.settings import MemorySettings, TextRedactor, utc_now
from langmem_harness.memory.writing import Writing
from langmem_harness.receipts import ErasureReceipt
from langmem_harness.redaction import Redactor

DEFAULT_REDACTOR = Redactor()
"""Every detector, every finding replaced by its kind."""


class LongTermMemory:
    """Memories of one owner at a time, with where each comes from.

    Every call names a `MemoryScope`; there is no call that reaches over scopes. Each method has an async twin
    (``a`` + name) that runs the same body.

    Args:
        store: Any LangGraph store. `FaissStore` searches by meaning and by words; others search by meaning when they
            were given an index, and otherwise answer with the newest memories and say so.
        policy: What is admitted.
        redactor: Takes secrets and personal data out of what is embedded, stored, searched with and read; None: off.
        clock: Returns the current time, aware UTC.
        on_event: Gets every event.

    Attributes:
        settings: What the object was made with.
        reading, writing, erasing, importing: The same calls as bodies for `drive`, for code that has two faces itself.

    Example:
        >>> from langgraph.store.memory import InMemoryStore
        >>> memory = LongTermMemory(InMemoryStore())
        >>> ada = MemoryScope(user="ada")
        >>> memory.upsert(ada, "Ada is vegetarian.", explicit=True).action
        'added'
        >>> [found.record.text for found in memory.search(ada, "dinner")]
        ['Ada is vegetarian.']
    """

    def __init__(
        self,
        store: BaseStore,
        *,
        policy: AdmissionPolicy | None = None,
        redactor: TextRedactor | None = DEFAULT_REDACTOR,
        clock: Callable[[], datetime] = utc_now,
        on_event: EventCallback | None = None,
    ) -> None:
        self.store = store
        self.settings = MemorySettings(
            backing=Backing(store),
            policy=policy or AdmissionPolicy(),
            redactor=redactor,
            clock=clock,
            on_event=on_event,
        )
        self.reading = Reading(self.settings)
        self.writing = Writing(self.settings, self.reading)
        self.erasing = Erasing(self.settings, self.reading)
        self.importing = Importing(self.settings, self.reading, self.writing, self.erasing)

    def capabilities(self) -> StoreCapabilities:
        """What this memory can do over its store, and what not."""
        return drive(self.settings.backing.capabilities())

    async def acapabilities(self) -> StoreCapabilities:
        """Async twin of `capabilities`."""
        return await adrive(self.settings.backing.capabilities())

    def upsert(self, scope: MemoryScope, text: str, **options: Unpack[UpsertOptions]) -> UpsertResult:
        """Remember a statement, or say which rule refused it (see `UpsertOptions`)."""
        return drive(self.writing.upsert(scope, text, **options))

    async def aupsert(self, scope: MemoryScope, text: str, **options: Unpack[UpsertOptions]) -> UpsertResult:
        """Async twin of `upsert`."""
        return await adrive(self.writing.upsert(scope, text, **options))

    def search(self, scope: MemoryScope, query: str, **options: Unpack[SearchOptions]) -> MemoryRecall:
        """Find memories by meaning and words, best first (see `SearchOptions`)."""
        return drive(self.reading.search(scope, query, **options))

    async def asearch(self, scope: MemoryScope, query: str, **options: Unpack[SearchOptions]) -> MemoryRecall:
        """Async twin of `search`."""
        return await adrive(self.reading.search(scope, query, **options))

    def recall(self, scope: MemoryScope, query: str, **options: Unpack[RecallOptions]) -> MemoryRecall:
        """What to put in front of a model: the best of a search, the newest, and summaries (see `RecallOptions`)."""
        return drive(self.reading.recall(scope, query, **options))

    async def arecall(self, scope: MemoryScope, query: str, **options: Unpack[RecallOptions]) -> MemoryRecall:
        """Async twin of `recall`."""
        return await adrive(self.reading.recall(scope, query, **options))

    def get(self, scope: MemoryScope, key: str) -> MemoryRecord:
        """The memory with this key.

        Raises:
            NotFoundError: Unknown, expired, or of another scope: the answer is the same.
        """
        return drive(self.reading.get(scope, key))

    async def aget(self, scope: MemoryScope, key: str) -> MemoryRecord:
        """Async twin of `get`."""
        return await adrive(self.reading.get(scope, key))

    def delete(self, scope: MemoryScope, key: str) -> ErasureReceipt:
        """Forget one memory with its history.

        Raises:
            NotFoundError: Unknown, or of another scope: the answer is the same.
        """
        return drive(self.erasing.delete(scope, key))

    async def adelete(self, scope: MemoryScope, key: str) -> ErasureReceipt:
        """Async twin of `delete`."""
        return await adrive(self.erasing.delete(scope, key))

    def forget_all(self, scope: MemoryScope) -> ErasureReceipt:
        """Forget everything of exactly this scope; other users, tenants and agents keep theirs."""
        return drive(self.erasing.forget_all(scope))

    async def aforget_all(self, scope: MemoryScope) -> ErasureReceipt:
        """Async twin of `forget_all`."""
        return await adrive(self.erasing.forget_all(scope))

    def erase_thread(self, thread_id: str) -> ErasureReceipt:
        """Take a thread out of every memory, of whatever owner, that cites it; what cites nothing else goes."""
        return drive(self.erasing.erase_thread(thread_id))

    async def aerase_thread(self, thread_id: str) -> ErasureReceipt:
        """Async twin of `erase_thread`."""
        return await adrive(self.erasing.erase_thread(thread_id))

    def purge(self, scope: MemoryScope) -> ErasureReceipt:
        """Remove what has expired; until then it lies in the store but is never found."""
        return drive(self.erasing.purge(scope))

    async def apurge(self, scope: MemoryScope) -> ErasureReceipt:
        """Async twin of `purge`."""
        return await adrive(self.erasing.purge(scope))

    def list(self, scope: MemoryScope, *, kind: str | None = None) -> tuple[MemoryRecord, ...]:
        """Every memory of the scope that has not expired, newest first, ties by key."""
        return drive(self.reading.list_all(scope, kind=kind))

    async def alist(self, scope: MemoryScope, *, kind: str | None = None) -> tuple[MemoryRecord, ...]:
        """Async twin of `list`."""
        return await adrive(self.reading.list_all(scope, kind=kind))

    def history(self, scope: MemoryScope, key: str) -> tuple[MemoryRecord, ...]:
        """The current memory and every statement it superseded, newest first.

        Raises:
            NotFoundError: Unknown, or of another scope.
        """
        return drive(self.reading.history(scope, key))

    async def ahistory(self, scope: MemoryScope, key: str) -> tuple[MemoryRecord, ...]:
        """Async twin of `history`."""
        return await adrive(self.reading.history(scope, key))

    def export(self, scope: MemoryScope) -> MemoryExport:
        """The memories of a scope with their histories, to be written as JSON lines or Markdown."""
        return drive(self.importing.export(scope))

    async def aexport(self, scope: MemoryScope) -> MemoryExport:
        """Async twin of `export`."""
        return await adrive(self.importing.export(scope))

    def import_(self, scope: MemoryScope, export: MemoryExport) -> ImportReport:
        """Bring an export back: what is new is added, what was edited is changed, what was deleted is forgotten."""
        return drive(self.importing.import_all(scope, export))

    async def aimport_(self, scope: MemoryScope, export: MemoryExport) -> ImportReport:
        """Async twin of `import_`."""
        return await adrive(self.importing.import_all(scope, export))
