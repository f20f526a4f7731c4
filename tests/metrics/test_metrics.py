"""Metrics against what the SimPy engine integrated itself, and against runs with known answers."""

import numpy as np
import pytest

from netsim.metrics.bound import bound_by, critical_path, link_label, narrowest
from netsim.metrics.links import LinkLoad, gpu_time, link_amounts, link_use, load_over_time
from netsim.program.place import place
from netsim.program.program import Program, Timeline
from netsim.schedule.builder import Builder, compute_style
from netsim.schedule.schedule import ARRIVED, Style
from netsim.topology.routing import full_mesh, switch
from tests.trace.output_runs import Run, chain_run, launched_run, mixed_run, ring_run, run

RUNS = [ring_run, launched_run, mixed_run, chain_run]


@pytest.mark.parametrize("make", RUNS)
def test_amounts_are_what_the_engine_saw_pass(make) -> None:
    program, _, simulation = make()
    amounts = link_amounts(program)
    assert simulation.carried
    for link, carried in simulation.carried.items():
        assert amounts[link] == pytest.approx(carried, rel=1e-9)


def test_bytes_of_a_ring_all_reduce_are_two_times_n_minus_one_nths() -> None:
    program, timeline, _ = ring_run(4, 1 << 16)
    use = link_use(program, timeline)
    assert len(use) == 8
    assert np.allclose(use.amount, 2 * 3 / 4 * 4 * (1 << 16))
    assert np.allclose(use.utilisation, use.amount / (50e9 * timeline.makespan))


@pytest.mark.parametrize("make", RUNS)
@pytest.mark.parametrize("bins", [1, 7, 200])
def test_load_over_time_loses_nothing_and_never_exceeds_capacity(make, bins: int) -> None:
    program, timeline, _ = make()
    use = link_use(program, timeline)
    load = load_over_time(program, timeline, use.link, bins)
    assert np.allclose(load.amount.sum(axis=1), use.amount, rtol=1e-9)
    assert (load.amount >= 0).all()
    assert load.utilisation.max() <= 1 + 1e-9
    assert load.edges[-1] == timeline.makespan


def test_a_row_is_spread_from_its_start_up_to_its_end() -> None:
    b = Builder(2)
    b.rows(Style(latency=2e-6), [0], [1], b.pieces([400_000]))  # 2 µs, then 8 µs at 50 GB/s
    program, timeline, _ = run(b.finish(), switch(2, 50e9))
    load = load_over_time(program, timeline, link_use(program, timeline).link, 5)
    assert np.allclose(load.utilisation[0], [0, 1, 1, 1, 1])
    assert load.seconds_at_capacity()[0] == pytest.approx(8e-6)


def test_surplus_of_the_even_spread_stays_in_its_busy_spell() -> None:
    """One row alone, then two that share: the average of the first row hides its fast half."""
    b = Builder(3)
    first = b.rows(Style(), [0], [1], b.pieces([1_000_000]))
    gate = b.rows(compute_style(), [2], [2], b.work(10e-6))
    b.rows(Style(), [0], [2], b.pieces([1_000_000]), after=[(gate, ARRIVED)])
    assert len(first) == 1
    program, timeline, _ = run(b.finish(), switch(3, 50e9))
    load = load_over_time(program, timeline, np.array([0]), 8)  # 40 µs without a gap
    assert np.allclose(load.utilisation[0], 1.0)


def test_load_with_rows_shorter_than_rounding_and_rows_of_no_time() -> None:
    program, timeline, _ = ring_run(4, 1 << 16)
    zero = Timeline(timeline.start.copy(), timeline.start.copy())
    use = link_use(program, timeline)
    load = load_over_time(program, zero, use.link, 3)
    assert np.allclose(load.amount.sum(axis=1), use.amount)


def test_capacity_changes_count_in_utilisation() -> None:
    program, timeline, _ = mixed_run()  # gpu0->switch0 has half its capacity from 60 µs on
    use = link_use(program, timeline)
    room = 50e9 * 60e-6 + 25e9 * (timeline.makespan - 60e-6)
    assert use.utilisation[0] == pytest.approx(7e6 / room)


def test_top_links_are_the_busiest_and_equal_ones_come_in_order() -> None:
    program, timeline, _ = mixed_run()
    use = link_use(program, timeline)
    names = [program.links.name(int(link)) for link in use.link[use.top(3)]]
    assert names == ["gpu0->switch0", "switch0->gpu1", "gpu3->switch0"]
    program, timeline, _ = ring_run()
    use = link_use(program, timeline)
    assert use.top(4).tolist() == [0, 1, 2, 3]


def test_gpu_time_adds_up() -> None:
    program, timeline, _ = mixed_run()
    time = gpu_time(program, timeline)
    assert np.allclose(time.computing, 30e-6)
    assert np.allclose(time.busy + time.waiting, timeline.makespan)
    assert (time.busy <= time.computing + time.communicating + 1e-12).all()
    assert (time.busy >= np.maximum(time.computing, time.communicating) - 1e-12).all()


def test_a_gpu_communicates_while_it_sends_and_while_it_receives() -> None:
    program, timeline, _ = chain_run()  # 1 ms a hop, and 1 µs on the wire
    time = gpu_time(program, timeline)
    assert time.communicating[1] == pytest.approx(2e-3)
    assert time.waiting[0] == pytest.approx(timeline.makespan - 1e-3)
    assert time.computing.tolist() == [0.0] * 6


@pytest.mark.parametrize("make", RUNS)
def test_every_second_of_the_critical_path_has_a_cause(make) -> None:
    program, timeline, _ = make()
    path = critical_path(program, timeline)
    causes = (path.latency, path.launch, path.transfer, path.compute, path.release)
    assert sum(causes) == pytest.approx(timeline.makespan)
    assert sum(path.shares().values()) == pytest.approx(1)
    assert timeline.end[path.rows[-1]] == timeline.makespan


def step_by_step(program: Program, timeline: Timeline) -> list[int]:
    """The rows of the path, last first, by asking each row what was ready last."""
    row, rows = int(np.argmax(timeline.end)), []
    while row >= 0:
        rows.append(row)
        best, when = -1, -np.inf
        for earlier, lag in program.schedule.dependencies(row):
            way = program.path_latency[program.path[earlier]] if lag.arrival else 0.0
            ready = timeline.end[earlier] + (lag.seconds + way)
            if ready > when:
                best, when = earlier, ready
        row = best if when >= timeline.start[row] * (1 - 1e-12) else -1
    return rows


@pytest.mark.parametrize("make", [*RUNS, lambda: ring_run(6, 1 << 12)])
@pytest.mark.parametrize("stretch", [1, 3, 1 << 20])
def test_the_path_is_that_of_going_back_row_by_row(make, stretch: int, monkeypatch) -> None:
    monkeypatch.setattr("netsim.metrics.bound.SHORTEST", min(stretch, 16))
    monkeypatch.setattr("netsim.metrics.bound.LONGEST", stretch)
    program, timeline, _ = make()
    assert critical_path(program, timeline).rows[::-1].tolist() == step_by_step(program, timeline)


def test_critical_path_of_a_released_row_is_its_release() -> None:
    b = Builder(2)
    rows = b.rows(Style(), [0], [1], b.pieces([500_000]))
    b.release(rows, 30e-6)
    program, timeline, _ = run(b.finish(), switch(2, 50e9))
    path = critical_path(program, timeline)
    assert (path.release, path.transfer) == pytest.approx((30e-6, 10e-6))


@pytest.mark.parametrize(
    ("make", "bound"),
    [
        (lambda: ring_run(4, 1 << 24), "fabric egress 100 %"),
        (lambda: ring_run(4, 2), "latency 100 %"),
        (launched_run, "launch 93 %"),
        (mixed_run, "fabric egress gpu0 77 %"),
        (chain_run, "serial transfers (fabric) 100 %"),
    ],
)
def test_what_bounds_a_run(make, bound: str) -> None:
    program, timeline, _ = make()
    assert bound_by(program, timeline) == bound


def test_what_bounds_a_run_of_compute_and_an_empty_one() -> None:
    b = Builder(2)
    first = b.rows(compute_style(), [0], [0], b.work(1e-3))
    b.rows(compute_style(), [1], [1], b.work(1e-3), after=[(first, ARRIVED)])
    program, timeline, _ = run(b.finish(), full_mesh(2, 50e9))
    assert bound_by(program, timeline) == "compute 100 %"
    nothing = place(Builder(2).finish(), full_mesh(2, 50e9))
    empty = Timeline(np.zeros(0), np.zeros(0))
    assert bound_by(nothing, empty) == "nothing"
    assert critical_path(nothing, empty).rows.tolist() == []


def test_labels_of_links_say_class_and_place() -> None:
    program, _, _ = mixed_run()
    labels = {
        program.links.name(i): link_label(program.links, i) for i in range(len(program.links))
    }
    assert labels["gpu0->switch0"] == ("fabric egress", "gpu0")
    assert labels["switch0->gpu1"] == ("fabric ingress", "gpu1")
    assert labels["hbm(gpu1)"] == ("memory", "gpu1")


def test_millions_of_rows_take_seconds() -> None:
    program, timeline, _ = _many_rows(1_000_000)
    use = link_use(program, timeline)
    load = load_over_time(program, timeline, use.link, 50)
    assert np.allclose(load.amount.sum(axis=1), use.amount)


def _many_rows(rows: int) -> Run:
    b = Builder(8)
    src = np.arange(rows) % 8
    b.rows(Style(), src, (src + 1) % 8, b.pieces([1000]))
    program = place(b.finish(), switch(8, 50e9))
    start = np.linspace(0, 1, rows)
    return program, Timeline(start, start + 8 * 1000 / 50e9), None  # type: ignore[return-value]


def test_a_link_as_fast_as_the_rows_own_rate_slows_it() -> None:
    """One that is faster does not, and of two, the slower one does."""
    topology = switch(2, 1e9)
    for cap, slowed in ((0.99e9, 0), (1e9, 2), (2e9, 2)):
        builder = Builder(2)
        builder.rows(Style(cap=cap), 0, 1, builder.work([1e6]))
        program = place(builder.finish(), topology)
        assert len(narrowest(program, 0)) == slowed


def test_time_at_capacity_is_that_of_bins_that_are_as_full_as_asked() -> None:
    """A bin that is just as full counts; one without room or bytes does not."""
    load = LinkLoad(
        np.array([4, 7]),
        np.array([0.0, 1.0, 3.0, 7.0]),
        np.array([[1.0, 1.0, 8.0], [0.5, 0.0, 4.0]]),
        np.array([[1.0, 2.0, 8.0], [1.0, 0.0, 4.0]]),
    )
    assert load.seconds_at_capacity(1.0).tolist() == [5.0, 4.0]
    assert load.seconds_at_capacity(0.5).tolist() == [7.0, 5.0]
    assert load.rate.tolist() == [[1.0, 0.5, 2.0], [0.5, 0.0, 1.0]]
