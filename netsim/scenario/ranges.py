"""The values of one axis: a list, a range, a geometric range, or the files that match a pattern."""

import glob
import re
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from netsim.errors import shown, suggest
from netsim.presets import preset_folder
from netsim.units import UnitError, parse_size
from netsim.yamlio.source import KeyPath, Source

MOST_VALUES = 100_000
_QUANTITY = re.compile(r"([-+]?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*([A-Za-z/%µ]*)")
_KEYS = ("from", "to", "step", "factor")
_HINT = "a list, {from, to, step}, {from, to, factor}, or {files: 'topologies/*.yaml'}"


def axis_values(source: Source, path: KeyPath, value: Any) -> list[Any]:
    """The values that an axis is given, at least one."""
    if isinstance(value, Mapping) and "files" in value:
        return _files(source, path, value)
    if isinstance(value, Mapping) and {"from", "to"} & set(value):
        return _range(source, path, value)
    if not isinstance(value, list):
        raise source.error(path, f"expected {_HINT}, got {shown(value)}")
    if not value:
        raise source.error(path, "expected at least one value, got an empty list")
    return value


def _files(source: Source, path: KeyPath, value: Mapping[str, Any]) -> list[Any]:
    pattern = value["files"]
    if len(value) > 1 or not isinstance(pattern, str):
        raise source.error(path, "expected {files: PATTERN} such as {files: 'topologies/*.yaml'}")
    found = sorted(glob.glob(pattern, recursive=True))
    if not found and not Path(pattern).is_absolute():  # presets, from any directory
        shipped = preset_folder("topologies").parent
        found = sorted(str(file) for file in shipped.glob(pattern) if file.is_file())
    files = [Path(file).as_posix() for file in found if Path(file).is_file()]
    if not files:
        raise source.error((*path, "files"), f"no file matches {pattern!r}")
    return list(files)


def _range(source: Source, path: KeyPath, value: Mapping[str, Any]) -> list[Any]:
    for key in value:
        if key not in _KEYS:
            hint = suggest(str(key), _KEYS)
            raise source.error((*path, key), f"unknown key '{key}'{hint}", key=True)
    for key in ("from", "to"):
        if key not in value:
            raise source.error(path, f"a range needs '{key}' as well")
    if ("step" in value) == ("factor" in value):
        raise source.error(path, "a range needs either a step or a factor")
    first, unit = _quantity(source, (*path, "from"), value["from"])
    last, other = _quantity(source, (*path, "to"), value["to"])
    if unit != other:
        return _sizes(source, path, value)
    if last < first:
        raise source.error((*path, "to"), f"ends at {value['to']}, before it begins at "
                           f"{value['from']}")  # fmt: skip
    if "factor" in value:
        factor, _ = _quantity(source, (*path, "factor"), value["factor"])
        if factor <= 1 or first <= 0:
            raise source.error((*path, "factor"), "expected a factor above 1, from above 0")
        steps = _geometric(first, last, factor)
    else:
        step, step_unit = _quantity(source, (*path, "step"), value["step"])
        if step <= 0 or step_unit not in ("", unit):
            raise source.error((*path, "step"), f"expected a positive step in {unit or 'numbers'}")
        if (last - first) / step >= MOST_VALUES:
            raise source.error((*path, "step"), f"makes more than {MOST_VALUES} values")
        steps = [first + step * k for k in range(int((last - first) / step) + 1)]
    return [_written(number, unit) for number in steps]


def _geometric(first: Fraction, last: Fraction, factor: Fraction) -> list[Fraction]:
    """Each a factor times the one before; a last one that rounding alone puts outside counts."""
    found = [first]
    while found[-1] * factor <= last * (1 + Fraction(1, 10**12)) and len(found) < MOST_VALUES:
        found.append(found[-1] * factor)
    return found


def _sizes(source: Source, path: KeyPath, value: Mapping[str, Any]) -> list[Any]:
    """A geometric range of sizes whose ends have different units: 64KiB to 1GiB."""
    try:
        first, last = parse_size(value["from"]), parse_size(value["to"])
    except UnitError:
        message = f"expected both ends in one unit, got {value['from']} and {value['to']}"
        raise source.error(path, message) from None
    return _range(source, path, {**value, "from": first, "to": last})


def _quantity(source: Source, path: KeyPath, value: Any) -> tuple[Fraction, str]:
    """The number and the unit of a value."""
    text = str(getattr(value, "text", value))
    found = _QUANTITY.fullmatch(text.strip()) if not isinstance(value, bool) else None
    if not found:
        raise source.error(path, f"expected a number or a quantity, got {shown(value)}")
    return Fraction(found[1]), found[2]


def _written(number: Fraction, unit: str) -> Any:
    """A value of the range as one would write it."""
    plain = int(number) if number.denominator == 1 else float(number)
    return f"{plain:.12g}{unit}" if unit else plain
