"""Check digits that tell a number of some kind from any other row of digits. Pure."""

from __future__ import annotations

from itertools import cycle


def is_luhn_valid(digits: str) -> bool:
    """Luhn check of payment cards (ISO/IEC 7812-1, annex B)."""
    total = 0
    for index, digit in enumerate(reversed(digits)):
        value = int(digit)
        if index % 2:
            value = value * 2 - 9 if value > 4 else value * 2
        total += value
    return total % 10 == 0


def is_iban_valid(iban: str) -> bool:
    """Check digits of an IBAN without spaces (ISO 13616: modulo 97 of the rearranged number is 1)."""
    rearranged = iban[4:] + iban[:4]
    return int("".join(str(int(character, 36)) for character in rearranged)) % 97 == 1


def is_mrz_valid(line: str) -> bool:
    """Check digits of the second line of a passport's machine-readable zone (ICAO Doc 9303 part 4, 44 characters)."""
    fields = [(0, 9, 9), (13, 19, 19), (21, 27, 27)]
    if any(_mrz_check_digit(line[start:end]) != line[check] for start, end, check in fields):
        return False
    personal_number_check = line[42]
    if personal_number_check != "<" and _mrz_check_digit(line[28:42]) != personal_number_check:
        return False
    return _mrz_check_digit(line[0:10] + line[13:20] + line[21:43]) == line[43]


def _mrz_check_digit(field: str) -> str:
    values = (0 if character == "<" else int(character, 36) for character in field)
    total = sum(value * weight for value, weight in zip(values, cycle((7, 3, 1)), strict=False))
    return str(total % 10)
