"""`netsim topo show`: what a machine, a cluster or a graph has and gives, and its path types."""

from collections.abc import Iterator
from typing import Annotated

import numpy as np
import typer

from netsim.cli.topo.cluster_text import cluster_lines
from netsim.cli.topo.columns import columns, labelled, plural
from netsim.cli.topo.machine_text import LEGEND, device_matrix, figures, path_matrix
from netsim.cli.topo.options import (
    FabricKind,
    GpuModel,
    GpusPerNode,
    Name,
    Nic,
    NicsPerNode,
    Nodes,
    Options,
    Settings,
    Sources,
)
from netsim.cli.topo.route_text import route_lines
from netsim.cli.topo.sources_text import source_lines, source_summary
from netsim.cli.topo.subject import Subject, find_subject
from netsim.errors import InputError
from netsim.topology.cluster import Cluster
from netsim.topology.graph_figures import graph_figures
from netsim.topology.host import Host
from netsim.topology.layout import NODE_KINDS
from netsim.units import format_bandwidth, format_time

MOST_CLASSES = 4  # kinds of hosts that are shown from inside


def show(
    name: Name,
    nodes: Nodes = None,
    fabric: FabricKind = None,
    nic: Nic = None,
    nics_per_node: NicsPerNode = None,
    gpus_per_node: GpusPerNode = None,
    gpu: GpuModel = None,
    routes: Annotated[
        bool, typer.Option("--routes", help="Also count flows and collisions on links.")
    ] = False,
    settings: Settings = None,
    sources: Sources = False,
) -> None:
    """Show NAME: figures, tiers of switches, and path types as NCCL and nvidia-smi name them."""
    given = (nodes, fabric, nic, nics_per_node, gpus_per_node, gpu, tuple(settings or ()))
    subject = find_subject(name, Options(*given))
    for note in subject.notes:
        typer.echo(note, err=True)
    if routes and (subject.cluster is None or subject.cluster.fabric is None):
        raise InputError(f"--routes: {subject.name} has no fabric", hint="add --nodes 2 or more")
    for line in source_lines(subject) if sources else _lines(subject):
        typer.echo(line)
    if routes and subject.cluster is not None:
        for line in route_lines(subject.cluster):
            typer.echo(line)


def _lines(subject: Subject) -> Iterator[str]:
    cluster = subject.cluster
    if cluster is None:
        yield from _graph_lines(subject)
        return
    if subject.hosts > 1:
        yield from cluster_lines(subject.name, cluster)
    for number, host in enumerate(cluster.hosts[:MOST_CLASSES]):
        if subject.hosts > 1:
            yield f"\nInside {_which(cluster, number)}: {host.machine.description}"
        else:
            yield f"{subject.name}: {host.machine.description}"
        yield from _host_lines(host)
    if len(cluster.hosts) > MOST_CLASSES:
        yield f"\n… and {plural(len(cluster.hosts) - MOST_CLASSES, 'more kind')} of hosts"


def _which(cluster: Cluster, number: int) -> str:
    """The hosts of a class."""
    members = np.flatnonzero(cluster.host_class == number)
    first, count = int(members[0]), len(members)
    if count == len(cluster.host_class):
        return "every host"
    return f"node{first}" if count == 1 else f"node{first} and {count - 1} more"


def _host_lines(host: Host) -> Iterator[str]:
    yield from labelled([*figures(host.machine), ("sources", source_summary(host.machine))])
    yield "\nPaths of GPUs as NCCL names them, and the NICs that each GPU uses:"
    yield from columns(path_matrix(host))
    yield from ("", *LEGEND)
    yield "\nDevices as nvidia-smi topo -m shows them:"
    yield from columns(device_matrix(host))


def _graph_lines(subject: Subject) -> Iterator[str]:
    """A graph has GPUs, perhaps switches, and links; nothing is known of hosts."""
    topology = subject.topology
    found = graph_figures(topology)
    kinds = np.bincount(topology.node_kinds, minlength=len(NODE_KINDS)).tolist()
    others = [f"{n} {kind}" for kind, n in zip(NODE_KINDS, kinds, strict=True) if n][1:]
    rates = sorted({float(rate) for rate in topology.links.bandwidth}, reverse=True)
    shown = ", ".join(format_bandwidth(rate) for rate in rates[:4]) + ", …" * (len(rates) > 4)
    low, high = float(found.out.min()), float(found.out.max())
    span = "" if high - low <= 1e-9 * high else f"{format_bandwidth(low)} to "
    yield f"{subject.name}: a graph of {plural(len(topology), 'GPU')}"
    yield from labelled(
        [
            ("other nodes", ", ".join(others)),
            ("links", f"{len(topology.links)}, one direction each: {shown}"),
            ("out of a GPU", f"{span}{format_bandwidth(high)}"),
            ("bisection", f"{format_bandwidth(found.bisection)} from the first half of the GPUs"),
            ("diameter", _diameter(found.diameter, found.latency)),
        ]
    )


def _diameter(hops: int, latency: float) -> str:
    if hops < 0:
        return "none: not every GPU reaches every other"
    return f"{plural(hops, 'link')}, {format_time(latency)}"
