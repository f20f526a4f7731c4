"""Small runs that the tests of outputs share: placed schedules with their timelines."""

from functools import cache

import numpy as np

from netsim.collectives.writing import edges
from netsim.engines.simpy import Simulation
from netsim.program.place import place
from netsim.program.program import Program, Timeline
from netsim.schedule.builder import Builder, compute_style
from netsim.schedule.repeat import Launch, repeat
from netsim.schedule.schedule import (
    ARRIVED,
    COPY,
    IN_ORDER,
    MULTICAST,
    REDUCE,
    SWITCH_REDUCE,
    Schedule,
    Style,
    Use,
)
from netsim.topology.graph import Topology
from netsim.topology.routing import ring, switch

Run = tuple[Program, Timeline, Simulation]


def run(schedule: Schedule, topology: Topology) -> Run:
    """Place and simulate."""
    program = place(schedule, topology)
    simulation = Simulation(program)
    return program, simulation.timeline(), simulation


def ring_all_reduce(ranks: int, count: int, channels: int = 1) -> Schedule:
    """The ring all-reduce, written out here so that these tests depend on no library of them."""
    b = Builder(ranks, 4, ("all_reduce",))
    bounds = edges(count, channels * ranks)
    chunks = b.pieces(np.diff(bounds), bounds[:-1]).reshape(channels, ranks)
    src, marks = np.arange(ranks), []
    for channel in range(channels):
        before: list = []
        for step in range(2 * (ranks - 1)):
            style = Style(op=REDUCE if step < ranks - 1 else COPY, channel=channel)
            piece = chunks[channel][(src - step) % ranks]
            after = [(np.roll(before[-1], 1), ARRIVED), (before[-1], IN_ORDER)] if before else []
            before.append(b.rows(style, src, (src + 1) % ranks, piece, step=step, after=after))
        marks.append((np.roll(before[-1], 1), ARRIVED))
    b.marks(src, step=2 * (ranks - 1), after=marks)
    return b.finish()


@cache
def ring_run(ranks: int = 4, count: int = 1 << 16, channels: int = 1) -> Run:
    """A ring all-reduce of floats on a switch of 50 GB/s and 1 µs."""
    return run(ring_all_reduce(ranks, count, channels), switch(ranks, 50e9, 1e-6))


@cache
def launched_run() -> Run:
    """A ring all-reduce of eight bytes that begins with the launch of its kernels."""
    once = repeat(ring_all_reduce(4, 2), 1, Launch(host=3e-6, kernel=5e-6)).schedule
    return run(once, switch(4, 50e9, 1e-7))


@cache
def mixed_run() -> Run:
    """Every kind of row, on shared links: compute, copies, groups, start-up latency, a mark."""
    b = Builder(4, collectives=("step",))
    everyone = b.group([0, 1, 2, 3])
    data = b.pieces([4_000_000, 1_000_000])
    work = b.rows(compute_style(stream="gemm"), range(4), range(4), b.work(30e-6))
    both = b.rows(Style(stream="copy"), [0, 0], [1, 2], data)
    slow = Style(latency=2e-6, uses=(Use("hbm", "dst", 2.0), Use("proxy", "src", 1e-12)))
    late = b.rows(slow, [3], [1], data[:1], step=1, after=[(both[:1], ARRIVED)])
    cast = b.rows(Style(MULTICAST), [0], everyone, data[1:], step=2, after=[(late, ARRIVED)])
    sums = b.rows(Style(SWITCH_REDUCE, op=1), [everyone], [2], data[1:], step=3)
    b.marks(range(4), after=[(cast, ARRIVED), (work, ARRIVED), (sums, ARRIVED)])
    topology = switch(4, 50e9, 1e-6)
    given = Topology(
        topology.name,
        topology.graph,
        topology.gpus,
        topology.router,
        capacities={"hbm": np.full(4, 2e12)},
        changes=((60e-6, 0, 25e9),),
    )
    return run(b.finish(), given)


@cache
def chain_run() -> Run:
    """One large message handed from GPU to GPU along a ring of wires."""
    b = Builder(6)
    piece, last = b.pieces([50_000_000]), None
    for hop in range(5):
        after = [] if last is None else [(last, ARRIVED)]
        last = b.rows(Style(), [hop], [hop + 1], piece, step=hop, after=after)
    return run(b.finish(), ring(6, 50e9, 1e-6))
