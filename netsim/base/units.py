"""Quantities with units: strict parsing into SI numbers, and printing for people.

Inside netsim a bandwidth is in bytes/s, a time in seconds, a size in whole bytes, and a rate of
arithmetic in FLOP/s. Arithmetic is exact (fractions) until the last step, so that 600ns gives
exactly the float 6e-07. This module does not know YAML or files: every failure is a `UnitError`,
whose text can be printed.
"""

import difflib
import math
import re
from collections.abc import Mapping
from fractions import Fraction

from netsim.base.errors import shown
from netsim.base.values import dataclass

LARGEST_SIZE = 2**60
DECIMAL = {
    "": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18,
}  # fmt: skip
BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
NCCL_SUFFIXES = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}

NUMBER = re.compile(
    r"([+-]?(?:\d(?:_?\d)*\.?(?:\d(?:_?\d)*)?|\.\d(?:_?\d)*)(?:[eE][+-]?\d{1,3})?(?!\d))", re.ASCII
)
DECIMAL_COMMA = re.compile(r",(\d+)\s*(\D+)", re.ASCII)


class UnitError(ValueError):
    """A value is not the expected quantity; the text says what was expected and what was found.

    `hint` is appended to the text, such as " (did you mean 5us?)".
    """

    def __init__(self, expected: str, got: object, hint: str = "") -> None:
        super().__init__(expected, got, hint)
        self.expected = expected
        self.hint = hint

    def __str__(self) -> str:
        return f"expected {self.expected}, got {shown(self.args[1])}{self.hint}"


@dataclass(frozen=True)
class Kind:
    """A kind of quantity, such as a time.

    - `name`, `examples`: how error messages name it.
    - `units`: the value of every unit in SI units.
    - `usual`: the unit that error messages propose if the unit is missing.
    - `largest`: the largest value that is accepted, in SI units.
    """

    name: str
    examples: str
    units: Mapping[str, Fraction]
    usual: str
    largest: int

    @property
    def expected(self) -> str:
        """The expected quantity in an error message: `a time such as 600ns or 2.5us`."""
        return f"{self.name} such as {self.examples}"


def _scaled(
    ends: tuple[str, ...], prefixes: Mapping[str, int], divisor: int = 1
) -> dict[str, Fraction]:
    """The SI value of each unit that is one of the prefixes (with its factor) followed by one of
    the ends.

    Values are divided by `divisor` (8 for units in bits).
    """
    pairs = ((prefix + end, factor) for end in ends for prefix, factor in prefixes.items())
    return {name: Fraction(factor, divisor) for name, factor in pairs}


TIME = Kind(
    "a time",
    "600ns or 2.5us",
    {
        "s": Fraction(1),
        "ms": Fraction(1, 10**3),
        "us": Fraction(1, 10**6),
        "µs": Fraction(1, 10**6),
        "μs": Fraction(1, 10**6),
        "ns": Fraction(1, 10**9),
        "ps": Fraction(1, 10**12),
    },
    usual="us",
    largest=10**9,
)
SIZE = Kind(
    "a size",
    "64MiB, 64MB or 8B",
    {**_scaled(("B",), BINARY), **_scaled(("B",), DECIMAL)},
    usual="B",
    largest=LARGEST_SIZE,
)
BANDWIDTH = Kind(
    "a bandwidth",
    "400Gbps or 50GB/s",
    {
        **_scaled(("bps", "b/s"), DECIMAL, divisor=8),
        **_scaled(("B/s", "Bps"), DECIMAL),
        **_scaled(("B/s",), BINARY),
    },
    usual="Gbps",
    largest=10**18,
)
FLOPS = Kind(
    "a rate of arithmetic",
    "989TFLOPS or 1.5PFLOP/s",
    _scaled(("FLOPS", "FLOP/s"), DECIMAL),
    usual="TFLOPS",
    largest=10**24,
)
POWER = Kind(
    "a power", "700W or 1.2kW", {"W": Fraction(1), "kW": Fraction(10**3)}, usual="W", largest=10**6
)
LENGTH = Kind(
    "a length", "100km or 500m", {"m": Fraction(1), "km": Fraction(10**3)}, "km", largest=10**8
)
KINDS = (TIME, SIZE, BANDWIDTH, FLOPS, POWER, LENGTH)


def parse_bandwidth(
    value: object, *, allow_zero: bool = False, allow_infinite: bool = False
) -> float:
    """Return a bandwidth such as `400Gbps` or `50GB/s` in bytes/s; b is bits, B is bytes."""
    if allow_infinite and value in ("inf", math.inf):
        return math.inf
    return float(_quantity(value, BANDWIDTH, allow_zero=allow_zero))


def parse_time(value: object, *, allow_zero: bool = True) -> float:
    """Return a time such as `600ns` or `2.5us` in seconds."""
    return float(_quantity(value, TIME, allow_zero=allow_zero))


def parse_flops(value: object) -> float:
    """Return a rate of arithmetic such as `989TFLOPS` in FLOP/s."""
    return float(_quantity(value, FLOPS, allow_zero=False))


def parse_length(value: object) -> float:
    """Return a length such as `100km` in meters."""
    return float(_quantity(value, LENGTH, allow_zero=True))


def parse_power(value: object) -> float:
    """Return a power such as `700W` in watts."""
    return float(_quantity(value, POWER, allow_zero=False))


def parse_size(value: object, *, allow_zero: bool = False) -> int:
    """Return a size such as `64MiB`, `64MB`, `8B` or a plain number of bytes in whole bytes."""
    bare = isinstance(value, int | float) or (
        isinstance(value, str) and NUMBER.fullmatch(value.strip())
    )
    text = f"{_text(value, SIZE.expected)}B" if bare else value
    nbytes = _quantity(text, SIZE, allow_zero=allow_zero, original=value)
    if nbytes.denominator != 1:
        raise UnitError(SIZE.expected, value, " (that is not a whole number of bytes)")
    return int(nbytes)


def parse_cli_size(text: str) -> int:
    """Return a size in bytes as nccl-tests reads it (`8M` is 8 MiB); full units work as well."""
    stripped = text.strip()
    suffix = stripped[-1:].upper()
    if suffix in NCCL_SUFFIXES and NUMBER.fullmatch(stripped[:-1]):
        return parse_size(f"{stripped[:-1]}{suffix}iB")
    return parse_size(stripped)


def parse_cli_sizes(text: str) -> list[int]:
    """Return the sizes in bytes of an option `--sizes`: `8:8G:2`, or a list.

    `FROM:TO:FACTOR` multiplies by the factor; a list such as `8,1M,1G` names every size.
    """
    if ":" not in text and ".." not in text:
        return [parse_cli_size(part) for part in text.split(",")]
    parts = text.split(":")
    if len(parts) != 3:
        raise UnitError("sizes as FROM:TO:FACTOR such as 8:8G:2, or a list such as 8,1M,1G", text)
    if not re.fullmatch(r"[0-9]{1,18}", parts[2].strip()):
        raise UnitError("a whole factor of at least 2, as in 8:8G:2", parts[2])
    return size_steps(parse_cli_size(parts[0]), parse_cli_size(parts[1]), int(parts[2]))


def size_steps(first: int, last: int, factor: int) -> list[int]:
    """Return the sizes `first`, `first` × `factor`, ... that are at most `last`, in bytes."""
    if factor < 2:
        raise UnitError("a whole factor of at least 2", factor)
    if first < 1 or first > last:
        raise UnitError(f"a first size from 1 B to the last, {format_size(last)}", first)
    sizes = [first]
    while sizes[-1] * factor <= last:
        sizes.append(sizes[-1] * factor)
    return sizes


def parse_ratio(value: object, *, allow_zero: bool = False) -> float:
    """Return a ratio such as `2`, `0.5`, `2:1` or `50%` as a number."""
    expected = "a ratio such as 2, 2:1 or 50%"
    text = _text(value, expected).strip()
    over = [part.strip() for part in text.removesuffix("%").split(":")]
    if len(over) > 2 - text.endswith("%") or not all(map(NUMBER.fullmatch, over)):
        raise UnitError(expected, value)
    numbers = [*map(_exact, over), Fraction(100 if text.endswith("%") else 1)]
    below = numbers[1]
    if below == 0:
        raise UnitError(expected, value, " (it divides by zero)")
    return float(_in_range(numbers[0] / below, value, expected, 10**12, allow_zero=allow_zero))


def format_size(nbytes: int) -> str:
    """Return a size in the unit with the shortest exact text: `64 MiB`, `1.5 GiB`, `8 B`."""
    best = f"{nbytes} B"
    for prefix, factor in [*BINARY.items(), *DECIMAL.items()]:
        thousandths, rest = divmod(nbytes * 1000, factor)
        if rest == 0 and prefix != "K":
            text = f"{thousandths // 1000}.{thousandths % 1000:03d}".rstrip("0").rstrip(".")
            best = min(best, f"{text} {prefix}B", key=len)
    return best


def format_time(seconds: float, digits: int = 4) -> str:
    """Return a time to `digits` significant digits in the largest unit that it reaches.

    >>> format_time(261.7e-6), format_time(261.7e-6, digits=3)
    ('261.7 us', '262 us')
    """
    units = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "ps": 1e-12}
    return _rounded(seconds, units, zero="s", digits=digits)


def format_bandwidth(bandwidth: float, *, bits: bool = False) -> str:
    """Return a bandwidth (bytes/s) to four digits: `50 GB/s`, or with `bits` `400 Gb/s`."""
    end, per_second = ("b/s", bandwidth * 8) if bits else ("B/s", bandwidth)
    units = {f"{p}{end}": float(DECIMAL[p]) for p in ("P", "T", "G", "M", "k", "")}
    return _rounded(per_second, units, zero=end, digits=4)


def _quantity(value: object, kind: Kind, *, allow_zero: bool, original: object = None) -> Fraction:
    """The value of a text such as `400Gbps` in SI units; raises a UnitError.

    The error quotes `original`, the user's own text, if `value` was derived from it.
    """
    got = value if original is None else original
    text = _text(value, kind.expected).strip()
    match = NUMBER.match(text)
    if match is None:
        raise UnitError(kind.expected, got)
    unit = text[match.end() :].strip()
    if unit not in kind.units:
        raise UnitError(kind.expected, got, _unit_hint(match.group(), unit, kind))
    exact = _exact(match.group()) * kind.units[unit]
    return _in_range(exact, got, kind.expected, kind.largest, allow_zero=allow_zero)


def _text(value: object, expected: str) -> str:
    """A value as the user wrote it; raises a UnitError unless it is a text or a number."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UnitError(expected, value)
    return str(getattr(value, "text", value))


def _exact(number: str) -> Fraction:
    return Fraction(number.strip().replace("_", ""))


TINY = Fraction(1, 10**15)  # smallest value of a quantity that must not be zero, in SI units


def _in_range(
    exact: Fraction, got: object, expected: str, largest: int, *, allow_zero: bool
) -> Fraction:
    """Return the value (SI units) if it is in the range of its kind; otherwise raise a UnitError.

    `got` is the value as the user wrote it.
    """
    if exact < 0:
        raise UnitError(expected, got, " (it cannot be negative)")
    if exact > largest:
        raise UnitError(expected, got, " (that is too large to be meant)")
    if exact == 0 and not allow_zero:
        raise UnitError(expected, got, " (it cannot be zero)")
    if not allow_zero and exact < TINY:
        raise UnitError(expected, got, " (that is too small to be meant)")
    return exact


def _unit_hint(number: str, unit: str, kind: Kind) -> str:
    """A hint for an unknown unit in parentheses, such as ` (did you mean 5us?)`; "" if nothing is
    near.
    """
    decimals = DECIMAL_COMMA.fullmatch(unit)
    if decimals and decimals.group(2) in kind.units:
        return f" (did you mean {number}.{decimals.group(1)}{decimals.group(2)}?)"
    if any(character.isdigit() for character in unit):
        return ""
    if not unit:
        return f" (the unit is missing; did you mean {number}{kind.usual}?)"
    near = _near_unit(unit, kind, exactly=True)
    if near is None:
        for other_kind in KINDS:
            if unit in other_kind.units:
                return f" (that is {other_kind.name})"
        near = _near_unit(unit, kind, exactly=False)
    return f" (did you mean {number}{near}?)" if near else ""


def _near_unit(unit: str, kind: Kind, *, exactly: bool) -> str | None:
    """The unit that was probably meant, or None.

    It differs from `unit` in upper and lower case only, or `unit` is its beginning. Without
    `exactly`, it may also be similar, or a beginning of `unit`.
    """
    same_letters = [candidate for candidate in kind.units if candidate.lower() == unit.lower()]
    if same_letters:
        return max(same_letters, key=lambda candidate: sum(map(str.__eq__, candidate, unit)))
    longer = [candidate for candidate in kind.units if candidate.startswith(unit)]
    if longer or exactly:
        return longer[0] if longer else None
    similar = difflib.get_close_matches(unit, kind.units, n=1, cutoff=0.6)
    if similar:
        return similar[0]
    shorter = [name for name in kind.units if unit.lower().startswith(name.lower())]
    return max(shorter, key=len, default=None)


def _rounded(value: float, units: Mapping[str, float], zero: str, digits: int) -> str:
    """A value as text, with `digits` significant digits and the largest unit that it reaches.

    `units` has the size of each unit, the largest first; the value 0 gets the unit `zero`.
    """
    if not math.isfinite(value):
        return str(value)
    rounded = abs(float(f"{value:.{digits - 1}e}"))
    fitting = [unit for unit, scale in units.items() if rounded >= scale * (1 - 1e-9)]
    unit = zero if value == 0 else next(iter(fitting), list(units)[-1])
    scaled = value / units[unit]
    has_more_digits = abs(scaled) >= 10**digits - 0.5  # of the largest unit
    return f"{scaled:.0f} {unit}" if has_more_digits else f"{scaled:.{digits}g} {unit}"
