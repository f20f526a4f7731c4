"""Colours: the coarsest classes of blocks, ranks, wires and NICs that cannot be told apart.

Everything starts with what it is; then it is told apart by what it touches, until nothing changes.
In such classes every row has the same rate (an equitable partition), so one row can stand for all.
Colours are 64-bit hashes of what was seen, so that two classes are taken for one at odds of 1e-7
for a million things.
"""

import numpy as np
from numpy.typing import NDArray

from netsim.arrays import different
from netsim.schedule import Skeleton
from netsim.topology import NODE_KINDS, Topology
from netsim.values import dataclass

Colours = NDArray[np.uint64]
Ints = NDArray[np.int64]
MOST_ROUNDS = 600  # of telling apart; a ring of as many different hops takes that long
LEAST_ROUNDS = 64
MOST_WORK = 200_000_000  # entries of hops and wires looked at in all rounds: half a minute

_MIX = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
    (np.uint64(31), np.uint64(1)),
)
_BLOCK = 1 << 15  # numbers mixed at a time: few enough for the processor's caches
_STEP = np.uint64(0x9E3779B97F4A7C15)


@dataclass
class Classes:
    """The colour of every block, rank, wire and node."""

    blocks: Colours
    ranks: Colours
    wires: Colours
    nodes: Colours


@dataclass(frozen=True, slots=True)
class _Edges:
    """All hops together: their ends, and the wires of each in CSR form."""

    src: Ints
    dst: Ints
    own: Colours
    hop: Ints  # of every entry
    wire: Ints
    part: Colours
    out_nic: Ints  # -1: none
    in_nic: Ints
    relay: Ints  # the rank from which data leaves its host


def classes(
    skeleton: Skeleton, topology: Topology, device: NDArray[np.int32], most: int = MOST_ROUNDS
) -> Classes | None:
    """The classes on one topology; None if they are not found in as many rounds as may be."""
    edges = _edges(skeleton, topology, device)
    found = _at_first(skeleton, topology, device)
    known, size = _number(found), len(edges.wire) + len(found.wires) + len(found.blocks)
    for _ in range(min(most, max(LEAST_ROUNDS, MOST_WORK // size))):
        found = _round(skeleton, edges, found)
        number = _number(found)
        if number == known:
            return found
        known = number
    return None


def holds(
    found: Classes, skeleton: Skeleton, topology: Topology, device: NDArray[np.int32]
) -> bool:
    """Whether further hops do not tell classes apart."""
    return _number(_round(skeleton, _edges(skeleton, topology, device), found)) == _number(found)


def hop_colours(
    found: Classes, skeleton: Skeleton, topology: Topology, device: NDArray[np.int32]
) -> Colours:
    """The colours of further hops, one for all that touch the same."""
    return _hops(_edges(skeleton, topology, device), found)


def _hops(edges: _Edges, was: Classes) -> Colours:
    """Every hop by what it touches."""
    hop = _told(edges.own, was.blocks[edges.src], was.blocks[edges.dst])
    wires = _sums(edges.hop, mixed(was.wires[edges.wire] ^ edges.part), len(hop))
    hop = _told(hop, wires, _of(was.nodes, edges.out_nic), _of(was.nodes, edges.in_nic))
    return _told(hop, _of(was.ranks, edges.relay))


def _round(skeleton: Skeleton, edges: _Edges, was: Classes) -> Classes:
    """Everything by what it was and by what it touches."""
    hop = _hops(edges, was)
    size = len(was.blocks)
    out, into = (_sums(end, mixed(hop + _STEP), size) for end in (edges.src, edges.dst))
    blocks = _told(was.blocks, was.ranks[skeleton.rank], out, into)
    on_wire = _sums(edges.wire, mixed(hop[edges.hop] ^ edges.part), len(was.wires))
    relayed = _sums(edges.relay, mixed(hop), len(was.ranks))
    at_rank = _sums(skeleton.rank, mixed(was.blocks), len(was.ranks))
    leaves, arrives = (
        _sums(nic, mixed(hop), len(was.nodes)) for nic in (edges.out_nic, edges.in_nic)
    )
    return Classes(
        blocks,
        _told(was.ranks, at_rank, relayed),
        _told(was.wires, on_wire),
        _told(was.nodes, leaves, arrives),
    )


def _at_first(skeleton: Skeleton, topology: Topology, device: NDArray[np.int32]) -> Classes:
    """What everything is by itself."""
    links = topology.links
    wires = _told(_bits(links.bandwidth[links.resource]))
    for when, link, value in topology.changes:
        here = _told(_bits(np.array([when, value])))
        one = slice(link, link + 1)
        wires[one] = mixed(wires[one] + here[:1] * _STEP + here[1:])
    ranks = mixed(skeleton.turn.astype(np.uint64))
    for name in sorted(topology.capacities):
        ranks = _told(ranks, _bits(topology.capacities[name][device]))
    blocks = _told(skeleton.kind.astype(np.uint64))
    return Classes(blocks, ranks, wires, np.zeros(len(topology.nodes), np.uint64))


def _edges(skeleton: Skeleton, topology: Topology, device: NDArray[np.int32]) -> _Edges:
    on_nic = topology.node_kinds == NODE_KINDS.index("nic")
    rank_at = np.full(len(topology.nodes), -1)
    rank_at[topology.gpu_nodes[device]] = np.arange(len(device))
    parts, first = [], 0
    for hops in skeleton.hops:
        src, dst = (skeleton.rank[end] for end in (hops.src, hops.dst))
        channel = np.full(len(src), hops.channel, np.int32)
        routes = topology.routes(device[src], device[dst], channel, hops.route)
        hop = np.repeat(np.arange(len(src)), np.diff(routes.ptr))
        tail, head = (end[routes.link] for end in (topology.links.tail, topology.links.head))
        relay = src.astype(np.int64)
        at = rank_at[tail] >= 0
        relay[hop[at]] = rank_at[tail[at]]
        out_nic, in_nic = np.full(len(src), -1), np.full(len(src), -1)
        out_nic[hop[on_nic[head]][::-1]] = head[on_nic[head]][::-1]
        in_nic[hop[on_nic[tail]]] = tail[on_nic[tail]]
        own = _told(hops.label.astype(np.uint64), _bits(routes.latency))
        wire = topology.links.resource[routes.link]
        # Where on its way a hop meets a wire: what fans out has one of the first and many others.
        place = np.arange(len(hop)) - routes.ptr[:-1][hop]
        part = _told(_bits(routes.fraction), place.astype(np.uint64))
        ends = hops.src.astype(np.int64), hops.dst.astype(np.int64)
        parts.append((*ends, own, hop + first, wire, part, out_nic, in_nic, relay))
        first += len(src)
    return _Edges(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def mixed(values: Colours) -> Colours:
    """Numbers spread over all 64 bits."""
    result: Colours = values + _STEP
    shifted = np.empty(min(len(result), _BLOCK), np.uint64)
    for first in range(0, len(result), _BLOCK):
        block = result[first : first + _BLOCK]
        for shift, factor in _MIX:
            np.right_shift(block, shift, out=shifted[: len(block)])
            block ^= shifted[: len(block)]
            block *= factor
    return result


def _told(*columns: Colours) -> Colours:
    """One colour for each different combination."""
    result = mixed(columns[0])
    for column in columns[1:]:
        result = mixed(result * _STEP + column)
    return result


def _sums(place: NDArray[np.integer], values: Colours, size: int) -> Colours:
    """The sum of all values of each place (mod 2**64); places below 0 do not count."""
    total = np.zeros(size, np.uint64)
    there = place >= 0
    np.add.at(total, place[there], values[there])
    return total


def _of(colours: Colours, place: Ints) -> Colours:
    return np.where(place >= 0, colours[place], np.uint64(0))


def _bits(values: NDArray[np.float64]) -> Colours:
    return np.ascontiguousarray(values, np.float64).view(np.uint64)


def _number(found: Classes) -> int:
    """How many classes there are."""
    every = (found.blocks, found.ranks, found.wires, found.nodes)
    return sum(len(different(colours)) for colours in every)
