"""Parts of a turn: what one agent of a larger graph does in one of its passes.

In a graph several agents answer the same human message, and a loop comes back to the same agent. Each entry of an agent
is a part of the turn with steps and an answer of its own. A part is known by the turn, the agent's place in the graph,
what it got, and the run that entered it: a second entry in one run is another pass, the first entry of another run is
a retry of the first pass.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, RemoveMessage

from langmem_harness.errors import TurnConflictError
from langmem_harness.middleware.turn_plan import with_id
from langmem_harness.threads.events import TurnEvent, messages_body
from langmem_harness.threads.log import PART_OF_KEY, ThreadLog
from langmem_harness.window.messages import HASH_TAG, content_hash, text_hash

_PLACE_KEY = "place"
_ENTRY_KEY = "entry"
_FIXED_KEY = "fixed"
_HUMAN_KEY = "human"
_USER_KEY = "user"
_AGENT_KEY = "agent"
_KEY_KEY = "key"
_ENTERED = "entered:"
_WAIT_SECONDS = 2.0
_POLL_SECONDS = 0.01


@dataclass(frozen=True, kw_only=True)
class Entrance:
    """Where and in which run an agent of a graph was entered.

    Attributes:
        place: Names of the nodes around the agent, outermost first, with ``/`` between them.
        root: Id of the checkpoint with the input of the graph's run: a resumed run has the same, a retried one another.
        key: The same for the same execution of the node, also after a crash.
        agent: Name of the agent; None when it has none.
    """

    place: str
    root: str
    key: str
    agent: str | None


@dataclass(frozen=True, kw_only=True)
class PartMark:
    """What the state of an agent in a graph says about its part.

    Attributes:
        behind: Id of the last message the agent got; what it does stands behind it.
        repeats: Ids of the parts of runs before in whose place it stands: equal calls get their logged results.
    """

    behind: str | None
    repeats: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a turn that an agent begins or goes on with.

    Attributes:
        turn_id: Id of the part in the log.
        mark: For the state.
        update: Messages for the agent's state.
        is_answered: Whether the part has its answer.
    """

    turn_id: str
    mark: PartMark
    update: Sequence[BaseMessage] = ()
    is_answered: bool = False


def is_nested(config: Mapping[str, Any]) -> bool:
    """Whether an agent runs inside a node or tool of another graph."""
    return "|" in str((config.get("configurable") or {}).get("checkpoint_ns") or "")


def find_entrance(config: Mapping[str, Any]) -> Entrance | None:
    """Where a nested agent is entered; None when the graph around it keeps no checkpoints that tell runs apart."""
    configurable: Mapping[str, Any] = config.get("configurable") or {}
    around = str(configurable.get("checkpoint_ns") or "").rpartition("|")[0]
    saver, outer = configurable.get("__pregel_checkpointer"), (configurable.get("checkpoint_map") or {}).get("")
    if saver is None or isinstance(saver, bool) or not outer or configurable.get("__pregel_durability") == "exit":
        return None
    where = {"thread_id": configurable["thread_id"], "checkpoint_ns": ""}
    at: Any = {"configurable": {**where, "checkpoint_id": outer}}
    deadline = time.monotonic() + _WAIT_SECONDS
    while (found := saver.get_tuple(at)) is None:  # LangGraph writes checkpoints while the next nodes already run
        if time.monotonic() > deadline:
            return None
        time.sleep(_POLL_SECONDS)
    if found.metadata.get("source") != "input":
        found = next(iter(saver.list({"configurable": where}, filter={"source": "input"}, before=at, limit=1)), None)
    if found is None:
        return None
    names = [segment.partition(":")[0] for segment in around.split("|")]
    return Entrance(
        place="/".join(names),
        root=str(found.config["configurable"]["checkpoint_id"]),
        key=_short(f"{outer} {around}"),
        agent=(config.get("metadata") or {}).get("lc_agent_name"),
    )


class PartFinder:
    """Says which part of a turn an agent of a graph begins.

    Args:
        log: Where parts are looked up and entered.
    """

    def __init__(self, log: ThreadLog) -> None:
        self._log = log

    def begin(
        self,
        thread_id: str,
        stem: str,
        entrance: Entrance,
        messages: Sequence[BaseMessage],
        human: HumanMessage,
        *,
        user_hash: str | None,
        asks_again: bool,
    ) -> Part:
        """Find the part or log a new one.

        Args:
            thread_id: The conversation.
            stem: The turn.
            entrance: Where and in which run.
            messages: What the agent got.
            human: The newest human message in it.
            user_hash: Whose turn it is.
            asks_again: Whether the run was told to start from an older checkpoint: an answered part is asked again.
        """
        while True:
            try:
                return self._begin(thread_id, stem, entrance, messages, human, user_hash, asks_again)
            except TurnConflictError:  # another entry at the same moment was first
                continue

    def earlier_result(self, thread_id: str, mark: PartMark, tool_hash: str, number: int) -> TurnEvent | None:
        """The logged result of the same call in a part that this one stands in for; None when there is none."""
        for turn_id in mark.repeats:
            events = self._log.events(thread_id, turn_id=turn_id)
            same = [each for each in events if each.kind.startswith("tool:") and each.body.get("call") == tool_hash]
            if len(same) > number:
                return same[number]
        return None

    def _begin(
        self,
        thread_id: str,
        stem: str,
        entrance: Entrance,
        messages: Sequence[BaseMessage],
        human: HumanMessage,
        user_hash: str | None,
        asks_again: bool,
    ) -> Part:
        parts = list(self._parts(thread_id, stem, entrance.place))
        hashes, said = [_short_hash(message) for message in messages], content_hash(human)
        repeats: list[str] = []
        for turn_id, events in parts:
            body, is_done = events[0].body, any(event.kind == "done" for event in events)
            entered = _entered_by(events, entrance.root)
            is_this = entered == entrance.key
            is_same = (body[_HUMAN_KEY], body[_USER_KEY], body[_AGENT_KEY]) == (said, user_hash, entrance.agent)
            extra = extra_positions(hashes, body[_ENTRY_KEY], fixed=body[_FIXED_KEY])
            is_earlier_pass = entered is not None and not is_this
            is_asked_again = asks_again and is_done and extra == []
            if is_earlier_pass or is_asked_again or extra is None or not (is_this or is_same):
                if is_same and (is_asked_again or not is_earlier_pass):
                    repeats.append(turn_id)
                continue
            self._enter(thread_id, turn_id, entrance)
            if is_done:
                logged = self._log.messages(thread_id, turn_id=turn_id)
                update = lacking_answers(messages, human, [each for each in logged if each.type != "human"])
                mark = PartMark(behind=messages[-1].id)
                return Part(turn_id=turn_id, mark=mark, update=update, is_answered=True)
            # The agent goes through its part again, from what it got the first time.
            kept = [message for position, message in enumerate(messages) if position not in extra]
            removals = [RemoveMessage(id=name) for position in extra if (name := messages[position].id) is not None]
            return Part(turn_id=turn_id, mark=PartMark(behind=kept[-1].id), update=removals)
        turn_id = self._free_id(thread_id, f"{stem}/{entrance.place}")
        body = {
            PART_OF_KEY: stem,
            _PLACE_KEY: entrance.place,
            _ENTRY_KEY: hashes,
            _FIXED_KEY: 1 + next(index for index, message in enumerate(messages) if message is human),
            _HUMAN_KEY: said,
            _USER_KEY: user_hash,
            _AGENT_KEY: entrance.agent,
            _KEY_KEY: entrance.key,  # so that two entries at the same moment do not log one part
        }
        if not self._has_said(thread_id, stem, human):
            body |= messages_body([human])  # the log says once what was said once
        self._log.append_event(thread_id, turn_id, "user", body)
        self._enter(thread_id, turn_id, entrance)
        return Part(turn_id=turn_id, mark=PartMark(behind=messages[-1].id, repeats=repeats))

    def _enter(self, thread_id: str, turn_id: str, entrance: Entrance) -> None:
        """Note that this run has come to the part.

        Raises:
            TurnConflictError: It has already, in another pass.
        """
        self._log.append_event(thread_id, turn_id, _ENTERED + entrance.root, {_KEY_KEY: entrance.key})

    def _parts(self, thread_id: str, stem: str, place: str) -> Iterator[tuple[str, list[TurnEvent]]]:
        """Parts of a turn at one place with their entries, in the order in which they began."""
        for record in self._log.parts(thread_id, stem):
            events = self._log.events(thread_id, turn_id=record.turn_id)
            if events[0].body.get(_PLACE_KEY) == place:
                yield record.turn_id, events

    def _has_said(self, thread_id: str, stem: str, human: HumanMessage) -> bool:
        turn_ids = [stem, *(record.turn_id for record in self._log.parts(thread_id, stem))]
        firsts = [self._log.get_event(thread_id, turn_id, "user") for turn_id in turn_ids]
        return any(message.id == human.id for first in firsts if first is not None for message in first.messages())

    def _free_id(self, thread_id: str, stem: str) -> str:
        for number in itertools.count(1):
            turn_id = stem if number == 1 else f"{stem}:{number}"
            if self._log.get_event(thread_id, turn_id, "user") is None:
                break
        return turn_id


def extra_positions(hashes: Sequence[str], entry: Sequence[str], *, fixed: int) -> list[int] | None:
    """Positions of the messages an agent gets now and did not get then, or None when it is not the same entry.

    A retry gets what it got the first time and, behind the human message, what was saved of the turn since.

    Args:
        hashes: What it gets now.
        entry: What it got then.
        fixed: How many messages it got then up to the human message: before that nothing may have changed.
    """
    if list(hashes[:fixed]) != list(entry[:fixed]):
        return None
    extra, wanted = [], 0
    for position, each in enumerate(hashes):
        if wanted < len(entry) and each == entry[wanted]:
            wanted += 1
        else:
            extra.append(position)
    return extra if wanted == len(entry) else None


def lacking_answers(
    messages: Sequence[BaseMessage], human: BaseMessage, logged: Sequence[BaseMessage]
) -> list[BaseMessage]:
    """What an answered part says again: its messages that do not stand behind the human message.

    A message that stands before it (the turn came again under another message id) is said again under an id of its own.
    """
    position = next(index for index, message in enumerate(messages) if message is human)
    before = {message.id for message in messages[:position]}
    behind = {message.id for message in messages[position:]}
    return [
        with_id(message.model_copy(update={"id": None})) if message.id in before else message
        for message in logged
        if message.id not in behind
    ]


def _entered_by(events: Sequence[TurnEvent], root: str) -> str | None:
    """The key under which a run entered a part; None when it did not."""
    return next((str(event.body[_KEY_KEY]) for event in events if event.kind == _ENTERED + root), None)


def _short_hash(message: BaseMessage) -> str:
    """Long threads are entered often: the log keeps few characters for each message."""
    return content_hash(message).removeprefix(HASH_TAG + ":")[:12]


def _short(text: str) -> str:
    return text_hash(text).removeprefix(HASH_TAG + ":")[:16]
