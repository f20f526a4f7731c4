"""A plan with less to write down: fewer loops, one for all that is alike.

Every channel (of sends: every part) loses the same number of whole loops, so that what is left
over for its last loop stays as it is. It knows no times."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from netsim.base.memo import different
from netsim.collectives.collective import Collective
from netsim.nccl.connect import double_binary_tree
from netsim.nccl.schedules.nvls import crown_keys, loop_segments, switch_keys
from netsim.nccl.schedules.plan import Columns, Ints, Lane, Plan, Transfers, Work, lanes_of
from netsim.nccl.schedules.primitives import link_kinds, routes
from netsim.nccl.schedules.ring import WALKS, ring_keys
from netsim.nccl.schedules.tree import Branches, tree_keys
from netsim.nccl.schedules.writing import chunk_table
from netsim.nccl.split import ALIGNMENT, Loops, loops_of_part
from netsim.program import symmetry
from netsim.program.symmetry import Where
from netsim.schedule.schedule import Alike, Fold, Hops, Skeleton, Symmetry

SHARED_BY_HEADS = ("NVLS", "NVLSTree", "CollNetDirect")  # a loop has a chunk for each head


def loops_of(collective: Collective, plan: Plan) -> list[int]:
    """The loops of every channel, and of sends."""
    chunks = _chunks_a_loop(collective, plan)
    sizes = [(one.count * collective.element_bytes, one.chunk * chunks) for one in plan.work]
    if plan.transfers is not None:
        sizes += [(part, one.chunk) for one in plan.transfers.works() for part in one.parts if part]
    return [-(-size // loop) for size, loop in sizes] or [1]


def shorter(collective: Collective, plan: Plan, loops: int) -> tuple[Collective, Plan]:
    """The same call with `loops` loops less on every channel."""
    if not loops:
        return collective, plan
    step = loops * _chunks_a_loop(collective, plan)
    work = tuple(
        replace(one, count=one.count - step * one.chunk // collective.element_bytes)
        for one in plan.work
    )
    gone = sum(one.count for one in plan.work) - sum(one.count for one in work)
    sends = plan.transfers
    sends = None if sends is None else replace(sends, less=sends.less + loops)
    # Of sends, the plan alone says what is moved.
    less = replace(collective, count=collective.count - gone) if gone else collective
    return less, replace(plan, work=work, transfers=sends)


def _chunks_a_loop(collective: Collective, plan: Plan) -> int:
    if collective.name == "all_reduce" and plan.algorithm == "Ring":
        return collective.ranks
    if collective.name == "all_reduce" and plan.algorithm in SHARED_BY_HEADS:
        return len(plan.heads[0])
    return 1


SWITCHED = ("NVLS", "NVLSTree")  # blocks of heads are of their own kind
Ends = tuple[Ints, Ints, Ints]  # sources, destinations and labels of hops
UP, DOWN, FAN = 1, 1024, 2048  # labels of hops: up or down to which child; through a switch


def foldable(collective: Collective, plan: Plan) -> bool:
    """Whether a call has a skeleton."""
    if plan.algorithm == "Ring":
        return collective.name in WALKS
    if plan.algorithm == "NVLS":
        return len(plan.heads) == 1
    return plan.algorithm in ("Tree", "NVLSTree") and collective.name == "all_reduce"


def skeleton_of(collective: Collective, plan: Plan, turn: Ints) -> Skeleton:
    """The skeleton of a call; `turn` is what tells a rank from others besides its place."""
    lanes = lanes_of(plan, _keys(plan))
    links = _links(plan, lanes)
    n = collective.ranks
    moved = [(lane.work.count, lane.work.chunk, lane.multiplicity) for lane in lanes]
    numbers = {what: number for number, what in enumerate(sorted(set(moved)))}
    places = np.stack([_places(collective, plan, lane) for lane in lanes])
    number = np.array([numbers[what] for what in moved])[:, None]
    found: Ints = np.unique(number * (places.max() + 1) + places, return_inverse=True)[1]
    return Skeleton(
        n,
        np.tile(np.arange(n, dtype=np.int32), len(lanes)),
        np.repeat(np.array([lane.work.channel for lane in lanes], np.int32), n),
        np.repeat(np.arange(len(lanes), dtype=np.int32), n),
        found.reshape(-1),
        tuple(_hops(plan, lanes, links)),
        turn,
    )


def works_alike(collective: Collective, plan: Plan) -> tuple[object, ...]:
    """What of a call's sizes tells channels apart: the rest of its skeleton is the same for all."""
    seen: dict[tuple[int, int], tuple[int, bool]] = {}
    for work in plan.work:
        size = work.count, work.chunk
        if size not in seen:
            seen[size] = len(seen), _is_even(collective, plan, work)
    return tuple((work.channel, *seen[work.count, work.chunk]) for work in plan.work)


def _keys(plan: Plan) -> dict[int, object]:
    if plan.algorithm == "Ring":
        return ring_keys(plan)
    if plan.algorithm == "Tree":
        return tree_keys(plan, dict(enumerate(plan.trees)))
    return switch_keys(plan) if plan.algorithm == "NVLS" else crown_keys(plan)


def _links(plan: Plan, lanes: Sequence[Lane]) -> list[Ends]:
    if plan.algorithm == "Ring":
        return [_ring(plan, lane) for lane in lanes]
    if plan.algorithm == "Tree":
        return [_tree(plan, lane) for lane in lanes]
    fans, crowns = _fans(plan), list[Ends]()
    if plan.algorithm == "NVLSTree":
        crowns = [_crown(plan, number) for number in (0, 1)]
    return [_together(fans, *crowns[lane.work.channel % 2 :][:1]) for lane in lanes]


def _places(collective: Collective, plan: Plan, lane: Lane) -> Ints:
    """What tells blocks of a lane apart: heads; or every place, where chunks differ."""
    n, work = collective.ranks, lane.work
    place = np.zeros(n, np.int64)
    heads = plan.heads if plan.algorithm in SWITCHED else ()
    for node in heads:
        place[list(node)] = 1
    if not _is_even(collective, plan, work):
        for order in heads or [plan.rings[work.channel]]:
            place[np.array(order)] = 1 + np.arange(len(order))
    return place


def _is_even(collective: Collective, plan: Plan, work: Work) -> bool:
    """Whether all places of a ring, or all heads, have chunks of one size in every loop."""
    if plan.algorithm in SWITCHED:
        heads = len(plan.heads[0])
        alignment = (ALIGNMENT,) if plan.algorithm == "NVLSTree" else ()
        count = loop_segments(collective, work, heads, plan.slots, *alignment).count[:, :heads]
    elif plan.algorithm == "Ring" and collective.name == "all_reduce":
        count = chunk_table(work, collective.element_bytes, collective.ranks)[1]
    else:
        return True
    return bool((count == count[:, :1]).all())


MANY_LOOPS = 256  # that one more is hardly longer than


def evened(collective: Collective, plan: Plan) -> tuple[Collective, Plan, float, float]:
    """A call of NVLSTree whose heads have as much as each other in the last loop, too, where the
    last one would have up to a line less for each; by which part it moves more for that, and in
    all: the last of many loops becomes as full as others, and so the same in calls of any size."""
    heads, element = len(plan.heads[0]), collective.element_bytes

    def counts(loops: Sequence[Loops]) -> list[int]:
        return [heads * sum(one.chunks) // element for one in loops]

    even = [loops_of_part(w.count * element, w.chunk, spread=heads) for w in plan.work]
    full = [replace(x, last=x.chunk) if x.last and x.full_loops >= MANY_LOOPS else x for x in even]
    count, before = max(1, collective.count), sum(work.count for work in plan.work)
    line, more = (sum(counts(loops)) - before for loops in (even, full))
    work = tuple(replace(w, count=n) for w, n in zip(plan.work, counts(full), strict=True))
    larger = replace(collective, count=collective.count + more)
    return larger, replace(plan, work=work), line / count, more / count


def _ring(plan: Plan, lane: Lane) -> Ends:
    order = np.array(plan.rings[lane.work.channel])
    return order, np.roll(order, -1), np.zeros(len(order), np.int64)


def _tree(plan: Plan, lane: Lane) -> Ends:
    found = Branches(plan.trees[lane.work.channel])
    below = found.below
    return _both_ways(below, found.up[below], found.number[below])


def _crown(plan: Plan, twin: int) -> Ends:
    places, heads = double_binary_tree(len(plan.heads))[twin], np.array(plan.heads)
    up = np.array([place.up for place in places])
    below = np.flatnonzero(up >= 0)
    number = [
        [child for child in places[above].down if child >= 0].index(node)
        for node, above in zip(below.tolist(), up[below].tolist(), strict=True)
    ]
    ends = heads[below].ravel(), heads[up[below]].ravel()
    return _both_ways(*ends, np.repeat(np.array(number, np.int64), heads.shape[1]))


def _both_ways(below: Ints, above: Ints, number: Ints) -> Ends:
    return _together((below, above, number + UP), (above, below, number + DOWN))


def _fans(plan: Plan) -> Ends:
    src, dst = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for heads, ranks in zip(plan.heads, plan.nodes, strict=True):
        here, there = np.repeat(heads, len(ranks)), np.tile(ranks, len(heads))
        src.append(here[here != there])
        dst.append(there[here != there])
    ends = np.concatenate(src), np.concatenate(dst)
    return _together(
        (*ends, np.full(len(ends[0]), FAN)), (*ends[::-1], np.full(len(ends[0]), -FAN))
    )


def _together(*ends: Ends) -> Ends:
    src, dst, label = (np.concatenate(column) for column in zip(*ends, strict=True))
    return src, dst, label


def _hops(plan: Plan, lanes: Sequence[Lane], links: Sequence[Ends]) -> Iterable[Hops]:
    node, n = np.array(plan.node), len(plan.node)
    ways: dict[tuple[int, str], list[Ends]] = {}
    for lane, (src, dst, label) in zip(lanes, links, strict=True):
        channel = lane.work.channel
        kind = link_kinds(plan, node, src, dst)
        ways_of = routes(plan, channel, src, dst, kind)
        base = lane.number * n
        for route in set(ways_of.tolist()):
            mine = np.flatnonzero(ways_of == route)
            found = (src[mine] + base, dst[mine] + base, label[mine] * 8 + kind[mine])
            ways.setdefault((channel, route), []).append(found)
    for (channel, route), parts in ways.items():
        src, dst, label = _together(*parts)
        yield Hops(src.astype(np.int32), dst.astype(np.int32), label, channel, route)


# Which ranks of a call's sends and receives do the same, on a topology.
# Where all sends are equal, who sends to whom when depends only on how far the two are from each
# other in the order of rounds. So ranks are alike in rotations of that order which the topology
# shares, and one of them stands for the others. Rotations are found by colours from the sends of a
# few rounds; others check what was found.

EQUAL = ("alltoall", "sendrecv")  # collectives whose sends are all equal
MOST_SENDS = 1 << 17  # that are all looked at; of more, those of some rounds
MOST_RANKS = 1 << 15  # of larger ones even representatives have too many sends
CHECKED = 4  # further distances between groups whose sends check what was found
MOST_HELD = 1 << 18  # sends that are held against what stands for them
ROUNDS = 64  # of telling apart
LINKS = 16  # more than there are kinds of links


def equal_sends(name: str, ranks: int) -> bool:
    """Whether all sends of a collective are equal, and so few that it is worth comparing them."""
    return name in EQUAL and ranks <= MOST_RANKS


def sends_alike(collective: Collective, plan: Plan, where: Where, turn: Ints) -> Symmetry | None:
    """What stands for what; None if nothing does. `turn` is what tells a rank from others."""
    transfers = plan.transfers
    if transfers is None or not equal_sends(collective.name, collective.ranks):
        return None
    sketch = _Sketch(plan, turn, by_channel=where.topology.router.per_channel)
    whole = collective.name != "alltoall" or transfers.rounds.n_ranks**2 <= MOST_SENDS
    if not whole and symmetry.odd_one(where):  # which sends of few rounds may not meet
        return None
    found = symmetry.classes(sketch.of(transfers.columns), where, ROUNDS) if whole else None
    if not whole:
        found = _classes_of_some(transfers, sketch, where)
    if found is None:
        return None
    ranks = symmetry.alike(found.ranks)
    if (ranks.count == 1).all():
        return None
    blocks = {
        channel: Alike(ranks.first + np.int32(channel * collective.ranks), ranks.count)
        for channel in range(transfers.sends.channels.total)
    }
    fold = Fold(ranks, symmetry.alike(found.wires), symmetry.alike(found.nodes), blocks)
    if not whole and not _stands(transfers, fold, found, sketch, where):
        return None
    return Symmetry(fold, {}, np.unique(ranks.first, return_inverse=True)[1])


def _classes_of_some(
    transfers: Transfers, sketch: "_Sketch", where: Where
) -> symmetry.Classes | None:
    """The classes by the sends to a few distances, and to those that tell them apart further."""
    far = len(transfers.rounds.far)
    others = np.random.default_rng(far).permutation(np.arange(2, far)).tolist()
    some = sorted({0, 1, far // 2})
    others = [distance for distance in others if distance not in some]
    while True:
        found = symmetry.classes(sketch.of(_apart(transfers, some)), where, ROUNDS)
        if found is None or len(different(found.ranks)) == transfers.rounds.n_ranks:
            return None
        checks, others = others[:CHECKED], others[CHECKED:]
        wrong = [
            distance
            for distance in checks
            if not symmetry.holds(found, sketch.of(_apart(transfers, [distance])), where)
        ]
        if not wrong:
            return found
        some += wrong


def _apart(transfers: Transfers, distances: Iterable[int]) -> Columns:
    groups = transfers.rounds.groups
    src = np.repeat(groups, groups.shape[1], axis=1)
    dst = np.tile(groups, groups.shape[1])
    ends = [(src.ravel(), np.roll(dst, -distance, 0).ravel()) for distance in distances]
    return transfers.among(*(np.concatenate(column) for column in zip(*ends, strict=True)))


class _Sketch:
    """Skeletons of sends: of every rank one block, and a hop for each of its sends, or for each
    channel of it if the way depends on that."""

    def __init__(self, plan: Plan, turn: Ints, *, by_channel: bool) -> None:
        self.plan, self.turn, self.by_channel = plan, turn, by_channel
        self.node = np.array(plan.node)

    def of(self, sends: Columns) -> Skeleton:
        """The skeleton of some sends."""
        n = len(self.turn)
        zero = np.zeros(n, np.int32)
        ranks = np.arange(n, dtype=np.int32)
        return Skeleton(
            n, ranks, zero, zero, zero.astype(np.int64), tuple(self._hops(sends)), self.turn
        )

    def _hops(self, sends: Columns) -> Iterable[Hops]:
        away = sends.src != sends.dst
        link = link_kinds(self.plan, self.node, sends.src, sends.dst)
        for kind in different(link[away]).tolist():
            mine = np.flatnonzero(away & (link == kind))
            route = self.plan.route_of(0, int(sends.src[mine[0]]), int(sends.dst[mine[0]]))
            label = sends.number[mine] * LINKS + kind
            ends = sends.src[mine].astype(np.int32), sends.dst[mine].astype(np.int32)
            if not self.by_channel:
                yield Hops(*ends, label, 0, route)
                continue
            for work in different(sends.work[mine]).tolist():
                some = np.flatnonzero(sends.work[mine] == work)
                for part, channel in enumerate(sends.works[work].channels):
                    both = ends[0][some], ends[1][some]
                    yield Hops(*both, label[some] * len(self.node) + part, channel, route)


def _stands(
    transfers: Transfers, fold: Fold, found: symmetry.Classes, sketch: _Sketch, where: Where
) -> bool:
    """Whether what ranks receive is like what stands for it; of very much, some is asked."""
    src, dst, _ = transfers.into(fold.leaders.astype(np.int64))
    if len(src) > MOST_HELD:
        some = np.random.default_rng(len(src)).choice(len(src), MOST_HELD, replace=False)
        src, dst = src[some], dst[some]
    leader = fold.ranks.first[src].astype(np.int64)
    sent = transfers.among(leader, transfers.rounds.met(leader, src, dst))
    received = transfers.among(src, dst)
    like = symmetry.hop_colours(found, sketch.of(sent), where)
    return bool(np.isin(symmetry.hop_colours(found, sketch.of(received), where), like).all())


def folded_plan(collective: Collective, plan: Plan, where: Where, per_process: int) -> Plan:
    """The plan with what stands for what, if any; a process starts its GPUs one by one."""
    turn = np.arange(collective.ranks) % per_process
    # The place of a communicator: groups of a training step share plans wherever they are.
    here = where.topology.token, where.device.tobytes()
    if plan.transfers is not None:
        if not collective.count:
            return plan
        ways = where.topology.router.per_channel and [w.channels for w in plan.transfers.works()]
        asked = (
            "sends alike",
            collective.name,
            collective.in_place,
            repr(ways),
            per_process,
            here,
        )
        of_sends = partial(sends_alike, collective, plan, where, turn)
        return replace(plan, symmetry=plan.memo.of(asked, of_sends))
    if not plan.work or not foldable(collective, plan):  # nothing moves: nothing is alike
        return plan
    kinds = works_alike(collective, plan)
    key = ("symmetry", collective.name, plan.algorithm, kinds, per_process, here)

    def found() -> Symmetry | None:
        return symmetry.symmetry_of(skeleton_of(collective, plan, turn), where)

    return replace(plan, symmetry=plan.memo.of(key, found))


def channels_alike(
    collective: Collective, plan: Plan, where: Where, wires: NDArray[np.bool_]
) -> Symmetry | None:
    """What of a plan is alike if only some wires, proxies, NICs and SMs can ever be full."""
    skeleton = skeleton_of(collective, plan, np.zeros(collective.ranks, np.int64))
    tight = symmetry.Tight(wires, np.array(plan.node))
    return symmetry.loose_symmetry(skeleton, where, tight)


def ends_by_rank(plan: Plan, ends: NDArray[np.float64]) -> NDArray[np.float64]:
    """When every rank is done, from when those written down are on every channel (first axis)."""
    lanes, channel_symmetry, n = lanes_of(plan, _keys(plan)), plan.symmetry, len(plan.node)
    assert channel_symmetry is not None
    known = np.zeros(int(channel_symmetry.block.max()) + 1)
    for lane in lanes:
        if lane.number in channel_symmetry.copies:
            mine = channel_symmetry.block[lane.number * n : (lane.number + 1) * n]
            np.maximum.at(known, mine, ends[lane.work.channel])
    found: NDArray[np.float64] = known[channel_symmetry.block].reshape(-1, n).max(axis=0)
    return found


def written_share(plan: Plan) -> float:
    """Which part of the blocks of a plan is written down."""
    if plan.symmetry is None:
        return 1.0
    return len(different(plan.symmetry.block)) / len(plan.symmetry.block)
