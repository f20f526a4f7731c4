"""The options of `netsim explain`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

from netsim.cli import options
from netsim.cli.options import OUTPUT, SIMULATION, argument, flag, option


def command(
    subject: Annotated[str, argument("SCENARIO|TOPOLOGY", "A scenario; or a machine or topology.")],
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
        str | None, argument("[COLLECTIVE]", "With a topology: all_reduce, alltoall, …")
    ] = None,
    state: Annotated[
        bool, flag("--state", text="Show what every rank holds after every step.", panel=OUTPUT)
    ] = False,
    paths: Annotated[
        bool,
        flag("--paths", text="Show how connections meet, and what would help.", panel=OUTPUT),
    ] = False,
    seeds: Annotated[
        int,
        option(
            "--seeds",
            metavar="N",
            text="Seeds of hashes to try with --paths.",
            panel=SIMULATION,
            least=1,
        ),
    ] = 10,
    size: Annotated[
        str | None,
        option("--size", metavar="S", text="Size of the operation, such as 1M."),
    ] = None,
    output: Annotated[
        Path | None,
        option(
            "-o", "--output", metavar="DIR", text="Folder for files and pictures.", panel=OUTPUT
        ),
    ] = None,
    form: options.TableFormat = "table",
    engine: options.EngineOption = "auto",
) -> Callable[[], None]:
    """Explain the time of SCENARIO (a training step as well), or of a collective on a topology."""
    from netsim.cli.explain import ExplainOptions, explain_subject
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
        dtype=dtype,
        launch=launch,
        host=host,
        nccl=nccl,
        exact=exact,
        env=env,
        settings=settings,
    )
    explain_options = ExplainOptions(
        state=state,
        paths=paths,
        seeds=seeds,
        size=size,
        output=output,
        form=form,
        engine=engine,
    )
    return partial(explain_subject, subject, collective, question, explain_options)
