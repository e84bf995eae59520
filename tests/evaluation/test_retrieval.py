"""Question sets in the formats their authors publish, and the runs over them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from benchmarks import retrieval as benchmark
from langmem_harness.errors import ConfigurationError, RecordError
from langmem_harness.evaluation.datasets import (
    DATASETS,
    UNDATED,
    Collection,
    Dataset,
    Question,
    Turn,
    load_beam_chats,
    load_dataset,
    parse_date,
)
from langmem_harness.evaluation.retrieval import Search, measure_retrieval, render_retrieval_table

LOCOMO = [
    {
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "Ada",
            "speaker_b": "Bo",
            "session_10_date_time": "9 May, 2023",
            "session_10": [{"speaker": "Bo", "dia_id": "D10:1", "text": "I moved to Lisbon."}],
            "session_2_date_time": "8 May, 2023",
            "session_2": [
                {"speaker": "Ada", "dia_id": "D2:1", "text": "I adopted a cat.", "blip_caption": "a grey cat"},
                {"speaker": "Bo", "dia_id": "D2:2", "text": "Lovely!"},
            ],
        },
        "qa": [
            {"question": "What did Ada adopt?", "answer": "a cat", "evidence": ["D2:1"], "category": 4},
            {"question": "Where does Bo live?", "answer": "Lisbon", "evidence": ["D2:02; D10:1"], "category": 1},
            {"question": "What did Bo adopt?", "evidence": ["D2:1"], "category": 5},
            {"question": "Who?", "evidence": ["D99:1"], "category": 2},
            {"question": "When?", "evidence": [], "category": 3},
        ],
    }
]
REALTALK = {
    "name": {"speaker_1": "Ada", "speaker_2": "Bo"},
    "session_1": [
        {"clean_text": "Good morning", "speaker": "Ada", "date_time": "29.12.2023, 10:00:00", "dia_id": "D1:1"},
        {"clean_text": "I run at six", "speaker": "Bo", "date_time": "29.12.2023, 10:01:00", "dia_id": "D1:2"},
    ],
    "session_1_date_time": "29.12.2023, 10:00:00",
    "qa": [{"question": "When does Bo run?", "answer": "at six", "evidence": ["D1:2"], "category": 2}],
}
BEAM_CHAT = [
    {
        "batch_number": 1,
        "time_anchor": "March-15-2024",
        "turns": [
            [
                {"role": "user", "id": 0, "content": "My first sprint ends on March 29. ->-> 1,1"},
                {"role": "assistant", "id": 1, "content": "Noted."},
            ]
        ],
    }
]
BEAM_QUESTIONS = {
    "abstention": [{"question": "What is my age?", "why_unanswerable": "never said"}],
    "information_extraction": [{"question": "When does the sprint end?", "source_chat_ids": [0]}],
    "knowledge_update": [{"question": "What changed?", "source_chat_ids": {"first": [0], "second": [1, 77]}}],
}
CRAN_DOCUMENTS = """.I 1
.T
wing lift
.A
somebody
.B
somewhere
.W
lift of a wing
in a slipstream .
.I 2
.T
heat
.A
.B
.W
heat conduction
"""
CRAN_QUERIES = ".I 001\n.W\nwhat lifts a wing .\n.I 004\n.W\nheat of what .\n"
CRAN_JUDGEMENTS = "1 1 2\n1 2 5\n2 2 -1\n2 2 4 \n"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with a tiny file of each format, at some depth."""
    files = {
        "locomo/data/locomo10.json": json.dumps(LOCOMO),
        "REALTALK/data/Chat_1_Ada_Bo.json": json.dumps(REALTALK),
        "BEAM/chats/100K/2/chat.json": json.dumps(BEAM_CHAT),
        "BEAM/chats/100K/2/probing_questions/probing_questions.json": json.dumps(BEAM_QUESTIONS),
        "BEAM/chats/100K/10/chat.json": json.dumps(BEAM_CHAT),
        "BEAM/chats/100K/10/probing_questions/probing_questions.json": json.dumps(BEAM_QUESTIONS),
        "cranfield/cran.all.1400": CRAN_DOCUMENTS,
        "cranfield/cran.qry": CRAN_QUERIES,
        "cranfield/cranqrel": CRAN_JUDGEMENTS,
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def test_locomo(data: Path) -> None:
    (conversation,) = load_dataset("locomo", data).collections
    assert conversation.name == "conv-1"
    assert conversation.items == {
        "D2:1": "[8 May, 2023] Ada: I adopted a cat. [shares a photo of a grey cat]",
        "D2:2": "[8 May, 2023] Bo: Lovely!",
        "D10:1": "[9 May, 2023] Bo: I moved to Lisbon.",
    }
    assert list(conversation.items) == ["D2:1", "D2:2", "D10:1"]
    assert [turn.key for turn in conversation.turns] == list(conversation.items)
    assert conversation.turns[0] == Turn(
        key="D2:1",
        thread="D2",
        speaker="Ada",
        text="I adopted a cat. [shares a photo of a grey cat]",
        said_at=datetime(2023, 5, 8, tzinfo=UTC),
    )
    assert conversation.questions == (
        Question(text="What did Ada adopt?", gold=frozenset({"D2:1"}), category="4"),
        Question(text="Where does Bo live?", gold=frozenset({"D2:2", "D10:1"}), category="1"),
    )


def test_realtalk(data: Path) -> None:
    (chat,) = load_dataset("realtalk", data).collections
    assert chat.items["D1:2"] == "[29.12.2023, 10:01:00] Bo: I run at six"
    assert chat.questions[0].gold == {"D1:2"}
    assert chat.turns[1].said_at == datetime(2023, 12, 29, tzinfo=UTC)
    assert chat.turns[1].text == "I run at six"


def test_dates_that_cannot_be_read() -> None:
    for text in ("", "soon", "31.02.2024", "99 May, 2023", "8 Foo, 2023", "Foo-15-2024"):
        assert parse_date(text) == UNDATED
    assert parse_date("7:55 pm on 9 June, 2023") == datetime(2023, 6, 9, tzinfo=UTC)


def test_beam_chats_are_messages(data: Path) -> None:
    chats = load_beam_chats(data)
    assert list(chats) == ["100K/2", "100K/10"]
    assert [(message.type, message.content) for message in chats["100K/2"]] == [
        ("human", "My first sprint ends on March 29."),
        ("ai", "Noted."),
    ]


def test_beam(data: Path) -> None:
    dataset = load_dataset("beam", data)
    assert [collection.name for collection in dataset.collections] == ["100K/2", "100K/10"]
    assert dataset.collections[0].items == {
        "0": "[March-15-2024] user: My first sprint ends on March 29.",
        "1": "[March-15-2024] assistant: Noted.",
    }
    assert [question.gold for question in dataset.collections[0].questions] == [{"0"}, {"0", "1"}]
    turn = dataset.collections[0].turns[0]
    assert (turn.speaker, turn.text) == ("user", "My first sprint ends on March 29.")
    assert turn.said_at == datetime(2024, 3, 15, tzinfo=UTC)
    assert dataset.question_count == 4


def test_cranfield(data: Path) -> None:
    (collection,) = load_dataset("cranfield", data).collections
    assert collection.items == {"1": "lift of a wing in a slipstream .", "2": "heat conduction"}
    assert [(question.text, set(question.gold)) for question in collection.questions] == [
        ("what lifts a wing .", {"1"}),
        ("heat of what .", {"2"}),
    ]


@pytest.mark.parametrize("name", DATASETS)
def test_missing_data_says_what_is_missing(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=name):
        load_dataset(name, tmp_path)
    with pytest.raises(ConfigurationError, match="not a folder"):
        load_dataset(name, tmp_path / "nothing")


def test_unknown_sets_and_broken_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="known: beam, cranfield, locomo, realtalk"):
        load_dataset("trec", tmp_path)
    (tmp_path / "locomo10.json").write_text("[", encoding="utf-8")
    with pytest.raises(RecordError, match=r"locomo10\.json"):
        load_dataset("locomo", tmp_path)


def test_a_run_averages_over_questions() -> None:
    questions = tuple(
        Question(text=text, gold=frozenset(gold), category=category)
        for text, gold, category in [("one", "a", "x"), ("two", "bc", "x"), ("three", "z", "y")]
    )
    dataset = Dataset(name="toy", collections=(Collection(name="c", items={}, questions=questions),))

    def system(collection: Collection) -> Search:
        assert collection.name == "c"
        return lambda question, limit: ["a", "b"][:limit]

    report = measure_retrieval(dataset, system, name="fixed")
    assert report.question_count == 3
    assert report.recall_at == pytest.approx({1: 1 / 3, 5: 0.5, 10: 0.5})
    assert report.hit_at == pytest.approx({1: 1 / 3, 5: 2 / 3, 10: 2 / 3})
    assert report.mrr_at_10 == pytest.approx((1 + 0.5 + 0) / 3)
    assert report.recall_at_10_by_category == pytest.approx({"x": 0.75, "y": 0.0})
    assert "| toy | fixed | 33.3 / 50.0 / 50.0 |" in render_retrieval_table([report])
    assert render_retrieval_table([]) == ""
    with pytest.raises(ConfigurationError):
        measure_retrieval(Dataset(name="empty", collections=()), system, name="fixed")


def test_the_benchmark_says_when_there_is_no_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert benchmark.main(["--data", str(tmp_path / "nothing")]) == 0
    assert capsys.readouterr().out.count("not measured") == len(DATASETS)


def test_the_benchmark_runs_every_system(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime", reason="the extra 'local' is not installed")
    numbers = data / "numbers.json"
    benchmark.main(["--data", str(data), "--sets", "locomo,cranfield", "--variants", "--json", str(numbers)])
    reports = json.loads(numbers.read_text(encoding="utf-8"))
    systems = {report["system"] for report in reports if report["dataset"] == "locomo"}
    assert {"FaissStore keyword", "FaissStore semantic", "FaissStore hybrid", "InMemoryStore"} < systems
    assert {"weighted, dense 0.7", "reciprocal rank fusion", "BM25 0.9/0.4", "dense, best chunk"} < systems
    assert all(report["recall_at"]["10"] == 1.0 for report in reports if "keyword" not in report["system"])
    assert "recall@1/5/10" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "short", "x" * 2_000, "word " * 500, "line\n" * 500])
def test_chunks_are_bounded_and_lose_nothing(text: str) -> None:
    chunks = list(benchmark.split_into_chunks(text))
    assert "".join(chunks) == text
    assert chunks
    assert max(map(len, chunks)) <= benchmark.CHUNK_CHARACTERS
