"""What traces, pictures and explanations of a cell are about; and its explanation at a size.

All rows of an operation, or those that stand for all, or the first steps of long rings, where these
would be too many. Its operation alone, from standstill.
"""

from __future__ import annotations

from typing import Any

from netsim.base.units import format_size, format_time
from netsim.base.values import dataclass
from netsim.cell.prepare import Prepared
from netsim.cell.simulate import launch_of
from netsim.collectives.reduced import STEPS
from netsim.engines.engine import simulate
from netsim.explain.explanation import as_values, explain
from netsim.explain.what_if import MOST_ROWS, Advance, Case
from netsim.program.place import place
from netsim.program.program import Program, Timeline
from netsim.schedule.schedule import Schedule
from netsim.timing.fits import least_rows_of_nccl

MOST_SHOWN = 4_000_000  # rows in full; of more, those that stand for others


@dataclass(frozen=True, slots=True)
class Shown:
    """A schedule to look at, and what one must know of it."""

    schedule: Schedule
    notes: tuple[str, ...] = ()


def shown_of(prepared: Prepared, size: int) -> Shown:
    """One operation at a size, out of place."""
    rows = _rows_in_full(prepared, size)
    if rows <= MOST_SHOWN:
        return Shown(prepared.schedule(size))
    steps = prepared.relayed(size)
    if steps is not None:
        note = (
            f"of about {rows:.2g} rows those of the first {STEPS} steps of every ring are shown, "
            f"and what follows them; the whole takes {format_time(steps.seconds)}"
        )
        return Shown(steps.schedule, (note,))
    work = prepared.looped(size, folded=True, in_step=False)
    schedule = work.schedule(work.loops)
    if schedule.fold is None:
        return Shown(schedule)
    note = (
        f"of about {rows:.2g} rows those of {len(schedule.fold.leaders)} GPUs are shown, which "
        f"stand for all {schedule.ranks}"
    )
    return Shown(schedule, (note,))


def _rows_in_full(prepared: Prepared, size: int) -> int:
    collective = prepared.collective(size)
    if not prepared.jobs:
        found = prepared.alikeness(collective)
        return 0 if found is None else found.full
    plan = prepared.planned(size)
    algorithm = plan.algorithm if plan else ""
    return least_rows_of_nccl(collective.name, collective.ranks, algorithm)


# **** Explained ****
# The explanation of one cell at one size: its operation alone, from standstill.


def explained(
    prepared: Prepared,
    size: int,
    *,
    engine: str = "auto",
    most_rows: int = MOST_ROWS,
    advance: Advance = lambda done, of: None,
) -> dict[str, Any]:
    """Where the time of a cell goes at one size, as plain values in µs."""
    return explained_run(prepared, size, engine=engine, most_rows=most_rows, advance=advance)[0]


def explained_run(
    prepared: Prepared,
    size: int,
    *,
    engine: str = "auto",
    most_rows: int = MOST_ROWS,
    advance: Advance = lambda done, of: None,
) -> tuple[dict[str, Any], Program, Timeline]:
    """The same, with the program and the timeline that it is about."""
    shown = shown_of(prepared, size)
    program = place(shown.schedule, prepared.topology, prepared.gpus.tolist())
    launch = launch_of(prepared, size)
    case = Case(program, launch.host + launch.kernel)
    timeline = simulate(program, engine)
    found = as_values(explain(case, timeline, engine=engine, most_rows=most_rows, advance=advance))
    title = "; ".join([explained_title(prepared, size), *shown.notes])
    return {"title": title, **found}, program, timeline


def explained_title(prepared: Prepared, size: int) -> str:
    """The operation in words."""
    work, plan = prepared.cell.scenario.collective, prepared.planned(size)
    how = f"{plan.algorithm} {plan.protocol}" if plan else work.algorithm
    ranks = len(prepared.groups[0])
    return f"{work.collective} of {format_size(size)} on {ranks} GPUs, {how}"
