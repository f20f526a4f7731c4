"""`netsim plot`: draws the pictures of a folder of results again from its files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from netsim.base.errors import InputError
from netsim.base.files import is_same_file
from netsim.cli.output import refuse_output_as_input, wrote
from netsim.cli.traces import LOAD, ROWS, TRACE
from netsim.plots.explanation import plot_breakdown
from netsim.plots.results import plot_distribution, plot_interference, plot_results
from netsim.plots.timeline import plot_links, plot_memory, plot_step, plot_timeline
from netsim.results.folder import BREAKDOWN, DISTRIBUTION, INTERFERENCE
from netsim.results.workspace import (
    MANIFEST,
    RESULTS,
    OutputFolder,
    adding_to,
    place_of_results,
)
from netsim.scenario.cells import Cell
from netsim.scenario.models import Workload, line_rate
from netsim.training import run


def redraw_plots(files: list[Path], output: Path | None = None) -> None:
    """Draw the plots of files and folders of results; nothing is simulated.

    They are written to `output`, or beside the first of the files.
    """
    sorted_files = _sorted(files)
    beside = files[0] if files[0].is_dir() else files[0].parent
    if output is not None and not is_same_file(output, beside):
        refuse_output_as_input(output, files)
        folder = OutputFolder(output, "plot", tuple(map(str, files)))
        wrote(*folder.write(lambda place: _draw(sorted_files, place)))
        return
    if not (place_of_results(beside) / MANIFEST).exists():  # of no run: nobody keeps a list
        wrote(*_draw(sorted_files, beside))
        return
    with adding_to(beside) as place:
        drawn = [file.relative_to(place) for file in _draw(sorted_files, place)]
    wrote(*(place_of_results(beside) / file for file in drawn))


def _draw(files_of_kind: Mapping[str, list[Path]], folder: Path) -> list[Path]:
    """Draw results, breakdowns, timelines and link loads into a folder; return the pictures.

    `files_of_kind` has the files by the names `results.csv`, `trace.csv` and `links_over_time.csv`.
    """
    written = plot_results(files_of_kind[RESULTS], folder) if files_of_kind[RESULTS] else []
    beside_results = [file.with_name(BREAKDOWN) for file in files_of_kind[RESULTS]]
    steps = [path for path in beside_results if path.exists()]
    drawn = (
        (plot_breakdown, steps),
        (plot_timeline, files_of_kind[ROWS]),
        (plot_links, files_of_kind[LOAD]),
    )
    for draw, paths in drawn:
        for file, place in _places(paths, folder):
            written += draw(file, place)
    return written


def _places(files: list[Path], folder: Path) -> list[tuple[Path, Path]]:
    """Pairs of each file and the folder for its pictures: `folder`, or subfolders if there are
    several files.
    """
    if len(files) < 2:
        return [(file, folder) for file in files]
    taken: dict[str, int] = {}
    places = []
    for file in files:
        name = file.resolve().parent.name
        taken[name] = taken.get(name, 0) + 1
        places.append((file, folder / (name if taken[name] == 1 else f"{name}-{taken[name]}")))
    return places


def _sorted(files: list[Path]) -> dict[str, list[Path]]:
    """The result, trace and link-load files by kind, among the named files and in the named
    folders.
    """
    files_of_kind: dict[str, list[Path]] = {RESULTS: [], ROWS: [], LOAD: []}
    for file in files:
        if file.is_dir():
            folder = place_of_results(file)
            inside = [folder / name for name in files_of_kind if (folder / name).is_file()]
            if not inside:
                raise InputError(f"{file}: holds no {RESULTS}, {ROWS} or {LOAD}")
            for path in inside:
                files_of_kind[path.name].append(path)
        else:
            files_of_kind[file.name if file.name in (ROWS, LOAD) else RESULTS].append(file)
    return files_of_kind


def write_pictures(cells: Sequence[Cell], folder: Path, engine: str) -> list[str]:
    """Draw the results of a run in its folder, and its traces if it wrote any; return
    the pictures.
    """
    rates = {line_rate(cell.scenario.cluster) for cell in cells}
    rate = rates.pop() if len(rates) == 1 else None
    files = plot_results([folder / RESULTS], folder, line_rate=rate)
    drawn: dict[str, Any] = {
        BREAKDOWN: plot_breakdown,
        DISTRIBUTION: plot_distribution,
        ROWS: plot_timeline,
        LOAD: plot_links,
        INTERFERENCE: plot_interference,
    }
    if not (isinstance(cells[0].scenario.workload, Workload) or cells[0].scenario.shared):
        drawn |= {TRACE: plot_step, run.MEMORY_OVER_TIME: plot_memory}
    for name, draw in drawn.items():
        if (folder / name).exists():
            files += draw(folder / name, folder)
    return [str(path) for path in files]
