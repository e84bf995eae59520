"""Random puts, deletes, searches and reopens, beside LangGraph's own in-memory store."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from langgraph.store.base import PutOp
from langgraph.store.memory import InMemoryStore

from langmem_harness.store import FaissStore
from langmem_harness.testing import DeterministicEmbeddings

NAMESPACES = st.sampled_from([("a",), ("a", "x"), ("ab",), ("b", "x")])
PREFIXES = st.sampled_from([(), ("a",), ("a", "x"), ("b",), ("c",)])
KEYS = st.sampled_from(["k1", "k2", "k3", "k4"])
TEXTS = st.sampled_from(["green tea", "black tea", "fast car", "red car at sea", "sea", ""])


class Stores(RuleBasedStateMachine):
    """Ours on a file, opened twice (two processes as far as caches go), and the peer."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "s.sqlite"
        self.ours, self.second = self.open(), self.open()
        self.peer = InMemoryStore(index={"embed": DeterministicEmbeddings(512), "fields": ["text"], "dims": 512})

    def open(self) -> FaissStore:
        index = {"embed": DeterministicEmbeddings(512), "fields": ["text"]}
        return FaissStore(self.path, index=index, retrieval="semantic")

    @rule(namespace=NAMESPACES, key=KEYS, text=TEXTS, number=st.integers(0, 3), indexed=st.booleans())
    def put(self, namespace: Any, key: str, text: str, number: int, indexed: bool) -> None:
        index = None if indexed else False
        self.ours.put(namespace, key, {"text": text, "n": number}, index=index)
        self.peer.delete(namespace, key)  # the peer keeps the old vector when a value is replaced
        self.peer.put(namespace, key, {"text": text, "n": number}, index=index)

    @rule(entries=st.lists(st.tuples(NAMESPACES, KEYS, TEXTS), max_size=6))
    def batch(self, entries: list[tuple[Any, str, str]]) -> None:
        self.second.batch([PutOp(namespace, key, {"text": text, "n": 0}) for namespace, key, text in entries])
        for namespace, key, text in entries:
            self.peer.delete(namespace, key)
            self.peer.put(namespace, key, {"text": text, "n": 0})

    @rule(namespace=NAMESPACES, key=KEYS)
    def delete(self, namespace: Any, key: str) -> None:
        self.ours.delete(namespace, key)
        self.peer.delete(namespace, key)

    @rule(namespace=NAMESPACES, key=KEYS)
    def get(self, namespace: Any, key: str) -> None:
        ours, peer = self.second.get(namespace, key), self.peer.get(namespace, key)
        assert (ours and ours.value) == (peer and peer.value)

    @rule(prefix=PREFIXES, query=TEXTS.filter(bool), number=st.none() | st.integers(0, 3))
    def search(self, prefix: Any, query: str, number: int | None) -> None:
        condition = None if number is None else {"n": number}
        expected = {
            (item.namespace, item.key): item.score
            for item in self.peer.search(prefix, query=query, limit=100, filter=condition)
            if item.score is not None
            and item.value["text"]  # it also returns what is not indexed; blanks have no vector
        }
        for store in (self.ours, self.second):
            found = store.search(prefix, query=query, limit=100, filter=condition)
            scores = {(item.namespace, item.key): item.score for item in found}
            assert scores.keys() == expected.keys()
            for place, score in scores.items():
                assert np.isclose(score, expected[place], atol=1e-5)
            order = [(-round(item.score or 0, 4), item.key, item.namespace) for item in found]
            assert order == sorted(order)

    @rule(prefix=PREFIXES)
    def recent(self, prefix: Any) -> None:
        expected = {(item.namespace, item.key) for item in self.peer.search(prefix, limit=100)}
        assert {(item.namespace, item.key) for item in self.second.search(prefix, limit=100)} == expected

    @rule(depth=st.none() | st.integers(1, 2))
    def namespaces(self, depth: int | None) -> None:
        occupied = {item.namespace for item in self.peer.search((), limit=100)}  # it also lists empty ones
        expected = sorted({namespace[:depth] for namespace in occupied})
        assert self.ours.list_namespaces(max_depth=depth) == expected

    @rule()
    def reopen(self) -> None:
        self.ours.close()
        self.ours = self.open()

    @precondition(lambda self: self.ours.stats().vectors > 0)
    @rule()
    def reindex(self) -> None:
        self.ours.reindex()

    @rule()
    def vacuum(self) -> None:
        self.second.vacuum()

    @invariant()
    def adds_up(self) -> None:
        assert self.ours.verify().problems == ()

    def teardown(self) -> None:
        self.ours.close()
        self.second.close()
        self.folder.cleanup()


Stores.TestCase.settings = settings(max_examples=12, stateful_step_count=20, deadline=None)
TestStores = Stores.TestCase
