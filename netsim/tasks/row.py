"""Make the row of a cell at one size, for results.csv and the Python API."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from netsim.base.memo import cached_per_object
from netsim.base.startup import MODEL_VERSION
from netsim.extent.engine_runs import Progress
from netsim.extent.invariants import Answer, check
from netsim.results import row as result_rows
from netsim.scenario.cells import Cell
from netsim.scenario.models import Workload, cluster_label, node_count
from netsim.tasks.limits import limit_columns
from netsim.tasks.outcome import Outcome, outcome_of, subject_of
from netsim.tasks.resolve import ResolvedCell
from netsim.tasks.unknown_launch import is_launch_unknown, row_of_both
from netsim.tasks.validation import interval_at, validation_of

# Values of the column `validated` for rows that no class of measured runs covers, so that their
# error is unknown.
UNLIKE = (
    result_rows.not_validated("fabric"),
    result_rows.not_validated("approximated"),
)


def row_of_size(
    resolved: ResolvedCell, size: int, *, engine: str = "auto", progress: Progress | None = None
) -> result_rows.Row:
    """The row of one cell at one size; from both launch styles if the style is not known."""

    def row_of(cell: ResolvedCell) -> result_rows.Row:
        return row_of_outcome(cell, size, outcome_of(cell, size, engine, progress))

    if is_launch_unknown(resolved):
        return row_of_both(resolved, row_of)
    return row_of(resolved)


def question_row(resolved: ResolvedCell, size: int, **columns: Any) -> result_rows.Row:
    """The row of one cell at one size before its task is simulated: what was asked, and NCCL's
    plan, with the values of `columns` added.
    """
    work = resolved.cell.scenario.collective
    plan = resolved.planned(size)
    collective = resolved.collective(size)
    return result_rows.Row(
        **_columns_of_cell(resolved),
        algorithm=plan.algorithm if plan else work.algorithm,
        protocol=plan.protocol if plan else "",
        channels=plan.n_channels if plan else None,
        size_bytes=collective.size_bytes,
        count=collective.printed_count,
        size_asked=size,
        validated=validation_of(resolved, size),
        **columns,
    )


def untimed(cell: Cell) -> result_rows.Row:
    """The row of a cell without times, such as an invalid cell or one whose run failed."""
    scenario = cell.scenario
    work = cell.scenario.workload
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


@cached_per_object
def _columns_of_cell(resolved: ResolvedCell) -> dict[str, Any]:
    """The columns that all sizes of a cell share."""
    scenario = resolved.cell.scenario
    work = resolved.cell.scenario.collective
    is_nccl = resolved.is_nccl
    return {
        "scenario": scenario.name or "",
        "cell": resolved.cell.id,
        "topology": cluster_label(scenario.cluster),
        "nodes": node_count(scenario.cluster),
        "gpus_per_node": resolved.gpus_per_node,
        "ranks": len(resolved.groups[0]),
        "workload": "collective",
        "collective": work.collective,
        "dtype": work.dtype,
        "launch": scenario.launch_costs().style,
        "nccl_version": resolved.jobs[0].comm.version.in_tables if is_nccl else "",
        "seed": scenario.seed,
        "model_version": MODEL_VERSION,
        "axes": resolved.cell.axes,
    }


def row_of_outcome(resolved: ResolvedCell, size: int, outcome: Outcome) -> result_rows.Row:
    """The row of one cell at one size, from the outcome of its task; the invariants of rows are
    checked.
    """
    collective = resolved.collective(size)
    scenario = resolved.cell.scenario
    algbw = collective.size_bytes / outcome.seconds / 1e9 if outcome.seconds > 0 else 0.0
    busbw = algbw * collective.bus_factor
    limit: dict[str, Any] = {}
    if scenario.limits:
        limit = limit_columns(
            resolved, size, outcome.slowest, is_single=scenario.timing == "single"
        )
        limit.pop("binds")
    answer = Answer(
        outcome.seconds,
        outcome.uncertainty,
        size_bytes=collective.size_bytes,
        bandwidths=(algbw, busbw),
        bus_factor=collective.bus_factor,
        limit=limit.get("limit_us", 0.0) * 1e-6,
        slowest=outcome.slowest,
    )
    check(answer, subject_of(resolved, collective))
    samples = [1e6 * seconds for seconds in outcome.samples]
    time_us = outcome.seconds * 1e6
    row = question_row(
        resolved,
        size,
        time_us=time_us,
        inplace_time_us=None if outcome.inplace is None else outcome.inplace * 1e6,
        algbw_GBps=algbw,
        busbw_GBps=busbw,
        **limit,
        bound_by=outcome.bound_by,
        approximation=outcome.approximation,
        approximation_pct=outcome.uncertainty * 100 if outcome.approximation else None,
        rows=outcome.rows,
        engine=outcome.engine,
        fullest_link=outcome.fullest.name if outcome.fullest else "",
        fullest_over_mean=outcome.fullest.over_mean if outcome.fullest else None,
        **result_rows.of_samples(samples, collective.size_bytes),
    )
    if outcome.bound_by.startswith("fabric"):  # the fabrics of the measured runs are unknown
        row = replace(row, validated=UNLIKE[0])
    elif row.doubtful:
        row = replace(row, validated=UNLIKE[1])
    interval = interval_at(
        resolved,
        size,
        time_us,
        is_validated=row.validated not in UNLIKE,
        uncertainty=outcome.uncertainty if outcome.approximation else 0.0,
    )
    return replace(row, **interval)
