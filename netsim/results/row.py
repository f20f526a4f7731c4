"""A Row: the answer to one cell at one size, with the columns that people script against."""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, fields
from functools import lru_cache
from math import exp, hypot, isnan, log, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.base.errors import InputError, shown
from netsim.base.files import csv_of, preset_folder
from netsim.base.values import dataclass


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of results.csv: the result of one cell at one size.

    Names end with the unit: `_us` is microseconds, `_GBps` 1e9 bytes a second, `_pct` percent.
    None is an empty cell. `docs/reference/columns.md` says what every column means. `axes` holds
    the values of the sweep for this cell.

    >>> row = Row(collective="all_reduce", size_bytes=2**20, time_us=12.5)
    >>> row.status, row.busbw_GBps is None
    ('ok', True)
    """

    scenario: str = ""
    cell: str = ""
    topology: str = ""
    nodes: int | None = None
    gpus_per_node: int | None = None
    ranks: int | None = None
    workload: str = ""
    collective: str = ""
    algorithm: str = ""
    protocol: str = ""
    channels: int | None = None
    dtype: str = ""
    launch: str = ""
    nccl_version: str = ""
    size_bytes: int | None = None
    count: int | None = None
    size_asked: int | None = None  # before it is rounded to whole elements on every rank
    time_us: float | None = None
    time_low_us: float | None = None
    time_high_us: float | None = None
    p5_us: float | None = None  # of samples with noise, as the three others
    p50_us: float | None = None
    p95_us: float | None = None
    p99_us: float | None = None
    samples: int | None = None
    alone_us: float | None = None  # of jobs beside others, as the next
    slowdown: float | None = None
    inplace_time_us: float | None = None
    algbw_GBps: float | None = None
    busbw_GBps: float | None = None
    limit_us: float | None = None
    best_known_us: float | None = None
    of_limit_pct: float | None = None
    step_time_us: float | None = None
    bound_by: str = ""
    validated: str = ""
    measured_time_us: float | None = None
    error_pct: float | None = None
    approximation: str = ""
    approximation_pct: float | None = None
    fullest_link: str = ""
    fullest_over_mean: float | None = None
    seed: int | None = None
    rows: int | None = None
    engine: str = ""
    model_version: str = ""
    status: str = "ok"
    error: str = ""
    axes: Mapping[str, Any] = field(default_factory=dict)
    details: Mapping[str, float] = field(default_factory=dict)  # the line of breakdown.csv
    quantiles: Mapping[str, float] = field(default_factory=dict)  # the line of distribution.csv
    neighbours: Mapping[str, Any] = field(default_factory=dict)  # the line of interference.csv

    @property
    def asked(self) -> int:
        """The requested size in bytes, by which rows of several cells match; 0 of a step."""
        return self.size_asked or self.size_bytes or 0

    @property
    def doubtful(self) -> bool:
        """Whether the error bound is too large for the row to be called best or validated."""
        return (self.approximation_pct or 0.0) > DOUBTFUL


EQUAL = 0.005  # by which two times may differ and be called equal
DOUBTFUL = 5.0  # percent of error bound above which a time is neither best nor validated
BESIDE = ("axes", "details", "quantiles", "neighbours")
QUANTILES = (0, 0.5, *range(1, 100), 99.5, 100)
COLUMNS = tuple(column.name for column in fields(Row) if column.name not in BESIDE)
AXIS = "axis:"


def csv_text(rows: Sequence[Row], axes: Iterable[str] = ()) -> str:
    """Rows as CSV, the swept axes in columns of their own behind the fixed ones."""
    names = list(axes)
    lines: list[Iterable[object]] = [[*COLUMNS, *(AXIS + name for name in names)]]
    for row in rows:
        fixed = [getattr(row, name) for name in COLUMNS]
        lines.append([*fixed, *(row.axes.get(name) for name in names)])
    return csv_of(lines)


def details_text(rows: Sequence[Row], axes: Iterable[str], of: str = "details") -> str:
    """What rows have beside their own columns, as CSV: a line a row, the swept axes last."""
    pairs = [(row, getattr(row, of)) for row in rows if getattr(row, of)]
    names, ends = list(dict.fromkeys(name for _, cells in pairs for name in cells)), list(axes)
    lines: list[Iterable[object]] = [["scenario", "cell", *names, *(AXIS + name for name in ends)]]
    for row, values in pairs:
        cells = [values.get(name) for name in names]
        lines.append([row.scenario, row.cell, *cells, *(row.axes.get(name) for name in ends)])
    return csv_of(lines)


def of_samples(
    microseconds: Sequence[float] | NDArray[np.float64], size: int = 0
) -> dict[str, Any]:
    """The columns of a row that samples of its time fill."""
    if not len(microseconds):
        return {}
    columns = {f"p{p}_us": float(np.percentile(microseconds, p)) for p in (5, 50, 95, 99)}
    every = {f"p{p:g}": float(np.percentile(microseconds, p)) for p in QUANTILES}
    return {**columns, "samples": len(microseconds), "quantiles": {"size_bytes": size, **every}}


def row_from(values: Mapping[str, Any]) -> Row:
    """A row from the mapping that a journal line holds."""
    unknown = sorted(set(values) - set(COLUMNS) - set(BESIDE))
    if unknown:
        raise InputError(f"not a row of results: unknown column {unknown[0]!r}")
    for name, value in values.items():
        kinds, expected = KINDS[name]
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise InputError(f"{name}: expected {expected}, got {shown(value)}")
    return Row(**values)


def _kinds() -> Iterator[tuple[str, tuple[tuple[type, ...], str]]]:
    for column in fields(Row):
        if column.name in BESIDE:
            yield column.name, ((dict,), "a mapping")
        elif isinstance(column.default, str):
            yield column.name, ((str,), "a text")
        else:
            yield column.name, ((int, float, type(None)), "a number")


KINDS = dict(_kinds())


# How sure a simulated time is: the error of the nearest class that was held against hardware.
# A class is a machine, what joins its hosts and how fast, a collective and a size band. The errors
# are those of the corpus that comes with netsim, stored by `netsim accuracy --page`.

KIB, MIB = 2**10, 2**20
BANDS = ("<=64KiB", "64KiB-1MiB", "1-64MiB", ">=64MiB")
STORED = "validated.json"
NOT_VALIDATED = "not validated"
ONE_HOST, NVLINK = "intra", "nvlink"


def band_of(size_bytes: int) -> str:
    """The band of a size."""
    if size_bytes <= 64 * KIB:
        return BANDS[0]
    if size_bytes <= MIB:
        return BANDS[1]
    return BANDS[2] if size_bytes < 64 * MIB else BANDS[3]


@dataclass(frozen=True)
class Joined:
    """Machines as a class has them: `gbps` is the sum of a host's NICs, 0 where none is used."""

    machine: str
    transport: str
    gbps: int = 0
    kind: str = field(default="", compare=False)  # NVLink or PCIe, whatever joins a host's GPUs


def joined(machine: str, transport: str, gbps: float, *, nvlink: bool = True) -> Joined:
    """The machines of a class; NICs do not count inside a host or an NVLink domain."""
    uses_nics = transport not in (ONE_HOST, NVLINK)
    kind = "NVLink" if nvlink else "PCIe"
    return Joined(machine, transport, round(gbps) if uses_nics else 0, kind)


@lru_cache(maxsize=1)
def stored() -> dict[tuple[Joined, str, str], tuple[float, int]]:
    """Median error and number of runs of every class; none where no result is stored."""
    path = preset_folder("scenarios") / "measured" / STORED
    if not path.is_file():
        return {}
    return {
        (Joined(one["machine"], one["transport"], one["gbps"]), one["collective"], one["band"]): (
            one["median"],
            one["runs"],
        )
        for one in json.loads(path.read_text(encoding="utf-8"))
    }


def validated(where: Joined, collective: str, size_bytes: int) -> str:
    """The error of a class and from how many runs, or the nearest that was timed instead."""
    band = band_of(size_bytes)
    entry = stored().get((where, collective, band))
    if entry is not None:
        return f"{entry[0]:.0%} ({entry[1]} run{'s' * (entry[1] > 1)})"
    others = sorted(
        (median, name)
        for (machines, name, size), (median, _) in stored().items()
        if (machines, size) == (where, band)
    )
    if others:
        return f"{NOT_VALIDATED} ({others[-1][1]}: {others[-1][0]:.0%})"
    rates = {
        machines.gbps
        for machines, name, size in stored()
        if (machines.machine, machines.transport, name, size)
        == (where.machine, where.transport, collective, band)
    }
    if rates:
        rates_text = " and ".join(str(rate) for rate in sorted(rates))
        return not_validated(f"only NICs of {rates_text} Gb/s a host were timed")
    return NOT_VALIDATED


def not_validated(why: str) -> str:
    """What belongs to no class, and why."""
    return f"{NOT_VALIDATED} ({why})"


# Between which times 80 % of measured ones lie, by the errors left out of other systems: those of
# the narrowest class that has enough of them. Two times of one system are off by much the same, so
# what is known of their ratio is known better; it has intervals of its own.

INTERVALS = "intervals.csv"
WITHIN = 0.8  # of measured times
FEWEST = 9  # systems, from which 80 % has two sides: of ten, one beyond either end
TIME, RATIO = "time", "ratio"  # what an interval is of
HALF = "half"  # of measured times of a class that has fewer systems, which no interval leaves out
SAME = "same"  # a ratio of two times of one collective
Class = tuple[str, str, str, str]  # machine or kind, transport, collective, band; or empty: any


@dataclass(frozen=True, slots=True)
class Interval:
    """The factors of a simulated time between which 80 % of measured ones lie.

    `systems` is the number of systems that they are from."""

    low: float
    high: float
    systems: int


Intervals = Mapping[tuple[str, Class], Interval]


def wider(where: Joined, collective: str, band: str) -> tuple[Class, ...]:
    """The classes of a case, from its own to the widest."""
    return (
        (where.machine, where.transport, collective, band),
        (where.machine, where.transport, "", band),
        (where.kind, "", "", band),
        ("", "", "", band),
    )


@lru_cache(maxsize=1)
def intervals() -> Intervals:
    """The intervals of every class; none where no result is stored."""
    path = preset_folder("scenarios") / "measured" / INTERVALS
    if not path.is_file():
        return {}
    table = {}
    with path.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            key = (line["machine"], line["transport"], line["collective"], line["band"])
            ends = float(line["low"]), float(line["high"])
            table[line["of"], key] = Interval(*ends, int(line["systems"]))
    return table


def interval_of(
    classes: Sequence[Class], table: Intervals | None = None, of: str = TIME
) -> Interval | None:
    """The interval of the first of some classes that has one, or of time so wide that it holds the
    half of the very first class."""
    table = intervals() if table is None else table
    interval = next((table[of, one] for one in classes if (of, one) in table), None)
    half = table.get((HALF, classes[0])) if of == TIME else None
    if interval is None or half is None:
        return interval
    return Interval(min(interval.low, half.low), max(interval.high, half.high), interval.systems)


def ratio_of(first: Mapping[Any, Any], second: Mapping[Any, Any]) -> tuple[float, float, float]:
    """How many times as long the second of two rows takes, each with its `time`, and between which
    ratios 80 % of measured ones lie, as far as that is known."""
    ratio = second["time"] / first["time"]
    spans = [
        (row.get("time_low_us", nan) / row["time"], row.get("time_high_us", nan) / row["time"])
        for row in (first, second)
    ]
    if first["cell"] == second["cell"] or any(isnan(low) for low, _ in spans):
        return ratio, ratio, ratio
    names, same = (
        (first["collective"], second["collective"]),
        first["topology"] == second["topology"],
    )
    off = off_of(first), off_of(second)
    low, high = ratio_span(names, int(first["size"]), (spans[0], spans[1]), same=same, off=off)
    return ratio, ratio * low, ratio * high


def off_of(row: Mapping[Any, Any]) -> float:
    """The error bound of a row's time as a fraction (`approximation_pct` / 100)."""
    percent = float(row.get("approximation_pct") or 0.0)
    return 0.0 if isnan(percent) else percent / 100


Span = tuple[float, float]  # factors of a simulated time
EXACT: Span = (1.0, 1.0)  # it was measured


def ratio_span(
    collectives: tuple[str, str],
    size_bytes: int,
    spans: tuple[Span, Span],
    *,
    same: bool,
    off: tuple[float, float] = (0.0, 0.0),
) -> Span:
    """The factors of a simulated ratio (second time over first) between which 80 % of measured
    ratios lie.

    With `same` both times are of one machine, so a common error cancels. `off` are the error bounds
    of the two times, as fractions, which are added."""
    most = (1 + off[0]) * (1 + off[1])
    if same and EXACT not in spans:
        band, sameness = band_of(size_bytes), SAME if collectives[0] == collectives[1] else ""
        interval = interval_of([("", "", sameness, band), ("", "", "", band)], of=RATIO)
        if interval is not None:
            return min(interval.low, 1 / most), max(interval.high, most)
    ends = [(log(low), log(high)) for low, high in spans]
    low, high = hypot(ends[1][0], ends[0][1]), hypot(ends[1][1], ends[0][0])
    return min(exp(-low), 1 / most), max(exp(high), most)
