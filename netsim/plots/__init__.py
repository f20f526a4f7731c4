"""Pictures of results and traces, drawn from their CSV files alone."""

from collections.abc import Sequence
from pathlib import Path

from netsim.plots.breakdown import plot_breakdown
from netsim.plots.calls import plot_calls
from netsim.plots.explained_step import plot_explained_step
from netsim.plots.explanation import plot_explanation
from netsim.plots.links import plot_links
from netsim.plots.memory import plot_memory
from netsim.plots.results import plot_results
from netsim.plots.states import plot_states
from netsim.plots.steps import plot_step
from netsim.plots.style import FORMATS
from netsim.plots.timeline import plot_timeline


def plot_trace(
    folder: Path, out_dir: Path | None = None, formats: Sequence[str] = FORMATS
) -> list[Path]:
    """Draw the timeline and the links of a folder with trace.csv and links_over_time.csv, or what
    it has of these; into the folder itself unless another is given.
    """
    drawn: list[Path] = []
    for name, plot in (("trace.csv", plot_timeline), ("links_over_time.csv", plot_links)):
        if (folder / name).exists():
            drawn += plot(folder / name, out_dir or folder, formats)
    return drawn


__all__ = [
    "FORMATS",
    "plot_breakdown",
    "plot_calls",
    "plot_explained_step",
    "plot_explanation",
    "plot_links",
    "plot_memory",
    "plot_results",
    "plot_states",
    "plot_step",
    "plot_timeline",
    "plot_trace",
]
