"""The question of verbs that take a scenario, or a topology and a collective as `expect` does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from netsim.answers import AnyPrepared, prepare_any
from netsim.cli.expect_question import Given, asked
from netsim.errors import InputError
from netsim.runs import find_scenario, load_source, notes_of
from netsim.scenario.cells import Cell, expand
from netsim.simulate import prepare

Text = str | None
Subject = Annotated[
    str, typer.Argument(help="A scenario; or a machine or topology.", metavar="SCENARIO|TOPOLOGY")
]
CollectiveArgument = Annotated[
    Text, typer.Argument(help="With a topology: all_reduce, alltoall, …", metavar="[COLLECTIVE]")
]
Nodes = Annotated[int | None, typer.Option(help="Hosts.", metavar="N")]
GpusPerNode = Annotated[int | None, typer.Option(help="GPUs of a host in use.", metavar="G")]
Fabric = Annotated[Text, typer.Option(help="What joins the hosts.", metavar="K")]
Nic = Annotated[Text, typer.Option(help="Line rate of the NICs.", metavar="400Gbps")]
NicsPerNode = Annotated[int | None, typer.Option(help="NICs of a host in use.", metavar="K")]
Transport = Annotated[Text, typer.Option(help="infiniband, roce, efa, …", metavar="T")]
Algo = Annotated[Text, typer.Option(help="Force an algorithm.", metavar="A")]
Proto = Annotated[Text, typer.Option(help="Force LL, LL128 or Simple.", metavar="P")]
Dtype = Annotated[Text, typer.Option(help="As nccl-tests' -d.", metavar="D")]
LaunchStyle = Annotated[
    Text, typer.Option(help="process_per_gpu, single_process, cuda_graph.", metavar="L")
]
NcclVersion = Annotated[Text, typer.Option(help="NCCL's version, as 2.27.", metavar="V")]
Env = Annotated[list[str] | None, typer.Option(help="An NCCL variable.", metavar="NAME=VALUE")]


@dataclass(frozen=True)
class Options:
    """What was given beside the subject."""

    flags: Mapping[str, Any]
    fabric: Text = None
    transport: Text = None
    env: Sequence[str] = ()
    settings: Sequence[str] = ()


def questioned(
    subject: str, collective: Text, size: Text, options: Options, usual: str
) -> tuple[AnyPrepared, list[str]]:
    """The cell that is asked about, and what the user should know about how it was read."""
    if collective is not None:
        given = Given(
            dict(options.flags), size or usual, options.fabric, options.transport,
            tuple(options.env), False, tuple(options.settings),
        )  # fmt: skip
        question = asked(subject, collective, given)
        return prepare(expand(question.source)[0]), list(question.notes)
    cell, notes = cell_of(subject, options)
    return prepare_any(cell), notes


def cell_of(subject: str, options: Options) -> tuple[Cell, list[str]]:
    """The first cell of a scenario; options of topologies are refused."""
    named = [name for name, value in options.flags.items() if value is not None]
    named += ["fabric"] * (options.fabric is not None)
    named += ["transport"] * (options.transport is not None) + ["env"] * bool(options.env)
    if named:
        flag = "--" + named[0].replace("_", "-")
        raise InputError(
            f"{flag}: goes with TOPOLOGY COLLECTIVE, not with a scenario",
            hint="use --set KEY=VALUE, or name a collective",
        )
    found = find_scenario(subject)
    cells = expand(load_source(found.path, options.settings))
    notes = [note for note in (found.note, *notes_of(cells)) if note]
    if len(cells) > 1:
        notes.append(f"the first of {len(cells)} cells: {_where(cells[0])} (--set chooses another)")
    return cells[0], notes


def _where(cell: Cell) -> str:
    return ", ".join(f"{axis}={value}" for axis, value in cell.axes.items())
