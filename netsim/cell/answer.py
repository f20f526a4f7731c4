"""One cell of any kind, prepared and answered: a collective at a size, or a training step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from netsim.base.errors import ScenarioError
from netsim.base.files import Preset, find_preset, is_path, preset_folder
from netsim.base.units import format_size, format_time
from netsim.cell.prepare import Prepared, prepare
from netsim.cell.simulate import launch_of, row_of_size
from netsim.collectives.reduced import STEPS
from netsim.engines.engine import simulate
from netsim.explain.explanation import as_values, explain
from netsim.explain.what_if import MOST_ROWS, Advance, Case
from netsim.program.place import place
from netsim.program.program import Program, Timeline
from netsim.results.row import Row
from netsim.scenario.cells import Cell, Expansion, Invalid, expand_all, slow_slots, with_settings
from netsim.scenario.models import Workload
from netsim.schedule.schedule import Schedule
from netsim.timing.bench import Progress
from netsim.timing.fits import least_rows_of_nccl
from netsim.training import prepare as steps
from netsim.training import run as details
from netsim.training.prepare import PreparedStep
from netsim.yamlio.read import Source, read_source

AnyPrepared: TypeAlias = "Prepared | PreparedStep"


def prepare_any(cell: Cell) -> AnyPrepared:
    """Check that the parts of a cell fit; errors name the field."""
    collective = isinstance(cell.scenario.workload, Workload)
    return prepare(cell) if collective else steps.prepare_step(cell)


def answer(
    prepared: AnyPrepared, size: int, *, engine: str = "auto", progress: Progress | None = None
) -> Row:
    """The row of a prepared cell at one size; a training step has none."""
    if isinstance(prepared, Prepared):
        return row_of_size(prepared, size, engine=engine, progress=progress)
    step = details.simulate_step(prepared, engine=engine, progress=progress)
    return replace(details.step_row(step), details=details.details_of(step))


def named(cell: Cell, row: Row) -> Row:
    """What a row says of its cell, also where the simulation failed."""
    work = cell.scenario.workload
    if not isinstance(work, Workload):
        return replace(row, workload=f"training {work.label}")
    return replace(row, collective=work.collective, algorithm=work.algorithm, dtype=work.dtype)


# **** Runs ****
# A scenario from its name to its rows: what `netsim run` and the Python API have in common.


def find_scenario(name: str) -> Preset:
    """The file of a scenario: a path, or the name of a preset with or without its folder.

    `scenarios/quickstart.yaml` finds the preset from any directory; a file that exists wins.
    """
    path = Path(name)
    if is_path(name) and not path.exists() and path.parent.name in ("", "scenarios"):
        preset = preset_folder("scenarios") / path.name
        if preset.is_file():
            return Preset(path.stem, preset)
    return find_preset("scenarios", name, "scenario")


def load_source(path: Path, settings: Sequence[str] = ()) -> Source:
    """A scenario file with `KEY=VALUE` settings applied, named after its file if it has no name."""
    source = with_settings(read_source(path), settings)
    if source.data.get("name") is not None:
        return source
    return replace(source, data={"name": path.stem, **source.data})


def checked(source: Source) -> Expansion:
    """All points of a scenario; those that do not fit together as such, with the reason."""
    expansion = expand_all(source)
    points = list(expansion.points)
    # Cells of one cluster after each other, so that each cluster is built once.
    cells = [(number, point) for number, point in enumerate(points) if isinstance(point, Cell)]
    for number, cell in sorted(cells, key=lambda pair: pair[1].cluster):
        points[number] = _fitting(cell)
    return replace(expansion, points=tuple(points))


def _fitting(cell: Cell) -> Cell | Invalid:
    try:
        prepare_any(cell)
    except ScenarioError as error:
        return Invalid(cell.id, cell.axes, error)
    return cell


def checked_cells(source: Source) -> list[Cell]:
    """All cells of a scenario, each known to fit together; what is wrong is raised at once."""
    expansion = checked(source)
    expansion.refuse_invalid()
    return expansion.cells


def notes_of(cells: Sequence[Cell]) -> list[str]:
    """What the user should know about files used instead of presets, and about NICs asked for."""
    members = (group for cell in cells for group in cell.scenario.cluster.members)
    files = (note for group in members if (note := group.loaded.note))
    slots = (note for cell in cells for note in slow_slots(cell))
    return list(dict.fromkeys([*files, *slots]))


def run(scenario: str | Path, settings: Sequence[str] = (), *, engine: str = "auto") -> list[Row]:
    """Simulate all cells of a scenario and return their rows; nothing is written.

    `settings` replace single values, as `netsim run --set` does:
    `run("quickstart", ["workload.sizes=64MiB"])`.
    """
    cells = checked_cells(load_source(find_scenario(str(scenario)).path, settings))
    rows = []
    for cell in cells:
        prepared = prepare_any(cell)
        sizes = cell.scenario.workload.size_list()
        rows += [answer(prepared, size, engine=engine) for size in sizes]
    return rows


# **** Shown ****
# What traces, pictures and explanations are about: all rows of an operation, or those that stand
# for all, or the first steps of long rings, where these would be too many.


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
