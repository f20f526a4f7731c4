"""The options of `netsim localize`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

from netsim.cli import options
from netsim.cli.options import CLUSTER, OUTPUT, argument, option


def command(
    logs: Annotated[
        list[Path],
        argument("LOG…", "Logs of nccl-tests, matrices of pairs, step times of ranks (CSV, JSON)."),
    ],
    nodes: options.Nodes = None,
    gpus_per_node: options.GpusPerNode = None,
    fabric: options.Fabric = None,
    nic: options.Nic = None,
    nics_per_node: options.NicsPerNode = None,
    transport: options.Transport = None,
    launch: options.Launch = None,
    host: options.Host = None,
    nccl: options.Nccl = None,
    env: options.Environment = None,
    settings: options.Settings = None,
    topology: Annotated[
        str | None,
        option(
            "--topology",
            metavar="T",
            text="The machine of the nodes, or a scenario with the cluster.",
        ),
    ] = None,
    hosts: Annotated[
        Path | None,
        option(
            "--hosts",
            metavar="FILE",
            text="The hosts in the order of the nodes, one a line (default: by their names).",
            panel=CLUSTER,
        ),
    ] = None,
    collective: Annotated[
        str | None,
        option(
            "--collective",
            metavar="C",
            text="The collective of logs and matrices that do not name it.",
        ),
    ] = None,
    size: Annotated[
        str | None,
        option(
            "--size",
            metavar="S",
            text="The size that a matrix of pairs was timed at, such as 1G.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        option("-o", "--output", metavar="DIR", text="Write JSON and a picture.", panel=OUTPUT),
    ] = None,
    json_file: Annotated[
        Path | None,
        option(
            "--json", metavar="FILE", text="Write the suspects and the next test.", panel=OUTPUT
        ),
    ] = None,
) -> Callable[[], None]:
    """Print which part makes LOG… slow: suspects with their probabilities, and the next test."""
    from netsim.cli.localize import localize_faults
    from netsim.cli.questions import QuestionOptions

    question = QuestionOptions(
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        fabric=fabric,
        nic=nic,
        nics_per_node=nics_per_node,
        transport=transport,
        launch=launch,
        host=host,
        nccl=nccl,
        env=env,
        settings=settings,
    )
    return partial(
        localize_faults,
        logs,
        question,
        topology=topology,
        hosts=hosts,
        collective=collective,
        size=size,
        output=output,
        json_file=json_file,
    )
