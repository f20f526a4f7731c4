"""The answer in two or three sentences: which cell is fastest and by how much, whether that holds
at other sizes, and what bounds it.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from math import isnan
from typing import Any

import pandas as pd

from netsim.plots.lines import AXIS, spoken
from netsim.plots.style import time_text
from netsim.units import format_size

Record = Mapping[str, Any]

EQUAL = 0.005  # by which two times may differ and be called equal
_CLOSE = 0.02  # by which times may differ and hardly matter
_FEW = 4  # cells that are compared one by one
_SPELLS = 3  # ranges of sizes that are told
_OF_THE_PATH = ("latency", "launch", "compute", "release", "serial")


def cell_name(row: Record, axes: Sequence[str]) -> str:
    """A cell by its values on the axes: `4 nodes, nic 400Gbps`."""
    parts = [
        spoken(AXIS + axis, str(row[AXIS + axis]))
        for axis in axes
        if not blank(row.get(AXIS + axis))
    ]
    return ", ".join(parts) or str(row.get("algorithm") or row.get("scenario") or "the cell")


def headline(records: Sequence[Record], good: pd.DataFrame, axes: Sequence[str],
             bases: Sequence[str], size: str) -> str:  # fmt: skip
    """The answer. `records` are the cells at one size, the fastest first; `good` has all sizes."""
    if not records:
        return "No cell could be simulated."
    best, at = records[0], f" at {size}" if size else ""
    bound = bound_sentence(str(best.get("bound_by") or ""))
    if len(records) == 1:
        what = str(best.get("collective") or best.get("workload") or "it").replace("_", "-")
        return " ".join(
            filter(None, (f"{_upper(what)} takes {time_text(best['time'])}{at}.", bound))
        )
    name = _upper(cell_name(best, axes))
    sentences = (
        f"{name} is fastest{at}: {time_text(best['time'])}{_compared(records, axes, bases)}.",
        _elsewhere(good, str(best["cell"]), axes),
        bound,
    )
    return " ".join(filter(None, sentences))


def bound_sentence(bound: str) -> str:
    """What `bound_by` of results.csv says, in words."""
    found = re.fullmatch(r"(.*) (\d+) %", bound)
    if not bound or found is None:
        return f"It is bound by {bound}." if bound else ""
    what, share = found.groups()
    if what.startswith(_OF_THE_PATH):
        return f"It is bound by {what}, {share} % of its time."
    return f"It is bound by {what}, which is used to {share} %."


def longer(time: float, best: float) -> str:
    """How much longer a time is than the best one, in words."""
    ratio = time / best if best > 0 else 1.0
    if ratio < 1 + EQUAL:
        return "as long"
    return f"{ratio - 1:.0%} longer" if ratio < 1.995 else f"{ratio:.3g} times as long"


def _compared(records: Sequence[Record], axes: Sequence[str], bases: Sequence[str]) -> str:
    """The fastest against the others where these are few, else against the base or the slowest."""
    best, others = records[0], records[1:]
    if len(others) >= _FEW:
        base = next((one for one in others if one["cell"] in bases), None)
        word = "the slowest" if base is None else "the base line"
        others = [others[-1] if base is None else base]
        name = f"{word} ({cell_name(others[0], axes)})"
        return f"; {name} takes {longer(others[0]['time'], best['time'])}"
    parts = [f"{cell_name(one, axes)} takes {longer(one['time'], best['time'])}" for one in others]
    return "".join(f"{', ' if place else '; '}{part}" for place, part in enumerate(parts))


def _elsewhere(good: pd.DataFrame, best: str, axes: Sequence[str]) -> str:
    """At which other sizes another cell is faster."""
    winners = _winners(good, best)
    if len(winners) < 2:
        return ""
    ones: list[dict[str, Any]] = good.drop_duplicates("cell").to_dict("records")  # type: ignore[assignment]
    names = {str(row["cell"]): cell_name(row, axes) for row in ones}
    spells = [
        (cell, [size for size, _ in group])
        for cell, group in groupby(winners, key=lambda winner: winner[1])
    ]
    if len(spells) == 1:
        return _lead(good, [size for size, _ in winners])
    if len(spells) > _SPELLS:
        between = f"{format_size(winners[0][0])} and {format_size(winners[-1][0])}"
        return f"Which is fastest changes {len(spells) - 1} times between {between}."
    parts = [f"{names[cell]} {_span(sizes)}" for cell, sizes in spells if cell != best]
    return f"At other sizes another is faster: {', '.join(parts)}."


def _lead(good: pd.DataFrame, sizes: Sequence[int]) -> str:
    """What is to be said where one cell is fastest everywhere: where that hardly matters."""
    times = good[good["size_bytes"].isin(sizes)].groupby("size_bytes")["time_us"]
    ratios = (times.max() / times.min()).to_dict()
    apart = [ratios[size] for size in sizes]
    close = next((place for place, ratio in enumerate(apart) if ratio > 1 + _CLOSE), len(apart))
    first, last = format_size(sizes[0]), format_size(sizes[-1])
    if close == len(sizes):
        return f"All are within {_CLOSE:.0%} of each other at every size from {first} to {last}."
    if close:
        return f"Up to {format_size(sizes[close - 1])} all are within {_CLOSE:.0%} of each other."
    return f"No other is faster at any size from {first} to {last}."


def _span(sizes: Sequence[int]) -> str:
    if len(sizes) == 1:
        return f"at {format_size(sizes[0])}"
    return f"from {format_size(sizes[0])} to {format_size(sizes[-1])}"


def _winners(good: pd.DataFrame, best: str) -> list[tuple[int, str]]:
    """The fastest cell at every size that as many cells have as any; on a tie, the best one."""
    if "size_bytes" not in good.columns or not good["size_bytes"].notna().any():
        return []
    counts = good.groupby("size_bytes")["cell"].nunique()
    found = []
    for size in sorted(counts[counts == counts.max()].index):
        times = good[good["size_bytes"] == size].groupby("cell", sort=False)["time_us"].min()
        times = times[times.notna()]
        if len(times):
            near = best in times.index and times[best] <= times.min() * (1 + EQUAL)
            found.append((int(size), best if near else str(times.idxmin())))
    return found


def blank(value: Any) -> bool:
    """Whether a table has no value."""
    return value is None or value == "" or (isinstance(value, float) and isnan(value))


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
