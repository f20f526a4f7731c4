"""Classes of equal members of a schedule on a topology: ranks, links, NICs, and blocks of ranks.

Members of one class do the same at the same times, so one of them can be simulated for all. Classes
are found by color refinement, an algorithm that also tests whether two graphs are isomorphic. At
first every member has a color for what it is: a link for its bandwidth, a rank for the capacities
of its GPU. Then each round gives every member a new color made of its old one and the colors of
everything that it touches: a hop touches the blocks at both ends, the links of its route, the NICs,
and the ranks whose proxies serve it. If a round makes no more different colors than the round
before, every two members of one color touch equally many members of each color (an equitable
partition), and so have the same rates.

An example: a ring over 4 nodes with one rank each. If the nodes are equal, they are one class. If
one node has half the NIC bandwidth, its two links have a color of their own at first. After a round
so have the hops over them, then the blocks at the ends of these hops, then the hops that these
blocks send. In the end each node has another distance from the slow one, and is a class of its own.

Colors are 64-bit hashes: for a million members, two classes are mistaken for one with a probability
of 1e-7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netsim.base.memo import different
from netsim.base.values import dataclass
from netsim.schedule.partition import EqualMembers, Fold, Partition, Skeleton
from netsim.topology.graph import LINK_KINDS, NODE_KINDS, Topology
from netsim.topology.network import STEP, mixed

Colors = NDArray[np.uint64]
Ints = NDArray[np.int64]

MAX_ROUNDS = 600
"""Rounds of refinement; a ring of that many different hops takes as many."""
MIN_ROUNDS = 64
MAX_WORK = 200_000_000
"""Entries of hops and links looked at in all rounds: half a minute."""


class Placement(NamedTuple):
    """A topology, and by rank the number of its GPU there (`device`)."""

    topology: Topology
    device: NDArray[np.int32]


@dataclass
class Coloring:
    """The color of every block, rank, link (`wires`) and node of the topology."""

    blocks: Colors
    ranks: Colors
    wires: Colors
    nodes: Colors

    @property
    def color_count(self) -> int:
        """The number of different colors: of blocks, of ranks, of links and of nodes, added up."""
        members = (self.blocks, self.ranks, self.wires, self.nodes)
        return sum(len(different(colors)) for colors in members)


@dataclass(frozen=True, slots=True)
class SaturableLinks:
    """The links that can saturate, for calls in which most links never do.

    - `wires`: by link, whether it can saturate. Besides these links, only proxies, NICs and SMs
      can.
    - `host`: by rank, its node.

    With these the blocks of one rank may be in different classes.
    """

    wires: NDArray[np.bool_]
    host: Ints


@dataclass(frozen=True, slots=True)
class _Edges:
    """All hops of a skeleton: both ends, and the links of each route.

    By hop (-1 where there is none):

    - `src`, `dst`: the blocks at both ends.
    - `color`: a color of its label and latency.
    - `out_nic`, `in_nic`: the NICs through which data leaves a host and arrives.
    - `relay`: the rank from which data leaves its host.
    - `served`: only with `SaturableLinks`: the rank whose proxy receives the data.

    By entry, one for each hop and link of its route:

    - `hop`, `wire`: the hop and the link.
    - `part`: a color of the fraction of the data that crosses the link.
    """

    src: Ints
    dst: Ints
    color: Colors
    hop: Ints
    wire: Ints
    part: Colors
    out_nic: Ints
    in_nic: Ints
    relay: Ints
    served: Ints


# **** Refinement ****


def refine(
    skeleton: Skeleton,
    placement: Placement,
    max_rounds: int = MAX_ROUNDS,
    saturable: SaturableLinks | None = None,
) -> Coloring | None:
    """Return the colors of all members after refinement: rounds, until one adds no color.

    Members (blocks, ranks, links, nodes) have the same color if they and everything that they
    touch, directly or indirectly, look the same. None if that takes more than `max_rounds` rounds,
    or if nothing is sent. With `saturable`, hops touch only the links that can saturate.
    """
    if not skeleton.hops:
        return None
    edges = _edges(skeleton, placement, saturable)
    coloring = _first_coloring(skeleton, placement)
    if saturable is not None:
        coloring.blocks = _mix(coloring.blocks, coloring.ranks[skeleton.rank])
    count = coloring.color_count
    entries = len(edges.wire) + len(coloring.wires) + len(coloring.blocks)
    for _ in range(min(max_rounds, max(MIN_ROUNDS, MAX_WORK // entries))):
        coloring = _next_coloring(skeleton, edges, coloring, saturable)
        count_before = count
        count = coloring.color_count
        if count == count_before:
            return coloring
    return None


def is_stable(coloring: Coloring, skeleton: Skeleton, placement: Placement) -> bool:
    """Return whether one more round of refinement, with the hops of `skeleton`, adds no color.

    If so, members of one color remain equal under these hops.
    """
    refined = _next_coloring(skeleton, _edges(skeleton, placement), coloring)
    return refined.color_count == coloring.color_count


def hop_colors(coloring: Coloring, skeleton: Skeleton, placement: Placement) -> Colors:
    """Return the color of every hop of a skeleton.

    Two hops have equal colors if they have equal labels and latencies, and touch members of equal
    colors.
    """
    return _hop_colors(_edges(skeleton, placement), coloring)


def _hop_colors(edges: _Edges, coloring: Coloring) -> Colors:
    """Return the color of every hop.

    It is made of the hop's own color and the colors of the members that it touches.
    """
    hops = _mix(edges.color, coloring.blocks[edges.src], coloring.blocks[edges.dst])
    wires = _sum_by(edges.hop, mixed(coloring.wires[edges.wire] ^ edges.part), len(hops))
    hops = _mix(
        hops,
        wires,
        _color_at(coloring.nodes, edges.out_nic),
        _color_at(coloring.nodes, edges.in_nic),
    )
    return _mix(
        hops, _color_at(coloring.ranks, edges.relay), _color_at(coloring.ranks, edges.served)
    )


def _next_coloring(
    skeleton: Skeleton,
    edges: _Edges,
    coloring: Coloring,
    saturable: SaturableLinks | None = None,
) -> Coloring:
    """Return the coloring after one more round of refinement.

    A member's new color combines its old one with the colors of the hops that touch it.
    """
    hops = _hop_colors(edges, coloring)
    n_blocks = len(coloring.blocks)
    n_ranks = len(coloring.ranks)
    sent, received = (_sum_by(end, mixed(hops + STEP), n_blocks) for end in (edges.src, edges.dst))
    blocks_before = coloring.blocks
    if saturable is None:
        blocks_before = _mix(coloring.blocks, coloring.ranks[skeleton.rank])
    at_rank = _sum_by(skeleton.rank, mixed(coloring.blocks), n_ranks)
    relayed = _sum_by(edges.relay, mixed(hops), n_ranks)
    if saturable is not None:  # ranks of a host differ only by what their proxies do
        at_rank = _sum_by(saturable.host, at_rank, n_ranks)[saturable.host]
        relayed = _mix(relayed, _sum_by(edges.served, mixed(hops), n_ranks))
    on_wire = _sum_by(edges.wire, mixed(hops[edges.hop] ^ edges.part), len(coloring.wires))
    leaving, arriving = (
        _sum_by(nic, mixed(hops), len(coloring.nodes)) for nic in (edges.out_nic, edges.in_nic)
    )
    return Coloring(
        _mix(blocks_before, sent, received),
        _mix(coloring.ranks, at_rank, relayed),
        _mix(coloring.wires, on_wire),
        _mix(coloring.nodes, leaving, arriving),
    )


def _first_coloring(skeleton: Skeleton, placement: Placement) -> Coloring:
    """Return the colors before refinement, from the properties of each member alone.

    These are the kind of a block, the capacities of a rank's GPU and what else distinguishes it
    (`Skeleton.rank_kind`), and the bandwidth of a link, its changes in time and the kinds of its
    endpoints."""
    topology, links = placement.topology, placement.topology.links
    kinds = topology.node_kinds.astype(np.uint64)
    # Links may share a resource, as the first links of the routes of a multicast do; they have its
    # bandwidth.
    ends = kinds[links.tail] * np.uint64(len(NODE_KINDS)) + kinds[links.head]
    wires = _mix(_bits(links.bandwidth[links.resource]), ends)
    for when, link, bandwidth in topology.changes:
        change = _mix(_bits(np.array([when, bandwidth])))
        changed = slice(link, link + 1)
        wires[changed] = mixed(wires[changed] + change[:1] * STEP + change[1:])
    ranks = mixed(skeleton.rank_kind.astype(np.uint64))
    for name in sorted(topology.capacities):
        ranks = _mix(ranks, _bits(topology.capacities[name][placement.device]))
    blocks = _mix(skeleton.kind.astype(np.uint64))
    return Coloring(blocks, ranks, wires, np.zeros(len(topology.nodes), np.uint64))


def _edges(
    skeleton: Skeleton, placement: Placement, saturable: SaturableLinks | None = None
) -> _Edges:
    """Return the hops of a skeleton with the links of their routes; with `saturable` only with
    these links.
    """
    topology, device = placement
    is_nic = topology.node_kinds == NODE_KINDS.index("nic")
    rank_at = np.full(len(topology.nodes), -1)
    rank_at[topology.gpu_nodes[device]] = np.arange(len(device))
    parts = []
    first_hop = 0
    for hops in skeleton.hops:
        src, dst = (skeleton.rank[end] for end in (hops.src, hops.dst))
        channel = np.full(len(src), hops.channel, np.int32)
        routes = topology.routes(device[src], device[dst], channel, hops.route)
        hop = np.repeat(np.arange(len(src)), np.diff(routes.ptr))
        tail, head = (end[routes.link] for end in (topology.links.tail, topology.links.head))
        relay = src.astype(np.int64)
        leaves_rank = rank_at[tail] >= 0
        relay[hop[leaves_rank]] = rank_at[tail[leaves_rank]]
        out_nic = np.full(len(src), -1)
        in_nic = np.full(len(src), -1)
        out_nic[hop[is_nic[head]][::-1]] = head[is_nic[head]][::-1]  # the first NIC of a route
        in_nic[hop[is_nic[tail]]] = tail[is_nic[tail]]  # the last one
        served = np.full(len(src), -1)
        if saturable is not None:
            served[in_nic >= 0] = dst[in_nic >= 0]
            relay[out_nic < 0] = -1
        color = _mix(hops.label.astype(np.uint64), _rounded_bits(routes.latency))
        wire = topology.links.resource[routes.link]
        part = _mix(_rounded_bits(routes.fraction))
        entries = slice(None) if saturable is None else saturable.wires[wire]
        parts.append(
            (
                hops.src.astype(np.int64),
                hops.dst.astype(np.int64),
                color,
                hop[entries] + first_hop,
                wire[entries],
                part[entries],
                out_nic,
                in_nic,
                relay,
                served,
            )
        )
        first_hop += len(src)
    return _Edges(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _mix(*columns: Colors) -> Colors:
    """Return a hash of several columns of colors: rows with equal colors get equal results."""
    result = mixed(columns[0])
    for column in columns[1:]:
        result = mixed(result * STEP + column)
    return result


def _sum_by(place: NDArray[np.integer], colors: Colors, size: int) -> Colors:
    """Return for each place from 0 to `size` - 1 the sum of its colors modulo 2**64.

    `place` is the place of each color; those with a negative place do not count. The order of
    colors does not matter.
    """
    total = np.zeros(size, np.uint64)
    counts = place >= 0
    np.add.at(total, place[counts], colors[counts])
    return total


def _color_at(colors: Colors, place: Ints) -> Colors:
    """Return `colors[place]`, or 0 where the place is negative (there is no such member)."""
    return np.where(place >= 0, colors[place], np.uint64(0))


def _bits(values: NDArray[np.float64]) -> Colors:
    """Return the bits of floats as integers, which serve as colors."""
    return np.ascontiguousarray(values, np.float64).view(np.uint64)


def _rounded_bits(values: NDArray[np.float64]) -> Colors:
    """Return colors of values that are rounded to 32-bit floats.

    Sums of the same terms in another order differ in the last digits, but get equal colors.
    """
    return _bits(values.astype(np.float32))


# **** From colors to classes ****


def find_partition(
    skeleton: Skeleton,
    placement: Placement,
    checks: Sequence[Skeleton] = (),
    max_rounds: int = MAX_ROUNDS,
) -> Partition | None:
    """Return the classes of equal members of a skeleton on a topology.

    None if refinement does not finish in `max_rounds` rounds, or if the hops of one of the
    skeletons `checks` would divide a class.
    """
    coloring = refine(skeleton, placement, max_rounds)
    if coloring is None or not all(is_stable(coloring, check, placement) for check in checks):
        return None
    return partition_of(skeleton, coloring)


def find_partition_of_channels(
    skeleton: Skeleton, placement: Placement, saturable: SaturableLinks
) -> Partition | None:
    """Return the classes of equal channels if only some links can saturate.

    Channels may be equal although they use different links and GPUs, if these can never saturate.
    Ranks of one host are equal but for what their proxies do. None if refinement does not finish.
    """
    coloring = refine(skeleton, placement, MAX_ROUNDS, saturable)
    if coloring is None:
        return None
    # Of a link that never saturates only the amount of data matters. Inside a host, all such links
    # of one kind get one color, so that each has the mean of their amounts.
    links = placement.topology.links
    loose = ~saturable.wires
    is_inside = loose & (links.kind < LINK_KINDS.index("nic"))
    edges = _edges(skeleton, placement)
    hops = _hop_colors(edges, coloring)
    crossing = _sum_by(edges.wire, mixed(hops[edges.hop] ^ edges.part), len(links))
    kind = _mix(links.kind.astype(np.uint64), _bits(links.bandwidth[links.resource]))
    outside = np.where(loose, _mix(coloring.wires, crossing), coloring.wires)
    coloring.wires = np.where(is_inside, kind, outside)
    partition = partition_of(skeleton, coloring)
    return replace(partition, fold=replace(partition.fold, loose=loose))


def partition_of(skeleton: Skeleton, coloring: Coloring) -> Partition:
    """Return the partition in which all members of one color are one class."""
    # Lanes are equal if they have blocks of the same colors. The first of them is written.
    lane_count = int(skeleton.lane.max(initial=-1)) + 1
    lane_colors = _sum_by(skeleton.lane, mixed(coloring.blocks), lane_count)
    _, first, count = np.unique(lane_colors, return_index=True, return_counts=True)
    copies = dict(sorted(zip(first.tolist(), count.tolist(), strict=True)))
    fold = Fold(
        equal_members(coloring.ranks),
        equal_members(coloring.wires),
        equal_members(coloring.nodes),
        _equal_blocks(skeleton, coloring, copies),
    )
    return Partition(fold, copies, np.unique(coloring.blocks, return_inverse=True)[1])


def equal_members(colors: Colors) -> EqualMembers:
    """Return the classes of members with equal colors.

    The first member of each class represents the class.
    """
    _, first, place, count = np.unique(
        colors, return_index=True, return_inverse=True, return_counts=True
    )
    return EqualMembers(first[place].astype(np.int32), count[place].astype(np.int32))


def _equal_blocks(
    skeleton: Skeleton, coloring: Coloring, copies: dict[int, int]
) -> dict[int, EqualMembers]:
    """Return by channel that is written the classes of the SMs of all ranks on that channel.

    All blocks of a rank on one channel run on one SM. `copies` has as keys the lanes that are
    written. A member is the SM of a rank; its representative has the number channel × ranks + rank.
    """
    code = skeleton.channel.astype(np.int64) * skeleton.ranks + skeleton.rank
    sm_code, place = np.unique(code, return_inverse=True)
    equal_sms = equal_members(_sum_by(place, mixed(coloring.blocks), len(sm_code)))
    written = different(skeleton.channel[np.isin(skeleton.lane, list(copies))])
    blocks = {}
    for channel in written.tolist():
        of_channel = np.flatnonzero(sm_code // skeleton.ranks == channel)
        first = np.zeros(skeleton.ranks, np.int64)
        count = np.ones(skeleton.ranks, np.int32)
        rank = sm_code[of_channel] % skeleton.ranks
        first[rank] = sm_code[equal_sms.first[of_channel]]
        count[rank] = equal_sms.count[of_channel]
        blocks[channel] = EqualMembers(first.astype(np.int64), count)
    return blocks
