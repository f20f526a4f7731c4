"""Resolve and answer a cell of any kind: a collective at a size, a training step, or
several jobs.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from netsim.base.errors import NetsimError, NoRoomError, ScenarioError, StalledError
from netsim.base.files import TRACES, Preset, find_preset, is_path, named_in, preset_folder
from netsim.base.units import format_time
from netsim.extent.engine_runs import Progress
from netsim.results.row import Row
from netsim.scenario.cells import (
    Cell,
    Expansion,
    Invalid,
    assumed_defaults,
    expand_all,
    slow_slots,
    with_settings,
)
from netsim.scenario.models import Workload
from netsim.tasks.own_algorithms import UNCHECKED
from netsim.tasks.resolve import ResolvedCell, resolve
from netsim.tasks.row import question_row, row_of_size, untimed
from netsim.topology.cluster import build_topology
from netsim.topology.fault_times import first_fatal_loss
from netsim.yamlio.read import Source, read_source

if TYPE_CHECKING:
    from netsim.tasks.jobs import ResolvedJobs
    from netsim.training.resolve import ResolvedStep

AnyResolved: TypeAlias = "ResolvedCell | ResolvedStep | ResolvedJobs"


GIVEN_UP = (
    "NET/IB : Got completion with status=12 (IBV_WC_RETRY_EXC_ERR: transport retry counter "
    "exceeded) vendor err 129; ncclRemoteError"
)


def resolve_any(cell: Cell) -> AnyResolved:
    """The resolved cell of any kind. If its parts do not fit together, the error names the place of
    the wrong key.
    """
    if cell.scenario.shared:
        from netsim.tasks.jobs import resolve_jobs

        return resolve_jobs(cell)
    if isinstance(cell.scenario.workload, Workload):
        return resolve(cell)
    from netsim.training.resolve import resolve_step

    return resolve_step(cell)


def answer(
    resolved: AnyResolved, size: int, *, engine: str = "auto", progress: Progress | None = None
) -> Row:
    """The row of a resolved cell at one size in bytes; a training step has no size. `progress` is
    called while a simulation runs.

    If a fault stops a simulation for so long that NCCL gives up, the row has the time of that, and
    an error.
    """
    try:
        if isinstance(resolved, ResolvedCell):
            return row_of_size(resolved, size, engine=engine, progress=progress)
        if resolved.cell.scenario.shared:
            from netsim.tasks.jobs import ResolvedJobs, row_of_job

            assert isinstance(resolved, ResolvedJobs)
            return row_of_job(resolved, size, engine=engine)
        from netsim.training.resolve import ResolvedStep
        from netsim.training.run import row_of_step

        assert isinstance(resolved, ResolvedStep)
        return row_of_step(resolved, engine=engine, progress=progress)
    except StalledError as error:
        scenario = resolved.cell.scenario
        topology = build_topology(scenario.cluster)
        ends_at = first_fatal_loss(topology, scenario.retries, error.dead_links)
        if ends_at is None:
            raise
        return _row_of_lost_job(resolved, size, ends_at)


def _row_of_lost_job(resolved: AnyResolved, size: int, seconds: float) -> Row:
    """The row of a cell whose job a fault ends after `seconds` seconds."""
    error = f"after {format_time(seconds)}: {GIVEN_UP}"
    microseconds = seconds * 1e6
    if isinstance(resolved, ResolvedCell):
        row = question_row(resolved, size)
        return replace(row, status="failed", error=error, time_us=microseconds)
    row = untimed(resolved.cell)
    return replace(row, status="failed", error=error, step_time_us=microseconds)


def memory_needed(cell: Cell, sizes: Sequence[int]) -> int:
    """An upper estimate of the bytes that a process needs for a cell at the largest of `sizes`; 0
    if the cell cannot be built.
    """
    try:
        return resolve_any(cell).memory_needed(max(sizes))
    except NetsimError:
        return 0


# **** Scenarios **** From the name of a scenario to its cells: what `netsim run` and the Python API
# have in common.


def find_scenario(name: str) -> Preset:
    """The file of the scenario `name`: a path, or the name of a preset with or without its folder.

    `scenarios/quickstart.yaml` names the preset from any directory, unless a file with this path
    exists.
    """
    path = Path(name)
    if is_path(name) and not path.exists() and path.parent.name in ("", "scenarios"):
        preset = preset_folder("scenarios") / path.name
        if preset.is_file():
            return Preset(path.stem, preset)
    return find_preset("scenarios", name, "scenario")


def load_source(path: Path, settings: Sequence[str] = ()) -> Source:
    """The scenario in the file `path`, with `KEY=VALUE` settings applied. A scenario without a name
    gets the name of its file.

    If the file is a trace, the scenario runs this trace on the cluster that the settings describe.
    Files that the scenario names are looked for beside the scenario first; files that settings
    name, in the current folder.
    """
    work = {"cluster": {}, "workload": {"trace": str(path)}}
    source = Source(str(path), work) if path.suffix in TRACES else read_source(path)
    if path.parent != Path():
        source = replace(source, data=_with_paths_beside(source.data, path))
    source = with_settings(source, settings)
    if source.data.get("name") is not None:
        return source
    return replace(source, data={"name": name_of(path), **source.data})


FOUND_LATER = ("algorithm", "measured")  # keys with files that are looked up when they are used


def _with_paths_beside(value: Any, scenario: Path) -> Any:
    """`value`, a part of the data of a scenario, in which names of files that exist beside the
    scenario are replaced by their paths.

    `scenario` is the path of the scenario's file. Keys that end with a word of `FOUND_LATER` are
    left as they are.
    """
    if isinstance(value, dict):
        return {
            key: entry if str(key).endswith(FOUND_LATER) else _with_paths_beside(entry, scenario)
            for key, entry in value.items()
        }
    if isinstance(value, list):
        return [_with_paths_beside(entry, scenario) for entry in value]
    if not isinstance(value, str) or "." not in value:
        return value
    names = named_in(scenario, value)
    return names.as_posix() if names != Path(value) else value


def name_of(path: Path) -> str:
    """The name for a scenario without a name: that of its file, with only valid characters."""
    plain = re.sub(r"[^\w.-]+", "-", unicodedata.normalize("NFC", path.stem))
    return re.sub(r"^[\W_]+", "", plain) or "scenario"


def checked(source: Source, *, alone: bool = True) -> Expansion:
    """All points of a scenario; a point whose parts do not fit together is replaced by an `Invalid`
    with the reason.

    If `alone` is false and there are other cells, a cell that needs too much memory stays valid
    here and fails when it runs.
    """
    expansion = expand_all(source)
    points = list(expansion.points)
    # Cells of one cluster are checked one after the other, so that each cluster is built once.
    cells = [(number, point) for number, point in enumerate(points) if isinstance(point, Cell)]
    for number, cell in sorted(cells, key=lambda pair: pair[1].cluster):
        try:
            resolve_any(cell)
        except ScenarioError as error:
            # If other cells can run, a cell without memory reports its error when it is its turn.
            if alone or len(cells) == 1 or not isinstance(error, NoRoomError):
                points[number] = Invalid(cell.id, cell.axes, error)
    return replace(expansion, points=tuple(points))


def checked_cells(source: Source) -> list[Cell]:
    """All cells of a scenario, checked; if some are invalid, one error has all reasons."""
    expansion = checked(source)
    expansion.refuse_invalid()
    return expansion.cells


def notes_of(cells: Sequence[Cell]) -> list[str]:
    """Notes for the user on files that replace presets, on slow PCIe slots of NICs, and on training
    steps with options that have no effect or groups that are placed badly.
    """
    members = (group for cell in cells for group in cell.scenario.cluster.members)
    files = (note for group in members if (note := group.loaded.note))
    slots = (note for cell in cells for note in slow_slots(cell))
    unchecked = (f"note: {UNCHECKED[cell.id]}" for cell in cells if cell.id in UNCHECKED)
    assumed = (text for cell in cells for text in assumed_defaults(cell))
    return list(dict.fromkeys([*files, *slots, *unchecked, *assumed, *_step_warnings(cells)]))


def _step_warnings(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield each warning of a training step once. If only some cells have it, the text says how
    many.
    """
    steps = [cell for cell in cells if not isinstance(cell.scenario.workload, Workload)]
    if not steps:
        return
    from netsim.training.resolve import warnings_of_step

    counts = Counter(text for cell in steps for text in warnings_of_step(cell))
    for text, count in counts.items():
        where = f" ({count} of {len(cells)} cells)" if count < len(cells) else ""
        yield f"warning: {text}{where}"
