"""Export and import: people can read, edit, delete and add, and provenance survives."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langmem_harness.errors import RecordError
from langmem_harness.memory import AdmissionPolicy, LongTermMemory, MemoryScope, MemorySource
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


def with_history(store: BaseStore, scope: MemoryScope = ADA) -> LongTermMemory:
    clock = FixedClock(NOW)
    memory = LongTermMemory(store, clock=clock)
    slot: Any = {"subject": "user", "attribute": "home", "explicit": True}
    last: Any = None
    for number, city in enumerate(["Rome", "Oslo", "Lima"]):
        clock.advance(minutes=1)
        source = MemorySource(thread_id=f"t{number}", message_id="m", quote=f"I live in {city}", stated_at=clock())
        last = memory.upsert(scope, f"Lives in {city}.", source=source, **slot).record
    clock.advance(minutes=1)
    memory.upsert(scope, "Is in the time zone of Lima.", derived_from=[last.version_key], explicit=True)
    memory.upsert(scope, "Has no car.", subject="user", attribute="car", retracted=True, explicit=True)
    memory.upsert(scope, "  odd \x00\r\n\u2028 \ud83d white space ", kind="päge", ttl=timedelta(days=3), explicit=True)
    return memory


def test_histories_come_back_byte_for_byte(any_store: BaseStore, face: Face) -> None:
    text = face(with_history(InMemoryStore()), "export", ADA).to_jsonl()
    assert text.count('"superseded": true') + text.count('"superseded":true') == 2
    memory = LongTermMemory(any_store, clock=FixedClock(NOW + timedelta(days=1)))
    report = face(memory, "import_", ADA, MemoryExport.from_jsonl(text))
    assert (len(report.added), report.restored, report.refused) == (4, 2, {})
    assert face(memory, "export", ADA).to_jsonl() == text
    again = face(memory, "import_", ADA, MemoryExport.from_jsonl(text))
    assert (again.unchanged, again.restored, again.added, again.edited) == (4, 0, (), ())
    assert face(memory, "export", ADA).to_jsonl() == text
    (home,) = [record for record in memory.list(ADA) if record.attribute == "home"]
    assert [one.text for one in memory.history(ADA, home.key)] == ["Lives in Lima.", "Lives in Oslo.", "Lives in Rome."]
    assert [one.source.thread_id for one in memory.history(ADA, home.key)] == ["t2", "t1", "t0"]


def test_another_scope_gets_keys_of_its_own_and_the_links_hold(face: Face) -> None:
    export = with_history(InMemoryStore()).export(ADA)
    bob = MemoryScope(tenant="acme", user="bob")
    memory = LongTermMemory(InMemoryStore(), clock=FixedClock(NOW))
    face(memory, "import_", bob, MemoryExport.from_jsonl(export.to_jsonl()))
    by_text = {record.text: record for record in memory.list(bob)}
    home, zone = by_text["Lives in Lima."], by_text["Is in the time zone of Lima."]
    assert {record.key for record in by_text.values()}.isdisjoint(record.key for record in export.records)
    assert zone.derived_from == (home.version_key,)
    assert not any(found.outdated for found in memory.recall(bob, "time zone"))
    history = memory.history(bob, home.key)
    assert [one.supersedes for one in history] == [history[1].version_key, history[2].version_key, None]
    assert memory.list(ADA) == ()


def test_an_export_older_than_what_is_known_brings_nothing_back(any_store: BaseStore, face: Face) -> None:
    memory = with_history(any_store)
    old = memory.export(ADA)
    pages = old.to_markdown()
    memory.settings.clock.advance(minutes=5)  # type: ignore[attr-defined]
    memory.upsert(ADA, "Lives in Bern.", subject="user", attribute="home", explicit=True)
    before = memory.export(ADA)
    for export in (MemoryExport.from_jsonl(old.to_jsonl()), MemoryExport.from_markdown(pages, ADA, now=NOW)):
        report = face(memory, "import_", ADA, export)
        assert (report.added, report.edited, report.deleted, report.restored) == ((), (), (), 0)
        assert memory.export(ADA) == before


def test_an_edited_line_is_an_edit(face: Face) -> None:
    memory = with_history(InMemoryStore())
    text = memory.export(ADA).to_jsonl().replace("Lives in Lima.", "Lives in Cuzco.")
    memory.settings.clock.advance(minutes=5)  # type: ignore[attr-defined]
    report = face(memory, "import_", ADA, MemoryExport.from_jsonl(text))
    assert (len(report.edited), report.added, report.unchanged) == (1, (), 3)
    (key,) = report.edited
    assert [one.text[9:-1] for one in memory.history(ADA, key)] == ["Cuzco", "Lima", "Oslo", "Rome"]
    assert memory.get(ADA, key).sources[0].thread_id == "t2"


def test_a_history_without_its_memory_is_not_brought_back(face: Face) -> None:
    export = with_history(InMemoryStore()).export(ADA)
    memory = LongTermMemory(InMemoryStore(), clock=FixedClock(NOW))
    report = face(memory, "import_", ADA, MemoryExport(records=(), versions=export.versions))
    assert (report.restored, report.added) == (0, ())
    assert memory.forget_all(ADA).counts.get("versions", 0) == 0


def test_pages_list_what_was_said_before_and_do_not_read_it_back(any_store: BaseStore, face: Face) -> None:
    memory = with_history(any_store)
    before = memory.export(ADA)
    pages = before.to_markdown()
    assert "- 2026-05-01 (Friday): Lives in Rome." in pages["fact.md"].split("\n")
    pages["fact.md"] = pages["fact.md"].replace("Lives in Rome.", "Lives in Ulm.")
    report = face(memory, "import_", ADA, MemoryExport.from_markdown(pages, ADA, now=NOW))
    assert (report.unchanged, report.edited, report.added, report.deleted) == (4, (), (), ())
    assert memory.export(ADA) == before


def test_every_kind_has_a_page_of_its_own(face: Face) -> None:
    memory = LongTermMemory(InMemoryStore(), clock=FixedClock(NOW))
    kinds = ["a b", "a_b", "A b", "a/b", "", "..", "é" * 100, "é" * 101]
    for number, kind in enumerate(kinds):
        memory.upsert(ADA, f"Fact {number}.", kind=kind, explicit=True)
    pages = face(memory, "export", ADA).to_markdown()
    assert len({name.casefold() for name in pages}) == len({record.kind for record in memory.list(ADA)})
    assert all("/" not in name and not name.startswith(".") for name in pages)
    report = face(memory, "import_", ADA, MemoryExport.from_markdown(pages, ADA, now=NOW))
    assert (report.unchanged, report.deleted) == (len(kinds), ())
    pages = {name: f"{page}\n## new\n\n> In {name}.\n" for name, page in pages.items()}
    face(memory, "import_", ADA, MemoryExport.from_markdown(pages, ADA, now=NOW))
    added = {record.kind for record in memory.list(ADA) if record.text.startswith("In ")}
    assert {"a b", "a_b", "A b", "a/b"} <= added


def test_what_a_tool_said_stays_what_a_tool_said(face: Face) -> None:
    admitting = AdmissionPolicy(admit_tool_sources=True)
    memory = LongTermMemory(InMemoryStore(), policy=admitting)
    memory.upsert(ADA, "The build takes nine minutes.", source_kind="tool", explicit=True)
    text = memory.export(ADA).to_jsonl()
    strict, open_ = LongTermMemory(InMemoryStore()), LongTermMemory(InMemoryStore(), policy=admitting)
    assert face(strict, "import_", ADA, MemoryExport.from_jsonl(text)).refused == {"tool_source": 1}
    face(open_, "import_", ADA, MemoryExport.from_jsonl(text))
    assert [record.source_kind for record in open_.list(ADA)] == ["tool"]


def test_a_secret_in_the_history_of_a_file_is_taken_out(face: Face) -> None:
    secret = "AKIA" + "IOSFODNN7EXAMPLE"
    text = with_history(InMemoryStore()).export(ADA).to_jsonl().replace("Lives in Rome.", f"Key {secret}")
    memory = LongTermMemory(InMemoryStore(), clock=FixedClock(NOW))
    assert face(memory, "import_", ADA, MemoryExport.from_jsonl(text)).restored == 2
    assert secret not in repr(memory.store._data)  # type: ignore[attr-defined]


RECORD = '{"key": "m", "text": "x", "created_at": "2026-01-01T00:00:00Z", "scope": {"user": "a"}, "ordinal": ORDINAL}'


@pytest.mark.parametrize("ordinal", ["1e400", "NaN", "9" * 100, "9" * 5_000, "null", "[]"])
def test_a_number_that_is_none_is_named(ordinal: str) -> None:
    with pytest.raises(RecordError, match="line 1"):
        MemoryExport.from_jsonl(RECORD.replace("ORDINAL", ordinal))


def test_files_of_other_editors_are_read(face: Face) -> None:
    memory = with_history(InMemoryStore())
    lines, pages = memory.export(ADA).to_jsonl(), memory.export(ADA).to_markdown()
    windows = {name: "\ufeff" + page.replace("\n", "\r\n") for name, page in pages.items()}
    for export in (
        MemoryExport.from_jsonl("\ufeff" + lines.replace("\n", "\r\n")),
        MemoryExport.from_markdown(windows, ADA, now=NOW),
    ):
        report = face(memory, "import_", ADA, export)
        assert (report.unchanged, report.added, report.edited, report.deleted) == (4, (), (), ())


@pytest.mark.parametrize("listed", ["[bad]", "[1]", "[null]", "[" * 5_000 + "]"])
def test_a_changed_list_of_keys_is_named(listed: str) -> None:
    with pytest.raises(RecordError, match=r"fact\.md"):
        MemoryExport.from_markdown({"fact.md": f"<!-- listed {listed} -->"}, ADA, now=NOW)


@pytest.mark.parametrize("text", ["{", "[1]", '{"key": "m", "text": 1}', '{"text": "x"}', "nonsense"])
def test_a_bad_line_is_named(text: str) -> None:
    with pytest.raises(RecordError, match="line 2"):
        MemoryExport.from_jsonl(f"\n{text}\n")


def test_a_changed_comment_is_named() -> None:
    with pytest.raises(RecordError, match=r"fact\.md"):
        MemoryExport.from_markdown({"fact.md": "## m1\n> x\n<!-- memory {broken} -->"}, ADA, now=NOW)
