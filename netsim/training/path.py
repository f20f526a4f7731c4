"""The critical path of a step: task after task, from what ends last back to the beginning.

Every moment of the step falls to one task of it: a kernel, or a collective from when its last rank
has come. A kernel is slowed by what NCCL's channels hold of its SMs, a collective by what shares
its links.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from netsim.metrics import critical_path
from netsim.training.run import Step
from netsim.training.titles import pass_title
from netsim.workloads.tape import COMPUTE, Task

ROUNDING = 1e-9  # of a time: what adding up floats leaves over


@dataclass(frozen=True, slots=True)
class Visit:
    """A task on the path: on which rank, when, and how long it takes alone (seconds).

    `rank` is where a kernel runs; of a collective, the rank whose coming began it.
    """

    task: Task
    rank: int
    begin: float
    end: float
    alone: float

    @property
    def slowed(self) -> float:
        """What others cost it."""
        lost = self.end - self.begin - self.alone
        return lost if lost > ROUNDING * (self.end - self.begin) else 0.0


def visits_of(step: Step) -> list[Visit]:
    """The tasks of the critical path, first to last."""
    spans, timeline = step.spans, step.spans.timeline
    rows = critical_path(step.program, timeline).rows
    if not len(rows):
        return []
    first = np.array([int(begin.min()) for begin in spans.lowered.begin])
    order = np.argsort(first, kind="stable")
    owner = order[np.searchsorted(first[order], rows, side="right") - 1]
    edges = np.flatnonzero(np.diff(owner)) + 1
    parts = np.split(np.arange(len(rows)), edges)
    found: list[Visit] = []
    for part in parts:
        number, own = int(owner[part[0]]), rows[part]
        begin = float(timeline.start[own[0]])
        end = float(timeline.end[own[-1]])
        before = found[-1].rank if found else 0
        found.append(_visit(step, number, own, (begin, end), before))
    return found


def _visit(
    step: Step, number: int, rows: NDArray[np.int64], when: tuple[float, float], before: int
) -> Visit:
    task, lowered = step.spans.tape.tasks[number], step.spans.lowered
    if not task.collective:
        rank = int(step.program.schedule.src[rows[0]])
        slow = {one.rank: one.slowdown for one in step.prepared.work.stragglers}
        alone = task.seconds * slow.get(rank, 1.0)
        return Visit(task, rank, *when, min(alone, when[1] - when[0]))
    group = int(np.flatnonzero(lowered.begin[number] == rows[0])[0])
    members = task.groups[group].tolist()
    alone = lowered.coarse[number][int(lowered.class_of[number][group])].seconds
    rank = before if before in members else int(members[0])
    return Visit(task, rank, *when, min(alone, when[1] - when[0]))


def causes_of(visits: Sequence[Visit]) -> dict[str, float]:
    """Seconds of the path by cause: compute by phase, communication by kind, what slows both."""
    found: dict[str, float] = {}
    for visit in visits:
        task = visit.task
        name = f"compute, {task.phase}" if task.kind == COMPUTE else f"{task.kind} communication"
        slowed = "compute, slowed by NCCL" if task.kind == COMPUTE else f"{task.kind} sharing links"
        found[name] = found.get(name, 0.0) + visit.end - visit.begin - visit.slowed
        found[slowed] = found.get(slowed, 0.0) + visit.slowed
    least = ROUNDING * sum(found.values())
    shown = ((name, seconds) for name, seconds in found.items() if seconds > least)
    return dict(sorted(shown, key=lambda one: -one[1]))


@dataclass(frozen=True, slots=True)
class Hop:
    """Tasks of the path that belong together: a pass on one rank, or one handing over."""

    name: str
    rank: int
    begin: float
    end: float
    communicating: float


def hops_of(visits: Sequence[Visit]) -> Iterator[Hop]:
    """The path in passes: `F mb 0` on rank 0, then the send to the next stage, and so on."""
    pending: list[Visit] = []
    for visit in visits:
        if pending and _hop(visit) != _hop(pending[-1]):
            yield _together(pending)
            pending = []
        pending.append(visit)
    if pending:
        yield _together(pending)


def _hop(visit: Visit) -> tuple[object, ...]:
    """What tasks of one hop have in common."""
    task = visit.task
    if task.collective == "p2p":
        return ("p2p", task.name, task.micro_batch)
    if task.kind in ("dp", "extra", "pp"):
        return (task.kind, task.phase)
    return (pass_title(task), visit.rank)


def _together(visits: Sequence[Visit]) -> Hop:
    task = visits[0].task
    name = pass_title(task)
    if task.collective == "p2p":
        name = f"send {task.name}" + (f" mb {task.micro_batch}" if task.micro_batch >= 0 else "")
    elif task.kind in ("dp", "extra", "pp"):
        names = dict.fromkeys(visit.task.collective for visit in visits)
        name = f"{task.kind}: {', '.join(names)}"
    spent = sum(visit.end - visit.begin for visit in visits if visit.task.collective)
    return Hop(name, visits[0].rank, visits[0].begin, visits[-1].end, spent)
