"""Measured times of layers, from a CSV that the user has."""

import csv
from pathlib import Path

from netsim.scenario.cells import Cell
from netsim.scenario.training import Training
from netsim.workloads.model import Model, layers_of

COLUMNS = ("layer", "forward_us", "backward_us")


def read_times(cell: Cell, work: Training, model: Model) -> dict[str, tuple[float, float]]:
    """Seconds forward and backward of one micro-batch, by layer.

    A line for `block` stands for all layers that have none of their own.
    """
    if work.compute.times is None:
        return {}
    place = ("workload", "compute", "times")
    path = Path(work.compute.times)
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                message = f"{path}: expected the columns {', '.join(COLUMNS)}, no {missing[0]}"
                raise cell.source.error(place, message)
            lines = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise cell.source.error(place, f"{path}: cannot be read: {reason}") from None
    return _named(cell, path, lines, model)


def _named(
    cell: Cell, path: Path, lines: list[dict[str, str]], model: Model
) -> dict[str, tuple[float, float]]:
    place = ("workload", "compute", "times")
    names = [layer.name for layer in layers_of(model)]
    blocks = [layer.name for layer in layers_of(model) if layer.kind == "block"]
    found: dict[str, tuple[float, float]] = {}
    for number, line in enumerate(lines, 2):
        try:
            seconds = (float(line["forward_us"]) * 1e-6, float(line["backward_us"]) * 1e-6)
        except (TypeError, ValueError):
            raise cell.source.error(place, f"{path}:{number}: expected times in us") from None
        if min(seconds) < 0:
            raise cell.source.error(place, f"{path}:{number}: a time below zero")
        if line["layer"] == "block":
            found = {**dict.fromkeys(blocks, seconds), **found}
        elif line["layer"] in names:
            found[line["layer"]] = seconds
        else:
            message = (
                f"{path}:{number}: the model has no layer {line['layer']!r}, but {names[0]!r}, …"
            )
            raise cell.source.error(place, message)
    return found
