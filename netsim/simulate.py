"""One cell, from question to rows: the schedule of each size, its time, its Row."""

from typing import Any

import numpy as np

from netsim import departures, lockstep, recalled, relayed, rings
from netsim.collectives.collective import HAS_IN_PLACE
from netsim.expect import choice
from netsim.expect.launching import NOTHING, calibrated_launch, nccl_launch
from netsim.kept import kept
from netsim.looped import Looped
from netsim.metrics import bound_by
from netsim.prepared import Prepared, prepare
from netsim.recalled import Outcome
from netsim.results import Row
from netsim.scenario.clusters import cluster_label, node_count
from netsim.schedule import Launch, Schedule
from netsim.textbook import hurried
from netsim.timing import Bench, Progress, Timing
from netsim.validated import NOT_VALIDATED, not_validated, validated
from netsim.version import MODEL_VERSION

__all__ = [
    "Prepared",
    "launch_of",
    "prepare",
    "question_row",
    "row_of_size",
    "simulate_one",
    "simulate_size",
]

ALIKE = ("all_reduce",)  # NCCL moves the same data at the same times in place


def row_of_size(
    prepared: Prepared, size: int, *, engine: str = "auto", progress: Progress | None = None
) -> Row:
    """The row of one cell at one size; where an equal call was simulated before, from that."""
    bench = bench_of(prepared, size, engine, progress)

    def simulated() -> Outcome:
        return _outcome(*_timings(prepared, bench, size))

    found = recalled.recalled(recalled.call_of(prepared, bench, size), simulated)
    return _row(prepared, size, found)


def simulate_size(
    prepared: Prepared, size: int, *, engine: str = "auto", progress: Progress | None = None
) -> tuple[Row, Timing]:
    """The row of one cell at one size, and the timing behind it (out of place)."""
    timing, inplace = _timings(prepared, bench_of(prepared, size, engine, progress), size)
    return _row(prepared, size, _outcome(timing, inplace)), timing


def _timings(prepared: Prepared, bench: Bench, size: int) -> tuple[Timing, Timing | None]:
    """The timing of one cell at one size, out of place and in place."""
    work = prepared.cell.scenario.collective
    call = prepared.looped(size, folded=True)
    timing = _timed(prepared, bench, size, call)
    if work.collective not in HAS_IN_PLACE:
        return timing, None
    if not (prepared.jobs and work.collective in ALIKE):
        other = prepared.looped(size, in_place=True, folded=True)
        long = prepared.long_rings(size) is not None
        if long or not _alike(call, other):
            return timing, _timed(prepared, bench, size, other, in_place=True)
    return timing, timing


def simulate_one(
    prepared: Prepared, size: int, *, in_place: bool = False, engine: str = "auto"
) -> Timing:
    """The timing of one cell at one size, only in place or only out of place."""
    call = prepared.looped(size, in_place=in_place, folded=True)
    return _timed(prepared, bench_of(prepared, size, engine), size, call, in_place=in_place)


def _timed(
    prepared: Prepared, bench: Bench, size: int, call: Looped, *, in_place: bool = False
) -> Timing:
    work, found = prepared.cell.scenario.collective, prepared.relayed(size, in_place=in_place)
    if found is not None:
        return relayed.time_relayed(bench, found)
    plan = prepared.long_rings(size, in_place=in_place)
    if plan is not None:
        collective = prepared.collective(size, in_place=in_place)
        told = rings.time_rings(bench, collective, plan)
        if told is not None:
            return told
        rings.check_rows(collective, plan)
    timing = _of_rows(prepared, bench, size, call, in_place=in_place)
    if work.algorithm != "hierarchical" or not hurried(timing.program, timing.timeline):
        return timing
    single = prepared.looped(size, in_place=in_place, folded=True, bundled=False)
    return _of_rows(prepared, bench, size, single, in_place=in_place)


def _of_rows(
    prepared: Prepared, bench: Bench, size: int, call: Looped, *, in_place: bool
) -> Timing:
    """The timing of what is written down, for others that keep step with it, too."""
    found = prepared.alikeness(prepared.collective(size, in_place=in_place))
    if found is None or found.spread is None:
        return bench.time_looped(call)
    return lockstep.time_in_step(bench, call, found.spread)


def bench_of(
    prepared: Prepared, size: int, engine: str = "auto", progress: Progress | None = None
) -> Bench:
    """Where operations of one cell at one size are timed."""
    return Bench(
        prepared.topology,
        prepared.gpus,
        launch_of(prepared, size),
        prepared.cell.scenario.collective.timing == "single",
        engine,
        progress,
    )


def launch_of(prepared: Prepared, size: int) -> Launch:
    """What it takes to begin an operation in this cell."""
    costs = prepared.cell.scenario.launch_costs()
    usual = NOTHING
    plan = prepared.planned(size)
    if plan is not None:
        job = prepared.jobs[0]
        usual = nccl_launch(
            costs.style,
            job.comm.version,
            begin=max(map(job.mechanism.begin.of, plan.protocols)),
            channels=plan.n_channels,
            sends_and_receives=choice.operations(prepared.collective(size)),
            figures=job.calibration,
        )
        if costs.style != "cuda_graph":
            usual = calibrated_launch(usual, job.calibration)
    return Launch(
        usual.host if costs.host is None else costs.host,
        usual.kernel if costs.kernel is None else costs.kernel,
        prepared.gpus_per_node if costs.style == "single_process" else 1,
    )


def question_row(prepared: Prepared, size: int, **found: Any) -> Row:
    """The row of one cell at one size without what only a simulation tells, but for what was
    `found`.
    """
    work, plan = prepared.cell.scenario.collective, prepared.planned(size)
    collective = prepared.collective(size)
    return Row(
        **_of_cell(prepared),
        algorithm=plan.algorithm if plan else work.algorithm,
        protocol=plan.protocol if plan else "",
        channels=plan.n_channels if plan else None,
        size_bytes=collective.size_bytes,
        count=collective.count,
        validated=_validated(prepared, size) if plan else NOT_VALIDATED,
        **found,
    )


@kept
def _of_cell(prepared: Prepared) -> dict[str, Any]:
    """What the rows of all sizes have in common."""
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
        "nccl_version": scenario.nccl.version if prepared.jobs else "",
        "seed": scenario.seed,
        "model_version": MODEL_VERSION,
        "axes": prepared.cell.axes,
    }


def _validated(prepared: Prepared, size: int) -> str:
    """How far this machine was off where such a case was measured."""
    if departed := departures.departure(prepared, size):
        return not_validated(departed)
    return validated(departures.class_of(prepared), prepared.collective(size).name, size)


def _outcome(timing: Timing, inplace: Timing | None) -> Outcome:
    worst = max((t for t in (timing, inplace) if t is not None), key=lambda t: t.uncertainty)
    return Outcome(
        timing.seconds,
        None if inplace is None else inplace.seconds,
        bound_by(timing.program, timing.timeline, timing.use, timing.causes),
        worst.approximation,
        worst.uncertainty,
        len(timing.program),
        timing.engine,
    )


def _row(prepared: Prepared, size: int, found: Outcome) -> Row:
    collective = prepared.collective(size)
    algbw = collective.size_bytes / found.seconds / 1e9 if found.seconds > 0 else 0.0
    return question_row(
        prepared,
        size,
        time_us=found.seconds * 1e6,
        inplace_time_us=None if found.inplace is None else found.inplace * 1e6,
        algbw_GBps=algbw,
        busbw_GBps=algbw * collective.bus_factor,
        bound_by=found.bound_by,
        approximation=found.approximation,
        approximation_pct=found.uncertainty * 100 if found.approximation else None,
        rows=found.rows,
        engine=found.engine,
    )


def _alike(one: Looped, other: Looped) -> bool:
    """Whether two calls are the same rows; of very many loops, a few tell."""
    if (one.loops, one.least) != (other.loops, other.least):
        return False
    loops = one.least if one.worth_shortening else one.loops
    return _same(one.schedule(loops), other.schedule(loops))


def _same(a: Schedule, b: Schedule) -> bool:
    """Whether two schedules are the same rows."""
    tables = a.styles == b.styles and a.lags == b.lags and len(a) == len(b)
    columns = zip((*a.columns(), a.pieces.amount), (*b.columns(), b.pieces.amount), strict=True)
    return tables and all(np.array_equal(x, y) for x, y in columns)
