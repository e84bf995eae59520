"""The contract of `LongTermMemory`, on every store and both faces."""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langmem_harness.errors import ConfigurationError, NotFoundError
from langmem_harness.events import MemoryEvent
from langmem_harness.memory import AdmissionPolicy, LongTermMemory, MemoryRecord, MemoryScope, MemorySource
from langmem_harness.store import FaissStore
from langmem_harness.testing import DeterministicEmbeddings, FixedClock
from tests.conftest import Face
from tests.memory.stores import OPENERS

ADA = MemoryScope(user="ada")
BOB = MemoryScope(user="bob")


def save(face: Face, memory: LongTermMemory, text: str, scope: MemoryScope = ADA, **options: Any) -> MemoryRecord:
    record = face(memory, "upsert", scope, text, **{"explicit": True, **options}).record
    assert isinstance(record, MemoryRecord)
    return record


def texts(found: Any) -> list[str]:
    return [getattr(one, "record", one).text for one in found]


def all_text_in(store: BaseStore) -> str:
    items: list[Any] = []
    while page := store.search((), limit=1_000, offset=len(items)) if not isinstance(store, InMemoryStore) else ():
        items += page
    if isinstance(store, InMemoryStore):
        items = [item for items in store._data.values() for item in items.values()]
    return json.dumps([[item.namespace, item.key, item.value] for item in items], ensure_ascii=False)


class TestScopes:
    def test_nobody_sees_another_scope(self, any_store: BaseStore, face: Face) -> None:
        memory = LongTermMemory(any_store)
        scopes = [
            MemoryScope(user="ada"),
            MemoryScope(user="bob"),
            MemoryScope(user="ada", agent="travel"),
            MemoryScope(user="ada", tenant="acme"),
            MemoryScope(user="ada_", tenant="acme"),
            MemoryScope(user="ad%", tenant="acme"),
        ]
        for number, scope in enumerate(scopes):
            save(face, memory, f"Likes tea number {number}.", scope)
        for number, scope in enumerate(scopes):
            expected = [f"Likes tea number {number}."]
            assert texts(face(memory, "list", scope)) == expected
            assert texts(face(memory, "search", scope, "tea", threshold=None, top_k=50)) == expected
            assert texts(face(memory, "recall", scope, "tea")) == expected

    @pytest.mark.parametrize("method", ["get", "delete", "history"])
    def test_foreign_and_unknown_keys_get_the_same_answer(self, any_store: BaseStore, face: Face, method: str) -> None:
        memory = LongTermMemory(any_store)
        foreign = save(face, memory, "Bob has a boat.", BOB).key
        answers = []
        for key in (foreign, "m" + "a" * (len(foreign) - 1)):
            with pytest.raises(NotFoundError) as caught:
                face(memory, method, ADA, key)
            answers.append(str(caught.value).replace(key, "KEY"))
        assert answers[0] == answers[1]
        assert texts(face(memory, "list", BOB)) == ["Bob has a boat."]

    @pytest.mark.parametrize("key", ["", " ", "m", "\x00", "\ud83d", "m" * 100_000, "../x", "a.b", "memories"])
    def test_odd_keys_are_simply_unknown(self, any_store: BaseStore, face: Face, key: str) -> None:
        memory = LongTermMemory(any_store)
        for method in ("get", "delete", "history"):
            with pytest.raises(NotFoundError):
                face(memory, method, ADA, key)


class TestDuplicates:
    def test_saving_twice_writes_once(self, any_store: BaseStore, face: Face) -> None:
        memory = LongTermMemory(any_store)
        first = face(memory, "upsert", ADA, "Has a dog.", explicit=True)
        again = face(memory, "upsert", ADA, "  has a DOG. ", explicit=True)
        assert (first.action, again.action) == ("added", "unchanged")
        assert again.record == first.record
        assert len(face(memory, "list", ADA)) == 1

    def test_a_duplicate_from_elsewhere_adds_its_source(self, any_store: BaseStore, face: Face) -> None:
        memory = LongTermMemory(any_store)
        one, two = MemorySource(thread_id="t1", message_id="m1"), MemorySource(thread_id="t2", message_id="m2")
        save(face, memory, "Has a dog.", source=one)
        result = face(memory, "upsert", ADA, "Has a dog.", source=[two, one], explicit=True)
        assert result.action == "merged"
        assert face(memory, "get", ADA, result.record.key).sources == (one, two)

    def test_near_duplicates_are_merged_and_keep_the_first_words(self, face: Face) -> None:
        store = InMemoryStore(index={"embed": DeterministicEmbeddings(), "dims": 64, "fields": ["text"]})
        memory = LongTermMemory(store, policy=AdmissionPolicy(near_duplicate_cosine=0.8))
        first = save(face, memory, "The user really likes green tea in the morning.")
        result = face(
            memory,
            "upsert",
            ADA,
            "The user likes green tea in the morning.",
            source=MemorySource(thread_id="t2"),
            explicit=True,
        )
        assert result.action == "merged"
        assert result.record.key == first.key
        assert texts(face(memory, "list", ADA)) == ["The user really likes green tea in the morning."]

    @pytest.mark.parametrize(
        ("text", "other"),
        [
            ("The user has 2 children at school now.", "The user has 3 children at school now."),
            ("The user has two children at school.", "The user has three children at school."),
            ("The user does eat fish on weekdays.", "The user does not eat fish on weekdays."),
            ("The user has a flat in Rome with a garden.", "The user has a flat in Oslo with a garden."),
            ("The user swims on Monday with friends.", "The user swims on Friday with friends."),
        ],
    )
    def test_a_number_a_negation_or_a_name_makes_a_difference(self, text: str, other: str) -> None:
        store = InMemoryStore(index={"embed": DeterministicEmbeddings(), "dims": 64, "fields": ["text"]})
        memory = LongTermMemory(store, policy=AdmissionPolicy(near_duplicate_cosine=0.5))
        memory.upsert(ADA, text, explicit=True)
        assert memory.upsert(ADA, other, explicit=True).action == "added"


class TestNewestWins:
    def test_a_later_statement_supersedes_and_the_old_one_stays_in_the_history(
        self, any_store: BaseStore, face: Face
    ) -> None:
        memory = LongTermMemory(any_store)
        rome = save(face, memory, "Lives in Rome.", subject="user", attribute="home city")
        result = face(memory, "upsert", ADA, "Lives in Oslo.", subject=" User", attribute="Home  City", explicit=True)
        assert result.action == "superseded"
        assert result.record.key == rome.key
        assert result.record.supersedes == rome.version_key
        assert texts(face(memory, "history", ADA, rome.key)) == ["Lives in Oslo.", "Lives in Rome."]
        assert texts(face(memory, "search", ADA, "Lives in Rome", threshold=None)) == ["Lives in Oslo."]

    def test_order_of_arrival_does_not_matter(self, any_store: BaseStore, face: Face) -> None:
        memory = LongTermMemory(any_store)
        slot = {"subject": "user", "attribute": "employer"}
        for ordinal, name in [(2, "B"), (3, "C"), (1, "A")]:
            last = face(memory, "upsert", ADA, f"Works at {name}.", ordinal=ordinal, explicit=True, **slot)
        assert last.action == "older"
        (current,) = face(memory, "list", ADA)
        assert current.text == "Works at C."
        assert texts(face(memory, "history", ADA, current.key)) == ["Works at C.", "Works at B.", "Works at A."]

    def test_going_back_and_forth_keeps_every_step(self, any_store: BaseStore, face: Face) -> None:
        memory = LongTermMemory(any_store)
        for ordinal, name in enumerate(["A", "B", "A", "A", "C"]):
            record = save(face, memory, f"Works at {name}.", subject="u", attribute="job", ordinal=ordinal)
        history = face(memory, "history", ADA, record.key)
        assert [one.text[-2] for one in history] == ["C", "A", "B", "A"]

    def test_same_subject_alone_or_same_attribute_alone_supersedes_nothing(
        self, any_store: BaseStore, face: Face
    ) -> None:
        memory = LongTermMemory(any_store)
        save(face, memory, "Ada works at X.", subject="ada", attribute="employer")
        save(face, memory, "Ada runs the repository of X.", subject="ada", attribute="project")
        save(face, memory, "Bob works at Y.", subject="bob", attribute="employer")
        assert len(face(memory, "list", ADA)) == 3

    def test_no_longer_known_is_an_answer(self, any_store: BaseStore, face: Face) -> None:
        memory = LongTermMemory(any_store)
        slot = {"subject": "user", "attribute": "car"}
        save(face, memory, "The user drives a Volvo.", **slot)
        gone = save(face, memory, "The user has no car any more.", retracted=True, **slot)
        (found,) = face(memory, "search", ADA, "car", threshold=None)
        assert found.record.retracted
        assert len(face(memory, "history", ADA, gone.key)) == 2

    def test_what_was_concluded_from_a_superseded_memory_is_flagged(self, any_store: BaseStore, face: Face) -> None:
        memory = LongTermMemory(any_store)
        rome = save(face, memory, "Lives in Rome.", subject="user", attribute="home city")
        save(face, memory, "Is in the time zone of Rome.", derived_from=[rome.version_key])
        assert not any(found.outdated for found in face(memory, "recall", ADA, "time zone"))
        save(face, memory, "Lives in Rome.", subject="user", attribute="home city")  # said again: still true
        assert not any(found.outdated for found in face(memory, "recall", ADA, "time zone"))
        save(face, memory, "Lives in Oslo.", subject="user", attribute="home city")
        flagged = {found.record.text: found.outdated for found in face(memory, "recall", ADA, "time zone")}
        assert flagged == {"Is in the time zone of Rome.": True, "Lives in Oslo.": False}

    def test_racing_writers_end_with_the_newest_and_lose_nothing(self) -> None:
        for _ in range(20):
            memory = LongTermMemory(InMemoryStore())
            barrier = threading.Barrier(4)

            def write(ordinal: int, memory: LongTermMemory = memory, barrier: threading.Barrier = barrier) -> None:
                barrier.wait()
                memory.upsert(ADA, f"State {ordinal}.", subject="u", attribute="a", ordinal=ordinal, explicit=True)

            threads = [threading.Thread(target=write, args=(ordinal,)) for ordinal in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            (current,) = memory.list(ADA)
            assert current.text == "State 3."
            assert len(memory.history(ADA, current.key)) == 4

    def test_two_openings_of_one_file_settle_on_the_newest(self, tmp_path: Path) -> None:
        with OPENERS["faiss"](tmp_path) as one, OPENERS["faiss"](tmp_path) as two:
            memories = [LongTermMemory(one), LongTermMemory(two)]

            def write(number: int) -> None:
                for ordinal in range(number, 10, 2):
                    memories[number].upsert(
                        ADA, f"State {ordinal}.", subject="u", attribute="a", ordinal=ordinal, explicit=True
                    )

            threads = [threading.Thread(target=write, args=(number,)) for number in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for memory in memories:
                (current,) = memory.list(ADA)
                assert current.text == "State 9."
                assert len(memory.history(ADA, current.key)) == 10

    def test_half_a_slot_is_an_error(self, face: Face) -> None:
        memory = LongTermMemory(InMemoryStore())
        for options in ({"subject": "user"}, {"attribute": "city"}, {"retracted": True}):
            with pytest.raises(ConfigurationError):
                face(memory, "upsert", ADA, "Something to keep.", explicit=True, **options)


class TestFactConsolidation:
    """Single hop: numbered facts about the same things, of which the one with the greatest number is true."""

    def test_the_newest_fact_answers_the_question(self, any_store: BaseStore) -> None:
        memory = LongTermMemory(any_store, policy=AdmissionPolicy(near_duplicate_cosine=None))
        relations = ["capital", "president", "currency", "language", "anthem"]
        places = [f"{name}land" for name in ("Ar", "Bel", "Cor", "Dun", "Eld", "Fen", "Gar", "Hol", "Isk", "Jor")]
        ordinal = 0
        truth: dict[tuple[str, str], str] = {}
        for round_ in range(4):
            for place in places:
                for number, relation in enumerate(relations):
                    if (ordinal * 7 + round_ + number) % 3 == 0 and round_:
                        continue
                    ordinal += 1
                    value = f"{relation.title()}{ordinal}"
                    text = f"The {relation} of {place} is {value}."
                    memory.upsert(ADA, text, subject=place, attribute=relation, ordinal=ordinal, explicit=True)
                    truth[place, relation] = value
        listed = {(record.subject, record.attribute): record.text for record in memory.list(ADA)}
        assert {slot: text.removesuffix(".").split()[-1] for slot, text in listed.items()} == truth
        if not any(found.cosine for found in memory.search(ADA, "capital", threshold=None)):
            return  # without an index there is nothing to ask
        right = 0
        for (place, relation), value in truth.items():
            (found,) = memory.search(ADA, f"What is the {relation} of {place}?", top_k=1, threshold=None)
            right += value in found.record.text
        assert right / len(truth) >= 0.95


class TestAdmission:
    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("", "blank"),
            (" \n\t", "blank"),
            ("Use port 8080.", "too_short"),
            ("Traceback (most recent call last):\n  File 'x.py', line 1, in <module>\nValueError: no", "error_message"),
            ("Error: connection refused while talking to the database server on port 5432", "error_message"),
            ("requests.exceptions.ConnectionError: HTTPSConnectionPool(host='example.com', port=443)", "error_message"),
            ("503 Service Unavailable: the upstream server did not answer in time, try again later", "error_message"),
            ("Sorry, I can't help with that request because the tool is not available right now.", "error_message"),
            ("Hello there! Good morning, how are you? Thank you very much, great to see you!", "small_talk"),
            ("x" * 1_000_001, "too_long"),
        ],
    )
    def test_refusals_say_why(self, face: Face, text: str, reason: str) -> None:
        events: list[MemoryEvent] = []
        memory = LongTermMemory(InMemoryStore(), on_event=events.append)
        result = face(memory, "upsert", ADA, text)
        assert (result.action, result.reason, result.record) == ("refused", reason, None)
        assert [(event.kind, event.to_dict()["reason"]) for event in events] == [("memory_refused", reason)]
        assert face(memory, "list", ADA) == ()

    @pytest.mark.parametrize("text", ["Is vegan.", "Error: 42 is her favourite song title.", "Hello is what she says."])
    def test_explicit_saves_are_only_checked_for_length(self, face: Face, text: str) -> None:
        assert face(LongTermMemory(InMemoryStore()), "upsert", ADA, text, explicit=True).action == "added"

    @pytest.mark.parametrize(
        "text",
        [
            "The error budget of the payments team is four hours a quarter; ask Lena before spending it.",
            "We solved incident 4711 by raising the connection pool from 10 to 50 and restarting the workers.",
            "Thanks to the new index the nightly job finishes at 2 am, and the report is ready for the morning call.",
        ],
    )
    def test_ordinary_sentences_pass(self, face: Face, text: str) -> None:
        assert face(LongTermMemory(InMemoryStore()), "upsert", ADA, text).action == "added"

    def test_tools_do_not_write_the_memory_of_a_user(self, face: Face) -> None:
        text = "The deployment window of the shop is Tuesday between nine and eleven in the morning."
        memory = LongTermMemory(InMemoryStore())
        assert face(memory, "upsert", ADA, text, source_kind="tool", explicit=True).reason == "tool_source"
        memory = LongTermMemory(InMemoryStore(), policy=AdmissionPolicy(admit_tool_sources=True))
        assert face(memory, "upsert", ADA, text, source_kind="tool").action == "added"

    def test_a_rule_of_your_own(self, face: Face) -> None:
        incidents = {"INC-1"}
        main = threading.get_ident()
        seen: list[int] = []

        def validate(record: MemoryRecord) -> str | None:
            seen.append(threading.get_ident())
            return None if any(incident in record.text for incident in incidents) else "unknown_incident"

        memory = LongTermMemory(InMemoryStore(), policy=AdmissionPolicy(validate=validate))
        assert face(memory, "upsert", ADA, "INC-1 was a full disk.", explicit=True).action == "added"
        assert face(memory, "upsert", ADA, "INC-2 was a full disk.", explicit=True).reason == "unknown_incident"
        if face.name == "async":
            assert main not in seen, "a rule may block, so it does not run on the event loop"

    @pytest.mark.parametrize(
        "settings",
        [{"min_characters": -1}, {"max_characters": 0}, {"near_duplicate_cosine": 0.0}, {"near_duplicate_cosine": 1.1}],
    )
    def test_settings_that_cannot_work(self, settings: dict[str, Any]) -> None:
        with pytest.raises(ConfigurationError):
            AdmissionPolicy(**settings)


class TestRetention:
    def test_kinds_expire_by_their_own_time(self, any_store: BaseStore, face: Face) -> None:
        clock = FixedClock()
        memory = LongTermMemory(any_store, clock=clock)
        for kind in ("conversation", "pattern", "preference", "fact"):
            save(face, memory, f"A {kind} to keep.", kind=kind)
        save(face, memory, "A fact for a day.", ttl=timedelta(days=1))
        left = []
        for days in (0.5, 1, 29, 60, 4000):
            clock.advance(days=days)
            left.append({text.split()[1] for text in texts(face(memory, "list", ADA))} - {"fact"})
        assert left == [
            {"conversation", "pattern", "preference"},
            {"conversation", "pattern", "preference"},
            {"pattern", "preference"},
            {"preference"},
            {"preference"},
        ]

    def test_expired_memories_are_nowhere_and_take_no_place(self, any_store: BaseStore, face: Face) -> None:
        clock = FixedClock()
        memory = LongTermMemory(any_store, clock=clock)
        keep = save(face, memory, "Likes tea with lemon.")
        for number in range(12):
            gone = save(face, memory, f"Likes tea, cup number {number}.", ttl=timedelta(hours=1))
        clock.advance(hours=1)
        assert texts(face(memory, "search", ADA, "Likes tea, cup", top_k=2, threshold=None)) == [keep.text]
        assert texts(face(memory, "recall", ADA, "Likes tea, cup", recent=1)) == [keep.text]
        with pytest.raises(NotFoundError):
            face(memory, "get", ADA, gone.key)
        again = face(memory, "upsert", ADA, gone.text, explicit=True)
        assert again.action == "added"
        receipt = face(memory, "purge", ADA)
        assert receipt.counts["memories"] == 11
        assert len(face(memory, "list", ADA)) == 2


class TestRecall:
    def test_layers_are_merged_without_doubles(self, any_store: BaseStore, face: Face) -> None:
        clock = FixedClock()
        memory = LongTermMemory(any_store, clock=clock)
        for number in range(12):
            clock.advance(minutes=1)
            save(face, memory, f"Visited city number {number}.")
        for number in range(3):
            clock.advance(minutes=1)
            save(face, memory, f"Talked about plan {number} in the city.", kind="summary")
        result = face(memory, "recall", ADA, "city number 3")
        keys = [found.record.key for found in result]
        assert len(keys) == len(set(keys)) <= 10
        layers = [found.layer for found in result]
        assert layers.count("summary") == 2
        assert layers.count("semantic") == 3
        assert {found.record.text for found in result if found.layer == "recent"} <= {
            f"Visited city number {number}." for number in (7, 8, 9, 10, 11)
        }
        assert result.counts == {layer: layers.count(layer) for layer in set(layers)}
        assert len(face(memory, "recall", ADA, "city", limit=4)) == 4

    def test_recent_means_newest(self, any_store: BaseStore, face: Face) -> None:
        clock = FixedClock()
        memory = LongTermMemory(any_store, clock=clock)
        for number in range(8):
            clock.advance(minutes=1)
            save(face, memory, f"Note {number}.")
        clock.advance(minutes=1)
        save(face, memory, "Note 2.", source=MemorySource(thread_id="again"))
        result = face(memory, "recall", ADA, "", recent=3)
        assert texts(result) == ["Note 2.", "Note 7.", "Note 6."]
        assert result.retrieval == "recent"

    def test_a_store_without_an_index_says_that_it_only_lists(self, face: Face) -> None:
        memory = LongTermMemory(InMemoryStore())
        save(face, memory, "Likes tea.")
        result = face(memory, "search", ADA, "tea")
        assert result.retrieval == "recent"
        assert result.degraded == "the store has no search index"
        assert [found.score for found in result] == [None]

    def test_the_threshold_is_a_cosine(self, face: Face) -> None:
        memory = LongTermMemory(
            InMemoryStore(index={"embed": DeterministicEmbeddings(), "dims": 64, "fields": ["text"]})
        )
        save(face, memory, "Likes tea.")
        assert texts(face(memory, "search", ADA, "Likes tea.")) == ["Likes tea."]
        assert texts(face(memory, "search", ADA, "a wholly different question")) == []
        assert texts(face(memory, "search", ADA, "a wholly different question", threshold=None)) == ["Likes tea."]

    def test_the_threshold_spares_what_was_found_by_its_words(self, tmp_path: Path, face: Face) -> None:
        with OPENERS["faiss"](tmp_path) as store:
            memory = LongTermMemory(store)
            for text in ("Likes green tea.", "Owns a bicycle.", "Speaks Portuguese at home."):
                save(face, memory, text)
            question = "what about the bicycle and some other matters of the week"
            result = face(memory, "search", ADA, question)
            assert texts(result) == ["Owns a bicycle."]
            assert result.retrieval == "hybrid"
            assert len(face(memory, "search", ADA, question, threshold=None)) == 3

    def test_an_empty_answer_of_our_store_says_how_it_was_looked_for(self, tmp_path: Path, face: Face) -> None:
        with OPENERS["faiss"](tmp_path) as store:
            memory = LongTermMemory(store)
            save(face, memory, "Likes tea.")
            result = face(memory, "search", ADA, "tea", kind="preference")
            assert (len(result), result.retrieval, result.degraded) == (0, "hybrid", None)

    def test_a_broken_embedder_is_seen_in_the_answer_and_loses_nothing(self, tmp_path: Path, face: Face) -> None:
        class Broken(DeterministicEmbeddings):
            def embed_documents(self, texts: list[str]) -> list[list[float]]:
                raise ConnectionError("down")

            def embed_query(self, text: str) -> list[float]:
                raise ConnectionError("down")

        with FaissStore(tmp_path / "m.sqlite", index={"embed": Broken(), "dims": 64, "fields": ["text"]}) as store:
            memory = LongTermMemory(store)
            save(face, memory, "Likes green tea.")
            for result in (face(memory, "search", ADA, "tea"), face(memory, "recall", ADA, "tea")):
                assert texts(result) == ["Likes green tea."]
                assert result.retrieval == "keyword"
                assert result.degraded

    def test_variety_on_request(self, tmp_path: Path, face: Face) -> None:
        with OPENERS["faiss"](tmp_path) as store:
            memory = LongTermMemory(store, policy=AdmissionPolicy(near_duplicate_cosine=None))
            for text in ("Likes green tea.", "Likes green tea a lot.", "Drinks coffee like tea on Sunday."):
                save(face, memory, text)
            result = face(memory, "search", ADA, "likes green tea", top_k=2, mmr_lambda=0.1, threshold=None)
            assert "Drinks coffee like tea on Sunday." in texts(result)

    @pytest.mark.parametrize("options", [{"recent": -1}, {"limit": 0}, {"semantic": -2}])
    def test_numbers_that_cannot_work(self, face: Face, options: dict[str, int]) -> None:
        with pytest.raises(ConfigurationError):
            face(LongTermMemory(InMemoryStore()), "recall", ADA, "tea", **options)

    def test_top_k_must_be_positive(self, face: Face) -> None:
        with pytest.raises(ConfigurationError):
            face(LongTermMemory(InMemoryStore()), "search", ADA, "tea", top_k=0)


class TestLongTexts:
    def test_found_by_its_best_passage_and_returned_whole(self, any_store: BaseStore, face: Face) -> None:
        memory = LongTermMemory(any_store)
        filler = "\n\n".join(f"Paragraph {number} is about ordinary matters of the house." for number in range(900))
        text = filler + "\n\nThe zebra sleeps in the observatory.\r\n\u2028\n\n" + filler
        record = save(face, memory, text)
        for number in range(5):
            save(face, memory, f"Another ordinary matter of the house, number {number}.")
        assert face(memory, "get", ADA, record.key).text == text
        result = face(memory, "search", ADA, "zebra observatory sleeps", top_k=6, threshold=None)
        assert text in texts(result)

    def test_a_text_that_repeats_itself(self, any_store: BaseStore, face: Face) -> None:
        memory = LongTermMemory(any_store)
        text = "The same line again. " * 3_000
        record = save(face, memory, text)
        assert face(memory, "get", ADA, record.key).text == text


class TestRedaction:
    SECRET = "sk-proj-" + "Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4z"

    def test_a_secret_is_taken_out_before_anything_is_stored_or_embedded(self, face: Face) -> None:
        embedded: list[str] = []

        class Watched(DeterministicEmbeddings):
            def embed_documents(self, texts: list[str]) -> list[list[float]]:
                embedded.extend(texts)
                return super().embed_documents(texts)

            def embed_query(self, text: str) -> list[float]:
                embedded.append(text)
                return super().embed_query(text)

        store = InMemoryStore(index={"embed": Watched(), "dims": 64, "fields": ["text"]})
        events: list[MemoryEvent] = []
        memory = LongTermMemory(store, on_event=events.append)
        source = MemorySource(thread_id="t", quote=f"my key is {self.SECRET}")
        record = save(face, memory, f"The API key is {self.SECRET}", source=source)
        face(memory, "search", ADA, f"what is {self.SECRET}?")
        face(memory, "recall", ADA, f"what is {self.SECRET}?")
        assert "[REDACTED_" in record.text
        assert self.SECRET not in all_text_in(store)
        assert not any(self.SECRET in text for text in embedded)
        assert self.SECRET not in repr(events)
        assert {event.kind for event in events} >= {"secrets_redacted"}

    def test_old_rows_are_redacted_when_they_are_read(self, any_store: BaseStore, face: Face) -> None:
        old = LongTermMemory(any_store, redactor=None)
        record = save(face, old, f"The API key is {self.SECRET}", subject="api", attribute="key")
        memory = LongTermMemory(any_store)
        shown = [
            face(memory, "get", ADA, record.key),
            *face(memory, "list", ADA),
            *face(memory, "history", ADA, record.key),
            *(found.record for found in face(memory, "search", ADA, "API key", threshold=None)),
            *(found.record for found in face(memory, "recall", ADA, "API key")),
        ]
        assert len(shown) >= 5
        assert not any(self.SECRET in one.text for one in shown)

    def test_a_policy_that_blocks_refuses_the_save_but_not_the_question(self, face: Face) -> None:
        from langmem_harness.redaction import RedactionPolicy, Redactor

        memory = LongTermMemory(InMemoryStore(), redactor=Redactor(RedactionPolicy(default="block")))
        result = face(memory, "upsert", ADA, f"The key is {self.SECRET}", explicit=True)
        assert result.action == "refused"
        assert result.reason.startswith("contains_")
        save(face, memory, "Likes tea.")
        assert texts(face(memory, "recall", ADA, f"is {self.SECRET} mine?")) == ["Likes tea."]


class TestErasure:
    def test_forgotten_is_gone_everywhere(self, any_store: BaseStore, face: Face) -> None:
        memory = LongTermMemory(any_store)
        source = MemorySource(thread_id="t1", message_id="m1", quote="my canary")
        save(face, memory, "Keeps a canary.", subject="user", attribute="pet", source=source)
        record = save(face, memory, "Keeps two canary birds.", subject="user", attribute="pet", source=source)
        save(face, memory, "Bob keeps a canary too.", BOB)
        receipt = face(memory, "delete", ADA, record.key)
        assert receipt.complete
        assert receipt.counts == {"memories": 1, "versions": 2}
        assert "canary" not in json.dumps(receipt.to_dict())
        left = all_text_in(any_store)
        assert left.count("canary") == 1, "the bystander keeps his"
        assert record.key not in left
        with pytest.raises(NotFoundError):
            face(memory, "delete", ADA, record.key)

    def test_forget_all_is_of_one_scope(self, any_store: BaseStore, face: Face) -> None:
        memory = LongTermMemory(any_store)
        bystanders = [BOB, MemoryScope(user="ada", agent="a"), MemoryScope(user="ada", tenant="t")]
        for scope in (ADA, *bystanders):
            for number in range(3):
                save(face, memory, f"Fact {number}.", scope, source=MemorySource(thread_id="t"))
        receipt = face(memory, "forget_all", ADA)
        assert (receipt.counts["memories"], receipt.complete) == (3, True)
        assert face(memory, "list", ADA) == ()
        assert [len(face(memory, "list", scope)) for scope in bystanders] == [3, 3, 3]
        assert face(memory, "forget_all", ADA).counts.get("memories", 0) == 0

    def test_erasing_a_thread_takes_what_rests_on_it_alone(self, any_store: BaseStore, face: Face) -> None:
        memory = LongTermMemory(any_store)
        here = MemorySource(thread_id="here", message_id="1", quote="words said here")
        there = MemorySource(thread_id="there", message_id="2", quote="words said there")
        save(face, memory, "Only said here.", source=here)
        both = save(face, memory, "Said in both.", source=[here, there])
        save(face, memory, "Only said there.", source=there)
        save(face, memory, "Bob said it here.", BOB, source=here)
        save(face, memory, "Lives in Rome.", source=there, subject="u", attribute="city", ordinal=1)
        save(face, memory, "Lives in Oslo.", source=here, subject="u", attribute="city", ordinal=2)
        receipt = face(memory, "erase_thread", "here")
        assert receipt.complete
        assert sorted(texts(face(memory, "list", ADA))) == ["Lives in Rome.", "Only said there.", "Said in both."]
        assert face(memory, "list", BOB) == ()
        assert face(memory, "get", ADA, both.key).sources == (there,)
        left = all_text_in(any_store)
        assert "said here" not in left
        assert "Oslo" not in left
        assert face(memory, "erase_thread", "here").counts.get("links", 0) == 0

    def test_erasing_an_unknown_thread_does_nothing(self, any_store: BaseStore, face: Face) -> None:
        memory = LongTermMemory(any_store)
        save(face, memory, "Keeps a canary.", source=MemorySource(thread_id="t1"))
        face(memory, "erase_thread", "t")
        assert len(face(memory, "list", ADA)) == 1


def test_many_at_once_on_an_event_loop(any_store: BaseStore) -> None:
    memory = LongTermMemory(any_store)

    async def save_all() -> None:
        await asyncio.gather(
            *(memory.aupsert(MemoryScope(user=f"u{n % 5}"), f"Fact {n}.", explicit=True) for n in range(25))
        )

    asyncio.run(save_all())
    assert [len(memory.list(MemoryScope(user=f"u{n}"))) for n in range(5)] == [5] * 5


@pytest.mark.parametrize(
    "text", ["日本語の記憶です。", "emoji 🦊🦊", "שלום עולם", "a\x00b", "line\nbreak\r\n", "\ud83d alone"]
)
def test_texts_of_every_kind_come_back_as_they_were(any_store: BaseStore, face: Face, text: str) -> None:
    memory = LongTermMemory(any_store)
    record = save(face, memory, text)
    assert face(memory, "get", ADA, record.key).text == text


def test_error_messages_carry_no_text_of_a_memory(face: Face) -> None:
    memory = LongTermMemory(InMemoryStore(), policy=AdmissionPolicy(validate=_fails))
    with pytest.raises(ZeroDivisionError):
        face(memory, "upsert", ADA, "A memory that cannot be checked.", explicit=True)


def _fails(record: MemoryRecord) -> str | None:
    raise ZeroDivisionError
