"""`netsim explain --state`: step by step, which contributions every rank holds in every chunk."""

from pathlib import Path

import typer

from netsim.collectives import ALGORITHMS, build
from netsim.collectives.state import States, render_text, states
from netsim.errors import InputError
from netsim.plots import plot_states
from netsim.scenario.names import DTYPES
from netsim.simulate import Prepared

MOST_RANKS = 64


def show_states(prepared: Prepared, size: int | None, output: Path | None) -> None:
    """Print what the ranks of one communicator hold, and draw it where a folder is given."""
    value = _states(prepared, size)
    typer.echo(render_text(value), nl=False)
    if output is not None:
        work = prepared.cell.scenario.collective
        title = f"{work.algorithm} {work.collective}, {len(prepared.groups[0])} ranks"
        labels = [chunk.label for chunk in value.chunks]
        for path in plot_states(value.states, labels, output / "state", title=title):
            typer.echo(f"wrote {path}", err=True)


def _states(prepared: Prepared, size: int | None) -> States:
    work, ranks = prepared.cell.scenario.collective, len(prepared.groups[0])
    if ranks > MOST_RANKS:
        raise InputError(f"explain --state: at most {MOST_RANKS} ranks can be read, got {ranks}")
    # By default, a few elements in every chunk, whatever the algorithm divides the data into.
    nbytes = size or ranks * ranks * 16 * DTYPES[work.dtype]
    collective = prepared.collective(nbytes)
    if prepared.jobs:
        known = ", ".join(ALGORITHMS[work.collective])
        raise InputError(
            "explain --state: shows textbook algorithms, not NCCL's own",
            hint=f"choose one with --set workload.algorithm=…: {known}",
        )
    return states(build(collective, work.algorithm, **prepared.parameters), collective)
