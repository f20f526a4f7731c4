"""Find, for messages, the first part of a cluster that differs from others of its kind.

If few ranks are equal, a message names the first part that makes them differ: a slow link, a change
of bandwidth at some time, a slow GPU, or paths that are chosen by hash.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from netsim.base.memo import different
from netsim.base.units import format_bandwidth
from netsim.program.partition import Placement
from netsim.topology.graph import NODE_KINDS, Topology

MAX_ODD_FRACTION = 0.5
"""Fraction of the parts of one kind that may be called odd, at most."""


def first_odd_part(placement: Placement) -> str:
    """Return a clause of a message on the first part that differs from most parts of its kind.

    It is "" if there is none. Example: "link node0.nic0->leaf0 has 25 GB/s where others have 50
    GB/s".
    """
    return next(_odd_parts(*placement), "")


def _odd_parts(topology: Topology, device: NDArray[np.int32]) -> Iterator[str]:
    """Yield a clause for each kind of part of which few differ from the others."""
    yield from _odd_links(topology)
    for when, link, bandwidth in topology.changes:
        name = topology.link_name(link)
        yield f"link {name} changes to {format_bandwidth(bandwidth)} after {when:g} s"
    for name in sorted(topology.capacities):
        capacity = topology.capacities[name][device]
        for place, usual in _first_odd_value(capacity):
            gpu = topology.gpus[int(device[place])]
            yield f"{gpu} gives {capacity[place]:.3g} of {name} where others give {usual:.3g}"
    routing = topology.router.hashed_routing
    if routing:
        yield f"paths are chosen by hash (routing: {routing})"


def _odd_links(topology: Topology) -> Iterator[str]:
    """Yield a clause for each kind of link in which a few links have another bandwidth.

    It names the first of these. Links are of one kind if they join the same kinds of nodes.
    """
    links = topology.links
    kinds = topology.node_kinds.astype(np.int64)
    kind = links.kind.astype(np.int64) * len(NODE_KINDS) + kinds[links.tail]
    kind = kind * len(NODE_KINDS) + kinds[links.head]
    bandwidth = links.bandwidth[links.resource]
    for number in different(kind).tolist():
        of_kind = np.flatnonzero(kind == number)
        for place, usual in _first_odd_value(bandwidth[of_kind]):
            link = int(of_kind[place])
            actual = format_bandwidth(float(bandwidth[link]))
            others = format_bandwidth(usual)
            yield f"link {topology.link_name(link)} has {actual} where others have {others}"


def _first_odd_value(values: NDArray[np.float64]) -> Iterator[tuple[int, float]]:
    """Yield one pair: the index of the first odd value, and the most frequent value.

    Odd is the rarest value. Nothing is yielded if it is not rarer than another, or not below
    `MAX_ODD_FRACTION` of all values.
    """
    unique, first, count = np.unique(values, return_index=True, return_counts=True)
    rarest = int(count.argmin())
    is_rare = count[rarest] < MAX_ODD_FRACTION * len(values) and count[rarest] < count.max()
    if len(unique) > 1 and is_rare:
        yield int(first[rarest]), float(unique[count.argmax()])
