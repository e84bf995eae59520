"""Long texts in pieces an embedder reads whole. Pure.

An embedder leaves out what lies beyond its window (256 tokens for the local model), or refuses the text. With
``chunk_tokens`` a longer text is embedded in chunks, and its vector is the mean of theirs: one vector a text, whatever
its length, so nothing else of the store knows of chunks. The mean, because the best chunk alone measured worse than the
beginning of the text (BEAM messages): a passage out of its context answers too much.
"""

from __future__ import annotations

import itertools
import math
import re

from langmem_harness.embeddings.parts import join_parts, split_parts
from langmem_harness.errors import ConfigurationError
from langmem_harness.store.tokenizer import UNSPACED

MAX_CHUNKS = 64
"""What lies beyond these is found by words only: a text of 10 MB must not keep the embedder busy for minutes."""

MIN_CHUNK_TOKENS = 16

_OVERLAP = 8  # an eighth of a chunk is in the next one, too: a sentence that is cut is whole in one of the two
# About what a WordPiece vocabulary makes of a text: words up to six letters, single signs, single ideographs.
_TOKEN = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]{{1,6}}|[^\w\s]")


def check_chunk_tokens(chunk_tokens: int | None) -> int | None:
    """The setting, if it can work.

    Raises:
        ConfigurationError: Not a whole number of `MIN_CHUNK_TOKENS` or more, nor None.
    """
    if chunk_tokens is None:
        return None
    if not isinstance(chunk_tokens, int) or isinstance(chunk_tokens, bool) or chunk_tokens < MIN_CHUNK_TOKENS:
        raise ConfigurationError(
            f"chunk_tokens must be None or a whole number of {MIN_CHUNK_TOKENS} or more, not {chunk_tokens!r}"
        )
    return chunk_tokens


def join_chunks(text: str, chunk_tokens: int) -> str:
    """The text as the parts an embedder takes the mean of (`PartEmbeddings`); the text itself if it is short.

    A text that has parts already keeps them, each in chunks of its own.
    """
    parts = split_parts(text)
    chunks = [chunk for part in parts for chunk in split_chunks(part, chunk_tokens)]
    return join_parts(chunks[:MAX_CHUNKS]) if len(chunks) > len(parts) else text


def split_chunks(text: str, chunk_tokens: int) -> list[str]:
    """Chunks of about equal length, in reading order, that overlap a little; the text itself if one is enough.

    Args:
        text: Any text.
        chunk_tokens: Longest chunk, in tokens as they are counted here, `MIN_CHUNK_TOKENS` or more.

    Returns:
        1 to `MAX_CHUNKS` chunks. White space around a chunk is left out.
    """
    if len(text) <= chunk_tokens:  # no token is shorter than a character
        return [text]
    overlap = chunk_tokens // _OVERLAP
    most = MAX_CHUNKS * (chunk_tokens - overlap) + overlap
    spans = [match.span() for match in itertools.islice(_TOKEN.finditer(text), most)]
    if len(spans) <= chunk_tokens:
        return [text]
    count = math.ceil((len(spans) - overlap) / (chunk_tokens - overlap))
    step = math.ceil((len(spans) - overlap) / count)  # equal, or the mean would be unfair to a short last one
    starts = range(0, len(spans) - overlap, step)
    return [text[spans[start][0] : spans[min(start + step + overlap, len(spans)) - 1][1]] for start in starts]
