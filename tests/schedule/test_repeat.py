"""Operations back to back: the rows are the same, and ranks wait for their own stream only."""

import numpy as np
import pytest

from netsim.collectives.collective import Collective
from netsim.collectives.table import build
from netsim.engines.engine import simulate
from netsim.extent.forms import form_of
from netsim.extent.solve import solve_form
from netsim.program.place import place
from netsim.schedule.repeat import Launch, framed, repeat
from netsim.topology.routing import switch
from netsim.workloads.task import Task

ALPHA, BANDWIDTH = 1e-6, 50e9


def ends(schedule, times: int) -> np.ndarray:
    repeated = repeat(schedule, times)
    program = place(repeated.schedule, switch(schedule.ranks, BANDWIDTH, ALPHA))
    return simulate(program, "simpy").end[repeated.ends]


def test_ranks_in_step_repeat_exactly() -> None:
    schedule = build(Collective("all_reduce", 8, 8 * 1024), "ring")
    once = 14 * (ALPHA + 4096 / BANDWIDTH)
    assert ends(schedule, 3) == pytest.approx(np.outer([1, 2, 3], np.full(8, once)), rel=1e-12)


def test_a_root_that_is_done_begins_the_next_broadcast() -> None:
    schedule = build(Collective("broadcast", 4, 250_000, 4), "binomial")
    finished = ends(schedule, 6)
    period = np.diff(finished.mean(axis=1))[-1]
    alone = finished[0].max()
    assert alone == pytest.approx(2 * (ALPHA + 1e6 / BANDWIDTH))
    # The rank that receives first and passes on is busy longest, and is ready again only then.
    assert period == pytest.approx(2 * 1e6 / BANDWIDTH + ALPHA)
    assert period < alone


def test_the_kernel_overhead_adds_and_the_host_limits() -> None:
    collective, groups = Collective("all_reduce", 4, 4096), ((0, 1, 2, 3),)
    gpus = np.arange(4, dtype=np.int32)
    topology = switch(4, BANDWIDTH, ALPHA)
    bare, slower, bound = (
        solve_form(
            form_of(Task(collective, topology, gpus, groups, algorithm="ring", launch=launch))
        ).seconds
        for launch in (Launch(), Launch(kernel=3e-6), Launch(host=10e-6, gpus_per_process=4))
    )
    assert slower == pytest.approx(bare + 3e-6, rel=1e-9)
    # The last of 20 operations is launched on the last GPU after 20 times 40 us.
    assert bound == pytest.approx(40e-6 + bare / 20, rel=0.01)


def test_a_rank_that_takes_no_part_begins_and_ends() -> None:
    schedule = build(Collective("p2p", 3, 1000, pairs=((0, 1),)), "direct")
    finished = ends(schedule, 2)
    assert finished[1, 2] == 0.0
    # The second transfer begins when the receiver is ready for it, its first one having arrived.
    assert finished[1, 1] == pytest.approx(2 * (4000 / BANDWIDTH + ALPHA))


def test_only_what_follows_nothing_of_its_ranks_waits_for_their_start() -> None:
    ring = build(Collective("all_gather", 8, 8 * 1024), "ring")
    found = framed(ring, 1e-6)
    first = np.diff(ring.dep_ptr) == 0
    gated = found.dep_row < ring.ranks
    row = np.repeat(np.arange(len(found)), np.diff(found.dep_ptr))[gated] - ring.ranks
    own = row[row < len(ring)]
    assert set(own.tolist()) <= set(np.flatnonzero(first | (ring.step <= 1)).tolist())
    assert len(own) < len(ring)
