"""The form in which SQLite keeps the terms of one text: packed when written, unpacked one by one or many at once."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from langmem_harness.errors import CorruptionError, RecordError

MAX_COUNT = (1 << 31) - 1
"""A text may repeat one term this often."""

_PACK_VERSION = 1
_HEADER_BYTES = 5


def pack_terms(counts: Mapping[str, int]) -> bytes:
    """Term counts as bytes: a version byte, how many, the counts as little-endian uint32, the terms joined by line
    feeds.

    The terms are sorted: equal counts give equal bytes.

    Raises:
        RecordError: A term is empty or holds a line feed, or a count is not from 1 to 2**31 - 1.
    """
    terms = sorted(counts)
    text = "\n".join(terms)
    numbers = [counts[term] for term in terms]
    # as many line feeds as joining made, none at an end, no two in a row: no term holds one, none is empty
    if terms and (
        text.count("\n") != len(terms) - 1 or not terms[0] or not 1 <= min(numbers) <= max(numbers) <= MAX_COUNT
    ):
        raise RecordError("a term must be a word without line feeds, its count from 1 to 2**31 - 1")
    packed = array("I", numbers)
    if sys.byteorder == "big":
        packed.byteswap()
    header = bytes([_PACK_VERSION]) + len(terms).to_bytes(4, "little")
    return header + packed.tobytes() + text.encode("utf-8", "surrogatepass")


def unpack_terms(data: bytes) -> dict[str, int]:
    """What `pack_terms` packed.

    Raises:
        CorruptionError: The bytes are cut off, or of another version.
    """
    terms, counts, _ = unpack_many((data,))
    return dict(zip(terms, counts.tolist(), strict=True))


def unpack_many(packed: Iterable[bytes]) -> tuple[list[str], NDArray[np.uint32], list[int]]:
    """The terms of many texts at once, for a third of what it costs one by one.

    Returns:
        The terms of all texts, one text after the other; uint32, how often each occurs, same length; and how many
        of them each text has.

    Raises:
        CorruptionError: As `unpack_terms` for any one of them.
    """
    sizes: list[int] = []
    counts: list[bytes] = []
    texts: list[bytes] = []
    for data in packed:
        size = _read_size(data)
        sizes.append(size)
        text_start = _HEADER_BYTES + 4 * size
        text = data[text_start:]
        if size:
            counts.append(data[_HEADER_BYTES:text_start])
            texts.append(text)
        if (text.count(b"\n") + 1 if text else 0) != size:
            raise CorruptionError("stored terms are damaged; reindex the store")
    terms = _decode(b"\n".join(texts)).split("\n") if texts else []
    return terms, np.frombuffer(b"".join(counts), dtype="<u4").astype(np.uint32, copy=False), sizes


def _read_size(data: bytes) -> int:
    if len(data) < _HEADER_BYTES or data[0] != _PACK_VERSION:
        raise CorruptionError("stored terms are damaged or of an unknown version; reindex the store")
    return int.from_bytes(data[1:_HEADER_BYTES], "little")


def _decode(text: bytes) -> str:
    try:
        return text.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise CorruptionError("stored terms are damaged; reindex the store") from error
