"""The options that all verbs about a topology share: how many hosts, joined by what."""

from typing import Annotated

import typer

from netsim.values import dataclass

Name = Annotated[
    str,
    typer.Argument(
        help="A machine, a scenario, or a file: of one of these, NCCL XML, nvidia-smi topo -m, "
        "node-link JSON, ASTRA-sim network.",
        metavar="NAME",
    ),
]
Nodes = Annotated[int | None, typer.Option("--nodes", help="Hosts.", metavar="N")]
FabricKind = Annotated[
    str | None, typer.Option("--fabric", help="What joins them, as leaf-spine.", metavar="KIND")
]
Nic = Annotated[str | None, typer.Option("--nic", help="Line rate of the NICs.", metavar="400Gbps")]
NicsPerNode = Annotated[
    int | None, typer.Option("--nics-per-node", help="NICs of a host in use.", metavar="K")
]
GpusPerNode = Annotated[
    int | None, typer.Option("--gpus-per-node", help="GPUs of a host in use.", metavar="G")
]
GpuModel = Annotated[
    str | None,
    typer.Option("--gpu", help="GPU model, for files that do not tell, as H100.", metavar="MODEL"),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Replace one value, as cluster.fabric.oversubscription=2.",
        metavar="KEY=VALUE",
    ),
]

Sources = Annotated[bool, typer.Option("--sources", help="Say where every figure is from.")]


@dataclass(frozen=True)
class Options:
    """What was given on the command line; None where nothing was."""

    nodes: int | None = None
    fabric: str | None = None
    nic: str | None = None
    nics_per_node: int | None = None
    gpus_per_node: int | None = None
    gpu: str | None = None
    settings: tuple[str, ...] = ()

    @property
    def of_cluster(self) -> dict[str, tuple[str, object]]:
        """Keys of the cluster section that are set, each with its flag and value."""
        return {
            key: (f"--{key.replace('_', '-')} {value}", value)
            for key in ("nodes", "nic", "nics_per_node", "gpus_per_node")
            if (value := getattr(self, key)) is not None
        }
