"""`netsim check`: validate scenario and topology files without running them."""

from pathlib import Path
from typing import Annotated

import typer

from netsim.cli.files import check_file
from netsim.errors import NetsimError

Files = Annotated[list[Path], typer.Argument(help="Scenario or topology files.", metavar="FILE…")]


def command(files: Files) -> None:
    """Check every file; print what is wrong with each, or that it is fine."""
    failed = False
    for file in files:
        try:
            typer.echo(f"{file}: {check_file(file)}")
        except NetsimError as error:
            failed = True
            typer.echo(str(error), err=True)
    if failed:
        raise typer.Exit(2)
