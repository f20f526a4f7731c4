"""`netsim expect`: the table that nccl-tests would print, with what NCCL chooses for each size."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from netsim.cli import expect_graph, expect_tuner, expect_why, nccl_tests
from netsim.cli.expect_acceptance import part_of, print_acceptance
from netsim.cli.expect_notes import approximations, assumptions, roundings
from netsim.cli.expect_question import Given, asked, one_size
from netsim.cli.expect_sources import weak_figures
from netsim.cli.expect_table import Engine, Format, print_table
from netsim.errors import InputError, NetsimError
from netsim.runs import checked_cells
from netsim.simulate import Prepared, prepare

Text = str | None


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
    acceptance: Annotated[
        Text,
        typer.Option(
            help="Write the least bandwidth by size that a healthy machine should pass.",
            metavar="90%",
        ),
    ] = None,
    tuner: Annotated[
        Text, typer.Option(help="A tuner table whose lines replace NCCL's choice.", metavar="FILE")
    ] = None,
    tuner_out: Annotated[
        Path | None,
        typer.Option(help="Write a tuner table of what is fastest simulated.", metavar="FILE"),
    ] = None,
    graph: Annotated[
        Text, typer.Option(help="NCCL's graph XML: the channels to run.", metavar="FILE")
    ] = None,
    graph_out: Annotated[
        Path | None,
        typer.Option(help="Write the channels as NCCL's graph XML.", metavar="FILE"),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Replace one value of the scenario.", metavar="KEY=VALUE"),
    ] = None,
    engine: Annotated[Engine, typer.Option(help="Engine; the answer is the same.")] = "auto",
    form: Annotated[Format, typer.Option("--format", help="What to print.")] = "table",
    json_file: Annotated[
        Path | None,
        typer.Option("-J", help="Write the JSON of nccl-tests' -J as well.", metavar="FILE"),
    ] = None,
) -> None:
    """Print what nccl-tests would print for COLLECTIVE on TOPOLOGY."""
    flags = {
        "nodes": nodes, "gpus_per_node": gpus_per_node, "nic": nic, "nics_per_node": nics_per_node,
        "algo": algo, "proto": proto, "dtype": dtype, "launch": launch, "nccl": nccl,
        "tuner": tuner, "graph": graph,
    }  # fmt: skip
    variables = tuple(env or ())
    part = None if acceptance is None else part_of(acceptance)
    outputs = {"--tuner-out": tuner_out, "--graph-out": graph_out, "-J": json_file}
    _check_outputs({"--why": why, "--acceptance": acceptance, **outputs}, outputs)
    given = Given(flags, sizes, fabric, transport, variables, nccl_env, tuple(settings or ()))
    question = asked(topology, collective, given)
    prepared = prepare(checked_cells(question.source)[0])
    for note in (*question.notes, *assumptions(prepared, given)):
        typer.echo(note, err=True)
    if graph_out is not None:
        expect_graph.write_graph(prepared, graph_out)
        return
    if why is not None:
        expect_why.explain(prepared, one_size(why, "--why"), form)
        return
    for note in roundings(prepared, prepared.cell.scenario.collective.size_list()):
        typer.echo(note, err=True)
    if tuner_out is not None:
        expect_tuner.write_tuner(prepared, tuner_out, engine)
        return
    failures: list[NetsimError] = []
    if part is not None:
        print_acceptance(prepared, part, engine, failures)
    else:
        _table(prepared, form, engine, failures, json_file)
    if failures:
        raise failures[0]


def _table(
    prepared: Prepared,
    form: Format,
    engine: Engine,
    failures: list[NetsimError],
    json_file: Path | None,
) -> None:
    rows = print_table(prepared, form, engine, failures)
    for note in (*approximations(rows), *weak_figures(prepared, rows)):
        typer.echo(note, err=True)
    if json_file is not None:
        written = nccl_tests.write_json(json_file, nccl_tests.run_of(prepared), rows)
        typer.echo(f"wrote {written}", err=True)


def _check_outputs(asked_for: Mapping[str, object], files: Mapping[str, Path | None]) -> None:
    """One answer at a time, and a place for it, before anything is simulated."""
    several = [flag for flag, value in asked_for.items() if value is not None]
    if len(several) > 1:
        raise InputError(f"{' and '.join(several)} are different answers: give one of them")
    for flag, file in files.items():
        if file is not None and not file.absolute().parent.is_dir():
            raise InputError(f"{flag} {file}: there is no folder {file.parent}")
