"""python -m tests.bench.differences POINTS.json: how often is the sign of a difference right?

POINTS.json is what `netsim accuracy scenarios/measured/index.yaml --leave-out --json POINTS.json`
writes. Pairs are runs of one size: of one system, or of two systems with the same collective and as
many ranks. For each the predicted and the measured ratio are compared. Every system, or pair of
systems, weighs the same in a bin of predicted ratios. `--write FILE` writes the thresholds: the
smallest ratios from which the sign is right in 80 % and 95 % of pairs, in that bin and, as more is
never worse (isotonic regression), beyond.
"""

import argparse
import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import exp, log
from pathlib import Path

import numpy as np

from netsim.base.values import grouped
from netsim.measured.compare import ComparedPoint, weights_of
from netsim.measured.index import read_index
from netsim.results.differences import PROBABILITIES
from tests.bench.gates import INDEX, points_of

KINDS = ("same collective", "same machine", "other machine")
LEAST_RATIO = 1.005  # smaller differences are called equal
# Bins of predicted ratios, narrow where the probability changes.
EDGES = (LEAST_RATIO, 1.02, 1.05, 1.1, 1.16, 1.22, 1.35, 1.5, 1.65, 2.0, 2.7, 7.4, 1e4)


@dataclass(frozen=True)
class Pair:
    """Two runs at one size: the predicted ratio (at least 1), whether the measured times are in the
    same order, and the systems."""

    kind: str
    ratio: float
    is_right: bool
    systems: str


def pairs_of(points: Sequence[ComparedPoint], ranks: dict[str, int]) -> Iterator[Pair]:
    """All pairs of points that can be compared."""
    for members in grouped(points, lambda point: point.size_bytes).values():
        for first, second in combinations(members, 2):
            kind = kind_of(first, second, ranks)
            if kind:
                predicted = log(second.simulated_us / first.simulated_us)
                measured = log(second.measured_us / first.measured_us)
                systems = " ".join(sorted({first.system, second.system}))
                yield Pair(kind, exp(abs(predicted)), predicted * measured > 0, systems)


def kind_of(first: ComparedPoint, second: ComparedPoint, ranks: dict[str, int]) -> str:
    """The kind of a pair; empty if the two are not compared."""
    same_collective = first.collective == second.collective
    if first.run == second.run:
        return ""
    if first.system == second.system:
        return KINDS[0] if same_collective else KINDS[1]
    alike = same_collective and ranks[first.run] == ranks[second.run]
    return KINDS[2] if alike else ""


@dataclass(frozen=True)
class Bin:
    """Pairs with predicted ratios from `low` to `high`: the share whose sign is right."""

    low: float
    high: float
    pairs: int
    systems: int
    right: float


def bins_of(pairs: Sequence[Pair]) -> list[Bin]:
    """The bins that have pairs."""
    bins = []
    for low, high in pairwise(EDGES):
        members = [pair for pair in pairs if low <= pair.ratio < high]
        if members:
            weights = weights_of([pair.systems for pair in members])
            right = float(np.average([pair.is_right for pair in members], weights=weights))
            systems = len({pair.systems for pair in members})
            bins.append(Bin(low, high, len(members), systems, right))
    return bins


def isotonic(bins: Sequence[Bin]) -> list[float]:
    """The shares of bins as the nearest sequence that never falls (pool adjacent violators, bins
    weighing by their systems)."""
    blocks: list[list[float]] = []  # share, weight, bins
    for entry in bins:
        blocks.append([entry.right, float(entry.systems), 1.0])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            share, weight, count = blocks.pop()
            total = blocks[-1][1] + weight
            blocks[-1][0] = (blocks[-1][0] * blocks[-1][1] + share * weight) / total
            blocks[-1][1] = total
            blocks[-1][2] += count
    return [share for share, _, count in blocks for _ in range(int(count))]


def threshold(bins: Sequence[Bin], probability: float) -> float:
    """The smallest ratio from which the sign is right with a probability; that of the last bin if
    none is."""
    for entry, share in zip(bins, isotonic(bins), strict=True):
        if share >= probability:
            return entry.low
    return bins[-1].high


def main() -> None:
    """Print the bins by kind; with --write, write the thresholds."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.differences", description=__doc__)
    parser.add_argument("points", type=Path, metavar="POINTS.json")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write differences.csv there")
    given = parser.parse_args()
    ranks = {entry.id: entry.ranks for entry in read_index(INDEX)}
    pairs = list(pairs_of(points_of(given.points, healthy=True), ranks))
    lines: list[list[object]] = [["kind", *PROBABILITIES, "pairs", "systems"]]
    print("| pairs | predicted ratio | pairs | systems | sign right |")
    print("|---|---|---|---|---|")
    for kind in KINDS:
        members = [pair for pair in pairs if pair.kind == kind]
        bins = bins_of(members)
        for entry in bins:
            ratios = f"{entry.low:g} to {entry.high:g}"
            right = f"{entry.right:.1%}"
            print(f"| {kind} | {ratios} | {entry.pairs} | {entry.systems} | {right} |")
        values = [f"{threshold(bins, probability):g}" for probability in PROBABILITIES.values()]
        lines.append([kind, *values, len(members), len({pair.systems for pair in members})])
    print("")
    for line in lines:
        print(*line, sep=",")
    if given.write:
        with given.write.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(lines)


if __name__ == "__main__":
    main()
