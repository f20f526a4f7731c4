"""The Sheet: rows of a turn as they come to mind, for many ranks at once, put in order in the end.

Every row has a place; rows are written into a Weave by place and, on one place, as they came.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from netsim.arrays import different
from netsim.nccl.schedules.hops import Channel, Pass, RowKind
from netsim.nccl.schedules.ways import link_kinds, routes
from netsim.nccl.schedules.weave import NOWHERE, Place, Weave
from netsim.schedule import Lag
from netsim.values import dataclass

Ints = NDArray[np.int64]
PASS = 7  # columns that say how a pass is made: what a Pass holds
COLUMNS = 7  # of a row: kind, ends, segment, regions of source and target, place


@dataclass
class Sheet:
    """Rows of a channel whose chunks have `subs` segments."""

    channel: Channel
    subs: int
    woven: Weave = field(default_factory=Weave)
    _blocks: list[Ints] = field(default_factory=list)
    _edges: list[tuple[Ints, Ints, Lag, ArrayLike]] = field(default_factory=list)
    _size: int = 0

    def rows(
        self,
        kind: ArrayLike,
        ends: tuple[Ints, Ints],
        segment: ArrayLike,
        place: Ints,
        *,
        source: ArrayLike = NOWHERE,
        target: ArrayLike = NOWHERE,
    ) -> Ints:
        """A row of each pair of ends (second axis) for each segment (first axis)."""
        columns = np.broadcast_arrays(
            kind, *ends, np.asarray(segment)[..., None], source, target, place
        )
        self._blocks.append(np.array([column.ravel() for column in columns], np.int64))
        first = self._size
        self._size += columns[0].size
        return np.arange(first, self._size).reshape(columns[0].shape)

    def after(self, rows: Ints, earlier: Ints, lag: Lag, back: ArrayLike = 0) -> None:
        """Let rows wait for others, of the turn `back` turns ago."""
        self._edges.append((rows, earlier, lag, back))

    def written(self) -> tuple[Weave, Ints]:
        """All of it, and the number of every row by when it came."""
        every = np.concatenate([np.zeros((COLUMNS, 0), np.int64), *self._blocks], axis=1)
        order = np.argsort(every[-1], kind="stable")
        kind, src, dst, segment, source, target, _ = every[:, order]
        number = np.empty(self._size, np.int64)
        number[order] = self.woven.rows(
            kind, src, dst, segment, source=Place(0, source), target=Place(0, target)
        )
        for rows, earlier, lag, back in self._edges:
            if rows.size:
                self.woven.after(number[rows], number[earlier], lag, back)
        return self.woven, number

    def kinds(
        self,
        hops: "HopsOf",
        made: Sequence[ArrayLike],
        *,
        proxy: bool,
        change: Callable[[RowKind], RowKind] = lambda kind: kind,
    ) -> Ints:
        """The kinds of rows of hops, each made by a pass; of each different one there is one."""
        table = np.stack(
            [np.broadcast_to(np.asarray(x, np.float64), hops.src.shape) for x in made]
            + [hops.kind.astype(np.float64), hops.route.astype(np.float64)]
        )
        _, first, which = np.unique(table, axis=1, return_index=True, return_inverse=True)
        found = []
        for hop in first.tolist():
            *counts, threads = table[:PASS, hop].tolist()
            buffers, op, reads, writes, fan = counts[:2], *map(int, counts[2:])
            way = int(hops.src[hop]), int(hops.dst[hop])
            passes = Pass(int(buffers[0]), int(buffers[1]), op, reads, writes, fan, threads)
            kind = self.channel.hop(*way, passes, proxy=proxy)
            found.append(self.woven.kind(change(kind)))
        return np.array(found, np.int64)[which.reshape(-1)]


@dataclass(frozen=True)
class HopsOf:
    """Hops of a channel: their ends, what joins them (the network is 0), and a number for the way
    of each.
    """

    src: Ints
    dst: Ints
    kind: Ints
    route: Ints

    @property
    def ends(self) -> tuple[Ints, Ints]:
        """From whom to whom."""
        return self.src, self.dst

    def some(self, which: NDArray[np.bool_] | Ints) -> "HopsOf":
        """Some of them."""
        return HopsOf(self.src[which], self.dst[which], self.kind[which], self.route[which])

    def alike(self) -> Iterator[tuple[Ints, tuple[int, int]]]:
        """Those that are joined by the same, and one of them."""
        for kind in different(self.kind).tolist():
            mine = np.flatnonzero(self.kind == kind)
            yield mine, (int(self.src[mine[0]]), int(self.dst[mine[0]]))


def hops_of(channel: Channel, src: Ints, dst: Ints) -> HopsOf:
    """Hops of a channel between some ranks."""
    plan = channel.plan
    kind = link_kinds(plan, np.array(plan.node), src, dst)
    ways = routes(plan, channel.number, src, dst, kind).tolist()
    numbers = {way: number for number, way in enumerate(dict.fromkeys(ways))}
    return HopsOf(src, dst, kind, np.array([numbers[way] for way in ways], np.int64))
