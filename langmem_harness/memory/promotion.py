"""`Promoter`: from what was said in a thread to what is remembered, by a rule in code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.store.base import GetOp, PutOp

from langmem_harness.driving import Ask, Body, adrive, computed, drive
from langmem_harness.errors import ConfigurationError, IdentityError, RefusedError
from langmem_harness.events import MemoryPromoted
from langmem_harness.layout import promotion_namespace
from langmem_harness.memory.backing import Backing
from langmem_harness.memory.evidence import human_messages
from langmem_harness.memory.gate import find_drop_reason, find_message
from langmem_harness.memory.proposals import Proposal, find_proposals
from langmem_harness.memory.proposer import parse_proposals, render_request
from langmem_harness.memory.records import MemorySource, parse_time
from langmem_harness.memory.scope import MemoryScope, scope_from_runtime
from langmem_harness.memory.service import LongTermMemory
from langmem_harness.memory.speakers import SPEAKERS_KEY, merge_speakers, person_of, speakers_in_log, turns_of
from langmem_harness.memory.utterances import TurnLog
from langmem_harness.window.messages import canonical_json, content_hash, message_identity, text_hash

_SILENT: RunnableConfig = {"tags": ["langsmith:nostream"], "callbacks": []}
"""No token of an internal call may reach the user's stream: the tag stops one way there, no callbacks the other."""


@dataclass(frozen=True, kw_only=True)
class PromotionReport:
    """What a promotion did.

    Attributes:
        kept: Keys written or confirmed, in the order of the thread.
        dropped: Number of proposals dropped by reason (see `DropReason`; ``"unreadable"`` for broken model answers;
            admission reasons of the service).
        found: Number of proposals.
        read: Messages of the user that were looked at now; those of an earlier promotion are not.
    """

    kept: tuple[str, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)
    found: int = 0
    read: int = 0


class Promoter:
    """Reads a thread and remembers what the user stated about themselves.

    Rules always propose; a model, when given, proposes too. Every proposal passes the same checks in code: a message
    of the user at the top level of this thread contains the quote verbatim, and it is durable, about the user, and
    free of secrets. Messages that were read once are not read again, so a second promotion writes nothing and does
    not bring back what was forgotten in between.

    Of a thread with several users only what this user said is read: as the memory middleware noted it in the state, and
    as the thread log says. What neither knows is read when nothing shows another user.

    Args:
        memory: Where to remember; an attribute, too.
        checkpointer: Where `promote` reads threads; not needed for `promote_messages`.
        model: Proposes beside the rules; sees only redacted words of the user.
        thread_log: Log of durable turns, which knows who said what; any `ThreadLog`.

    Example:
        >>> from langgraph.store.memory import InMemoryStore
        >>> memory = LongTermMemory(InMemoryStore())
        >>> thread = [HumanMessage("I am vegetarian. Book me a flight to Lisbon.", id="m1")]
        >>> report = Promoter(memory).promote_messages(MemoryScope(user="ada"), "t1", thread)
        >>> [record.text for record in memory.list(MemoryScope(user="ada"))]
        ['I am vegetarian.']
    """

    def __init__(
        self,
        memory: LongTermMemory,
        *,
        checkpointer: BaseCheckpointSaver[Any] | None = None,
        model: BaseChatModel | None = None,
        thread_log: TurnLog | None = None,
    ) -> None:
        self.memory = memory
        self._thread_log = thread_log
        self._checkpointer = checkpointer
        self._model = model

    def promote(self, scope: MemoryScope, thread_id: str) -> PromotionReport:
        """Promote from a thread of the checkpointer; an unknown thread has nothing to promote.

        Raises:
            ConfigurationError: There is no checkpointer.
        """
        found = self._saver.get_tuple(_top_level(thread_id))
        return drive(self._promote_thread(scope, thread_id, found))

    async def apromote(self, scope: MemoryScope, thread_id: str) -> PromotionReport:
        """Async twin of `promote`."""
        found = await self._saver.aget_tuple(_top_level(thread_id))
        return await adrive(self._promote_thread(scope, thread_id, found))

    def promote_messages(
        self, scope: MemoryScope, thread_id: str, messages: Sequence[BaseMessage], *, stated_at: datetime | None = None
    ) -> PromotionReport:
        """Promote from these messages, the whole thread at top level.

        Args:
            scope: Whose memory. Every human message counts as said by this user.
            thread_id: Cited as the source.
            messages: In order.
            stated_at: When the newest was said; default: now.
        """
        return drive(self._promote(scope, thread_id, messages, stated_at))

    async def apromote_messages(
        self, scope: MemoryScope, thread_id: str, messages: Sequence[BaseMessage], *, stated_at: datetime | None = None
    ) -> PromotionReport:
        """Async twin of `promote_messages`."""
        return await adrive(self._promote(scope, thread_id, messages, stated_at))

    # -- bodies -------------------------------------------------------------------------------------------------

    def _promote_thread(
        self, scope: MemoryScope, thread_id: str, found: CheckpointTuple | None
    ) -> Body[PromotionReport]:
        """Promote what this user said in the thread."""
        if found is None:
            return (yield from self._promote(scope, thread_id, [], None))
        values = found.checkpoint["channel_values"]
        log = self._thread_log
        entries = () if log is None else (yield computed(lambda: log.events(thread_id)))
        speakers = merge_speakers(speakers_in_log(entries), values.get(SPEAKERS_KEY))
        said = turns_of(values.get("messages", []), speakers, person_of(scope), _people_of_run(found.metadata))
        return (yield from self._promote(scope, thread_id, said, parse_time(found.checkpoint.get("ts"), "ts")))

    def _promote(
        self, scope: MemoryScope, thread_id: str, messages: Sequence[BaseMessage], stated_at: datetime | None
    ) -> Body[PromotionReport]:
        position = _Position.of(self.memory.settings.backing, scope, thread_id)
        done = yield from position.read()
        people = human_messages(messages)
        new = [message for message in people if _mark(message) not in done]
        dropped: Counter[str] = Counter()
        proposals = [proposal for message in new for proposal in find_proposals(message.text)]
        if self._model is not None and new:
            proposals += yield from self._asked(self._model, new, dropped)
        proposals = _without_doubles(proposals)
        reasons = yield computed(
            lambda: [find_drop_reason(proposal, new, self._find_secrets) for proposal in proposals]
        )
        kept: list[str] = []
        for proposal, reason in zip(proposals, reasons, strict=True):
            message = find_message(new, proposal.quote)
            if reason is not None or message is None:
                dropped[reason or "no_evidence"] += 1
                continue
            key = yield from self._remember(scope, thread_id, proposal, message, people, stated_at, dropped)
            if key is not None:
                kept.append(key)
        if new:
            yield from position.write(done | {_mark(message) for message in new})
        found = len(kept) + sum(dropped.values())
        report = PromotionReport(kept=tuple(dict.fromkeys(kept)), dropped=dict(dropped), found=found, read=len(new))
        if report.read:
            self.memory.settings.emit(MemoryPromoted(kept=report.kept, dropped=report.dropped, thread_id=thread_id))
        return report

    def _asked(
        self, model: BaseChatModel, messages: Sequence[HumanMessage], dropped: Counter[str]
    ) -> Body[list[Proposal]]:
        said = yield from self.memory.settings.redacted([message.text for message in messages], surface="promotion")
        answer = yield _asked(model, render_request([text or "" for text in said]))
        proposals, unreadable = parse_proposals(answer.text)
        if unreadable:
            dropped["unreadable"] += unreadable
        return proposals

    def _remember(
        self,
        scope: MemoryScope,
        thread_id: str,
        proposal: Proposal,
        message: HumanMessage,
        people: Sequence[HumanMessage],
        stated_at: datetime | None,
        dropped: Counter[str],
    ) -> Body[str | None]:
        at = stated_at or self.memory.settings.clock()
        behind = len(people) - 1 - people.index(message)  # later in the thread is newer, a microsecond each
        result = yield from self.memory.writing.upsert(
            scope,
            proposal.text,
            source=MemorySource(
                thread_id=thread_id, message_id=message_identity(message), quote=proposal.quote, stated_at=at
            ),
            kind=proposal.kind,
            subject=proposal.subject,
            attribute=proposal.attribute,
            ordinal=round(at.timestamp() * 1_000_000) - behind,
            explicit=True,  # short statements are what this is for; what is worth keeping was decided by the gate
        )
        if result.record is None:
            dropped[result.reason or "refused"] += 1
            return None
        return result.record.key

    def _find_secrets(self, text: str) -> Mapping[str, int]:
        """What the redactor would take out; a text it blocks has a secret."""
        redactor = self.memory.settings.redactor
        if redactor is None:
            return {}
        try:
            return redactor.redact(text)[1]
        except RefusedError as refusal:
            return {refusal.reason: 1}

    @property
    def _saver(self) -> BaseCheckpointSaver[Any]:
        if self._checkpointer is None:
            raise ConfigurationError("promote reads threads from a checkpointer: pass one, or use promote_messages")
        return self._checkpointer


@dataclass(frozen=True)
class _Position:
    """Which messages of a thread were read for a scope; lies below the thread and goes with it."""

    backing: Backing
    namespace: tuple[str, ...]
    key: str

    @classmethod
    def of(cls, backing: Backing, scope: MemoryScope, thread_id: str) -> _Position:
        return cls(backing, promotion_namespace(thread_id), text_hash(canonical_json(scope.memories))[7:39])

    def read(self) -> Body[set[str]]:
        (item,) = yield self.backing.batch([GetOp(self.namespace, self.key)])
        return set() if item is None else set(item.value.get("read", ()))

    def write(self, marks: set[str]) -> Body[None]:
        yield self.backing.batch([PutOp(self.namespace, self.key, {"read": sorted(marks)}, False)])


def _mark(message: HumanMessage) -> str:
    """Tells a message from every other, also from an edited one under the same id."""
    return text_hash(f"{message_identity(message)} {content_hash(message)}")[7:39]


def _without_doubles(proposals: Sequence[Proposal]) -> list[Proposal]:
    """Each statement once; what the rules found wins over a model's wording of the same quote."""
    seen: dict[str, Proposal] = {}
    for proposal in proposals:
        seen.setdefault(proposal.text.casefold().strip(" ."), proposal)
    return list(seen.values())


def _asked(model: BaseChatModel, messages: Sequence[BaseMessage]) -> Ask:
    """A question to a chat model, kept out of the user's stream; the answer is its message."""
    return Ask(do=lambda: model.invoke(messages, _SILENT), ado=lambda: model.ainvoke(messages, _SILENT))


def _top_level(thread_id: str) -> Any:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}


def _people_of_run(metadata: Mapping[str, Any]) -> set[str]:
    """Whose run saved the checkpoint; empty when it does not say (who is in the run's context is not in it)."""
    try:
        return {person_of(scope_from_runtime(None, {"configurable": metadata}))}
    except IdentityError:
        return set()
