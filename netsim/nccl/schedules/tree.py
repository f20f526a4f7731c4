"""Trees and chains of NCCL: parents, children and depths of all ranks, and the rows of schedules.

NCCL: runTreeUpDown and runTreeSplit in src/device/all_reduce.h; chains in src/device/broadcast.h
and reduce.h.
"""

from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cached_property, partial
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from netsim.base.constants import value
from netsim.base.values import dataclass
from netsim.collectives.collective import Collective
from netsim.nccl.connect import Tree
from netsim.nccl.facts import Algorithm, function_of
from netsim.nccl.schedules import writing
from netsim.nccl.schedules.channels import written_channels
from netsim.nccl.schedules.plan import Ints, Plan, number_of
from netsim.nccl.schedules.primitives import Pass, PlannedChannel, link_kinds, routes
from netsim.nccl.split import steps_of
from netsim.schedule import schedule
from netsim.schedule.extent import ALL, Extent

MAX_CHILDREN = 3  # children of a rank
NONE = -1


@dataclass(frozen=True, eq=False)
class Branches:
    """One channel's tree as arrays by rank."""

    tree: Tree

    @cached_property
    def up(self) -> Ints:
        """The parent of every rank; -1 for the root."""
        return np.array(self.tree.up, np.int64)

    @cached_property
    def children(self) -> Ints:
        """The children of every rank as [number of the child, rank]; -1 where there is none."""
        table = np.full((MAX_CHILDREN, len(self.up)), NONE)
        for rank, children in enumerate(self.tree.down):
            table[: len(children), rank] = children
        return table

    @cached_property
    def number(self) -> Ints:
        """The number of every rank among the children of its parent; 0 for the root."""
        numbers = np.zeros(len(self.up), np.int64)
        for number, children in enumerate(self.children):
            numbers[children[children >= 0]] = number
        return numbers

    @cached_property
    def fan(self) -> Ints:
        """The number of children of every rank."""
        counts: Ints = (self.children >= 0).sum(axis=0)
        return counts

    @cached_property
    def depth(self) -> Ints:
        """The number of hops from the root to every rank."""
        depths = np.zeros(len(self.up), np.int64)
        level = np.array([self.root])
        while level.size:
            below = self.children[:, level]
            depths[below[below >= 0]] = np.broadcast_to(depths[level] + 1, below.shape)[below >= 0]
            level = below[below >= 0]
        return depths

    @property
    def root(self) -> int:
        """The rank without a parent."""
        return self.tree.root

    @cached_property
    def below(self) -> Ints:
        """All ranks that have a parent."""
        return np.flatnonzero(self.up >= 0)

    @cached_property
    def top(self) -> list[int]:
        """The children of the root."""
        return list(self.tree.down[self.root])


@dataclass
class TreeLoop:
    """Writes the rows of one chunk on one channel's tree, of all ranks at once.

    A rank adds what its children sent to its own data and sends the sum to its parent; results go
    from parents to children. Rows are written by depth: on the way up leaves first, on the way down
    leaves last.

    - `cut`: the data of every loop.
    - `function`: the name of the collective.
    - `share`: the fraction of a block's threads for each direction.

    The following arrays have a row number for each [rank, sub], or NONE where there is none:

    - `filled`: the row that fills the FIFO to the parent (of a root that only reduces: stores).
    - `sent`: the row that moves this data to the parent.
    - `handed`: the row of the parent that fills the FIFO to this rank.
    - `brought`: the row that moves this data to this rank.
    - `stored`: the row that stores the result on a leaf.
    """

    channel: PlannedChannel
    cut: writing.Segments
    tree: Branches
    function: str
    share: float
    sheet: writing.RowSheet = field(init=False)

    def __post_init__(self) -> None:
        self.sheet = writing.RowSheet(self.channel, self.cut.subs)
        rows: Ints = np.full((5, len(self.tree.up), self.cut.subs), NONE)
        self.filled, self.sent, self.handed, self.brought, self.stored = rows

    def write_loop(self) -> writing.WrittenLoop:
        """Write all rows of a chunk; return them as a loop."""
        if self.reduces:
            self._go_up()
        if self.hands_out:
            self._go_down()
        self._add_waits()
        ends = list(self._add_order())
        body, number = self.sheet.written()
        ranks, rows = (np.concatenate(column) for column in zip(*ends, strict=True))
        return writing.WrittenLoop(body, (ranks, number[rows]))

    # **** The tree ****

    @property
    def reduces(self) -> bool:
        """Whether data is reduced on its way up the tree, as in all collectives but Broadcast."""
        return self.function != "broadcast"

    @property
    def hands_out(self) -> bool:
        """Whether results go down the tree, as in all collectives but Reduce."""
        return self.function != "reduce"

    @property
    def turns_at_root(self) -> bool:
        """Whether the root reduces and sends results down, both in one pass."""
        return self.reduces and self.hands_out

    @cached_property
    def upwards(self) -> writing.HopColumns:
        """The hops from all ranks but the root to their parents."""
        return writing.hops_of(self.channel, self.tree.below, self.tree.up[self.tree.below])

    @cached_property
    def downwards(self) -> writing.HopColumns:
        """The hops to all ranks but the root from their parents."""
        return writing.hops_of(self.channel, self.tree.up[self.tree.below], self.tree.below)

    # **** Rows ****

    @property
    def _subs(self) -> Ints:
        """The numbers of the subs of a chunk."""
        return np.arange(self.cut.subs)

    def _place(self, rank: Ints, *, down: bool) -> Ints:
        """Return the sort key of the rows of ranks (`RowSheet.rows`), by their depth in the tree.

        `down`: whether the rows are those of the way down, which come after all rows of the way up.
        """
        deepest = int(self.tree.depth.max())
        return deepest + 1 + self.tree.depth[rank] if down else deepest - self.tree.depth[rank]

    def _go_up(self) -> None:
        """Add the rows by which ranks send to their parents.

        If results do not go down again (Reduce), add also the rows by which the root stores the
        result.
        """
        hops = self.upwards
        rank = self.tree.below
        parent = self.tree.up[self.tree.below]
        number = self.tree.number[rank]
        inner = self.tree.fan[rank] > 0
        buffer = np.where(inner, schedule.SCRATCH, schedule.IN)
        first = (number == 0) & (parent == self.tree.root) & self.hands_out
        above = np.where(first, schedule.OUT, schedule.SCRATCH)
        op = np.where(number > 0, schedule.COPY, schedule.REDUCE_INPUT)
        pass_fields = (buffer, above, op, 1 + self.tree.fan[rank], 0, 1, self.share)
        place = self._place(rank, down=False)
        self.filled[rank], self.sent[rank] = self._send(hops, pass_fields, place)
        if not self.hands_out:
            root = np.array([self.tree.root])
            kind = self.channel.local(
                Pass(schedule.SCRATCH, schedule.OUT, schedule.COPY, 1 + len(self.tree.top), 1)
            )
            place = self._place(root, down=False)
            rows = self.sheet.rows(self.sheet.body.kind(kind), (root, root), self._subs, place)
            self.filled[root] = rows.T

    def _go_down(self) -> None:
        """Add the rows by which ranks send results to their children and leaves store them."""
        hops = self.downwards
        rank = self.tree.below
        parent = self.tree.up[self.tree.below]
        root = parent == self.tree.root
        reads = np.where(root & self.reduces, 1 + self.tree.fan[parent], 1)
        out = (self.tree.fan[rank] > 0) | self.channel.plan.direct
        pass_fields = (
            np.where(root & (not self.reduces), schedule.IN, schedule.OUT),
            np.where(out, schedule.OUT, schedule.SCRATCH),
            schedule.COPY,
            reads,
            ~root | self.reduces,
            self.tree.fan[parent],
            np.where(root, 1.0, self.share),
        )
        place = self._place(parent, down=True)
        self.handed[rank], self.brought[rank] = self._send(hops, pass_fields, place)
        self._store()

    def _store(self) -> None:
        """Add the rows by which leaves store results: copies from their FIFOs.

        If results are written directly to their place, these rows only wait.
        """
        channel = self.channel
        leaves = np.flatnonzero(self.tree.fan == 0)
        kind = channel.wait()
        segment = np.full(self.cut.subs, -1)
        if not channel.plan.direct:
            kind = channel.local(
                Pass(schedule.SCRATCH, schedule.OUT, schedule.COPY, 1, 1, threads=self.share)
            )
            segment = self._subs
        number = self.sheet.body.kind(kind)
        ends = (leaves, leaves)
        place = self._place(leaves, down=True)
        self.stored[leaves] = self.sheet.rows(number, ends, segment, place).T

    def _send(
        self, hops: writing.HopColumns, pass_fields: tuple[ArrayLike, ...], place: Ints
    ) -> tuple[Ints, Ints]:
        """Add the rows of passes over `hops`; return two arrays [hop, sub].

        The first has the rows of the blocks, the second the rows that move the data (those of
        proxies over the network, else the same).

        - `pass_fields`: the fields of the hops' passes, in the order of `Pass`.
        - `place`: the sort key of each hop's rows.
        """
        sheet = self.sheet
        net = hops.kind == 0
        ends = hops.src, np.where(net, hops.src, hops.dst)
        blocks = sheet.rows(sheet.kinds(hops, pass_fields, proxy=False), ends, self._subs, place)
        places = np.flatnonzero(net)
        if not places.size:
            return blocks.T, blocks.T
        away = hops.subset(places)
        passes = [np.broadcast_to(x, net.shape)[places] for x in pass_fields]
        first = sheet.kinds(away, passes, proxy=True)[None]
        later = sheet.kinds(away, passes, proxy=True, change=self.channel.further)
        kind = np.concatenate([first, np.tile(later, (self.cut.subs - 1, 1))])
        sent = sheet.rows(kind, away.ends, self._subs, place[places])
        sheet.after(sent, blocks[:, places], self.channel.noticed)
        if not self.channel.simple and self.cut.subs > 1:  # one of LL begins when all is there
            sheet.after(sent[0], blocks[-1, places], self.channel.noticed)
        brought = blocks.copy()
        brought[:, places] = sent
        return blocks.T, brought.T

    # **** What waits for what ****

    def _add_waits(self) -> None:
        """Let every rank wait for the data that it reads, and for free slots (credits)."""
        if self.reduces:
            readers = [self.filled[self.tree.up[self.tree.below]]]
            if self.turns_at_root:
                at_top = (self.tree.up[self.tree.below] == self.tree.root)[:, None]
                readers += [np.where(at_top, self.handed[child], NONE) for child in self.tree.top]
            self._add_waits_of_hops(self.upwards, self.filled, self.sent, readers)
        if self.hands_out:
            self._add_waits_of_hops(
                self.downwards, self.handed, self.brought, list(self._outputs(self.tree.below))
            )

    def _outputs(self, rank: Ints) -> Iterator[Ints]:
        """Yield the rows by which ranks pass results on or store them, as arrays [rank, sub].

        There is an array for each child number, and one for the leaves' stores.
        """
        for children in self.tree.children[:, rank]:
            if (children >= 0).any():
                yield np.where((children >= 0)[:, None], self.handed[children], NONE)
        yield self.stored[rank]

    def _add_waits_of_hops(
        self, hops: writing.HopColumns, filled: Ints, sent: Ints, readers: list[Ints]
    ) -> None:
        """Let receivers wait for the data of hops, and senders for free slots.

        - `filled`, `sent`: by [rank, sub], where the rank is the child of the hop: the row that
          fills the slot, and the row that moves the data.
        - `readers`: arrays [hop, sub] of rows that read the data of a hop; NONE where there is
          none.
        """
        channel = self.channel
        filled = filled[self.tree.below]
        sent = sent[self.tree.below]
        simple = channel.simple
        slots = self.cut.slots
        back = self._subs == 0
        for members, way in hops.by_link_kind():
            sync = channel.sync(*way)
            credit = channel.credit(*way)
            for rows in readers:
                self._after(rows[members], sent[members], sync)
                # With Simple each slice has its own slot; with LL all pieces of a chunk share one.
                if simple:
                    self._after(sent[members], rows[members], credit, slots)
                else:
                    self._after(sent[members, :1], rows[members, -1:], credit, slots)
        net = np.flatnonzero(hops.kind == 0)
        self._after(sent[net], np.roll(sent[net], 1, 1), schedule.IN_ORDER, back)
        if simple:
            self._after(filled[net], sent[net], channel.local_credit, slots)
        else:
            self._after(filled[net, :1], sent[net, -1:], channel.local_credit, slots)

    def _add_order(self) -> Iterator[tuple[Ints, Ints]]:
        """Let the passes of each direction follow each other on each rank.

        Yields pairs of arrays: ranks, and the rows that end the chunk on them.
        """
        everyone = np.arange(len(self.tree.up))
        for passes in ([self.filled], list(self._outputs(everyone))):
            for rows in passes:
                for earlier in passes:
                    self._after(rows, np.roll(earlier, 1, 1), schedule.IN_ORDER, self._subs == 0)
                last = np.flatnonzero(rows[:, -1] >= 0)
                yield last, rows[last, -1]

    def _after(self, rows: Ints, earlier: Ints, lag: schedule.Lag, back: ArrayLike = 0) -> None:
        """Let `rows` wait for the rows `earlier` of the loop `back` loops before.

        Both arrays have row numbers; pairs in which one is NONE are left out.
        """
        there = (rows >= 0) & (earlier >= 0)
        self.sheet.after(
            rows[there], earlier[there], lag, np.broadcast_to(back, there.shape)[there]
        )


# In an AllReduce, chunks are reduced on their way up the tree while earlier chunks come down. A
# rank's block has a group of threads for each direction; the root does both in one pass. Broadcast
# and Reduce on rings use a chain: a tree without branches.

SHARE = value("share.of_a_way")  # fraction of a block's threads for each direction


def tree(collective: Collective, plan: Plan, extent: Extent = ALL) -> schedule.Schedule:
    """Return an AllReduce over the trees of all channels."""
    return _over_trees(collective, plan, dict(enumerate(plan.trees)), SHARE, extent)


def chain(collective: Collective, plan: Plan, extent: Extent = ALL) -> schedule.Schedule:
    """Return a Broadcast or Reduce along the rings of all channels, which are cut open at the
    root.
    """
    trees = {work.channel: chain_of(plan.rings[work.channel], collective) for work in plan.work}
    return _over_trees(collective, plan, trees, 1.0, extent)


def chain_of(order: tuple[int, ...], collective: Collective) -> Tree:
    """Return a ring that is cut open at the collective's root, as a tree without branches.

    A Broadcast goes along the ring from the root. A Reduce goes along the ring towards the root.
    """
    at = order.index(collective.root)
    if collective.name == "broadcast":
        line = (*order[at:], *order[:at])
    else:
        line = (*order[: at + 1][::-1], *order[at + 1 :][::-1])
    up = [-1] * len(order)
    down = [tuple[int, ...]()] * len(order)
    for above, below in pairwise(line):
        up[below] = above
        down[above] = (below,)
    return Tree(tuple(up), tuple(down))


def _over_trees(
    collective: Collective, plan: Plan, trees: Mapping[int, Tree], share: float, extent: Extent
) -> schedule.Schedule:
    """Return the schedule of a collective over trees or chains.

    `trees` has the tree of each channel. `share` is the fraction of a block's threads that work in
    each direction (up and down the tree).
    """
    output = writing.Output(collective, extent=extent)
    algorithm: Algorithm = "Tree" if collective.name == "all_reduce" else "Ring"
    steps = steps_of(function_of(collective.name), algorithm, plan.protocol)
    keys = tree_keys(plan, trees)
    for written in written_channels(plan, keys, extent):
        work = written.work
        table = writing.chunk_table(work, collective.element_bytes)
        cut = writing.segments(plan, collective.element_bytes, table, steps=steps, threads=share)
        channel = PlannedChannel(plan, work.channel, written.multiplicity, cut.subs, written.copies)
        tree = trees[work.channel]

        def write_loop(
            channel: PlannedChannel = channel, cut: writing.Segments = cut, tree: Tree = tree
        ) -> writing.WrittenLoop:
            """Write the rows of one chunk, for the cache of loops."""
            return TreeLoop(channel, cut, Branches(tree), collective.name, share).write_loop()

        key = (keys[work.channel], *channel.key, cut.subs, cut.slots, cut.first_chunk)
        output.add(writing.cached_loop(collective, plan, key, write_loop), cut)
    return output.close()


def tree_keys(plan: Plan, trees: Mapping[int, Tree]) -> dict[int, object]:
    """Return a key for each channel: channels with equal trees and equal routes have equal keys."""
    channels = {work.channel for work in plan.work}
    if plan.algorithm != "Tree":  # chains have other roots in other calls
        return {c: (trees[c], _routes(plan, c, trees[c])) for c in channels}
    return {c: number_of(plan, c, partial(_tree_and_routes, plan, c)) for c in channels}


def _tree_and_routes(plan: Plan, channel: int) -> tuple[object, ...]:
    """Return a channel's tree, and the names of the routes along it."""
    tree = plan.trees[channel]
    return tree, _routes(plan, channel, tree)


def _routes(plan: Plan, channel: int, tree: Tree) -> tuple[str, ...]:
    """Return the names of the routes of a tree's hops, first to the parents, then to the
    children.
    """
    branches = Branches(tree)
    below, above = branches.below, branches.up[branches.below]
    src = np.concatenate([below, above])
    dst = np.concatenate([above, below])
    kind = link_kinds(plan, np.array(plan.node), src, dst)
    return tuple(routes(plan, channel, src, dst, kind).tolist())
