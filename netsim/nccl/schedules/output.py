"""The Output: the schedule under construction, channel after channel, and its last rows.

It keeps FIFOs of different channels apart in scratch, copies what stays on its rank, and ends with
one mark a rank.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from netsim.arrays import different
from netsim.collectives.collective import Collective
from netsim.nccl.schedules.plan import Plan
from netsim.nccl.schedules.weave import Rows, Segments, Weave
from netsim.schedule import IN, IN_ORDER, LOCAL_COPY, OUT, Builder, Fold, Lag, Schedule, Style
from netsim.values import dataclass

KEEP = Style(kind=LOCAL_COPY, src_buffer=IN, dst_buffer=OUT, stream="keep")

MEMORABLE = 500_000  # rows of the largest turn of a loop that is kept for other sizes


@dataclass(frozen=True)
class Turn:
    """One turn of a channel's loop, and the ranks and rows that end it."""

    woven: Weave
    last: tuple[ArrayLike, ArrayLike]


def remembered(collective: Collective, plan: Plan, key: object, write: Callable[[], Turn]) -> Turn:
    """One turn of a channel's loop, written once for all sizes: without places it is the same.

    `key` is what it depends on besides the function and the plan without its work.
    """
    if plan.places:
        return write()
    call = (collective.name, collective.root, plan.algorithm, plan.protocol)
    whole = (*call, plan.direct, plan.registered, key)
    if whole not in plan.memory:
        turn = write()
        if len(turn.woven) > MEMORABLE:
            return turn
        plan.memory[whole] = turn
    found: Turn = plan.memory[whole]
    return found


class Output:
    """A Builder, the scratch in use, and the rows that end each rank."""

    def __init__(
        self,
        collective: Collective,
        *,
        places: bool = True,
        keep: bool = True,
        fold: Fold | None = None,
    ) -> None:
        self.collective = collective
        self.builder = Builder(
            collective.ranks, float(collective.element_bytes), (collective.name,)
        )
        self.builder.fold = fold
        self.places = places
        self._scratch = 0
        self._final: list[Rows] = []
        if keep:
            self._keep()

    def add(
        self,
        turn: Turn,
        cut: Segments,
        regions: int,
        gates: Sequence[tuple[Rows, Lag]] = (),
    ) -> Rows:
        """Append a channel with FIFOs of `regions` connections; returns its rows by turn."""
        woven, last = turn.woven, turn.last
        if not len(cut.count) or not len(woven):
            return np.zeros((0, len(woven)), np.int32)
        rows = woven.unroll(self.builder, cut, base=self._scratch, places=self.places, gates=gates)
        self._scratch += regions * cut.slots * cut.stride
        self.ends(np.asarray(last[0]), rows[-1][np.asarray(last[1])])
        return rows

    def ends(self, ranks: NDArray[np.int64], rows: Rows) -> None:
        """Let the end of some ranks (one may occur several times) wait for rows of theirs."""
        if self.builder.fold is not None:
            ranks = self.builder.fold.ranks.first[ranks].astype(np.int64)
        order = np.argsort(ranks, kind="stable")
        ranks, rows = ranks[order], rows[order]
        place = np.arange(len(ranks)) - np.searchsorted(ranks, ranks)
        columns = np.full((int(place.max(initial=-1)) + 1, self.collective.ranks), -1, np.int32)
        columns[place, ranks] = rows
        self._final += list(columns)

    def close(self) -> Schedule:
        """The finished schedule; its last rows are one mark a rank, in order: the rank is done."""
        after = [(rows, IN_ORDER) for rows in self._final]
        self.builder.marks(np.arange(self.collective.ranks), after=after)
        return self.builder.finish()

    def _keep(self) -> None:
        """Copies of what stays where it is, if the output is elsewhere: part of a first send."""
        kept = self.collective.kept()
        if self.collective.in_place or not len(kept.rank):
            return
        piece = self.builder.pieces(kept.count, kept.in_offset, kept.out_offset)
        fold = self.builder.fold
        if fold is None:
            self.ends(kept.rank, self.builder.rows(KEEP, kept.rank, kept.rank, piece))
            return
        leads = fold.ranks.first[kept.rank] == kept.rank
        for copies in different(fold.ranks.count[kept.rank[leads]]).tolist():
            mine = np.flatnonzero(leads & (fold.ranks.count[kept.rank] == copies))
            rank, style = kept.rank[mine], replace(KEEP, copies=copies)
            self.ends(rank, self.builder.rows(style, rank, rank, piece[mine]))
