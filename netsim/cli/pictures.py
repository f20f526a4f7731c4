"""The pictures of a run, drawn from the files that it wrote."""

from collections.abc import Sequence
from pathlib import Path

from netsim.cli.traces import LOAD, ROWS, TRACE
from netsim.plots import (
    plot_breakdown,
    plot_links,
    plot_memory,
    plot_results,
    plot_step,
    plot_timeline,
)
from netsim.results.folder import BREAKDOWN, RESULTS
from netsim.scenario.cells import Cell
from netsim.scenario.clusters import line_rate
from netsim.scenario.models import Workload
from netsim.training import memory_time


def write(cells: Sequence[Cell], folder: Path, engine: str) -> list[str]:
    """Draw results, and timeline and links where there is a trace."""
    del engine
    rates = {line_rate(cell.scenario.cluster) for cell in cells}
    rate = rates.pop() if len(rates) == 1 else None
    files = plot_results([folder / RESULTS], folder, line_rate=rate)
    if (folder / BREAKDOWN).exists():
        files += plot_breakdown(folder / BREAKDOWN, folder)
    is_step = not isinstance(cells[0].scenario.workload, Workload)
    if is_step and (folder / TRACE).exists():
        files += plot_step(folder / TRACE, folder)
    if is_step and (folder / memory_time.MEMORY_OVER_TIME).exists():
        files += plot_memory(folder / memory_time.MEMORY_OVER_TIME, folder)
    if (folder / ROWS).exists():
        files += plot_timeline(folder / ROWS, folder)
        files += plot_links(folder / LOAD, folder)
    return [str(path) for path in files]
