"""What of a schedule on a topology cannot be told apart, and stands for the rest.

Everything starts with what it is; then it is told apart by what it touches, until nothing changes.
In such classes every row has the same rate (an equitable partition), so one row can stand for all.
Colours are 64-bit hashes of what was seen, so that two classes are taken for one at odds of 1e-7
for a million things."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netsim.base.memo import different
from netsim.base.units import format_bandwidth
from netsim.base.values import dataclass
from netsim.schedule.schedule import Alike, Fold, Skeleton, Symmetry
from netsim.topology.graph import LINK_KINDS, NODE_KINDS, Topology
from netsim.topology.network import STEP, mixed

Colours = NDArray[np.uint64]
Ints = NDArray[np.int64]
MOST_ROUNDS = 600  # of telling apart; a ring of as many different hops takes that long
LEAST_ROUNDS = 64
MOST_WORK = 200_000_000  # entries of hops and wires looked at in all rounds: half a minute


class Where(NamedTuple):
    """A topology, and the device of every rank on it."""

    topology: Topology
    device: NDArray[np.int32]


@dataclass
class Classes:
    """The colour of every block, rank, wire and node."""

    blocks: Colours
    ranks: Colours
    wires: Colours
    nodes: Colours


@dataclass(frozen=True, slots=True)
class Tight:
    """Which wires can ever be full, by link, where of all else that blocks share only proxies and
    NICs can be: blocks of a rank may then differ. `home` is the host of every rank."""

    wires: NDArray[np.bool_]
    home: Ints


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
    served: Ints  # the rank whose proxy receives it, where that is not its block's


def classes(
    skeleton: Skeleton, where: Where, most: int = MOST_ROUNDS, tight: Tight | None = None
) -> Classes | None:
    """The classes on one topology; None if they are not found in as many rounds as may be, or if
    nothing is sent that could tell them apart."""
    if not skeleton.hops:
        return None
    edges, found = _edges(skeleton, where, tight), _at_first(skeleton, where)
    if tight is not None:
        found.blocks = _told(found.blocks, found.ranks[skeleton.rank])
    known, size = _number(found), len(edges.wire) + len(found.wires) + len(found.blocks)
    for _ in range(min(most, max(LEAST_ROUNDS, MOST_WORK // size))):
        found = _round(skeleton, edges, found, tight)
        number = _number(found)
        if number == known:
            return found
        known = number
    return None


def holds(found: Classes, skeleton: Skeleton, where: Where) -> bool:
    """Whether further hops do not tell classes apart."""
    return _number(_round(skeleton, _edges(skeleton, where), found)) == _number(found)


def hop_colours(found: Classes, skeleton: Skeleton, where: Where) -> Colours:
    """The colours of further hops, one for all that touch the same."""
    return _hops(_edges(skeleton, where), found)


def _hops(edges: _Edges, was: Classes) -> Colours:
    hop = _told(edges.own, was.blocks[edges.src], was.blocks[edges.dst])
    wires = _sums(edges.hop, mixed(was.wires[edges.wire] ^ edges.part), len(hop))
    hop = _told(hop, wires, _of(was.nodes, edges.out_nic), _of(was.nodes, edges.in_nic))
    return _told(hop, _of(was.ranks, edges.relay), _of(was.ranks, edges.served))


def _round(skeleton: Skeleton, edges: _Edges, was: Classes, tight: Tight | None = None) -> Classes:
    hop = _hops(edges, was)
    size = len(was.blocks)
    out, into = (_sums(end, mixed(hop + STEP), size) for end in (edges.src, edges.dst))
    own = was.blocks if tight else _told(was.blocks, was.ranks[skeleton.rank])
    blocks = _told(own, out, into)
    on_wire = _sums(edges.wire, mixed(hop[edges.hop] ^ edges.part), len(was.wires))
    relayed = _sums(edges.relay, mixed(hop), len(was.ranks))
    at_rank = _sums(skeleton.rank, mixed(was.blocks), len(was.ranks))
    if tight is not None:  # ranks of a host are told apart by what their proxies do alone
        at_rank = _sums(tight.home, at_rank, len(was.ranks))[tight.home]
        relayed = _told(relayed, _sums(edges.served, mixed(hop), len(was.ranks)))
    leaves, arrives = (
        _sums(nic, mixed(hop), len(was.nodes)) for nic in (edges.out_nic, edges.in_nic)
    )
    return Classes(
        blocks,
        _told(was.ranks, at_rank, relayed),
        _told(was.wires, on_wire),
        _told(was.nodes, leaves, arrives),
    )


def _at_first(skeleton: Skeleton, where: Where) -> Classes:
    """What everything is by itself."""
    topology, links = where.topology, where.topology.links
    kinds = topology.node_kinds.astype(np.uint64)
    # Of what fans out, the first wire is crossed by all together.
    ends = kinds[links.tail] * np.uint64(len(NODE_KINDS)) + kinds[links.head]
    wires = _told(_bits(links.bandwidth[links.resource]), ends)
    for when, link, value in topology.changes:
        here = _told(_bits(np.array([when, value])))
        one = slice(link, link + 1)
        wires[one] = mixed(wires[one] + here[:1] * STEP + here[1:])
    ranks = mixed(skeleton.turn.astype(np.uint64))
    for name in sorted(topology.capacities):
        ranks = _told(ranks, _bits(topology.capacities[name][where.device]))
    blocks = _told(skeleton.kind.astype(np.uint64))
    return Classes(blocks, ranks, wires, np.zeros(len(topology.nodes), np.uint64))


def _edges(skeleton: Skeleton, where: Where, tight: Tight | None = None) -> _Edges:
    topology, device = where
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
        served = np.full(len(src), -1)
        if tight is not None:
            served[in_nic >= 0], relay[out_nic < 0] = dst[in_nic >= 0], -1
        own = _told(hops.label.astype(np.uint64), _sum_bits(routes.latency))
        wire = topology.links.resource[routes.link]
        part = _told(_sum_bits(routes.fraction))
        ends = hops.src.astype(np.int64), hops.dst.astype(np.int64)
        some = slice(None) if tight is None else tight.wires[wire]
        on = hop[some] + first, wire[some], part[some]
        parts.append((*ends, own, *on, out_nic, in_nic, relay, served))
        first += len(src)
    return _Edges(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _told(*columns: Colours) -> Colours:
    result = mixed(columns[0])
    for column in columns[1:]:
        result = mixed(result * STEP + column)
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


def _sum_bits(values: NDArray[np.float64]) -> Colours:
    """The same for equal sums whose last digits differ with the order of what was added."""
    return _bits(values.astype(np.float32))


def _number(found: Classes) -> int:
    every = (found.blocks, found.ranks, found.wires, found.nodes)
    return sum(len(different(colours)) for colours in every)


def symmetry_of(
    skeleton: Skeleton, where: Where, checks: Sequence[Skeleton] = (), rounds: int = MOST_ROUNDS
) -> Symmetry | None:
    """What of a skeleton is alike on a topology; None if that is not found, or if further hops
    (`checks`) are not alike where it is, or not in so many rounds."""
    found = classes(skeleton, where, rounds)
    if found is None or not all(holds(found, one, where) for one in checks):
        return None
    return symmetry_in(skeleton, found)


def loose_symmetry(skeleton: Skeleton, where: Where, tight: Tight) -> Symmetry | None:
    """What is alike but for what can never be full: lanes then, and what they share, but no ranks,
    of which those of a host begin together. None if that is not found."""
    found = classes(skeleton, where, MOST_ROUNDS, tight)
    if found is None:
        return None
    # What is never full only has amounts: those of wires within hosts are the mean of all such.
    links, loose = where.topology.links, ~tight.wires
    inner = loose & (links.kind < LINK_KINDS.index("nic"))
    edges = _edges(skeleton, where)
    crossed = _sums(edges.wire, mixed(_hops(edges, found)[edges.hop] ^ edges.part), len(links))
    kind = _told(links.kind.astype(np.uint64), _bits(links.bandwidth[links.resource]))
    found.wires = np.where(inner, kind, np.where(loose, _told(found.wires, crossed), found.wires))
    symmetry = symmetry_in(skeleton, found)
    return replace(symmetry, fold=replace(symmetry.fold, loose=loose))


def symmetry_in(skeleton: Skeleton, found: Classes) -> Symmetry:
    """What is alike in classes that were found."""
    # The first of the lanes that have the same blocks, and how many they are.
    lanes = int(skeleton.lane.max(initial=-1)) + 1
    total = np.zeros(lanes, np.uint64)
    np.add.at(total, skeleton.lane, mixed(found.blocks))
    _, first, count = np.unique(total, return_index=True, return_counts=True)
    copies = dict(sorted(zip(first.tolist(), count.tolist(), strict=True)))
    fold = Fold(
        alike(found.ranks), alike(found.wires), alike(found.nodes), _blocks(skeleton, found, copies)
    )
    return Symmetry(fold, copies, np.unique(found.blocks, return_inverse=True)[1])


def alike(colours: Colours) -> Alike:
    """The first of each colour, and how many have it."""
    _, first, place, count = np.unique(
        colours, return_index=True, return_inverse=True, return_counts=True
    )
    return Alike(first[place].astype(np.int32), count[place].astype(np.int32))


def _blocks(skeleton: Skeleton, found: Classes, copies: dict[int, int]) -> dict[int, Alike]:
    """Whose SM stands for whose, by channel: those of a rank on one channel are one."""
    code = skeleton.channel.astype(np.int64) * skeleton.ranks + skeleton.rank
    own, place = np.unique(code, return_inverse=True)
    total = np.zeros(len(own), np.uint64)
    np.add.at(total, place, mixed(found.blocks))
    same = alike(total)
    kept = different(skeleton.channel[np.isin(skeleton.lane, list(copies))])
    result = {}
    for channel in kept.tolist():
        mine = np.flatnonzero(own // skeleton.ranks == channel)
        first = np.zeros(skeleton.ranks, np.int64)
        count = np.ones(skeleton.ranks, np.int32)
        rank = own[mine] % skeleton.ranks
        first[rank], count[rank] = own[same.first[mine]], same.count[mine]
        result[channel] = Alike(first.astype(np.int64), count)
    return result


MINORITY = 0.5  # of links of one kind: as many as may be the odd ones


def odd_one(where: Where) -> str:
    """The first link or GPU that differs from most of its kind; "" if there is none."""
    return next(_odd_ones(*where), "")


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
    routing = topology.router.hashed_routing
    if routing:
        yield f"paths are chosen by hash (routing: {routing})"


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


# Steps that all ranks take together: each sends one message and receives one, step after step.
# Only the end waits for what arrives. As long as all ranks keep step, a wire that has room for a
# whole step at once slows nobody, so ranks need not be told apart by the wires that they cross, nor
# by latencies. Whether they differ in anything else is left to colours.

Levels = NDArray[np.int8]
Some = Ints | NDArray[np.int32]
Step = tuple[Some, Some]  # who sends to whom
ROOM = 1e-9  # by which what is asked of a wire may exceed what it has: rounding


@dataclass(frozen=True, slots=True)
class Together:
    """What is alike where ranks keep step; the rate of messages in the slowest step (bytes/s), and
    by how many seconds the latencies of any two may differ."""

    symmetry: Symmetry
    rate: float
    spread: float


def together(skeleton: Skeleton, steps: Sequence[Step], where: Where) -> Together | None:
    """What is alike where ranks keep step on a topology; None where they may not. `skeleton` is all
    else that they do, `steps` are some of the steps, in one of which all ways are as long as any.
    """
    topology, device = where
    if topology.changes or not steps or not _everyone(steps, skeleton.ranks):
        return None
    passed = []
    for src, dst in steps:
        one = _passed(topology, device[src], device[dst])
        if one is None:
            return None
        passed.append(one)
    level = _levels(passed, topology.links.bandwidth)
    found = None if level is None else classes(skeleton, where)
    if level is None or found is None or len(different(found.blocks)) > 1:
        return None
    if np.isin(found.wires[level >= 0], _elsewhere(found, skeleton, where)).any():
        return None
    wires = np.where(level >= 0, mixed(level.astype(np.uint64)), found.wires)
    latest, soonest = max(one.latest for one in passed), min(one.soonest for one in passed)
    symmetry = symmetry_in(skeleton, replace(found, wires=wires))
    return Together(symmetry, min(one.rate for one in passed), latest - soonest)


@dataclass(frozen=True, slots=True)
class _Passed:
    """A step: the rate of its messages, their least and greatest latency, the wires of each in the
    order of its way (CSR form), and what part of how many messages each wire carries."""

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


def _elsewhere(found: Classes, skeleton: Skeleton, where: Where) -> Colours:
    """The colours of wires that a rank crosses besides its steps; all others cross such, too."""
    topology, device = where
    parts = [np.zeros(0, np.uint64)]
    for hops in skeleton.hops:
        own = np.flatnonzero(hops.src == hops.src[:1])
        src, dst = (device[skeleton.rank[end[own]]] for end in (hops.src, hops.dst))
        routes = topology.routes(src, dst, np.full(len(own), hops.channel, np.int32), hops.route)
        parts.append(found.wires[topology.links.resource[routes.link]])
    return np.concatenate(parts)
