"""Steps that all ranks take together: each sends one message and receives one, step after step.

Only the end waits for what arrives. As long as all ranks keep step, a wire that has room for a
whole step at once slows nobody, so ranks need not be told apart by the wires that they cross, nor
by latencies. Whether they differ in anything else is left to colours (`refine`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from netsim.arrays import different
from netsim.program.refine import Classes, Colours, classes, mixed
from netsim.program.symmetry import symmetry_in
from netsim.schedule import Skeleton, Symmetry
from netsim.topology import Topology

Ints = NDArray[np.int64]
Levels = NDArray[np.int8]
Step = tuple[Ints, Ints]  # who sends to whom
ROOM = 1e-9  # by which what is asked of a wire may exceed what it has: rounding


@dataclass(frozen=True, slots=True)
class Together:
    """What is alike where ranks keep step; the rate of messages in the slowest step (bytes/s), and
    by how many seconds the latencies of any two may differ.
    """

    symmetry: Symmetry
    rate: float
    spread: float


def together(
    skeleton: Skeleton, steps: Sequence[Step], topology: Topology, device: NDArray[np.int32]
) -> Together | None:
    """What is alike where ranks keep step on a topology; None where they may not. `skeleton` is all
    else that they do, `steps` are some of the steps, in one of which all ways are as long as any.
    """
    if topology.changes or not steps or not _everyone(steps, skeleton.ranks):
        return None
    passed = []
    for src, dst in steps:
        one = _passed(topology, device[src], device[dst])
        if one is None:
            return None
        passed.append(one)
    level = _levels(passed, topology.links.bandwidth)
    found = None if level is None else classes(skeleton, topology, device)
    if level is None or found is None or len(different(found.blocks)) > 1:
        return None
    if np.isin(found.wires[level >= 0], _elsewhere(found, skeleton, topology, device)).any():
        return None
    wires = np.where(level >= 0, mixed(level.astype(np.uint64)), found.wires)
    latest, soonest = max(one.latest for one in passed), min(one.soonest for one in passed)
    symmetry = symmetry_in(skeleton, replace(found, wires=wires))
    return Together(symmetry, min(one.rate for one in passed), latest - soonest)


@dataclass(frozen=True, slots=True)
class _Passed:
    """A step: the rate of its messages, their least and greatest latency, the wires of each in the
    order of its way (CSR form), and what part of how many messages each wire carries.
    """

    rate: float
    soonest: float
    latest: float
    ptr: Ints
    wire: NDArray[np.int32]
    load: NDArray[np.float64]


def _everyone(steps: Sequence[Step], ranks: int) -> bool:
    """Whether everybody sends one message and receives one in every step."""
    ends = (end for step in steps for end in step)
    return all((np.bincount(end, minlength=ranks) == 1).all() for end in ends)


def _passed(topology: Topology, src: NDArray[np.int32], dst: NDArray[np.int32]) -> _Passed | None:
    """None if not all messages of a step are as fast at once as each alone, and as each other."""
    routes, capacity = topology.routes(src, dst, 0 * src), topology.links.bandwidth
    wire, latency = topology.links.resource[routes.link], routes.latency
    alone = np.minimum.reduceat(capacity[wire] / routes.fraction, routes.ptr[:-1])
    load = np.bincount(wire, routes.fraction, len(capacity)).astype(np.float64)
    rate = float(alone.min())
    if alone.max() > rate or (load * rate > capacity * (1 + ROOM)).any():
        return None
    return _Passed(rate, float(latency.min()), float(latency.max()), routes.ptr, wire, load)


def _levels(passed: Sequence[_Passed], capacity: NDArray[np.float64]) -> Levels | None:
    """How far on the way every wire is that steps cross (-1: none does), from those in which all
    ways are as long as any. None if wires of a level differ, or ways do not go from level to level.
    """
    lengths = [np.diff(one.ptr) for one in passed]
    longest = max(int(length.max()) for length in lengths)
    whole = [one for one, length in zip(passed, lengths, strict=True) if length.min() == longest]
    if not whole or longest > np.iinfo(np.int8).max:
        return None
    level = np.full(len(capacity), -1, np.int8)
    level[whole[0].wire] = np.tile(np.arange(longest, dtype=np.int8), len(whole[0].ptr) - 1)
    even = all(_even(level, one.load) for one in whole) and _even(level, capacity)
    return level if even and all(_ascends(level, one) for one in passed) else None


def _even(level: Levels, values: NDArray[np.float64]) -> bool:
    """Whether all wires of a level have the same value."""
    mine = np.flatnonzero(level >= 0)
    one = np.zeros(int(level.max()) + 1)
    one[level[mine]] = values[mine]
    return bool((one[level[mine]] == values[mine]).all())


def _ascends(level: Levels, step: _Passed) -> bool:
    """Whether every way of a step goes on to a higher level from wire to wire."""
    found = level[step.wire].astype(np.int64)
    on = np.diff(found) > 0
    on[step.ptr[1:-1] - 1] = True  # another way begins
    return bool((found >= 0).all() and on.all())


def _elsewhere(
    found: Classes, skeleton: Skeleton, topology: Topology, device: NDArray[np.int32]
) -> Colours:
    """The colours of wires that a rank crosses besides its steps; all others cross such, too."""
    parts = [np.zeros(0, np.uint64)]
    for hops in skeleton.hops:
        own = np.flatnonzero(hops.src == hops.src[:1])
        src, dst = (device[skeleton.rank[end[own]]] for end in (hops.src, hops.dst))
        routes = topology.routes(src, dst, np.full(len(own), hops.channel, np.int32), hops.route)
        parts.append(found.wires[topology.links.resource[routes.link]])
    return np.concatenate(parts)
