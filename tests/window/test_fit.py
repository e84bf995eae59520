"""The last measure: what makes way, in which order, and what never does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from langmem_harness.errors import ConfigurationError, WindowOverflowError
from langmem_harness.window.fit import STAGES, FittedRequest, fit_request
from langmem_harness.window.marker import marker_message
from langmem_harness.window.messages import TAG_KEY, is_tagged, role_of
from langmem_harness.window.plan import plan_window
from langmem_harness.window.policy import WindowPolicy
from langmem_harness.window.references import (
    REFERENCES_KEY,
    Reference,
    reference_message,
    references_of,
    tag_references,
)
from langmem_harness.window.rules import check_request
from langmem_harness.window.tokens import TokenCache, estimate_tokens
from tests.window.histories import ai, calling, histories, human, result

DOCUMENT = "Preface. " * 40 + "THE PART THAT MATCHED." + " Appendix." * 40
START = DOCUMENT.index("THE PART")
MATCHED = [(START, START + len("THE PART THAT MATCHED."))]
CATALOGUE = "orders: " + "one row for each order " * 20 + "\nusers: " + "one row for each user " * 20
NAMES = [(0, 6), (CATALOGUE.index("users"), CATALOGUE.index("users") + 5)]


def recall_block(entries: int) -> HumanMessage:
    lines = ["Recalled:", "<data>", *(f"entry {number} " + "word " * 20 for number in range(entries)), "</data>"]
    return HumanMessage("\n".join(lines), additional_kwargs={TAG_KEY: {"kind": "recall"}})


def retrieved() -> list[BaseMessage]:
    """One of everything that middlewares put into a request."""
    return [
        recall_block(3),
        reference_message(
            [
                ("first passage " * 20, Reference(kind="recall", rank=1)),
                ("second passage " * 20, Reference(kind="recall", rank=7)),
            ]
        ),
        reference_message(
            [
                (DOCUMENT, Reference(kind="document", rank=2, sections=MATCHED)),
                (DOCUMENT + "!", Reference(kind="document", rank=1, sections=MATCHED)),
                (CATALOGUE, Reference(kind="catalogue", sections=NAMES)),
            ]
        ),
    ]


def fit(
    tail: list[BaseMessage],
    target: int,
    *,
    head: list[BaseMessage] | None = None,
    placed: list[BaseMessage] | None = None,
    limit: int | None = None,
) -> FittedRequest:
    return fit_request(
        head or [],
        tail,
        make_marker=lambda more: marker_message(more) if more else None,
        count=TokenCache().count,
        overhead_tokens=0,
        target_tokens=target,
        limit_tokens=limit,
        placed=placed or [],
    )


def conversation() -> tuple[list[BaseMessage], list[BaseMessage]]:
    """A tail with everything in it, and what of it is placed."""
    placed = retrieved()
    repeated = recall_block(3)
    tail = [
        human("An old question. " * 20, 1),
        ai("An old answer. " * 20, 1),
        repeated,
        *placed,
        human("The newest question. " * 10, 2),
        calling("a"),
        result("a", "old result " * 60),
        calling("b"),
        result("b", "newer result " * 60),
        calling("c"),
        result("c", "newest result " * 60),
    ]
    return tail, [repeated, *placed]


def test_what_fits_is_left_alone() -> None:
    tail, placed = conversation()
    fitted = fit(tail, 1_000_000, placed=placed)
    assert list(fitted.messages) == tail
    assert fitted.reclaimed == {}


def test_the_stages_come_in_their_order_and_each_says_what_it_gave_back() -> None:
    tail, placed = conversation()
    full = estimate_tokens(tail)
    used: list[tuple[str, ...]] = []
    for target in range(full, 0, -25):
        fitted = fit(tail, target, placed=placed)
        stages = tuple(fitted.reclaimed)
        assert stages == STAGES[: len(stages)], "a stage was skipped while it had something to give"
        assert full - sum(fitted.reclaimed.values()) == fitted.tokens
        assert fitted.tokens == estimate_tokens(fitted.messages)
        assert check_request(fitted.messages) == []
        assert fitted.messages[-1] is tail[-1]
        assert any(message is tail[6] for message in fitted.messages), "the newest question"
        used.append(stages)
    assert used[-1] == STAGES


def test_low_ranks_go_first_and_matched_sections_stay() -> None:
    tail, placed = conversation()
    seen = []
    for target in range(estimate_tokens(tail), 0, -10):
        fitted = fit(tail, target, placed=placed)
        text = "\n".join(message.text for message in fitted.messages)
        if "second passage" in text:
            assert "first passage" in text, "rank 7 makes way before rank 1"
        if "Preface" in text and text.count("Preface") < 80:
            assert DOCUMENT + "!" in text, "the document of rank 2 shrinks before the one of rank 1"
        if "document_sections" not in fitted.reclaimed:
            assert text.count("Preface") == 80
        elif "finished_turns" not in fitted.reclaimed:
            assert text.count("THE PART THAT MATCHED.") == 2
        if "catalogue_descriptions" in fitted.reclaimed:
            assert "one row" not in text
            assert "orders" in text
            assert "users" in text
        seen.append("catalogue_descriptions" in fitted.reclaimed)
    assert any(seen)


def test_marked_text_of_the_thread_shrinks_but_not_in_the_newest_messages() -> None:
    marked = Reference(kind="document", sections=MATCHED)
    old_result = tag_references(result("a", DOCUMENT), [marked])
    new_result = tag_references(result("b", DOCUMENT), [marked])
    question = tag_references(
        HumanMessage([{"type": "text", "text": "See:"}, {"type": "text", "text": DOCUMENT}], id="q"),
        [Reference(kind="document", sections=MATCHED, block=1)],
    )
    tail = [human(), ai(), question, calling("a"), old_result, calling("b"), new_result]
    fitted = fit(tail, estimate_tokens(tail) - 10)
    assert set(fitted.reclaimed) == {"document_sections"}
    assert fitted.messages[4].text == "[…]\nTHE PART THAT MATCHED.\n[…]"
    assert fitted.messages[4].tool_call_id == "a"  # type: ignore[attr-defined]
    assert fitted.messages[2] is question
    assert fitted.messages[6] is new_result
    assert old_result.text == DOCUMENT, "the input was changed"
    assert list(fitted.dropped) == []
    older = [
        human("Look: " + DOCUMENT),
        ai(),
        tag_references(human(DOCUMENT, 3), [marked]),
        ai("Yes.", 3),
        human("And?", 4),
    ]
    assert "[…]" in fit(older, estimate_tokens(older) - 10).messages[2].text


def test_a_recalled_text_of_the_thread_makes_way_for_a_notice() -> None:
    tail = [
        human(),
        calling("a"),
        tag_references(result("a", DOCUMENT), [Reference(kind="recall")]),
        calling("b"),
        result("b"),
    ]
    fitted = fit(tail, estimate_tokens(tail) - 10)
    assert set(fitted.reclaimed) == {"recalled_text"}
    assert len(fitted.messages) == len(tail)
    assert fitted.messages[2].text.startswith("[Retrieved text")
    assert references_of(fitted.messages[2]) == []


def test_results_with_a_tag_of_ours_count_as_left_out() -> None:
    stored = result("a", "long " * 100).model_copy(
        update={"additional_kwargs": {TAG_KEY: {"kind": "tool_output", "handle": "h"}}}
    )
    tail = [human(), calling("a"), stored, ai("Done. " * 20), human("Next?", 2)]
    fitted = fit(tail, 60)
    assert stored in fitted.dropped
    marker = next(message for message in fitted.messages if is_tagged(message, "marker"))
    assert marker.additional_kwargs[TAG_KEY]["omitted"] == len(fitted.dropped) == 4


def test_tool_results_make_way_when_the_question_is_in_the_head() -> None:
    results: list[BaseMessage] = [message for name in "abc" for message in (calling(name), result(name, "long " * 200))]
    fitted = fit(results, estimate_tokens(results) - 100, head=[human()])
    assert set(fitted.reclaimed) == {"tool_results"}
    assert fitted.messages[-1] is results[-1]
    assert len(fitted.messages) == 7


def test_what_cannot_fit_has_the_numbers() -> None:
    with pytest.raises(WindowOverflowError) as caught:
        fit([human("word " * 500)], 10, limit=100)
    assert caught.value.limit_tokens == 100
    assert caught.value.request_tokens > 400


references = st.builds(
    Reference,
    kind=st.sampled_from(["recall", "document", "catalogue"]),
    rank=st.integers(1, 5),
    sections=st.sampled_from([(), ((0, 5),), ((3, 9), (20, 30))]),
)
placed_messages = st.lists(
    st.one_of(
        st.lists(
            st.tuples(st.text("ab \n", min_size=1, max_size=90).map(lambda text: "x" * 40 + text), references),
            min_size=1,
            max_size=4,
        ).map(reference_message),
        st.integers(1, 4).map(recall_block),
    ),
    max_size=3,
)


@given(histories(), placed_messages, st.integers(0, 1_500))
@settings(max_examples=100)
def test_any_request_is_legal_and_keeps_what_is_newest(
    history: list[BaseMessage], placed: list[BaseMessage], target: int
) -> None:
    plan = plan_window(history, WindowPolicy())
    head, tail = list(plan.head), list(plan.tail)
    whole = [*head, *tail]
    newest = {role_of(message): message for message in whole if not is_tagged(message, "repair")}
    if "human" not in newest:
        return
    request = [*placed, *tail]
    before = [message.model_copy(deep=True) for message in [*head, *request]]
    fitted = fit(request, target, head=head, placed=placed)
    assert [*head, *request] == before, "the input was changed"
    assert check_request(fitted.messages) == []
    stages = list(fitted.reclaimed)
    assert stages == sorted(stages, key=STAGES.index)
    assert all(tokens > 0 for tokens in fitted.reclaimed.values())
    assert fitted.tokens == estimate_tokens(fitted.messages)
    assert all(any(one is message for one in fitted.messages) for message in head if role_of(message) != "system")
    assert any(message is newest["human"] for message in fitted.messages)
    asked = next(index for index, one in enumerate(whole) if one is newest["human"])
    if "tool" in newest and any(message is newest["tool"] for message in whole[asked:]):
        assert any(message is newest["tool"] for message in fitted.messages)
    sent = {message.id for message in fitted.messages}
    lost = {one.id for one in whole if one.id is not None and one.id not in sent and not is_tagged(one, "repair")}
    assert lost <= {one.id for one in fitted.dropped}, "left out and not named"


@given(histories(), placed_messages, st.integers(0, 1_500))
@settings(max_examples=50)
def test_a_smaller_target_never_sends_more(history: list[BaseMessage], placed: list[BaseMessage], target: int) -> None:
    plan = plan_window(history, WindowPolicy())
    request, head = [*placed, *plan.tail], list(plan.head)
    less = fit(request, target // 2, head=head, placed=placed).tokens
    more = fit(request, target, head=head, placed=placed).tokens
    # where next to nothing is left out, the marker that stands for it may cost more than it did
    assert less <= more + estimate_tokens([marker_message(len(history))])


# -- marks


def test_marks_survive_and_are_not_seen_by_anyone_else() -> None:
    message = reference_message([(DOCUMENT, Reference(kind="document", rank=2, sections=MATCHED))])
    loaded = HumanMessage.model_validate_json(message.model_dump_json())
    assert references_of(loaded) == [Reference(kind="document", rank=2, sections=MATCHED, block=0)]
    assert is_tagged(loaded, "reference")
    mine = tag_references(human(DOCUMENT), [Reference(kind="document", sections=MATCHED)])
    assert TAG_KEY not in mine.additional_kwargs, "a person's message stays a person's message"
    assert tag_references(mine, []).additional_kwargs == {}


@pytest.mark.parametrize(
    "reference",
    [
        Reference(kind="recall", block=3),
        Reference(kind="recall", block=0),
        Reference(kind="recall", rank=0),
        Reference(kind="document", sections=[(0, 99_999)]),
        Reference(kind="document", sections=[(5, 9), (7, 12)]),
        Reference(kind="document", sections=[(5, 5)]),
        Reference(kind="other"),  # type: ignore[arg-type]
    ],
    ids=str,
)
def test_marks_that_do_not_fit_are_refused(reference: Reference) -> None:
    with pytest.raises(ConfigurationError):
        tag_references(human("A short text."), [reference])


def test_nothing_to_mark() -> None:
    for content in ("", " ", [{"type": "image", "url": "https://example.org/a.png"}], []):
        with pytest.raises(ConfigurationError):
            block = None if isinstance(content, str) else 0
            tag_references(HumanMessage(content), [Reference(kind="recall", block=block)])  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError):
        reference_message([])
    with pytest.raises(ConfigurationError, match="two references"):
        tag_references(human("text"), [Reference(kind="recall"), Reference(kind="document")])


@pytest.mark.parametrize(
    "foreign",
    [
        None, 7, "x", {}, [None], [{}], [{"kind": "document", "block": 99}], [{"kind": "document", "rank": "1"}],
        [{"kind": "document", "sections": [[0, "x"]]}], [{"kind": "document", "sections": [[9_999, 10_000]]}],
        [{"kind": "document", "sections": 5}], [{"kind": "recall", "block": -1}], [{"kind": ["document"]}],
    ],
    ids=str,
)  # fmt: skip
def test_marks_of_somebody_else_are_left_out(foreign: Any) -> None:
    message = HumanMessage("A text.", additional_kwargs={REFERENCES_KEY: foreign})
    assert references_of(message) == []
    assert fit([message, AIMessage("ok"), human("Now?")], 1).messages[-1].text == "Now?"


def test_system_messages_may_be_catalogues() -> None:
    catalogue = tag_references(SystemMessage(CATALOGUE), [Reference(kind="catalogue", sections=NAMES)])
    fitted = fit([human()], 60, head=[catalogue])
    assert fitted.messages[0].text == "orders\n[…]\nusers\n[…]"
    assert set(fitted.reclaimed) == {"catalogue_descriptions"}


def test_results_of_tools_keep_their_call() -> None:
    message = tag_references(
        ToolMessage(DOCUMENT, tool_call_id="a", id="t"), [Reference(kind="document", sections=MATCHED)]
    )
    fitted = fit([human(), calling("a"), message, ai(), human("Now?", 2)], 120)
    assert check_request(fitted.messages) == []
