"""`netsim expect --acceptance`: the least that a healthy machine should reach, size by size."""

from collections.abc import Sequence

import typer

from netsim.cli.expect_table import Engine, simulated
from netsim.errors import InputError, NetsimError
from netsim.results import Row
from netsim.results.acceptance import acceptance_csv, min_bandwidth
from netsim.simulate import Prepared
from netsim.units import UnitError, parse_ratio


def part_of(text: str) -> float:
    """The part that must be reached, from `90%` or `0.9`."""
    try:
        part = parse_ratio(text)
    except UnitError as error:
        raise InputError(f"--acceptance {text}: {error}") from None
    if part > 1:
        near = f"did you mean {text}%?" if part <= 100 and "%" not in text else ""
        raise InputError(f"--acceptance {text}: expected at most 100%", hint=near)
    return part


def print_acceptance(
    prepared: Prepared, part: float, engine: Engine, failures: list[NetsimError]
) -> None:
    """The table on standard output; the one number that nccl-tests takes beside it."""
    rows = list(simulated(prepared, engine, failures))
    _tell_failures(rows)
    typer.echo(acceptance_csv(rows, part, prepared.cell.scenario.collective.root), nl=False)
    typer.echo(
        f"NCCL_TESTS_MIN_BW={min_bandwidth(rows, part):.4g} asks nccl-tests for {part:.4g} of the "
        "expected average over these sizes",
        err=True,
    )


def _tell_failures(rows: Sequence[Row]) -> None:
    for row in rows:
        if row.status != "ok":
            typer.echo(f"left out: {row.size_bytes} B: {row.error}", err=True)
