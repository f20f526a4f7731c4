"""The options of `netsim diff`."""

from collections.abc import Callable
from functools import partial
from typing import Annotated

from netsim.cli import options
from netsim.cli.options import argument, option


def command(
    a: Annotated[
        str, argument("A", "Results or a scenario (each with #CELL), a topology, or a log.")
    ],
    b: Annotated[str, argument("B", "What A is compared with.")],
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
    dtype: options.DataType = None,
    launch: options.Launch = None,
    host: options.Host = None,
    nccl: options.Nccl = None,
    exact: options.ExactIfGiven = None,
    env: options.Environment = None,
    settings: options.Settings = None,
    collective: Annotated[
        str | None,
        option(
            "--collective",
            metavar="C",
            text="The collective that topologies are timed with (default: that of the other side).",
        ),
    ] = None,
    sizes: Annotated[
        str | None,
        option(
            "--sizes",
            metavar="SIZES",
            text="The sizes that topologies are timed with (default: those of the other side).",
        ),
    ] = None,
) -> Callable[[], None]:
    """Print by size which of A and B is faster, where that changes, and what differs there.

    Options of clusters and of NCCL are for topologies."""
    from netsim.cli.diff import compare_sides
    from netsim.cli.questions import QuestionOptions

    question = QuestionOptions(
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        sizes=sizes or "",
        fabric=fabric,
        nic=nic,
        nics_per_node=nics_per_node,
        gpu=gpu,
        nics=nics,
        transport=transport,
        algo=algo,
        proto=proto,
        dtype=dtype,
        launch=launch,
        host=host,
        nccl=nccl,
        exact=exact,
        env=env,
        settings=settings,
    )
    return partial(compare_sides, a, b, question, collective)
