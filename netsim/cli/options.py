"""The options that several verbs have: one alias for the type, flags, help and panel of each.

A verb lists the aliases in the signature of its function (`netsim/cli/verbs/`), with defaults. This
module imports only typer, so that `--help` answers at once.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

# The panels of `--help`. Options without one of these are shown in typer's panel "Options".
CLUSTER = "Cluster"
NCCL = "NCCL"
SIMULATION = "Simulation"
PROCESSES = "Processes"
OUTPUT = "Output"

Format = Literal["table", "nccl-tests", "csv", "json"]
Engine = Literal["auto", "simpy", "compiled"]
GateFormat = Literal["nccl-tests", "aicr", "cre", "junit"]  # netsim/results/gates.py says whose
BaselineName = Literal["nccl-model", "alpha-beta"]


def argument(metavar: str | None, text: str) -> Any:
    """Declare an argument: `metavar` is its name in the usage line, `text` its help."""
    return typer.Argument(metavar=metavar, help=text)


def option(
    *flags: str, metavar: str | None, text: str, panel: str | None = None, least: int | None = None
) -> Any:
    """Declare an option that takes a value, with its help `text`.

    Args:
        metavar: how the value is shown in the help; None shows its type or choices
        panel: the panel of the help that it stands in
        least: smaller numbers are refused
    """
    return typer.Option(*flags, metavar=metavar, help=text, rich_help_panel=panel, min=least)


def flag(*flags: str, text: str, panel: str | None = None) -> Any:
    """Declare an option that takes no value, with its help `text`."""
    return typer.Option(*flags, metavar="", help=text, rich_help_panel=panel)


# Options of the cluster.

Nodes = Annotated[int | None, option("--nodes", metavar="N", text="Hosts.", panel=CLUSTER)]
GpusPerNode = Annotated[
    int | None,
    option("--gpus-per-node", metavar="G", text="GPUs of a host in use.", panel=CLUSTER),
]
Fabric = Annotated[
    str | None, option("--fabric", metavar="K", text="What joins the hosts.", panel=CLUSTER)
]
Nic = Annotated[
    str | None, option("--nic", metavar="400Gbps", text="Line rate of the NICs.", panel=CLUSTER)
]
NicsPerNode = Annotated[
    int | None,
    option("--nics-per-node", metavar="K", text="NICs of a host in use.", panel=CLUSTER),
]
Gpu = Annotated[
    str | None,
    option(
        "--gpu",
        metavar="MODEL",
        text="GPU model, for files that do not name one, as H100.",
        panel=CLUSTER,
    ),
]
Nics = Annotated[
    str | None,
    option(
        "--nics",
        metavar="NAMES",
        text="NICs of nvidia-smi to take, as mlx5_0,mlx5_3, or all (default: those below a GPU's "
        "PCIe switch).",
        panel=CLUSTER,
    ),
]
Transport = Annotated[
    str | None,
    option("--transport", metavar="T", text="infiniband, roce, efa, tcp, …", panel=CLUSTER),
]
Settings = Annotated[
    list[str] | None,
    option("--set", metavar="KEY=VALUE", text="Replace one value, as a.b=c.", panel=CLUSTER),
]

# Options of NCCL and of the collective.

Algorithm = Annotated[
    str | None,
    option(
        "--algo",
        metavar="A",
        text="Force one of NCCL's algorithms, or a textbook one.",
        panel=NCCL,
    ),
]
Protocol = Annotated[
    str | None, option("--proto", metavar="P", text="Force LL, LL128 or Simple.", panel=NCCL)
]
DataType = Annotated[
    str | None, option("--dtype", metavar="D", text="As nccl-tests' -d.", panel=NCCL)
]
Launch = Annotated[
    str | None,
    option(
        "--launch",
        metavar="L",
        text="process_per_gpu, single_process, cuda_graph or unknown.",
        panel=NCCL,
    ),
]
Host = Annotated[
    str | None,
    option(
        "--host",
        metavar="H",
        text="What a launch takes: bare-metal, container, azure-vm or a time such as 7us.",
        panel=NCCL,
    ),
]
Nccl = Annotated[
    str | None,
    option(
        "--nccl",
        metavar="V",
        text="NCCL's version, as 2.27; A,B compares two (expect, diff).",
        panel=NCCL,
    ),
]
Tuner = Annotated[
    str | None,
    option(
        "--tuner",
        metavar="FILE",
        text="A tuner table whose lines replace NCCL's choice.",
        panel=NCCL,
    ),
]
Graph = Annotated[
    str | None,
    option("--graph", metavar="FILE", text="NCCL's graph XML: the channels to run.", panel=NCCL),
]
Environment = Annotated[
    list[str] | None,
    option("--env", metavar="NAME=VALUE", text="An NCCL variable.", panel=NCCL),
]
ProcessEnvironment = Annotated[
    bool, flag("--nccl-env", text="Take NCCL's variables of this process.", panel=NCCL)
]
LogCollective = Annotated[
    str | None,
    option(
        "--collective",
        metavar="C",
        text="The collective of logs that do not name it.",
        panel=NCCL,
    ),
]

# Options of the simulation.

EngineOption = Annotated[
    Engine,
    option("--engine", metavar=None, text="Engine; the answer is the same.", panel=SIMULATION),
]
# None if the option is not given: a verb can then tell that it was given beside a scenario, and
# refuse it.
ExactIfGiven = Annotated[
    bool | None,
    flag("--exact", text="Leave nothing out; refuse what is too large for that.", panel=SIMULATION),
]
Noise = Annotated[
    str | None,
    option(
        "--noise",
        metavar="PRESET",
        text="Also percentiles with noise: quiet or production.",
        panel=SIMULATION,
    ),
]
Samples = Annotated[
    int | None, option("--samples", metavar="N", text="Of noise, 100.", panel=SIMULATION)
]
SkipInvalid = Annotated[
    bool, flag("--skip-invalid", text="Leave out cells that cannot be built.", panel=SIMULATION)
]

# Options of netsim's own worker processes: how many, how much memory, and where; and of resuming.

Jobs = Annotated[
    int | None,
    option("--jobs", "-j", metavar="N", text="Processes of this machine.", panel=PROCESSES),
]
JobsOrAllCores = Annotated[
    int | None,
    option(
        "--jobs",
        metavar="N",
        text="Processes (default: one a core).",
        panel=PROCESSES,
        least=1,
    ),
]
Memory = Annotated[
    str | None,
    option(
        "--memory",
        metavar="8GB",
        text="What all processes may have together.",
        panel=PROCESSES,
    ),
]
Dask = Annotated[
    str | None,
    option(
        "--dask",
        metavar="ADDRESS",
        text="A Dask scheduler (tcp://…), or slurm.",
        panel=PROCESSES,
    ),
]
Resume = Annotated[bool, flag("--resume", text="Keep what is finished.", panel=PROCESSES)]

# Options of output.

FormatOption = Annotated[
    Format, option("--format", metavar=None, text="What to print.", panel=OUTPUT)
]
TableFormat = Annotated[
    Literal["table", "csv", "json"],
    option("--format", metavar=None, text="What to print.", panel=OUTPUT),
]
Wide = Annotated[
    bool,
    flag("--wide", text="Print all columns, however narrow the terminal is.", panel=OUTPUT),
]
Verbose = Annotated[
    bool,
    flag("-v", "--verbose", text="Say by which methods each time was found.", panel=OUTPUT),
]
Quiet = Annotated[bool, flag("-q", "--quiet", text="Print results only.", panel=OUTPUT)]
ResultsFolder = Annotated[
    Path | None,
    option("-o", "--output", metavar="DIR", text="Folder for results.", panel=OUTPUT),
]

# Arguments (without a flag).

Scenario = Annotated[str, argument("SCENARIO", "A scenario file, or the name of a preset.")]
