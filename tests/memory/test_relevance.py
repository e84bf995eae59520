"""What a recall block leaves out: what has nothing to do with the message."""

from __future__ import annotations

import pytest

from langmem_harness.embeddings import LocalEmbeddings
from langmem_harness.errors import ConfigurationError
from langmem_harness.memory import EpisodeIndex, LongTermMemory, MemoryScope
from langmem_harness.memory.evidence import content_words
from langmem_harness.memory.found import FoundBy
from langmem_harness.memory.relevance import DEFAULT_FLOOR, is_relevant
from langmem_harness.middleware.long_term import LongTermMemoryMiddleware
from langmem_harness.store import FaissStore
from tests.conftest import Face
from tests.memory.test_episodes import talk

ADA = MemoryScope(user="ada")


def found_by(cosine: float | None, score: float | None = 0.5) -> FoundBy:
    return FoundBy(retrieval="hybrid", score=score, score_kind="fused", cosine=cosine, by_words=True, degraded=None)


@pytest.mark.parametrize(
    ("cosine", "question", "text", "relevant"),
    [
        (0.15, "anything", "else", True),
        (0.14, "anything", "else", False),
        (-0.01, "the pump in hall three", "a pump was sold", True),
        (-0.01, "book me a flight to Lisbon in May", "books hotels early and pays by card at arrival", False),
        (-0.01, "What? Who?", "ok", False),
        (None, "book me a flight to Lisbon in May", "books hotels early, pays by card", True),
        (None, "quicksort", "ok", False),
    ],
)
def test_by_cosine_or_else_by_words(cosine: float | None, question: str, text: str, relevant: bool) -> None:
    wanted = content_words(question)
    assert is_relevant(found_by(cosine), wanted, text, DEFAULT_FLOOR) is relevant
    assert is_relevant(found_by(cosine), wanted, text, None)
    assert is_relevant(found_by(None, None), wanted, text, DEFAULT_FLOOR), "compared with nothing"


def test_fillers_are_left_out_of_a_recall_and_not_of_a_search(face: Face) -> None:
    with FaissStore(":memory:", index={"embed": LocalEmbeddings()}) as store:
        memory = LongTermMemory(store)
        said = talk(
            "user: I am allergic to peanuts.", "assistant: Noted.", "user: My daughter started school.", "assistant: ok"
        )
        EpisodeIndex(memory).index_thread(ADA, "t", said)
        memory.upsert(ADA, "The user has a blue bicycle.", explicit=True)

        def recalled(question: str, threshold: float | None) -> list[str]:
            result = face(memory, "recall", ADA, question, recent=0, history=4, threshold=threshold)
            return [found.record.text for found in result]

        assert recalled("What am I allergic to?", DEFAULT_FLOOR)[0] == "user: I am allergic to peanuts."
        assert "assistant: Noted." not in recalled("What am I allergic to?", DEFAULT_FLOOR)
        assert recalled("Explain quicksort.", DEFAULT_FLOOR) == []
        assert len(recalled("Explain quicksort.", None)) == 5
        assert len(EpisodeIndex(memory).search(ADA, "Explain quicksort.").episodes) == 4


def test_a_threshold_is_a_cosine() -> None:
    with pytest.raises(ConfigurationError, match="threshold"):
        LongTermMemoryMiddleware(threshold=7)
