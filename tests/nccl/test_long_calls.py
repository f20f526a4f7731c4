"""Calls of many loops over several nodes: told from within a shorter run, against all loops."""

import numpy as np
import pytest

from netsim.cell.answer import checked_cells
from netsim.cell.prepare import Prepared, prepare
from netsim.cell.simulate import bench_of
from netsim.cli.questions import Given, asked
from netsim.timing import bench as timing
from netsim.timing.bench import Timing
from netsim.timing.steady import lanes_of, recurrence

SMALL = ("NCCL_BUFFSIZE=65536", "NCCL_MAX_NCHANNELS=2", "NCCL_NVLSTREE_MAX_CHUNKSIZE=16384")
CASES = [
    # machine, fabric, nodes, algorithm, protocol, size
    ("dgx-h100", "rail-optimized", 2, "NVLSTree", "Simple", "64M"),
    ("dgx-h100", "rail-optimized", 3, "NVLSTree", "Simple", "64M"),
    ("dgx-h100", "rail-optimized", 6, "NVLSTree", "Simple", "50000000"),
    ("dgx-h100", "leaf-spine", 8, "NVLSTree", "Simple", "96M"),
    ("dgx-b200", "rail-optimized", 5, "NVLSTree", "Simple", "64M"),
    ("dgx-h100", "rail-optimized", 4, "Tree", "Simple", "8M"),
    ("dgx-a100", "rail-optimized", 7, "Tree", "Simple", "7000004"),
    ("dgx-a100", "single-switch", 3, "Tree", "LL128", "8M"),
    ("dgx-h100", "rail-optimized", 3, "Ring", "Simple", "48M"),
    ("dgx-a100", "single-switch", 2, "Ring", "LL", "20000000"),
]
RESTLESS = CASES[2:5]  # whose loops never take the same time


def ready(case: tuple[object, ...], variables: tuple[str, ...] = SMALL) -> tuple[Prepared, int]:
    machine, fabric, nodes, algorithm, protocol, size = case
    flags = {"nodes": nodes, "fabric": fabric, "algo": algorithm, "proto": protocol}
    source = asked(machine, "all_reduce", Given(**flags, sizes=size, env=variables)).source
    prepared = prepare(checked_cells(source)[0])
    return prepared, prepared.cell.scenario.collective.size_list()[0]


def assert_within(short: Timing, full: Timing) -> None:
    most = short.uncertainty + full.uncertainty + 1e-9
    assert short.seconds == pytest.approx(full.seconds, rel=most)


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case[:4])))
@pytest.mark.parametrize("single", [True, False])
def test_fewer_loops_take_as_long_as_all(monkeypatch, case, single: bool) -> None:
    prepared, size = ready(case)
    work, bench = prepared.looped(size, folded=True), bench_of(prepared, size, "compiled")
    object.__setattr__(bench, "single", single)
    full = bench.time(work.schedule(work.loops))
    monkeypatch.setattr(timing, "BUDGET_ROWS", 100)
    short = bench.time_looped(work)
    assert_within(short, full)
    assert short.uncertainty < 3e-2
    if single and short.approximation:  # what was seen to go on, goes on
        assert short.seconds == pytest.approx(full.seconds, rel=1e-6)
    assert short.use.amount == pytest.approx(full.use.amount, rel=1e-6)
    assert short.use.utilisation == pytest.approx(
        full.use.utilisation, rel=short.uncertainty + 0.02
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case[:4])))
def test_what_recurs_within_a_run_is_what_further_loops_add(case) -> None:
    """From the first run that is steady on, whatever its length."""
    prepared, size = ready(case)
    work, bench = prepared.looped(size, folded=True), bench_of(prepared, size, "compiled")
    full, found = bench.alone(work.schedule(work.loops)).ends, 0
    for loops in range(work.least + 8, work.loops - 4, max(1, work.loops // 16)):
        run = bench.alone(work.schedule(loops))
        lanes = lanes_of(run.schedule, work.shortest, loops - work.least)
        assert lanes
        seen = recurrence(run.program, run.timeline, lanes)
        periods = (work.loops - loops) / seen.loops if seen else 0.5
        if seen and periods.is_integer():
            found += 1
            busy = run.ends > bench.launch.kernel
            added = (full - run.ends)[busy]
            assert added == pytest.approx(periods * seen.seconds, rel=1e-5)
    assert (found > 0) == (case not in RESTLESS)


def test_lanes_are_told_from_two_schedules_of_a_call() -> None:
    prepared, size = ready(CASES[1])
    work = prepared.looped(size, folded=True)
    schedule = work.schedule(12)
    lanes = lanes_of(schedule, work.shortest, 12 - work.least)
    assert lanes
    assert sum(lane.size * lane.loops for lane in lanes) + schedule.ranks == len(schedule)
    for lane in lanes:
        assert np.ptp(lane.by_loop(schedule.dst), axis=0).max() == 0
    assert lanes_of(schedule, schedule, 3) is None
    other = ready(CASES[5])[0].looped(ready(CASES[5])[1], folded=True)
    assert lanes_of(schedule, other.shortest, 5) is None


PACED = [
    ("dgx-h100", "rail-optimized", 31, "NVLSTree", "Simple", "2G"),
    ("dgx-h100", "single-switch", 24, "NVLSTree", "Simple", "1G"),
    ("dgx-a100", "single-switch", 3, "Tree", "Simple", "1G"),
    ("hgx-h800", "leaf-spine", 12, "Tree", "Simple", "1G"),
]


@pytest.mark.parametrize("case", PACED, ids=lambda case: "-".join(map(str, case[:4])))
def test_what_keeps_a_link_busy_goes_on_at_its_pace(monkeypatch, case) -> None:
    prepared, size = ready(case, ())
    work, bench = prepared.looped(size, folded=True), bench_of(prepared, size, "compiled")
    object.__setattr__(bench, "single", True)
    full = bench.time(work.schedule(work.loops))
    monkeypatch.setattr(timing, "BUDGET_ROWS", 100)
    monkeypatch.setattr("netsim.timing.bench.recurrence", lambda *run: None)
    short = bench.time_looped(work)
    assert short.approximation.endswith("at the pace of the busiest link")
    assert_within(short, full)
    assert short.uncertainty < 3e-3
    assert short.use.amount == pytest.approx(full.use.amount, rel=1e-6)


def test_nothing_goes_on_at_a_pace_that_no_link_sets(monkeypatch) -> None:
    prepared, size = ready(("hgx-h800", "rail-optimized", 9, "NVLSTree", "Simple", "1G"), ())
    monkeypatch.setattr(timing, "BUDGET_ROWS", 100)
    bench = bench_of(prepared, size, "compiled")
    object.__setattr__(bench, "single", True)
    assert bench.time_looped(prepared.looped(size, folded=True)).approximation == ""
