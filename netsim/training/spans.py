"""When each task ran on each rank: begin and end, and since when a rank waited for the others."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from netsim.program import Timeline
from netsim.workloads.lower import Lowered
from netsim.workloads.tape import COMPUTE, Tape, Task

Times = NDArray[np.float64]
Ints = NDArray[np.int32]


@dataclass(frozen=True)
class Spans:
    """A step that has run. By task, begin and end are those of each row of its groups."""

    tape: Tape
    lowered: Lowered
    timeline: Timeline
    ranks: int

    @property
    def makespan(self) -> float:
        """The end of the step."""
        return self.timeline.makespan

    def begin(self, task: int) -> Times:
        """When the last rank of each group had come; of kernels, when they began."""
        return self.timeline.start[self.lowered.begin[task]]

    def end(self, task: int) -> Times:
        """When each group was done."""
        return self.timeline.end[self.lowered.end[task]]

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of tasks there are, kernels first."""
        names = dict.fromkeys(task.kind for task in self.tape.tasks)
        return (COMPUTE, *(name for name in names if name != COMPUTE))

    @cached_property
    def columns(self) -> tuple[Ints, Ints, Ints, Times, Times]:
        """Rank, kind, task, begin and end of everything that every rank takes part in."""
        parts = [self._parts(number, task) for number, task in enumerate(self.tape.tasks)]
        columns = zip(*parts, strict=True)
        rank, kind, task, begin, end = (np.concatenate(column) for column in columns)
        order = np.argsort(rank, kind="stable")
        return rank[order], kind[order], task[order], begin[order], end[order]

    def _parts(self, number: int, task: Task) -> tuple[Ints, Ints, Ints, Times, Times]:
        members = task.groups.shape[1]
        rank = task.groups.reshape(-1)
        kind = np.full(len(rank), self.kinds.index(task.kind), np.int32)
        begin, end = (np.repeat(times, members) for times in (self.begin(number), self.end(number)))
        return rank, kind, np.full(len(rank), number, np.int32), begin, end
