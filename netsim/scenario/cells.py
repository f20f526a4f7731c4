"""From a scenario to its cells: every combination of the swept axes, each with an identity.

A cell is a Scenario without a sweep. Its id is a hash of what is asked (the contents of machine and
fabric files, parameters, seed, model version), not of names, sizes or outputs: equal questions have
equal ids, whoever asks.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from netsim.errors import ScenarioError, ScenarioErrors
from netsim.scenario.clusters import question
from netsim.scenario.models import Scenario
from netsim.version import MODEL_VERSION
from netsim.yamlio.overrides import override
from netsim.yamlio.source import Source
from netsim.yamlio.validate import validate

MOST_CELLS = 1_000_000
NOT_SWEPT = ("name", "sweep", "outputs")


@dataclass(frozen=True)
class Cell:
    """One question: a scenario without a sweep, its id, and where on the axes it lies."""

    id: str
    scenario: Scenario
    source: Source
    axes: Mapping[str, Any]


def expand(source: Source) -> list[Cell]:
    """All cells of a scenario file, in the order of its axes, the last one fastest.

    Everything that is wrong with any cell is raised before anything runs.
    """
    base = validate(Scenario, source)
    _check_axes(source, base)
    bare = Source(
        source.name,
        {key: value for key, value in source.data.items() if key != "sweep"},
        source.root,
        source.origins,
    )
    cells, errors = [], dict[str, ScenarioError]()
    for point in _points(base.sweep):
        try:
            cells.append(_cell(bare, point))
        except ScenarioError as error:
            errors.update({str(one): one for one in error.errors})
    if errors:
        found = list(errors.values())
        raise found[0] if len(found) == 1 else ScenarioErrors(found)
    return cells


def _points(axes: Mapping[str, list[Any]]) -> Iterator[dict[str, Any]]:
    for values in product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def _check_axes(source: Source, base: Scenario) -> None:
    cells = 1
    for axis, values in base.sweep.items():
        if axis.partition(".")[0] in NOT_SWEPT:
            raise source.error(("sweep", axis), f"{axis} cannot be swept", key=True)
        if not values:
            raise source.error(("sweep", axis), "expected at least one value, got an empty list")
        cells *= len(values)
    if cells > MOST_CELLS:
        raise source.error(("sweep",), f"makes {cells} cells, more than {MOST_CELLS}", key=True)


def _cell(source: Source, point: Mapping[str, Any]) -> Cell:
    placed = source
    for axis, value in point.items():
        place = source.locate(("sweep", axis), key=True)
        origin = (
            f"{place.name}:{place.line}:{place.column}: sweep.{axis}" if place.line else place.name
        )
        placed = override(placed, axis, value, origin)
    scenario = validate(Scenario, placed)
    return Cell(cell_id(scenario), scenario, placed, dict(point))


def cell_id(scenario: Scenario) -> str:
    """The hash of the question that a scenario without a sweep asks."""
    asked = {
        "model_version": MODEL_VERSION,
        "cluster": question(scenario.cluster),
        "workload": scenario.workload.model_dump(mode="json", exclude={"sizes"}),
        "nccl": scenario.nccl.model_dump(mode="json"),
        "launch": scenario.launch_costs().model_dump(mode="json"),
        "seed": scenario.seed,
    }
    text = json.dumps(asked, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
