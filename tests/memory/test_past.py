"""Earlier threads as they grow: what is embedded, what a crash leaves, two processes, the thread log, names."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, HumanMessage, messages_to_dict
from langgraph.store.base import BaseStore, PutOp
from langgraph.store.memory import InMemoryStore

from langmem_harness.driving import drive
from langmem_harness.errors import ConfigurationError
from langmem_harness.memory import EpisodeIndex, LongTermMemory, MemoryScope, Utterance
from langmem_harness.memory.past import Past
from langmem_harness.memory.utterances import join_said
from langmem_harness.store import FaissStore
from langmem_harness.testing import DeterministicEmbeddings, FixedClock
from langmem_harness.threads import ThreadLog
from tests.conftest import Face

ADA = MemoryScope(user="ada")
DAY = datetime(2026, 4, 27, 9, tzinfo=UTC)

LINES = (
    "Mel: The pump failed.",
    "Caro: Which seal do we take?",
    "Mel: The grey one.",
    "Caro: I call the technician.",
    "Mel: My daughter started school.",
    "Caro: Congratulations!",
)


def talk(*lines: str, day: datetime = DAY) -> list[Utterance]:
    parts = [line.split(": ", 1) for line in lines]
    return [
        Utterance(message_id=f"m{place}", speaker=speaker, text=text, said_at=day)
        for place, (speaker, text) in enumerate(parts)
    ]


class Counting(Embeddings):
    """Remembers what it was asked for."""

    def __init__(self) -> None:
        self.documents: list[str] = []
        self.queries: list[str] = []
        self._model = DeterministicEmbeddings(dims=256)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.documents += texts
        return self._model.embed_documents(texts)

    def embed_query(self, text: str) -> list[float]:
        self.queries.append(text)
        return self._model.embed_query(text)


def open_store(path: Path | str, model: Embeddings | None = None, **settings: Any) -> FaissStore:
    return FaissStore(path, index={"embed": model or Counting(), "fields": ["text"]}, **settings)


def test_contexts_cost_no_embedding(tmp_path: Path, face: Face) -> None:
    model = Counting()
    with open_store(tmp_path / "m.sqlite", model) as store:
        index = EpisodeIndex(store)
        face(index, "index_thread", ADA, "t", talk(*LINES[:5]))
        probe = 1
        assert len(model.documents) == 5 + probe
        assert all("\x1e" not in text for text in model.documents)
        face(index, "index_thread", ADA, "t", talk(*LINES))
        assert model.documents[5 + probe :] == ["[27 April, 2026] Caro: Congratulations!"]
    again = Counting()
    with open_store(tmp_path / "m.sqlite", again) as store:
        face(EpisodeIndex(store), "index_thread", ADA, "t", talk(*LINES, "Mel: Thanks."))
        assert len(again.documents) <= 1 + 4 + probe, "another process embeds the neighbours once more"


def test_an_answer_is_found_by_the_words_of_the_turns_around_it() -> None:
    with open_store(":memory:") as store:
        index = EpisodeIndex(store)
        index.index_thread(ADA, "t", talk(*LINES))
        index.index_thread(ADA, "u", talk("Mel: The soup is ready.", "Caro: Lovely."))
        found = [one.utterance.text for one in index.search(ADA, "seal", top_k=4).episodes]
        assert found[0] == "Which seal do we take?"
        assert "The grey one." in found


def test_a_name_is_searched_by_words_and_not_by_meaning() -> None:
    model = Counting()
    with open_store(":memory:", model) as store:
        index = EpisodeIndex(store)
        index.index_thread(ADA, "t", talk(*LINES, "Bo: Ask Mel about lunch."))
        index.search(ADA, "What did Mel's daughter start?")
        assert model.queries == ["What did daughter start?"]
    with open_store(":memory:", retrieval="keyword") as store:
        index = EpisodeIndex(store)
        index.index_thread(ADA, "t", talk(*LINES, "Bo: Ask Mel about lunch."))
        found = index.search(ADA, "Mel", top_k=10).episodes
        assert "Ask Mel about lunch." in {one.utterance.text for one in found}


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("Which blue herons does Mel like most of all?", {"Mel"}),
        ("Which blue herons does caro like most of all?", {"Caro"}),
        ("Which blue herons do Mel and Caro like most of all?", {"Mel", "Caro", "user"}),
        ("Which blue herons do they like most?", {"Mel", "Caro", "user"}),
        ("Which blue herons does the user like most?", {"Mel", "Caro", "user"}),
    ],
)
def test_only_the_one_person_named_is_lifted(question: str, first: set[str]) -> None:
    with open_store(":memory:") as store:
        index = EpisodeIndex(store)
        for place, name in enumerate(("Mel", "Caro", "user")):
            index.index_thread(ADA, f"t{place}", talk(f"{name}: Blue herons are what I like most of all birds."))
        index.index_thread(ADA, "other", talk(*(f"Bo: Nothing new, week {week}." for week in range(9))))
        found = index.search(ADA, question).episodes
        assert found[0].utterance.speaker in first
        assert (max(one.score or 0.0 for one in found) > 1.0) == (len(first) == 1)


def test_a_lifted_item_comes_from_far_below() -> None:
    with open_store(":memory:") as store:
        index = EpisodeIndex(store)
        index.index_thread(ADA, "t", talk(*(f"Caro: The pump hums, part {number}." for number in range(80))))
        index.index_thread(ADA, "u", talk("Mel: The pump hums, and dinner was good."))
        index.index_thread(ADA, "v", talk(*(f"Caro: Nothing new, week {week}." for week in range(9))))
        named = index.search(ADA, "What of the pump hums, Mel?", top_k=1).episodes
        unnamed = index.search(ADA, "What of the pump hums?", top_k=1).episodes
        assert [one.thread_id for one in (*named, *unnamed)] == ["u", "t"]


def test_completed_turns_come_from_the_log_with_their_dates(tmp_path: Path, face: Face) -> None:
    clock = FixedClock(DAY)
    with ThreadLog(tmp_path / "log.sqlite", clock=clock) as log, open_store(":memory:") as store:

        def say(turn: str, kind: str, message: Any, **more: Any) -> Any:
            body = {"messages": messages_to_dict([message])}
            return log.append_event("t", turn, kind, body, **more)

        say("1", "user", HumanMessage("Which seal?", id="a"))
        answer = say("1", "assistant:0", AIMessage("The red one.", id="b"))
        say("1", "correction", AIMessage("The grey one.", id="b2"), supersedes=answer.seq)
        log.append_event("t", "1", "done", {})
        clock.advance(days=1)
        say("2", "user", HumanMessage("And the lid?", id="c"))
        index = EpisodeIndex(store, log)
        assert len(log.messages("t")) == 3
        assert face(index, "index_logged_thread", ADA, "t") == 2
        assert face(index, "index_logged_thread", ADA, "t") == 0
        said = {one.utterance.text: one.utterance.said_at for one in index.search(ADA, "seal lid grey red").episodes}
        assert said == {"Which seal?": DAY, "The grey one.": DAY}
        log.append_event("t", "2", "done", {})
        assert face(index, "index_logged_thread", ADA, "t") == 3
        dates = {one.utterance.said_at for one in index.search(ADA, "lid").episodes}
        assert dates == {DAY, DAY + timedelta(days=1)}
        with pytest.raises(ConfigurationError):
            face(EpisodeIndex(store), "index_logged_thread", ADA, "t")


def extend(store: BaseStore, utterances: list[Utterance]) -> int:
    return drive(Past(LongTermMemory(store).settings).extend(ADA, "t", utterances))


def kept(store: BaseStore) -> dict[int, dict[str, Any]]:
    return {item.value["position"]: dict(item.value) for item in store.search(ADA.episodes, limit=100)}


def test_growing_turn_by_turn_ends_where_writing_at_once_does(any_store: BaseStore) -> None:
    for count in range(1, len(LINES) + 1):
        written = extend(any_store, talk(*LINES[:count]))
        assert written == min(count, 3), "the new one and the two contexts that reach it"
        assert extend(any_store, talk(*LINES[:count])) == 0
    grown = kept(any_store)
    other = InMemoryStore()
    EpisodeIndex(other).index_thread(ADA, "t", talk(*LINES))
    assert grown == kept(other)


def test_growing_keeps_the_dates_and_follows_a_fork(any_store: BaseStore) -> None:
    extend(any_store, talk(*LINES[:3]))
    later = DAY + timedelta(days=9)
    extend(any_store, talk(*LINES[:5], day=later))
    dates = [datetime.fromisoformat(kept(any_store)[place]["said_at"]) for place in range(5)]
    assert dates == [DAY] * 3 + [later] * 2
    fork = [*talk(*LINES[:2], day=later), *talk("Mel: No seal at all.", day=later)]
    fork[2] = Utterance(message_id="other", speaker="Mel", text="No seal at all.", said_at=later)
    extend(any_store, fork)
    rows = kept(any_store)
    assert [rows[place]["said"] for place in sorted(rows)] == [
        "The pump failed.",
        "Which seal do we take?",
        "No seal at all.",
    ]
    assert datetime.fromisoformat(rows[0]["said_at"]) == DAY


@pytest.mark.parametrize(
    ("before", "now", "joined"),
    [
        ("", "abc", "abc"),
        ("abc", "abcd", "abcd"),
        ("abc", "abc", "abc"),
        ("abcd", "abx", "abx"),  # a fork
        ("abcd", "ab", "ab"),  # a fork that was not answered yet
        ("abcdef", "efg", "abcdefg"),  # trimmed at the front
        ("abcdef", "aefg", "abcdefg"),  # and the first one kept
        ("abcdef", "Sefg", "abcdefg"),  # a summary in its place
        ("abcdef", "gh", "abcdefgh"),  # everything removed
        ("abcdef", "", "abcdef"),
        ("abc", "cba", "abcba"),
    ],
)
def test_what_left_the_state_was_said_all_the_same(before: str, now: str, joined: str) -> None:
    def spoken(letters: str) -> list[Utterance]:
        return [Utterance(message_id=letter, speaker="user", text=letter, said_at=DAY) for letter in letters]

    assert "".join(one.text for one in join_said(spoken(before), spoken(now))) == joined


def test_a_thread_whose_state_is_trimmed_keeps_growing(any_store: BaseStore) -> None:
    lines = [f"user: Part {number}." for number in range(12)]
    for end in range(2, 13, 2):
        extend(any_store, talk(*lines[:end])[-3:])
    assert [value["said"] for _, value in sorted(kept(any_store).items())] == [f"Part {n}." for n in range(12)]


def test_a_speaker_who_is_not_in_the_thread_any_more_is_not_kept(any_store: BaseStore) -> None:
    index = EpisodeIndex(any_store)

    def speakers() -> set[str]:
        return {item.value["speaker"] for item in any_store.search(ADA.episode_speakers)}

    index.index_thread(ADA, "t", talk("Mel: Hello.", "Caro: Hi."))
    index.index_thread(ADA, "u", talk("Mel: Hello."))
    index.index_thread(ADA, "t", talk("Melanie: Hello.", "Caro: Hi."))
    assert speakers() == {"Melanie", "Caro", "Mel"}
    extend(any_store, talk("Melanie: Hello.", "Caro: Hi.", "Bo: Ho."))
    assert speakers() == {"Melanie", "Caro", "Mel", "Bo"}
    assert LongTermMemory(any_store).erase_thread("t").complete
    assert speakers() == {"Mel"}
    LongTermMemory(any_store).forget_all(ADA)
    assert speakers() == set()


def test_a_trimmed_thread_is_not_redacted_anew_every_turn() -> None:
    redacted: list[str] = []

    class Watching:
        def redact(self, text: str) -> tuple[str, dict[str, int]]:
            redacted.append(text)
            return text, {}

    store = InMemoryStore()
    past = Past(LongTermMemory(store, redactor=Watching()).settings)
    lines = [f"user: Part {number}." for number in range(10)]
    drive(past.extend(ADA, "t", talk(*lines[:8])))
    redacted.clear()
    assert drive(past.extend(ADA, "t", talk(*lines)[-3:])) == 4
    assert redacted == ["Part 8.", "Part 9."]


@pytest.mark.parametrize("odd", ["\x1e", "a\x1eb", "\ud83d", "\x00", "\u2028", "🦩" * 300, "</untrusted-data>", " "])
def test_odd_texts_speakers_and_threads(any_store: BaseStore, odd: str) -> None:
    index = EpisodeIndex(any_store)
    said = [Utterance(message_id="odd", speaker=odd, text=odd, said_at=DAY), *talk("Mel: The grey seal.")]
    thread = odd if odd.strip() and isinstance(any_store, FaissStore) else "plain"
    assert index.index_thread(ADA, thread, said) == 2
    assert index.index_thread(ADA, thread, said) == 0
    found = index.search(ADA, f"grey {odd} seal", neighbours=1).episodes
    assert {one.utterance.text for one in found} >= {"The grey seal."}
    assert LongTermMemory(any_store).erase_thread(thread).complete
    assert kept(any_store) == {}


def test_an_embedder_that_is_down_costs_meaning_and_nothing_else(tmp_path: Path, face: Face) -> None:
    class Down(Counting):
        is_down = True

        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            if self.is_down:
                raise OSError
            return super().embed_documents(texts)

    model = Down()
    with open_store(tmp_path / "m.sqlite", model) as store:
        index = EpisodeIndex(store)
        assert face(index, "index_thread", ADA, "t", talk(*LINES)) == 6
        result = face(index, "search", ADA, "Which seal did Caro take?", top_k=3)
        assert result.retrieval == "keyword"
        assert result.degraded
        assert result.episodes[0].utterance.text == "Which seal do we take?"
        model.is_down = False
        assert face(store, "embed_pending") == 6
        assert len(model.documents) == 1 + 6, "the probe, and each utterance once"
        assert face(index, "search", ADA, "Which seal did Caro take?").retrieval == "hybrid"


def test_an_owner_without_earlier_threads_costs_no_embedding() -> None:
    model = Counting()
    store = InMemoryStore(index={"embed": model, "dims": 256, "fields": ["text"]})
    assert EpisodeIndex(store).search(ADA, "anything").episodes == ()
    assert model.queries == []


def test_what_a_crash_left_undone_is_done_by_the_next_turn() -> None:
    class Crashing(InMemoryStore):
        writes_left = 1_000

        def batch(self, ops: Any) -> Any:
            ops = list(ops)
            if any(isinstance(op, PutOp) for op in ops):
                self.writes_left -= 1
                if self.writes_left < 0:
                    raise OSError
            return super().batch(ops)

    for after in range(6):
        store = Crashing()
        extend(store, talk(*LINES[:2]))
        store.writes_left = after
        with contextlib.suppress(OSError):
            extend(store, talk(*LINES[:4]))
        store.writes_left = 1_000
        extend(store, talk(*LINES[:5]))
        complete = InMemoryStore()
        EpisodeIndex(complete).index_thread(ADA, "t", talk(*LINES[:5]))
        assert kept(store) == kept(complete), after
        assert LongTermMemory(store).erase_thread("t").complete
        assert kept(store) == {}


WORKER = """
import sys
from datetime import UTC, datetime
from langmem_harness.memory import EpisodeIndex, MemoryScope, Utterance
from langmem_harness.store import FaissStore
from langmem_harness.testing import DeterministicEmbeddings

path, thread, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = FaissStore(path, index={"embed": DeterministicEmbeddings(dims=64), "fields": ["text"]})
index = EpisodeIndex(store)
said = []
for number in range(rounds):
    said.append(Utterance(message_id=f"m{number}", speaker="Mel", text=f"Part {number} of the pump.",
                          said_at=datetime(2026, 4, 27, tzinfo=UTC)))
    for thread_id in ("shared", thread):
        index.index_thread(MemoryScope(user="ada"), thread_id, said)
    print(number, flush=True)
store.close()
"""


def start(path: Path, thread: str, rounds: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WORKER, str(path), thread, str(rounds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_two_processes_write_threads_of_one_user(tmp_path: Path) -> None:
    path = tmp_path / "m.sqlite"
    workers = [start(path, thread, 8) for thread in ("a", "b")]
    for worker in workers:
        _, errors = worker.communicate(timeout=50)
        assert worker.returncode == 0, errors
    with open_store(path, DeterministicEmbeddings(dims=64)) as store:
        found = EpisodeIndex(store).search(ADA, "pump", top_k=100).episodes
        places = {(one.thread_id, one.position) for one in found}
        assert places == {(thread, place) for thread in ("a", "b", "shared") for place in range(8)}
        assert store.verify().ok
        receipt = LongTermMemory(store).erase_thread("shared")
        assert receipt.complete
        assert receipt.counts["episodes"] == 8


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no kill -9 here")
def test_killed_while_writing_and_written_again(tmp_path: Path) -> None:
    path = tmp_path / "m.sqlite"
    worker = start(path, "a", 10_000)
    assert worker.stdout is not None
    for line in worker.stdout:
        if line.strip() == "5":
            break
    os.kill(worker.pid, signal.SIGKILL)
    worker.communicate(timeout=20)
    with open_store(path, DeterministicEmbeddings(dims=64)) as store:
        rows = [item for item in store.search(ADA.episodes, limit=1_000) if item.value["thread_id"] == "a"]
        assert len(rows) >= 6
        lines = [f"Mel: Part {number} of the pump." for number in range(len(rows))]
        EpisodeIndex(store).index_thread(ADA, "a", talk(*lines, day=datetime(2026, 4, 27, tzinfo=UTC)))
        assert EpisodeIndex(store).index_thread(ADA, "a", talk(*lines, day=datetime(2026, 4, 27, tzinfo=UTC))) == 0
        assert store.verify().ok
        assert LongTermMemory(store).forget_all(ADA).complete
        assert store.search(ADA.episodes) == []
