"""Odd: in a few words, what on a topology is unlike the rest and keeps a run from folding."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from netsim.arrays import different
from netsim.topology import NODE_KINDS, Topology
from netsim.units import format_bandwidth

MINORITY = 0.5  # of links of one kind: as many as may be the odd ones


def odd_one(topology: Topology, device: NDArray[np.int32]) -> str:
    """The first link or GPU that differs from most of its kind; "" if there is none."""
    return next(_odd_ones(topology, device), "")


def _odd_ones(topology: Topology, device: NDArray[np.int32]) -> Iterator[str]:
    yield from _odd_links(topology)
    for when, link, value in topology.changes:
        yield (
            f"link {topology.link_name(link)} changes to {format_bandwidth(value)} after {when:g} s"
        )
    for name in sorted(topology.capacities):
        given = topology.capacities[name][device]
        for place, most in _minority(given):
            gpu = topology.gpus[int(device[place])]
            yield f"{gpu} gives {given[place]:.3g} of {name} where others give {most:.3g}"
    hashed = getattr(getattr(topology.router, "policy", None), "routing", "") == "ecmp"
    if hashed:
        yield "paths are chosen by hash (routing: ecmp)"


def _odd_links(topology: Topology) -> Iterator[str]:
    """Links are of one kind that join the same kinds of nodes."""
    links, kinds = topology.links, topology.node_kinds.astype(np.int64)
    code = (links.kind.astype(np.int64) * len(NODE_KINDS) + kinds[links.tail]) * len(NODE_KINDS)
    code += kinds[links.head]
    rate = links.bandwidth[links.resource]
    for kind in different(code).tolist():
        mine = np.flatnonzero(code == kind)
        for place, most in _minority(rate[mine]):
            link = int(mine[place])
            have, others = format_bandwidth(float(rate[link])), format_bandwidth(most)
            yield f"link {topology.link_name(link)} has {have} where others have {others}"


def _minority(values: NDArray[np.float64]) -> Iterator[tuple[int, float]]:
    """The first that differs from most, and what most have."""
    found, first, count = np.unique(values, return_index=True, return_counts=True)
    rare = int(count.argmin())
    if len(found) > 1 and count[rare] < MINORITY * len(values) and count[rare] < count.max():
        yield int(first[rare]), float(found[count.argmax()])
