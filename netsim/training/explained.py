"""Why a step takes as long as it does, as plain values: its critical path, how GPUs spend their
time, the calls that cost most, and what would change it.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from netsim.training.breakdown import bound_of
from netsim.training.path import Visit, causes_of, hops_of, visits_of
from netsim.training.run import Step
from netsim.training.titles import family
from netsim.training.whatif import answers_of
from netsim.workloads.tape import COMPUTE

MICRO = 1e6


def explained_step(step: Step, *, engine: str = "auto") -> dict[str, Any]:
    """All of it; times in µs."""
    visits = visits_of(step)
    causes = causes_of(visits)
    kinds = [kind for kind in step.spans.kinds if kind != COMPUTE]
    kinds.sort(key=lambda kind: -causes.get(f"{kind} communication", 0.0))
    return {
        "title": title_of(step),
        "time_us": step.seconds * MICRO,
        "bound_by": bound_of(step.breakdown),
        "approximation": step.approximation,
        "causes_us": {name: seconds * MICRO for name, seconds in causes.items()},
        "gpus_us": list(_gpus(step)),
        "calls": _calls(step, visits),
        "answers": [
            {"what": one.what, "faster_10pct_us": _micro(one.faster), "free_us": _micro(one.free)}
            for one in answers_of(step, kinds, engine=engine)
        ],
        "path": [
            {"what": hop.name, "rank": hop.rank, "gpu": step.program.gpus[hop.rank],
             "begin_us": hop.begin * MICRO, "end_us": hop.end * MICRO,
             "communicating_us": hop.communicating * MICRO}
            for hop in hops_of(visits)
        ],
    }  # fmt: skip


def title_of(step: Step) -> str:
    """The step in words."""
    return f"a training step of {step.prepared.work.label} on {step.spans.ranks} GPUs"


def _micro(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * MICRO


def _gpus(step: Step) -> Iterator[dict[str, Any]]:
    """How GPUs spend the step: the mean of all, and of every stage of a pipeline."""
    found, grid = step.breakdown, step.prepared.setting.grid
    groups = {"all GPUs": slice(None)}
    stages = grid.degrees["pp"]
    named: dict[str, Any] = dict(groups)
    if stages > 1:
        named |= {f"stage {number}": grid.stage(number) for number in range(stages)}
    for name, ranks in named.items():
        yield {
            "gpus": name,
            "computing": float(found.computing[ranks].mean()) * MICRO,
            **{
                f"exposed {kind}": float(found.exposed[number][ranks].mean()) * MICRO
                for number, kind in enumerate(found.kinds)
            },
            "waiting": float(found.idle[ranks].mean()) * MICRO,
        }


def _calls(step: Step, visits: Sequence[Visit]) -> list[dict[str, Any]]:
    """Calls that are alike: how much of the path they are, and how much of a GPU's time."""
    alike: dict[tuple[Any, ...], dict[str, Any]] = {}

    def entry(task: Any) -> dict[str, Any]:
        ranks = task.groups.shape[1]
        key = (task.kind, family(task.name), task.phase, task.collective, ranks, task.nbytes)
        names = ("kind", "name", "phase", "collective", "ranks", "size_bytes")
        empty = {"on_path": 0, "path_us": 0.0, "sharing_us": 0.0, "exposed_us": 0.0}
        return alike.setdefault(key, dict(zip(names, key, strict=True)) | empty)

    for visit in visits:
        if visit.task.collective:
            one = entry(visit.task)
            one["on_path"] += 1
            one["path_us"] += (visit.end - visit.begin) * MICRO
            one["sharing_us"] += visit.slowed * MICRO
    for task, exposed in zip(step.spans.tape.tasks, step.breakdown.exposed_by_task, strict=True):
        if task.collective:
            entry(task)["exposed_us"] += float(exposed) / step.spans.ranks * MICRO
    return sorted(alike.values(), key=lambda one: (-one["path_us"], -one["exposed_us"]))
