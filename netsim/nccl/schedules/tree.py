"""Trees: chunks are reduced on their way up and handed out on their way down, both at once.

A rank's block has a group of threads for each direction; the root does both in one pass. Broadcast
and Reduce of rings are the same along a chain: a tree without branches.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from netsim.collectives.collective import Collective
from netsim.nccl.chunks import steps_of
from netsim.nccl.names import Algorithm, function_of
from netsim.nccl.schedules.cuts import chunk_table, segments
from netsim.nccl.schedules.hops import Channel, Pass
from netsim.nccl.schedules.lines import Lines, buffer_place
from netsim.nccl.schedules.output import Output, Turn, remembered
from netsim.nccl.schedules.plan import Plan, number_of, written
from netsim.nccl.schedules.weave import Place, Segments
from netsim.nccl.trees import Tree
from netsim.schedule import COPY, IN, IN_ORDER, OUT, REDUCE, REDUCE_INPUT, SCRATCH, Schedule

# FIFOs of a rank: from children, to the proxy for its parent, from its parent, to proxies for
# children.
FROM_CHILD, TO_PARENT, FROM_PARENT, TO_CHILD, REGIONS = 0, 3, 4, 5, 8
# Of a block's rate, for each way. (Of its threads LL and LL128 give 70 % to the way up, because a
# pass that reduces takes more of them for each byte.)
SHARE = 0.5


def tree(collective: Collective, plan: Plan) -> Schedule:
    """AllReduce over all channels' trees."""
    return _over_trees(collective, plan, dict(enumerate(plan.trees)), SHARE)


def chain(collective: Collective, plan: Plan) -> Schedule:
    """Broadcast and Reduce along all channels' rings."""
    trees = {work.channel: chain_of(plan.rings[work.channel], collective) for work in plan.work}
    return _over_trees(collective, plan, trees, 1.0)


def chain_of(order: tuple[int, ...], collective: Collective) -> Tree:
    """A ring cut open at the root: from it on for Broadcast, up to it for Reduce."""
    at = order.index(collective.root)
    if collective.name == "broadcast":
        line = (*order[at:], *order[:at])
    else:
        line = (*order[: at + 1][::-1], *order[at + 1 :][::-1])
    up, down = [-1] * len(order), [tuple[int, ...]()] * len(order)
    for above, below in pairwise(line):
        up[below], down[above] = above, (below,)
    return Tree(tuple(up), tuple(down))


def _over_trees(
    collective: Collective, plan: Plan, trees: Mapping[int, Tree], share: float
) -> Schedule:
    output = Output(collective, places=plan.places, fold=plan.stands)
    algorithm: Algorithm = "Tree" if collective.name == "all_reduce" else "Ring"
    steps = steps_of(function_of(collective.name), algorithm, plan.protocol)
    keys = tree_keys(plan, trees)
    for lane in written(plan, keys):
        work = lane.work
        table = chunk_table(work, collective.element_bytes)
        cut = segments(plan, collective.element_bytes, table, steps=steps, threads=share)
        channel = Channel(plan, work.channel, lane.multiplicity, cut.subs, lane.copies)
        found = trees[work.channel]

        def turn(channel: Channel = channel, cut: Segments = cut, found: Tree = found) -> Turn:
            lines = Lines(channel, cut.subs, cut.slots, cut.whole)
            return Turn(lines.woven, Climb(lines, found, collective.name, share).all())

        key = (keys[work.channel], *channel.key, cut.subs, cut.slots, cut.whole)
        output.add(remembered(collective, plan, key, turn), cut, REGIONS)
    return output.close()


def tree_keys(plan: Plan, trees: Mapping[int, Tree]) -> dict[int, object]:
    """What tells channels apart: their trees, and the ways along them."""
    channels = {work.channel for work in plan.work}
    if plan.algorithm != "Tree":  # chains have other roots in other calls
        return {c: (trees[c], _routes(plan, c, trees[c])) for c in channels}
    return {c: number_of(plan, c, partial(_tree_and_ways, plan, c)) for c in channels}


def _tree_and_ways(plan: Plan, channel: int) -> tuple[object, ...]:
    found = plan.trees[channel]
    return found, _routes(plan, channel, found)


def _routes(plan: Plan, channel: int, found: Tree) -> tuple[str, ...]:
    pairs = [(rank, up) for rank, up in enumerate(found.up) if up >= 0]
    both = [*pairs, *((b, a) for a, b in pairs)]
    return tuple(plan.route_of(channel, a, b) for a, b in both)


@dataclass
class Climb:
    """One channel's tree while the rows of one chunk are written.

    `share` is the part of the block's rate in each direction; `merges` what the root has to
    wait for before it hands out, by sub.
    """

    lines: Lines
    tree: Tree
    function: str
    share: float
    merges: dict[int, list[int]] = field(default_factory=dict)

    def all(self) -> tuple[list[int], list[int]]:
        """All rows of a chunk; the ranks and rows that end it."""
        order = from_top(self.tree)
        for rank in reversed(order if self.reduces else []):
            for sub in range(self.lines.subs):
                self._up(rank, sub)
        for rank in order if self.hands_out else []:
            for sub in range(self.lines.subs):
                self._down(rank, sub)
        return self.lines.close()

    @property
    def reduces(self) -> bool:
        """Whether contributions go up."""
        return self.function != "broadcast"

    @property
    def hands_out(self) -> bool:
        """Whether results go down."""
        return self.function != "reduce"

    def _up(self, rank: int, sub: int) -> None:
        """Take in what children sent, add the own input and send it to the parent."""
        children, parent = self.tree.down[rank], self.tree.up[rank]
        turns = parent < 0 and self.hands_out
        merges = self._merges(rank, sub, OUT if turns else SCRATCH)
        if turns:
            self.merges[sub] = merges
            return
        buffer, reads = SCRATCH if children else IN, 1 + len(children)
        source = buffer_place(buffer, FROM_CHILD)
        if parent < 0:
            kind = self.lines.channel.local(Pass(SCRATCH, OUT, COPY, reads, 1))
            row = self.lines.woven.row(kind, rank, rank, sub, source=source)
        else:
            number = self.tree.down[parent].index(rank)
            first = number == 0 and self.tree.up[parent] < 0 and self.hands_out
            above, op = OUT if first else SCRATCH, COPY if number else REDUCE_INPUT
            row = self.lines.send(
                (rank, parent),
                sub,
                Pass(buffer, above, op, reads, threads=self.share),
                source=source,
                target=buffer_place(above, FROM_CHILD + number),
                region=TO_PARENT,
            )
        self._take_children(rank, sub, [row], merges)
        self.lines.done("up", rank, [row])

    def _merges(self, rank: int, sub: int, buffer: int) -> list[int]:
        """Add what further children sent to what the first one did: part of the pass that follows,
        and rows of their own only where rows say where their data lies.
        """
        children, merges = self.tree.down[rank], list[int]()
        if not self.lines.channel.plan.places:
            return merges
        for number, child in enumerate(children[1:], 1):
            made = Pass(SCRATCH, buffer, REDUCE)
            places = Place(0, FROM_CHILD + number), buffer_place(buffer, FROM_CHILD)
            hops = [(children[0], rank), (child, rank)]
            merge = self.lines.merge(rank, sub, made, *places, hops)
            if merges:
                self.lines.woven.after(merge, merges[-1], IN_ORDER)
            merges.append(merge)
        return merges

    def _take_children(self, rank: int, sub: int, rows: list[int], merges: list[int]) -> None:
        for child in self.tree.down[rank]:
            self.lines.take(rows, (child, rank), sub)
        for row in rows:
            for merge in merges[-1:]:
                self.lines.woven.after(row, merge, IN_ORDER)

    def _down(self, rank: int, sub: int) -> None:
        """Store what the parent sent and hand it on to the children; the root begins."""
        parent, children = self.tree.up[rank], self.tree.down[rank]
        rows = [self._hand(rank, number, sub) for number in range(len(children))]
        if not children:
            rows.append(self._store(rank, sub))
        if parent >= 0:
            self.lines.take(rows, (parent, rank), sub)
        elif self.reduces:
            self._take_children(rank, sub, rows, self.merges[sub])
        self.lines.done("down", rank, rows)

    def _hand(self, rank: int, number: int, sub: int) -> int:
        """The pass to one child; all children are served by one pass."""
        children, root = self.tree.down[rank], self.tree.up[rank] < 0
        child = children[number]
        out = bool(self.tree.down[child]) or self.lines.channel.plan.direct
        reads = 1 + len(children) if root and self.reduces else 1
        made = Pass(
            IN if root and not self.reduces else OUT,
            OUT if out else SCRATCH,
            reads=reads,
            writes=int(self.reduces or not root),
            fan=len(children),
            threads=1.0 if root else self.share,
        )
        target = buffer_place(made.dst_buffer, FROM_PARENT)
        return self.lines.send((rank, child), sub, made, target=target, region=TO_CHILD + number)

    def _store(self, rank: int, sub: int) -> int:
        """Take a leaf's data out of its FIFO, if it went there."""
        channel = self.lines.channel
        if channel.plan.direct:
            return self.lines.woven.row(channel.wait(), rank, rank, -1)
        kind = channel.local(Pass(SCRATCH, OUT, COPY, 1, 1, threads=self.share))
        return self.lines.woven.row(kind, rank, rank, sub, source=Place(0, FROM_PARENT))


def from_top(found: Tree) -> list[int]:
    """Ranks, parents before their children."""
    order = [found.root]
    for rank in order:
        order += found.down[rank]
    return order
