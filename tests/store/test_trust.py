"""Embedders that fail, processes that die, caches that must notice."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langgraph.store.base import PutOp

from langmem_harness.errors import CorruptionError, EmbeddingError, StorageUnavailableError
from langmem_harness.events import MemoryEvent, RetrievalDegraded
from langmem_harness.store import FaissStore
from langmem_harness.store import vectors as vectors_module
from langmem_harness.testing import DeterministicEmbeddings
from tests.conftest import Face


def opened(location: Any, embeddings: Any = None, **options: Any) -> FaissStore:
    return FaissStore(
        location, index={"embed": embeddings or DeterministicEmbeddings(64), "fields": ["text"]}, **options
    )


def keys(items: Any) -> list[str]:
    return [item.key for item in items]


@pytest.mark.parametrize("fault", ["raise", "slow", "nan", "zero", "wrong_length", "too_few"])
def test_a_failing_embedder_loses_no_write_and_no_search(face: Face, fault: Any) -> None:
    embeddings, events = DeterministicEmbeddings(64), list[MemoryEvent]()
    with opened(":memory:", embeddings, embedding_timeout_seconds=0.1, on_event=events.append) as store:
        store.put(("a",), "first", {"text": "green tea"})
        embeddings.fault, embeddings.delay_seconds = fault, 0.3
        face(store, "put", ("a",), "second", {"text": "black tea"})
        assert store.pending_embeddings() == 1
        result = face(store, "recall", ("a",), query="black tea please")
        if fault != "too_few":  # a query has one vector only
            assert result.retrieval == "keyword"
        assert keys(result)[0] == "second"
        assert result.degraded
        assert {event.operation for event in events if isinstance(event, RetrievalDegraded)} == {"write", "search"}
        embeddings.fault = None
        assert face(store, "embed_pending") == 1
        assert face(store, "recall", ("a",), query="black tea please").degraded is None
        assert store.verify().problems == ()


def test_the_next_healthy_write_embeds_what_waits(face: Face) -> None:
    embeddings = DeterministicEmbeddings(64)
    with opened(":memory:", embeddings) as store:
        embeddings.fault = "raise"
        store.put(("a",), "k", {"text": "green tea"})
        embeddings.fault = None
        face(store, "put", ("b",), "other", {"text": "car"})
        assert store.pending_embeddings() == 0
        assert "semantic" in face(store, "recall", ("a",), query="tea").items[0].legs


def test_the_breaker_stops_waiting() -> None:
    embeddings = DeterministicEmbeddings(64)
    with opened(":memory:", embeddings, embedding_timeout_seconds=0.1) as store:
        store.put(("a",), "k", {"text": "green tea"})
        embeddings.fault, embeddings.delay_seconds = "slow", 0.4
        started = time.monotonic()
        for number in range(10):
            assert store.recall(("a",), query=f"tea {number}").retrieval == "keyword"
        assert time.monotonic() - started < 0.8


def test_another_model_of_the_same_size_is_noticed(tmp_path: Path, face: Face) -> None:
    path = tmp_path / "s.sqlite"
    with opened(path) as store:
        store.put(("a",), "k", {"text": "green tea"})
    with opened(path, DeterministicEmbeddings(64, name="other")) as store:
        result = face(store, "recall", ("a",), query="tea")
        assert result.retrieval == "keyword"
        assert "reindex" in (result.degraded or "")
        face(store, "put", ("a",), "new", {"text": "black tea"})
        assert store.pending_embeddings() == 1
        assert face(store, "reindex") == 2
        assert store.pending_embeddings() == 0
        assert face(store, "recall", ("a",), query="tea").retrieval == "hybrid"
        assert store.provenance().embedding_model.endswith("other-64")  # type: ignore[union-attr]
        assert store.verify().problems == ()
    with opened(path, DeterministicEmbeddings(32)) as store:
        assert face(store, "recall", ("a",), query="tea").retrieval == "keyword"


def test_a_failed_reindex_leaves_the_old_index(face: Face) -> None:
    embeddings = DeterministicEmbeddings(64)
    with opened(":memory:", embeddings) as store:
        store.batch([PutOp(("a",), str(n), {"text": f"tea {n}"}) for n in range(200)])
        passport = store.provenance()

        def fail(done: int, total: int) -> None:
            embeddings.fault = "raise"

        with pytest.raises(EmbeddingError):
            face(store, "reindex", progress=fail)
        embeddings.fault = None
        assert store.provenance() == passport
        assert face(store, "recall", ("a",), query="tea 7").retrieval == "hybrid"
        assert store.verify().problems == ()


def test_writes_during_a_reindex_are_in_the_new_index() -> None:
    with opened(":memory:") as store:
        store.batch([PutOp(("a",), str(n), {"text": f"tea {n}"}) for n in range(200)])

        def write(done: int, total: int) -> None:
            if done == 64:
                store.put(("a",), "1", {"text": "changed"})
                store.put(("a",), "new", {"text": "new"})
                store.delete(("a",), "2")

        store.reindex(write)
        assert store.stats().vectors == 200
        assert store.pending_embeddings() == 0
        assert store.verify().problems == ()
        assert keys(store.search(("a",), query="changed", limit=1)) == ["1"]


def test_identical_texts_are_embedded_once_and_never_again(tmp_path: Path) -> None:
    embeddings = DeterministicEmbeddings(64)
    with opened(tmp_path / "s.sqlite", embeddings) as store:
        store.batch([PutOp(("a",), str(n), {"text": "same"}) for n in range(5)])
        assert [call for call in embeddings.document_calls if "same" in call] == [["same"]]
    again = DeterministicEmbeddings(64)
    with opened(tmp_path / "s.sqlite", again) as store:
        store.put(("b",), "k", {"text": "same"})
        assert not any("same" in call for call in again.document_calls)
        assert store.stats().vectors == 6


def test_queries_are_embedded_as_queries(face: Face) -> None:
    embeddings = DeterministicEmbeddings(64, query_differs=True)
    with opened(":memory:", embeddings) as store:
        store.put(("a",), "k", {"text": "tea"})
        face(store, "search", ("a",), query="tea")
        assert embeddings.query_calls == ["tea"]
        assert ["tea"] in embeddings.document_calls


def test_a_keyword_store_reopened_with_an_embedder_catches_up(tmp_path: Path) -> None:
    with FaissStore(tmp_path / "s.sqlite", index={"fields": ["text"]}) as store:
        store.put(("a",), "k", {"text": "tea"})
        assert store.pending_embeddings() == 0
        assert store.search(("a",), query="tea")[0].retrieval == "keyword"  # type: ignore[attr-defined]
    with opened(tmp_path / "s.sqlite") as store:
        assert store.pending_embeddings() == 1
        assert store.embed_pending() == 1
        assert store.recall(("a",), query="tea").retrieval == "hybrid"


def test_another_process_is_noticed_without_reading_everything(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with opened(path) as one, opened(path) as two:
        one.batch([PutOp(("a",), str(n), {"text": f"tea {n}"}) for n in range(50)])
        assert len(two.search(("a",), query="tea", limit=100)) == 50
        one.put(("a",), "0", {"text": "coffee"})
        one.delete(("a",), "1")
        one.put(("b",), "0", {"text": "coffee"})
        assert keys(two.search(("a",), query="coffee", limit=1)) == ["0"]
        assert "1" not in keys(two.search(("a",), query="tea", limit=100))
        assert len(two.search((), query="coffee", limit=100)) == 50
        two.vacuum()
        one.delete(("a",), "3")
        assert len(two.search(("a",), query="tea", limit=100)) == 48


WRITER = """
    import sys
    from langgraph.store.base import PutOp
    from langmem_harness.store import FaissStore
    from langmem_harness.testing import DeterministicEmbeddings
    with FaissStore(sys.argv[1], index={"embed": DeterministicEmbeddings(64)}) as store:
        print("ready", flush=True)
        for number in range(int(sys.argv[2])):
            store.batch([PutOp(("p", sys.argv[3]), f"{number}-{part}", {"text": f"tea {number}"}) for part in "ab"])
            if int(sys.argv[2]) > 1000:
                print(number, flush=True)
"""


def write_in_a_process(path: Path, count: int, name: str) -> subprocess.Popen[str]:
    code = textwrap.dedent(WRITER)
    return subprocess.Popen(
        [sys.executable, "-c", code, str(path), str(count), name], stdout=subprocess.PIPE, text=True
    )


def test_two_processes_write_while_one_reads(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with FaissStore(path, index={"embed": DeterministicEmbeddings(64)}) as store:
        writers = [write_in_a_process(path, 40, name) for name in "xy"]
        while any(writer.poll() is None for writer in writers):
            found = store.search(("p",), query="tea", limit=1000)
            assert len(found) % 2 == 0  # no half batch
            time.sleep(0.02)
        for writer in writers:
            writer.communicate()
            assert writer.returncode == 0
        assert len(store.search(("p",), query="tea", limit=1000)) == 160
        assert store.verify().problems == ()


def test_a_killed_writer_leaves_whole_batches(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    for delay in (0.0, 0.05):
        writer = write_in_a_process(path, 100_000, "x")
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(delay)
        writer.send_signal(signal.SIGKILL)
        confirmed = [int(line) for line in writer.stdout.read().split() if line.isdigit()]
        writer.wait()
        writer.stdout.close()
        with FaissStore(path, index={"embed": DeterministicEmbeddings(64)}) as store:
            assert store.verify().problems == ()
            assert store.stats().items % 2 == 0
            if len(confirmed) > 1:  # the last line may be cut off
                assert store.get(("p", "x"), f"{confirmed[-2]}-b") is not None


def test_a_full_disk_keeps_what_was_there(tmp_path: Path) -> None:
    with opened(tmp_path / "s.sqlite") as store:
        store.put(("a",), "k", {"text": "tea"})
        with store._database.write() as connection:
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
        store._database._writer.execute(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(StorageUnavailableError):
            store.batch([PutOp(("a",), str(n), {"text": "tea " * 50}) for n in range(500)])
        assert keys(store.search(("a",), query="tea")) == ["k"]
        store._database._writer.execute("PRAGMA max_page_count = 1000000")
        store.put(("a",), "k2", {"text": "tea"})
        assert store.verify().problems == ()


def test_a_damaged_file_is_an_error_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    path.write_bytes(b"this is not a database" * 100)
    with pytest.raises(CorruptionError):
        opened(path)


def test_verify_finds_what_was_changed_behind_our_back(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with opened(path) as store:
        store.batch([PutOp(("a",), str(n), {"text": f"tea {n}"}) for n in range(3)])
    with sqlite3.connect(path) as raw:
        raw.execute("""UPDATE store_items SET value = '{"text":"coffee"}' WHERE key = x'30'""")
        raw.execute("DELETE FROM store_vectors_1 WHERE vector_id = (SELECT max(vector_id) FROM store_vectors_1)")
    raw.close()
    with opened(path) as store:
        report = store.verify()
        assert not report.ok
        assert any("content" in problem for problem in report.problems)
        assert any("missing" in problem for problem in report.problems)
        assert "coffee" not in " ".join(report.problems)


def test_many_threads_search_while_one_writes() -> None:
    failures: list[BaseException] = []
    stop = threading.Event()
    with opened(":memory:", exact_limit=50) as store:
        store.batch([PutOp(("a",), str(n), {"text": f"tea {n}"}) for n in range(100)])

        def search() -> None:
            try:
                while not stop.is_set():
                    assert len(store.search(("a",), query="tea", limit=20)) == 20
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=search) for _ in range(3)]
        for thread in threads:
            thread.start()
        for number in range(100):
            store.put(("a",), f"new {number % 7}", {"text": f"tea {number}"})
            store.delete(("a",), str(number)) if number % 3 == 0 else None
        stop.set()
        for thread in threads:
            thread.join()
        assert failures == []
        assert store.verify().problems == ()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_fork_after_use(tmp_path: Path) -> None:
    with opened(tmp_path / "s.sqlite", exact_limit=10) as store:
        store.batch([PutOp(("a",), str(n), {"text": f"tea {n}"}) for n in range(50)])
        assert len(store.search(("a",), query="tea")) == 10
        process = multiprocessing.get_context("fork").Process(target=_use_in_child, args=(store,))
        process.start()
        process.join(20)
        assert process.exitcode == 0
        assert keys(store.search(("a",), query="child", limit=1)) == ["child"]


def _use_in_child(store: FaissStore) -> None:
    store.put(("a",), "child", {"text": "child"})
    os._exit(0 if len(store.search(("a",), query="tea", limit=5)) == 5 else 1)


@pytest.mark.anyio
async def test_a_cancelled_batch_is_whole_or_not_there() -> None:
    with opened(":memory:") as store:
        for delay in (0, 0.001, 0.003, 0.01):
            batch = store.abatch([PutOp(("a",), str(n), {"text": f"tea {n} {delay}"}) for n in range(100)])
            task = asyncio.create_task(batch)
            await asyncio.sleep(delay)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await asyncio.sleep(0.1)
            assert store.stats().items in (0, 100)
        report = await asyncio.to_thread(store.verify)
        assert report.problems == ()


@pytest.mark.parametrize("with_faiss", [True, False])
def test_approximate_search_finds_what_exact_search_finds(monkeypatch: pytest.MonkeyPatch, with_faiss: bool) -> None:
    if not with_faiss:
        monkeypatch.setattr(vectors_module, "load_faiss", lambda: None)
    generator = np.random.default_rng(7)
    matrix = generator.standard_normal((3_000, 64)).astype(np.float32)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    index = vectors_module.VectorIndex(64, exact_limit=1_000)
    index.append(matrix[:2_000])
    index.prepare()
    index.append(matrix[2_000:])
    index.prepare()
    index.remove(0, 100)
    assert index.is_exact is not with_faiss
    shares = []
    for query in matrix[generator.integers(0, 3_000, 30)]:
        exact = set((np.argsort(-(matrix[100:] @ query))[:10] + 100).tolist())
        shares.append(len(exact & set(index.nearest(query, 400).tolist())) / 10)
    assert np.mean(shares) >= 0.95
    assert not set(range(100)) & set(index.nearest(matrix[0], 3_000).tolist())


def test_memory_is_bounded() -> None:
    with opened(":memory:", max_cache_bytes=200_000) as store:
        for name in range(20):
            store.batch([PutOp(("n", str(name)), str(n), {"text": f"tea {n}"}) for n in range(100)])
        for name in range(20):
            assert len(store.search(("n", str(name)), query="tea 5", limit=1)) == 1
            assert store.stats().cached_bytes <= 200_000
        assert 0 < store.stats().cached_partitions < 20
