"""`netsim topo import` and `netsim topo export`: files of other programs in and out."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from netsim.cli.topo.columns import plural
from netsim.cli.topo.foreign import FORMATS, foreign
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
from netsim.files import write_text
from netsim.topology.importers.infragraph_write import write_infragraph
from netsim.topology.importers.node_link import write_node_link
from netsim.topology.load import FOLDER
from netsim.topology.machine import Machine
from netsim.topology.nccl_view import node_system
from netsim.topology.nccl_xml import write_system
from netsim.topology.write import machine_yaml
from netsim.topology.write_graph import graph_yaml

Output = Annotated[
    Path | None, typer.Option("-o", "--output", help="File to write.", metavar="FILE")
]


def import_file(
    file: Annotated[
        Path,
        typer.Argument(
            help="NCCL XML, nvidia-smi topo -m, node-link JSON, ASTRA-sim network, InfraGraph.",
            metavar="FILE",
        ),
    ],
    gpu: GpuModel = None,
    nic: Nic = None,
    output: Output = None,
) -> None:
    """Turn FILE into a machine (or, if it is a network, a scenario) that other verbs use."""
    found = foreign(file, gpu=gpu, nic=nic)
    target = _target(output or Path(FOLDER) / f"{file.stem}.yaml", file, told=output is not None)
    for note in found.notes:
        typer.echo(note, err=True)
    origin = f"# Imported from {file.name} ({FORMATS[found.form]}).\n"
    if isinstance(found.content, Machine):
        text, size = machine_yaml(found.content), plural(found.content.gpu.count, "GPU")
        what, use = f"a machine with {size}", f"machine: {_called(target)}"
    else:
        text, size = graph_yaml(found.content, target.stem), plural(len(found.content), "GPU")
        what, use = f"a scenario with a graph of {size}", f"netsim run {target.as_posix()}"
    _write(target, origin + text)
    typer.echo(f"wrote {target.as_posix()}: {what}; use it as {use}")


def _target(path: Path, source: Path, *, told: bool) -> Path:
    """Where to write; what is there already is kept unless the user named the file."""
    if path.suffix not in (".yaml", ".yml"):
        raise InputError(f"{path}: expected a file that ends in .yaml")
    if path.exists() and (not told or path.samefile(source)):
        raise InputError(f"{path}: exists already", hint="name another file with -o")
    return path


def _called(path: Path) -> str:
    """The name by which a scenario finds a machine file."""
    return path.stem if path.parent == Path(FOLDER) else path.as_posix()


def export_file(
    name: Name,
    form: Annotated[
        Literal["nccl", "json", "infragraph"],
        typer.Option("--format", help="NCCL topology XML, networkx node-link JSON, InfraGraph."),
    ],
    output: Output = None,
    nodes: Nodes = None,
    fabric: FabricKind = None,
    nic: Nic = None,
    nics_per_node: NicsPerNode = None,
    gpus_per_node: GpusPerNode = None,
    gpu: GpuModel = None,
    settings: Settings = None,
) -> None:
    """Write NAME as a file of another program, to standard output unless -o names one."""
    given = (nodes, fabric, nic, nics_per_node, gpus_per_node, gpu, tuple(settings or ()))
    subject = find_subject(name, Options(*given))
    for note in subject.notes:
        typer.echo(note, err=True)
    text = _exported(subject, form)
    if output is None:
        sys.stdout.write(text)
        return
    _write(output, text)
    typer.echo(f"wrote {output.as_posix()}", err=True)


def _exported(subject: Subject, form: str) -> str:
    if form == "json":
        return write_node_link(subject.topology)
    if form == "infragraph":
        return write_infragraph(subject.topology)
    if subject.cluster is None:
        raise InputError(f"{subject.name}: a graph without hosts; NCCL XML describes a host")
    if subject.hosts > 1 and len(set(subject.cluster.domain.tolist())) > 1:
        raise InputError(
            f"{subject.name}: {subject.hosts} hosts; NCCL XML describes one, so leave --nodes out"
        )
    return write_system(node_system(subject.cluster, 0))


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None
