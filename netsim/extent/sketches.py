"""Sketches of textbook algorithms: which of their lanes are equal on a topology.

An algorithm is sketched first, with a hop for each message but no rows. The classes of equal lanes
of the sketch decide which lanes are written. `lockstep.py`, `long_rings.py` and
`representatives.py` use the same sketch; its results are cached with the topology, so that other
sizes share them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from netsim.base.memo import Memo, cached_per_object, different, digest
from netsim.base.values import dataclass
from netsim.collectives.representatives import RepresentativeWriter
from netsim.collectives.sketch import TextbookSketch
from netsim.collectives.table import build, folds, shown_name
from netsim.extent import max_plus
from netsim.extent.forms import Form
from netsim.extent.max_plus import LongRings
from netsim.program.lockstep import Lockstep, find_lockstep
from netsim.program.odd_parts import first_odd_part
from netsim.program.partition import MAX_ROUNDS, Placement, equal_members, find_partition
from netsim.schedule.partition import Partition, Skeleton
from netsim.workloads.task import Task

LONG_RINGS = {
    ("all_reduce", "ring"),
    ("all_gather", "ring"),
    ("reduce_scatter", "ring"),
    ("all_reduce", "hierarchical"),
}
"""Collectives and algorithms whose later steps can follow from the first ones."""


@dataclass(frozen=True)
class AlgorithmSketch:
    """A textbook algorithm on the GPUs of a task, without its rows.

    - `sketch`: the rows of each lane and the messages between lanes.
    - `skeleton`: the same as lanes and hops, from which classes of equal lanes are found.
    - `key`: the key of cached results on the topology; equal sketches have equal keys.
    """

    task: Task
    sketch: TextbookSketch
    skeleton: Skeleton
    key: tuple[object, ...]

    @property
    def full(self) -> int:
        """The number of rows of the schedule if every lane is written."""
        return int(self.sketch.rows.sum()) + self.task.collective.ranks

    def is_long(self, rows: int) -> bool:
        """Whether the algorithm has rings whose later steps can be computed, and at least `rows`
        rows.
        """
        name = self.task.collective.name
        return (name, self.task.algorithm) in LONG_RINGS and self.full >= rows

    def representatives(self, max_rounds: int = MAX_ROUNDS) -> RepresentativeWriter | None:
        """A writer that writes one lane of each class of equal lanes.

        None if the classes are not found in `max_rounds` rounds of refinement, or if each has one
        member.
        """
        key = (*self.key, max_rounds)
        return self._answers.of(key, lambda: self._representatives(max_rounds))

    def lockstep(self, min_steps: int, max_spread: float) -> Lockstep | None:
        """The classes of ranks that keep step, with the rate of their messages; None if ranks do
        not keep step.

        Also None if the steps of all ranks are fewer than `min_steps`, or if the latencies of
        messages differ by more than the fraction `max_spread` of the time of all steps.
        """
        sketch = self.sketch
        if sketch.step_count * self.task.collective.ranks < min_steps:
            return None
        steps = self._answers.of((*self.key, "lockstep"), self._lockstep)
        if steps is None:
            return None
        seconds_of_steps = sketch.step_count * sketch.step_bytes / steps.rate
        return steps if steps.spread <= max_spread * seconds_of_steps else None

    def long_rings(self) -> LongRings | str:
        """The first steps of long rings, from which the others follow; or the reason why they do
        not.

        The last result is cached. A reason holds at any size, so it is cached for all sizes.
        """
        task = self.task
        last = self._answers.of("last long rings", lambda: Memo(1))

        def first_steps() -> LongRings | str:
            key = (self.key, task.collective)
            return last.of(
                key,
                lambda: max_plus.long_rings_of(
                    task.collective, task.algorithm, task.parameters, task.topology, task.gpus
                ),
            )

        answer: LongRings | str = self._answers.of(
            ("long rings", self.key), first_steps, lambda answer: isinstance(answer, str)
        )
        return answer

    def rows(self, writer: RepresentativeWriter) -> int:
        """The number of rows of the schedule if one lane of each class is written."""
        written = self.sketch.rows[different(writer.first)]
        return int(written.sum()) + self.task.collective.ranks

    def path_count(self, writer: RepresentativeWriter | None) -> int:
        """The number of messages in the sketch, an upper bound of the number of paths: those of all
        lanes, or with a `writer` those of the lanes that it writes.
        """
        sources = np.concatenate([hops.src for hops in self.skeleton.hops])
        return len(sources if writer is None else writer.written(sources))

    @property
    def _answers(self) -> Memo:
        """The cached results of all textbook algorithms on the topology."""
        return self.task.topology.memo.of("textbook algorithms", Memo)

    @property
    def _placement(self) -> Placement:
        return Placement(self.task.topology, self.task.gpus)

    def _lockstep(self) -> Lockstep | None:
        besides = self.sketch.skeleton(_launch_order(self.task), with_steps=False)
        return find_lockstep(besides, self.sketch.steps(), self._placement)

    def _representatives(self, max_rounds: int) -> RepresentativeWriter | None:
        """A writer that writes one lane of each class; None if classes are not found in
        `max_rounds` rounds or have one member each.
        """
        checks = self.sketch.checks(_launch_order(self.task))
        partition = find_partition(self.skeleton, self._placement, checks, max_rounds)
        if partition is None:
            return None
        writer = writer_of(partition)
        return None if (writer.count == 1).all() else writer


@cached_per_object
def sketched(form: Form) -> AlgorithmSketch | None:
    """The sketch of a textbook algorithm; None if it cannot have classes of equal lanes."""
    task = form.task
    collective = task.collective
    algorithm = task.algorithm
    if not form.may_fold or task.is_nccl:
        return None
    if not folds(collective.name, algorithm) or collective.ranks == 1:
        return None
    sketch = TextbookSketch()
    build(collective, algorithm, writer=sketch, **task.parameters)
    if sketch.refused:
        return None
    skeleton = sketch.skeleton(_launch_order(task))
    key = (
        collective.name,
        algorithm,
        repr(task.parameters),
        digest((task.gpus, skeleton)),
    )
    return AlgorithmSketch(task, sketch, skeleton, key)


def _launch_order(task: Task) -> NDArray[np.int64]:
    """By rank, its position among the ranks that one process launches one after the other."""
    return np.arange(task.collective.ranks) % task.gpus_per_process


def writer_of(partition: Partition) -> RepresentativeWriter:
    """A writer that writes one lane of each class of blocks."""
    lanes = equal_members(partition.block.astype(np.uint64))
    return RepresentativeWriter(partition.fold, lanes.first, lanes.count)


def why_in_full(form: Form) -> str:
    """The reason why few ranks are equal, for the end of a message; empty if that is not known."""
    collective = form.collective
    if not form.may_fold:
        reason = "fold is off, or there are several communicators"
    elif odd := first_odd_part(form.placement):
        reason = odd
    elif form.task.is_nccl:
        return ""
    elif not folds(collective.name, form.task.algorithm):
        algorithm = shown_name(form.task.algorithm)
        reason = f"{algorithm} {collective.name} is always written in full"
    elif collective.name == "all_reduce" and collective.count % collective.ranks:
        reason = f"{collective.count} elements on {collective.ranks} ranks are unequal chunks"
    else:
        reason = "ways through the network differ from host to host"
    return f"; not folded: {reason}"
