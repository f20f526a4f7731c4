"""The outcome of a task; equal tasks are simulated once in a process.

Cells of a sweep may differ and still lead to equal tasks: with versions of NCCL that make the same
plans, with an algorithm that is forced or chosen, or with launch costs that have no effect. Tasks
are equal if everything is equal on which their times depend.
"""

from __future__ import annotations

from dataclasses import fields

from netsim.base.memo import Memo, digest
from netsim.base.values import dataclass
from netsim.collectives.collective import HAS_IN_PLACE, Collective
from netsim.collectives.table import stamp
from netsim.extent.decisions import tell_listener
from netsim.extent.engine_runs import Progress
from netsim.extent.invariants import sound
from netsim.extent.result import Result
from netsim.extent.shown import are_same
from netsim.extent.solve import solve
from netsim.metrics.bound import bound_by
from netsim.metrics.links import Fullest, fullest_link
from netsim.nccl.schedules.plan import Plan
from netsim.scenario.models import cluster_label
from netsim.tasks.noise import noise_of, sampled_seconds
from netsim.tasks.resolve import ResolvedCell
from netsim.workloads.task import Task

MOST_RANKS = 1024  # of NCCL's communicators; a key of more ranks takes too long to compute
# Fields of a plan that are the same for all sizes of one algorithm, and fields that depend on the
# size.
STANDING = (
    "node",
    "rings",
    "trees",
    "heads",
    "chains",
    "nic_routes",
    "mechanism",
    "links",
    "routes",
)
VARYING = [f.name for f in fields(Plan) if f.compare and f.name not in STANDING]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The simulated values of a task for its row.

    - `seconds`: the time out of place; `inplace`: the time in place.
    - `slowest`: the time of the slowest process.
    - `uncertainty`: the largest relative error of an approximation.
    - `samples`: the seconds in each sample of noise.
    """

    seconds: float
    inplace: float | None
    bound_by: str
    approximation: str
    uncertainty: float
    rows: int
    engine: str
    fullest: Fullest | None = None
    samples: tuple[float, ...] = ()
    slowest: float = 0.0


OUTCOMES = Memo(50_000)
"""The outcomes of the last tasks, by `key_of`."""


def outcome_of(
    resolved: ResolvedCell, size: int, engine: str = "auto", progress: Progress | None = None
) -> Outcome:
    """The outcome of a cell at a size, from the cache if an equal task was simulated before."""

    is_simulated = False

    def simulated() -> Outcome:
        nonlocal is_simulated
        is_simulated = True
        return _outcome(resolved, *_timings(resolved, size, engine, progress))

    key = key_of(resolved, size, engine)
    if key is None:
        return simulated()
    outcome = OUTCOMES.of(key, simulated)
    if not is_simulated:
        subject = subject_of(resolved, resolved.collective(size))
        tell_listener(f"{subject}: equal to a task that was simulated before")
    return outcome


def key_of(resolved: ResolvedCell, size: int, engine: str) -> bytes | None:
    """A digest that is the same for equal tasks only; None if it would take too long to compute."""
    if resolved.place is None:
        return None
    if resolved.is_nccl and resolved.collective(size).ranks > MOST_RANKS:
        return None
    task = resolved.task(size)
    scenario = resolved.cell.scenario
    noise = scenario.noise and (scenario.noise, scenario.samples, scenario.seed)
    return digest(
        (
            task.collective,
            _runs_of(task),
            (resolved.place, task.groups, task.gpus),
            (task.launch, repr(task.back_to_back), engine),
            resolved.budget,
            repr(noise),
        )
    )


def _runs_of(task: Task) -> object:
    """Everything that determines the schedule of a task: NCCL's plans, or a textbook algorithm with
    its parameters.
    """
    if task.is_nccl:
        return [plan_key(plan) for plan in task.plans], task.plan_of_group
    return stamp(task.collective.name, task.algorithm), task.parameters


def plan_key(plan: Plan) -> list[object]:
    """A key that is equal for equal plans.

    Its first entry is a digest of the fields in `STANDING`, which is computed once for all sizes;
    the others are the values of the other fields.
    """
    standing = plan.memo.of(
        ("key of plan", plan.algorithm), lambda: digest([getattr(plan, name) for name in STANDING])
    )
    return [standing, *(getattr(plan, name) for name in VARYING)]


# **** Simulation ****

# Collectives for which NCCL moves the same data at the same times in place.
SAME_IN_PLACE = ("all_reduce",)


def simulate_one(
    resolved: ResolvedCell, size: int, *, in_place: bool = False, engine: str = "auto"
) -> Result:
    """The timing of one cell at one size, either in place or out of place."""
    return _timed(resolved, resolved.task(size, in_place=in_place), engine)


def subject_of(resolved: ResolvedCell, collective: Collective) -> str:
    """The collective and the cluster of a cell in a few words, for messages."""
    label = cluster_label(resolved.cell.scenario.cluster)
    return f"{label}: {collective.name} of {collective.size_bytes} B"


def _timings(
    resolved: ResolvedCell, size: int, engine: str, progress: Progress | None
) -> tuple[Result, Result | None]:
    """The timings out of place and in place; the second is None if the collective has no
    in-place form."""
    task = resolved.task(size)
    name = task.collective.name
    timing = _timed(resolved, task, engine, progress)
    if name not in HAS_IN_PLACE:
        return timing, None
    if task.is_nccl and name in SAME_IN_PLACE:
        return timing, timing
    in_place = resolved.task(size, in_place=True)
    if are_same(task, in_place, resolved.budget):
        return timing, timing
    return timing, _timed(resolved, in_place, engine, progress)


def _timed(
    resolved: ResolvedCell, task: Task, engine: str, progress: Progress | None = None
) -> Result:
    """The timing of a task, after the checks of all invariants."""
    timing = solve(task, resolved.budget, engine, progress)
    return sound(timing, task.collective, subject_of(resolved, task.collective))


def _outcome(resolved: ResolvedCell, timing: Result, inplace: Result | None) -> Outcome:
    """The outcome from the timings out of place and in place."""
    timings = [timing] if inplace is None else [timing, inplace]
    worst = max(timings, key=lambda timing: timing.uncertainty)
    return Outcome(
        seconds=timing.seconds,
        inplace=None if inplace is None else inplace.seconds,
        bound_by=bound_by(timing.program, timing.timeline, timing.use, timing.causes),
        approximation=worst.approximation,
        uncertainty=worst.uncertainty,
        rows=len(timing.program),
        engine=timing.engine,
        fullest=fullest_link(resolved.topology, timing.program, timing.use),
        samples=sampled_seconds(noise_of(resolved.cell.scenario), timing),
        slowest=max(timing.seconds, timing.slowest),
    )
