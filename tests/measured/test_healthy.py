"""Margins of gates from a corpus, and the tables of tests.bench.gates and .differences."""

import csv
import random
from dataclasses import replace
from math import exp, sqrt

import numpy as np
import pytest

from netsim.measured.compare import ComparedPoint
from netsim.measured.healthy import (
    ErrorsByClass,
    HealthyPoint,
    healthy_points,
    margins_left_out,
    margins_of,
    margins_text,
)
from netsim.results.margins import CONFIDENCES, QUANTILE, SCALE
from netsim.results.row import BANDS, Joined
from tests.bench.differences import Bin, bins_of, isotonic, kind_of, pairs_of, threshold
from tests.bench.gates import LeftOut, band_share, share

SYSTEMS = 30
WHERE = {
    f"run{number}": Joined("dgx-h100" if number % 2 else "dgx-a100", "intra", 0, "NVLink")
    for number in range(SYSTEMS)
}


def point(
    run: str, measured: float, simulated: float, size: int = 2**30, **fields
) -> ComparedPoint:
    values = {"machine": WHERE[run].machine, "collective": "all_reduce", "system": run}
    values |= {"algorithm": "Ring", "protocol": "Simple", "healthy": True} | fields
    return ComparedPoint(
        run=run, size_bytes=size, measured_us=measured, simulated_us=simulated, **values
    )


def drawn_points(seed: int, spread: float = 0.1) -> list[HealthyPoint]:
    """A corpus in which each system is off by its own factor, and each size by a little more."""
    draw = random.Random(seed)
    points = []
    for run in WHERE:
        shift = draw.gauss(0, spread)
        for size in (2**12, 2**18, 2**24, 2**30):
            error = shift + draw.gauss(0, 0.02)
            points.append(point(run, 100 * exp(error), 100.0, size))
    return healthy_points(points, WHERE)


def test_errors_are_of_healthy_points_and_positive_where_a_run_was_slow() -> None:
    points = [point("run0", 120, 100), point("run1", 100, 120, healthy=False)]
    (healthy,) = healthy_points(points, WHERE)
    assert healthy.error == pytest.approx(np.log(1.2))
    assert healthy.band == BANDS[-1]


def test_a_system_that_is_left_out_does_not_count() -> None:
    points = healthy_points([point("run0", 120, 100), point("run2", 100, 100)], WHERE)
    widest = points[0].classes[-1]
    errors = ErrorsByClass(points)
    assert errors.without()[widest].systems == 2
    assert errors.without("run0")[widest].mean_square == pytest.approx(0)
    assert errors.without("run2")[widest].mean_square == pytest.approx(np.log(1.2) ** 2)


@pytest.mark.parametrize("confidence", [0.8, 0.9, 0.95])
def test_new_systems_pass_with_about_the_confidence(confidence: float) -> None:
    shares = []
    for seed in range(4):
        left = LeftOut(drawn_points(seed))
        passed = left.limits(confidence) >= [member.error for member in left.points]
        shares.append(share(left.points, passed))
    assert np.mean(shares) == pytest.approx(confidence, abs=0.05)


def test_a_corpus_that_is_simulated_better_has_higher_gates() -> None:
    for close, far in zip(
        margins_of(drawn_points(5, 0.02)).errors.items(),
        margins_of(drawn_points(5, 0.2)).errors.items(),
        strict=True,
    ):
        assert close[0] == far[0]
        assert close[1].mean_square < far[1].mean_square


def test_the_scale_without_a_system_does_not_depend_on_its_errors() -> None:
    points = drawn_points(6)
    slow = [replace(p, error=p.error + 3) if p.system == "run0" else p for p in points]
    before = dict(margins_left_out(points))
    after = dict(margins_left_out(slow))
    classes = points[0].classes
    assert before["run0"].scale(classes) == pytest.approx(after["run0"].scale(classes))
    assert before["run2"].scale(classes) < after["run2"].scale(classes)


def test_the_table_of_margins_has_scales_and_quantiles() -> None:
    points = drawn_points(7)
    margins = margins_of(points)
    rows = list(csv.DictReader(margins_text(points).splitlines()))
    scales = {
        (row["machine"], row["transport"], row["collective"], row["band"]): float(row["value"])
        for row in rows
        if row["of"] == SCALE
    }
    assert set(scales) == set(margins.errors)
    for name, error in margins.errors.items():
        assert scales[name] == pytest.approx(sqrt(error.mean_square), abs=1e-4)
    quantiles = [row for row in rows if row["of"] == QUANTILE]
    assert len(quantiles) == len(BANDS) * len(CONFIDENCES)


def test_a_band_passes_if_at_most_half_of_its_sizes_fail() -> None:
    points = healthy_points([point("run0", 1, 1, 2**30), point("run0", 1, 1, 2**31)], WHERE)
    assert band_share(points, [True, False]) == 1
    assert band_share(points, [False, False]) == 0
    assert share(points, [True, False]) == 0.5


def test_pairs_are_of_one_system_or_of_one_collective_and_as_many_ranks() -> None:
    ranks = {"run0": 8, "run1": 8, "run2": 16}
    first = point("run0", 1, 1)
    assert kind_of(first, first, ranks) == ""
    assert kind_of(first, point("run1", 1, 1, system="run0"), ranks) == "same collective"
    gather = point("run1", 1, 1, system="run0", collective="all_gather")
    assert kind_of(first, gather, ranks) == "same machine"
    assert kind_of(first, point("run1", 1, 1), ranks) == "other machine"
    assert kind_of(first, point("run2", 1, 1), ranks) == ""


def test_the_sign_of_a_pair_is_right_if_both_ratios_are_on_one_side_of_1() -> None:
    ranks = dict.fromkeys(WHERE, 8)
    points = [point("run0", 100, 100), point("run1", 150, 130), point("run2", 90, 200)]
    found = {pair.systems: pair for pair in pairs_of(points, ranks)}
    assert found["run0 run1"].is_right
    assert not found["run0 run2"].is_right
    assert found["run0 run1"].ratio == pytest.approx(1.3)
    assert sum(entry.pairs for entry in bins_of(list(found.values()))) == 3


def test_shares_of_bins_never_fall_as_ratios_grow() -> None:
    bins = [
        Bin(low, low + 0.1, 10, 5, right)
        for low, right in ((1.0, 0.6), (1.1, 0.9), (1.2, 0.8), (1.3, 1.0))
    ]
    shares = isotonic(bins)
    assert shares == pytest.approx([0.6, 0.85, 0.85, 1.0])
    assert threshold(bins, 0.8) == 1.1
    assert threshold(bins, 0.95) == 1.3
