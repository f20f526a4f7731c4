"""What `explain` prints and writes, of an operation or of a step: the same values in every form."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import typer

from netsim.errors import InputError
from netsim.files import write_text


def print_values(found: Mapping[str, Any], form: str, table: str, lines: Iterable[str]) -> None:
    """The values as JSON, as CSV (`table`) or as text (`lines`)."""
    if form == "json":
        typer.echo(json.dumps(found, indent=1))
    elif form == "csv":
        typer.echo(table, nl=False)
    else:
        for line in lines:
            typer.echo(line)


def write_values(found: Mapping[str, Any], table: str, folder: Path) -> list[Path]:
    """explain.json and explain.csv in a folder, which is made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made: {error.strerror}") from None
    return [
        write_text(folder / "explain.json", json.dumps(found)),
        write_text(folder / "explain.csv", table),
    ]
