"""Which turn a step belongs to: the caller's key, or the message with what precedes it, and whose turn it is."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, NotRequired, Self

from langchain.agents.middleware import AgentState
from langchain.agents.middleware.types import PrivateStateAttr
from langchain_core.messages import BaseMessage, HumanMessage

from langmem_harness.errors import IdentityError
from langmem_harness.memory.scope import scope_from_runtime, thread_from_config
from langmem_harness.middleware.turn_parts import Part, PartFinder, PartMark, find_entrance, is_nested
from langmem_harness.middleware.turn_plan import find_leftovers, has_copies, newest_human
from langmem_harness.threads.events import TurnEvent, messages_body
from langmem_harness.threads.log import ThreadLog
from langmem_harness.window.messages import HASH_TAG, canonical_json, content_hash, text_hash

AGAIN = "~again:"
"""In the id of a turn that asks an answered one again, behind the id of that one."""

_NO_THREAD = "durable turns need a thread_id in config['configurable']"

PREFIX_KEY = "prefix"
USER_KEY = "user"
AGENT_KEY = "agent"


class TurnState(AgentState[Any]):
    """State of an agent with durable turns: plain JSON, left out of input and output."""

    durable_turn: NotRequired[Annotated[dict[str, Any], PrivateStateAttr]]


@dataclass(frozen=True, kw_only=True)
class TurnMark:
    """What the graph state says about the turn it is in, so that a resumed run knows it again.

    Attributes:
        turn_id: Id in the log.
        given: The caller's `turn_id`; None when there was none.
        human_id: Id of the turn's human message.
        content_hash: Tagged hash of what it says.
        prefix_hash: Tagged hash of what precedes it.
        user_hash: Tagged hash of whose turn it is; None when no user was named.
        checkpoint_id: The checkpoint the caller told the run to start from; None for the newest.
        asked: Model calls of the turn so far.
        agent: Name of the agent; None when it has none.
        part: Which part of a turn it is, for an agent in a larger graph; None for an agent of its own.
    """

    turn_id: str
    given: str | None
    human_id: str | None
    content_hash: str
    prefix_hash: str
    user_hash: str | None
    checkpoint_id: str | None
    asked: int = 0
    agent: str | None = None
    part: PartMark | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)

    @classmethod
    def from_state(cls, state: Any) -> Self | None:
        """The mark in a state; None when there is none of this form."""
        stored = state.get("durable_turn") if isinstance(state, Mapping) else getattr(state, "durable_turn", None)
        if not isinstance(stored, Mapping):
            return None
        try:
            part = stored.get("part")
            return cls(**{**stored, "part": None if part is None else PartMark(**part)})
        except TypeError:  # written by another version
            return None


@dataclass(frozen=True, kw_only=True)
class Turn:
    """The turn a hook runs in.

    Attributes:
        thread_id: The conversation.
        mark: Which turn, and how far it is.
        since: Messages of the state behind the turn's human message. All messages, when another middleware took the
            human message out of the state.
        human: The turn's human message; None when it is not in the state any more.
        leftovers: Removals of copies of the human message that runs left which died before they could log it.
    """

    thread_id: str
    mark: TurnMark
    since: Sequence[BaseMessage]
    human: HumanMessage | None
    leftovers: Sequence[BaseMessage] = ()

    @property
    def turn_id(self) -> str:
        """Id in the log."""
        return self.mark.turn_id

    @property
    def is_asked_again(self) -> bool:
        """Whether the caller asks an answered turn again, or a graph comes to an agent of it another way."""
        if self.mark.part is not None:
            return bool(self.mark.part.repeats)
        return AGAIN in self.turn_id and self.mark.given is None

    @property
    def is_variant(self) -> bool:
        """Whether the same human message has other turns: on another branch, by another user, or by another agent."""
        if self.mark.part is not None:
            return bool(self.mark.part.repeats)
        return self.mark.given is None and self.turn_id != self.mark.human_id

    def user_body(self, message: BaseMessage) -> dict[str, Any]:
        """The log entry of the human message."""
        facts = {PREFIX_KEY: self.mark.prefix_hash, USER_KEY: self.mark.user_hash, AGENT_KEY: self.mark.agent}
        return {**messages_body([message]), **facts}


def messages_in(state: Any) -> list[BaseMessage]:
    """The messages of a graph state."""
    return list(state.get("messages") or []) if isinstance(state, Mapping) else list(getattr(state, "messages", []))


def prefix_hash(messages: Sequence[BaseMessage]) -> str:
    """Tagged hash of what a conversation says up to here, without message ids: those differ between runs that send it
    whole each time."""
    return text_hash("".join(content_hash(message) for message in messages))


def user_hash(context: Any, config: Any) -> str | None:
    """Tagged hash of tenant and user of a run; None when it names none. The log of a thread names no user."""
    try:
        scope = scope_from_runtime(context, config)
    except IdentityError:
        return None
    return text_hash(canonical_json([scope.tenant, scope.user]))


def family_of(turn_id: str) -> str:
    """Id of the turn that a turn asks again; its own when it asks none again."""
    return turn_id.partition(AGAIN)[0]


@dataclass(frozen=True, kw_only=True)
class _Run:
    """What a run says about itself."""

    given: str | None
    user_hash: str | None
    checkpoint_id: str | None
    agent: str | None
    begins: bool

    def goes_on(self, mark: TurnMark) -> bool:
        """Whether it goes on where a marked turn stopped; also when it is someone else who lets it go on."""
        is_same = self.given in (None, mark.given) and self.agent == mark.agent
        return is_same and self.checkpoint_id in (None, mark.checkpoint_id)

    @classmethod
    def of(cls, context: Any, config: Mapping[str, Any], *, begins: bool) -> _Run:
        configurable: Mapping[str, Any] = config.get("configurable") or {}
        given = context.get("turn_id") if isinstance(context, Mapping) else getattr(context, "turn_id", None)
        given = configurable.get("turn_id") if given is None else given
        if given is not None and not str(given).strip():
            raise IdentityError(f"turn_id must not be blank, not {given!r}")
        # LangGraph takes the checkpoint the caller named out of a step's "configurable" and leaves it in the metadata.
        metadata: Mapping[str, Any] = config.get("metadata") or {}
        checkpoint_id, agent = metadata.get("checkpoint_id"), metadata.get("lc_agent_name")
        return cls(
            given=None if given is None else str(given),
            user_hash=user_hash(context, config),
            checkpoint_id=str(checkpoint_id) if checkpoint_id else None,
            agent=str(agent) if agent else None,
            begins=begins,
        )


class TurnFinder:
    """Says which turn a state is in.

    Args:
        log: Where turns are looked up.
        on_ask_again: Gets thread id and turn id when an answered turn is asked again.
    """

    def __init__(self, log: ThreadLog, on_ask_again: Callable[[str, str], None]) -> None:
        self._log = log
        self._parts = PartFinder(log)
        self._on_ask_again = on_ask_again

    def begin_part(self, state: Any, context: Any, config: Mapping[str, Any]) -> tuple[Turn, Part] | None:
        """The part of a turn that an agent in a larger graph begins; None when runs of that graph cannot be told apart.

        Raises:
            IdentityError: There is no thread id, or the turn id is blank.
        """
        messages = messages_in(state)
        newest, thread_id = newest_human(messages), thread_from_config(config)
        if newest is None:
            return None
        if thread_id is None:
            raise IdentityError(_NO_THREAD)
        human, run, entrance = newest[1], _Run.of(context, config, begins=True), find_entrance(config)
        if entrance is None or (run.given is None and human.id is None):
            return None
        part = self._parts.begin(
            thread_id,
            str(human.id) if run.given is None else run.given,
            entrance,
            messages,
            human,
            user_hash=run.user_hash,
            asks_again=run.checkpoint_id is not None,
        )
        mark = TurnMark(
            turn_id=part.turn_id,
            given=run.given,
            human_id=human.id,
            content_hash=content_hash(human),
            prefix_hash=prefix_hash(messages[: newest[0]]),
            user_hash=run.user_hash,
            checkpoint_id=run.checkpoint_id,
            agent=run.agent,
            part=part.mark,
        )
        return Turn(thread_id=thread_id, mark=mark, since=(), human=human), part

    def find(self, state: Any, context: Any, config: Mapping[str, Any], *, begins: bool = False) -> Turn | None:
        """The turn a state is in; None when nobody said anything, or in words without an id.

        Args:
            state: The graph's state.
            context: The runtime context.
            config: The run's config.
            begins: Whether this is the beginning of a run with new input.

        Raises:
            IdentityError: There is no thread id, or the turn id is blank.
        """
        messages, mark = messages_in(state), None if begins else TurnMark.from_state(state)
        if is_nested(config):
            return _turn_of_part(thread_from_config(config), mark, messages)
        newest = newest_human(messages)
        if mark is not None and newest is not None and newest[1].id != mark.human_id:
            # Somebody spoke behind the marked message: another middleware in the middle of the turn, or a next turn.
            thread_id = thread_from_config(config)
            if thread_id is not None and self.is_done(thread_id, mark.turn_id):
                mark = None
        spoken = _marked_human(messages, mark) if mark is not None and mark.human_id is not None else newest
        if spoken is None and mark is None:
            return None
        thread_id = thread_from_config(config)
        if thread_id is None:
            raise IdentityError(_NO_THREAD)
        run = _Run.of(context, config, begins=begins)
        if spoken is None:
            return None if mark is None else _without_its_message(thread_id, mark, messages, run)
        position, human = spoken
        if run.given is None and human.id is None:
            return None
        before, rest = messages[:position], messages[position:]
        leftovers = self._leftovers(thread_id, before, human) if begins else []
        before = before[: len(before) - len(leftovers)]
        found = self._identify(thread_id, human, before, rest, TurnMark.from_state(state), run)
        return Turn(
            thread_id=thread_id,
            mark=replace(found, asked=_asked(mark, found, rest, begins)),
            since=rest[1:],
            human=human,
            leftovers=leftovers,
        )

    def is_done(self, thread_id: str, turn_id: str) -> bool:
        """Whether a turn was answered."""
        return self._log.get_event(thread_id, turn_id, "done") is not None

    def known_ids(self, thread_id: str) -> set[str | None]:
        """Ids of every message in a thread's log. Reads the whole log."""
        return {message.id for message in self._log.messages(thread_id)}

    def earlier_result(self, turn: Turn, tool_hash: str, number: int) -> TurnEvent | None:
        """The logged result of the same call in another turn with the same human message; None when there is none.

        Args:
            turn: The turn that calls now.
            tool_hash: What is called and with what.
            number: How often the same was called before in this turn: the second call gets the second result.
        """
        if turn.mark.part is not None:
            return self._parts.earlier_result(turn.thread_id, turn.mark.part, tool_hash, number)
        stem = family_of(turn.turn_id) if turn.is_asked_again else str(turn.mark.human_id)
        start = stem + (AGAIN if turn.is_asked_again else "~")
        for other in self._log.turns(turn.thread_id):
            if other.turn_id == turn.turn_id or not (other.turn_id == stem or other.turn_id.startswith(start)):
                continue
            events = self._log.events(turn.thread_id, turn_id=other.turn_id)
            same = [each for each in events if each.kind.startswith("tool:") and each.body.get("call") == tool_hash]
            if len(same) > number:
                return same[number]
        return None

    def _identify(
        self,
        thread_id: str,
        human: HumanMessage,
        before: Sequence[BaseMessage],
        rest: Sequence[BaseMessage],
        mark: TurnMark | None,
        run: _Run,
    ) -> TurnMark:
        content = content_hash(human)
        if mark is not None and (mark.human_id, mark.content_hash) != (human.id, content):
            mark = None
        if mark is not None and not run.begins and run.goes_on(mark):
            return mark
        facts = TurnMark(
            turn_id="",
            given=run.given,
            human_id=human.id,
            content_hash=content,
            prefix_hash=prefix_hash(before),
            user_hash=run.user_hash,
            checkpoint_id=run.checkpoint_id,
            agent=run.agent,
        )
        if run.given is not None:
            found = replace(facts, turn_id=self._own_id(thread_id, run.given, facts))
            return found if run.begins else self._logged(thread_id, found, human)
        turn_id = self._marked_id(thread_id, mark, facts, run) or self._own_id(thread_id, str(human.id), facts)
        if run.checkpoint_id is not None and self._lacks_its_answer(thread_id, turn_id, rest):
            return self._ask_again(thread_id, replace(facts, turn_id=turn_id), human)
        given = mark.given if mark is not None and mark.turn_id == turn_id else None
        found = replace(facts, turn_id=turn_id, given=given)
        return found if run.begins else self._logged(thread_id, found, human)

    def _logged(self, thread_id: str, mark: TurnMark, human: HumanMessage) -> TurnMark:
        """The turn, its human message in the log: a run that starts behind it, on a fork, has not logged it."""
        if self._log.get_event(thread_id, mark.turn_id, "user") is None:
            turn = Turn(thread_id=thread_id, mark=mark, since=(), human=human)
            self._log.append_event(thread_id, mark.turn_id, "user", turn.user_body(human))
        return mark

    def _marked_id(self, thread_id: str, mark: TurnMark | None, facts: TurnMark, run: _Run) -> str | None:
        """Id of the turn in the state's mark, if this is a retry of it."""
        if mark is None or (mark.user_hash, mark.agent) != (facts.user_hash, facts.agent):
            return None
        if mark.prefix_hash == facts.prefix_hash:
            return mark.turn_id
        # Something before the message changed. Another middleware may have done that in the middle of the turn (trimmed
        # or summarized it); a turn that was not finished is gone on with, because its effects must not happen twice.
        goes_on = run.begins and run.checkpoint_id is None and not self.is_done(thread_id, mark.turn_id)
        return mark.turn_id if goes_on else None

    def _own_id(self, thread_id: str, stem: str, facts: TurnMark) -> str:
        """The stem for the first turn under it, and for retries of that; else the stem with a hash of what differs."""
        logged = self._log.get_event(thread_id, stem, "user")
        if logged is None or _matches(logged, facts):
            return stem
        what = [facts.user_hash] if facts.given else [facts.content_hash, facts.prefix_hash, facts.user_hash]
        what += [] if facts.agent is None else [facts.agent]
        return f"{stem}~{_short(canonical_json(what))}"

    def _lacks_its_answer(self, thread_id: str, turn_id: str, rest: Sequence[BaseMessage]) -> bool:
        answer = self._log.answer(thread_id, turn_id)
        return answer is not None and answer.id not in {message.id for message in rest}

    def _ask_again(self, thread_id: str, facts: TurnMark, human: HumanMessage) -> TurnMark:
        stem = f"{family_of(facts.turn_id)}{AGAIN}{_short(str(facts.checkpoint_id))}"
        for number in itertools.count(1):
            mark = replace(facts, turn_id=stem if number == 1 else f"{stem}:{number}")
            if not self.is_done(thread_id, mark.turn_id):  # else that was asked and answered: asked once more
                break
        if self._log.get_event(thread_id, mark.turn_id, "user") is None:
            self._on_ask_again(thread_id, mark.turn_id)
        return self._logged(thread_id, mark, human)

    def _leftovers(self, thread_id: str, before: Sequence[BaseMessage], human: HumanMessage) -> list[BaseMessage]:
        if not before or not isinstance(before[-1], HumanMessage):
            return []
        return find_leftovers(before, human, self.known_ids(thread_id)) if has_copies(before[-1:], human) else []


def _marked_human(messages: Sequence[BaseMessage], mark: TurnMark) -> tuple[int, HumanMessage] | None:
    for position in range(len(messages) - 1, -1, -1):
        message = messages[position]
        if message.id == mark.human_id and isinstance(message, HumanMessage):
            return position, message
    return None


def _turn_of_part(thread_id: str | None, mark: TurnMark | None, messages: Sequence[BaseMessage]) -> Turn | None:
    """The part of a turn that an agent in a larger graph is in; None when it was begun without durable turns."""
    if thread_id is None or mark is None or mark.part is None:
        return None
    start = next((i for i in range(len(messages) - 1, -1, -1) if messages[i].id == mark.part.behind), None)
    spoken = _marked_human(messages, mark)
    if start is None:  # another middleware took it out in the middle of the turn
        start = -1 if spoken is None else spoken[0]
    human = None if spoken is None else spoken[1]
    return Turn(thread_id=thread_id, mark=mark, since=messages[start + 1 :], human=human)


def _without_its_message(thread_id: str, mark: TurnMark, messages: Sequence[BaseMessage], run: _Run) -> Turn:
    """The marked turn, when another middleware took its human message out of the state in the middle of it."""
    is_other = run.given not in (None, mark.given)
    found = replace(mark, turn_id=str(run.given), given=run.given) if is_other else mark
    return Turn(thread_id=thread_id, mark=found, since=messages, human=None)


def _asked(mark: TurnMark | None, found: TurnMark, since: Sequence[BaseMessage], begins: bool) -> int:
    if begins:
        return 0
    if mark is not None and mark.human_id == found.human_id:
        return mark.asked
    return sum(message.type == "ai" for message in since)


def _matches(logged: TurnEvent, facts: TurnMark) -> bool:
    """Whether a logged human message begins this turn. Logs of earlier versions say neither prefix nor user: any will
    do."""
    if logged.body.get(USER_KEY, facts.user_hash) != facts.user_hash:
        return False
    if logged.body.get(AGENT_KEY, facts.agent) != facts.agent:
        return False
    if facts.given is not None:
        return True  # the caller's key decides; other content under it is a conflict
    same_prefix = logged.body.get(PREFIX_KEY, facts.prefix_hash) == facts.prefix_hash
    return same_prefix and content_hash(logged.messages()[0]) == facts.content_hash


def _short(text: str) -> str:
    return text_hash(text).removeprefix(HASH_TAG + ":")[:12]
