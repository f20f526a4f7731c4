"""The explanation of one cell at one size: its operation alone, from standstill."""

from typing import Any

from netsim.engines import simulate
from netsim.explain.explanation import as_values, explain
from netsim.explain.parameters import Case
from netsim.explain.whatif import MOST_ROWS, Advance
from netsim.program import Program, Timeline, place
from netsim.shown import shown_of
from netsim.simulate import Prepared, launch_of
from netsim.units import format_size


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
