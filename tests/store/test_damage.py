"""Rows that somebody changed behind our back, passports that are gone, files that are not there any more."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import PutOp

from langmem_harness.errors import CorruptionError
from langmem_harness.sqlite import Database
from langmem_harness.store import FaissStore
from langmem_harness.store import database as tables
from langmem_harness.testing import DeterministicEmbeddings
from tests.conftest import Face


def opened(location: Any, embeddings: Any = None, **options: Any) -> FaissStore:
    return FaissStore(
        location, index={"embed": embeddings or DeterministicEmbeddings(64), "fields": ["text"]}, **options
    )


PASSPORTS = ["", "{}", "[]", "null", "no JSON", '{"dims": "64"}', "digest", "dims"]


@pytest.mark.parametrize("passport", [None, *PASSPORTS], ids=range(9))
def test_an_unreadable_passport_means_words_only_until_reindex(tmp_path: Path, face: Face, passport: Any) -> None:
    with opened(tmp_path / "s.sqlite") as store:
        store.put(("a",), "k", {"text": "tea"})
        known = store.provenance()
    assert known is not None
    changed = {"digest": {"model_digest": "x"}, "dims": {"dims": None}}.get(passport)
    if changed is not None:
        passport = json.dumps({**known.to_dict(), **changed})
    database = Database(tmp_path / "s.sqlite")
    with database.write() as connection:
        if passport is None:
            connection.execute("DELETE FROM store_indexes")
        else:
            connection.execute("UPDATE store_indexes SET passport = ?", (passport,))
    database.close()
    with opened(tmp_path / "s.sqlite") as store:
        answer = face(store, "recall", ("a",), query="tea")
        assert (answer.retrieval, len(answer)) == ("keyword", 1)
        assert "reindex" in answer.degraded
        face(store, "put", ("a",), "new", {"text": "black tea"})
        assert store.pending_embeddings() == 1
        if changed is None or passport == "dims":
            with pytest.raises(CorruptionError, match="reindex"):
                store.provenance()
            assert "passport" in store.verify().problems[0]
        assert face(store, "reindex") == 2
        assert face(store, "recall", ("a",), query="tea").retrieval == "hybrid"
        assert store.verify().problems == ()


def test_verify_reports_rows_that_cannot_be_read() -> None:
    damage = [
        "value = x'ff00'", "value = CAST(x'22ff22' AS TEXT)", "terms = x'ff00'", "terms = 5", "indexing = '{'",
        "value = '[1]'", "content_hash = 'x'", "value = 'no JSON'", "value = 7", "changed = 'x'", "created_at = 'x'",
    ]  # fmt: skip
    with opened(":memory:") as store:
        store.batch([PutOp(("a",), str(number), {"text": "tea"}) for number in range(len(damage) + 1)])
        with store._database.write() as connection:
            items = [row[0] for row in connection.execute("SELECT item_id FROM store_items ORDER BY item_id")]
            for item_id, change in zip(items, damage, strict=False):
                connection.execute(f"UPDATE store_items SET {change} WHERE item_id = ?", (item_id,))
            connection.execute("UPDATE store_vectors_1 SET vector = 5 WHERE vector_id = ?", (items[-1] << 10,))
        report = store.verify()
    for item_id in items[:-1]:
        assert any(problem.startswith(f"item {item_id}:") for problem in report.problems)
    assert any(problem.startswith(f"vector {items[-1] << 10}:") for problem in report.problems)
    assert "tea" not in " ".join(report.problems)


def test_vacuum_drops_what_a_dead_rebuild_left_and_no_living_one(tmp_path: Path) -> None:
    with opened(tmp_path / "s.sqlite") as store:
        store.put(("a",), "k", {"text": "tea"})
        with store._database.write() as connection:
            for generation, age in ((7, tables.ABANDONED_SECONDS + 1), (8, 0)):
                tables.create_vectors_table(connection, generation)
                connection.execute(
                    "INSERT INTO store_indexes VALUES (?, '{}', ?)", (generation, int(time.time()) - age)
                )
        store.vacuum()
        with store._database.read() as connection:
            left = connection.execute("SELECT generation FROM store_indexes ORDER BY 1").fetchall()
            found = connection.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'store_vectors_%' ORDER BY 1"
            ).fetchall()
        assert left == [(1,), (8,)]
        assert found == [("store_vectors_1",), ("store_vectors_8",)]
        assert len(store.search(("a",), query="tea")) == 1


def test_a_rebuild_interrupted_after_its_switch_keeps_the_new_index(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(":memory:") as store:
        store.put(("a",), "k", {"text": "tea"})
        indexer: Any = store._indexer
        switch = indexer._switch

        def interrupted(*arguments: Any) -> int:
            switch(*arguments)
            raise KeyboardInterrupt

        monkeypatch.setattr(indexer, "_switch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.reindex()
        monkeypatch.undo()
        assert store.recall(("a",), query="tea").retrieval == "hybrid"
        store.put(("a",), "new", {"text": "black tea"})
        assert store.verify().problems == ()
        assert store.reindex() == 2


def test_a_file_deleted_underneath_is_no_error_of_the_system(tmp_path: Path) -> None:
    with opened(tmp_path / "s.sqlite") as store:
        store.put(("a",), "k", {"text": "tea"})
        os.unlink(tmp_path / "s.sqlite")
        assert store.stats().items == 1
        assert store.stats().file_bytes > 0
        assert len(store.search(("a",), query="tea")) == 1


class UndoError(Exception):
    pass


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_searches_inside_a_transaction_that_is_undone_leave_no_ghosts(tmp_path: Path, kind: str) -> None:
    database = Database(tmp_path / "s.sqlite" if kind == "file" else ":memory:")
    with opened(database) as store:
        store.put(("a",), "old", {"text": "tea"})
        store.search(("a",), query="tea")
        with pytest.raises(UndoError), database.write():
            store.put(("a",), "ghost", {"text": "tea"})
            assert len(store.search(("a",), query="tea")) == 2
            assert len(store.search((), query="tea")) == 2
            raise UndoError
        for prefix in (("a",), ()):
            assert [item.key for item in store.search(prefix, query="tea")] == ["old"]
        store.put(("a",), "new", {"text": "tea"})
        assert [item.key for item in store.search(("a",), query="tea")] == ["new", "old"]
        assert store.verify().problems == ()
    database.close()


def test_a_search_inside_an_old_snapshot_ends(tmp_path: Path) -> None:
    database = Database(tmp_path / "s.sqlite")
    with opened(database) as store:
        store.put(("a",), "old", {"text": "tea"})
        with database.read() as connection:
            connection.execute("SELECT count(*) FROM store_items").fetchone()

            def write() -> None:
                store.put(("a",), "new", {"text": "tea"})
                store.search(("a",), query="tea")

            other = threading.Thread(target=write)
            other.start()
            other.join()
            assert [item.key for item in store.search(("a",), query="tea")] == ["old"]
        assert [item.key for item in store.search(("a",), query="tea")] == ["new", "old"]
    database.close()


def test_a_store_of_words_only_is_not_degraded(face: Face) -> None:
    events: list[Any] = []
    with FaissStore(":memory:", on_event=events.append) as store:
        face(store, "put", ("a",), "k", {"text": "tea"})
        answer = face(store, "recall", ("a",), query="tea")
        assert (answer.retrieval, answer.degraded) == ("keyword", None)
        assert face(store, "recall", ("a",), query="tea", mode="semantic").degraded == "the store has no embedder"
    assert [event.kind for event in events] == ["retrieval_degraded"]
