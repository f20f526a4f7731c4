"""What a sweep says beyond its rows: every cell against the base line, and bands over seeds."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from typing import Any

import numpy as np

from netsim.results import AXIS, Row
from netsim.scenario.axes import SEED

PERCENTILES = (5, 25, 50, 75, 95)
CLEARLY = 1.005  # times as fast from which it is worth a word

Place = tuple[tuple[str, str], ...]


def time_of(row: Row) -> float:
    """The time of a row in µs: of an operation, or of a training step; 0 where there is none."""
    return row.time_us or row.step_time_us or 0.0


def base_rows(rows: Sequence[Row], base: Mapping[str, Any]) -> dict[tuple[str, int], Row]:
    """For every row by (cell, size), the one it is compared with: the same cell, but for the axes
    that the base line gives values.
    """
    known = {(place_of(row.axes), row.size_bytes): row for row in rows if time_of(row)}
    found = {}
    for row in rows:
        other = known.get((place_of({**row.axes, **base}), row.size_bytes))
        if time_of(row) and other is not None:
            found[row.cell, row.size_bytes or 0] = other
    return found


def place_of(axes: Mapping[str, Any]) -> Place:
    """Values of axes as a key: where a cell lies."""
    return tuple(sorted((key, str(value)) for key, value in axes.items()))


def without_seed(axes: Mapping[str, Any]) -> dict[str, Any]:
    """The axes that are choices: nobody chooses a seed."""
    return {axis: value for axis, value in axes.items() if axis != SEED}


def comparison_csv(rows: Sequence[Row], axes: Sequence[str], base: Mapping[str, Any]) -> str:
    """Every row against the base line: how many times as fast."""
    against = base_rows(rows, base)
    fixed = ("cell", "size_bytes", "time_us", "base_cell", "base_time_us", "speedup")
    lines: list[list[object]] = [[*fixed, *(AXIS + name for name in axes)]]
    for row in rows:
        other = against.get((row.cell, row.size_bytes or 0))
        if other is not None:
            own, base_time = time_of(row), time_of(other)
            figures = [own, other.cell, base_time, base_time / own]
            lines.append([row.cell, row.size_bytes, *figures, *(row.axes[a] for a in axes)])
    return _csv(lines)


def bands_csv(rows: Sequence[Row], axes: Sequence[str]) -> str:
    """Percentiles over the seeds, for every cell apart from its seed, and size."""
    others = [name for name in axes if name != SEED]
    groups: dict[tuple[object, ...], list[float]] = {}
    for row in rows:
        if time_of(row):
            key = (*(row.axes[name] for name in others), row.size_bytes)
            groups.setdefault(key, []).append(time_of(row))
    names = [f"time_us_p{p}" for p in PERCENTILES]
    lines: list[list[object]] = [
        [*(AXIS + n for n in others), "size_bytes", "seeds", "time_us_min", *names, "time_us_max"]
    ]
    for key, times in groups.items():
        bands = np.percentile(times, PERCENTILES).tolist()
        lines.append([*key, len(times), min(times), *bands, max(times)])
    return _csv(lines)


def best_row(rows: Iterable[Row], base: Mapping[str, Any] | None = None) -> Row | None:
    """The fastest row of the largest size; of cells without a size, the shortest step. Of cells
    that differ in their seed only, the one in the middle stands for all. What is not clearly faster
    than the base line does not beat it.
    """
    good = [row for row in rows if row.status == "ok" and time_of(row)]
    largest = max((row.size_bytes or 0 for row in good), default=0)
    groups: dict[Place, list[Row]] = {}
    for row in good:
        if (row.size_bytes or 0) == largest:
            groups.setdefault(place_of(without_seed(row.axes)), []).append(row)
    middle = [sorted(group, key=time_of)[(len(group) - 1) // 2] for group in groups.values()]
    best = min(middle, key=time_of, default=None)
    if best is None or base is None:
        return best
    as_fast = [row for row in middle if time_of(row) <= time_of(best) * CLEARLY]
    at_base = [row for row in as_fast if place_of({**row.axes, **base}) == place_of(row.axes)]
    return min(at_base, key=time_of, default=best)


def _csv(lines: Iterable[Sequence[object]]) -> str:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows(
        [repr(v) if isinstance(v, float) else "" if v is None else str(v) for v in line]
        for line in lines
    )
    return text.getvalue()
