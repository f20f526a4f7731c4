"""python -m tests.bench.gates POINTS.json: do healthy systems pass gates, and do sick ones fail?

POINTS.json is what `netsim accuracy scenarios/measured/index.yaml --leave-out --json POINTS.json`
writes. Of every healthy system the margins know nothing: neither its errors nor constants that were
fitted to it. Every system weighs the same. A band of a run passes if at most half of its sizes are
slower than the gate, as `netsim compare --gate` judges. A slow system is a healthy one of which all
times are multiplied; the last table says how many bands of such systems fail.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import exp, log
from pathlib import Path

import numpy as np

from netsim.base.values import grouped
from netsim.measured.compare import ComparedPoint, weights_of
from netsim.measured.healthy import (
    HealthyPoint,
    healthy_points,
    margins_left_out,
    margins_of,
    margins_text,
)
from netsim.measured.index import joined_by, read_index
from netsim.results.margins import Margins
from netsim.results.row import BANDS, Joined

INDEX = Path("scenarios/measured/index.yaml")
CONFIDENCES = (0.8, 0.9, 0.95)
SLOWER = (1.2, 1.3, 1.5, 2.0)  # times the time of a healthy system
LARGE = BANDS[-1]


def points_of(path: Path, *, healthy: bool) -> list[ComparedPoint]:
    """The points of a result of `netsim accuracy`, left out where that was simulated."""
    values = json.loads(path.read_text())
    left_out = [ComparedPoint(**point) for point in values.get("left_out", ())]
    points = left_out or [ComparedPoint(**point) for point in values["points"]]
    if not healthy:
        points = [ComparedPoint(**point) for point in values["points"]]
    return [point for point in points if point.healthy is healthy]


def joined() -> dict[str, Joined]:
    """What joins the GPUs of every run of the index."""
    return {entry.id: joined_by(entry) for entry in read_index(INDEX)}


class LeftOut:
    """The log of the longest time that passes for every point, by margins without its system."""

    def __init__(self, points: Sequence[HealthyPoint]) -> None:
        self.points = list(points)
        self.margins: dict[str, Margins] = dict(margins_left_out(points))

    def limits(self, confidence: float) -> np.ndarray:
        """The largest error that passes, for each point."""
        return np.array(
            [
                self.margins[point.system].quantile(point.band, confidence)
                * self.margins[point.system].scale(point.classes)
                for point in self.points
            ]
        )


def share(points: Sequence[HealthyPoint], passed: Sequence[bool]) -> float:
    """The share of points that pass, every system weighing the same."""
    return float(np.average(passed, weights=weights_of([point.system for point in points])))


def band_share(points: Sequence[HealthyPoint], passed: Sequence[bool]) -> float:
    """The share of bands of runs of which at most half of the sizes fail, systems weighing the
    same."""
    members = grouped(
        zip(points, passed, strict=True), lambda pair: (pair[0].system, pair[0].run, pair[0].band)
    )
    verdicts = [2 * sum(not ok for _, ok in pairs) <= len(pairs) for pairs in members.values()]
    return float(np.average(verdicts, weights=weights_of([key[0] for key in members])))


def coverage(left: LeftOut) -> Iterator[str]:
    """The share of healthy sizes and bands that pass, by confidence and band, and the gates."""
    yield "| confidence | band | systems | sizes that pass | bands that pass | median gate |"
    yield "|---|---|---|---|---|---|"
    for confidence in CONFIDENCES:
        limits = left.limits(confidence)
        for band in (*BANDS, "all"):
            chosen = [n for n, point in enumerate(left.points) if band in ("all", point.band)]
            points = [left.points[n] for n in chosen]
            passed = [point.error <= limits[n] for n, point in zip(chosen, points, strict=True)]
            systems = len({point.system for point in points})
            gate = exp(-float(np.median(limits[chosen])))
            yield (
                f"| {confidence:.0%} | {band} | {systems} | {share(points, passed):.1%} | "
                f"{band_share(points, passed):.1%} | {gate:.0%} of expected |"
            )


def power(left: LeftOut) -> Iterator[str]:
    """The share of bands that fail if all times are so many times as long."""
    yield "| confidence | band | " + " | ".join(f"{slow:g} times as long" for slow in SLOWER) + " |"
    yield "|---|---|" + "---|" * len(SLOWER)
    for confidence in CONFIDENCES:
        limits = left.limits(confidence)
        for band in BANDS:
            chosen = [n for n, point in enumerate(left.points) if point.band == band]
            points = [left.points[n] for n in chosen]
            cells = []
            for slow in SLOWER:
                passed = [
                    point.error + log(slow) <= limits[n]
                    for n, point in zip(chosen, points, strict=True)
                ]
                cells.append(f"{1 - band_share(points, passed):.0%}")
            yield f"| {confidence:.0%} | {band} | {' | '.join(cells)} |"


def sick(points: Sequence[HealthyPoint], margins: Margins, confidence: float) -> Iterator[str]:
    """The runs of the index that are known to be sick: how many of their bands fail."""
    yield f"| run known to be sick | bands that fail a gate of {confidence:.0%} |"
    yield "|---|---|"
    for run, members in grouped(points, lambda point: point.run).items():
        failed = []
        bands = grouped(members, lambda point: point.band)
        for band, some in bands.items():
            limits = [
                margins.quantile(band, confidence) * margins.scale(point.classes) for point in some
            ]
            beyond = sum(point.error > limit for point, limit in zip(some, limits, strict=True))
            if 2 * beyond > len(some):
                failed.append(band)
        yield f"| {run} | {len(failed)} of {len(bands)}: {', '.join(failed) or 'none'} |"


def unhealthy_points(path: Path, where: dict[str, Joined]) -> list[HealthyPoint]:
    """The points of runs with a problem, as if they were healthy."""
    return healthy_points(
        [replace(point, healthy=True) for point in points_of(path, healthy=False)], where
    )


def main() -> None:
    """Print the tables; with --write, write the margins beside the index."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gates", description=__doc__)
    parser.add_argument("points", type=Path, metavar="POINTS.json")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write margins.csv there")
    given = parser.parse_args()
    where = joined()
    points = healthy_points(points_of(given.points, healthy=True), where)
    left = LeftOut(points)
    sick_points = unhealthy_points(given.points, where)
    print(*coverage(left), "", sep="\n")
    print(*power(left), "", sep="\n")
    print(*sick(sick_points, margins_of(points), 0.95), sep="\n")
    if given.write:
        given.write.write_text(margins_text(points))


if __name__ == "__main__":
    main()
