"""Drawings of topologies: hosts from inside, fabrics in tiers, graphs as grids and circles."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from netsim.plots.style import FORMATS, drawing, save
from netsim.plots.topology.compose import cluster_picture
from netsim.plots.topology.draw import figure_of
from netsim.plots.topology.graphs import graph_picture
from netsim.plots.topology.use import read_use
from netsim.topology.cluster import Cluster
from netsim.topology.graph import Topology

__all__ = ["plot_topology"]


def plot_topology(
    name: str,
    what: Topology | Cluster,
    stem: Path,
    *,
    result: Path | None = None,
    run: str = "",
    formats: Sequence[str] = FORMATS,
) -> list[Path]:
    """Draw a cluster or a graph of GPUs; coloured by utilisation given a folder of results
    (and what ran, in words)."""
    topology = what.topology if isinstance(what, Cluster) else what
    used = None if result is None else read_use(result, topology)
    if isinstance(what, Cluster):
        picture = cluster_picture(name, what, used)
    else:
        picture = graph_picture(name, what, used)
    if result is not None:
        ours = f"{picture.subtitle}; " if picture.subtitle else ""
        picture = replace(picture, subtitle=f"{ours}utilisation from {run or result.as_posix()}")
    stem.parent.mkdir(parents=True, exist_ok=True)
    with drawing():
        return save(figure_of(picture), stem, formats)
