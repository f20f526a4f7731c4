"""The row of one cell at one size, with the columns of results.csv, and the intervals
of its time.
"""

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
    size_asked: int | None = None  # bytes, before it is rounded to whole elements on every rank
    time_us: float | None = None
    time_low_us: float | None = None
    time_high_us: float | None = None
    p5_us: float | None = None  # percentiles of samples with noise
    p50_us: float | None = None
    p95_us: float | None = None
    p99_us: float | None = None
    samples: int | None = None
    alone_us: float | None = None  # the time of this job without the other jobs
    slowdown: float | None = None  # the time beside other jobs over that time
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
    def requested_size(self) -> int:
        """The requested size in bytes, by which rows of several cells match; 0 for a step."""
        return self.size_asked or self.size_bytes or 0

    @property
    def doubtful(self) -> bool:
        """Whether the error bound of the row's time is too large for it to count as the best, or as
        validated.
        """
        return (self.approximation_pct or 0.0) > DOUBTFUL


EQUAL = 0.005  # two times are called equal if they differ by at most this fraction
DOUBTFUL = 5.0  # percent of error bound above which a time is neither best nor validated
BESIDE = ("axes", "details", "quantiles", "neighbours")
QUANTILES = (0, 0.5, *range(1, 100), 99.5, 100)
COLUMNS = tuple(column.name for column in fields(Row) if column.name not in BESIDE)
AXIS = "axis:"


def csv_text(rows: Sequence[Row], axes: Iterable[str] = ()) -> str:
    """Rows as CSV, with a column for each swept axis after the columns of a row."""
    names = list(axes)
    lines: list[Iterable[object]] = [[*COLUMNS, *(AXIS + name for name in names)]]
    for row in rows:
        fixed = [getattr(row, name) for name in COLUMNS]
        lines.append([*fixed, *(row.axes.get(name) for name in names)])
    return csv_of(lines)


def details_text(rows: Sequence[Row], axes: Iterable[str], of: str = "details") -> str:
    """One dictionary field of each row as CSV: a line for each row, its keys and the swept axes as
    columns.

    `of` names the field: `details`, `quantiles` or `neighbours`. Rows without values are left out.
    """
    pairs = [(row, getattr(row, of)) for row in rows if getattr(row, of)]
    names = list(dict.fromkeys(name for _, cells in pairs for name in cells))
    axis_names = list(axes)
    axis_columns = [AXIS + name for name in axis_names]
    lines: list[Iterable[object]] = [["scenario", "cell", *names, *axis_columns]]
    for row, values in pairs:
        cells = [values.get(name) for name in names]
        axis_values = [row.axes.get(name) for name in axis_names]
        lines.append([row.scenario, row.cell, *cells, *axis_values])
    return csv_of(lines)


def of_samples(
    microseconds: Sequence[float] | NDArray[np.float64], size: int = 0
) -> dict[str, Any]:
    """The columns of a row that describe samples of its time: percentiles in µs and their number.

    `size` (bytes) is stored with the quantiles.
    """
    if not len(microseconds):
        return {}
    columns = {f"p{p}_us": float(np.percentile(microseconds, p)) for p in (5, 50, 95, 99)}
    all_quantiles = {f"p{p:g}": float(np.percentile(microseconds, p)) for p in QUANTILES}
    return {
        **columns,
        "samples": len(microseconds),
        "quantiles": {"size_bytes": size, **all_quantiles},
    }


def row_from(values: Mapping[str, Any]) -> Row:
    """The row with these values by column, which were read from a line of the journal.

    Raises:
        InputError: a column is unknown, or a value has the wrong type.
    """
    unknown = sorted(set(values) - set(COLUMNS) - set(BESIDE))
    if unknown:
        raise InputError(f"not a row of results: unknown column {unknown[0]!r}")
    for name, value in values.items():
        kinds, expected = KINDS[name]
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise InputError(f"{name}: expected {expected}, got {shown(value)}")
    return Row(**values)


def _kinds() -> Iterator[tuple[str, tuple[tuple[type, ...], str]]]:
    """Yield the name of each column with the types that its values may have, and these types in
    words.
    """
    for column in fields(Row):
        if column.name in BESIDE:
            yield column.name, ((dict,), "a mapping")
        elif isinstance(column.default, str):
            yield column.name, ((str,), "a text")
        else:
            yield column.name, ((int, float, type(None)), "a number")


KINDS = dict(_kinds())


# How reliable a simulated time is: the error of its class, or of the nearest class that was
# compared with hardware. A class is a machine, the transport and the rate between its hosts, a
# collective and a size band. `netsim accuracy --page` stores the errors of the measured runs that
# come with netsim.

KIB = 2**10
MIB = 2**20
BANDS = ("<=64KiB", "64KiB-1MiB", "1-64MiB", ">=64MiB")
STORED = "validated.json"
NOT_VALIDATED = "not validated"
ONE_HOST = "intra"
NVLINK = "nvlink"


def band_of(size_bytes: int) -> str:
    """The size band (an entry of BANDS) of a number of bytes."""
    if size_bytes <= 64 * KIB:
        return BANDS[0]
    if size_bytes <= MIB:
        return BANDS[1]
    return BANDS[2] if size_bytes < 64 * MIB else BANDS[3]


@dataclass(frozen=True)
class Joined:
    """The machine of a class and what joins its GPUs: the transport, and the rate of a host's NICs.

    `gbps` is that rate in Gbit/s; 0 if no NICs are used. `kind` is NVLink or PCIe, between the GPUs
    of a host.
    """

    machine: str
    transport: str
    gbps: int = 0
    kind: str = field(default="", compare=False)  # NVLink or PCIe, between the GPUs of a host


def joined(machine: str, transport: str, gbps: float, *, nvlink: bool = True) -> Joined:
    """Return the class of machine and network that a run belongs to.

    `gbps` is the rate of all NICs of a host in Gbit/s; it counts as 0 inside a host or an NVLink
    domain. `nvlink` says whether NVLink joins the GPUs of a host, else PCIe does.
    """
    uses_nics = transport not in (ONE_HOST, NVLINK)
    kind = "NVLink" if nvlink else "PCIe"
    return Joined(machine, transport, round(gbps) if uses_nics else 0, kind)


@lru_cache(maxsize=1)
def stored() -> dict[tuple[Joined, str, str], tuple[float, int]]:
    """The median error (a fraction) and the number of runs by class; empty if no result is stored.

    A class is (machine and transport, collective, size band).
    """
    path = preset_folder("scenarios") / "measured" / STORED
    if not path.is_file():
        return {}
    errors = {}
    for entry in json.loads(path.read_text(encoding="utf-8")):
        where = Joined(entry["machine"], entry["transport"], entry["gbps"])
        key = (where, entry["collective"], entry["band"])
        errors[key] = (entry["median"], entry["runs"])
    return errors


def validated(where: Joined, collective: str, size_bytes: int) -> str:
    """Return the text in the column `validated` of a time: the median error of its class and the
    number of runs behind it. If its class was not measured, the text says so, and adds what is
    known of the nearest class.

    `where` is the machine and what joins its GPUs.
    """
    band = band_of(size_bytes)
    entry = stored().get((where, collective, band))
    if entry is not None:
        runs = "1 run" if entry[1] == 1 else f"{entry[1]} runs"
        return f"{entry[0]:.0%} ({runs})"
    other_collectives = sorted(
        (median, name)
        for (machines, name, size), (median, _) in stored().items()
        if (machines, size) == (where, band)
    )
    if other_collectives:
        return f"{NOT_VALIDATED} ({other_collectives[-1][1]}: {other_collectives[-1][0]:.0%})"
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
    """The text in the column `validated` for a time whose class has no measured run, with the
    reason.
    """
    return f"{NOT_VALIDATED} ({why})"


# The interval that holds 80 % of measured times, from the left-out errors of the narrowest class
# with enough systems. Two times of one system have similar errors, so that their ratio is more
# certain than each of them; ratios have intervals of their own.

INTERVALS = "intervals.csv"
WITHIN = 0.8  # the fraction of measured times that lie in an interval
FEWEST = 9  # systems of a class with an interval: with one more, one of ten lies beyond each end
TIME = "time"  # an interval of times
RATIO = "ratio"  # an interval of ratios of two times
HALF = "half"  # the middle half of the times of a class with fewer systems than `FEWEST`
SAME = "same"  # a ratio of two times of one collective
# Machine (or NVLink or PCIe), transport, collective and band; an empty text is any.
Class = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class TimeInterval:
    """The factors on a simulated time between which 80 % of measured times lie.

    `systems` is the number of systems from which they were computed.
    """

    low: float
    high: float
    systems: int


Intervals = Mapping[tuple[str, Class], TimeInterval]


def wider(where: Joined, collective: str, band: str) -> tuple[Class, ...]:
    """Return the classes that a time belongs to, from the narrowest to the widest. `where` is the
    machine and what joins its GPUs, `band` the size band.
    """
    return (
        (where.machine, where.transport, collective, band),
        (where.machine, where.transport, "", band),
        (where.kind, "", "", band),
        ("", "", "", band),
    )


@lru_cache(maxsize=1)
def intervals() -> Intervals:
    """The intervals of every class; empty if none are stored."""
    path = preset_folder("scenarios") / "measured" / INTERVALS
    if not path.is_file():
        return {}
    table = {}
    with path.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            key = (line["machine"], line["transport"], line["collective"], line["band"])
            limits = float(line["low"]), float(line["high"])
            table[line["of"], key] = TimeInterval(*limits, int(line["systems"]))
    return table


def interval_of(
    classes: Sequence[Class], table: Intervals | None = None, of: str = TIME
) -> TimeInterval | None:
    """The interval of the first of `classes` that has one; None if none has.

    It is extended to hold the middle half of the errors of the first class. `table` has the
    intervals by class (None: those of the corpus), `of` is `TIME` or `RATIO`.
    """
    table = intervals() if table is None else table
    interval = next((table[of, name] for name in classes if (of, name) in table), None)
    half = table.get((HALF, classes[0])) if of == TIME else None
    if interval is None or half is None:
        return interval
    return TimeInterval(
        min(interval.low, half.low), max(interval.high, half.high), interval.systems
    )


def ratio_of(first: Mapping[Any, Any], second: Mapping[Any, Any]) -> tuple[float, float, float]:
    """The time of the second row over that of the first, and its 80 % interval: (ratio, low, high).

    Low and high equal the ratio if both rows are of one cell, or if one of the times has no
    interval. The rows are of a table with columns `time` and `size`.
    """
    ratio = second["time"] / first["time"]
    spans = [
        (row.get("time_low_us", nan) / row["time"], row.get("time_high_us", nan) / row["time"])
        for row in (first, second)
    ]
    if first["cell"] == second["cell"] or any(isnan(low) for low, _ in spans):
        return ratio, ratio, ratio
    low, high = ratio_span(
        (first["collective"], second["collective"]),
        int(first["size"]),
        (spans[0], spans[1]),
        same=first["topology"] == second["topology"],
        off=(off_of(first), off_of(second)),
    )
    return ratio, ratio * low, ratio * high


def off_of(row: Mapping[Any, Any]) -> float:
    """The error bound of a row's time, as a fraction; `row` has the column approximation_pct."""
    percent = float(row.get("approximation_pct") or 0.0)
    return 0.0 if isnan(percent) else percent / 100


Span = tuple[float, float]  # the lower and the upper factor on a simulated time
EXACT: Span = (1.0, 1.0)  # the span of a time that was measured


def ratio_span(
    collectives: tuple[str, str],
    size_bytes: int,
    spans: tuple[Span, Span],
    *,
    same: bool,
    off: tuple[float, float] = (0.0, 0.0),
) -> Span:
    """The factors on a predicted ratio of times (second over first) between which 80 % of measured
    ratios lie.

    Args:
        collectives: of both times
        spans: the 80 % interval of each time, as factors on it
        same: both times are of one machine, so that their common error cancels
        off: the error bounds of both times as fractions, which are added
    """
    most = (1 + off[0]) * (1 + off[1])
    if same and EXACT not in spans:
        band = band_of(size_bytes)
        sameness = SAME if collectives[0] == collectives[1] else ""
        interval = interval_of([("", "", sameness, band), ("", "", "", band)], of=RATIO)
        if interval is not None:
            return min(interval.low, 1 / most), max(interval.high, most)
    logarithms = [(log(low), log(high)) for low, high in spans]
    low = hypot(logarithms[1][0], logarithms[0][1])
    high = hypot(logarithms[1][1], logarithms[0][0])
    return min(exp(-low), 1 / most), max(exp(high), most)
