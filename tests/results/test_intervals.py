"""Between which times 80 % of measured ones lie: where that is from, and what it says."""

import csv
from io import StringIO
from math import exp, hypot, log, nan
from pathlib import Path

import pandas as pd
import pytest

from netsim.cli.diff import TimedSide, _lines
from netsim.measured.accuracy import Accuracy, intervals_text, page_text
from netsim.measured.compare import ComparedPoint
from netsim.measured.index import read_index
from netsim.report.words import summary_of
from netsim.results.row import (
    EXACT,
    FEWEST,
    Joined,
    TimeInterval,
    band_of,
    interval_of,
    intervals,
    off_of,
    ratio_of,
    ratio_span,
    wider,
)
from tests.cli.command import netsim

ENTRIES = read_index(Path("scenarios/measured/index.yaml"))
RUN = next(one for one in ENTRIES if one.id == "h100_sxm_8_all_reduce_1")
INSIDE = ("dgx-h100", "intra", "all_reduce", "<=64KiB")


def point(system: str, ratio: float, size: int = 8) -> ComparedPoint:
    where = ("dgx-h100", "all_reduce", size, 10.0, 10.0 * ratio)
    return ComparedPoint(RUN.id, *where, "Ring", "LL", True, system)


def told(points: list[ComparedPoint]) -> dict[tuple[str, ...], TimeInterval]:
    return {
        (one["of"], one["machine"], one["transport"], one["collective"], one["band"]): TimeInterval(
            float(one["low"]), float(one["high"]), int(one["systems"])
        )
        for one in csv.DictReader(StringIO(intervals_text(points, ENTRIES)))
    }


@pytest.mark.slow
def test_nine_systems_make_two_sides_of_which_the_outermost_are_the_ends() -> None:
    ratios = [0.8, 0.9, 0.95, 1.0, 1.0, 1.0, 1.05, 1.1, 1.25]
    points = [point(f"system {n}", ratio) for n, ratio in enumerate(ratios)]
    found = told(points)
    assert found["time", *INSIDE] == TimeInterval(0.8, 1.25, FEWEST)
    assert {what for what, *_ in told(points[1:])} == {"half"}
    crowd = told([*points, *(point("system 4", 1.0) for _ in range(40))])
    assert crowd["time", *INSIDE] == found["time", *INSIDE], "no system counts for more"


def test_what_two_times_of_a_system_have_in_common_is_no_error_of_their_ratio() -> None:
    off = [(f"system {n}", 1 + n / 4) for n in range(FEWEST)]
    pairs = [point(name, ratio) for name, ratio in off for _ in range(2)]
    found = told(pairs)
    assert found["time", *INSIDE].low == pytest.approx(1 / 3, abs=1e-3)
    assert found["ratio", "", "", "same", "<=64KiB"] == TimeInterval(1.0, 1.0, FEWEST)


def test_a_class_without_enough_systems_takes_the_next_wider() -> None:
    known = {("time", ("NVLink", "", "", "<=64KiB")): TimeInterval(0.5, 2.0, 12),
             ("time", ("", "", "", "<=64KiB")): TimeInterval(0.4, 3.0, 20)}  # fmt: skip
    inside = Joined("dgx-h100", "intra", kind="NVLink")
    between = Joined("l40s-pcie-x8", "roce", 400, "PCIe")
    assert wider(inside, "reduce", "<=64KiB")[0] == ("dgx-h100", "intra", "reduce", "<=64KiB")
    assert interval_of(wider(inside, "reduce", "<=64KiB"), known) == TimeInterval(0.5, 2.0, 12)
    assert interval_of(wider(between, "reduce", "<=64KiB"), known) == TimeInterval(0.4, 3.0, 20)
    assert interval_of(wider(between, "reduce", "1-64MiB"), known) is None


def test_no_interval_leaves_out_the_half_of_its_own_class() -> None:
    small = "<=64KiB"
    known = {("time", ("NVLink", "", "", small)): TimeInterval(0.5, 2.0, 12),
             ("half", ("dgx-h100", "intra", "reduce", small)):
                 TimeInterval(0.7, 2.5, 2)}  # fmt: skip
    inside = Joined("dgx-h100", "intra", kind="NVLink")
    assert interval_of(wider(inside, "reduce", small), known) == TimeInterval(0.5, 2.5, 12)
    assert interval_of(wider(inside, "gather", small), known) == TimeInterval(0.5, 2.0, 12)


def test_ratios_of_two_machines_have_the_errors_of_both() -> None:
    names, spans = ("all_reduce", "all_reduce"), ((0.8, 1.2), (0.9, 1.3))
    low, high = ratio_span(names, 8, spans, same=False)
    assert low == pytest.approx(exp(-hypot(log(0.9), log(1.2))))
    assert high == pytest.approx(exp(hypot(log(1.3), log(0.8))))
    assert ratio_span(names, 8, (EXACT, spans[1]), same=False) == pytest.approx(spans[1])
    assert ratio_span(names, 8, (EXACT, EXACT), same=True) == EXACT
    found = intervals()["ratio", ("", "", "same", "<=64KiB")]
    assert ratio_span(names, 8, spans, same=True) == (found.low, found.high)


@pytest.mark.parametrize("same", [False, True])
def test_what_is_approximated_is_never_told_better_than_it_is(same: bool) -> None:
    names, spans = ("all_reduce", "all_reduce"), ((0.99, 1.01), (0.99, 1.01))
    low, high = ratio_span(names, 8, spans, same=same, off=(0.5, 0.2))
    assert (low, high) == pytest.approx((1 / 1.8, 1.8))
    row = {
        "time": 10.0,
        "time_low_us": 9.9,
        "time_high_us": 10.1,
        "collective": "all_reduce",
        "size": 8,
        "topology": "box" if same else "",
        "approximation_pct": "50",
    }
    told = ratio_of({**row, "cell": 1}, {**row, "cell": 2, "approximation_pct": nan})
    assert told[1] <= 1 / 1.5
    assert told[2] >= 1.5
    assert [off_of({"approximation_pct": one}) for one in (None, "", 2.0)] == [0.0, 0.0, 0.02]


def test_every_class_of_the_corpus_has_enough_systems_and_holds_the_simulated_time() -> None:
    known = intervals()
    assert {band for _, (*_, band) in known} == {band_of(1 << n) for n in (3, 18, 22, 30)}
    assert all(
        it.systems < FEWEST if of == "half" else it.systems >= FEWEST and it.low < 1 < it.high
        for (of, _), it in known.items()
    )


def test_rows_have_the_interval_of_their_class(capsys: pytest.CaptureFixture[str]) -> None:
    done = netsim(capsys, "expect", "dgx-h100", "all_reduce", "--sizes", "8,1G", "--format", "csv")
    rows = list(csv.DictReader(StringIO(done.out)))
    for row in rows:
        inside = wider(
            Joined("dgx-h100", "intra", kind="NVLink"),
            "all_reduce",
            band_of(int(row["size_bytes"])),
        )
        found = interval_of(inside)
        assert found is not None
        time, low, high = (float(row[key]) for key in ("time_us", "time_low_us", "time_high_us"))
        assert (low / time, high / time) == pytest.approx((found.low, found.high))
    table = netsim(capsys, "expect", "dgx-h100", "all_reduce", "--sizes", "8").out.splitlines()
    low, high = (
        float(rows[0][key]) / float(rows[0]["time_us"]) - 1
        for key in ("time_low_us", "time_high_us")
    )
    assert f"  {low:+.0%}".replace("%", "") + f"{high:+.0%}  " in table[3]


def side(name: str, time: float, span: tuple[float, float]) -> TimedSide:
    return TimedSide(name, "all_reduce", {8: time}, {8: ""}, name, {8: span})


def test_diff_says_how_sure_a_difference_between_machines_is() -> None:
    near = "\n".join(_lines(side("m", 10.0, (0.8, 1.2)), side("n", 11.0, (0.8, 1.2)), [8]))
    assert "  A       cannot tell" in near
    assert "# A faster at 0 sizes, B at 0, equal at 1" in near
    far = "\n".join(_lines(side("m", 10.0, (0.8, 1.2)), side("n", 20.0, (0.8, 1.2)), [8]))
    assert "  A       sure" in far
    assert "cannot tell" not in far
    assert "# A faster at 1 size, B at 0, equal at 0" in far


def test_diff_is_surer_of_two_times_of_one_machine() -> None:
    times = (side("m", 10.0, (0.8, 1.2)), side("m", 13.0, (0.8, 1.2)))
    assert "  A       sure" in "\n".join(_lines(*times, [8]))
    others = (times[0], side("n", 13.0, (0.8, 1.2)))
    assert "  A       likely" in "\n".join(_lines(*others, [8]))


@pytest.mark.slow
def test_a_report_says_where_the_fastest_is_not_sure() -> None:
    def record(cell: str, time: float) -> dict[str, object]:
        where = {"cell": cell, "axis:x": cell, "topology": cell, "collective": "all_reduce"}
        ends = {"time_us": time, "time_low_us": 0.9 * time, "time_high_us": 1.1 * time}
        told = {"status": "ok", "validated": "", "bound_by": "", "error": ""}
        return {**where, **ends, **told, "size_asked": 8}

    for other, doubt in ((1.05, True), (2.0, False)):
        rows = pd.DataFrame([record("a", 1.0), record("b", other), record("c", 9.0)])
        text = summary_of(rows, rows, {}).headline
        assert ("equal within the uncertainty" in text) is doubt


def test_the_page_says_how_far_intervals_that_never_saw_a_system_held() -> None:
    points = tuple(point(f"system {n}", 0.8 + n / 25, 8) for n in range(FEWEST + 1))
    text = page_text(Accuracy(points, left_out=points), [RUN], {}).splitlines()
    line = next(one for one in text if one.startswith("| <=64KiB | 10 |"))
    assert "| 80% |" in line, "all but the two outermost lie within the others"
    assert "| 60%-100% |" in line
