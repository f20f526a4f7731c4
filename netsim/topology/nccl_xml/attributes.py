"""Attributes of one XML element as typed values, with an error that names the place for each.

`known` refuses names that look like typing mistakes; other unknown names are let through, since
newer NCCL releases add attributes that do not matter here.
"""

import math
import re
from collections.abc import Collection

from netsim.errors import nearest, shown
from netsim.topology.nccl_xml.elements import Element

HEXADECIMAL = re.compile(r"(?:0x)?[0-9a-fA-F]{1,16}", re.ASCII)
INTEGER = re.compile(r"[+-]?\d{1,18}", re.ASCII)


def known(element: Element, attributes: Collection[str], children: Collection[str]) -> None:
    """Refuse attributes and children whose names are close to, but not, a known one."""
    for name in element.attributes:
        close = None if name in attributes else nearest(name, attributes)
        if close is not None and close not in element.attributes:
            raise element.error("unknown attribute", name, f"did you mean {close}?")
    for child in element.children:
        close = None if child.name in children else nearest(child.name, children)
        if close is not None:
            raise child.error(f"unknown element in {element.name}", hint=f"did you mean {close}?")


def text(element: Element, name: str, default: str | None = None) -> str:
    """The attribute as text; one without a default must be there."""
    value = element.attributes.get(name, default)
    if value is None:
        raise element.error("missing attribute", name)
    return value


def integer(
    element: Element, name: str, default: int | None = None, *, least: int = 0, most: int = 2**31
) -> int:
    """The attribute as a whole number from `least` to `most`."""
    value = element.attributes.get(name)
    if value is None and default is not None:
        return default
    written = text(element, name)
    number = int(written) if INTEGER.fullmatch(written.strip()) else None
    if number is None or not least <= number <= most:
        expected = f"expected a whole number from {least} to {most}"
        raise element.error(f"{expected}, got {shown(written)}", name)
    return number


def optional_integer(element: Element, name: str) -> int | None:
    """The attribute as a whole number, or nothing where it is missing."""
    return integer(element, name) if name in element.attributes else None


def real(element: Element, name: str, default: float) -> float:
    """The attribute as a number that is finite and not negative."""
    written = element.attributes.get(name)
    if written is None:
        return default
    try:
        number = float(written)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise element.error(f"expected a number of at least 0, got {shown(written)}", name)
    return number


def flag(element: Element, name: str, *, default: bool) -> bool:
    """The attribute as 0 or 1."""
    return bool(integer(element, name, int(default), most=1))


def hexadecimal(element: Element, name: str, default: str) -> str:
    """The attribute as hexadecimal text, kept as it is written."""
    written = element.attributes.get(name, default)
    if written != default and not HEXADECIMAL.fullmatch(written):
        raise element.error(f"expected a hexadecimal number, got {shown(written)}", name)
    return written


def matching(element: Element, name: str, pattern: re.Pattern[str], expected: str) -> str:
    """The attribute as text of the shape that `expected` describes."""
    written = text(element, name)
    if not pattern.fullmatch(written):
        raise element.error(f"expected {expected}, got {shown(written)}", name)
    return written
