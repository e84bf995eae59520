"""The one rule that is known in more languages than English: ignore the previous instructions.

Pure; see `rules` for how a rule works. Stems and nouns are folded like the text, so look-alikes and accents match.
"""

from __future__ import annotations

import re
from functools import cache

from langmem_harness.screening.folding import fold
from langmem_harness.screening.rules import Rule


@cache
def foreign_rules() -> tuple[Rule, ...]:
    """ "Ignore previous instructions" in ten more languages; folded like the text, so look-alikes and accents match."""
    return tuple(
        Rule(
            name="instruction_override",
            anchors=tuple(fold(stem).text for stem in stems),
            pattern=re.compile(
                f"(?:{'|'.join(_folded(stems))})[^\n^]{{0,24}}?(?:{'|'.join(_folded(nouns))})",
            ),
        )
        for stems, nouns in _FOREIGN
    )


def _folded(stems: tuple[str, ...]) -> list[str]:
    return [re.escape(fold(stem).text) for stem in stems]


# verb stems, then what is to be ignored; the noun is qualified where the bare one is an everyday word
_FOREIGN: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("ignorier", "missachte", "vergiss"), ("anweisung", "instruktion", "vorgaben")),
    (("ignore", "ignorez", "oublie"), ("instructions pr\u00e9c\u00e9dentes", "consignes", "instructions ci-dessus")),
    (("ignora", "olvida", "ignore"), ("instrucciones", "\u00f3rdenes anteriores", "indicaciones anteriores")),
    (("ignore", "desconsidere", "esque\u00e7a"), ("instru\u00e7\u00f5es", "ordens anteriores")),
    (("ignora", "dimentica"), ("istruzioni",)),
    (("negeer", "vergeet"), ("instructies", "opdrachten")),
    (
        ("\u0438\u0433\u043d\u043e\u0440\u0438\u0440\u0443", "\u0437\u0430\u0431\u0443\u0434\u044c"),
        ("\u0438\u043d\u0441\u0442\u0440\u0443\u043a\u0446\u0438", "\u0443\u043a\u0430\u0437\u0430\u043d\u0438"),
    ),
    (
        ("\u5ffd\u7565", "\u65e0\u89c6", "\u5ffd\u8996", "\u7121\u8996"),
        ("\u6307\u4ee4", "\u6307\u793a", "\u63d0\u793a\u8bcd", "\u8aaa\u660e"),
    ),
    (
        ("\u4ee5\u524d\u306e", "\u3053\u308c\u307e\u3067\u306e", "\u524d\u306e", "\u4e0a\u8a18\u306e"),
        ("\u6307\u793a\u3092\u7121\u8996", "\u547d\u4ee4\u3092\u7121\u8996", "\u6307\u793a\u3092\u5fd8\u308c"),
    ),
    (
        ("\uc774\uc804", "\uc55e\uc758", "\uc704\uc758"),
        (
            "\uc9c0\uc2dc\ub97c \ubb34\uc2dc",
            "\uba85\ub839\uc744 \ubb34\uc2dc",
            "\uc9c0\uc2dc\uc0ac\ud56d\uc744 \ubb34\uc2dc",
        ),
    ),
    (
        ("\u062a\u062c\u0627\u0647\u0644",),
        ("\u0627\u0644\u062a\u0639\u0644\u064a\u0645\u0627\u062a", "\u062a\u0639\u0644\u064a\u0645\u0627\u062a"),
    ),
)
