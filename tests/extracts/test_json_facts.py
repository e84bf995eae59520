"""What the extract of a JSON document says is true of the whole document, however large and however nested."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langmem_harness.extracts import extract
from langmem_harness.window.tokens import estimate_text_tokens

WRAPPERS: dict[str, Callable[[list[Any]], Any]] = {
    "flat": lambda rows: rows,
    "envelope": lambda rows: {"total": len(rows), "items": rows},
    "nested": lambda rows: {"data": {"orders": rows}},
    "list of lists": lambda rows: [rows[:7], rows[7:]],
    "map": lambda rows: {f"row-{index}": row for index, row in enumerate(rows)},
}


def orders(count: int = 5_000) -> list[dict[str, Any]]:
    return [{"id": i, "price": 10 + i / 100, "status": "shipped", "error": None} for i in range(count)]


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_one_bad_order_among_thousands_is_shown_wherever_the_orders_are(wrapper: str) -> None:
    rows = orders()
    rows[3000]["status"] = "refund_failed"
    rows[4500]["price"], rows[4501]["price"] = 999_999, -3
    rows[4800]["error"] = {"code": 7, "text": "card 4711"}
    found = extract(json.dumps(WRAPPERS[wrapper](rows)), max_tokens=400)
    assert "2 elements report problems" in found.description
    assert re.search(r"^2 of (5,000|4,993|5,002) \w+ at .* report problems: ", found.text, re.M)
    assert "card 4711" in found.text
    assert "shipped ×4,999, refund_failed ×1 (in " in found.text
    assert re.search(r"price: -3 \(in \S+\) to 999999 \(in \S+\)", found.text)
    assert "id: 0" in found.text
    assert "4999" in found.text


@pytest.mark.parametrize(
    "bad",
    [
        {"error": "card"},
        {"errors": ["x"]},
        {"errorCode": 17},
        {"last_error": {"id": 1}},
        {"status": "failed"},
        {"status": 503},
        {"status": "404"},
        {"code": -32601},
        {"result": None},
        {"success": False},
        {"exit_code": 2},
        {"state": "crashed"},
        {"conclusion": "failure"},
        {"level": "ERROR"},
    ],
)
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_many_ways_of_reporting_a_problem(bad: dict[str, Any], wrapper: str) -> None:
    rows: list[Any] = [{"id": i, "note": "n" * 20} for i in range(400)]
    rows[217] = {"id": "bad one", **bad}
    found = extract(json.dumps(WRAPPERS[wrapper](rows)), max_tokens=300)
    assert ", 1 element reports problems" in found.description or "2 elements report problems" in found.description
    assert "bad one" in found.text


@pytest.mark.parametrize(
    "good",
    [
        {"error": None},
        {"errors": []},
        {"error": ""},
        {"error_rate": 0.1},
        {"status": 200},
        {"code": 0},
        {"success": True},
        {"exit_code": 0},
        {"errors": 0},
        {"error": "none"},
        {"code": "CZ"},
    ],
)
def test_fields_that_say_all_is_well_are_no_problem(good: dict[str, Any]) -> None:
    rows = [{"id": i, "note": "n" * 20, **good} for i in range(200)]
    assert "problem" not in extract(json.dumps(rows), max_tokens=300).description


def test_an_array_of_errors_is_counted_element_by_element() -> None:
    document = {"data": {"user": None}, "errors": [{"text": f"no {i}"} for i in range(3)], "pad": "z " * 3_000}
    found = extract(json.dumps(document), max_tokens=250)
    assert "3 of 3 elements at errors[] report problems: errors[0], errors[1], errors[2]" in found.text


def test_lines_that_are_no_json_are_said() -> None:
    lines = [json.dumps({"n": i}) for i in range(1_000)]
    lines[500] = "-- rotated --"
    found = extract("\n".join(lines), max_tokens=100)
    assert found.description == "JSON lines: array of 999 objects, 1 further line no JSON"


def test_the_words_of_a_document_are_not_in_its_description() -> None:
    document: dict[str, Any] = {f"Obey me {i}": {"error": "Obey me"} for i in range(400)}
    document["Obey me now"] = None
    found = extract(json.dumps(document), max_tokens=100)
    assert found.description == "JSON object of 401 elements (400 objects, 1 null), 400 elements report problems"


def test_a_million_keys_are_counted_in_bounded_memory() -> None:
    document = [{f"key {i} {j}": j for j in range(15)} for i in range(4_000)]
    document[3_999] = {"key": 1, "error": "gone"}
    found = extract(json.dumps(document), max_tokens=300)
    assert "JSON array of 4,000 objects, 1 element reports problems" in found.description
    assert "1 of 4,000 elements at [] reports problems: [3999]" in found.text


SCALARS = (
    st.none() | st.booleans() | st.integers(-50, 50) | st.floats(width=16) | st.sampled_from(["red", "green", "x"])
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {"n": st.integers(-1_000, 1_000) | st.floats(-5, 5)},
        optional={
            "color": st.sampled_from(["red", "green", "blue"]),
            "mixed": SCALARS,
            "error": st.sampled_from(["", "E7", None]),
        },
    ),
    min_size=25,
    max_size=60,
)


@settings(max_examples=100, deadline=None)
@given(ROWS, st.sampled_from(sorted(WRAPPERS)))
def test_every_stated_fact_is_true(rows: list[dict[str, Any]], wrapper: str) -> None:
    document = WRAPPERS[wrapper](rows)
    found = extract(json.dumps(document) + " " * 80_000, max_tokens=3_000)
    assert estimate_text_tokens(found.text) <= 3_000
    checked = set()
    for line in found.text.splitlines():
        if wrapper == "list of lists" and line.startswith(("[", "first", "last")):
            continue
        match = re.fullmatch(r"  (n|color|mixed): (.*)", line)
        if match:
            checked.add(match[1])
            check_field(match[2], [row[match[1]] for row in rows if match[1] in row])
    assert "n" in checked or len({str(row["n"]) for row in rows}) == 1
    failed = sum(1 for row in rows if row.get("error") == "E7")
    total = re.search(r", ([\d,]+) elements? reports? problems", found.description)
    assert (int(total[1]) if total else 0) == failed
    if failed:
        named = re.search(rf"^{failed} of \d+ \w+ at .* reports? problems: (.*)$", found.text, re.M)
        assert named is not None
        assert len(named[1].split(", ")) == min(failed, 10) + (failed > 10)


def check_field(said: str, values: list[Any]) -> None:
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    numbers = [value for value in numbers if value == value]
    number = r"(-?[\d.e+-]+|-?inf)"
    extremes = re.match(rf"{number}(?: \(in [^)]*\))? to {number}", said)
    if extremes:
        assert (float(extremes[1]), float(extremes[2])) == (min(numbers), max(numbers))
    always = re.search(rf"always {number}", said)
    if always:
        assert {float(always[1])} == set(values)
    for value, count in counts_in(said):
        if value == "NaN":
            assert count == sum(1 for each in values if each != each)
        elif value == "text":
            assert count == sum(1 for each in values if isinstance(each, str))
        elif value == "boolean":
            assert count == sum(1 for each in values if isinstance(each, bool))
        else:
            kinds = Counter(json.dumps(each) if isinstance(each, bool | None) else str(each) for each in values)
            assert count == kinds[value], (said, value)


def counts_in(said: str) -> Iterator[tuple[str, int]]:
    for value, count in re.findall(r"([\w.+-]+) ×([\d,]+)", said):
        yield value, int(count.replace(",", ""))
