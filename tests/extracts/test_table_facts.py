"""What the extract of a table says of a column is true of all its cells."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from langmem_harness.extracts import extract


def table(rows: list[list[str]]) -> str:
    written = io.StringIO()
    csv.writer(written).writerows([["id", "price", "status"], *rows])
    return written.getvalue()


def orders(count: int = 5_000) -> list[list[str]]:
    return [[str(i), f"{10 + i / 100:.2f}", "shipped"] for i in range(count)]


def test_rare_values_and_extremes_come_with_their_rows() -> None:
    rows = orders()
    rows[3000][2], rows[4500][1], rows[4501][1] = "refund_failed", "999999", "-3"
    found = extract(table(rows), max_tokens=400)
    assert found.description == "CSV table of 5,000 rows and 3 columns, 1 row about problems"
    for expected in (
        "price: -3 to 999999",
        "status: shipped ×4,999, refund_failed ×1",
        "3000 | 40.00 | refund_failed",
        "4501: 4500 | 999999 | shipped",
        "4502: 4501 | -3 | shipped",
    ):
        assert expected in found.text


def test_cells_that_are_no_numbers_are_not_passed_over() -> None:
    rows = orders()
    rows[20][1], rows[30][1] = "n/a", ""
    found = extract(table(rows), max_tokens=400)
    assert "price: 10.00 to 59.99; 1 cell no number, first 'n/a'; 1 empty" in found.text


def test_rows_of_another_width_are_counted_and_left_out_of_the_columns() -> None:
    rows = orders(200)
    rows[7] = ["7", "1", "234.56", "shipped"]
    found = extract(table(rows), max_tokens=400)
    assert "200 rows and 3 columns, 1 row of another width" in found.description
    assert "in the 199 rows of full width:" in found.text
    assert "status: shipped ×199" in found.text


def test_no_range_of_numbers_whose_comma_can_be_read_in_two_ways() -> None:
    text = "id;price\n" + "\n".join(f"{i};{i % 9 + 1},{i:03d}" for i in range(900))
    assert "price: 900 different values" in extract(text, max_tokens=200).text


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(-99, 99).map(str) | st.just(""),
            st.sampled_from(["1.5", "-2", "7%", "n/a", "12345.678"]),
            st.sampled_from(["ok", "failed", "late, very"]),
        ),
        min_size=30,
        max_size=60,
    )
)
def test_every_stated_fact_is_true(drawn: list[tuple[str, str, str]]) -> None:
    rows = [list(row) for row in drawn]
    found = extract(table(rows) + "\n" * 60_000, max_tokens=3_000)
    assert f"table of {len(rows)} rows" in found.description
    for column, name in enumerate(("id", "price", "status")):
        (said,) = re.findall(rf"^{name}: (.*)$", found.text, re.M)
        cells = [row[column] for row in rows if row[column]]
        numbers = [float(cell.rstrip("%")) for cell in cells if re.fullmatch(r"-?[\d.]+%?", cell)]
        if extremes := re.match(r"(-?[\d.]+)%? to (-?[\d.]+)", said):
            assert (float(extremes[1]), float(extremes[2])) == (min(numbers), max(numbers))
        for cell, count in re.findall(r"(?:^|, )([^×]+) ×(\d+)", said):
            assert Counter(cells)[cell] == int(count)
        if none := re.search(r"(\d+) cells? no number", said):
            assert int(none[1]) == len(cells) - len(numbers)
        if empty := re.search(r"(\d+) empty", said):
            assert int(empty[1]) == len(rows) - len(cells)
