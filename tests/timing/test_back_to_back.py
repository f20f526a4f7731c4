"""The period of operations back to back, against many of them in a row."""

from dataclasses import replace

import numpy as np
import pytest

from netsim.cell.answer import checked_cells
from netsim.cell.prepare import prepare
from netsim.cell.simulate import bench_of
from netsim.cli.questions import Given, asked
from netsim.collectives.collective import Collective
from netsim.collectives.table import build
from netsim.engines.engine import ends_of_operations
from netsim.program.place import place
from netsim.program.program import Operations, operations
from netsim.schedule.repeat import Launch
from netsim.timing import bench
from netsim.timing.bench import BackToBack, Bench, busy_ranks
from netsim.topology.routing import switch


def in_a_row(bench: Bench, schedule, times: int = 12) -> np.ndarray:
    """When operations end, by busy rank, all of them simulated together."""
    program = place(schedule, bench.topology, bench.gpus.tolist())
    many = operations(program, times, bench.launch)
    return ends_of_operations(many, bench.engine)[:, busy_ranks(schedule)]


@pytest.fixture
def simulated(monkeypatch) -> list[int]:
    """How many operations in a row were simulated, run by run."""
    runs: list[int] = []

    def noted(many: Operations, engine: str = "auto"):
        runs.append(len(many.launched))
        return ends_of_operations(many, engine)

    def after_another(row: BackToBack, launched: np.ndarray):
        runs.append(1)
        return follow(row, launched)

    follow = BackToBack._next
    monkeypatch.setattr(BackToBack, "_next", after_another)
    monkeypatch.setattr(bench, "ends_of_operations", noted)
    return runs


def schedule_and_bench(nodes: int, size: str, variables: tuple[str, ...] = (), **flags: object):
    given = Given(nodes, fabric="rail-optimized", sizes=size, env=list(variables), **flags)
    prepared = prepare(checked_cells(asked("dgx-h100", "all_reduce", given).source)[0])
    (nbytes,) = prepared.cell.scenario.collective.size_list()
    work = prepared.looped(nbytes, folded=True)
    return work.schedule(work.loops), bench_of(prepared, nbytes, "compiled")


@pytest.mark.parametrize(("nodes", "size"), [(64, "256K"), (64, "2M"), (128, "64K"), (128, "1M")])
def test_trees_need_but_a_second_operation(simulated, nodes: int, size: str) -> None:
    schedule, bench = schedule_and_bench(nodes, size, algo="Tree")
    found = bench.time(schedule)
    assert simulated == [1]
    added = np.diff(in_a_row(bench, schedule), axis=0)
    assert added[1:] == pytest.approx(found.seconds, rel=1e-9)
    assert (found.approximation, found.uncertainty) == ("", 0.0)


@pytest.mark.parametrize("nodes", [3, 6])
def test_operations_that_overlap_are_simulated_in_a_row(simulated, nodes: int) -> None:
    schedule, bench = schedule_and_bench(nodes, "64M", algo="NVLSTree")
    found = bench.time(schedule)
    assert simulated[0] == 3
    added = np.diff(in_a_row(bench, schedule), axis=0)
    assert found.seconds == pytest.approx(added[-4:].mean(), rel=found.uncertainty + 1e-6)


def test_each_that_does_not_overlap_is_simulated_once(simulated, monkeypatch) -> None:
    """Even if it takes longer on some ranks: what they show is the same as together."""
    schedule, bench = schedule_and_bench(7, "256K", algo="Tree")
    bench = replace(bench, launch=replace(bench.launch, kernel=20e-6))
    found = bench.time(schedule)
    assert set(simulated) == {1}
    monkeypatch.setattr(BackToBack, "are_apart", False)
    together = bench.time(schedule)
    assert found.seconds == pytest.approx(together.seconds, rel=1e-9)
    assert found.uncertainty == pytest.approx(together.uncertainty, rel=1e-6, abs=1e-12)


def one_after_the_other(launch: Launch, root: int = 0) -> BackToBack:
    schedule = build(Collective("broadcast", 6, 250_000, 4, root=root), "binomial")
    bench = Bench(switch(6, 50e9, 1e-6), np.arange(6, dtype=np.int32), launch)
    return BackToBack(bench.alone(schedule), launch)


@pytest.mark.parametrize("kernel", [0.0, 10e-6, 39e-6, 41e-6, 90e-6])
def test_a_second_operation_tells_only_if_it_begins_after_the_first(simulated, kernel) -> None:
    """The first rank of a broadcast is over 41 µs before the last one."""
    row = one_after_the_other(Launch(kernel=kernel))
    spread = float(np.ptp(row.first))
    period = row.period()
    assert (simulated[0] == 1) == (kernel >= spread)
    ends = ends_of_operations(operations(row.program, 40, row.launch))
    assert period.seconds == pytest.approx(np.diff(ends, axis=0)[-8:].mean(), rel=1e-6)


def test_the_host_holds_back_what_is_shorter() -> None:
    row = one_after_the_other(Launch(host=500e-6, kernel=90e-6))
    assert row.period().seconds == pytest.approx(500e-6)
    row = one_after_the_other(Launch(host=90e-6, kernel=90e-6, gpus_per_process=6))
    assert row.period().seconds == pytest.approx(540e-6)


def test_operations_that_take_ever_longer_say_how_far_that_may_go() -> None:
    """As those of an all-to-all whose ranks fall out of step: by 7 us each, up to a point."""
    took = np.minimum(613e-6 + 7e-6 * np.arange(30), 720e-6)
    ends = np.cumsum(took)[:, None] + np.array([0.0, 1e-6])
    few, many = (bench.of_many(ends[:times]) for times in (8, 30))
    assert many.seconds == pytest.approx(720e-6)
    assert few.approximation
    assert abs(few.seconds / many.seconds - 1) <= few.uncertainty <= 0.25


def test_operations_that_come_to_rest_say_only_how_they_differ() -> None:
    took = 600e-6 + 40e-6 * 0.5 ** np.arange(8)
    found = bench.of_many(np.cumsum(took)[:, None])
    assert found.uncertainty == pytest.approx(np.ptp(took[1:]) / took[1:].mean())
