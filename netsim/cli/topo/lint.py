"""`netsim topo lint`: mistakes that nobody makes on purpose, each with what it costs."""

import typer

from netsim.cli.topo.columns import columns, plural
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
)
from netsim.cli.topo.subject import find_subject
from netsim.topology.lint import lint_cluster, lint_topology


def lint(
    name: Name,
    nodes: Nodes = None,
    fabric: FabricKind = None,
    nic: Nic = None,
    nics_per_node: NicsPerNode = None,
    gpus_per_node: GpusPerNode = None,
    gpu: GpuModel = None,
    settings: Settings = None,
) -> None:
    """Look for mistakes in NAME: far or missing NICs, narrow slots, oversubscription and more.

    The exit code is 1 if any is found.
    """
    given = (nodes, fabric, nic, nics_per_node, gpus_per_node, gpu, tuple(settings or ()))
    subject = find_subject(name, Options(*given))
    for note in subject.notes:
        typer.echo(note, err=True)
    cluster = subject.cluster
    found = lint_topology(subject.topology) if cluster is None else lint_cluster(cluster)
    for line in columns([(one.place, one.rule, one.message) for one in found]) if found else []:
        typer.echo(line)
    what = f"{plural(max(1, subject.hosts), 'host')}, {plural(len(subject.topology), 'GPU')}"
    if not found:
        typer.echo(f"{subject.name}: nothing found ({what})")
        return
    typer.echo(f"{subject.name}: {plural(len(found), 'finding')} ({what})", err=True)
    raise typer.Exit(1)
