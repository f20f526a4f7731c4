"""How long a step would take with computing, one kind of communication, or one kind of links
faster or free.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from netsim.engines import simulate
from netsim.explain.parameters import LABELS, ONE_FIGURE
from netsim.program import place
from netsim.topology import LINK_KINDS, Topology
from netsim.training.run import Step
from netsim.workloads.lower import Coarse, Realise, lower
from netsim.workloads.tape import COMPUTE, Tape, Task

FASTER = 1 / 1.1
FREE = 0.0
MOST_ROWS = 4_000_000  # simulated again in all
STILL = 1e-4  # of a step: what changes it by less changes nothing
ALL = "all communication"


@dataclass(frozen=True, slots=True)
class Answer:
    """A step (seconds) with something 10 % faster, and with it free; None if not simulated."""

    what: str
    faster: float | None
    free: float | None


def answers_of(step: Step, kinds: Sequence[str], *, engine: str = "auto") -> list[Answer]:
    """An answer for computing, every kind of communication, and all of it; the first ones first,
    as long as no more than `MOST_ROWS` rows are simulated. One that has less effect than the
    rounding of the step is kept: that something does not matter is an answer.
    """
    several = [ALL] if len(kinds) > 1 else []
    able = MOST_ROWS // max(1, len(step.program))
    answers = []
    for what in (*kinds, *several, COMPUTE):
        names = set(kinds) if what == ALL else {what}
        times: list[float | None] = [None, None]
        for number, factor in enumerate((FREE, FASTER)):
            if able > 0:
                times[number] = _time(step, names, factor, engine)
                able -= 1
        answers.append(Answer(what, times[1], times[0]))
    for kind in _link_kinds(step) if able > 0 else []:
        able -= 2
        answers.append(_with_links(step, kind, engine))
    if step.prepared.work.stragglers:
        answers.append(Answer("stragglers", None, _alike(step, engine) if able > 0 else None))
    return answers


def _time(step: Step, kinds: set[str], factor: float, engine: str) -> float:
    """The step with everything of some kinds taking so many times as long."""
    tape = step.spans.tape
    if COMPUTE in kinds:
        tape = Tape([_shorter(task, factor) for task in tape.tasks])
    return _run(step, tape, _scaling(step.prepared.costs, kinds, factor), engine, slow=True)


def _link_kinds(step: Step) -> list[str]:
    """The kinds of links that collectives of the step cross, as a topology names them."""
    crossed: set[str] = set().union(*step.prepared.costs.crossed.values())
    return [kind for kind in LINK_KINDS if kind in crossed]


def _with_links(step: Step, kind: str, engine: str) -> Answer:
    """The step with links of a kind that carry 10 % more, or all that comes; NCCL decides as it
    does now. Links that are free and change nothing change nothing with 10 % more, either.
    """
    label = f"{LABELS[kind]} rate"
    free = _on(step, kind, inf, engine)
    if abs(free - step.seconds) <= STILL * step.seconds:
        return Answer(label, free, free)
    return Answer(label, _on(step, kind, 1 / FASTER, engine), free)


def _on(step: Step, kind: str, factor: float, engine: str) -> float:
    prepared = step.prepared
    topology = prepared.topology
    links, mine = topology.links, topology.links.kind == LINK_KINDS.index(kind)
    rate = np.where(mine & (links.bandwidth > 0), links.bandwidth * factor, links.bandwidth)
    layout = replace(topology.layout, links=replace(links, bandwidth=rate))
    also = [name for name, whose in ONE_FIGURE.items() if whose == kind]
    room = {n: r * factor if n in also else r for n, r in topology.capacities.items()}
    other = replace(topology, description=layout, capacities=room)
    return _run(step, step.spans.tape, prepared.costs.on(other, kind), engine, slow=True, on=other)


def _alike(step: Step, engine: str) -> float:
    return _run(step, step.spans.tape, step.prepared.costs, engine, slow=False)


def _run(
    step: Step,
    tape: Tape,
    realise: Realise,
    engine: str,
    *,
    slow: bool,
    on: Topology | None = None,
) -> float:
    stragglers = {one.rank: one.slowdown for one in step.prepared.work.stragglers if slow}
    lowered = lower(tape, step.spans.ranks, realise, stragglers)
    program = place(lowered.schedule, on or step.prepared.topology)
    return simulate(program, engine).makespan


def _shorter(task: Task, factor: float) -> Task:
    return task if task.collective else replace(task, seconds=task.seconds * factor)


def _scaling(realise: Realise, kinds: set[str], factor: float) -> Realise:
    """The same collectives, those of some kinds with so much of their bytes and of their launch."""
    known: dict[int, tuple[Coarse, Coarse]] = {}

    def scaled(task: Task, group: tuple[int, ...]) -> Coarse:
        coarse = realise(task, group)
        if task.kind not in kinds:
            return coarse
        if id(coarse) not in known:
            known[id(coarse)] = (coarse, _part_of(coarse, factor))
        return known[id(coarse)][1]

    found: Callable[[Task, tuple[int, ...]], Coarse] = scaled
    return found


def _part_of(coarse: Coarse, factor: float) -> Coarse:
    amount = np.maximum(1, np.rint(coarse.amount * factor)).astype(np.int64)
    styles = tuple(replace(style, latency=style.latency * factor) for style in coarse.styles)
    return replace(coarse, seconds=coarse.seconds * factor, styles=styles, amount=amount)
