"""`netsim explain --state`: step by step, which contributions every rank holds in every chunk."""

from pathlib import Path
from typing import Annotated

import typer

from netsim.cli.arguments import ScenarioName, Settings
from netsim.collectives import build
from netsim.collectives.state import States, render_text, states
from netsim.errors import InputError
from netsim.plots import plot_states
from netsim.runs import checked_cells, find_scenario, load_source
from netsim.scenario.names import DTYPES
from netsim.simulate import Prepared, prepare
from netsim.units import UnitError, parse_cli_size

MOST_RANKS = 64


def command(
    scenario: ScenarioName,
    state: Annotated[
        bool, typer.Option("--state", help="Show what every rank holds after every step.")
    ] = False,
    size: Annotated[
        str | None, typer.Option(help="Size of the operation, such as 1M.", metavar="S")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder for a picture.", metavar="DIR")
    ] = None,
    settings: Settings = None,
) -> None:
    """Show how the collective of SCENARIO works."""
    if not state:
        raise InputError("explain: expected --state", hint="other explanations are still to come")
    source = load_source(find_scenario(scenario).path, settings or [])
    prepared = prepare(checked_cells(source)[0])
    value = _states(prepared, size)
    typer.echo(render_text(value), nl=False)
    if output is not None:
        work = prepared.cell.scenario.workload
        title = f"{work.algorithm} {work.collective}, {len(prepared.groups[0])} ranks"
        labels = [chunk.label for chunk in value.chunks]
        for path in plot_states(value.states, labels, output / "state", title=title):
            typer.echo(f"wrote {path}", err=True)


def _states(prepared: Prepared, size: str | None) -> States:
    """What the ranks of one communicator hold, step by step."""
    work, ranks = prepared.cell.scenario.workload, len(prepared.groups[0])
    if ranks > MOST_RANKS:
        raise InputError(f"explain --state: at most {MOST_RANKS} ranks can be read, got {ranks}")
    # By default, a few elements in every chunk, whatever the algorithm divides the data into.
    nbytes = ranks * ranks * 16 * DTYPES[work.dtype]
    if size is not None:
        try:
            nbytes = parse_cli_size(size)
        except UnitError as error:
            raise InputError(f"--size: {error}") from None
    collective = prepared.collective(nbytes)
    return states(build(collective, work.algorithm, **prepared.parameters), collective)
