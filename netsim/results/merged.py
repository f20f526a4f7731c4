"""Results of parts put together: the same results.csv as one run of everything writes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from netsim.errors import InputError
from netsim.results.folder import JOURNAL, MANIFEST, Folder, read_journal
from netsim.results.row import Row

ALIKE = ("scenario", "axes", "points", "engine")  # what all parts of one sweep have in common


def read_manifest(folder: Path) -> dict[str, Any]:
    """What a results folder says about itself."""
    try:
        found = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        hint = "expected a folder that netsim run has written"
        raise InputError(f"{folder}: holds no {MANIFEST}", hint=hint) from None
    except (OSError, ValueError):
        raise InputError(f"{folder / MANIFEST}: not written by netsim") from None
    if not isinstance(found, dict) or "scenario" not in found:
        raise InputError(f"{folder / MANIFEST}: not written by netsim")
    return found


def merge_into(target: Folder, parts: Sequence[Path], manifest: Mapping[str, Any]) -> int:
    """Take up the rows of all parts; the number of rows that the whole has."""
    places: dict[int, Path] = {}
    for part in parts:
        own = read_manifest(part)
        _check_alike(part, own, parts[0], manifest)
        _check_place(part, own.get("shard"), read_manifest(parts[0]).get("shard"), places)
        found = _rows_of(part)
        for key, row in found.finished.items():
            if key not in target.finished:
                target.record(key, row, found.timings[key])
    missing = [
        (point["cell"], size)
        for point in manifest["points"]
        for size in point.get("sizes", ())
        if (point["cell"], size) not in target.finished
    ]
    if missing:
        raise InputError(
            f"{len(missing)} rows are in none of the parts, the first of cell {missing[0][0]} at "
            f"{missing[0][1]} B",
            hint="run the missing parts, or those that were interrupted with --resume",
        )
    return sum(len(point.get("sizes", "1")) for point in manifest["points"])


def rows_in_order(
    finished: Mapping[tuple[str, int], Row], manifest: Mapping[str, Any]
) -> list[Row]:
    """The rows of a folder in the order of its cells, those that are there."""
    rows = []
    for point in manifest["points"]:
        if "error" in point:
            rows.append(
                Row(scenario=manifest["scenario"], cell=point["cell"], status="invalid",
                    model_version=str(manifest["versions"]["model"]), error=point["error"],
                    axes=point["axes"])
            )  # fmt: skip
            continue
        for size in point["sizes"]:
            row = finished.get((point["cell"], size))
            if row is not None:
                rows.append(replace(row, scenario=manifest["scenario"], axes=point["axes"]))
    return rows


def _check_alike(
    part: Path, own: Mapping[str, Any], first: Path, manifest: Mapping[str, Any]
) -> None:
    for name in ALIKE:
        if own.get(name) != manifest.get(name):
            what = {"scenario": "another scenario", "points": "other cells", "axes": "other axes",
                    "engine": "another engine"}[name]  # fmt: skip
            raise InputError(f"{part}: holds {what} than {first}")
    texts = [
        f"netsim {found.get('netsim')} (model {found.get('model')})"
        for found in (own.get("versions", {}), manifest.get("versions", {}))
    ]
    if texts[0] != texts[1]:
        raise InputError(f"{part}: was computed by {texts[0]}, {first} by {texts[1]}")


def _check_place(
    part: Path, shard: list[int] | None, first: list[int] | None, places: dict[int, Path]
) -> None:
    """Refuse a part that is there already, or one of another number of parts."""
    number, count = shard or (0, 0)
    if number in places:
        what = f"part {number} of {count}" if shard else "the whole"
        raise InputError(f"{part}: is {what}, as {places[number]} is", hint="name each part once")
    if first and shard and count != first[1]:
        raise InputError(f"{part}: is one of {count} parts, {places[first[0]]} one of {first[1]}")
    places[number] = part


def _rows_of(part: Path) -> Folder:
    try:
        with (part / JOURNAL).open("r", encoding="utf-8") as journal:
            folder = Folder(part, journal)
            read_journal(folder)
            return folder
    except FileNotFoundError:
        raise InputError(f"{part}: holds no {JOURNAL}") from None
