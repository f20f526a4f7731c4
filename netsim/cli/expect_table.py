"""The rows of `netsim expect`: simulated size by size, printed in the format asked for."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Literal

import typer

from netsim.cli import expect_text, nccl_tests, tables
from netsim.errors import NetsimError
from netsim.results import Row, csv_text
from netsim.results.nccl_tests import closing, line, opening
from netsim.simulate import Prepared, question_row, row_of_size

Format = Literal["table", "nccl-tests", "csv", "json"]
Engine = Literal["auto", "simpy", "compiled"]

MANY_SIZES = 6  # from which the start-up of the compiled engine pays, whatever their rows


def print_table(
    prepared: Prepared, form: Format, engine: Engine, failures: list[NetsimError]
) -> list[Row]:
    """All sizes; those that cannot be simulated say why and do not stop the rest."""
    found = simulated(prepared, engine, failures)
    if form == "csv":
        rows = list(found)
        typer.echo(csv_text(rows), nl=False)
    elif form == "json":
        rows = list(found)
        typer.echo(json.dumps([asdict(row) for row in rows], indent=1))
    elif form == "nccl-tests":
        run = nccl_tests.run_of(prepared)
        rows = _printed(found, opening(run), lambda row: line(row, run.root))
        typer.echo(closing(run, rows))
    else:
        rows = _printed(found, expect_text.header(), expect_text.line)
        typer.echo(tables.footer(rows))
    return rows


def simulated(prepared: Prepared, engine: Engine, failures: list[NetsimError]) -> Iterator[Row]:
    """The row of every size, as it is done; what went wrong is added to `failures`."""
    sizes = prepared.cell.scenario.collective.size_list()
    if engine == "auto" and len(sizes) >= MANY_SIZES:
        engine = "compiled"
    for size in sizes:
        try:
            yield row_of_size(prepared, size, engine=engine)
        except NetsimError as error:
            failures.append(error)
            yield replace(question_row(prepared, size), status="error", error=str(error))


def _printed(found: Iterator[Row], title: str, text: Callable[[Row], str]) -> list[Row]:
    typer.echo(title)
    rows = []
    for row in found:
        rows.append(row)
        typer.echo(text(row))
    return rows
