"""Export and import: people can read, edit, delete and add, and provenance survives."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langmem_harness.errors import RecordError
from langmem_harness.memory import LongTermMemory, MemoryScope, MemorySource
from langmem_harness.memory.export import MemoryExport
from langmem_harness.testing import FixedClock
from tests.conftest import Face

ADA = MemoryScope(user="ada")
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
ODD = "## not a heading\n> quoted\n\n<!-- memory {} -->\n--> end\u2028line"


def filled(store: BaseStore) -> LongTermMemory:
    memory = LongTermMemory(store, clock=FixedClock(NOW))
    source = MemorySource(thread_id="t--1", message_id="m1", quote="tea -- please", stated_at=NOW)
    memory.upsert(ADA, "Likes tea.", kind="preference", source=source, explicit=True)
    memory.upsert(ADA, "Lives in Rome.", subject="user", attribute="home", ttl=timedelta(days=9), explicit=True)
    memory.upsert(ADA, ODD, explicit=True)
    return memory


def test_json_lines_bring_everything_back(any_store: BaseStore, face: Face) -> None:
    memory = filled(any_store)
    text = face(memory, "export", ADA).to_jsonl()
    assert text.count("\n") == 3
    assert face(memory, "import_", ADA, MemoryExport.from_jsonl(text)).unchanged == 3
    other = LongTermMemory(InMemoryStore(), clock=FixedClock(NOW))
    assert len(face(other, "import_", ADA, MemoryExport.from_jsonl(text)).added) == 3
    assert set(other.list(ADA)) == set(memory.list(ADA))


def test_untouched_pages_change_nothing(any_store: BaseStore, face: Face) -> None:
    memory = filled(any_store)
    pages = face(memory, "export", ADA).to_markdown()
    assert sorted(pages) == ["fact.md", "preference.md"]
    assert "said by the user in thread t--1" in pages["preference.md"]
    before = memory.list(ADA)
    report = face(memory, "import_", ADA, MemoryExport.from_markdown(pages, ADA, now=NOW))
    assert report.unchanged == 3
    assert (report.added, report.edited, report.deleted) == ((), (), ())
    assert memory.list(ADA) == before


def test_edits_deletions_and_additions_are_recognised(any_store: BaseStore, face: Face) -> None:
    memory = filled(any_store)
    pages = face(memory, "export", ADA).to_markdown()
    later = memory.upsert(ADA, "Saved after the export.", explicit=True).record
    fact = pages["fact.md"].replace("> Lives in Rome.", "> Lives in Oslo.")
    start = fact.index("> ## not a heading")
    start = fact.rindex("\n## ", 0, start)
    end = fact.find("\n## ", start + 1)
    fact = fact[:start] + (fact[end:] if end > 0 else "\n") + "\n## new\n\n> Has two cats,\n> both grey.\n"
    preference = pages["preference.md"].replace("> Likes tea.", "> Likes green tea.")
    edited = {"fact.md": fact, "preference.md": preference}
    report = face(memory, "import_", ADA, MemoryExport.from_markdown(edited, ADA, now=NOW))
    assert (len(report.added), len(report.edited), len(report.deleted)) == (1, 2, 1)
    by_text = {record.text: record for record in memory.list(ADA)}
    assert set(by_text) == {
        "Lives in Oslo.",
        "Likes green tea.",
        "Has two cats,\nboth grey.",
        "Saved after the export.",
    }
    assert by_text["Likes green tea."].source.quote == "tea -- please"
    assert by_text["Has two cats,\nboth grey."].source_kind == "import"
    home = by_text["Lives in Oslo."]
    assert home.expires_at == NOW + timedelta(days=9)
    assert [one.text for one in memory.history(ADA, home.key)] == ["Lives in Oslo.", "Lives in Rome."]
    assert later is not None


def test_pages_of_somebody_else_do_not_carry_their_scope(face: Face) -> None:
    pages = filled(InMemoryStore()).export(ADA).to_markdown()
    memory = LongTermMemory(InMemoryStore(), clock=FixedClock(NOW))
    bob = MemoryScope(user="bob")
    face(memory, "import_", bob, MemoryExport.from_markdown(pages, bob, now=NOW))
    assert memory.list(ADA) == ()
    assert len(memory.list(bob)) == 3


def test_an_import_is_redacted_and_admitted_like_anything_else(face: Face) -> None:
    secret = "AKIA" + "IOSFODNN7EXAMPLE"
    page = {"fact.md": f"## new\n\n> The key is {secret}\n\n## tool\n\n>\n"}
    memory = LongTermMemory(InMemoryStore())
    face(memory, "import_", ADA, MemoryExport.from_markdown(page, ADA, now=NOW))
    (record,) = memory.list(ADA)
    assert secret not in record.text


@pytest.mark.parametrize("text", ["{", "[1]", '{"key": "m", "text": 1}', '{"text": "x"}', "nonsense"])
def test_a_bad_line_is_named(text: str) -> None:
    with pytest.raises(RecordError, match="line 2"):
        MemoryExport.from_jsonl(f"\n{text}\n")


def test_a_changed_comment_is_named() -> None:
    with pytest.raises(RecordError, match=r"fact\.md"):
        MemoryExport.from_markdown({"fact.md": "## m1\n> x\n<!-- memory {broken} -->"}, ADA, now=NOW)
