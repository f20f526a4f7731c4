"""`netsim plot`: redraw the plots of results, or of a trace, from their files alone."""

from pathlib import Path
from typing import Annotated

import typer

from netsim.cli.traces import LOAD, ROWS
from netsim.errors import InputError
from netsim.plots import plot_links, plot_results, plot_timeline
from netsim.results.folder import RESULTS


def command(
    files: Annotated[
        list[Path],
        typer.Argument(help="results.csv files (drawn together), or folders.", metavar="RESULTS…"),
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder for the plots.", metavar="DIR")
    ] = None,
) -> None:
    """Redraw plots from RESULTS."""
    results, traces, loads = _sorted(files)
    folder = output or (files[0] if files[0].is_dir() else files[0].parent)
    written = plot_results(results, folder) if results else []
    for trace, place in _places(traces, folder):
        written += plot_timeline(trace, place)
    for load, place in _places(loads, folder):
        written += plot_links(load, place)
    for path in written:
        typer.echo(f"wrote {path}", err=True)


def _places(files: list[Path], folder: Path) -> list[tuple[Path, Path]]:
    """Where the pictures of each file go: of several, each has a folder of its own."""
    if len(files) < 2:
        return [(file, folder) for file in files]
    taken: dict[str, int] = {}
    places = []
    for file in files:
        name = file.resolve().parent.name
        taken[name] = taken.get(name, 0) + 1
        places.append((file, folder / (name if taken[name] == 1 else f"{name}-{taken[name]}")))
    return places


def _sorted(files: list[Path]) -> tuple[list[Path], list[Path], list[Path]]:
    """Results, traces and link loads among the files named and in the folders named."""
    found: dict[str, list[Path]] = {RESULTS: [], ROWS: [], LOAD: []}
    for file in files:
        if file.is_dir():
            inside = [file / name for name in found if (file / name).is_file()]
            if not inside:
                raise InputError(f"{file}: holds no {RESULTS}, {ROWS} or {LOAD}")
            for path in inside:
                found[path.name].append(path)
        else:
            found[file.name if file.name in (ROWS, LOAD) else RESULTS].append(file)
    return found[RESULTS], found[ROWS], found[LOAD]
