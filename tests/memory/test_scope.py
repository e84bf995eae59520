"""Whose memory it is: from the runtime, never blank, never mixed up."""

from __future__ import annotations

import itertools
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_harness.errors import IdentityError
from langmem_harness.memory.scope import MemoryContext, MemoryScope, scope_from_runtime, thread_from_config

BLANK = ["", " ", "\t\n", "\u00a0", "\u200b", "\u2060\ufeff", "\x00"]


@pytest.mark.parametrize("blank", BLANK)
@pytest.mark.parametrize("part", ["tenant", "user", "agent"])
def test_blank_parts_are_errors(part: str, blank: str) -> None:
    with pytest.raises(IdentityError, match=part):
        MemoryScope(**{"user": "ada", part: blank})


@pytest.mark.parametrize("value", [None, True, 1.5, b"ada", ["ada"], {"a": 1}])
def test_a_user_of_another_type_is_an_error(value: Any) -> None:
    with pytest.raises(IdentityError):
        MemoryScope(user=value)


def test_numbers_and_uuids_become_texts_once() -> None:
    assert MemoryScope(user=7) == MemoryScope(user="7")  # type: ignore[arg-type]
    uuid = UUID(int=5)
    assert MemoryScope(user=uuid).user == str(uuid)  # type: ignore[arg-type]
    assert scope_from_runtime(None, {"configurable": {"user_id": 7}}).memories == ("memories", "default", "7", "-")


@given(st.lists(st.text(min_size=1).filter(lambda text: text.strip()), min_size=4, max_size=4))
def test_different_scopes_never_share_a_namespace(parts: list[str]) -> None:
    scopes = set()
    for tenant, user, agent in itertools.product(parts, parts, [None, *parts]):
        try:
            scopes.add(MemoryScope(tenant=tenant, user=user, agent=agent))
        except IdentityError:
            continue
    assert len({scope.memories for scope in scopes}) == len(scopes)
    assert all(label and "." not in label for scope in scopes for label in scope.memories)


def test_an_agent_named_like_the_place_for_no_agent_is_not_mistaken_for_it() -> None:
    assert MemoryScope(user="ada", agent="-").memories != MemoryScope(user="ada").memories


def test_context_wins_as_a_whole() -> None:
    config = {"configurable": {"user_id": "bob", "tenant": "acme", "agent": "travel"}}
    assert scope_from_runtime(MemoryContext(user_id="ada"), config) == MemoryScope(user="ada")
    assert scope_from_runtime(None, config) == MemoryScope(tenant="acme", user="bob", agent="travel")
    assert scope_from_runtime({"user_id": "ada", "tenant": "x"}, config) == MemoryScope(tenant="x", user="ada")


@pytest.mark.parametrize("key", ["user_id", "langgraph_auth_user_id", "langgraph_user_id"])
def test_config_keys(key: str) -> None:
    assert scope_from_runtime(None, {"configurable": {key: "ada"}}).user == "ada"


@pytest.mark.parametrize("blank", BLANK)
def test_a_blank_user_is_not_skipped_for_another_source(blank: str) -> None:
    with pytest.raises(IdentityError):
        scope_from_runtime(MemoryContext(user_id=blank), {"configurable": {"user_id": "bob"}})
    with pytest.raises(IdentityError):
        scope_from_runtime(None, {"configurable": {"user_id": blank, "langgraph_user_id": "bob"}})


@pytest.mark.parametrize("config", [None, {}, {"configurable": {}}, {"configurable": None}])
def test_no_user_is_an_error_that_says_what_to_pass(config: Any) -> None:
    with pytest.raises(IdentityError, match="MemoryContext"):
        scope_from_runtime(None, config)


def test_round_trip_and_sharing() -> None:
    scope = MemoryScope(tenant="acme", user="ada", agent="travel")
    assert MemoryScope.from_dict(scope.to_dict()) == scope
    assert scope.shared == MemoryScope(tenant="acme", user="ada")


def test_thread_of_a_config() -> None:
    assert thread_from_config({"configurable": {"thread_id": 5}}) == "5"
    assert thread_from_config({"configurable": {"thread_id": " "}}) is None
    assert thread_from_config(None) is None
