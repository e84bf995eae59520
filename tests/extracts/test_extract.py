"""Every kind of output has a short form with what matters in it, within its budget."""

from __future__ import annotations

import json
import random
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from langmem_harness.extracts import extract
from langmem_harness.window.tokens import estimate_text_tokens


def tokens(text: str) -> int:
    return estimate_text_tokens(text)


def test_a_small_text_is_returned_whole() -> None:
    found = extract("17 °C\n", max_tokens=50)
    assert (found.text, found.complete) == ("17 °C\n", True)


def test_json_array() -> None:
    items = [{"id": i, "state": "failed" if i == 120 else "ok", "note": "n" * 50} for i in range(300)]
    found = extract(json.dumps(items), max_tokens=250)
    assert found.kind == "json"
    assert found.description == "JSON array of 300 objects, 1 element reports problems"
    assert "keys: id, state, note" in found.text
    assert "id: 0 to 299" in found.text
    assert '"id": 0' in found.text
    assert '"id": 299' in found.text
    assert '[120] {"id": 120, "state": "failed"' in found.text


def test_json_object() -> None:
    found = extract(
        json.dumps({"items": [{"a": i} for i in range(900)], "total": 900, "error": "quota"}), max_tokens=200
    )
    assert found.description == "JSON object with 3 keys, 1 element reports problems"
    assert "items: array of 900 objects" in found.text
    assert '"error": "quota"' in found.text
    assert '"total": 900' in found.text
    assert '{"a": 899}' in found.text


def test_json_lines() -> None:
    found = extract("\n".join(json.dumps({"n": i}) for i in range(2000)), max_tokens=100)
    assert found.description == "JSON lines: array of 2,000 objects"


@pytest.mark.parametrize(
    "broken", ['{"a": 1', "[" * 50_000, '{"a": ' * 50_000, "[1, 2", '"', "{]" * 3000, "[" + "9" * 5000 + "]"]
)
def test_broken_json_is_some_other_kind(broken: str) -> None:
    found = extract(broken * 3, max_tokens=20)
    assert tokens(found.text) <= 20


def test_csv() -> None:
    rows = "\n".join(f"{i},item {i},{i * 2}.5,{'red' if i % 2 else 'blue'}" for i in range(800))
    found = extract(f"id,name,price,color\n{rows}", max_tokens=250)
    assert found.description == "CSV table of 800 rows and 4 columns"
    assert "columns: id, name, price, color" in found.text
    assert "0 | item 0 | 0.5 | blue" in found.text
    assert "799 | item 799 | 1598.5 | red" in found.text
    assert "price: 0.5 to 1598.5" in found.text
    assert "blue ×400" in found.text


def test_aligned_table() -> None:
    rows = "\n".join(f"pod-{i}     {'Running' if i != 7 else 'Error'}    {i}d" for i in range(300))
    found = extract(f"NAME      STATUS     AGE\n{rows}", max_tokens=200)
    assert found.kind == "table"
    assert "pod-7 | Error | 7d" in found.text


def test_diff() -> None:
    parts = [
        f"diff --git a/src/f{i}.py b/src/f{i}.py\n--- a/src/f{i}.py\n+++ b/src/f{i}.py\n@@ -1,3 +1,3 @@ def f():\n"
        f" same\n-old {i}\n+new {i}\n+--- not a header\n"
        for i in range(40)
    ]
    found = extract("".join(parts), max_tokens=600)
    assert found.description == "diff of 40 files in 40 hunks, 80 lines added, 40 removed"
    assert "src/f0.py +2 -1" in found.text
    assert "src/f39.py +2 -1" in found.text
    assert "+new 0" in found.text


def test_python_traceback() -> None:
    frames = "\n".join(f'  File "/srv/app/m{i}.py", line {i}, in f{i}\n    g({i})' for i in range(200))
    found = extract(f"Traceback (most recent call last):\n{frames}\nValueError: bad ticket 42", max_tokens=200)
    assert found.description == "traceback of 200 frames"
    assert found.text.index("outermost frame:") < found.text.index("m0.py") < found.text.index("innermost frames:")
    assert "ValueError: bad ticket 42" in found.text
    assert "m0.py" in found.text
    assert "m199.py" in found.text


def test_java_traceback() -> None:
    frames = "\n".join(f"\tat com.example.Service{i}.run(Service{i}.java:{i})" for i in range(120))
    found = extract(
        f"java.lang.IllegalStateException: pool empty\n{frames}\nCaused by: java.io.IOException: reset", max_tokens=150
    )
    assert found.kind == "traceback"
    assert "IllegalStateException: pool empty" in found.text
    assert "java.io.IOException: reset" in found.text
    assert "most frame" not in found.text  # Java begins with the innermost one
    assert "first frame:\nat com.example.Service0.run" in found.text


def test_html() -> None:
    paragraphs = "".join(
        f"<h2>Part {i}</h2><p>Paragraph {i} says that the price is {i} crowns today.</p>" for i in range(200)
    )
    head = "<head><title>Prices &amp; more</title><script>var x = '<p>no</p>';</script></head>"
    page = f"<!doctype html><html>{head}<body>{paragraphs}<a href='x'>next</a></body></html>"
    found = extract(page, max_tokens=250)
    assert found.kind == "html"
    assert "1 link" in found.description
    assert "Prices & more" in found.text
    assert "Part 3" in found.text
    assert "var x" not in found.text
    assert "Paragraph 0 says" in found.text


def test_prose_keeps_both_ends_headings_and_values() -> None:
    text = (
        "# Report\nThe first sentence. "
        + "Some filler follows here. " * 500
        + "\n## Costs\nIt was 1,250 crowns. "
        + "More words. " * 500
        + "The last sentence."
    )
    found = extract(text, max_tokens=120)
    assert found.kind == "prose"
    for part in ("# Report", "## Costs", "1,250 crowns", "The last sentence."):
        assert part in found.text


def synthetic_log(seed: int, *, problems: int, lines: int = 2000) -> tuple[str, list[str]]:
    """A log in the manner of a cluster's: a long header, ids and numbers everywhere; and its problem statements."""
    chance = random.Random(seed)
    words = [
        "node",
        "disk",
        "cache",
        "block",
        "kernel",
        "socket",
        "parity",
        "memory",
        "table",
        "user",
        "session",
        "link",
    ]
    levels = ["ERROR", "WARN", "FATAL"]
    verbs = ["failed", "cannot open", "error in", "exception at", "timed out on"]
    names = [f"c{chr(97 + i % 26)}{chr(97 + i // 26)}" for i in range(problems)]
    bad = [
        f"{chance.choice(levels)} {name}: {chance.choice(verbs)} {' '.join(chance.choices(words, k=5))}"
        for name in names
    ]
    good = [f"INFO {' '.join(chance.choices(words, k=6))}" for _ in range(60)]
    statements = [*bad, *(chance.choice(bad if chance.random() < 0.3 else good) for _ in range(lines - len(bad)))]
    chance.shuffle(statements)
    body = [
        f"2005-06-03-15.42.{i % 60:02d}.{i:06d} R{i % 64:02d}-M1-N{i % 7}-C:J12-U11 RAS KERNEL {statement}"
        f" 0x{chance.getrandbits(32):08x} id={chance.getrandbits(20)}"
        for i, statement in enumerate(statements)
    ]
    return "\n".join(body), bad


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("problems", [1, 20, 90])
def test_every_problem_template_of_a_log_is_in_three_percent(seed: int, problems: int) -> None:
    log, statements = synthetic_log(seed, problems=problems)
    budget = int(0.03 * tokens(log))
    found = extract(log, max_tokens=budget)
    assert found.kind == "log"
    assert tokens(found.text) <= budget
    assert [statement for statement in statements if statement not in found.text] == []
    assert "2,000 lines" in found.description


def test_too_many_problem_templates_are_merged_and_still_named() -> None:
    log, statements = synthetic_log(5, problems=300)
    found = extract(log, max_tokens=1500)
    assert tokens(found.text) <= 1500
    assert "problems, each template once" in found.text
    assert sum(statement in found.text or statement.split()[1] in found.text for statement in statements) > 30


def test_an_exit_code_comes_with_the_line_before_it() -> None:
    lines = [f"step {i} ok" for i in range(400)]
    found = extract("\n".join([*lines, "running deploy.sh prod", "exit code 3", *lines]), max_tokens=120)
    assert "running deploy.sh prod\nexit code 3" in found.text


@pytest.mark.parametrize(
    ("well", "bad"),
    [
        ("GET /items/7 status=200", "GET /items/8 status=500"),
        ("job 12 exit code 0", "job 13 exit code 137"),
        ("task 4 returned 0", "task 5 returned 2"),
        ("wrote /var/log/ok.txt", "wrote /var/log/errors.txt"),
        ("I1130 06:12:58 1 pool.go:12] drained", "E1130 06:12:59 1 pool.go:12] drained"),
    ],
)
def test_trouble_in_a_part_that_changes_is_counted_exactly(well: str, bad: str) -> None:
    for first in (0, 1):  # whichever line comes first
        lines = [f"2026-03-01 10:00:{i % 60:02d} worker {i}: {well}" for i in range(500)]
        if well.startswith("I"):
            lines = [well] * 500
        lines[0 if first else 300] = lines[1].replace(well, bad)
        lines[400] = lines[1].replace(well, bad)
        found = extract("\n".join(lines), max_tokens=200)
        assert ", 2 lines of them about problems" in found.description
        assert bad in found.text


def test_exit_code_zero_is_no_problem() -> None:
    found = extract("\n".join([f"step {i} exit code 0" for i in range(400)]), max_tokens=120)
    assert "problem" not in found.description


@pytest.mark.parametrize(
    "line",
    [
        "03-17 16:13:38.819  1702  8671 E ActivityManager: gone",
        "W1130 06:12:58 1 pool.go:12] slow",
        "[Sun Dec 04 04:47:44 2005] [error] mod_jk child workerEnv in error state 6",
        "npm ERR! code ELIFECYCLE",
        "E   AssertionError: assert 3 == 4",
        "Process finished: returned 137",
    ],
)
def test_problem_lines_of_many_programs(line: str) -> None:
    body = "\n".join(f"2024-01-01 00:00:{i % 60:02d} I worker: step {i}" for i in range(500))
    assert line in extract(f"{body}\n{line}\n{body}", max_tokens=200).text


TEXTS = st.lists(
    st.sampled_from(
        [
            "{",
            "}",
            "[",
            '"a": 1,',
            "\n",
            "a,b\n",
            "ERROR x\n",
            "@@ -1 +1 @@\n",
            "+++ b\n",
            "<html>",
            "<p>",
            "Traceback (most recent call last):\n",
            '  File "x", line 1\n',
            "日本",
            "\x00",
            "\ud800",
            "word. ",
            "2024-01-01 00:00:00 x\n",
            "|",
            "\t",
            "\r\n",
            "\u2028",
        ]
    )
    | st.text(max_size=5),
    max_size=60,
).map("".join)


@settings(max_examples=100)
@given(TEXTS, st.integers(1, 200))
@example("a,b\n", 4)  # the frame of a table alone is more than this
def test_any_text_has_an_extract_within_the_budget(text: str, max_tokens: int) -> None:
    found = extract(text * 5, max_tokens=max_tokens)
    assert tokens(found.text) <= max_tokens
    assert found == extract(text * 5, max_tokens=max_tokens)


@pytest.mark.parametrize(
    "pattern",
    [
        "a",
        "<",
        "<script>",
        "{",
        "[1,",
        "a,",
        "2024-01-01 ERROR x\n",
        " ",
        "\n",
        "=:",
        "/a",
        "at a(",
        "@@ ",
        "a.b.",
        "9",
        "  x  y\n",
        "<!--",
        "&amp;",
        "\tat a.b(c)\n",
        "E ",
    ],
)
def test_time_grows_with_the_text_and_not_faster(pattern: str) -> None:
    def seconds(size: int) -> float:
        text = (pattern * (size // len(pattern) + 1))[:size]
        best = float("inf")
        for _ in range(2):
            start = time.process_time()
            extract(text, max_tokens=200)
            best = min(best, time.process_time() - start)
        return best

    assert seconds(200_000) < 0.05 + 4 * 2.5 * seconds(50_000)
