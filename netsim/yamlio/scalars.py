"""What a plain scalar means by the core schema of YAML 1.2 (10.3.2), with its text kept.

So `no` and `2:1` are texts, `1e9` is a number, and `2.30` is a number that still knows it was
written `2.30`.
"""

import math
import re

MOST_DIGITS = 40

NULL = re.compile(r"~|null|Null|NULL|")
TRUE = re.compile(r"true|True|TRUE")
FALSE = re.compile(r"false|False|FALSE")
INTEGER = re.compile(r"([-+]?[0-9]+)|0o([0-7]+)|0x([0-9a-fA-F]+)")
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
INFINITY = re.compile(r"([-+]?)\.(inf|Inf|INF)")
NOT_A_NUMBER = re.compile(r"\.(nan|NaN|NAN)")

Scalar = str | int | float | bool | None


class WrittenInt(int):
    """An integer that was not written as Python would: 0x1F, 007, +5."""

    text: str


class WrittenFloat(float):
    """A number that was not written as Python would: 2.30, 1e9."""

    text: str


def plain_scalar(text: str) -> Scalar:
    """The value of an unquoted scalar; `ValueError` for a number that no float or int can hold."""
    if NULL.fullmatch(text):
        return None
    if TRUE.fullmatch(text):
        return True
    if FALSE.fullmatch(text):
        return False
    if match := INTEGER.fullmatch(text):
        return _written_int(text, match)
    if FLOAT.fullmatch(text):
        return _written_float(text)
    if match := INFINITY.fullmatch(text):
        return float(f"{match.group(1)}inf")
    return math.nan if NOT_A_NUMBER.fullmatch(text) else text


def text_of(value: str | float) -> str:
    """A text, or a number as it was written."""
    return str(getattr(value, "text", value))


def _written_int(text: str, match: re.Match[str]) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a number of more than {MOST_DIGITS} digits")
    decimal, octal, hexadecimal = match.groups()
    digits, base = (decimal, 10) if decimal else (octal, 8) if octal else (hexadecimal, 16)
    number = WrittenInt(digits, base)
    number.text = text
    return int(number) if str(int(number)) == text else number


def _written_float(text: str) -> float:
    number = WrittenFloat(text)
    if math.isinf(number):
        raise ValueError(f"a number too large to hold, {text[:MOST_DIGITS]}")
    number.text = text
    return number if repr(float(number)) != text else float(number)
