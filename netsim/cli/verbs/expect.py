"""The options of `netsim expect`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

from netsim.cli import options
from netsim.cli.options import NCCL, OUTPUT, argument, option


def command(
    topology: Annotated[str, argument(None, "A machine, a topology file, or NCCL's XML.")],
    collective: Annotated[
        str,
        argument(
            "COLLECTIVE[,…]",
            "all_reduce, all_gather, alltoall, …; several, separated by commas, make one table.",
        ),
    ],
    nodes: options.Nodes = None,
    gpus_per_node: options.GpusPerNode = None,
    sizes: Annotated[
        str,
        option("--sizes", metavar="SIZES", text="FROM:TO:FACTOR, or a list such as 8,1M."),
    ] = "8:8G:2",
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
    tuner: options.Tuner = None,
    graph: options.Graph = None,
    exact: options.ExactIfGiven = None,
    noise: options.Noise = None,
    samples: options.Samples = None,
    env: options.Environment = None,
    nccl_env: options.ProcessEnvironment = False,
    settings: options.Settings = None,
    why: Annotated[
        str | None,
        option(
            "--why",
            metavar="SIZE",
            text="Show what NCCL compares for one size, of one collective.",
            panel=NCCL,
        ),
    ] = None,
    acceptance: Annotated[
        str | None,
        option(
            "--acceptance",
            metavar="90%",
            text="Write the least bandwidth by size that a healthy machine should pass (one "
            "collective).",
            panel=OUTPUT,
        ),
    ] = None,
    gate: Annotated[
        str | None,
        option(
            "--gate",
            metavar="95%",
            text="Write by group of nodes and size the bus bandwidth that a healthy machine "
            "reaches with at least this probability.",
            panel=OUTPUT,
        ),
    ] = None,
    gate_format: Annotated[
        options.GateFormat | None,
        option(
            "--gate-format",
            metavar=None,
            text="What reads the gate: nccl-tests (CSV), aicr (YAML), Cluster Readiness Engine "
            "(YAML), JUnit XML.",
            panel=OUTPUT,
        ),
    ] = None,
    gate_out: Annotated[
        Path | None,
        option(
            "--gate-out",
            metavar="FILE",
            text="Where the gate is written; the suffix .csv or .xml tells the format.",
            panel=OUTPUT,
        ),
    ] = None,
    tuner_out: Annotated[
        Path | None,
        option(
            "--tuner-out",
            metavar="FILE",
            text="Write a tuner table of what is fastest simulated (one collective).",
            panel=OUTPUT,
        ),
    ] = None,
    graph_out: Annotated[
        Path | None,
        option(
            "--graph-out",
            metavar="FILE",
            text="Write the channels as NCCL's graph XML (one collective).",
            panel=OUTPUT,
        ),
    ] = None,
    engine: options.EngineOption = "auto",
    form: options.FormatOption = "table",
    json_file: Annotated[
        Path | None,
        option(
            "-J",
            metavar="FILE",
            text="Write the JSON of nccl-tests' -J as well (one collective).",
            panel=OUTPUT,
        ),
    ] = None,
    wide: options.Wide = False,
    verbose: options.Verbose = False,
    quiet: options.Quiet = False,
) -> Callable[[], None]:
    """Print what nccl-tests would print for COLLECTIVE on TOPOLOGY."""
    from netsim.cli.expect import Answers, print_expected
    from netsim.cli.questions import QuestionOptions

    question = QuestionOptions(
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        sizes=sizes,
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
        tuner=tuner,
        graph=graph,
        exact=exact,
        noise=noise,
        samples=samples,
        env=env,
        nccl_env=nccl_env,
        settings=settings,
    )
    answers = Answers(
        why=why,
        acceptance=acceptance,
        gate=gate,
        gate_format=gate_format,
        gate_out=gate_out,
        tuner_out=tuner_out,
        graph_out=graph_out,
        json_file=json_file,
        form=form,
        wide=wide,
        quiet=quiet,
    )
    return partial(print_expected, topology, collective, question, answers, engine, verbose=verbose)
