"""`netsim report`: a folder of results as one HTML file that opens offline."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from netsim.answers import prepare_any
from netsim.errors import InputError, NetsimError
from netsim.explained import explained_run
from netsim.plots.lines import read_all
from netsim.plots.sweeps import at_largest
from netsim.plots.topology import plot_topology
from netsim.prepared import Prepared
from netsim.report import Extra, write_report
from netsim.report.build import PICTURES
from netsim.results.folder import RESULTS
from netsim.results.merged import read_manifest
from netsim.scenario.cells import Cell, expand_all
from netsim.scenario.settings import with_settings
from netsim.topology.build import build_cluster
from netsim.trace import write_links
from netsim.yamlio.source import parse_source

MOST_ROWS = 1_000_000  # rows simulated again to confirm sensitivities: a report should be quick
LARGEST = 200_000  # rows of an operation that is explained
COSTS = "costs.csv"


def command(
    folder: Annotated[Path, typer.Argument(help="Results of netsim run.", metavar="DIR")],
    explain: Annotated[
        bool, typer.Option(help="Simulate the base line and the best cell again, to explain them.")
    ] = True,
) -> None:
    """Write DIR/report.html: the answer, plots, explanations and all cells."""
    typer.echo(f"wrote {make_report(folder, explain=explain)}", err=True)


def write(cells: Sequence[Cell], folder: Path, engine: str) -> list[str]:
    """Write the report of a run that asks for it."""
    del cells, engine
    return [str(make_report(folder))]


def make_report(folder: Path, *, explain: bool = True) -> Path:
    """Write the report of a folder of results."""
    manifest = read_manifest(folder)
    if "points" not in manifest:
        raise InputError(f"{folder}: was written by an older netsim", hint="run it again")
    if not (folder / RESULTS).is_file():
        raise InputError(f"{folder}: holds no {RESULTS}", hint="run it again, or with --resume")
    table = read_all([folder / RESULTS])
    costs = folder / COSTS
    extra = _explained(folder, manifest, table) if explain else Extra({})
    if costs.is_file():
        extra = Extra(extra.explanations, extra.topology, pd.read_csv(costs))
    return write_report(folder, manifest, table, extra)


def _explained(folder: Path, manifest: Mapping[str, Any], table: pd.DataFrame) -> Extra:
    """Explanations of the base line and the best cell, and the drawing of its topology."""
    good = table[table["status"].isin(["", "ok"])]
    rows = at_largest(good).dropna(subset=["time"]) if len(good) else good
    if rows.empty:
        return Extra({})
    wanted = _wanted(manifest, rows)
    found: dict[str, Any] = {}
    topology = None
    try:
        cells = {label: prepare_any(_cell(manifest, str(row["cell"])))
                 for label, row in wanted.items()}  # fmt: skip
        known = {label: cell for label, cell in cells.items() if isinstance(cell, Prepared)}
        size = _explained_size([*known.values()], _sizes(good, wanted)) if known else 0
        for label, prepared in known.items():
            found[label] = _one(prepared, size, folder, label)
            topology = folder / PICTURES / "topology.svg"
    except NetsimError as error:  # the files of its machines may have gone
        typer.echo(f"not explained: {error}", err=True)
    return Extra(found, topology if topology is not None and topology.exists() else None)


def _wanted(manifest: Mapping[str, Any], rows: pd.DataFrame) -> dict[str, Any]:
    """The rows that are explained: of the best cell, and of the base line or else the slowest."""
    order = rows.sort_values("time", kind="stable")
    best, other, label = order.iloc[0], order.iloc[-1], "slowest"
    if manifest.get("base"):
        base = rows
        for axis, value in manifest["base"].items():
            base = base[base[f"axis:{axis}"].astype(str) == str(value)]
        other, label = (base.iloc[0] if len(base) else best), "base line"
    return {"best": best} if other["cell"] == best["cell"] else {label: other, "best": best}


def _sizes(good: pd.DataFrame, wanted: Mapping[str, Any]) -> list[int]:
    """The sizes that all of some cells have, up to that of the pictures."""
    known = [
        set(good[good["cell"] == row["cell"]]["size_bytes"].dropna().astype(int))
        for row in wanted.values()
    ]
    largest = max(row["size_bytes"] for row in wanted.values())
    return sorted(size for size in set.intersection(*known) if size <= largest)


def _explained_size(prepared: Sequence[Prepared], sizes: Sequence[int]) -> int:
    """The largest size whose operation is short enough to be explained soon, in all cells."""
    for size in reversed(sizes):
        calls = [cell.looped(size) for cell in prepared]
        if max(call.rows(call.loops) for call in calls) <= LARGEST:
            return size
    raise InputError(
        f"every size has more than {LARGEST:,} rows, the most that a report explains",
        hint="netsim explain takes the scenario with --set for one cell, however large",
    )


def _one(prepared: Prepared, size: int, folder: Path, label: str) -> dict[str, Any]:
    """The explanation of one cell; of the best one, the topology is drawn."""
    most = MOST_ROWS if label == "best" else 0
    found, program, timeline = explained_run(prepared, size, most_rows=most)
    if label == "best":
        config = prepared.cell.scenario.cluster
        what = prepared.topology if config.graph is not None else build_cluster(config)
        place = folder / PICTURES
        place.mkdir(exist_ok=True)
        write_links(place / "links.csv", program, timeline)
        plot_topology(prepared.topology.name, what, place / "topology", result=place,
                      run=found["title"])  # fmt: skip
    return found


def _cell(manifest: Mapping[str, Any], wanted: str) -> Cell:
    """A cell of the run, from the scenario as it was."""
    source = parse_source(str(manifest["text"]), str(manifest["file"]))
    source = with_settings(source, manifest.get("settings", []))
    for cell in expand_all(source).cells:
        if cell.id == wanted:
            return cell
    raise InputError("its machine or topology files have changed since the run")
