"""`netsim merge`: the results of the parts of a sweep, put together."""

from pathlib import Path
from typing import Annotated

import typer

from netsim.errors import InputError
from netsim.results import open_folder
from netsim.results.merged import merge_into, read_manifest, rows_in_order


def command(
    parts: Annotated[
        list[Path], typer.Argument(help="Folders that run --shard i/n wrote.", metavar="DIR…")
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder for the whole.", metavar="DIR")
    ] = None,
) -> None:
    """Put together the results of the parts of a sweep."""
    manifest = {**read_manifest(parts[0]), "shard": None}
    scenario = str(manifest.pop("scenario"))
    folder = output or Path("reports") / scenario
    if any(part.resolve() == folder.resolve() for part in parts):
        raise InputError(f"{folder}: is one of the parts", hint="choose another with -o")
    whole = {**manifest, "scenario": scenario}
    with open_folder(folder, scenario, resume=False, about=manifest) as results:
        merge_into(results, parts, whole)
        rows = rows_in_order(results.finished, whole)
        path = results.write_results(rows, whole["axes"])
    failed = sum(row.status != "ok" for row in rows)
    note = f", {failed} of them failed" if failed else ""
    typer.echo(f"{path}: {len(rows)} rows of {len(parts)} parts{note}")
