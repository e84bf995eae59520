"""Whether something that was found has anything to do with the question. Pure.

A search always finds a best one, however far away. Who asks for the best of a search wants that; a block that stands in
front of every message does not.
"""

from __future__ import annotations

from langmem_harness.memory.evidence import content_words
from langmem_harness.memory.found import FoundBy

DEFAULT_FLOOR = 0.15
"""Smallest cosine in a recall block. Far below 0.7, the default of a search: the cosines of questions and their answers
lie from 0.1 up (MiniLM), so this only drops what is as far away as any text. Measured in `docs/memory.md`."""

SHARE_BESIDE_COSINE = 0.5
"""Share of the words (0 to 1) that makes up for a cosine below the floor."""

SHARE_ALONE = 0.2
"""The same where nothing was compared by meaning: the words are all there is, and half of them lost answers."""

MOST_NEEDED = 3
"""So many shared words are always enough."""


def is_relevant(found: FoundBy, wanted: frozenset[str], text: str, floor: float | None) -> bool:
    """Whether the cosine is at least `floor`, or else enough words are shared.

    Enough is a share of the content words of the question or of the text, whichever has fewer, `MOST_NEEDED` at most.
    What was compared with nothing is left as it is.

    Args:
        found: How it was found.
        wanted: Content words of the question.
        text: The words of what was found.
        floor: Smallest cosine, inclusive; None: everything is relevant.
    """
    if floor is None or found.score is None or (found.cosine is not None and found.cosine >= floor):
        return True
    words = content_words(text)
    share = SHARE_BESIDE_COSINE if found.cosine is not None else SHARE_ALONE
    needed = min(share * min(len(wanted), len(words)), MOST_NEEDED)
    return needed > 0 and len(wanted & words) >= needed
