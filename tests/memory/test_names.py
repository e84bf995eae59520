"""Names in a question: who is meant, and what is left to search for by meaning."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_harness.memory.names import find_named_speakers

CASES = [
    # (question, speakers, named, what is left)
    ("What did Mel's dog eat?", {"Mel", "Caro"}, {"Mel"}, "What did dog eat?"),
    ("what did mel’s dog eat", {"Mel"}, {"Mel"}, "what did dog eat"),
    ("What did mel say about Melons?", {"Mel"}, {"Mel"}, "What did say about Melons?"),
    ("Mel?", {"Mel"}, {"Mel"}, "Mel?"),
    ("What did they eat?", {"Mel", "Caro"}, set(), "What did they eat?"),
    ("Did Caro or MEL book it?", {"Mel", "Caro"}, {"Mel", "Caro"}, "Did or book it?"),
    ("Does the user trust the assistant?", {"user", "assistant"}, set(), "Does the user trust the assistant?"),
    ("C++ or Caro?", {"C++"}, {"C++"}, "or Caro?"),
    # whole names, parts of names, and parts that two people share
    ("What did Anna Schmidt buy?", {"Anna Schmidt", "Anna Weber"}, {"Anna Schmidt"}, "What did buy?"),
    ("What did Anna  Weber buy?", {"Anna Schmidt", "Anna Weber"}, {"Anna Weber"}, "What did buy?"),
    ("What did Anna buy?", {"Anna Schmidt", "Anna Weber"}, {"Anna Schmidt", "Anna Weber"}, "What did buy?"),
    ("Did Dr. Weber call?", {"Dr. Weber"}, {"Dr. Weber"}, "Did call?"),
    ("Which Dr. was it?", {"Dr. Weber"}, set(), "Which Dr. was it?"),
    # names that are ordinary words
    ("What will Caroline do in May?", {"Will", "May", "Caroline"}, {"Caroline"}, "What will do in May?"),
    ("What did Will say?", {"Will"}, {"Will"}, "What did say?"),
    ("Will's car or the bus?", {"Will"}, {"Will"}, "car or the bus?"),
    ("Will Anna come?", {"Will", "Anna"}, {"Anna"}, "Will come?"),
    ("When does May leave?", {"May"}, {"May"}, "When does leave?"),
    ("Who left on May 7?", {"May"}, set(), "Who left on May 7?"),
    ("who likes roses", {"Rose"}, set(), "who likes roses"),
    # other languages and scripts
    ("Was hat Annas Hund gefressen?", {"Anna"}, {"Anna"}, "Was hat Hund gefressen?"),
    ("Que dit Jose\u0301 hier ?", {"José"}, {"José"}, "Que dit hier ?"),
    ("Que dit jose hier ?", {"José"}, {"José"}, "Que dit hier ?"),
    ("Ayşe'nin evi nerede?", {"Ayşe"}, {"Ayşe"}, "evi nerede?"),
    ("Что сказал ИВАН?", {"Иван"}, {"Иван"}, "Что сказал ?"),
    ("田中さんは何を買いましたか", {"田中"}, {"田中"}, "さんは何を買いましたか"),
    ("어제 민수는 뭐라고 했어?", {"민수"}, {"민수"}, "어제 는 뭐라고 했어?"),
    ("Wo wohnt STRASSER?", {"Straßer"}, {"Straßer"}, "Wo wohnt ?"),
    ("", {"Mel"}, set(), ""),
    ("anything", {" ", ""}, set(), "anything"),
]


@pytest.mark.parametrize(("question", "speakers", "named", "left"), CASES, ids=range(len(CASES)))
def test_who_is_named_and_what_is_left(question: str, speakers: set[str], named: set[str], left: str) -> None:
    found = find_named_speakers(question, speakers)
    assert found.speakers == named
    assert found.without_names == left
    assert found.only == (next(iter(named)) if len(named) == 1 else None)


@given(question=st.text(max_size=60), speakers=st.sets(st.text(max_size=8), max_size=4))
def test_any_question_and_any_names(question: str, speakers: set[str]) -> None:
    found = find_named_speakers(question, speakers)
    assert found.speakers <= speakers
    assert found == find_named_speakers(question, sorted(speakers))
    assert question == "" or found.without_names
    if not found.speakers:
        assert found.without_names == question
