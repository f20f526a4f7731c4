"""The form in which a task is simulated, and its schedule with all loops or with fewer.

A form is a task and the extent to which it is written: one representative for each class of equal
ranks and channels, one channel for several, fewer hops or rounds. Two kinds of forms change the
data a little: equal heads, and rings without empty chunks. Each of these is a method or property of
`Form` that returns another form, whose `uncertainty` is the largest relative error. `written_form`
chooses the form that most methods start from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from netsim.base.memo import Memo, Same, cached_per_object
from netsim.base.values import dataclass
from netsim.collectives.collective import Collective
from netsim.collectives.representatives import RepresentativeWriter
from netsim.collectives.table import build, parameters_of, stamp
from netsim.collectives.writing import piece_count
from netsim.engines.engine import tight_entries
from netsim.extent.budget import USUAL_BUDGET, Budget
from netsim.extent.steady_state import LATE, LONGEST_PERIOD
from netsim.nccl import choice
from netsim.nccl.schedules.loops import loops_of, with_equal_heads, without_loops
from netsim.nccl.schedules.partitions import partition_of_channels, partition_of_plan
from netsim.nccl.schedules.plan import Plan
from netsim.nccl.schedules.ring import WALKS, rows_of_rings, with_equal_chunks
from netsim.nccl.schedules.skeletons import sizes_of_channels
from netsim.program.partition import Placement
from netsim.program.place import TIGHT, place
from netsim.schedule.extent import ALL, Extent
from netsim.schedule.partition import Partition, written_share
from netsim.schedule.schedule import Schedule, combine
from netsim.topology.graph import Topology
from netsim.workloads.task import Task

_FIRST = 8  # loops that the first run has, at least
LEAST = 2  # loops that every channel keeps: the last one may be partial
# Relative error of equal heads for one operation alone; and the factor by which the time may change
# more than the data (`python -m tests.bench.rounds 400 heads`).
EQUAL_HEADS_ERROR = 1e-4
EQUAL_HEADS_FACTOR = 10.0


# **** Forms ****


@dataclass(frozen=True, eq=False)
class Form:
    """A task, and how it is simulated.

    - `may_fold`: whether one member may be simulated for each class of equal ranks and channels.
    - `extent`: how much of NCCL's schedules is written.
    - `uncertainty`: the largest relative error of a form whose data differ from the task's, such as
      NVLSTree with the same amount of data for every head.

    Schedules and other forms that are derived from it are cached by the identity of the form
    (`base/memo.py`) and dropped together with it; none of them refers back to it.
    """

    task: Task
    may_fold: bool = False
    uncertainty: float = 0.0
    extent: Extent = ALL

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
        """NCCL's decisions, one for each kind of communicator; empty for a textbook algorithm."""
        return self.task.plans

    def changed(
        self,
        *,
        may_fold: bool | None = None,
        uncertainty: float | None = None,
        extent: Extent | None = None,
        **task: Any,
    ) -> Form:
        """This form with some of its fields replaced; further arguments are fields of its task."""
        return Form(
            replace(self.task, **task),
            self.may_fold if may_fold is None else may_fold,
            self.uncertainty if uncertainty is None else uncertainty,
            self.extent if extent is None else extent,
        )

    @property
    def placement(self) -> Placement:
        """The topology and GPUs of the task, from which equal ranks are found."""
        return Placement(self.topology, self.task.gpus)

    @property
    def iterations(self) -> int:
        """The number of operations that are timed."""
        return 1 if self.task.back_to_back is None else self.task.back_to_back.iterations

    @property
    def is_tree(self) -> bool:
        """Whether the task is one communicator that runs NCCL's Tree."""
        return [plan.algorithm for plan in self.plans] == ["Tree"]

    @property
    @cached_per_object
    def loop_schedule(self) -> LoopSchedule:
        """The schedules of the task by number of loops."""
        if not self.plans:
            return textbook_loops(self.task)
        schedules = nccl_loops(self.task, self.extent)
        if not self.uncertainty:
            return schedules
        return replace(schedules, uncertainty=self.uncertainty)

    @property
    @cached_per_object
    def with_representatives(self) -> Form | None:
        """The form with one representative for each class of equal ranks and channels.

        None if every class has one member, or if a textbook algorithm runs the task.
        """
        if not (self.may_fold and self.plans and len(self.task.groups) == 1):
            return None
        partition = partition_of_plan(
            self.collective, self.plans[0], self.placement, self.task.gpus_per_process
        )
        if partition is None:
            return None
        return self.changed(extent=replace(self.extent, partition=partition), may_fold=False)

    @property
    def with_equal_heads(self) -> Form:
        """The form of NCCL's NVLSTree in which every head has the same amount of data; this form if
        its heads are equal already or it has none.

        That changes the amount of data very little, but transfers that compete may be served in
        another order.
        """
        return self._equal_heads() or self

    @cached_per_object
    def _equal_heads(self) -> Form | None:
        """The form of NVLSTree in which every head has the same amount of data; None for other
        algorithms, and if the heads are equal already.
        """
        if [plan.algorithm for plan in self.plans] != ["NVLSTree"] or not self.may_fold:
            return None
        equal = with_equal_heads(self.collective, self.plans[0])
        if not equal.rounding:
            return None
        least_error = EQUAL_HEADS_ERROR if self.task.is_single else LATE
        uncertainty = EQUAL_HEADS_FACTOR * equal.rounding + equal.more + least_error
        return self.changed(
            collective=equal.collective, plans=(equal.plan,), uncertainty=uncertainty
        )

    @property
    @cached_per_object
    def with_fewer_channels(self) -> Form | None:
        """The form of NCCL's trees, or of rings with few hops, with one channel simulated for each
        class of equal channels.

        The classes are those of `_equal_channels`. None if such a form does not have fewer rows
        than the form with representatives.
        """
        if not self.plans or not self.may_fold:
            return None
        plan = self.plans[0]
        key_of_loops = self.loop_schedule.key_of
        if (
            (plan.algorithm != "Tree" and not self.extent.distance)
            or key_of_loops is None
            or self.task.gpus_per_process > 1
            or self.task.topology.changes
        ):
            return None
        key = ("classes of channels", key_of_loops(self.loop_schedule.least))
        partition: Partition | None = plan.memo.of(key, self._equal_channels)
        with_representatives = self.with_representatives or self
        share = written_share(with_representatives.extent.partition)
        if partition is None or written_share(partition) >= share:
            return None
        return self.changed(extent=replace(self.extent, partition=partition), may_fold=False)

    def _equal_channels(self) -> Partition | None:
        """Classes of equal channels; None if resources other than wires and a few kinds (`TIGHT`)
        can saturate.

        Channels count as equal if they are so on the links that can saturate; on all other links
        they do not slow each other.
        """
        program = place(self.loop_schedule.shortest, self.topology, self.task.gpus.tolist())
        tight = np.zeros(len(program.links), bool)
        tight[program.paths.link[tight_entries(program)]] = True
        wire_count = len(self.topology.links)
        tight_resources = (wire_count + np.flatnonzero(tight[wire_count:])).tolist()
        kinds = {program.links.kind(number) for number in tight_resources}
        if not kinds <= set(TIGHT):
            return None
        return partition_of_channels(
            self.collective, self.plans[0], self.placement, tight[:wire_count]
        )

    @property
    def without_empty_chunks(self) -> tuple[Form, float]:
        """The form of NCCL's ring without chunks that are empty, and the largest fraction by which
        its time may differ because of that.

        The form is this one if no chunk is empty.
        """
        form, fraction = self._full_chunks()
        return form or self, fraction

    @cached_per_object
    def _full_chunks(self) -> tuple[Form | None, float]:
        """The form of `without_empty_chunks`, or None if it is this form; and the fraction."""
        plan, fraction = with_equal_chunks(self.collective, self.plans[0])
        form = None if plan is self.plans[0] else self.changed(plans=(plan,))
        return form, fraction

    def with_distance(self, distance: int) -> Form:
        """The form of NCCL's ring in which chunks travel `distance` hops, or of an all-to-all with
        its first `distance` rounds.
        """
        return self.changed(extent=replace(self.extent, distance=distance))

    @property
    def ring_rows(self) -> int:
        """The rows of the rings if a single communicator runs NCCL's Ring, otherwise 0."""
        if len(self.plans) != 1 or len(self.task.groups) != 1:
            return 0
        plan = self.plans[0]
        if plan.algorithm != "Ring" or self.collective.name not in WALKS:
            return 0
        return rows_of_rings(self.collective, plan, self.extent)


FORMS = Memo(4)
"""The forms of the last tasks: a caller that asks whether a task fits also runs it, both in place
and out of place. Few, because a form holds schedules, which may be large."""


def form_of(task: Task, budget: Budget = USUAL_BUDGET) -> Form:
    """The form of a task that a budget allows; equal arguments get the same object."""
    may_fold = budget.folds_groups(len(task.groups))
    return FORMS.of((Same(task), may_fold), lambda: Form(task, may_fold))


def written_form(form: Form, budget: Budget) -> Form:
    """The form that methods start from: with representatives where that saves enough, and with
    equal heads in large tasks that need not be exact.
    """
    thresholds = budget.thresholds
    if "representatives" in budget.excluded or form.ring_rows < thresholds.min_folded_ring_rows:
        return form
    if not budget.is_exact and form.task.is_nccl:
        loops_of_ranks = form.loop_schedule.loops * form.collective.ranks
        if loops_of_ranks > thresholds.min_equal_heads:
            return form.with_equal_heads.with_representatives or form
    return form.with_representatives or form


# **** Schedules by number of loops ****


@dataclass(frozen=True)
class LoopSchedule:
    """The schedule of a task that goes through its buffers in `loops` loops, with all loops or
    fewer.

    - `write(n)`: returns the schedule with n loops, at least `least`. All data is then smaller by
      whole loops; the size of the last, partial loop is the same.
    - `rounding`: the largest relative difference between loops.
    - `uncertainty`: the largest relative error of the form that is written.
    - `memory`: the number of loops that the FIFOs hold.
    - `loops_of_channel`: by channel, its number of loops in the shortest schedule.
    - `key_of(n)`: a value that is equal for equal schedules, also of tasks of other sizes; None:
      there is none.
    - `memo`: values of runs, by such keys.
    """

    loops: int
    write: Callable[[int], Schedule]
    least: int = 1
    rounding: float = 0.0
    uncertainty: float = 0.0
    memory: int = 0
    loops_of_channel: Mapping[int, int] = field(default_factory=dict)
    key_of: Callable[[int], object] | None = None
    memo: Memo = field(default_factory=Memo, repr=False, compare=False)
    _last: Memo = field(default_factory=partial(Memo, 1), repr=False, compare=False)

    def schedule(self, loops: int = 0) -> Schedule:
        """The schedule with a number of loops (0: all). The last one is cached."""
        loops = loops or self.loops
        return self._last.of(loops, lambda: self.write(loops))

    def rows(self, loops: int = 0) -> int:
        """An estimate of the rows of `schedule(loops)`: the rows of the shortest schedule, and
        those that each further loop adds.
        """
        further_loops = (loops or self.loops) - self.least
        return len(self.shortest) + int(self._rows_per_loop * further_loops)

    @cached_property
    def _rows_per_loop(self) -> float:
        """The rows that one loop of all channels adds."""
        if not self.loops_of_channel:
            return len(self.shortest) / self.least
        channels = self.shortest.style_column("channel")
        rows = np.bincount(channels, minlength=max(self.loops_of_channel) + 1)
        return float(sum(rows[channel] / loops for channel, loops in self.loops_of_channel.items()))

    @cached_property
    def shortest(self) -> Schedule:
        """The schedule with the fewest loops."""
        return self.schedule() if self.least == self.loops else self.write(self.least)

    @property
    def first(self) -> int:
        """The number of loops of the shortest run from which others are extrapolated.

        These fill all FIFOs once. It is a power of two, so that tasks of other sizes have the same
        runs.
        """
        least = self.least - 1 + max(_FIRST, self.memory + 1 + LONGEST_PERIOD)
        return 1 << (least - 1).bit_length()

    def has_loops_to_spare(self, budget: Budget) -> bool:
        """Whether it pays to leave loops out: the shortest run from which others are extrapolated
        has at most the fraction `max_loop_fraction` of all loops.
        """
        return self.first <= budget.thresholds.max_loop_fraction * self.loops


def joined(schedules: Sequence[Schedule], task: Task) -> Schedule:
    """The schedules of all communicators side by side. `schedules` has one for each kind of
    communicator.
    """
    if len(task.groups) == 1:
        return schedules[0]
    by_group = [schedules[kind] for kind in task.plan_of_group]
    if len(by_group) <= 1:
        by_group = by_group * len(task.groups)
    return combine(by_group, task.groups, len(task.gpus))


def nccl_loops(task: Task, extent: Extent) -> LoopSchedule:
    """NCCL's schedules of one collective on all communicators of a task, by number of loops."""
    collective = task.collective
    plans = task.plans
    loops_by_plan = [loops_of(collective, plan) for plan in plans]
    loops = max(map(max, loops_by_plan))
    fewest = min(map(min, loops_by_plan))

    def write(loop_count: int) -> Schedule:
        fewer_loops = replace(extent, loops_left_out=loops - loop_count)
        schedules = [choice.schedule_of(collective, plan, fewer_loops) for plan in plans]
        return joined(schedules, task)

    def key_of(loop_count: int) -> object:
        """A key that is equal if the schedules are: it has everything that they depend on, except
        the communicator.
        """
        shorter, plan = without_loops(collective, plans[0], loops - loop_count)
        work = tuple((w.channel, w.count, w.chunk, w.last) for w in plan.work)
        classes: tuple[object, ...] | None = None
        if extent.fold is not None:
            sizes = sizes_of_channels(collective, plans[0])
            classes = (extent.fold.loose is not None, task.gpus_per_process, sizes)
        return (
            (
                shorter.name,
                shorter.root,
                shorter.in_place,
                shorter.element_bytes,
                plan.algorithm,
                plan.protocol,
            ),
            plan.direct,
            plan.registered,
            plan.slot,
            extent.distance,
            classes,
            work,
        )

    least = min(loops, loops - fewest + LEAST)
    memory = max(plan.slots for plan in plans)
    schedules = LoopSchedule(loops, write, least, memory=memory)
    if len(plans) > 1 or plans[0].transfers is not None:
        return schedules
    loops_left = (max(1, count - loops + least) for count in loops_by_plan[0])
    channels = (work.channel for work in plans[0].work)
    return replace(
        schedules,
        key_of=key_of,
        loops_of_channel=dict(zip(channels, loops_left, strict=False)),
        memo=plans[0].memo.of("loops", Memo),
    )


def textbook_loops(task: Task) -> LoopSchedule:
    """The schedules of a textbook algorithm; its loops are the pieces of its pipeline, if it has
    one.
    """
    collective = task.collective
    pieces = _pieces(collective, task.algorithm, task.parameters)
    further_parameters = {
        name: value
        for name, value in task.parameters.items()
        if name not in ("chunks", "chunk_bytes")
    }
    elements_per_piece, rest = divmod(collective.count, max(1, pieces))

    def write(piece_count: int) -> Schedule:
        if piece_count == pieces or not elements_per_piece:
            return joined([build(collective, task.algorithm, **task.parameters)], task)
        less = replace(collective, count=elements_per_piece * piece_count)
        shorter = build(less, task.algorithm, **further_parameters, chunks=piece_count)
        return joined([shorter], task)

    if pieces <= 1 or not elements_per_piece:
        return LoopSchedule(1, write)
    return LoopSchedule(pieces, write, rounding=1 / elements_per_piece if rest else 0.0)


def textbook_representatives(form: Form, writer: RepresentativeWriter) -> LoopSchedule:
    """The schedule of a textbook algorithm of which only representatives of its lanes are
    written.
    """

    def write(_: int) -> Schedule:
        return build(form.collective, form.task.algorithm, writer=writer, **form.task.parameters)

    return LoopSchedule(1, write)


def _pieces(collective: Collective, algorithm: str, parameters: Mapping[str, Any]) -> int:
    """The number of pieces into which the pipeline of a textbook algorithm cuts its data; 1 if it
    has no pipeline, or if how it cuts the data is not known here.
    """
    if "#" in stamp(collective.name, algorithm):
        return 1  # how a user's algorithm cuts its data is not known
    names = parameters_of(collective.name, algorithm)
    if "chunks" not in names or "links" in names:
        return 1
    count = collective.count
    if algorithm == "double-binary-tree":  # each tree has half of the data
        count = (count + 1) // 2
    return piece_count(
        count, collective.element_bytes, parameters.get("chunks"), parameters.get("chunk_bytes")
    )
