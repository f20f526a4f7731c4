"""How far repeats of a measured time differ: the part of an error that no simulator can avoid.

Repeats are pairs of times of the same work on the same system: two runs of the same operation with
the same settings, or the two times, out of place and in place, that nccl-tests prints for each size
of an all_reduce, broadcast or reduce.

Derivation. If the logarithm of a time has the standard deviation s between repeats, that of the
ratio of two times is s * sqrt(2). A simulator that predicts the mean of the repeats exactly is off
by s from a single one. Its median error is therefore the median |log ratio| of pairs divided by
sqrt(2): pairs that differ by 1.4 % make a floor of 1.0 %.

Noise and the error of the simulator are independent, so their squares add: what is left beyond the
floor is sqrt(error^2 - floor^2), in logarithms.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import combinations
from math import expm1, log, log1p, sqrt

import numpy as np

from netsim.base.errors import NetsimError
from netsim.base.values import dataclass, grouped
from netsim.measured.compare import (
    ALL,
    ComparedPoint,
    Error,
    by_band,
    weighted_quantile,
    weights_of,
)
from netsim.measured.index import IndexEntry, dtype_of, mapped
from netsim.measured.logs import SAME_WORK, MeasuredRow
from netsim.results.row import BANDS, band_of


@dataclass(frozen=True)
class RepeatedTime:
    """Two times of the same work on one system; `log_ratio` is the absolute logarithm of their
    ratio.
    """

    system: str
    size_bytes: int
    log_ratio: float


@dataclass(frozen=True)
class BandNoise:
    """The noise of a size band, as fractions: the median difference of two repeats, and the floor,
    which is the median error of a simulator that predicts the mean of all repeats exactly.
    """

    difference: float
    floor: float
    pairs: int
    systems: int


def repeated_times(entries: Sequence[IndexEntry]) -> list[RepeatedTime]:
    """Yield all pairs of times of the same work on the same system, of healthy runs.

    Runs whose table or machine cannot be read yield none.
    """
    pairs: list[RepeatedTime] = []
    runs: dict[tuple[str, str], list[tuple[IndexEntry, tuple[MeasuredRow, ...]]]] = {}
    for entry in entries:
        if not entry.healthy:
            continue
        with suppress(NetsimError):
            rows = entry.rows()
            pairs += _pairs_within(entry, rows)
            runs.setdefault((entry.system, _question_of(entry)), []).append((entry, rows))
    for (system, _), members in runs.items():
        for (entry, rows), (_, other_rows) in combinations(members, 2):
            pairs += _pairs_between(system, entry.collective, rows, other_rows)
    return pairs


def _question_of(entry: IndexEntry) -> str:
    """Return everything that determines a run, without its name: equal for two runs that repeat
    each other.
    """
    data = {key: value for key, value in mapped(entry).data.items() if key != "name"}
    return repr(data)


def _pairs_within(entry: IndexEntry, rows: Sequence[MeasuredRow]) -> Iterator[RepeatedTime]:
    """Yield the two times (out of place, in place) of each row of a run, if both are of the same
    work.
    """
    if entry.collective not in SAME_WORK:
        return
    for row in rows:
        if row.out_of_place and row.in_place:
            ratio = abs(log(row.out_of_place / row.in_place))
            yield RepeatedTime(entry.system, row.size_bytes, ratio)


def _pairs_between(
    system: str, collective: str, rows: Sequence[MeasuredRow], other_rows: Sequence[MeasuredRow]
) -> Iterator[RepeatedTime]:
    """Yield the pairs of times of two equal runs at the sizes that both have."""
    times, other_times = (
        {
            (row.size_bytes, dtype_of(row.dtype), row.root, row.is_in_place(collective)): seconds
            for row in members
            if (seconds := row.seconds(collective))
        }
        for members in (rows, other_rows)
    )
    for call, seconds in times.items():
        if call in other_times:
            yield RepeatedTime(system, call[0], abs(log(seconds / other_times[call])))


def noise_by_band(pairs: Sequence[RepeatedTime]) -> dict[str, BandNoise]:
    """Return the noise of every size band that has repeats, and of all sizes; every system has the
    same weight.
    """
    by_band = grouped(pairs, lambda pair: band_of(pair.size_bytes))
    noise = {band: _noise_of(by_band[band]) for band in BANDS if band in by_band}
    if pairs:
        noise[ALL] = _noise_of(pairs)
    return noise


def _noise_of(pairs: Sequence[RepeatedTime]) -> BandNoise:
    """Return the noise of at least one pair of repeats."""
    systems = [pair.system for pair in pairs]
    ratios = np.array([pair.log_ratio for pair in pairs])
    middle = weighted_quantile(ratios, weights_of(systems), 0.5)
    return BandNoise(expm1(middle), expm1(middle / sqrt(2)), len(pairs), len(set(systems)))


def error_beyond(error: float, floor: float) -> float:
    """Return the part of a median error that remains beyond the noise floor, all as fractions; 0 if
    nothing does.

    >>> round(error_beyond(0.05, 0.03), 4)
    0.0396
    >>> error_beyond(0.005, 0.007)
    0.0
    """
    squares = log1p(error) ** 2 - log1p(floor) ** 2
    return expm1(sqrt(squares)) if squares > 0 else 0.0


def noise_table(
    parts: Mapping[str, Sequence[ComparedPoint]], noise: Mapping[str, BandNoise]
) -> dict[str, list[str]]:
    """Return the rows of a table that compares errors with the noise of measurements, in %, by the
    name of the row.

    A row has a cell for every size band and one for all sizes. `parts` are points by name (`left
    out`, `in sample`); a cell is empty without points or without repeats.
    """
    errors = {name: by_band(points) for name, points in parts.items()}
    floors = {band: band_noise.floor for band, band_noise in noise.items()}
    rows = {
        f"median error, {name}": [_percent(error, column) for column in (*BANDS, ALL)]
        for name, error in errors.items()
    }
    rows["noise floor"] = [
        f"{floors[column] * 100:.1f}" if column in floors else "" for column in (*BANDS, ALL)
    ]
    for name, error in errors.items():
        rows[f"error beyond the floor, {name}"] = [
            f"{error_beyond(error[column].median, floors[column]) * 100:.1f}"
            if column in error and column in floors
            else ""
            for column in (*BANDS, ALL)
        ]
    rows["pairs of repeats"] = [
        str(noise[column].pairs) if column in noise else "" for column in (*BANDS, ALL)
    ]
    rows["systems with repeats"] = [
        str(noise[column].systems) if column in noise else "" for column in (*BANDS, ALL)
    ]
    return rows


def _percent(errors: Mapping[str, Error], column: str) -> str:
    """Return the median error of the band `column` in %; empty if it has no points."""
    return f"{errors[column].median * 100:.1f}" if column in errors else ""
