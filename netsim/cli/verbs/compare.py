"""The options of `netsim compare`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

from netsim.cli import options
from netsim.cli.options import OUTPUT, argument, flag, option


def command(
    logs: Annotated[
        list[Path], argument("LOG…", "Logs, JSON or CSV; traces of PyTorch's profiler.")
    ],
    nodes: options.Nodes = None,
    gpus_per_node: options.GpusPerNode = None,
    fabric: options.Fabric = None,
    nic: options.Nic = None,
    nics_per_node: options.NicsPerNode = None,
    gpu: options.Gpu = None,
    nics: options.Nics = None,
    transport: options.Transport = None,
    algo: options.Algorithm = None,
    proto: options.Protocol = None,
    launch: options.Launch = None,
    host: options.Host = None,
    nccl: options.Nccl = None,
    exact: options.ExactIfGiven = None,
    env: options.Environment = None,
    settings: options.Settings = None,
    topology: Annotated[
        str | None,
        option(
            "--topology",
            metavar=None,
            text="A machine, or a topology file (default: as the log says).",
        ),
    ] = None,
    scenario: Annotated[
        str | None, option("--scenario", metavar="S", text="A scenario instead.")
    ] = None,
    tolerance: Annotated[
        str,
        option("--tolerance", metavar="15%", text="Largest median error that passes."),
    ] = "15%",
    gate: Annotated[
        str | None,
        option(
            "--gate",
            metavar="95%",
            text="Judge by the bandwidth that a healthy machine reaches with at least this "
            "probability, instead of --tolerance.",
        ),
    ] = None,
    against: Annotated[
        list[Path] | None,
        option(
            "--against",
            metavar="BEFORE",
            text="Logs, or a folder of logs, from before a change: what is slower or faster since?",
        ),
    ] = None,
    collective: options.LogCollective = None,
    output: Annotated[
        Path | None,
        option("-o", "--output", metavar="DIR", text="Write CSV, JSON and pictures.", panel=OUTPUT),
    ] = None,
    json_file: Annotated[
        Path | None,
        option("--json", metavar="FILE", text="Write the comparison.", panel=OUTPUT),
    ] = None,
    junit: Annotated[
        Path | None,
        option(
            "--junit",
            metavar="FILE",
            text="Write the verdict of every size band as JUnit XML.",
            panel=OUTPUT,
        ),
    ] = None,
    explain: Annotated[
        bool, flag("--explain", text="Try causes even where the fit is good.")
    ] = False,
) -> Callable[[], None]:
    """Print measured times of LOG… (or traces) beside simulated ones, and the error by size."""
    from netsim.cli.compare import CompareOptions, compare_logs_and_traces
    from netsim.cli.questions import QuestionOptions

    question = QuestionOptions(
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        fabric=fabric,
        nic=nic,
        nics_per_node=nics_per_node,
        gpu=gpu,
        nics=nics,
        transport=transport,
        algo=algo,
        proto=proto,
        launch=launch,
        host=host,
        nccl=nccl,
        exact=exact,
        env=env,
        settings=settings,
    )
    compare_options = CompareOptions(
        topology=topology,
        scenario=scenario,
        tolerance=tolerance,
        gate=gate,
        against=against,
        collective=collective,
        output=output,
        json_file=json_file,
        junit=junit,
        explain=explain,
    )
    return partial(compare_logs_and_traces, logs, question, compare_options)
