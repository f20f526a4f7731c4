"""Pins: what small calls write down, by their digests, so that no row, link or figure moves unseen.

    python -m tests.pins              # which are others than those written down
    python -m tests.pins --write      # write them down anew; two minutes
    python -m tests.pins --only drawn --write    # of families whose names begin so

Where `tests.figures` pins times, which many schedules share, these pin the whole outputs of single
functions over small inputs: schedules row by row, links and routes, tables of costs, bounds, what
is read from files. `tests/data/pins.yaml` has a digest a line. As figures, they say nothing of what
is right: laws, proofs and oracles do. Whoever means a change writes them anew and says so in the
commit. Floats count to seven digits, since machines round differently.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import yaml

WRITTEN = Path(__file__).parent / "data" / "pins.yaml"
Found = Iterator[tuple[str, Any]]
Family = Callable[[], Found]
FAMILIES: dict[str, Family] = {}
MODULES = (
    "pinned",
    "pinned_commands",
    "pinned_measured",
    "pinned_parts",
    "pinned_edges",
    "pinned_whole",
    "pinned_rare",
    "pinned_estimates",
)
NEEDS: dict[str, str] = {}  # the library of an extra, by the families that are nothing without it


def family(function: Family, name: str = "") -> Family:
    """A family of pins by its name."""
    FAMILIES[name or function.__name__] = function
    return function


def with_library(library: str) -> Callable[[Family], Family]:
    """A family of pins that an extra's library has part in."""

    def known(function: Family) -> Family:
        NEEDS[function.__name__] = library
        return family(function)

    return known


def fill() -> None:
    """Fill the table of families: each module adds its own as it is imported."""
    for module in MODULES:
        import_module(f"tests.{module}")


def is_there(name: str) -> bool:
    """Whether what a family needs is installed."""
    return name not in NEEDS or find_spec(NEEDS[name]) is not None


def spelled(value: Any) -> str:
    """A value in full, the same on every machine; what is not a value is refused."""
    if isinstance(value, float | np.floating):
        rounded = f"{float(value):.7g}"
        return "0" if rounded == "-0" else rounded
    if value is None or isinstance(value, str | bytes | bool | int | np.integer | np.bool_ | Enum):
        return repr(value.item() if isinstance(value, np.generic) else value)
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        if value.dtype.kind == "f":
            large = np.abs(value[np.isfinite(value)]).max(initial=0.0)
            value = (np.where(np.abs(value) < 1e-9 * large, 0.0, value) + 0.0).astype("f4")
        kept = value if value.dtype.kind == "f" else value.astype("i8")
        return f"{value.shape} {kept.tobytes().hex()}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{spelled(k)}: {spelled(v)}" for k, v in value.items()) + "}"
    if is_dataclass(value) and not isinstance(value, type):
        told = {f.name: getattr(value, f.name) for f in fields(value) if f.repr}
        values = {name: one for name, one in told.items() if not callable(one)}
        return f"{type(value).__name__}{spelled(values)}"
    if isinstance(value, set | frozenset):
        return "{" + ", ".join(sorted(map(spelled, value))) + "}"
    if isinstance(value, Iterable):
        return "[" + ", ".join(map(spelled, value)) + "]"
    raise TypeError(f"not a value: {value!r}")


def digest(value: Any) -> str:
    """Twelve digits that stand for a value."""
    return hashlib.sha256(spelled(value).encode()).hexdigest()[:12]


def found(name: str) -> dict[str, str]:
    """The digests of a family, as they are now."""
    return {what: digest(value) for what, value in FAMILIES[name]()}


def written() -> dict[str, dict[str, str]]:
    """The digests by family, as they were written down."""
    return yaml.safe_load(WRITTEN.read_text(encoding="utf-8")) if WRITTEN.exists() else {}


def moved(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What is another, is gone or has come."""
    return [what for what in {**before, **now} if before.get(what) != now.get(what)]


def write(every: Mapping[str, Mapping[str, str]]) -> None:
    """Write digests down."""
    lines = ["# python -m tests.pins --write"]
    for name, told in every.items():
        lines += [f"{json.dumps(name)}:"]
        lines += [f"  {json.dumps(what)}: {json.dumps(value)}" for what, value in told.items()]
    WRITTEN.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    """Compare, or write."""
    fill()

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", default="", help="families whose names begin so")
    given = parser.parse_args()
    before = written()
    asked = [name for name in FAMILIES if name.startswith(given.only) and is_there(name)]
    told = [name for name in FAMILIES if name in asked or name in before]
    now = {name: found(name) if name in asked else before[name] for name in told}
    lines = [f"{n}: {what}" for n in now for what in moved(before.get(n, {}), now[n])]
    print("\n".join(lines) or "nothing moved")
    if given.write:
        write(now)
    return int(bool(lines) and not given.write)


if __name__ == "__main__":
    from tests import pins  # the module by its name, whose table is filled

    sys.exit(pins.main())
