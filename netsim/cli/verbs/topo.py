"""The options of `netsim topo`, a group of six commands."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from netsim.cli import options
from netsim.cli.options import CLUSTER, OUTPUT, argument, flag, option

Name = Annotated[
    str,
    argument(
        "NAME",
        "A machine, a scenario, or a file: of one of these, NCCL XML, nvidia-smi topo -m, "
        "rocm-smi --showtopo, amd-smi topology, node-link JSON, ASTRA-sim network.",
    ),
]
FabricKind = Annotated[
    str | None,
    option("--fabric", metavar="KIND", text="What joins the hosts, as leaf-spine.", panel=CLUSTER),
]
ClusterSettings = Annotated[
    list[str] | None,
    option(
        "--set",
        metavar="KEY=VALUE",
        text="Replace one value, as cluster.fabric.oversubscription=2.",
        panel=CLUSTER,
    ),
]
OutputFile = Annotated[
    Path | None,
    option("-o", "--output", metavar="FILE", text="File to write.", panel=OUTPUT),
]


def list_machines() -> Callable[[], None]:
    """List the machines that come with netsim and those in ./topologies."""
    from netsim.cli import listing

    return listing.list_machines


def show(
    name: Name,
    nodes: options.Nodes = None,
    fabric: FabricKind = None,
    nic: options.Nic = None,
    nics_per_node: options.NicsPerNode = None,
    gpus_per_node: options.GpusPerNode = None,
    gpu: options.Gpu = None,
    settings: ClusterSettings = None,
    routes: Annotated[
        bool, flag("--routes", text="Also count flows and collisions on links.", panel=OUTPUT)
    ] = False,
    sources: Annotated[
        bool, flag("--sources", text="Say where every figure is from.", panel=OUTPUT)
    ] = False,
) -> Callable[[], None]:
    """Show NAME: figures, tiers of switches, and path types as NCCL and nvidia-smi name them."""
    from netsim.cli.topo import show_topology
    from netsim.cli.topo_subject import TopologyOptions

    cluster = TopologyOptions(
        nodes=nodes,
        fabric=fabric,
        nic=nic,
        nics_per_node=nics_per_node,
        gpus_per_node=gpus_per_node,
        gpu=gpu,
        settings=settings,
    )
    return partial(show_topology, name, cluster, routes=routes, sources=sources)


def plot(
    name: Name,
    nodes: options.Nodes = None,
    fabric: FabricKind = None,
    nic: options.Nic = None,
    nics_per_node: options.NicsPerNode = None,
    gpus_per_node: options.GpusPerNode = None,
    gpu: options.Gpu = None,
    settings: ClusterSettings = None,
    output: Annotated[
        Path | None,
        option("-o", "--output", metavar="DIR", text="Folder for the drawing.", panel=OUTPUT),
    ] = None,
    result: Annotated[
        Path | None,
        option(
            "--result",
            metavar="DIR",
            text="Results of a run: colors by utilization.",
            panel=OUTPUT,
        ),
    ] = None,
    routes: Annotated[
        bool, flag("--routes", text="Also draw the loads of links by routing.", panel=OUTPUT)
    ] = False,
) -> Callable[[], None]:
    """Draw NAME as SVG and PNG: fabric, NICs, PCIe, CPUs, GPUs and NVSwitches in rows."""
    from netsim.cli.topo import draw_topology
    from netsim.cli.topo_subject import TopologyOptions

    cluster = TopologyOptions(
        nodes=nodes,
        fabric=fabric,
        nic=nic,
        nics_per_node=nics_per_node,
        gpus_per_node=gpus_per_node,
        gpu=gpu,
        settings=settings,
    )
    return partial(draw_topology, name, cluster, output=output, result=result, routes=routes)


def lint(
    name: Name,
    nodes: options.Nodes = None,
    fabric: FabricKind = None,
    nic: options.Nic = None,
    nics_per_node: options.NicsPerNode = None,
    gpus_per_node: options.GpusPerNode = None,
    gpu: options.Gpu = None,
    settings: ClusterSettings = None,
) -> Callable[[], None]:
    """Look for mistakes in NAME: far or missing NICs, narrow slots, oversubscription and more.

    The exit code is 1 if any is found."""
    from netsim.cli.topo import lint_subject
    from netsim.cli.topo_subject import TopologyOptions

    cluster = TopologyOptions(
        nodes=nodes,
        fabric=fabric,
        nic=nic,
        nics_per_node=nics_per_node,
        gpus_per_node=gpus_per_node,
        gpu=gpu,
        settings=settings,
    )
    return partial(lint_subject, name, cluster)


def import_file(
    file: Annotated[
        Path,
        argument(
            "FILE",
            "NCCL XML, nvidia-smi topo -m, rocm-smi --showtopo, amd-smi topology, node-link JSON, "
            "ASTRA-sim network, InfraGraph.",
        ),
    ],
    gpu: options.Gpu = None,
    nic: options.Nic = None,
    nics: options.Nics = None,
    output: OutputFile = None,
) -> Callable[[], None]:
    """Turn FILE into a machine (of a network: a scenario), and look for mistakes in it."""
    from netsim.cli import topo

    return partial(topo.import_file, file, gpu=gpu, nic=nic, nics=nics, output=output)


def export_file(
    name: Name,
    form: Annotated[
        Literal["nccl", "json", "infragraph", "custom"],
        option(
            "--format",
            metavar=None,
            text="NCCL topology XML, networkx node-link JSON, InfraGraph; custom: a cluster whose "
            "fabric is listed cable by cable.",
            panel=OUTPUT,
        ),
    ],
    nodes: options.Nodes = None,
    fabric: FabricKind = None,
    nic: options.Nic = None,
    nics_per_node: options.NicsPerNode = None,
    gpus_per_node: options.GpusPerNode = None,
    gpu: options.Gpu = None,
    settings: ClusterSettings = None,
    output: OutputFile = None,
) -> Callable[[], None]:
    """Write NAME as a file of another program, to standard output unless -o names one."""
    from netsim.cli import topo
    from netsim.cli.topo_subject import TopologyOptions

    cluster = TopologyOptions(
        nodes=nodes,
        fabric=fabric,
        nic=nic,
        nics_per_node=nics_per_node,
        gpus_per_node=gpus_per_node,
        gpu=gpu,
        settings=settings,
    )
    return partial(topo.export_file, name, form, cluster, output)


COMMANDS: dict[str, Callable[..., Callable[[], None]]] = {
    "list": list_machines,
    "show": show,
    "plot": plot,
    "lint": lint,
    "import": import_file,
    "export": export_file,
}
