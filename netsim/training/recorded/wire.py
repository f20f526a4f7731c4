"""Protocol buffers on the wire, as far as execution traces need them: numbers, texts, messages.

A field is (number, value): an int for a varint, bytes for what has a length, a float for a double.
"""

import struct
from collections.abc import Iterator

from netsim.errors import InputError

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
Value = int | float | bytes


def varint(number: int) -> bytes:
    """An unsigned number, seven bits a byte."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def field(number: int, value: int | bytes | str) -> bytes:
    """One field of a message."""
    if isinstance(value, int):
        return varint(number << 3 | VARINT) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | LENGTH) + varint(len(content)) + content


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins at a place, and the place behind it."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise InputError("ends in the middle of a number")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """All fields of a message, in order."""
    at = 0
    while at < len(data):
        key, at = read_varint(data, at)
        kind = key & 7
        if kind == VARINT:
            value: Value
            value, at = read_varint(data, at)
        elif kind == LENGTH:
            size, at = read_varint(data, at)
            value, at = data[at : at + size], at + size
        elif kind in (FIXED64, FIXED32):
            size, form = (8, "<d") if kind == FIXED64 else (4, "<f")
            if at + size > len(data):
                raise InputError("ends in the middle of a field")
            value, at = struct.unpack(form, data[at : at + size])[0], at + size
        else:
            raise InputError(f"holds a field of the unknown kind {kind}")
        if at > len(data):
            raise InputError("ends in the middle of a field")
        yield key >> 3, value


# Attributes hold their value under the number of its type: of those that varints and fixed sizes do
# not tell, signed ones, those in zigzag, and whole numbers of a fixed size.
SIGNED, ZIGZAG = (7, 9), (15, 17)
WHOLE = {19: ("<f", "<I"), 21: ("<d", "<Q"), 23: ("<f", "<i"), 25: ("<d", "<q")}


def typed(number: int, value: Value) -> Value:
    """The value of an attribute, from what stands under a number."""
    if number in SIGNED and isinstance(value, int):
        return value - (1 << 64) if value >> 63 else value
    if number in ZIGZAG and isinstance(value, int):
        return (value >> 1) ^ -(value & 1)
    if number in WHOLE and isinstance(value, float):
        read, meant = WHOLE[number]
        found: int = struct.unpack(meant, struct.pack(read, value))[0]
        return found
    return value


def packed(value: Value) -> list[int]:
    """Numbers that were packed into one field, or the one that was not."""
    if isinstance(value, int):
        return [value]
    if not isinstance(value, bytes):
        raise InputError("holds a list of fractions where node numbers are expected")
    found, at = [], 0
    while at < len(value):
        number, at = read_varint(value, at)
        found.append(number)
    return found
