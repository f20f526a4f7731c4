"""`netsim expect --graph-out`: the channels of a node as NCCL's graph XML."""

from pathlib import Path

import typer

from netsim.errors import InputError
from netsim.files import write_text
from netsim.nccl.graph_xml import write_graphs
from netsim.simulate import Prepared


def write_graph(prepared: Prepared, path: Path) -> None:
    """Write the graphs of the node with rank 0, as NCCL_GRAPH_DUMP_FILE does."""
    if not prepared.jobs:
        algorithm = prepared.cell.scenario.collective.algorithm
        raise InputError(f"--graph-out: {algorithm} is a textbook algorithm without channels")
    nodes = prepared.jobs[0].nodes
    write_text(path, write_graphs(nodes[0].view))
    kinds = len({id(node.view) for node in nodes})
    more = f" of the node with rank 0; there are {kinds} kinds of node" if kinds > 1 else ""
    typer.echo(f"wrote {path}{more} (NCCL_GRAPH_FILE)", err=True)
