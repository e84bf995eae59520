"""Redaction measured: recall per kind on generated values, false positives on ordinary text, speed.

    python -m benchmarks redaction [-- --data FOLDER --texts FOLDER]

`--data` is a folder with real logs and dialogues; where it is missing the report says that they were not measured.
`--texts` is a stand-in for it: by default the documents and licences of the installed packages.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import string
import sysconfig
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from langmem_harness.redaction import RedactionPolicy, Redactor

DATA = Path(__file__).parents[2] / "shared" / "data"
FRAMES = ("{}", "please note {} for later", '{{"value": "{}"}}', "2026-05-01 12:00:01 INFO got {}, going on", "({})")
VALUES_A_KIND = 200
REAL_TEXTS = ("*.log", "*.jsonl", "*.json", "*.txt")
MACHINES_ALLOWED = Redactor(RedactionPolicy(actions={"ip_address": "allow"}))


def _letters(chance: random.Random, length: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    text = "".join(chance.choice(alphabet) for _ in range(length - 1))
    return f"{text}{chance.choice(string.digits)}"


def _luhn(chance: random.Random) -> str:
    digits = [int(digit) for digit in chance.choice(("4", "51", "34", "6011"))]
    length = 15 if digits[:2] == [3, 4] else 16
    digits += [chance.randrange(10) for _ in range(length - 1 - len(digits))]
    total = sum(d if i % 2 else (d * 2 - 9 if d > 4 else d * 2) for i, d in enumerate(reversed(digits)))
    number = "".join(map(str, [*digits, -total % 10]))
    return " ".join(number[i : i + 4] for i in range(0, 16, 4)) if length == 16 and chance.random() < 0.5 else number


def _iban(chance: random.Random) -> str:
    account = "".join(chance.choice(string.digits) for _ in range(18))
    check = 98 - int(f"{account}131400") % 97  # D is 13, E is 14
    return f"DE{check:02}{account}"


def _jwt(chance: random.Random) -> str:
    parts = ({"alg": "HS256"}, {"sub": chance.randrange(10**9)})
    body = ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return f"{body}.{_letters(chance, 43)}"


GENERATORS: dict[str, Callable[[random.Random], str]] = {
    "email": lambda c: f"{_letters(c, 8).lower()}.{c.choice(('ada', 'müller'))}@{_letters(c, 6).lower()}.example.org",
    "phone": lambda c: c.choice(
        (
            f"+49 30 {c.randrange(10**6, 10**7)}",
            f"({c.randrange(200, 999)}) {c.randrange(200, 999)}-{c.randrange(1000, 9999)}",
        )
    ),
    "card": _luhn,
    "iban": _iban,
    "us_ssn": lambda c: f"{c.randrange(1, 665):03}-{c.randrange(1, 99):02}-{c.randrange(1, 9999):04}",
    "ip_address": lambda c: ".".join(str(c.randrange(256)) for _ in range(4)),
    "mac_address": lambda c: ":".join(f"{c.randrange(256):02x}" for _ in range(6)),
    "url_credentials": lambda c: f"https://ada:{_letters(c, 10)}@example.org/x",
    "jwt": _jwt,
    "private_key": lambda c: f"-----BEGIN PRIVATE KEY-----\n{_letters(c, 64)}\n-----END PRIVATE KEY-----",
    "ssh_key": lambda c: f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5{_letters(c, 48)}",
    "aws_key": lambda c: f"AKIA{_letters(c, 16, string.ascii_uppercase + string.digits)}",
    "gcp_key": lambda c: f"AIza{_letters(c, 35)}",
    "azure_key": lambda c: (
        f"AccountKey={_letters(c, 86)}==" if c.random() < 0.1 else f"{_letters(c, 3)}8Q~{_letters(c, 34)}"
    ),
    "github_token": lambda c: f"ghp_{_letters(c, 36)}",
    "gitlab_token": lambda c: f"glpat-{_letters(c, 20)}",
    "slack_token": lambda c: f"xoxb-{c.randrange(10**11)}-{_letters(c, 24)}",
    "stripe_key": lambda c: f"sk_live_{_letters(c, 24)}",
    "openai_key": lambda c: f"sk-proj-{_letters(c, 48)}",
    "anthropic_key": lambda c: f"sk-ant-api03-{_letters(c, 80)}",
    "huggingface_token": lambda c: f"hf_{_letters(c, 34)}",
    "package_registry_token": lambda c: f"npm_{_letters(c, 36)}",
    "connection_string": lambda c: f"postgres://ada:{_letters(c, 12)}@db.example.org:5432/app",
    "password": lambda c: f"password={_letters(c, 12)}",
    "api_key": lambda c: f"api_key: {_letters(c, 32)}",
    "bearer_token": lambda c: f"Authorization: Bearer {_letters(c, 40)}",
    "date_of_birth": lambda c: f"born on {c.randrange(1, 28)} May {c.randrange(1930, 2015)}",
}
"""A value of every kind; the values are random, the forms are those of the issuers."""


def measure_recall(redactor: Redactor) -> list[tuple[str, float]]:
    """Share of generated values of each kind that were found, by kind."""
    chance = random.Random(1)
    rows = []
    for kind, generate in GENERATORS.items():
        found = 0
        for number in range(VALUES_A_KIND):
            text = FRAMES[number % len(FRAMES)].format(generate(chance))
            also = {"connection_string"} if kind == "azure_key" else set()
            found += bool({kind, *also} & redactor.redact(text).findings.keys())
        rows.append((kind, found / VALUES_A_KIND))
    return rows


def lines_of(folder: Path, patterns: Sequence[str], limit: int = 200_000) -> Iterator[str]:
    """Lines that are not blank, of the text files of a folder, up to a limit."""
    count = 0
    for pattern in patterns:
        for path in sorted(folder.rglob(pattern)):
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                if line.strip():
                    yield line[:2_000]
                    count += 1
                    if count >= limit:
                        return


def measure_false_positives(redactor: Redactor, lines: Iterator[str]) -> tuple[int, int, Counter[str]]:
    """Lines, lines with a finding, findings by kind."""
    total, touched, kinds = 0, 0, Counter[str]()
    for line in lines:
        total += 1
        findings = redactor.redact(line).findings
        touched += bool(findings)
        kinds.update(findings)
    return total, touched, kinds


def main(arguments: list[str]) -> None:
    """Measure and print Markdown tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--texts", type=Path, default=Path(sysconfig.get_paths()["purelib"]))
    options = parser.parse_args(arguments)
    redactor = Redactor()
    print("| kind | found of 200 generated |\n|---|---|")
    rows = measure_recall(redactor)
    for kind, share in rows:
        print(f"| {kind} | {share:.1%} |")
    print(f"\n{len(rows)} kinds, the lowest {min(share for _, share in rows):.1%}\n")
    print("| text | lines | lines touched | by kind |\n|---|---|---|---|")
    # an address of a machine is one, and so is an author's address in a document
    sources = [
        (
            "stand-in: documents of installed packages",
            options.texts,
            ("*.rst", "*.md", "*LICENSE*", "METADATA"),
            Redactor(RedactionPolicy(actions={"ip_address": "allow", "email": "allow"})),
        )
    ]
    if options.data.is_dir():
        sources.append(("real logs and dialogues", options.data, REAL_TEXTS, MACHINES_ALLOWED))
    for name, folder, patterns, lenient in sources:
        total, touched, kinds = measure_false_positives(lenient, lines_of(folder, patterns))
        print(f"| {name} | {total:,} | {touched} ({touched / max(1, total):.3%}) | {dict(kinds.most_common(6))} |")
    if not options.data.is_dir():
        print(f"| real logs and dialogues | not measured: no folder {options.data.name!r} beside the project | | |")
    print("\n| one megabyte of | CPU seconds |\n|---|---|")
    for name, unit in (
        ("English", "The meeting moved to room 12. "),
        ("a log", "081109 203615 148 INFO dfs: blk_388 ok\n"),
    ):
        started = time.process_time()
        redactor.redact(unit * (1_000_000 // len(unit)))
        print(f"| {name} | {time.process_time() - started:.2f} |")
