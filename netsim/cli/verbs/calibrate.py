"""The options of `netsim calibrate`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

from netsim.cli import options
from netsim.cli.options import OUTPUT, argument, option


def command(
    logs: Annotated[list[Path], argument("LOG…", "Logs, JSON or CSV.")],
    topology: Annotated[
        str, option("--topology", metavar="T", text="The machine, or its topology file.")
    ],
    nodes: options.Nodes = None,
    gpus_per_node: options.GpusPerNode = None,
    fabric: options.Fabric = None,
    nic: options.Nic = None,
    nics_per_node: options.NicsPerNode = None,
    gpu: options.Gpu = None,
    nics: options.Nics = None,
    transport: options.Transport = None,
    launch: options.Launch = None,
    host: options.Host = None,
    nccl: options.Nccl = None,
    exact: options.ExactIfGiven = None,
    env: options.Environment = None,
    settings: options.Settings = None,
    output: Annotated[
        Path | None,
        option("-o", "--output", metavar="FILE", text="Write a topology file.", panel=OUTPUT),
    ] = None,
    collective: options.LogCollective = None,
    memory: options.Memory = None,
    jobs: options.JobsOrAllCores = None,
) -> Callable[[], None]:
    """Fit launch, latencies and rates of TOPOLOGY to LOG…, and write them as a topology file."""
    from netsim.cli.calibrate import calibrate_machine
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
        launch=launch,
        host=host,
        nccl=nccl,
        exact=exact,
        env=env,
        settings=settings,
    )
    return partial(
        calibrate_machine,
        logs,
        topology,
        question,
        output=output,
        collective=collective,
        memory=memory,
        jobs=jobs,
    )
