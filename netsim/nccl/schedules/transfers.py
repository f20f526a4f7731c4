"""The messages of grouped sends and receives, and the parts in which NCCL sends them.

Collectives without an algorithm of their own (alltoall, gather, scatter and the like) become sends,
in NCCL's order of rounds (`nccl/p2p.py`). An alltoall has a message for every pair of ranks, so
messages are stored as columns, and messages with equal parts share one `P2pWork`.
"""

from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from netsim.base.values import dataclass
from netsim.collectives.collective import Collective
from netsim.nccl.p2p import BATCH, P2pWork, Rounds, Sends, distinct_rows
from netsim.schedule.extent import ALL, Extent

Ints = NDArray[np.int64]
Messages = tuple[Ints, Ints, Ints, Ints, Ints]
"""Sources, targets, both offsets and numbers of elements, as columns."""


@dataclass(frozen=True, eq=False)
class Columns:
    """Messages as columns.

    - `src`, `dst`: the sending and the receiving rank.
    - `offset`: where the data begins in the sender's input, in elements.
    - `target`: where the data begins in the receiver's output, in elements.
    - `number`: the round of the message.
    - `work`: the index in `works` of the message's parts.
    """

    src: Ints
    dst: Ints
    offset: Ints
    target: Ints
    number: Ints
    work: Ints
    works: tuple[P2pWork, ...]


@dataclass(frozen=True)
class Transfers:
    """All messages of a collective as NCCL plans them.

    Methods that take an `extent` leave out messages of later rounds (`Extent.distance`), and whole
    loops of each part (`Extent.loops_left_out`).
    """

    collective: Collective
    rounds: Rounds
    sends: Sends

    @cached_property
    def columns(self) -> Columns:
        """All messages, sorted by sender."""
        return self.of(np.arange(self.collective.ranks), ALL)

    def of(self, sources: Ints, extent: Extent) -> Columns:
        """Return the messages that the ranks `sources` send."""
        messages = self._of_first_rounds(messages_of(self.collective, sources), extent)
        return self._columns(messages, extent)

    def among(self, src: Ints, dst: Ints, extent: Extent = ALL) -> Columns:
        """Return the messages between pairs of ranks (`src`, `dst`) of an alltoall or sendrecv."""
        count = self.collective.count
        counts = np.full(len(src), count)
        return self._columns((src, dst, dst * count, src * count, counts), extent)

    def into(self, targets: Ints, extent: Extent) -> tuple[Ints, Ints, Ints]:
        """Return sender, receiver and round of all messages that the ranks `targets` receive."""
        messages = messages_of(self.collective, targets, to=True)
        src, dst, *_ = self._of_first_rounds(messages, extent)
        return src, dst, self.rounds.numbers(src, dst)

    @property
    def rounds_of_all_channels(self) -> int:
        """The number of rounds after which every channel has run one batch (`BATCH` rounds a
        channel).
        """
        return BATCH * self.sends.channels.total

    def works(self) -> list[P2pWork]:
        """Return one work (`P2pWork`) for each distinct pair of a part's size and its chunk's
        size.
        """
        if self.collective.name != "alltoall":
            return list(self.columns.works)
        # Ranks of nodes with the same number of ranks have equal work, so one of them is enough.
        seats = self.rounds.seats
        _, first = np.unique(seats.size, return_index=True)
        return list(self.of(seats.ranks[seats.start[first]], ALL).works)

    def _columns(self, messages: Messages, extent: Extent) -> Columns:
        """Return messages with their rounds and parts, without the loops that `extent` leaves
        out.
        """
        src, dst, offset, target, count = messages
        number = self.rounds.numbers(src, dst)
        first = self.rounds.channels(number, self.sends.channels.total)
        kinds = (count * self.collective.element_bytes, first, self.rounds.crosses(src, dst))
        different_kinds, work = distinct_rows(kinds)
        works = tuple(
            self.sends.work(nbytes, base, self.rounds, over_network=bool(crosses)).shorter(
                extent.loops_left_out
            )
            for nbytes, base, crosses in different_kinds
        )
        return Columns(src, dst, offset, target, number, work, works)

    def _of_first_rounds(self, messages: Messages, extent: Extent) -> Messages:
        """Return the messages of the rounds that belong to `extent`."""
        if not extent.distance:
            return messages
        is_early = self.rounds.numbers(*messages[:2]) < extent.distance
        src, dst, offset, target, count = (column[is_early] for column in messages)
        return src, dst, offset, target, count


def messages_of(c: Collective, ranks: Ints, *, to: bool = False) -> Messages:
    """Return the messages that some ranks send, sorted by sender, as five columns.

    They are sender, receiver, offset in the sender's input, offset in the receiver's output, and
    the number of elements. With `to` they are the messages that the ranks receive. Empty messages
    are left out; in a call in place also those of ranks to themselves, because their data stays.
    """
    columns = _messages(c, ranks, to=to)
    moved = (columns[4] > 0) & ~(c.in_place & (columns[0] == columns[1]))
    src, dst, offset, target, count = (column[moved] for column in columns)
    return src, dst, offset, target, count


def _messages(c: Collective, ranks: Ints, *, to: bool) -> tuple[Ints, ...]:
    """Return the messages of some ranks as `messages_of` does, but leave none out."""
    if c.name in ("alltoall", "alltoallv"):
        src = np.repeat(ranks, c.ranks)
        dst = np.tile(np.arange(c.ranks), len(ranks))
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
    is_asked_for = np.isin(columns[int(to)], ranks)
    return tuple(column[is_asked_for] for column in columns)


def _pairs(c: Collective) -> tuple[ArrayLike, ...]:
    """Return the messages of a collective that lists its pairs of ranks, as four columns.

    They are sender, receiver, and the offsets in the sender's input and in the receiver's output.
    """
    return *np.array(c.pairs, np.int64).reshape(-1, 2).T, *c.pair_offsets()


ENDS: dict[str, Callable[[Collective], tuple[ArrayLike, ...]]] = {
    "gather": lambda c: (np.arange(c.ranks), c.root, 0, np.arange(c.ranks) * c.count),
    "scatter": lambda c: (c.root, np.arange(c.ranks), np.arange(c.ranks) * c.count, 0),
    "sendrecv": lambda c: (np.arange(c.ranks), (np.arange(c.ranks) + 1) % c.ranks, 0, 0),
    "p2p": _pairs,
}
"""Sources, targets and both offsets of the messages of collectives in which not everyone sends to
everyone."""
