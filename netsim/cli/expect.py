"""`netsim expect`: the table that nccl-tests would print, with what NCCL chooses for each size."""

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Annotated, Literal

import typer

from netsim.cli import expect_text, tables
from netsim.cli.expect_notes import assumptions, roundings
from netsim.cli.expect_question import Given, asked, one_size
from netsim.errors import InputError, NetsimError
from netsim.expect.choice import cost_table
from netsim.expect.why import channel_lines, cost_lines, search_lines
from netsim.results import Row, csv_text
from netsim.runs import checked_cells
from netsim.simulate import Prepared, prepare, question_row, simulate_size

Format = Literal["table", "nccl-tests", "csv", "json"]
Engine = Literal["auto", "simpy", "compiled"]
Text = str | None

MANY_SIZES = 6  # from which the start-up of the compiled engine pays, whatever their rows


def command(
    topology: Annotated[str, typer.Argument(help="A machine, a topology file, or NCCL's XML.")],
    collective: Annotated[str, typer.Argument(help="all_reduce, all_gather, alltoall, …")],
    nodes: Annotated[int | None, typer.Option(help="Hosts.", metavar="N")] = None,
    gpus_per_node: Annotated[
        int | None, typer.Option(help="GPUs of a host in use.", metavar="G")
    ] = None,
    sizes: Annotated[
        str, typer.Option(help="FROM:TO:FACTOR, or a list such as 8,1M.", metavar="SIZES")
    ] = "8:8G:2",
    fabric: Annotated[Text, typer.Option(help="What joins the hosts.", metavar="K")] = None,
    nic: Annotated[Text, typer.Option(help="Line rate of the NICs.", metavar="400Gbps")] = None,
    nics_per_node: Annotated[
        int | None, typer.Option(help="NICs of a host in use.", metavar="K")
    ] = None,
    transport: Annotated[
        Text, typer.Option(help="infiniband, roce, efa, tcp, …", metavar="T")
    ] = None,
    algo: Annotated[
        Text, typer.Option(help="Force one of NCCL's algorithms, or a textbook one.", metavar="A")
    ] = None,
    proto: Annotated[Text, typer.Option(help="Force LL, LL128 or Simple.", metavar="P")] = None,
    dtype: Annotated[Text, typer.Option(help="As nccl-tests' -d.", metavar="D")] = None,
    launch: Annotated[
        Text, typer.Option(help="process_per_gpu, single_process or cuda_graph.", metavar="L")
    ] = None,
    nccl: Annotated[Text, typer.Option(help="NCCL's version, as 2.27.", metavar="V")] = None,
    env: Annotated[
        list[str] | None, typer.Option(help="An NCCL variable.", metavar="NAME=VALUE")
    ] = None,
    nccl_env: Annotated[
        bool, typer.Option("--nccl-env", help="Take NCCL's variables of this process.")
    ] = False,
    why: Annotated[
        Text, typer.Option(help="Show what NCCL compares for one size.", metavar="SIZE")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Replace one value of the scenario.", metavar="KEY=VALUE"),
    ] = None,
    engine: Annotated[Engine, typer.Option(help="Engine; the answer is the same.")] = "auto",
    form: Annotated[Format, typer.Option("--format", help="What to print.")] = "table",
) -> None:
    """Print what nccl-tests would print for COLLECTIVE on TOPOLOGY."""
    flags = {
        "nodes": nodes, "gpus_per_node": gpus_per_node, "nic": nic, "nics_per_node": nics_per_node,
        "algo": algo, "proto": proto, "dtype": dtype, "launch": launch, "nccl": nccl,
    }  # fmt: skip
    variables = tuple(env or ())
    given = Given(flags, sizes, fabric, transport, variables, nccl_env, tuple(settings or ()))
    question = asked(topology, collective, given)
    prepared = prepare(checked_cells(question.source)[0])
    for note in (*question.notes, *assumptions(prepared, given)):
        typer.echo(note, err=True)
    if why is not None:
        _explain(prepared, one_size(why, "--why"))
        return
    _table(prepared, form, engine)


def _table(prepared: Prepared, form: Format, engine: Engine) -> None:
    """All sizes; those that cannot be simulated say why and do not stop the rest."""
    asked_for = prepared.cell.scenario.workload.size_list()
    for note in roundings(prepared, asked_for):
        typer.echo(note, err=True)
    plain, root = form == "nccl-tests", prepared.cell.scenario.workload.root
    if form in ("table", "nccl-tests"):
        typer.echo(tables.header(plain=True) if plain else expect_text.header())
    rows = []
    for row in _rows(prepared, asked_for, engine):
        rows.append(row)
        if form in ("table", "nccl-tests"):
            text = tables.line(row, plain=True, root=root) if plain else expect_text.line(row)
            typer.echo(text)
    if form == "csv":
        typer.echo(csv_text(rows), nl=False)
    elif form == "json":
        typer.echo(json.dumps([asdict(row) for row in rows], indent=1))
    else:
        typer.echo(tables.footer(rows))


def _rows(prepared: Prepared, sizes: list[int], engine: Engine) -> Iterator[Row]:
    if engine == "auto" and len(sizes) >= MANY_SIZES:
        engine = "compiled"
    for size in sizes:
        try:
            yield simulate_size(prepared, size, engine=engine)[0]
        except NetsimError as error:
            yield replace(question_row(prepared, size), status="error", error=str(error))


def _explain(prepared: Prepared, size: int) -> None:
    """What NCCL compares for one size, its channels and searches."""
    plan = prepared.planned(size)
    if plan is None:
        algorithm = prepared.cell.scenario.workload.algorithm
        raise InputError(f"--why: {algorithm} is a textbook algorithm, which nobody chose")
    job, collective = prepared.jobs[0], prepared.collective(size)
    work = prepared.cell.scenario.workload
    typer.echo(
        f"{collective.name} of {collective.size_bytes} B on {collective.ranks} ranks, "
        f"{job.comm.n_nodes} node{'s' * (job.comm.n_nodes > 1)}: {plan.algorithm} {plan.protocol}, "
        f"{plan.n_channels} of {job.comm.n_channels} channels\n"
    )
    for line in (
        *cost_lines(cost_table(job, collective, work.dtype), plan),
        "",
        *search_lines(job),
        "",
        *channel_lines(job),
    ):
        typer.echo(line)
