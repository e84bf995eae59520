"""Facts: copied letter by letter, bounded, least recently mentioned first to go."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage

from langmem_harness.summaries import SummaryService
from langmem_harness.summaries.facts import VALUES_PER_TOOL_RESULT, count_facts, find_values, merge_facts
from langmem_harness.summaries.transcript import TranscriptEntry
from tests.conftest import Face

VALUES = [
    "ORD-2024-88123", "INV8812", "#4411", "$1,249.50", "48.90 EUR", "19 %", "2026-03-14", "2026-03-14T10:00:00Z",
    "14 March 2026", "March 3rd", "14:30", "3/14/2026", "14.03.2026", "https://example.com/a?b=1&c=(2)",
    "/etc/nginx/nginx.conf", "src/app/main.py", "~/notes/todo.md", "C:\\Users\\ada\\x.txt",
    "550e8400-e29b-41d4-a716-446655440000", "9f8e7d6c", "ada@example.org", "v2.3.1", "+49 30 1234567",
    "192.168.0.1:8080", "2026年3月14日", "12,345", "3.75", "5000", "€30", "call_abc123", "s3://bucket/key.parquet",
]  # fmt: skip
QUOTED = ['"Aurora Lamp"', "“Blue Door”", "'Red Kite'", "„Grüner Tee“", "«Le Monde»", "「東京タワー」", "`make test`"]


def entry(text: str, speaker: str = "user") -> TranscriptEntry:
    return TranscriptEntry(speaker=speaker, text=text)


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("sentence", ["It is {}.", "we saw {}, then left", "({})", "{}", "a: {}\nb"])
def test_a_value_is_found_as_it_was_written(value: str, sentence: str) -> None:
    assert value in [found for found, _ in find_values(sentence.format(value))]


@pytest.mark.parametrize("quoted", QUOTED)
def test_quoted_names_are_found_without_their_quotes(quoted: str) -> None:
    assert [found for found, _ in find_values(f"I mean {quoted} here")] == [quoted[1:-1]]


@pytest.mark.parametrize(
    "text", ["", "we had 3 apples and 12 pears", "it's Bob's and Ann's", "no values here", "«»", '""']
)
def test_prose_has_no_values(text: str) -> None:
    assert find_values(text) == []


def test_bare_numbers_carry_the_words_that_say_what_they_are() -> None:
    assert find_values("The invoice total was 48.90 EUR") == [("48.90 EUR", "invoice total was 48.90 EUR")]


def test_mentioned_again_moves_to_the_end() -> None:
    facts = merge_facts((), [entry("A-1 B-2 C-3"), entry("again A-1")], max_tokens=100)
    assert facts == ("B-2", "C-3", "A-1")
    assert merge_facts(facts, [entry("B-2")], max_tokens=100) == ("C-3", "A-1", "B-2")


def test_a_short_budget_drops_the_least_recently_mentioned() -> None:
    many = [entry(f"ORD-{number:04d}") for number in range(200)]
    facts = merge_facts((), many, max_tokens=100)
    assert count_facts(facts) <= 100
    assert facts == tuple(f"ORD-{number:04d}" for number in range(200))[-len(facts) :]
    assert merge_facts((), many, max_tokens=0) == ()


def test_a_log_does_not_push_out_what_the_user_said() -> None:
    log = entry(" ".join(f"id-{number}" for number in range(5_000)), speaker="result of search")
    facts = merge_facts(["ORD-7"], [log], max_tokens=1_000)
    assert len(facts) == VALUES_PER_TOOL_RESULT + 1
    assert facts[0] == "ORD-7"


@given(st.text(max_size=200))
def test_any_text_can_be_searched(text: str) -> None:
    for value, fact in find_values(text):
        assert value
        assert fact.endswith(value)


@pytest.mark.parametrize(
    "part",
    ["a", "1", "a.", "a/", '"', "1,", "a1-", "+1 2 ", "@", "a@", "'", "a:", "\\a", "C:\\a b ", "http://", "#1", "-",
     "+1(1", "1 ", "price ", "./", "a b ", "“", "「", "`", "日", "1\u00a0", "a_", "~/", "A://", "A", "é",
     "may", "EUR ", "EUR"],
)  # fmt: skip
def test_searching_takes_linear_time(part: str) -> None:
    started = time.perf_counter()
    find_values(part * (100_000 // len(part)))
    assert time.perf_counter() - started < 3


def planted(count: int = 80, seed: int = 7) -> list[tuple[str, str]]:
    """``(sentence, value)``: arbitrary values of all kinds."""
    draw = random.Random(seed)
    kinds = [
        lambda: f"ORD-{draw.randrange(10**6):06d}",
        lambda: f"${draw.randrange(10, 9999)}.{draw.randrange(100):02d}",
        lambda: f"2026-{draw.randrange(1, 13):02d}-{draw.randrange(1, 29):02d}",
        lambda: f"/srv/app{draw.randrange(999)}/conf.d/site{draw.randrange(999)}.yaml",
        lambda: f"https://example.com/t/{draw.randrange(10**6)}",
        lambda: f"{draw.getrandbits(32):08x}-{draw.getrandbits(16):04x}",
        lambda: f"Project {draw.choice('ABCDEFG')}{draw.randrange(1000)}",
        lambda: f"{draw.randrange(1000, 99999)}",
    ]
    found = []
    for number in range(count):
        value = kinds[number % len(kinds)]()
        shown = f'"{value}"' if value.startswith("Project") else value
        found.append((f"Please note item {number % 10}: {shown} matters.", value))
    return found


def test_eight_rolls_with_a_summarizer_that_forgets_everything(face: Face) -> None:
    service = SummaryService(lambda text: "We talked.", rebuild_every=None, facts_tokens=1_200)
    items = planted()
    messages: list[HumanMessage | AIMessage] = []
    records = []
    for roll in range(8):
        for sentence, _ in items[roll * 10 : roll * 10 + 10]:
            messages += [HumanMessage(sentence), AIMessage("Noted. Anything else I can do for you today?")]
        messages += [
            HumanMessage("Tell me about the weather."),
            AIMessage("It rains a little, then the sun comes out."),
        ]
        outcome = face(service, "summarize", messages, records=records, policy="p", policy_fingerprint="f")
        records.append(outcome.record)
    last = records[-1]
    shown = "\n".join([last.content, *last.facts])
    assert last.parent_id == records[-2].id
    assert count_facts(last.facts) <= 1_200
    assert sum(value in shown for _, value in items) >= 76
