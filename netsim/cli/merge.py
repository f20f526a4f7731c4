"""`netsim merge`: joins the results of the parts of a sweep (`netsim run --shard`) in
one folder.
"""

from pathlib import Path

import typer

from netsim.base.errors import InputError
from netsim.base.files import is_same_file
from netsim.cli.output import tell
from netsim.results.folder import merge_costs, merged_rows, open_folder, rows_in_order
from netsim.results.workspace import check_place, place_of_results, read_manifest

# Keys of a part's manifest that are not copied to the manifest of all parts.
OF_A_PART = ("shard", "scenario", "verb", "files", "added")


def merge_parts(parts: list[Path], output: Path | None = None) -> None:
    """Join the result folders of the parts of a sweep in one folder, and print how many rows it
    has.
    """
    first = read_manifest(place_of_results(parts[0]))
    for key in ("points", "axes", "versions"):
        if key not in first:
            raise InputError(f"{parts[0]}: was written by an older netsim", hint="run it again")
    scenario = str(first["scenario"])
    folder = output or Path("reports") / scenario
    if any(is_same_file(part, folder) for part in parts):
        raise InputError(f"{folder}: is one of the parts", hint="choose another with -o")
    check_place(folder)
    manifest = {key: value for key, value in first.items() if key not in OF_A_PART}
    manifest["shard"] = None
    new_manifest = {**manifest, "scenario": scenario}
    merged = merged_rows(parts, new_manifest, tell)  # all is checked before anything is written
    rows = rows_in_order(merged.finished, new_manifest)
    with open_folder(
        folder, scenario, resume=False, about=manifest, verb="merge", tell=tell
    ) as results:
        for place, row in merged.finished.items():
            results.record(place, row, merged.timings[place])
        path = results.write_results(rows, new_manifest["axes"])
        merge_costs(parts, new_manifest, results.place)
    failed = sum(row.status != "ok" for row in rows)
    note = f", {failed} of them failed" if failed else ""
    typer.echo(f"{path}: {len(rows)} rows of {len(parts)} parts{note}")
