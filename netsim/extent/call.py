"""The form in which a task is simulated, and its schedules with all loops or with fewer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from netsim.base.memo import Memo, Same
from netsim.base.values import dataclass
from netsim.collectives.collective import Collective
from netsim.collectives.reduced import Stands
from netsim.collectives.table import build, parameters_of, stamp
from netsim.collectives.writing import piece_count
from netsim.engines.engine import tight_entries
from netsim.extent.memory import LIMITS, Limits
from netsim.extent.steady import LATE, LONGEST_PERIOD
from netsim.nccl import choice
from netsim.nccl.schedules import smaller
from netsim.nccl.schedules.plan import Plan
from netsim.nccl.schedules.ring import WALKS, evened, rows_of_rings
from netsim.program.place import TIGHT, place
from netsim.program.symmetry import Where
from netsim.schedule.schedule import Schedule, Symmetry, combine
from netsim.topology.graph import Topology
from netsim.workloads.task import Task

_FIRST = 8  # loops that the first run has, at least
LEAST = 2  # loops that every channel keeps: the last one may be partial
LEVEL, AS_LEVEL = 1e-4, 10.0  # what a call of equal heads may be off, and for what it moves more


# **** Calls ****


@dataclass(frozen=True, eq=False)
class Call:
    """A task in the form in which it is simulated.

    `may_fold`: one member may be simulated for each class of equal ranks and channels.
    `doubt` is the largest relative error of a form that is not exactly the task, such as NVLSTree
    with the same amount of data for every head.
    `answers` keeps what is computed about this form.
    """

    task: Task
    may_fold: bool = False
    doubt: float = 0.0
    answers: Memo = field(default_factory=Memo, repr=False, compare=False)

    @property
    def collective(self) -> Collective:
        """The collective of one communicator."""
        return self.task.collective

    @property
    def topology(self) -> Topology:
        """The topology that the task runs on."""
        return self.task.topology

    @property
    def plans(self) -> tuple[Plan, ...]:
        """NCCL's decisions, one for each kind of communicator."""
        return self.task.plans

    @property
    def memo(self) -> Memo:
        """The answers about textbook algorithms on this topology, which other sizes share."""
        return self.task.topology.memo.of("textbook algorithms", Memo)

    def changed(
        self, *, may_fold: bool | None = None, doubt: float | None = None, **task: Any
    ) -> Call:
        """The same form of a task of which some fields differ."""
        return Call(
            replace(self.task, **task),
            self.may_fold if may_fold is None else may_fold,
            self.doubt if doubt is None else doubt,
        )

    @property
    def where(self) -> Where:
        """The topology and GPUs of the task, by which equal ranks are found."""
        return Where(self.topology, self.task.gpus)

    @cached_property
    def looped(self) -> Looped:
        """The schedules of the task, with all of its loops or with fewer."""
        if self.plans:
            made = looped_nccl(
                self.collective, self.plans, self._joined, self.task.gpus_per_process
            )
            return replace(made, doubt=self.doubt) if self.doubt else made
        # A textbook algorithm; its loops are the pieces of its pipeline, where it has one.
        pieces = _pieces(self.collective, self.task.algorithm, self.task.parameters)
        others = {
            k: v for k, v in self.task.parameters.items() if k not in ("chunks", "chunk_bytes")
        }
        even, left = divmod(self.collective.count, max(1, pieces))

        def write(kept: int) -> Schedule:
            if kept == pieces or not even:
                return self._joined(
                    [build(self.collective, self.task.algorithm, **self.task.parameters)]
                )
            less = replace(self.collective, count=even * kept)
            return self._joined([build(less, self.task.algorithm, **others, chunks=kept)])

        if pieces <= 1 or not even:
            return Looped(1, write)
        return Looped(pieces, write, rounding=1 / even if left else 0.0)

    @cached_property
    def folded(self) -> Call | None:
        """The form with one representative for each class of equal ranks and channels.

        None if every class has one member, or if a textbook algorithm runs the task.
        """
        if not (self.may_fold and self.plans and len(self.task.groups) == 1):
            return None
        plan = smaller.folded_plan(
            self.collective, self.plans[0], self.where, self.task.gpus_per_process
        )
        return None if plan.symmetry is None else self.changed(plans=(plan,), may_fold=False)

    @cached_property
    def level(self) -> Call:
        """NCCL's NVLSTree with equal heads. That moves hardly more, but what runs into one another
        may settle otherwise for it (`tests.bench.rounds`)."""
        if [plan.algorithm for plan in self.plans] != ["NVLSTree"] or not self.may_fold:
            return self
        collective, plan, line, more = smaller.evened(self.collective, self.plans[0])
        doubt = AS_LEVEL * line + more + (LEVEL if self.task.is_single else LATE)
        if not line:
            return self
        return self.changed(collective=collective, plans=(plan,), doubt=doubt)

    @cached_property
    def by_channel(self) -> Call | None:
        """NCCL's trees, or rings of some hops, with one channel for all that meet in nothing that
        can ever be full; None where that is not less than what is `folded`."""
        like, usual = self.looped.like, (self.folded or self).plans[:1]
        some = self.may_fold and [plan.algorithm == "Tree" or plan.hops > 0 for plan in usual]
        if (
            some != [True]
            or like is None
            or self.task.gpus_per_process > 1
            or self.task.topology.changes
        ):
            return None
        plan, key = usual[0], ("channels alike", like(self.looped.least))
        fewer = replace(plan, symmetry=plan.memo.of(key, self._channels_alike))
        if fewer.symmetry is None or smaller.written_share(fewer) >= smaller.written_share(plan):
            return None
        return self.changed(plans=(fewer,), may_fold=False)

    def _channels_alike(self) -> Symmetry | None:
        program = place(self.looped.shortest, self.topology, self.task.gpus.tolist())
        tight = np.zeros(len(program.links), bool)
        tight[program.paths.link[tight_entries(program)]] = True
        wires = len(self.topology.links)
        others = (wires + np.flatnonzero(tight[wires:])).tolist()
        if not {program.links.kind(number) for number in others} <= set(TIGHT):
            return None
        return smaller.channels_alike(self.collective, self.plans[0], self.where, tight[:wires])

    @cached_property
    def evened(self) -> tuple[Call, float]:
        """NCCL's ring without chunks that are empty, and which part of time they may make."""
        plan, off = evened(self.collective, self.plans[0])
        return self if plan is self.plans[0] else self.changed(plans=(plan,)), off

    def of_hops(self, hops: int) -> Call:
        """NCCL's ring in which chunks go only so many ranks far, or sends to all
        of only so many rounds."""
        plan = self.plans[0]
        sends = plan.transfers and replace(plan.transfers, first=hops)
        return self.changed(plans=(replace(plan, transfers=sends, hops=0 if sends else hops),))

    @property
    def rows_of_rings(self) -> int:
        """Rows of the rings that NCCL's only communicator runs; 0 where it runs none."""
        plan = self.plans[0] if len(self.plans) == 1 and len(self.task.groups) == 1 else None
        if plan is None or plan.algorithm != "Ring" or self.collective.name not in WALKS:
            return 0
        return rows_of_rings(self.collective, plan)

    def _joined(self, schedules: Sequence[Schedule]) -> Schedule:
        """The schedules of all communicators side by side; one stands for equal ones of all."""
        if len(self.task.groups) == 1:
            return schedules[0]
        made = [schedules[kind] for kind in self.task.plan_of_group]
        each = made if len(made) > 1 else made * len(self.task.groups)
        return combine(each, self.task.groups, len(self.task.gpus))


CALLS = Memo(4)
"""The forms of the last tasks: whoever asks whether a task fits also runs it, both in place and out
of place. Few, because a form holds schedules, which may be large."""


def call_of(task: Task, limits: Limits = LIMITS) -> Call:
    """The form of a task that `limits` allow; equal questions get the same object."""
    may_fold = limits.folds_groups(len(task.groups))
    return CALLS.of((Same(task), may_fold), lambda: Call(task, may_fold))


# **** Loops ****


@dataclass(frozen=True)
class Looped:
    """A call of `loops` loops over its buffers, not fewer than `least`. `write(loops)` writes it
    down with that many loops. With fewer loops all data is smaller by whole loops: what is left
    over for a last, partial one is the same. `rounding` is by which part its loops differ at most,
    `doubt` by which it may from what it stands for, `memory` the loops that its FIFOs hold, `kept`
    those of each channel in the shortest run. `like(loops)` is equal for what is the same in calls
    of other sizes, of which `memo` keeps what was found."""

    loops: int
    write: Callable[[int], Schedule]
    least: int = 1
    rounding: float = 0.0
    doubt: float = 0.0
    memory: int = 0
    kept: Mapping[int, int] = field(default_factory=dict)
    like: Callable[[int], object] | None = None
    memo: Memo = field(default_factory=Memo, repr=False, compare=False)
    _last: Memo = field(default_factory=partial(Memo, 1), repr=False, compare=False)

    def schedule(self, loops: int = 0) -> Schedule:
        """The schedule with so many loops (0: all); the last is kept, for it is asked for again."""
        loops = loops or self.loops
        return self._last.of(loops, lambda: self.write(loops))

    def rows(self, loops: int = 0) -> int:
        """About how many rows it has, from the shortest and what a loop more adds."""
        return len(self.shortest) + int(self._a_loop * ((loops or self.loops) - self.least))

    @cached_property
    def _a_loop(self) -> float:
        """Rows of a loop of all channels, as in the shortest run."""
        if not self.kept:
            return len(self.shortest) / self.least
        rows = np.bincount(self.shortest.style_column("channel"), minlength=max(self.kept) + 1)
        return float(sum(rows[channel] / loops for channel, loops in self.kept.items()))

    @cached_property
    def shortest(self) -> Schedule:
        """The schedule with the fewest loops."""
        return self.schedule() if self.least == self.loops else self.write(self.least)

    @property
    def first(self) -> int:
        """Loops of the shortest run that is looked into: what it compares has gone once through all
        memory. It is 2, 4, 8, …, for shorter calls have as many."""
        least = self.least - 1 + max(_FIRST, self.memory + 1 + LONGEST_PERIOD)
        return 1 << (least - 1).bit_length()


Join = Callable[[Sequence[Schedule]], Schedule]


def looped_nccl(collective: Collective, plans: Sequence[Plan], join: Join, together: int) -> Looped:
    """What NCCL runs for one collective on several communicators, joined."""
    each = [smaller.loops_of(collective, plan) for plan in plans]
    loops, fewest = max(map(max, each)), min(map(min, each))

    def write(kept: int) -> Schedule:
        return join(
            [choice.schedule_of(*smaller.shorter(collective, p, loops - kept)) for p in plans]
        )

    def like(kept: int) -> object:
        """All that a schedule without places depends on."""
        one, plan = smaller.shorter(collective, plans[0], loops - kept)
        work = tuple((w.channel, w.count, w.chunk, w.last) for w in plan.work)
        call = (one.name, one.root, one.in_place, one.element_bytes, plan.algorithm, plan.protocol)
        loose = plan.stands is not None and plan.stands.loose is not None
        folds = plan.symmetry and (loose, together, smaller.works_alike(collective, plans[0]))
        return call, plan.direct, plan.registered, plan.slot, plan.hops, folds, work

    least, memory = min(loops, loops - fewest + LEAST), max(plan.slots for plan in plans)
    whole = Looped(loops, write, least, memory=memory)
    if len(plans) > 1 or plans[0].places or plans[0].transfers is not None:
        return whole
    left = (max(1, count - loops + least) for count in each[0])
    kept = dict(zip((work.channel for work in plans[0].work), left, strict=False))
    return replace(whole, like=like, kept=kept, memo=plans[0].memo.of("loops", Memo))


def looped_fold(call: Call, fold: Stands | Schedule) -> Looped:
    """A textbook algorithm as lanes that stand for others, or as it is written already."""
    if isinstance(fold, Schedule):
        return Looped(1, lambda _: fold)
    made = lambda _: build(call.collective, call.task.algorithm, fold=fold, **call.task.parameters)  # noqa: E731
    return Looped(1, made)


def _pieces(collective: Collective, algorithm: str, parameters: Mapping[str, Any]) -> int:
    if "#" in stamp(collective.name, algorithm):
        return 1  # what pieces are in a user's own is not known
    if "chunks" not in (taken := parameters_of(collective.name, algorithm)) or "links" in taken:
        return 1
    count = collective.count
    if algorithm == "double-binary-tree":  # each tree has half of the data
        count = (count + 1) // 2
    wanted = parameters.get("chunks"), parameters.get("chunk_bytes")
    return piece_count(count, collective.element_bytes, *wanted)
