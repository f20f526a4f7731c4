"""Rounds: which sends a collective becomes, in which batch, on which channels, in which parts.

It follows NCCL's order of rounds; collectives are alltoall, gather, scatter and the like. Sends are
columns, and those of equal parts share a work: an alltoall has as many as pairs of ranks.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from netsim.collectives.collective import Collective
from netsim.nccl.names import Protocol
from netsim.nccl.p2p import P2pWork
from netsim.nccl.p2p_rounds import BATCH, Rounds, distinct_rows
from netsim.nccl.plan import Sends
from netsim.nccl.schedules.plan import Transfer
from netsim.values import dataclass

Ints = NDArray[np.int64]
Messages = tuple[Ints, Ints, Ints, Ints, Ints]
Change = Callable[[P2pWork], P2pWork]


@dataclass(frozen=True, eq=False)
class Columns:
    """Sends one by one: their ends, where their data lies in the source's input and the target's
    output (elements), the round, and the work of each as a place in `works`.
    """

    src: Ints
    dst: Ints
    offset: Ints
    target: Ints
    number: Ints
    work: Ints
    works: tuple[P2pWork, ...]

    def transfers(self, rows: Ints) -> list[Transfer]:
        """Some of them."""
        ends = (column[rows].tolist() for column in (self.src, self.dst, self.offset, self.target))
        turns = (column[rows].tolist() for column in (self.work, self.number // BATCH))
        return [
            _transfer((src, dst, offset, target), self.works[work], batch)
            for src, dst, offset, target, work, batch in zip(*ends, *turns, strict=True)
        ]


@dataclass(frozen=True)
class Transfers(Sequence[Transfer]):
    """All sends of a collective as NCCL plans them; written out only when somebody looks.

    `changes` are made to the parts of every send.
    """

    collective: Collective
    rounds: Rounds
    sends: Sends
    changes: tuple[Change, ...] = ()

    def __len__(self) -> int:
        return len(self.columns.src)

    @overload
    def __getitem__(self, index: int) -> Transfer: ...

    @overload
    def __getitem__(self, index: slice) -> list[Transfer]: ...

    def __getitem__(self, index: int | slice) -> Transfer | list[Transfer]:
        rows = np.arange(len(self))[index]
        found = self.columns.transfers(np.atleast_1d(rows))
        return found if isinstance(index, slice) else found[0]

    @cached_property
    def columns(self) -> Columns:
        """All of them, by source."""
        return self.of(np.arange(self.collective.ranks))

    def of(self, sources: Ints) -> Columns:
        """The sends of some ranks."""
        return self._columns(messages_of(self.collective, sources))

    def among(self, src: Ints, dst: Ints) -> Columns:
        """The sends between some pairs, where everyone sends as much to everyone."""
        c = self.collective
        return self._columns((src, dst, dst * c.count, src * c.count, np.full(len(src), c.count)))

    def _columns(self, messages: Messages) -> Columns:
        src, dst, offset, target, count = messages
        number = self.rounds.numbers(src, dst)
        first = self.rounds.channels(number, self.sends.channels.total)
        kinds = (count * self.collective.element_bytes, first, self.rounds.crosses(src, dst))
        found, work = distinct_rows(kinds)
        works = tuple(
            self._changed(self.sends.work(nbytes, base, self.rounds, over_network=bool(crosses)))
            for nbytes, base, crosses in found
        )
        return Columns(src, dst, offset, target, number, work, works)

    def into(self, targets: Ints) -> tuple[Ints, Ints, Ints]:
        """Source, target and round of all sends to some ranks."""
        src, dst, *_ = messages_of(self.collective, targets, to=True)
        return src, dst, self.rounds.numbers(src, dst)

    def works(self) -> list[P2pWork]:
        """One of each size of part and chunk that there is."""
        if self.collective.name != "alltoall":
            return list(self.columns.works)
        # Ranks of nodes of one size have the like to do.
        _, first = np.unique(self.rounds.seats.size, return_index=True)
        return list(self.of(self.rounds.seats.ranks[self.rounds.seats.start[first]]).works)

    def changed(self, change: Change) -> "Transfers":
        """The same with other parts."""
        return replace(self, changes=(*self.changes, change))

    def _changed(self, work: P2pWork) -> P2pWork:
        for change in self.changes:
            work = change(work)
        return work


def _transfer(ends: tuple[int, int, int, int], work: P2pWork, batch: int) -> Transfer:
    protocol: Protocol = "LL" if work.protocol == "LL" else "Simple"
    return Transfer(*ends, work.parts, work.channels, work.chunk, protocol, batch)


def messages_of(c: Collective, ranks: Ints, *, to: bool = False) -> Messages:
    """What some ranks have for others, by source, or what others have for them (`to`), by target:
    both ends, where it lies in the input of the one and the output of the other, and elements.
    Nothing empty; in place, own data stays where it is.
    """
    columns = _messages(c, ranks, to=to)
    moved = (columns[4] > 0) & ~(c.in_place & (columns[0] == columns[1]))
    src, dst, offset, target, count = (column[moved] for column in columns)
    return src, dst, offset, target, count


def _messages(c: Collective, ranks: Ints, *, to: bool) -> tuple[Ints, ...]:
    if c.name in ("alltoall", "alltoallv"):
        src, dst = np.repeat(ranks, c.ranks), np.tile(np.arange(c.ranks), len(ranks))
        if to:
            src, dst = dst, src
        if c.name == "alltoall":
            return src, dst, dst * c.count, src * c.count, np.full(len(src), c.count)
        blocks = c.blocks()
        table = (blocks.in_offset, blocks.out_offset, blocks.count)
        return src, dst, *(column[src, dst] for column in table)
    if c.name not in ENDS:
        raise ValueError(f"collective: {c.name} does not run as sends and receives")
    columns = np.broadcast_arrays(*ENDS[c.name](c), c.count)
    some = np.isin(columns[int(to)], ranks)
    return tuple(column[some] for column in columns)


def _pairs(c: Collective) -> tuple[ArrayLike, ...]:
    return *np.array(c.pairs, np.int64).reshape(-1, 2).T, *c.pair_offsets()


# Sources, destinations and both offsets of what is sent where not everyone sends to everyone.
ENDS: dict[str, Callable[[Collective], tuple[ArrayLike, ...]]] = {
    "gather": lambda c: (np.arange(c.ranks), c.root, 0, np.arange(c.ranks) * c.count),
    "scatter": lambda c: (c.root, np.arange(c.ranks), np.arange(c.ranks) * c.count, 0),
    "sendrecv": lambda c: (np.arange(c.ranks), (np.arange(c.ranks) + 1) % c.ranks, 0, 0),
    "p2p": _pairs,
}
