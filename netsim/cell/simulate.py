"""What calls took that cells asked for before: equal calls are simulated once in a process.

Cells of a sweep differ, yet many ask for the same in the end: versions of NCCL that plan a call
alike, algorithms that are chosen or forced, launch costs that do not matter. Calls are equal if all
is equal that their rows and times follow from, not if their scenarios are."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from netsim.base.memo import Memo, digest, kept
from netsim.base.startup import MODEL_VERSION
from netsim.base.values import dataclass
from netsim.cell.prepare import Prepared
from netsim.collectives.collective import HAS_IN_PLACE, Collective
from netsim.collectives.table import stamp
from netsim.metrics.bound import Limit, bound_by, limit_of
from netsim.metrics.links import Fullest, fullest_link
from netsim.nccl.choice import planned
from netsim.nccl.environment import Settings
from netsim.nccl.job import Job, Wishes
from netsim.nccl.schedules.plan import Plan
from netsim.results import row as result_rows
from netsim.scenario.cells import Cell
from netsim.scenario.models import Workload, cluster_label, node_count
from netsim.timing import ladder
from netsim.timing.bench import Noise, Progress, disturbed
from netsim.timing.call import Call
from netsim.timing.invariants import Answer, ask, sound
from netsim.timing.ladder import Timing
from netsim.topology.machine import oldest_machine

MOST_RANKS = 1024  # of NCCL's communicators, above which it takes long to write out a plan
# What plans of one algorithm have in common for all sizes, and what they have not.
STANDING = ("node", "rings", "trees", "heads", "chains", "doors", "mechanism", "links", "routes")
VARYING = [f.name for f in fields(Plan) if f.compare and f.name not in STANDING]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What simulating a call tells: seconds out of place and in place, and all else of its row."""

    seconds: float
    inplace: float | None
    bound_by: str
    approximation: str
    uncertainty: float
    rows: int
    engine: str
    fullest: Fullest | None = None
    samples: tuple[float, ...] = ()


KNOWN = Memo(50_000)  # outcomes by call


def key_of(prepared: Prepared, size: int, engine: str) -> bytes | None:
    """What tells a call from all that differ in rows or times; None where that takes too long."""
    if prepared.place is None:
        return None
    collective, work = prepared.collective(size), prepared.cell.scenario.collective
    runs: object = (stamp(work.collective, work.built_by), prepared.parameters)
    if prepared.jobs:
        if collective.ranks > MOST_RANKS:
            return None
        kinds = list(dict.fromkeys(prepared.jobs))
        plans = [told_apart(prepared.plan(job, collective)) for job in kinds]
        runs = plans, [kinds.index(job) for job in prepared.jobs]
    where = (prepared.place, prepared.groups, prepared.gpus)
    single = work.timing == "single"
    how = (prepared.launch(size), single, engine, prepared.may_fold, prepared.together)
    scenario = prepared.cell.scenario
    noise = scenario.noise and (scenario.noise, scenario.samples, scenario.seed)
    return digest((collective, runs, where, how, prepared.limits, repr(noise)))


def told_apart(plan: Plan) -> list[object]:
    """All of a plan of a job, with what other sizes have in common written out once."""
    parts = plan.memo.of(
        ("told apart", plan.algorithm), lambda: digest([getattr(plan, name) for name in STANDING])
    )
    return [parts, *(getattr(plan, name) for name in VARYING)]


# **** Departures ****
# What sets a case apart from all that was held against hardware, and the class it belongs to.

CHOICE: dict[str, Any] = {"algorithms": {}, "protocols": {}}  # settings that only choose


@kept
def class_of(prepared: Prepared) -> result_rows.Joined:
    """The machines of a case with NCCL's jobs, and what joins them."""
    config, job = prepared.cell.scenario.cluster, prepared.jobs[0]
    machine = oldest_machine(job.machines)
    if node_count(config) == 1:
        transport = result_rows.ONE_HOST
    elif job.comm.n_nodes == 1:
        transport = result_rows.NVLINK
    else:
        transport = job.cluster.transport.name if job.cluster.transport else machine.transport
    rate = min(sum(one.nics.rates) if one.nics else 0.0 for one in job.machines)
    nvlink = all(one.scale_up is not None and one.scale_up.fitted for one in job.machines)
    return result_rows.joined(cluster_label(config), transport, rate * 8 / 1e9, nvlink=nvlink)


def departure(prepared: Prepared, collective: Collective, plan: Plan) -> str:
    """Why a case with NCCL's jobs is like none that was measured; empty where it may be."""
    if always := _at_all_sizes(prepared):
        return always
    left = _left_alone(prepared)
    if left is None:
        return ""
    dtype = prepared.cell.scenario.collective.dtype
    return "" if planned(left, collective, dtype) == plan else "the choice is forced"


@kept
def _at_all_sizes(prepared: Prepared) -> str:
    scenario = prepared.cell.scenario
    if scenario.cluster.faults:
        return "with faults"
    if scenario.cluster.overrides:
        return "figures of the machine are overridden"
    if scenario.nccl.graph is not None:
        return "channels are given"
    if len(prepared.groups) > 1:
        return "several communicators at once"
    job = prepared.jobs[0]
    if replace(job.comm.settings, **CHOICE) != replace(_of_nobody(job), **CHOICE):
        return "NCCL variables change more than its choice"
    cluster = job.cluster
    usual = cluster.transport.routing if cluster.transport else ""
    if cluster.routing not in ("", "static", "rail", usual):
        return f"paths are {cluster.routing} where {usual} ones were timed"
    return ""


def _of_nobody(job: Job) -> Settings:
    """The settings where the user says nothing: those of the network's plugin."""
    return Wishes(job.comm.version).on(job.cluster, job.gpus).settings()


@kept
def _left_alone(prepared: Prepared) -> Job | None:
    """The job where the user says nothing; None if that is this one."""
    job = prepared.jobs[0]
    free = _of_nobody(job)
    if job.comm.settings == free and not job.comm.tuner:
        return None
    return replace(job, comm=replace(job.comm, settings=free, tuner=()))


# **** Simulate ****
# One cell, from question to rows: the schedule of each size, its time, its Row.

UNLIKE = (
    result_rows.not_validated("fabric"),
    result_rows.not_validated("approximated"),
)  # no class says how far they are off
ALIKE = ("all_reduce",)  # NCCL moves the same data at the same times in place


def row_of_size(
    prepared: Prepared, size: int, *, engine: str = "auto", progress: Progress | None = None
) -> result_rows.Row:
    """The row of one cell at one size; where an equal call was simulated before, from that."""

    def simulated() -> Outcome:
        return _outcome(prepared, *_timings(prepared, size, engine, progress))

    call = key_of(prepared, size, engine)
    return _row(prepared, size, simulated() if call is None else KNOWN.of(call, simulated))


def _timings(
    prepared: Prepared, size: int, engine: str, progress: Progress | None
) -> tuple[Timing, Timing | None]:
    work, call = prepared.cell.scenario.collective, prepared.call(size)
    timing = _timed(prepared, call, engine, progress)
    if work.collective not in HAS_IN_PLACE:
        return timing, None
    if not (prepared.jobs and work.collective in ALIKE):
        other = prepared.call(size, in_place=True)
        if not ladder.alike(call, other, prepared.limits):
            return timing, _timed(prepared, other, engine, progress)
    return timing, timing


def simulate_one(
    prepared: Prepared, size: int, *, in_place: bool = False, engine: str = "auto"
) -> Timing:
    """The timing of one cell at one size, only in place or only out of place."""
    return _timed(prepared, prepared.call(size, in_place=in_place), engine)


def _timed(prepared: Prepared, call: Call, engine: str, progress: Progress | None = None) -> Timing:
    timing = ladder.timed(call, engine, progress, prepared.limits)
    return sound(timing, call.collective, _about(prepared, call.collective))


def _about(prepared: Prepared, collective: Collective) -> str:
    cluster = cluster_label(prepared.cell.scenario.cluster)
    return f"{cluster}: {collective.name} of {collective.size_bytes} B"


@kept
def _limit_of_a_byte(prepared: Prepared, matrix: tuple[tuple[int, ...], ...] | None) -> Limit:
    """The limit of a collective of a byte a block, or of so many bytes between ranks."""
    work, config = prepared.cell.scenario.collective, prepared.cell.scenario.cluster
    ranks, members = len(prepared.groups[0]), () if config.graph is not None else config.members
    machines = [one.loaded.machine for one in members]
    demand = None
    if work.collective in ("alltoall", "alltoallv"):
        demand = (1.0 - np.eye(ranks)) * (1.0 if matrix is None else np.array(matrix, np.float64))
    elif work.collective in ("sendrecv", "p2p"):
        ring = [(rank, (rank + 1) % ranks) for rank in range(ranks)]
        demand = np.zeros((ranks, ranks))
        for src, dst in work.pairs or ring:
            demand[src, dst] += src != dst
    nvls = any(one.gpu.sm >= 90 and one.scale_up and one.scale_up.switches for one in machines)
    gpus = prepared.gpus[list(prepared.groups[0])]
    name, block = work.collective, float(work.collective != "barrier")
    return limit_of(prepared.topology, gpus, name, block, root=work.root, demand=demand, nvls=nvls)


def limit_at(prepared: Prepared, size: int) -> Limit:
    """The time that no algorithm beats at a size on these links, whatever is simulated."""
    collective = prepared.collective(size)
    if collective.count == 0 and collective.name not in ("alltoallv", "barrier"):
        return Limit(0.0, 0.0, 0.0, "nothing has to move")
    matrix = collective.matrix if collective.name == "alltoallv" else None
    one = _limit_of_a_byte(prepared, matrix and tuple(map(tuple, matrix)))
    block = float(collective.element_bytes * (1 if matrix else collective.count))
    best = None if one.best is None else one.best * block
    return replace(one, bandwidth=one.bandwidth * block, best=best)


def limits(prepared: Prepared, size: int, seconds: float, *, single: bool) -> dict[str, Any]:
    """Columns of a row, and what binds. Operations in a row may overlap: bandwidth holds them."""
    found = limit_at(prepared, size)
    least = max(found.bandwidth, found.latency if single else 0.0)
    return {
        "limit_us": least * 1e6,
        "best_known_us": None if found.best is None else max(least, found.best) * 1e6,
        "of_limit_pct": 100 * least / seconds if seconds > 0 else None,
        "binds": found.cut if least == found.bandwidth else "the way between ranks",
    }


def question_row(prepared: Prepared, size: int, **found: Any) -> result_rows.Row:
    """The row of one cell at one size, without what only a simulation tells, but for `found`."""
    work, plan = prepared.cell.scenario.collective, prepared.planned(size)
    collective = prepared.collective(size)
    return result_rows.Row(
        **_of_cell(prepared),
        algorithm=plan.algorithm if plan else work.algorithm,
        protocol=plan.protocol if plan else "",
        channels=plan.n_channels if plan else None,
        size_bytes=collective.size_bytes,
        count=collective.printed_count,
        size_asked=size,
        validated=_validated(prepared, collective, size, plan)
        if plan
        else result_rows.NOT_VALIDATED,
        **found,
    )


@kept
def _of_cell(prepared: Prepared) -> dict[str, Any]:
    scenario, work = prepared.cell.scenario, prepared.cell.scenario.collective
    return {
        "scenario": scenario.name or "",
        "cell": prepared.cell.id,
        "topology": cluster_label(scenario.cluster),
        "nodes": node_count(scenario.cluster),
        "gpus_per_node": prepared.gpus_per_node,
        "ranks": len(prepared.groups[0]),
        "workload": "collective",
        "collective": work.collective,
        "dtype": work.dtype,
        "launch": scenario.launch_costs().style,
        "nccl_version": prepared.jobs[0].comm.version.in_tables if prepared.jobs else "",
        "seed": scenario.seed,
        "model_version": MODEL_VERSION,
        "axes": prepared.cell.axes,
    }


def untimed(cell: Cell) -> result_rows.Row:
    """What a row says of its cell, also where it was not prepared or its simulation failed."""
    scenario, work = cell.scenario, cell.scenario.workload
    row = result_rows.Row(
        scenario=scenario.name or "",
        cell=cell.id,
        topology=cluster_label(scenario.cluster),
        seed=scenario.seed,
        model_version=MODEL_VERSION,
        axes=dict(cell.axes),
    )
    if not isinstance(work, Workload):
        return replace(row, workload=f"training {work.label}")
    return replace(row, collective=work.collective, algorithm=work.algorithm, dtype=work.dtype)


def _validated(prepared: Prepared, collective: Collective, size: int, plan: Plan) -> str:
    """How far this machine was off where such a case was measured."""
    if departed := departure(prepared, collective, plan):
        return result_rows.not_validated(departed)
    return result_rows.validated(class_of(prepared), collective.name, size)


def interval_at(
    prepared: Prepared, size: int, time_us: float, *, known: bool = True, off: float = 0.0
) -> dict[str, Any]:
    """The interval of a time: of its class, or of the widest where nothing like it was timed;
    never narrower than by how much it may be `off` for being approximated."""
    where = class_of(prepared) if prepared.jobs and known else result_rows.Joined("", "")
    classes = result_rows.wider(where, prepared.collective(size).name, result_rows.band_of(size))
    found = result_rows.interval_of(classes[0 if where.machine else -1 :])
    if found is None:
        return {}
    low, high = min(found.low, 1 / (1 + off)), max(found.high, 1 + off)
    return {"time_low_us": time_us * low, "time_high_us": time_us * high}


def _outcome(prepared: Prepared, timing: Timing, inplace: Timing | None) -> Outcome:
    worst = max((t for t in (timing, inplace) if t is not None), key=lambda t: t.uncertainty)
    return Outcome(
        timing.seconds,
        None if inplace is None else inplace.seconds,
        bound_by(timing.program, timing.timeline, timing.use, timing.causes),
        worst.approximation,
        worst.uncertainty,
        len(timing.program),
        timing.engine,
        fullest_link(prepared.topology, timing.program, timing.use),
        _samples(prepared, timing),
    )


def _samples(prepared: Prepared, timing: Timing) -> tuple[float, ...]:
    """The time of an operation in each sample: longer than without noise as it alone is."""
    given = prepared.cell.scenario.disturbances
    if given is None:
        return ()
    longer = disturbed(timing.program, Noise(*given), timing.engine) - timing.timeline.makespan
    return tuple((timing.seconds + longer).tolist())


def _row(prepared: Prepared, size: int, found: Outcome) -> result_rows.Row:
    collective = prepared.collective(size)
    algbw = collective.size_bytes / found.seconds / 1e9 if found.seconds > 0 else 0.0
    told, factor = (algbw, algbw * collective.bus_factor), collective.bus_factor
    least: dict[str, Any] = {}
    if prepared.cell.scenario.limits:
        is_single = prepared.cell.scenario.collective.timing == "single"
        least = limits(prepared, size, found.seconds, single=is_single)
    known = Answer(
        found.seconds,
        found.uncertainty,
        size_bytes=collective.size_bytes,
        bandwidths=told,
        bus_factor=factor,
        limit=least.get("limit_us", 0.0) * 1e-6,
    )
    ask(known, _about(prepared, collective))
    samples = [1e6 * seconds for seconds in found.samples]
    row = question_row(
        prepared,
        size,
        time_us=found.seconds * 1e6,
        inplace_time_us=None if found.inplace is None else found.inplace * 1e6,
        algbw_GBps=told[0],
        busbw_GBps=told[1],
        **{name: value for name, value in least.items() if name != "binds"},
        bound_by=found.bound_by,
        approximation=found.approximation,
        approximation_pct=found.uncertainty * 100 if found.approximation else None,
        rows=found.rows,
        engine=found.engine,
        fullest_link=found.fullest.name if found.fullest else "",
        fullest_over_mean=found.fullest.over_mean if found.fullest else None,
        **result_rows.of_samples(samples, collective.size_bytes),
    )
    if found.bound_by.startswith("fabric"):  # no fabric of the corpus is known
        row = replace(row, validated=UNLIKE[0])
    elif row.doubtful:
        row = replace(row, validated=UNLIKE[1])
    is_validated = row.validated not in UNLIKE
    time, off = found.seconds * 1e6, found.uncertainty if found.approximation else 0.0
    return replace(row, **interval_at(prepared, size, time, known=is_validated, off=off))
