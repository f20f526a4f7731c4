"""The time of a collective is what nccl-tests computes, held against all operations by hand.

By hand: the schedule of one operation is written as often as there are operations, between marks of
when each rank may begin and is done; one run of the engine gives the ends; and a loop over all
processes takes the last end of each, divides it by the number of operations and forms the mean.
"""

import itertools
import random

import numpy as np
import pytest

from netsim.engines.engine import simulate
from netsim.program.place import place
from netsim.scenario.cells import expand
from netsim.schedule.repeat import repeat
from netsim.tasks.resolve import ResolvedCell, resolve
from netsim.yamlio.read import parse_source
from tests.extent.cells import budget_with, form_at, simulate_size, timed, within
from tests.extent.test_methods import FULL

KIB = 1 << 10
MIB = 1 << 20
COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "alltoall",
    "sendrecv",
    "gather",
    "scatter",
)


def cell(cluster: str, workload: str, others: str = "") -> ResolvedCell:
    """A cell of a scenario that is given by its parts."""
    text = f"cluster: {{{cluster}}}\nworkload: {{{workload}}}\n{others}\n"
    return resolve(expand(parse_source(text, "x.yaml"))[0])


def time_by_hand(one: ResolvedCell, size: int) -> float:
    """The seconds of a collective from a run of all operations."""
    call = form_at(one, size)
    task = call.task
    assert task.back_to_back is not None
    iterations = task.back_to_back.iterations
    operations = repeat(call.loop_schedule.schedule(), iterations, task.launch)
    program = place(operations.schedule, task.topology, task.gpus.tolist())
    timeline = simulate(program, "compiled")
    ends_of_last = timeline.end[operations.ends[-1]].tolist()
    together = task.gpus_per_process
    processes = [ends_of_last[k : k + together] for k in range(0, len(ends_of_last), together)]
    times = [max(ends) / iterations for ends in processes]
    if task.back_to_back.over_processes == "first":
        return times[0]
    return {"mean": np.mean, "min": min, "max": max}[task.back_to_back.over_processes](times)


LAUNCHES = ("process_per_gpu", "single_process", "cuda_graph")


@pytest.mark.sample(9)
@pytest.mark.parametrize(
    ("collective", "launch", "nodes"), list(itertools.product(COLLECTIVES, LAUNCHES, (1, 2)))
)
@pytest.mark.parametrize("size", [8 * KIB, MIB])
def test_the_time_of_twenty_operations_is_that_by_hand(
    collective: str, launch: str, nodes: int, size: int
) -> None:
    """Also of roots that end early, of one process for all GPUs, and of two processes."""
    one = cell(
        f"machine: dgx-h100, nodes: {nodes}, gpus_per_node: 4",
        f"collective: {collective}, sizes: [{size}B]",
        f"launch: {launch}",
    )
    found = timed(one, size)
    # The host's launches are left out of what is longer: these are all later for the first one.
    assert found.seconds == pytest.approx(time_by_hand(one, size), rel=1e-6)
    assert found.uncertainty == 0.0
    assert found.approximation == ""


@pytest.mark.parametrize("over_processes", ["mean", "first", "min", "max"])
@pytest.mark.parametrize("iterations", [1, 2, 3, 7, 20, 33])
def test_iterations_and_processes_are_counted_as_by_hand(
    iterations: int, over_processes: str
) -> None:
    one = cell(
        "machine: dgx-h100, nodes: 3, gpus_per_node: 2",
        "collective: broadcast, sizes: [64KiB], root: 1",
        f"timing: {{iterations: {iterations}, over_processes: {over_processes}}}",
    )
    assert timed(one, 64 * KIB).seconds == pytest.approx(time_by_hand(one, 64 * KIB), rel=1e-6)


def drawn(seed: int) -> ResolvedCell:
    """A small collective on some machine, perhaps with a slow NIC, launched in some way."""
    some = random.Random(seed)
    machine = some.choice(("dgx-h100", "dgx-a100", "h100-x4", "mi300x", "l40s-pcie-x8"))
    odd = some.choice(("", "", ", faults: [{nic: node0.nic0, bandwidth: 30%}]"))
    nodes = some.choice((2, 3, 5))
    size = int(2 ** some.uniform(3, 21)) // 4 * 4
    host, kernel = some.choice((0, 1, 4, 30)), some.choice((0, 3, 12))
    return cell(
        f"machine: {machine}, nodes: {nodes}, gpus_per_node: {some.choice((2, 4))}{odd}",
        f"collective: {some.choice(COLLECTIVES)}, sizes: [{size}B]",
        f"launch: {{style: {some.choice(LAUNCHES)}, host: {host}us, kernel: {kernel}us}}\n"
        f"timing: {{iterations: {some.choice((2, 5, 20, 40))}}}",
    )


@pytest.mark.sample(6)
@pytest.mark.parametrize("seed", range(40))
def test_drawn_collectives_take_what_they_take_by_hand(seed: int) -> None:
    one = drawn(seed)
    size = one.cell.scenario.collective.size_list()[0]
    found = timed(one, size, FULL)
    assert found.seconds == pytest.approx(
        time_by_hand(one, size), rel=max(1e-6, 1.01 * found.uncertainty)
    )


def test_what_moves_nothing_takes_as_long_as_the_host_needs_to_launch_it() -> None:
    one = cell(
        "machine: dgx-h100",
        "collective: all_gather, sizes: [8B]",
        "launch: {style: single_process, host: 4us, kernel: 0s}",
    )
    assert timed(one, 8).seconds == pytest.approx(8 * 4e-6)
    assert time_by_hand(one, 8) == pytest.approx(8 * 4e-6)


def test_a_process_that_ends_early_counts_as_much_as_the_last() -> None:
    """The root of a broadcast over hosts is done before the others."""
    where = "machine: dgx-h100, nodes: 8, gpus_per_node: 1"
    work = "collective: broadcast, sizes: [64KiB]"
    mean, first, last = (
        timed(cell(where, work, f"timing: {{over_processes: {which}}}"), 64 * KIB)
        for which in ("mean", "first", "max")
    )
    assert first.seconds < 0.95 * mean.seconds
    assert mean.seconds < 0.95 * last.seconds
    assert mean.slowest == pytest.approx(last.seconds)


def test_the_first_launch_counts_a_twentieth() -> None:
    """All ranks of an all-reduce end at one instant, so each begins when the last is over."""
    where, work = "machine: dgx-h100", "collective: all_reduce, sizes: [1MiB]"
    hosts = "launch: {style: process_per_gpu, host: 4us, kernel: 3us}\n"
    many, one = (
        timed(cell(where, work, f"{hosts}timing: {timing}"), MIB).seconds
        for timing in ("{iterations: 20}", "single")
    )
    alone = one - 4e-6
    assert many == pytest.approx(alone + 4e-6 / 20, rel=1e-9)


def test_more_operations_come_nearer_to_the_time_from_one_to_the_next() -> None:
    """What the first one takes on top is divided by more of them."""
    where, work = (
        "machine: dgx-h100, nodes: 6, gpus_per_node: 2",
        "collective: reduce, sizes: [8KiB]",
    )
    times = [
        timed(cell(where, work, f"timing: {{iterations: {n}}}"), 8 * KIB).seconds
        for n in (1, 5, 20, 80, 320)
    ]
    assert times == sorted(times, reverse=True)
    # With n operations a part of 1/n is the start: its halves are where they have to be.
    start = (times[2] - times[4]) / (1 / 20 - 1 / 320)
    assert times[3] == pytest.approx(times[4] + start * (1 / 80 - 1 / 320), rel=0.01)


def test_older_spellings_of_timing_mean_the_same() -> None:
    where, work = "machine: dgx-h100, nodes: 2", "collective: broadcast, sizes: [64KiB]"
    usual = cell(where, work)
    for others, more in (
        ("timing: {iterations: 20}", ""),
        ("timing: throughput", ""),
        ("", ", timing: throughput"),
        ("timing: {}", ""),
    ):
        assert cell(where, work + more, others).cell.id == usual.cell.id
    single = cell(where, work, "timing: single").cell.id
    assert cell(where, work + ", timing: single").cell.id == single
    assert single != usual.cell.id


def test_a_row_says_how_many_operations_were_simulated() -> None:
    one = cell("machine: dgx-h100, nodes: 3", "collective: broadcast, sizes: [128MiB]")
    few = within(
        one,
        budget_with(
            max_rows_in_full=1e18,
            max_ring_rows=1e18,
            max_rows_of_few_operations=1,
            min_rows_for_pace=1,
            max_rows_of_all_operations=1,
            max_idle_fraction=0.0,
            max_error_of_large_runs=0.0,
        ),
    )
    row = simulate_size(few, 128 * MIB)[0]
    assert row.approximation == "3 of 20 operations"
    assert row.approximation_pct > 1
