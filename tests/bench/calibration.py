"""python -m tests.bench.calibration [--only RUN…] [--points N] [--json FILE]: what a calibration
forecasts.

For every healthy run of an index: some points evenly over its sizes are fitted, and the error at
its other points is that of the usual and of the fitted figures. Medians are of all those points.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from netsim.base.errors import NetsimError
from netsim.measured.accuracy import chosen
from netsim.measured.calibrate import HUGE, calibrate
from netsim.measured.compare import Compared, few, resolved_for, rows_of
from netsim.measured.index import IndexEntry, dtype_of, mapped, read_index, with_figures
from netsim.measured.logs import LogRun, MeasuredRow
from netsim.results.row import BANDS, band_of
from netsim.topology.machine import value_of

INDEX = Path("scenarios/measured/index.yaml")
MOST_HELD = 12  # points of a run at which the error is told


@dataclass(frozen=True)
class Forecast:
    """One point that was not fitted: |log ratio| with the usual figures and the fitted ones."""

    run: str
    size_bytes: int
    usual: float
    fitted: float


def forecasts(entry: IndexEntry, points: int, jobs: int | None) -> list[Forecast]:
    """The points of a run that were not fitted."""
    rows = usable(entry)
    fitted, held = shared_out(rows, points)
    run = LogRun(entry.id, entry.collective, tuple(rows))
    first = rows[0]
    sizes = [row.size_bytes for row in rows]
    source = mapped(entry).source(entry.id, sizes, dtype_of(first.dtype), first.root)
    found = calibrate([(source, replace(run, rows=fitted))], jobs)
    figures = {name: value_of(name, one) for name, one in found.figures.items()}
    others = replace(run, rows=held)
    errors = [
        [
            abs(point.log_ratio)
            for point in Compared(others, tuple(rows_of(resolved_for(one, others), others))).points
        ]
        for one in (source, with_figures(source, figures))
    ]
    return [
        Forecast(entry.id, row.size_bytes, *both) for row, *both in zip(held, *errors, strict=True)
    ]


def usable(entry: IndexEntry) -> list[MeasuredRow]:
    """The rows of one kind that have a time and are not so large that they only take long."""
    rows = [
        row
        for row in entry.rows()
        if 0 < row.size_bytes <= HUGE and row.seconds(entry.collective) is not None
    ]
    return [row for row in rows if (row.dtype, row.root) == (rows[0].dtype, rows[0].root)]


def shared_out(
    rows: Sequence[MeasuredRow], points: int
) -> tuple[tuple[MeasuredRow, ...], tuple[MeasuredRow, ...]]:
    """Some rows evenly over the sizes, both ends among them, and some of the others."""
    places = set(np.linspace(0, len(rows) - 1, points).round().astype(int).tolist())
    others = [row for place, row in enumerate(rows) if place not in places]
    return tuple(rows[place] for place in sorted(places)), few(others, MOST_HELD)


def bands(found: Sequence[Forecast]) -> Iterator[str]:
    """The medians by band, before and after."""
    for band in BANDS:
        some = [one for one in found if band_of(one.size_bytes) == band]
        if some:
            before, after = (
                np.expm1(np.median([getattr(one, name) for one in some]))
                for name in ("usual", "fitted")
            )
            yield f"{before:6.1%} -> {after:5.1%}"
        else:
            yield f"{'':15}"


def main() -> None:
    """Calibrate run by run, print as it goes, and the medians of all."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.calibration", description=__doc__)
    parser.add_argument("--index", type=Path, default=INDEX)
    parser.add_argument("--only", nargs="+", default=[], metavar="RUN", help="how names begin")
    parser.add_argument("--points", type=int, default=6, metavar="N")
    parser.add_argument("--jobs", type=int, default=None, metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the points there")
    given = parser.parse_args()
    print(f"{'run':<42}" + "".join(f"{band:>17}" for band in BANDS) + "        s")
    found: list[Forecast] = []
    for entry in chosen(read_index(given.index), given.only):
        if not entry.healthy or len(usable(entry)) < given.points + 2:
            continue
        begun = time.perf_counter()
        try:
            new = forecasts(entry, given.points, given.jobs)
        except NetsimError as error:
            print(f"{entry.id:<42} {error}")
            continue
        found += new
        cells = "".join(f"  {cell}" for cell in bands(new))
        print(f"{entry.id:<42}{cells}{time.perf_counter() - begun:9.1f}", flush=True)
    print(f"{f'all, {len(found)} points':<42}" + "".join(f"  {cell}" for cell in bands(found)))
    if given.json:
        given.json.write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n")


if __name__ == "__main__":
    main()
