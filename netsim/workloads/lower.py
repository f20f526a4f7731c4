"""Turn a tape into a schedule: a row for each kernel of each rank, a few rows for each collective.

The rows of a collective are given as a Coarse: flows between ranks of its group, each with the
bytes that the collective's full schedule sends between these ranks and the rate that it reaches
alone. A collective starts when the last rank of its group has joined, and finishes on all its ranks
when its last row has finished.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from netsim.base.memo import Memo, Same
from netsim.base.startup import tell_share
from netsim.base.values import dataclass
from netsim.schedule.builder import Builder, compute_style
from netsim.schedule.schedule import IN_ORDER, MULTICAST, SWITCH_REDUCE, Schedule, Style, Use
from netsim.workloads.setting import Ranks
from netsim.workloads.tape import KernelTime, Tape, TapeEntry

NONE = -1
SOME = 0.1  # smallest fraction of a kernel's time that becomes a row of its own
SHARE_OF_COLLECTIVES = 0.4
"""The fraction of the time for a large step that the simulation of its collectives takes.

It is used for the progress that is shown."""
# Kernels that only move bytes need few SMs: if they run beside the blocks of NCCL, sums of tensors
# get only 1-3 % slower (tests/data/kernels, `beside`). A slower GPU slows them as it slows any
# kernel (`clock`).
FEW_SMS = (Use("sms", "src", 0.01), Use("clock", "src", 1.0))


@dataclass(frozen=True, eq=False)
class Coarse:
    """A collective of one group in few rows. Ranks are positions within the group.

    Args:
        seconds: standalone time from the launch of its kernels on.
        styles: style of each row.
        src: source of each row; for a switch reduction, an index of `groups`.
        dst: destination of each row; for a multicast, an index of `groups`.
        amount: bytes of each row.
        groups: the groups of ranks that switch reductions and multicasts use.
        algorithm: NCCL's choice, as `protocol` and `channels` are.
        approximation: what was extrapolated to find it, in words.
        loads: (kind of link, utilization of the busiest link of this kind).
    """

    seconds: float
    styles: tuple[Style, ...]
    src: NDArray[np.int32]
    dst: NDArray[np.int32]
    amount: NDArray[np.int64]
    groups: tuple[tuple[int, ...], ...] = ()
    algorithm: str = ""
    protocol: str = ""
    channels: int = 0
    approximation: str = ""
    loads: tuple[tuple[str, float], ...] = ()


Realise = Callable[[TapeEntry, tuple[int, ...]], Coarse]


@dataclass(frozen=True)
class Lowered:
    """The schedule of a tape, and the rows of each entry.

    Args:
        begin: by entry and group, the row that waits for all ranks (of a kernel: the kernel).
        end: by entry and group, the row after which the entry is done.
        coarse: by entry, its distinct coarse forms.
        class_of: by entry and group, the index of its coarse form.
    """

    schedule: Schedule
    begin: tuple[NDArray[np.int32], ...]
    end: tuple[NDArray[np.int32], ...]
    coarse: tuple[tuple[Coarse, ...], ...]
    class_of: tuple[NDArray[np.int32], ...]


@dataclass(frozen=True)
class _Block:
    """The rows of one collective in all its groups, without dependencies.

    - `columns`: style, source, destination and piece of each row.
    - `group`: by row, the number of its group.
    - `order`: the rows sorted by group; `ptr` says where each group begins there.
    """

    columns: tuple[NDArray[np.int32], ...]
    group: NDArray[np.intp]
    order: NDArray[np.intp]
    ptr: NDArray[np.intp]


# What was written of an entry of the tape: the first and the last row of each group, the distinct
# coarse forms, and by group the number of its form.
_Made = tuple[NDArray[np.int32], NDArray[np.int32], tuple[Coarse, ...], NDArray[np.int32]]


def nothing_to_do() -> None:
    """Do nothing; the default of `when_realised`."""


class _Lowering:
    """Writes the rows of a tape's entries, one after the other."""

    def __init__(self, tape: Tape, world: int, realise: Realise) -> None:
        self.tape = tape
        self.world = world
        self.realise = realise
        self.names = {name: k for k, name in enumerate(dict.fromkeys(map(label, tape.entries)))}
        self.builder = Builder(world, collectives=tuple(self.names))
        self.streams = defaultdict[str, NDArray[np.int32]](lambda: np.full(world, NONE, np.int32))
        self.results: list[_Made] = []
        self.kind_of_rank = np.array(tape.kind_of_rank, np.int32)
        self.work = cache(lambda seconds: int(self.builder.work(seconds)[0]))
        self.cache = Memo()

    def rows_of(self, entry: int, ranks: Ranks) -> NDArray[np.int32]:
        """By rank of `ranks`, the row after which an entry is done there; -1 if the rank has no
        part in it.
        """
        groups = self.tape.entries[entry].groups
        place = self.cache.of(Same(groups), lambda: row_by_rank(groups, self.world))[ranks]
        return np.where(place >= 0, self.results[entry][1][place], NONE).astype(np.int32)

    def compute(self, entry: TapeEntry) -> None:
        """Write the rows of a kernel on all its ranks, one kind of GPU after the other."""
        ranks = entry.groups[:, 0]
        begin = np.full(len(ranks), NONE, np.int32)
        end = np.full(len(ranks), NONE, np.int32)
        for places, time in self.times_of(entry, ranks):
            begin[places], end[places] = self.kernel(entry, ranks[places], time)
        self.streams[entry.stream][ranks] = end
        self.results.append((begin, end, (), np.zeros(0, np.int32)))

    def times_of(
        self, entry: TapeEntry, ranks: Ranks
    ) -> Iterator[tuple[slice | NDArray[np.intp], KernelTime]]:
        """Yield for each kind of GPU the positions in `ranks` with that kind, and the kernel's time
        there.
        """
        if not entry.by_kind:
            yield slice(None), KernelTime(entry.seconds, entry.moving)
            return
        kinds = self.kind_of_rank[ranks]
        for kind, time in enumerate(entry.by_kind):
            places = np.flatnonzero(kinds == kind)
            if len(places):
                yield places, time

    def kernel(
        self, entry: TapeEntry, ranks: Ranks, time: KernelTime
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Write a kernel on ranks with equal GPUs; return the first and the last row of
        each rank.
        """
        after = [self.streams[entry.stream][ranks], *(self.rows_of(d, ranks) for d in entry.after)]
        before = [(column, IN_ORDER) for column in after if (column >= 0).any()]
        rows = []
        for seconds, uses in parts_of(time):
            name = self.names[label(entry)]
            style = compute_style(collective=name, stream=entry.stream, uses=uses)
            rows.append(self.builder.rows(style, ranks, ranks, self.work(seconds), after=before))
            before = [(rows[-1], IN_ORDER)]
        return rows[0], rows[-1]

    def collective(self, entry: TapeEntry) -> None:
        """Write the rows of a collective in all its groups."""
        groups = entry.groups
        distinct, class_of = self.realised(entry)
        begin = self.join(entry)
        end = self.transfer(entry, distinct, class_of, begin)
        self.streams[entry.stream][groups] = end[:, None]
        self.results.append((begin, end, distinct, class_of))

    def realised(self, entry: TapeEntry) -> tuple[tuple[Coarse, ...], NDArray[np.int32]]:
        """The distinct coarse forms of an entry's collective, and by group the number of
        its form.
        """

        def distinct_forms() -> tuple[tuple[Coarse, ...], NDArray[np.int32]]:
            chosen = [self.realise(entry, tuple(group)) for group in entry.groups.tolist()]
            numbers = {form: k for k, form in enumerate(dict.fromkeys(chosen))}
            return tuple(numbers), np.array([numbers[form] for form in chosen], np.int32)

        key = (Same(entry.groups), entry.kind, entry.collective, entry.nbytes, entry.dtype)
        return self.cache.of(key, distinct_forms)

    def join(self, entry: TapeEntry) -> NDArray[np.int32]:
        """Write a mark for each group that waits until all its ranks have joined; return
        the marks.
        """
        groups = entry.groups
        waiting = groups[:, :-1] if entry.posted else groups
        columns = [self.streams[entry.stream][groups]]
        columns += [self.rows_of(d, waiting) for d in entry.after]
        awaited_rows = np.concatenate(columns, axis=1)
        awaited_rows = np.sort(awaited_rows, axis=1)
        keep = awaited_rows >= 0
        keep[:, 1:] &= awaited_rows[:, 1:] != awaited_rows[:, :-1]
        ptr = np.concatenate([[0], np.cumsum(keep.sum(axis=1))])
        return self.builder.marks(groups[:, 0], joins=(ptr, awaited_rows[keep], IN_ORDER))

    def transfer(
        self,
        entry: TapeEntry,
        distinct: tuple[Coarse, ...],
        class_of: NDArray[np.int32],
        begin: NDArray[np.int32],
    ) -> NDArray[np.int32]:
        """Write the rows of a collective in all its groups, each after its mark in `begin`; return
        the marks that end it.
        """
        key = (Same(entry.groups), distinct, label(entry), entry.stream)
        block = self.cache.of(key, lambda: self.rows_written(entry, distinct, class_of))
        rows = self.builder.rows(*block.columns, after=[(begin[block.group], IN_ORDER)])
        joins = (block.ptr, rows[block.order], IN_ORDER)
        return self.builder.marks(entry.groups[:, 0], joins=joins)

    def rows_written(
        self, entry: TapeEntry, distinct: tuple[Coarse, ...], class_of: NDArray[np.int32]
    ) -> "_Block":
        """The rows of a collective in all its groups, ordered by coarse form."""
        parts = []
        group = []
        for k, coarse in enumerate(distinct):
            members = np.flatnonzero(class_of == k)
            parts.append(self.row_columns(entry, coarse, entry.groups[members]))
            group.append(np.repeat(members, len(coarse.src)))
        styles, src, dst, piece = (np.concatenate(column) for column in zip(*parts, strict=True))
        number = np.concatenate(group)
        count = np.bincount(number, minlength=len(entry.groups))
        return _Block(
            columns=(styles, src, dst, piece),
            group=number,
            order=np.argsort(number, kind="stable"),
            ptr=np.concatenate([[0], np.cumsum(count)]),
        )

    def row_columns(
        self, entry: TapeEntry, coarse: Coarse, groups: Ranks
    ) -> tuple[NDArray[np.int32], ...]:
        """Styles, sources, destinations and pieces of the rows of one coarse form in `groups`."""
        name = self.names[label(entry)]
        stream = entry.stream
        tagged = [replace(style, collective=name, stream=stream) for style in coarse.styles]
        styles = np.array([self.builder.style(style) for style in tagged], np.int32)
        piece = self.cache.of(coarse, lambda: self.builder.pieces(coarse.amount))
        src, dst = self.ends(coarse, groups)
        width = len(groups)
        return np.tile(styles, width), src.reshape(-1), dst.reshape(-1), np.tile(piece, width)

    def ends(self, coarse: Coarse, groups: Ranks) -> tuple[Ranks, Ranks]:
        """The source and the destination of each row of a coarse form (second axis) in each of
        `groups`.
        """
        kinds = np.array([style.kind for style in coarse.styles])
        columns = []
        for places, grouped in ((coarse.src, SWITCH_REDUCE), (coarse.dst, MULTICAST)):
            is_group = kinds == grouped
            column = groups[:, np.where(is_group, 0, places)].copy()
            for row in np.flatnonzero(is_group):
                members = list(coarse.groups[int(places[row])])
                column[:, row] = [self.builder.group(group[members]) for group in groups]
            columns.append(column)
        return columns[0], columns[1]


def parts_of(time: KernelTime) -> list[tuple[float, tuple[Use, ...]]]:
    """A kernel in up to two parts, (seconds, draws on resources): one that needs all SMs, and one
    that only moves bytes.

    A part of less than a tenth of the time is added to the other one.
    """
    moving_fraction = time.moving / time.seconds if time.seconds else 0.0
    if moving_fraction < SOME:
        return [(time.seconds, ())]
    if moving_fraction > 1 - SOME:
        return [(time.seconds, FEW_SMS)]
    return [(time.seconds - time.moving, ()), (time.moving, FEW_SMS)]


def lower(
    tape: Tape, world: int, realise: Realise, when_realised: Callable[[], None] = nothing_to_do
) -> Lowered:
    """The schedule of a tape on `world` ranks.

    Args:
        realise: returns the coarse form of an entry's collective on a group of ranks.
        when_realised: called when the coarse forms of all collectives are known and no row is
            written yet; it may free the memory that the simulations of `realise` needed.
    """
    work = _Lowering(tape, world, realise)
    collectives = [entry for entry in tape.entries if entry.collective]
    for number, entry in enumerate(collectives):
        work.realised(entry)
        tell_share(SHARE_OF_COLLECTIVES * number / len(collectives))
    when_realised()
    for entry in tape.entries:
        if entry.collective:
            work.collective(entry)
        else:
            work.compute(entry)
        if entry.launched:
            work.builder.release(work.results[-1][0], entry.launched)
    begin, end, coarse, class_of = zip(*work.results, strict=True)
    return Lowered(work.builder.finish(), begin, end, coarse, class_of)


def row_by_rank(groups: Ranks, world: int) -> NDArray[np.int32]:
    """By rank, the number of the group in `groups` that contains it; -1 for none."""
    rows = np.full(world, NONE, np.int32)
    rows[groups] = np.arange(len(groups), dtype=np.int32)[:, None]
    return rows


def label(entry: TapeEntry) -> str:
    """The name of an entry's rows: `compute`, or kind and collective."""
    return f"{entry.kind} {entry.collective}".strip()
