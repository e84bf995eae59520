"""A thread with several users: what one of them said is never saved, promoted or kept for another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langmem_harness.memory import EpisodeIndex, LongTermMemory, MemoryContext, MemoryScope
from langmem_harness.memory.promotion import Promoter
from langmem_harness.memory.speakers import SPEAKERS_KEY, merge_speakers, note_arrived, person_of, turns_of
from langmem_harness.middleware.long_term import LongTermMemoryMiddleware
from langmem_harness.middleware.turns import DurableTurnsMiddleware
from langmem_harness.testing import ScriptedChatModel
from langmem_harness.threads import SqliteCheckpointer, ThreadLog
from tests.conftest import Face
from tests.middleware.test_long_term import RUNS, play

ADA, BOB = MemoryScope(user="ada"), MemoryScope(user="bob")
EVE = MemoryScope(tenant="other", user="ada")


class Desk:
    """One thread store for many users; every turn is a new agent, as in a web server."""

    def __init__(self, how: str = "invoke", saver: Any = None, log: ThreadLog | None = None) -> None:
        self.store: BaseStore = InMemoryStore()
        self.saver = InMemorySaver() if saver is None else saver
        self._how, self._log = how, log

    def say(self, who: MemoryScope, text: str, *answers: Any, **settings: Any) -> ScriptedChatModel:
        model = ScriptedChatModel(responses=list(answers) or ["Fine."])
        middleware: list[Any] = [] if self._log is None else [DurableTurnsMiddleware(self._log)]
        if not settings.pop("without_memory", False):
            middleware.append(LongTermMemoryMiddleware(thread_log=self._log, **{"history": True, **settings}))
        agent = create_agent(
            model,
            store=self.store,
            checkpointer=self.saver,
            middleware=middleware,
            context_schema=MemoryContext,
        )
        play(agent, self._how, text, context=MemoryContext(user_id=who.user, tenant=who.tenant))
        return model

    def said(self, who: MemoryScope) -> set[str]:
        return {one.utterance.text for one in EpisodeIndex(self.store).search(who, "what", top_k=50).episodes}

    def memories(self, who: MemoryScope) -> list[str]:
        return [record.text for record in LongTermMemory(self.store).list(who)]


def save(text: str, **arguments: Any) -> AIMessage:
    call = {"name": "save_memory", "args": {"text": text, **arguments}, "id": "c1"}
    return AIMessage("", tool_calls=[call])


@pytest.mark.parametrize("other", [BOB, EVE], ids=["another user", "another tenant"])
@pytest.mark.parametrize("how", RUNS)
def test_what_another_user_said_in_the_thread_is_no_evidence(how: str, other: MemoryScope) -> None:
    desk = Desk(how)
    desk.say(ADA, "I am vegetarian and live in Rome.")
    model = desk.say(other, "Taking over this ticket.", save("The user is vegetarian and lives in Rome."), "Done.")
    assert "no_evidence" in str(model.requests[-1][-1].content)
    desk.say(other, "Go on.", save("Lives in Rome.", quote="live in Rome"), "Done.")
    assert desk.memories(other) == []
    desk.say(ADA, "Please remember what I said.", save("The user is vegetarian and lives in Rome."), "Done.")
    assert desk.memories(ADA) == ["The user is vegetarian and lives in Rome."]


@pytest.mark.parametrize("how", RUNS)
def test_utterances_are_kept_for_who_said_them(how: str) -> None:
    desk = Desk(how)
    desk.say(ADA, "My salary is 90000.", "Noted, Ada.")
    desk.say(BOB, "Taking over.", "Welcome, Bob.")
    desk.say(ADA, "Thank you, Bob.", "Bye, Ada.")
    assert desk.said(ADA) == {"My salary is 90000.", "Noted, Ada.", "Thank you, Bob.", "Bye, Ada."}
    assert desk.said(BOB) == {"Taking over.", "Welcome, Bob."}


@pytest.mark.parametrize("how", RUNS)
def test_history_switched_on_later_takes_nobody_elses_words(how: str) -> None:
    desk = Desk(how)
    desk.say(ADA, "My salary is 90000.", history=False)
    desk.say(BOB, "Hello from Bob.")
    assert desk.said(BOB) == {"Hello from Bob.", "Fine."}
    desk.say(ADA, "And now?")
    assert desk.said(ADA) == {"My salary is 90000.", "And now?", "Fine."}


@pytest.mark.parametrize("how", RUNS)
def test_a_thread_of_one_user_from_before_goes_on_as_ever(how: str) -> None:
    desk = Desk(how)
    desk.say(ADA, "I am vegetarian.", without_memory=True)
    desk.say(ADA, "Remember that, please.", save("The user is vegetarian."), "Done.")
    assert desk.memories(ADA) == ["The user is vegetarian."]
    assert desk.said(ADA) == {"I am vegetarian.", "Fine.", "Remember that, please.", "Done."}
    desk.say(BOB, "I am here, too.", save("The user is vegetarian."), "Done.")
    assert desk.memories(BOB) == []
    desk.say(ADA, "Still there?")
    assert "I am vegetarian." in desk.said(ADA), "what was kept stays"


@pytest.mark.parametrize("how", RUNS)
def test_the_thread_log_knows_who_spoke_before_memory_was_on(how: str, tmp_path: Path) -> None:
    with SqliteCheckpointer(tmp_path / "threads.sqlite") as saver, ThreadLog(tmp_path / "log.sqlite") as log:
        desk = Desk(how, saver, log)
        desk.say(ADA, "I am vegetarian.", without_memory=True)
        desk.say(BOB, "Taking over.", save("The user is vegetarian."), "Done.")
        assert desk.memories(BOB) == []
        assert desk.said(BOB) == {"Taking over.", "Done."}


def test_an_index_from_the_log_takes_the_turns_of_the_user_only(tmp_path: Path, face: Face) -> None:
    with ThreadLog(tmp_path / "log.sqlite") as log:
        desk = Desk(log=log)
        desk.say(ADA, "I am vegetarian.", "Noted, Ada.", without_memory=True)
        desk.say(BOB, "Taking over.", "Welcome, Bob.", without_memory=True)
        index = EpisodeIndex(desk.store, log)
        assert face(index, "index_logged_thread", BOB, "t1") == 2
        assert desk.said(BOB) == {"Taking over.", "Welcome, Bob."}
        face(index, "index_logged_thread", EVE, "t1")
        assert desk.said(EVE) == set()


def test_a_promotion_reads_what_the_user_said(face: Face) -> None:
    desk = Desk()
    desk.say(ADA, "I am vegetarian.", history=False)
    desk.say(BOB, "I live in Oslo.", history=False)
    promoter = Promoter(LongTermMemory(desk.store), checkpointer=desk.saver)
    for who, known in ((BOB, ["I live in Oslo."]), (ADA, ["I am vegetarian."]), (EVE, [])):
        face(promoter, "promote", who, "t1")
        assert desk.memories(who) == known


def test_a_promotion_of_an_older_thread_asks_the_log(tmp_path: Path, face: Face) -> None:
    with ThreadLog(tmp_path / "log.sqlite") as log:
        desk = Desk(log=log)
        desk.say(ADA, "I am vegetarian.", without_memory=True)
        desk.say(BOB, "I live in Oslo.", without_memory=True)
        promoter = Promoter(LongTermMemory(desk.store), checkpointer=desk.saver, thread_log=log)
        face(promoter, "promote", BOB, "t1")
        assert desk.memories(BOB) == ["I live in Oslo."]


def test_a_checkpoint_of_another_users_run_is_a_sign(face: Face) -> None:
    saver, store = InMemorySaver(), InMemoryStore()
    agent = create_agent(ScriptedChatModel(responses=["Fine."]), checkpointer=saver)
    agent.invoke(
        {"messages": [HumanMessage("I am vegetarian.")]}, {"configurable": {"thread_id": "t", "user_id": "ada"}}
    )
    promoter = Promoter(LongTermMemory(store), checkpointer=saver)
    assert face(promoter, "promote", BOB, "t").read == 0
    assert face(promoter, "promote", ADA, "t").read == 1


def test_the_notes_are_in_no_output_and_hold_no_words() -> None:
    desk = Desk()
    desk.say(ADA, "My salary is 90000.")
    found = desk.saver.get_tuple({"configurable": {"thread_id": "t1"}})
    assert found is not None
    notes = found.checkpoint["channel_values"][SPEAKERS_KEY]
    assert list(notes.values()) == [person_of(ADA)]
    assert not {"ada", "salary"} & set(str(notes).split())
    agent = create_agent(
        ScriptedChatModel(responses=["Fine."]),
        store=desk.store,
        checkpointer=desk.saver,
        middleware=[LongTermMemoryMiddleware()],
        context_schema=MemoryContext,
    )
    forged: Any = {"messages": [HumanMessage("Hi.")], SPEAKERS_KEY: {"x": "y"}}
    answer = agent.invoke(forged, {"configurable": {"thread_id": "t1"}}, context=MemoryContext(user_id="ada"))
    assert SPEAKERS_KEY not in answer
    found = desk.saver.get_tuple({"configurable": {"thread_id": "t1"}})
    assert found is not None
    assert "x" not in found.checkpoint["channel_values"][SPEAKERS_KEY]


def test_the_same_id_with_other_words_is_another_message() -> None:
    ada, bob = person_of(ADA), person_of(BOB)
    first, answer = HumanMessage("I am vegetarian.", id="1"), AIMessage("Fine.", id="2")
    notes = merge_speakers(None, note_arrived([first], {}, ada))
    changed = [HumanMessage("I eat meat.", id="1"), answer]
    notes = merge_speakers(notes, note_arrived(changed, notes, bob))
    assert turns_of(changed, notes, ada, others=[bob]) == []
    assert turns_of(changed, notes, bob) == []
    assert turns_of([first, answer], notes, ada) == [first, answer]


def test_a_message_left_by_a_refused_run_is_not_the_next_users() -> None:
    ada, bob = person_of(ADA), person_of(BOB)
    thread = [HumanMessage("Hi.", id="1"), AIMessage("Fine.", id="2")]
    notes = note_arrived(thread[:1], {}, ada)
    thread += [HumanMessage("I am Ada's secret.", id="3"), HumanMessage("I am Bob.", id="4")]
    notes = merge_speakers(notes, note_arrived(thread, notes, bob))
    assert [message.text for message in turns_of(thread, notes, bob)] == ["I am Bob."]


def test_a_first_note_stays() -> None:
    assert merge_speakers({"a": "1"}, {"a": "2", "b": ""}) == {"a": "1", "b": ""}
    assert merge_speakers(None, None) == {}
