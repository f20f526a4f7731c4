"""From a scenario to its cells: every combination of the swept axes, each with an identity.

A cell is a Scenario without a sweep. Its id is a hash of what is asked (the contents of machine and
fabric files, parameters, seed, model version), not of names, sizes or outputs: equal questions have
equal ids, whoever asks.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from netsim.errors import InputError, ScenarioError, ScenarioErrors, suggest
from netsim.scenario.axes import Change, Point, Sweep, read_sweep
from netsim.scenario.clusters import question
from netsim.scenario.conditions import Condition, looked_up
from netsim.scenario.models import Scenario
from netsim.values import dataclass
from netsim.version import MODEL_VERSION
from netsim.yamlio.overrides import override
from netsim.yamlio.source import Source
from netsim.yamlio.validate import validate


@dataclass(frozen=True)
class Cell:
    """One question: a scenario without a sweep, its id, and where on the axes it lies.

    `cluster` is the part of the id that its cluster makes: cells with the same have one topology.
    """

    id: str
    scenario: Scenario
    source: Source
    axes: Mapping[str, Any]
    cluster: str = ""


@dataclass(frozen=True)
class Invalid:
    """A point of a sweep that no scenario is possible at, and why."""

    id: str
    axes: Mapping[str, Any]
    error: ScenarioError


@dataclass(frozen=True)
class Expansion:
    """All points of a sweep in order, and what the sweep says beyond its axes."""

    sweep: Sweep
    points: tuple[Cell | Invalid, ...]
    skipped: int = 0

    @property
    def cells(self) -> list[Cell]:
        """The points that are questions."""
        return [point for point in self.points if isinstance(point, Cell)]

    @property
    def invalid(self) -> list[Invalid]:
        """The points that are not."""
        return [point for point in self.points if isinstance(point, Invalid)]

    def refuse_invalid(self) -> None:
        """Raise all that is wrong with any point, each mistake once."""
        found = {str(one): one for point in self.invalid for one in point.error.errors}
        if found:
            errors = list(found.values())
            raise errors[0] if len(errors) == 1 else ScenarioErrors(errors)


def expand(source: Source) -> list[Cell]:
    """All cells of a scenario file, in the order of its axes, the last one fastest.

    Everything that is wrong with any cell is raised before anything runs.
    """
    expansion = expand_all(source)
    expansion.refuse_invalid()
    return expansion.cells


def expand_all(source: Source) -> Expansion:
    """All points of the sweep of a scenario file, those that are invalid as such."""
    sweep = read_sweep(source)
    bare = replace(source, data={k: v for k, v in source.data.items() if k != "sweep"})
    if not sweep.axes:
        return Expansion(sweep, (_cell(bare, Point({}, ())),))
    _check_base(bare, sweep)
    points: list[Cell | Invalid] = []
    skipped = 0
    for point in sweep.points():
        try:
            placed = _placed(bare, source, point)
            if _left_out(source, placed, point, sweep):
                skipped += 1
                continue
            points.append(_cell(placed, point))
        except ScenarioError as error:
            points.append(Invalid(_mark(point), point.axes, error))
    if not points:
        raise source.error(("sweep",), "every cell is left out by skip or only", key=True)
    return Expansion(sweep, tuple(points), skipped)


def _check_base(bare: Source, sweep: Sweep) -> None:
    """What is wrong apart from the axes is told once, at its own place, not once for each cell."""
    swept = {key.partition(".")[0] for axis in sweep.axes for step in axis.steps
             for key, _, _ in step[1]}  # fmt: skip
    try:
        validate(Scenario, bare)
    except ScenarioError as error:
        apart = [one for one in error.errors if one.field.partition(".")[0] not in swept]
        if apart:
            raise apart[0] if len(apart) == 1 else ScenarioErrors(apart) from None


def _placed(bare: Source, source: Source, point: Point) -> Source:
    """The scenario at a point; errors about what was changed name the place in the sweep."""
    placed = bare
    for change in point.changes:
        placed = override(placed, change[0], change[1], _origin(source, change))
    return placed


def _origin(source: Source, change: Change) -> str:
    key, _, path = change
    place = source.locate(path, key=True)
    if not place.line:
        return place.name
    return f"{place.name}:{place.line}:{place.column}: sweep.{key}"


def _left_out(source: Source, placed: Source, point: Point, sweep: Sweep) -> bool:
    return any(_holds(c, source, placed, point) for c in sweep.skip) or not all(
        _holds(c, source, placed, point) for c in sweep.only
    )


def _holds(condition: Condition, source: Source, placed: Source, point: Point) -> bool:
    def lookup(key: str) -> Any:
        try:
            return looked_up(placed.data, point.axes, key)
        except KeyError:
            known = [*point.axes, *_keys(placed.data)]
            hint = suggest(key, known)
            message = f"{key} has no value here{hint}; write it out in the scenario"
            raise InputError(str(source.error(condition.path, message))) from None

    try:
        return condition.holds(lookup)
    except ValueError as error:
        raise InputError(str(source.error(condition.path, str(error)))) from None


def _keys(data: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in data.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _keys(value, f"{prefix}{key}.")


def _cell(placed: Source, point: Point) -> Cell:
    scenario = validate(Scenario, placed)
    asked = question(scenario.cluster)
    return Cell(cell_id(scenario, asked), scenario, placed, point.axes, _hash(asked))


def cell_of(source: Source, axes: Mapping[str, Any]) -> Cell:
    """The cell that a scenario without a sweep is."""
    return _cell(source, Point(dict(axes), ()))


def cell_id(scenario: Scenario, cluster: Mapping[str, Any] | None = None) -> str:
    """The hash of the question that a scenario without a sweep asks."""
    asked = {
        "model_version": MODEL_VERSION,
        "cluster": question(scenario.cluster) if cluster is None else cluster,
        "workload": scenario.workload.model_dump(mode="json", exclude={"sizes"}),
        "nccl": scenario.nccl.model_dump(mode="json"),
        "launch": scenario.launch_costs().model_dump(mode="json"),
        "seed": scenario.seed,
    }
    return _hash(asked)


def _mark(point: Point) -> str:
    """An id for a point that no scenario is possible at."""
    return "invalid-" + _hash({"axes": {k: str(v) for k, v in point.axes.items()}})[:8]


def _hash(asked: Mapping[str, Any]) -> str:
    text = json.dumps(asked, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
