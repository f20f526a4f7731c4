"""From a tape to a Schedule: a row for each kernel of each rank, a few rows for each collective.

What a collective is made of is given as a Coarse: rows between the ranks of its group, each with
the bytes that the real schedule sends that way and the rate it reaches alone. A collective begins
when the last of its group has come, and all its ranks are done when its last row has ended."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from netsim.base.memo import Memo, Same
from netsim.base.values import dataclass
from netsim.schedule.builder import Builder, compute_style
from netsim.schedule.schedule import IN_ORDER, MULTICAST, SWITCH_REDUCE, Schedule, Style, Use
from netsim.workloads.setting import Ranks
from netsim.workloads.tape import KernelTime, Tape, TapeEntry

NONE = -1
SOME = 0.1  # of a kernel's time
# A kernel that only moves bytes hardly slows kernels beside it: beside as many blocks as NCCL's,
# sums of tensors lose 1-3 % (tests/data/kernels, `beside`). So it draws little on the SMs of its
# GPU, but a slower GPU slows it as much as any other kernel, which `clock` says.
FEW_SMS = (Use("sms", "src", 0.01), Use("clock", "src", 1.0))


@dataclass(frozen=True, eq=False)
class Coarse:
    """A collective of one group in few rows; ranks are places within the group. `ends` of row i are
    (source, target): places, or for a multicast's target and a reduction's source a number in
    `groups`. `seconds` is the time of the collective alone, from the launch of its kernels on.
    `algorithm`, `protocol`, `channels`: what NCCL chose. `loads`: how far it loads the busiest link
    of each kind."""

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
    """A schedule of a tape. By task: `begin` (the row that waits for all of a group; of a kernel,
    the kernel) and `end` for every row of its groups. `classes` are the Coarse of every group."""

    schedule: Schedule
    begin: tuple[NDArray[np.int32], ...]
    end: tuple[NDArray[np.int32], ...]
    coarse: tuple[tuple[Coarse, ...], ...]
    class_of: tuple[NDArray[np.int32], ...]


@dataclass(frozen=True)
class _Block:
    """The rows of a collective without what they wait for: columns, and the group of each row.
    `order` sorts them by group, of which `ptr` are the ends."""

    columns: tuple[NDArray[np.int32], ...]
    group: NDArray[np.intp]
    order: NDArray[np.intp]
    ptr: NDArray[np.intp]


# Rows that begin and end each group of a task, its forms, and which of them each group has.
_Made = tuple[NDArray[np.int32], NDArray[np.int32], tuple[Coarse, ...], NDArray[np.int32]]


class _Lowering:
    def __init__(self, tape: Tape, world: int, realise: Realise) -> None:
        self.tape, self.world, self.realise = tape, world, realise
        self.names = {name: k for k, name in enumerate(dict.fromkeys(map(label, tape.entries)))}
        self.builder = Builder(world, collectives=tuple(self.names))
        self.streams = defaultdict[str, NDArray[np.int32]](lambda: np.full(world, NONE, np.int32))
        self.made: list[_Made] = []
        self.kind_of_rank = np.array(tape.kind_of_rank, np.int32)
        self.work = cache(lambda seconds: int(self.builder.work(seconds)[0]))
        self.known = Memo()

    def rows_of(self, task: int, ranks: Ranks) -> NDArray[np.int32]:
        """The row after which a task is done at each of these ranks; -1 where it has no part."""
        groups = self.tape.entries[task].groups
        place = self.known.of(Same(groups), lambda: row_by_rank(groups, self.world))[ranks]
        return np.where(place >= 0, self.made[task][1][place], NONE).astype(np.int32)

    def compute(self, task: TapeEntry) -> None:
        """Write the rows of a kernel on all its ranks, those of one kind of GPU after another."""
        ranks = task.groups[:, 0]
        begin = np.full(len(ranks), NONE, np.int32)
        end = np.full(len(ranks), NONE, np.int32)
        for places, time in self.times_of(task, ranks):
            begin[places], end[places] = self.kernel(task, ranks[places], time)
        self.streams[task.stream][ranks] = end
        self.made.append((begin, end, (), np.zeros(0, np.int32)))

    def times_of(
        self, task: TapeEntry, ranks: Ranks
    ) -> Iterator[tuple[slice | NDArray[np.intp], KernelTime]]:
        """The places of the ranks of each kind of GPU, and how long the kernel takes there."""
        if not task.by_kind:
            yield slice(None), KernelTime(task.seconds, task.moving)
            return
        kinds = self.kind_of_rank[ranks]
        for kind, time in enumerate(task.by_kind):
            places = np.flatnonzero(kinds == kind)
            if len(places):
                yield places, time

    def kernel(
        self, task: TapeEntry, ranks: Ranks, time: KernelTime
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The first and the last row of a kernel on each of some ranks, whose GPUs are alike."""
        after = [self.streams[task.stream][ranks], *(self.rows_of(d, ranks) for d in task.after)]
        before = [(column, IN_ORDER) for column in after if (column >= 0).any()]
        rows = []
        for seconds, uses in parts_of(time):
            name = self.names[label(task)]
            style = compute_style(collective=name, stream=task.stream, uses=uses)
            rows.append(self.builder.rows(style, ranks, ranks, self.work(seconds), after=before))
            before = [(rows[-1], IN_ORDER)]
        return rows[0], rows[-1]

    def collective(self, task: TapeEntry) -> None:
        groups = task.groups
        distinct, class_of = self.realised(task)
        begin = self.join(task)
        end = self.transfer(task, distinct, class_of, begin)
        self.streams[task.stream][groups] = end[:, None]
        self.made.append((begin, end, distinct, class_of))

    def realised(self, task: TapeEntry) -> tuple[tuple[Coarse, ...], NDArray[np.int32]]:
        """The different forms of a task's collective, and which of them each group has."""

        def found() -> tuple[tuple[Coarse, ...], NDArray[np.int32]]:
            chosen = [self.realise(task, tuple(group)) for group in task.groups.tolist()]
            numbers = {one: k for k, one in enumerate(dict.fromkeys(chosen))}
            return tuple(numbers), np.array([numbers[one] for one in chosen], np.int32)

        asked = (Same(task.groups), task.kind, task.collective, task.nbytes, task.dtype)
        return self.known.of(asked, found)

    def join(self, task: TapeEntry) -> NDArray[np.int32]:
        """Marks that wait until all ranks of each group have come."""
        groups = task.groups
        waiting = groups[:, :-1] if task.posted else groups
        columns = [self.streams[task.stream][groups]]
        columns += [self.rows_of(d, waiting) for d in task.after]
        every = np.concatenate(columns, axis=1)
        every = np.sort(every, axis=1)
        keep = every >= 0
        keep[:, 1:] &= every[:, 1:] != every[:, :-1]
        ptr = np.concatenate([[0], np.cumsum(keep.sum(axis=1))])
        return self.builder.marks(groups[:, 0], joins=(ptr, every[keep], IN_ORDER))

    def transfer(
        self,
        task: TapeEntry,
        distinct: tuple[Coarse, ...],
        class_of: NDArray[np.int32],
        begin: NDArray[np.int32],
    ) -> NDArray[np.int32]:
        """The rows of a collective in all its groups, and the marks that end it."""
        asked = (Same(task.groups), distinct, label(task), task.stream)
        block = self.known.of(asked, lambda: self.rows_written(task, distinct, class_of))
        rows = self.builder.rows(*block.columns, after=[(begin[block.group], IN_ORDER)])
        joins = (block.ptr, rows[block.order], IN_ORDER)
        return self.builder.marks(task.groups[:, 0], joins=joins)

    def rows_written(
        self, task: TapeEntry, distinct: tuple[Coarse, ...], class_of: NDArray[np.int32]
    ) -> "_Block":
        """The rows of a collective in all its groups, those of one form after the other."""
        parts, group = [], []
        for k, coarse in enumerate(distinct):
            mine = np.flatnonzero(class_of == k)
            parts.append(self.row_columns(task, coarse, task.groups[mine]))
            group.append(np.repeat(mine, len(coarse.src)))
        styles, src, dst, piece = (np.concatenate(column) for column in zip(*parts, strict=True))
        number = np.concatenate(group)
        count = np.bincount(number, minlength=len(task.groups))
        return _Block(
            columns=(styles, src, dst, piece),
            group=number,
            order=np.argsort(number, kind="stable"),
            ptr=np.concatenate([[0], np.cumsum(count)]),
        )

    def row_columns(
        self, task: TapeEntry, coarse: Coarse, groups: Ranks
    ) -> tuple[NDArray[np.int32], ...]:
        """Styles, sources, targets and pieces of the rows of one form in some groups."""
        name, stream = self.names[label(task)], task.stream
        tagged = [replace(style, collective=name, stream=stream) for style in coarse.styles]
        styles = np.array([self.builder.style(style) for style in tagged], np.int32)
        piece = self.known.of(coarse, lambda: self.builder.pieces(coarse.amount))
        src, dst = self.ends(coarse, groups)
        width = len(groups)
        return np.tile(styles, width), src.reshape(-1), dst.reshape(-1), np.tile(piece, width)

    def ends(self, coarse: Coarse, groups: Ranks) -> tuple[Ranks, Ranks]:
        """Source and target of every row in every group."""
        kinds = np.array([style.kind for style in coarse.styles])
        columns = []
        for places, grouped in ((coarse.src, SWITCH_REDUCE), (coarse.dst, MULTICAST)):
            many = kinds == grouped
            column = groups[:, np.where(many, 0, places)].copy()
            for row in np.flatnonzero(many):
                members = list(coarse.groups[int(places[row])])
                column[:, row] = [self.builder.group(group[members]) for group in groups]
            columns.append(column)
        return columns[0], columns[1]


def parts_of(time: KernelTime) -> list[tuple[float, tuple[Use, ...]]]:
    """The seconds of a kernel that need all SMs and those that only move bytes, with what they use:
    apart where there are enough of both to tell."""
    moving_fraction = time.moving / time.seconds if time.seconds else 0.0
    if moving_fraction < SOME:
        return [(time.seconds, ())]
    if moving_fraction > 1 - SOME:
        return [(time.seconds, FEW_SMS)]
    return [(time.seconds - time.moving, ()), (time.moving, FEW_SMS)]


def lower(tape: Tape, world: int, realise: Realise) -> Lowered:
    """The schedule of a tape on `world` ranks."""
    work = _Lowering(tape, world, realise)
    for task in tape.entries:
        if task.collective:
            work.collective(task)
        else:
            work.compute(task)
        if task.launched:
            work.builder.release(work.made[-1][0], task.launched)
    begin, end, coarse, class_of = zip(*work.made, strict=True)
    return Lowered(work.builder.finish(), begin, end, coarse, class_of)


def row_by_rank(groups: Ranks, world: int) -> NDArray[np.int32]:
    """The row of some groups that each rank is in; -1 where it is in none."""
    rows = np.full(world, NONE, np.int32)
    rows[groups] = np.arange(len(groups), dtype=np.int32)[:, None]
    return rows


def label(task: TapeEntry) -> str:
    """What rows of a task are called: `compute`, or kind and collective."""
    return f"{task.kind} {task.collective}".strip()
