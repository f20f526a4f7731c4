"""Explain the time of a training step: its critical path, and its time if parts were faster or
free.

Every moment of the step belongs to one entry of the critical path: a kernel, or a collective from
the moment its last rank has joined. Kernels are slowed by the SMs that NCCL's channels hold,
collectives by transfers that share their links.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import groupby
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.base.startup import at
from netsim.base.values import dataclass
from netsim.engines.engine import simulate
from netsim.explain.explanation import as_values, explain
from netsim.explain.what_if import LABELS, ONE_FIGURE, Case
from netsim.metrics.bound import critical_path
from netsim.program.place import place
from netsim.scenario.cells import cell_of
from netsim.topology.faults import slowdowns_of
from netsim.topology.graph import LINK_KINDS, Topology
from netsim.training.resolve import resolve_step
from netsim.training.run import (
    Step,
    bound_of,
    family,
    launch_waits,
    pass_title,
    seconds_by_stages,
    simulate_step,
)
from netsim.workloads.lower import Coarse, Realise, lower
from netsim.workloads.tape import COMPUTE, Tape, TapeEntry
from netsim.yamlio.models import override

HOST = "host"
ROUNDING = 1e-9  # relative error of sums of times; smaller differences count as zero


@dataclass(frozen=True, slots=True)
class Visit:
    """A stay of the critical path in one entry of the tape, with the rank that runs or starts the
    entry.

    `begin` and `end` are in seconds since the start of the step; `alone` is how long the entry
    takes in seconds if nothing runs beside it.
    """

    entry: TapeEntry
    rank: int
    begin: float
    end: float
    alone: float

    @property
    def slowed(self) -> float:
        """The seconds by which work beside it makes the entry longer."""
        lost = self.end - self.begin - self.alone
        return lost if lost > ROUNDING * (self.end - self.begin) else 0.0


def visits_of(step: Step) -> list[Visit]:
    """The stays of the critical path in entries of the tape, first to last."""
    spans, timeline = step.spans, step.spans.timeline
    rows = critical_path(step.program, timeline).rows
    if not len(rows):
        return []
    first = np.array([int(begin.min()) for begin in spans.lowered.begin])
    order = np.argsort(first, kind="stable")
    owner = order[np.searchsorted(first[order], rows, side="right") - 1]
    edges = np.flatnonzero(np.diff(owner)) + 1
    parts = np.split(np.arange(len(rows)), edges)
    visits: list[Visit] = []
    for part in parts:
        number = int(owner[part[0]])
        visit_rows = rows[part]
        begin = float(timeline.start[visit_rows[0]])
        end = float(timeline.end[visit_rows[-1]])
        before = visits[-1].rank if visits else 0
        visits.append(_visit(step, number, visit_rows, (begin, end), before))
    if begin := visits[0].begin:  # until then the host was launching
        host = replace(visits[0].entry, name="launches", kind=HOST, collective="")
        visits.insert(0, Visit(host, visits[0].rank, 0.0, begin, begin))
    return visits


def _visit(
    step: Step, number: int, rows: NDArray[np.int64], times: tuple[float, float], before: int
) -> Visit:
    """The stay of the critical path in one tape entry.

    Args:
        number: number of the entry on the tape.
        rows: the rows of this entry that are on the critical path, in order.
        times: begin of the first row and end of the last, in seconds.
        before: rank of the previous visit. If it is a member of this collective, it is also the
            rank of the new visit; otherwise that is the first member. A kernel's visit has the rank
            that runs the kernel.
    """
    entry = step.spans.tape.entries[number]
    lowered = step.spans.lowered
    if not entry.collective:
        rank = int(step.program.schedule.src[rows[0]])
        slowdown = slowdowns_of(step.resolved.topology).get(rank, 1.0)
        alone = step.spans.tape.kernel_time(entry, rank).seconds * slowdown
        return Visit(entry, rank, *times, min(alone, times[1] - times[0]))
    group = int(np.flatnonzero(lowered.begin[number] == rows[0])[0])
    members = entry.groups[group].tolist()
    alone = lowered.coarse[number][int(lowered.class_of[number][group])].seconds
    rank = before if before in members else int(members[0])
    return Visit(entry, rank, *times, min(alone, times[1] - times[0]))


def causes_of(visits: Sequence[Visit]) -> dict[str, float]:
    """The seconds of the critical path by cause, largest first.

    Causes are computing by phase, communication by kind, launches by the host, and for computing
    and communication the seconds by which other work slows them.
    """
    seconds_of: dict[str, float] = {}
    for visit in visits:
        entry = visit.entry
        name = f"{entry.kind} communication"
        slowed = f"{entry.kind} sharing links"
        if entry.kind == COMPUTE:
            name = f"compute, {entry.phase}"
            slowed = "compute, slowed by NCCL"
        elif entry.kind == HOST:
            name = "launches by the host"
        seconds_of[name] = seconds_of.get(name, 0.0) + visit.end - visit.begin - visit.slowed
        seconds_of[slowed] = seconds_of.get(slowed, 0.0) + visit.slowed
    least = ROUNDING * sum(seconds_of.values())
    shown = ((name, seconds) for name, seconds in seconds_of.items() if seconds > least)
    return dict(sorted(shown, key=lambda pair: -pair[1]))


@dataclass(frozen=True, slots=True)
class PathSection:
    """Consecutive entries of the critical path that belong together, such as a forward pass on one
    rank, or the send to the next pipeline stage.

    `begin` and `end` are in seconds since the start of the step; `communicating` is the seconds
    spent in collectives.
    """

    name: str
    rank: int
    begin: float
    end: float
    communicating: float


def path_sections(visits: Sequence[Visit]) -> Iterator[PathSection]:
    """Yield the critical path in sections: `F mb 0` on rank 0, the send to the next stage, and so
    on.
    """
    for _, hop_visits in groupby(visits, key=_section_key):
        yield _section([*hop_visits])


def _section_key(visit: Visit) -> tuple[object, ...]:
    """A key that is equal for visits in the same section of the critical path."""
    entry = visit.entry
    if entry.collective == "p2p":
        return ("p2p", entry.name, entry.micro_batch)
    if entry.kind in ("dp", "extra", "pp"):
        return (entry.kind, entry.phase)
    return (pass_title(entry), visit.rank)


def _section(visits: Sequence[Visit]) -> PathSection:
    """One section of all `visits`."""
    entry = visits[0].entry
    name = pass_title(entry)
    if entry.collective == "p2p":
        name = f"send {entry.name}" + (f" mb {entry.micro_batch}" if entry.micro_batch >= 0 else "")
    elif entry.kind in ("dp", "extra", "pp"):
        names = dict.fromkeys(visit.entry.collective for visit in visits)
        name = f"{entry.kind}: {', '.join(names)}"
    spent = sum(visit.end - visit.begin for visit in visits if visit.entry.collective)
    return PathSection(name, visits[0].rank, visits[0].begin, visits[-1].end, spent)


# **** What if **** How long a step would take if computing, one kind of communication, or one kind
# of links were faster or free.

FASTER = 1 / 1.1
FREE = 0.0
MOST_ROWS = 4_000_000  # of all runs that answer "what if" together
MIN_EFFECT = 1e-4  # relative change of a step's time that counts as an effect
ALL_COMMUNICATION = "all communication"


@dataclass(frozen=True, slots=True)
class StepWhatIf:
    """The time of a step in seconds with something 10 % faster, and with it free of cost.

    A time is None if it was not simulated.
    """

    changed: str
    faster: float | None
    free: float | None


def what_ifs_of(
    step: Step, kinds: Sequence[str], *, engine: str, most_rows: int = MOST_ROWS
) -> list[StepWhatIf]:
    """The times of the step with each of its parts faster, and free.

    The parts are each kind of communication (`kinds`), all communication, computing, each kind of
    links, and the stragglers. The step is simulated again for each, in this order, as long as the
    rows of all runs do not exceed `most_rows`. A part without effect is listed too, so that the
    user sees that it does not matter.
    """
    all_kinds = [ALL_COMMUNICATION] if len(kinds) > 1 else []
    remaining_runs = most_rows // max(1, len(step.program))
    what_ifs = []
    parts = (*kinds, *all_kinds, COMPUTE)
    for done_count, changed in enumerate(parts):
        at(f"{changed} changed", done_count, len(parts))
        changed_kinds = set(kinds) if changed == ALL_COMMUNICATION else {changed}
        times: list[float | None] = [None, None]
        for number, factor in enumerate((FREE, FASTER)):
            if remaining_runs > 0:
                times[number] = _seconds_with_scaled_kinds(step, changed_kinds, factor, engine)
                remaining_runs -= 1
        what_ifs.append(StepWhatIf(changed, times[1], times[0]))
    crossed: set[str] = set().union(*step.costs.crossed_kinds.values())
    kinds_of_links = [kind for kind in LINK_KINDS if kind in crossed]
    for kind in kinds_of_links if remaining_runs > 0 else []:
        at(f"{LABELS[kind]} rate changed")
        remaining_runs -= 2
        what_ifs.append(_with_links(step, kind, engine))
    if step.resolved.work.stragglers:
        seconds = _without_stragglers(step, engine) if remaining_runs > 0 else None
        what_ifs.append(StepWhatIf("stragglers", None, seconds))
    return what_ifs


def _seconds_with_scaled_kinds(step: Step, kinds: set[str], factor: float, engine: str) -> float:
    """Return the seconds of the step if the communication of `kinds` took `factor` of its time; if
    COMPUTE is among the kinds, all kernels as well.
    """
    tape = step.spans.tape
    if COMPUTE in kinds:
        entries = [entry if entry.collective else entry.scaled(factor) for entry in tape.entries]
        tape = Tape(entries, kind_of_rank=tape.kind_of_rank)
    return _run(step, tape, _scaling(step.costs, kinds, factor), engine)


def _without_stragglers(step: Step, engine: str) -> float:
    """The seconds of the step if its stragglers were as fast as the other GPUs."""
    cell = step.resolved.cell
    source = override(cell.source, "workload.stragglers", [], "without stragglers")
    return simulate_step(resolve_step(cell_of(source, cell.axes)), engine=engine).seconds


def _with_links(step: Step, kind: str, engine: str) -> StepWhatIf:
    """The times of the step with links of one kind 10 % faster, and unlimited. NCCL's decisions
    stay the same.

    If unlimited links change nothing, 10 % faster ones are not simulated.
    """
    label = f"{LABELS[kind]} rate"
    free_seconds = _seconds_with_scaled_links(step, kind, inf, engine)
    if abs(free_seconds - step.seconds) <= MIN_EFFECT * step.seconds:
        return StepWhatIf(label, free_seconds, free_seconds)
    return StepWhatIf(
        label, _seconds_with_scaled_links(step, kind, 1 / FASTER, engine), free_seconds
    )


def _seconds_with_scaled_links(step: Step, kind: str, factor: float, engine: str) -> float:
    """The seconds of the step if links of one kind had `factor` times their bandwidth."""
    resolved = step.resolved
    topology = resolved.topology
    links = topology.links
    is_kind = links.kind == LINK_KINDS.index(kind)
    rate = np.where(is_kind & (links.bandwidth > 0), links.bandwidth * factor, links.bandwidth)
    layout = replace(topology.layout, links=replace(links, bandwidth=rate))
    figure_names = [name for name, whose in ONE_FIGURE.items() if whose == kind]
    capacities = {n: r * factor if n in figure_names else r for n, r in topology.capacities.items()}
    changed_topology = replace(topology, description=layout, capacities=capacities)
    costs = step.costs.with_links(changed_topology, kind)
    return _run(step, step.spans.tape, costs, engine, on=changed_topology)


def _run(
    step: Step, tape: Tape, realise: Realise, engine: str, *, on: Topology | None = None
) -> float:
    """Return the seconds of a tape, simulated in the same way as the step (in full, or by one rank
    of each stage).

    `realise` returns the coarse form of an entry's collective in one group. `on` is the topology,
    if it is not that of the step.
    """
    if not step.engine:
        return seconds_by_stages(step.resolved, tape, realise)
    lowered = lower(tape, step.spans.ranks, realise)
    return simulate(place(lowered.schedule, on or step.resolved.topology), engine).makespan


def _scaling(realise: Realise, kinds: set[str], factor: float) -> Realise:
    """Return a function like `realise`, which returns the coarse form of a collective in one group.
    Collectives of some `kinds` take `factor` times as long and move `factor` times as many bytes.
    """
    scaled_form = cache(partial(_scaled_form, factor=factor))

    def scaled(entry: TapeEntry, group: tuple[int, ...]) -> Coarse:
        coarse = realise(entry, group)
        return scaled_form(coarse) if entry.kind in kinds else coarse

    return scaled


def _scaled_form(coarse: Coarse, factor: float) -> Coarse:
    """A coarse form with `factor` times its bytes and times."""
    nbytes = np.maximum(1, np.rint(coarse.amount * factor)).astype(np.int64)
    styles = tuple(replace(style, latency=style.latency * factor) for style in coarse.styles)
    return replace(coarse, seconds=coarse.seconds * factor, styles=styles, amount=nbytes)


# **** Explanation **** Why a step takes as long as it does, as plain values: its critical path, how
# GPUs spend their time, the calls that cost most, and what would change it.

MICRO = 1e6


def explained_step(
    step: Step, *, engine: str = "auto", most_rows: int = MOST_ROWS
) -> dict[str, Any]:
    """Return the explanation of a step as plain values for JSON; times in microseconds.

    The runs that answer "what if" simulate at most `most_rows` rows together.
    """
    visits = visits_of(step)
    causes = causes_of(visits)
    kinds = [kind for kind in step.spans.kinds if kind != COMPUTE]
    kinds.sort(key=lambda kind: -causes.get(f"{kind} communication", 0.0))
    return {
        "title": step.resolved.cell.title(
            f"{step.resolved.work.title_start} {step.resolved.work.label} "
            f"on {step.spans.ranks} GPUs"
        ),
        "time_us": step.seconds * MICRO,
        "bound_by": bound_of(step.breakdown),
        "approximation": step.approximation,
        "causes_us": {name: seconds * MICRO for name, seconds in causes.items()},
        "gpus_us": list(_gpus(step)),
        "calls": _calls(step, visits),
        "answers": [
            {
                "what": what_if.changed,
                "faster_10pct_us": _micro(what_if.faster),
                "free_us": _micro(what_if.free),
            }
            for what_if in what_ifs_of(step, kinds, engine=engine, most_rows=most_rows)
        ],
        "path": [
            {
                "what": hop.name,
                "rank": hop.rank,
                "gpu": step.program.gpus[hop.rank],
                "begin_us": hop.begin * MICRO,
                "end_us": hop.end * MICRO,
                "communicating_us": hop.communicating * MICRO,
            }
            for hop in path_sections(visits)
        ],
    }


def explained_messages(step: Step, *, engine: str) -> dict[str, Any]:
    """The explanation of an application's messages and calculations, as plain values for JSON."""
    timeline = step.spans.timeline
    case = Case(step.program.as_run(timeline), 0.0)
    values = as_values(explain(case, timeline, engine=engine))
    return {"title": step.resolved.cell.title(step.resolved.work.label), **values}


def _micro(seconds: float | None) -> float | None:
    """`seconds` in microseconds; None for None."""
    return None if seconds is None else seconds * MICRO


def _gpus(step: Step) -> Iterator[dict[str, Any]]:
    """Yield the mean times in microseconds of all GPUs, and of the GPUs of each pipeline stage."""
    breakdown = step.breakdown
    grid = step.resolved.setting.grid
    launching = np.minimum(launch_waits(step.spans), breakdown.idle)
    named = dict[str, Any]({"all GPUs": slice(None)})
    stages = grid.degrees["pp"]
    if stages > 1:
        named |= {f"stage {number}": grid.stage(number) for number in range(stages)}
    for name, ranks in named.items():
        yield {
            "gpus": name,
            "computing": float(breakdown.computing[ranks].mean()) * MICRO,
            **{
                f"exposed {kind}": float(breakdown.exposed[number][ranks].mean()) * MICRO
                for number, kind in enumerate(breakdown.kinds)
            },
            "waiting for launches": float(launching[ranks].mean()) * MICRO,
            "waiting": float((breakdown.idle - launching)[ranks].mean()) * MICRO,
        }


def _calls(step: Step, visits: Sequence[Visit]) -> list[dict[str, Any]]:
    """Sums over the calls of each class of collective calls; first the class with most time on the
    critical path.
    """
    call_of_key: dict[tuple[Any, ...], dict[str, Any]] = {}

    def totals_of(entry: Any) -> dict[str, Any]:
        ranks = entry.groups.shape[1]
        key = (entry.kind, family(entry.name), entry.phase, entry.collective, ranks, entry.nbytes)
        names = ("kind", "name", "phase", "collective", "ranks", "size_bytes")
        empty = {"on_path": 0, "path_us": 0.0, "sharing_us": 0.0, "exposed_us": 0.0}
        return call_of_key.setdefault(key, dict(zip(names, key, strict=True)) | empty)

    for visit in visits:
        if visit.entry.collective:
            totals = totals_of(visit.entry)
            totals["on_path"] += 1
            totals["path_us"] += (visit.end - visit.begin) * MICRO
            totals["sharing_us"] += visit.slowed * MICRO
    exposed_seconds = step.breakdown.exposed_by_entry
    for entry, exposed in zip(step.spans.tape.entries, exposed_seconds, strict=True):
        if entry.collective:
            totals_of(entry)["exposed_us"] += float(exposed) / step.spans.ranks * MICRO
    return sorted(
        call_of_key.values(), key=lambda totals: (-totals["path_us"], -totals["exposed_us"])
    )
