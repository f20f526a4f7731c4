"""Measured times of layers that the user has: a CSV, or a trace of PyTorch's profiler."""

import csv
from pathlib import Path

from netsim.errors import InputError
from netsim.scenario.cells import Cell
from netsim.scenario.training import Training
from netsim.training.recorded.layers import layer_times
from netsim.training.recorded.reading import is_trace
from netsim.workloads.model import Model, layers_of

COLUMNS = ("layer", "forward_us", "backward_us")
PLACE = ("workload", "compute", "times")


def read_times(cell: Cell, work: Training, model: Model) -> dict[str, tuple[float, float]]:
    """Seconds forward and backward of one micro-batch, by layer.

    In a CSV, a line for `block` stands for all layers that have none of their own.
    """
    if work.compute.times is None:
        return {}
    path = Path(work.compute.times)
    names = [layer.name for layer in layers_of(model)]
    blocks = [layer.name for layer in layers_of(model) if layer.kind == "block"]
    try:
        if is_trace(path):
            held = max(1, len(blocks) // work.parallelism.pp)
            found = layer_times(path, names, blocks, held)
            return {name: seconds for name, seconds in found.items() if name in names}
        return _named(path, _lines(path), names, blocks)
    except InputError as error:
        raise cell.source.error(PLACE, error.message, hint=error.hint) from None


def _lines(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                raise InputError(
                    f"{path}: expected the columns {', '.join(COLUMNS)}, no {missing[0]}"
                )
            return list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{path}: cannot be read: {reason}") from None


def _named(
    path: Path, lines: list[dict[str, str]], names: list[str], blocks: list[str]
) -> dict[str, tuple[float, float]]:
    found: dict[str, tuple[float, float]] = {}
    for number, line in enumerate(lines, 2):
        try:
            seconds = (float(line["forward_us"]) * 1e-6, float(line["backward_us"]) * 1e-6)
        except (TypeError, ValueError):
            raise InputError(f"{path}:{number}: expected times in us") from None
        if min(seconds) < 0:
            raise InputError(f"{path}:{number}: a time below zero")
        if line["layer"] == "block":
            found = {**dict.fromkeys(blocks, seconds), **found}
        elif line["layer"] in names:
            found[line["layer"]] = seconds
        else:
            raise InputError(
                f"{path}:{number}: the model has no layer {line['layer']!r}, but {names[0]!r}, …"
            )
    return found
