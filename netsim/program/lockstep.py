"""Ranks that keep step: each sends one message and receives one, step after step.

In textbook algorithms such as pairwise exchange every rank sends one message per step, and only the
end waits for the data that arrives. As long as all ranks keep step, a link that can carry all
messages of a step at full rate slows none of them. So ranks may be treated as equal although their
messages cross different links with different latencies, if

- in every step each rank sends one message and receives one,
- all messages of a step together are as fast as each alone, and all have the same rate,
- the links of all steps are in levels (first link of a route, second, ...): the links of a level
  have one bandwidth and carry equally many messages, and every route goes from level to level,
- everything else that ranks do makes them one class (`partition.py`), and crosses no link of these
  levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from netsim.base.memo import different
from netsim.base.values import dataclass
from netsim.program.partition import Coloring, Colors, Ints, Placement, partition_of, refine
from netsim.schedule.partition import Partition, Skeleton
from netsim.topology.graph import Topology
from netsim.topology.network import mixed

Levels = NDArray[np.int8]
SomeInts = Ints | NDArray[np.int32]
Step = tuple[SomeInts, SomeInts]
"""Senders and receivers of the messages of one step."""

ROUNDING = 1e-9
"""Fraction by which the load of a link may exceed its bandwidth."""


@dataclass(frozen=True, slots=True)
class Lockstep:
    """The classes of ranks that keep step.

    - `rate`: the rate of messages in the slowest step, in bytes/s.
    - `spread`: the largest difference between the latencies of two messages, in seconds.
    """

    partition: Partition
    rate: float
    spread: float


def find_lockstep(
    skeleton: Skeleton, steps: Sequence[Step], placement: Placement
) -> Lockstep | None:
    """Return the classes of ranks that keep step on a topology; None if they may not keep step.

    - `skeleton`: everything that ranks do besides these steps.
    - `steps`: some of the steps, each as an array of senders and one of receivers. One of them must
      contain only routes as long as the longest route of all steps.
    """
    topology, device = placement
    if topology.changes or not steps or not _is_one_message_each(steps, skeleton.ranks):
        return None
    loads = []
    for src, dst in steps:
        load = _load_of_step(topology, device[src], device[dst])
        if load is None:
            return None
        loads.append(load)
    level = _levels(loads, topology.links.bandwidth)
    coloring = None if level is None else refine(skeleton, placement)
    if level is None or coloring is None or len(different(coloring.blocks)) > 1:
        return None
    if np.isin(coloring.wires[level >= 0], _colors_besides(coloring, skeleton, placement)).any():
        return None
    wires = np.where(level >= 0, mixed(level.astype(np.uint64)), coloring.wires)
    partition = partition_of(skeleton, replace(coloring, wires=wires))
    latest = max(load.latest for load in loads)
    soonest = min(load.soonest for load in loads)
    return Lockstep(partition, min(load.rate for load in loads), latest - soonest)


@dataclass(frozen=True, slots=True)
class _StepLoad:
    """The load that the messages of one step put on links, all at once.

    - `rate`: the rate of each message, in bytes/s.
    - `soonest`, `latest`: the least and the greatest latency of a message, in seconds.
    - `ptr`, `wire`: message i crosses the links `wire[ptr[i]:ptr[i + 1]]`, in order.
    - `load`: by link, the number of messages that it carries (a fraction where a message is
      divided).
    """

    rate: float
    soonest: float
    latest: float
    ptr: Ints
    wire: NDArray[np.int32]
    load: NDArray[np.float64]


def _is_one_message_each(steps: Sequence[Step], ranks: int) -> bool:
    """Return whether each rank sends one message and receives one in every step."""
    ends = (end for step in steps for end in step)
    return all((np.bincount(end, minlength=ranks) == 1).all() for end in ends)


def _load_of_step(
    topology: Topology, src: NDArray[np.int32], dst: NDArray[np.int32]
) -> _StepLoad | None:
    """Return the load of a step in which GPU `src[i]` sends to GPU `dst[i]`, for all i.

    None if all messages together are slower than each alone, or if their rates alone differ.
    """
    routes = topology.routes(src, dst, 0 * src)
    bandwidth = topology.links.bandwidth
    wire = topology.links.resource[routes.link]
    latency = routes.latency
    rate_alone = np.minimum.reduceat(bandwidth[wire] / routes.fraction, routes.ptr[:-1])
    load = np.bincount(wire, routes.fraction, len(bandwidth)).astype(np.float64)
    rate = float(rate_alone.min())
    if rate_alone.max() > rate or (load * rate > bandwidth * (1 + ROUNDING)).any():
        return None
    return _StepLoad(rate, float(latency.min()), float(latency.max()), routes.ptr, wire, load)


def _levels(loads: Sequence[_StepLoad], bandwidth: NDArray[np.float64]) -> Levels | None:
    """Return by link its level, which is its place in routes from 0 on; -1 if no step crosses it.

    The levels come from those steps in which every route is as long as the longest route of all
    steps. None if links of a level differ in bandwidth or load, or if a route of any step does not
    ascend from level to level.
    """
    lengths = [np.diff(load.ptr) for load in loads]
    longest = max(int(length.max()) for length in lengths)
    of_longest = [
        load for load, length in zip(loads, lengths, strict=True) if length.min() == longest
    ]
    if not of_longest or longest > np.iinfo(np.int8).max:
        return None
    level = np.full(len(bandwidth), -1, np.int8)
    route_count = len(of_longest[0].ptr) - 1
    level[of_longest[0].wire] = np.tile(np.arange(longest, dtype=np.int8), route_count)
    has_even_loads = all(_is_even(level, load.load) for load in of_longest)
    if not has_even_loads or not _is_even(level, bandwidth):
        return None
    return level if all(_ascends(level, load) for load in loads) else None


def _is_even(level: Levels, values: NDArray[np.float64]) -> bool:
    """Return whether within each level all links have the same value (`values` are by link)."""
    crossed = np.flatnonzero(level >= 0)
    value_of_level = np.zeros(int(level.max()) + 1)
    value_of_level[level[crossed]] = values[crossed]
    return bool((value_of_level[level[crossed]] == values[crossed]).all())


def _ascends(level: Levels, load: _StepLoad) -> bool:
    """Return whether on every route of a step the levels of its links ascend."""
    levels = level[load.wire].astype(np.int64)
    is_higher = np.diff(levels) > 0
    is_higher[load.ptr[1:-1] - 1] = True  # the next route begins
    return bool((levels >= 0).all() and is_higher.all())


def _colors_besides(coloring: Coloring, skeleton: Skeleton, placement: Placement) -> Colors:
    """Return the colors of the links that the hops of one rank in `skeleton` cross.

    All ranks are of one class, so the hops of any other rank cross links of the same colors.
    """
    topology, device = placement
    parts = [np.zeros(0, np.uint64)]
    for hops in skeleton.hops:
        of_first = np.flatnonzero(hops.src == hops.src[:1])
        src, dst = (device[skeleton.rank[end[of_first]]] for end in (hops.src, hops.dst))
        channel = np.full(len(of_first), hops.channel, np.int32)
        routes = topology.routes(src, dst, channel, hops.route)
        parts.append(coloring.wires[topology.links.resource[routes.link]])
    return np.concatenate(parts)
