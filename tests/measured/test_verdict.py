"""When a measured run fails: by size band, by the interval of its class, after its launch cost."""

import pytest

from netsim.measured.compare import Compared
from netsim.measured.logs import LogRun
from netsim.measured.verdict import inferred_launch, usual_launch_cost, verdict_of
from netsim.results.row import Row

KIB, MIB = 2**10, 2**20
USUAL_LAUNCH = 5e-6


def row(size: int, measured: float, simulated: float, low: float = 1.0, high: float = 1.0) -> Row:
    """A row with both times in microseconds, and an interval of its class as factors."""
    return Row(
        size_bytes=size,
        size_asked=size,
        measured_time_us=measured,
        time_us=simulated,
        time_low_us=simulated * low,
        time_high_us=simulated * high,
        status="ok",
    )


def compared(*rows: Row) -> Compared:
    return Compared(LogRun("x.log", "all_reduce"), rows)


def test_one_slow_band_fails_a_run_whose_other_bands_agree() -> None:
    small = [row(8 << n, 10.0, 10.0) for n in range(14)]
    large = [row(64 * MIB << n, 200.0, 100.0) for n in range(3)]
    verdict = verdict_of(compared(*small, *large), 0.15, USUAL_LAUNCH)
    assert verdict.fails
    assert [band.band for band in verdict.failed_bands] == [">=64MiB"]
    assert verdict.failed_bands[0].error == pytest.approx(-0.5)
    assert verdict.slowest_band.band == verdict.worst_band.band == ">=64MiB"


@pytest.mark.parametrize(
    ("measured", "high", "fails"),
    [(110.0, 1.0, False), (120.0, 1.0, True), (120.0, 1.3, False), (140.0, 1.3, True)],
)
def test_the_wider_of_tolerance_and_interval_is_allowed(
    measured: float, high: float, fails: bool
) -> None:
    rows = compared(row(64 * MIB, measured, 100.0, 0.9, high))
    verdict = verdict_of(rows, 0.15, USUAL_LAUNCH)
    assert verdict.fails is fails


def test_a_run_that_is_faster_than_its_interval_fails_too() -> None:
    rows = compared(row(64 * MIB, 70.0, 100.0, 0.9, 1.5))
    (band,) = verdict_of(rows, 0.15, USUAL_LAUNCH).bands
    assert band.fails
    assert band.highest == pytest.approx(0.15)  # wider than 1 / 0.9
    assert band.lowest == pytest.approx(1 / 1.5 - 1)


def test_half_of_the_sizes_beyond_do_not_fail_a_band_and_more_do() -> None:
    good, bad = row(2 * MIB, 100.0, 100.0), row(4 * MIB, 200.0, 100.0)
    assert not verdict_of(compared(good, bad), 0.15, USUAL_LAUNCH).fails
    assert verdict_of(compared(good, bad, bad), 0.15, USUAL_LAUNCH).fails


def test_small_bands_are_judged_with_the_launch_cost_of_the_log() -> None:
    """4 us more at every size: 40 % of small ones, which the launch explains; nothing of large."""
    rows = [row(8, 14.0, 10.0), row(KIB, 14.0, 10.0), row(256 * KIB, 24.0, 20.0)]
    verdict = verdict_of(compared(*rows, row(64 * MIB, 1004.0, 1000.0)), 0.15, USUAL_LAUNCH)
    assert verdict.launch_us == pytest.approx(4.0)
    assert not verdict.fails
    assert [band.error for band in verdict.bands[:2]] == pytest.approx([0.0, 0.0])


def test_a_host_that_launches_ten_times_as_slowly_fails() -> None:
    """The inferred cost is at most three times the usual one, so a slow host is not explained."""
    verdict = verdict_of(compared(row(8, 60.0, 10.0)), 0.15, USUAL_LAUNCH)
    assert verdict.launch_us == pytest.approx(10.0)
    assert verdict.fails


def test_the_launch_cost_is_read_from_the_flat_part_of_the_curve() -> None:
    rows = [row(8, 12.0, 10.0), row(16, 12.0, 10.0), row(64 * KIB, 90.0, 40.0)]
    assert inferred_launch(rows, USUAL_LAUNCH) == pytest.approx(2.0)
    assert inferred_launch([row(MIB, 90.0, 40.0)], USUAL_LAUNCH) is None


def test_one_process_launches_on_all_gpus_of_a_host_one_after_the_other() -> None:
    alone = usual_launch_cost("process_per_gpu", 8, 4e-6)
    serial = usual_launch_cost("single_process", 8, 4e-6)
    assert serial - alone == pytest.approx(7 * 4e-6)


def test_a_run_without_any_simulated_size_fails() -> None:
    failed = Row(size_bytes=8, measured_time_us=10.0, status="error", error="why")
    assert verdict_of(compared(failed), 0.15, USUAL_LAUNCH).fails
