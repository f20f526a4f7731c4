"""`netsim explain`: why something takes as long as it does, or (`--state`) how it works."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from netsim.cli.arguments import Settings
from netsim.cli.explain_output import print_values, write_values
from netsim.cli.explain_state import show_states
from netsim.cli.explain_step import explain_step
from netsim.cli.explain_text import explain_csv, explain_lines
from netsim.cli.questions import (
    Algo,
    CollectiveArgument,
    Dtype,
    Env,
    Fabric,
    GpusPerNode,
    LaunchStyle,
    NcclVersion,
    Nic,
    NicsPerNode,
    Nodes,
    Options,
    Proto,
    Subject,
    Transport,
    questioned,
)  # fmt: skip
from netsim.errors import InputError
from netsim.explained import explained, explained_title
from netsim.plots import plot_explanation
from netsim.training.prepare import PreparedStep
from netsim.units import UnitError, parse_cli_size

USUAL_SIZE = "64M"


def command(
    subject: Subject,
    collective: CollectiveArgument = None,
    state: Annotated[
        bool, typer.Option("--state", help="Show what every rank holds after every step.")
    ] = False,
    size: Annotated[
        str | None, typer.Option(help="Size of the operation, such as 1M.", metavar="S")
    ] = None,
    nodes: Nodes = None,
    gpus_per_node: GpusPerNode = None,
    fabric: Fabric = None,
    nic: Nic = None,
    nics_per_node: NicsPerNode = None,
    transport: Transport = None,
    algo: Algo = None,
    proto: Proto = None,
    dtype: Dtype = None,
    launch: LaunchStyle = None,
    nccl: NcclVersion = None,
    env: Env = None,
    settings: Settings = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder for files and pictures.",
                                  metavar="DIR")
    ] = None,
    form: Annotated[
        Literal["table", "csv", "json"], typer.Option("--format", help="What to print.")
    ] = "table",
    engine: Annotated[
        Literal["auto", "simpy", "compiled"], typer.Option(help="Engine; the answer is the same.")
    ] = "auto",
) -> None:  # fmt: skip
    """Explain the time of SCENARIO (a training step as well), or of a collective on a topology."""
    flags = {
        "nodes": nodes, "gpus_per_node": gpus_per_node, "nic": nic, "nics_per_node": nics_per_node,
        "algo": algo, "proto": proto, "dtype": dtype, "launch": launch, "nccl": nccl,
    }  # fmt: skip
    options = Options(flags, fabric, transport, env or (), settings or ())
    nbytes = None if size is None else _size(size)
    prepared, notes = questioned(subject, collective, size, options, USUAL_SIZE)
    for note in notes:
        typer.echo(note, err=True)
    if isinstance(prepared, PreparedStep):
        _refuse_for_steps(size=size, state=state)
        explain_step(prepared, form, output, engine)
        return
    if state:
        show_states(prepared, nbytes, output)
        return
    chosen = nbytes or max(prepared.cell.scenario.collective.size_list())
    found = explained(prepared, chosen, engine=engine)
    title = explained_title(prepared, chosen)
    _print(found, title, form)
    if output is not None:
        for path in _write(found, title, output):
            typer.echo(f"wrote {path}", err=True)


def _refuse_for_steps(*, size: str | None, state: bool) -> None:
    for name, given in (("--size", size is not None), ("--state", state)):
        if given:
            raise InputError(f"{name}: goes with a collective, not with a training step")


def _print(found: dict[str, Any], title: str, form: str) -> None:
    print_values(found, form, explain_csv(found), explain_lines(found, title))


def _write(found: dict[str, Any], title: str, folder: Path) -> list[Path]:
    files = write_values(found, explain_csv(found), folder)
    return [*files, *plot_explanation(found, folder, title=title)]


def _size(text: str) -> int:
    try:
        return parse_cli_size(text)
    except UnitError as error:
        raise InputError(f"--size {text}: {error}") from None
