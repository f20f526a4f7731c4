"""`netsim topo plot`: a topology as a drawing in layers, plain or coloured by utilisation."""

from pathlib import Path
from typing import Annotated

import typer

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
from netsim.cli.topo.subject import Subject, find_subject
from netsim.errors import InputError
from netsim.plots.topology import plot_topology

FOLDER = Path("reports") / "topologies"


def plot(
    name: Name,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Folder for the drawing.", metavar="DIR"),
    ] = None,
    result: Annotated[
        Path | None,
        typer.Option("--result", help="Results of a run: colours by utilisation.", metavar="DIR"),
    ] = None,
    nodes: Nodes = None,
    fabric: FabricKind = None,
    nic: Nic = None,
    nics_per_node: NicsPerNode = None,
    gpus_per_node: GpusPerNode = None,
    gpu: GpuModel = None,
    settings: Settings = None,
) -> None:
    """Draw NAME as SVG and PNG: fabric, NICs, PCIe, CPUs, GPUs and NVSwitches in rows."""
    given = (nodes, fabric, nic, nics_per_node, gpus_per_node, gpu, tuple(settings or ()))
    subject = find_subject(name, Options(*given))
    for note in subject.notes:
        typer.echo(note, err=True)
    for path in _drawn(subject, output or FOLDER, result):
        typer.echo(f"wrote {path.as_posix()}", err=True)


def _drawn(subject: Subject, folder: Path, result: Path | None) -> list[Path]:
    if result is not None and not result.exists():
        raise InputError(f"{result}: no such folder", hint="expected the results of netsim run")
    what = subject.cluster or subject.topology
    try:
        return plot_topology(subject.name, what, folder / subject.name, result=result)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}") from None
