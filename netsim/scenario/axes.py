"""The `sweep` section of a scenario: axes and their values, zipped axes, named variants,
conditions, a base line and seeds. Knows dotted keys and values, but not what most of them mean.
"""

from collections.abc import Iterator, Mapping
from itertools import product
from math import prod
from typing import Any

from netsim.errors import shown, suggest
from netsim.scenario.conditions import Condition, parse_condition
from netsim.scenario.models import Scenario
from netsim.scenario.ranges import axis_values
from netsim.values import dataclass
from netsim.yamlio.source import KeyPath, Source

MOST_CELLS = 1_000_000
NOT_SWEPT = ("name", "sweep", "outputs", "prices")
SEED = "seed"
WORDS = ("zip", "variants", "skip", "only", "base", "seeds")

Change = tuple[str, Any, KeyPath]  # a dotted key, its value, and where that is written


@dataclass(frozen=True)
class Axis:
    """Steps that exclude each other: each gives values to one or several named axes, for results,
    and changes keys of the scenario.
    """

    names: tuple[str, ...]
    steps: tuple[tuple[tuple[Any, ...], tuple[Change, ...]], ...]


@dataclass(frozen=True)
class Point:
    """One combination: where it lies on every axis, and what it changes."""

    axes: dict[str, Any]
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class Sweep:
    """All axes, the last one fastest; which points are left out; what others are compared with."""

    axes: tuple[Axis, ...] = ()
    skip: tuple[Condition, ...] = ()
    only: tuple[Condition, ...] = ()
    base: Mapping[str, Any] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all axes, in order."""
        return tuple(name for axis in self.axes for name in axis.names)

    def points(self) -> Iterator[Point]:
        """Every combination, before conditions."""
        for steps in product(*(axis.steps for axis in self.axes)):
            values = [v for step in steps for v in step[0]]
            changes = tuple(change for step in steps for change in step[1])
            yield Point(dict(zip(self.names, values, strict=True)), changes)


def read_sweep(source: Source) -> Sweep:
    """The sweep of a scenario; what is wrong with it is raised with its place."""
    given = source.data.get("sweep") or {}
    if not isinstance(given, Mapping):
        raise source.error(("sweep",), f"expected keys and their values, got {shown(given)}")
    axes: list[Axis] = []
    for key, value in given.items():
        path: KeyPath = ("sweep", key)
        if key == "zip":
            axes += _zipped(source, path, value)
        elif key == "variants":
            axes += _variants(source, path, value)
        elif key not in WORDS:
            axes.append(_plain(source, path, str(key), value))
    axes += _seeds(source, given)
    _check(source, axes)
    sweep = Sweep(
        tuple(axes),
        _conditions(source, "skip", given),
        _conditions(source, "only", given),
    )
    return _with_base(source, sweep, given)


def _plain(source: Source, path: KeyPath, key: str, value: Any) -> Axis:
    _check_key(source, path, key)
    if key not in Scenario.model_fields and (near := suggest(key, WORDS)):
        known = ", ".join(WORDS)
        message = f"'{key}' is neither a key of scenarios nor one of {known}{near}"
        raise source.error(path, message, key=True)
    steps = [((_label(one),), ((key, one, path),)) for one in axis_values(source, path, value)]
    return Axis((key,), tuple(steps))


def _zipped(source: Source, path: KeyPath, value: Any) -> list[Axis]:
    """Axes that go forward together: one mapping, or a list of such."""
    groups = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
    axes = []
    for number, group in groups:
        here = path if number is None else (*path, number)
        if not isinstance(group, Mapping) or len(group) < 2:
            raise source.error(here, "expected two or more keys with lists of equal length")
        columns = {}
        for key, entry in group.items():
            _check_key(source, (*here, key), str(key))
            columns[str(key)] = axis_values(source, (*here, key), entry)
        lengths = {key: len(column) for key, column in columns.items()}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{key}: {length}" for key, length in lengths.items())
            raise source.error(here, f"zipped axes need lists of equal length, got {listed}")
        steps = [
            (
                tuple(map(_label, row)),
                tuple((k, v, (*here, k)) for k, v in zip(columns, row, strict=True)),
            )
            for row in zip(*columns.values(), strict=True)
        ]
        axes.append(Axis(tuple(columns), tuple(steps)))
    return axes


def _variants(source: Source, path: KeyPath, value: Any) -> list[Axis]:
    """Named variants, each of which changes several keys: {axis: {name: {key: value}}}."""
    if not isinstance(value, Mapping) or not value:
        raise source.error(path, "expected {axis: {name: {key: value, …}, …}}")
    axes = []
    for axis, named in value.items():
        here = (*path, axis)
        if not str(axis).isidentifier():
            raise source.error(here, "expected a name of letters, digits and _", key=True)
        if not isinstance(named, Mapping) or not named:
            raise source.error(here, "expected at least one variant, as name: {key: value}")
        steps = []
        for name, changes in named.items():
            if changes is not None and not isinstance(changes, Mapping):
                message = f"expected keys and their values, got {shown(changes)}"
                raise source.error((*here, name), message)
            for key in changes or {}:
                _check_key(source, (*here, name, key), str(key))
            made = tuple((str(k), v, (*here, name, k)) for k, v in (changes or {}).items())
            steps.append(((str(name),), made))
        axes.append(Axis((str(axis),), tuple(steps)))
    return axes


def _seeds(source: Source, given: Mapping[str, Any]) -> list[Axis]:
    """The last axis: the same questions with other seeds."""
    if "seeds" not in given:
        return []
    value, path = given["seeds"], ("sweep", "seeds")
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 1:
            raise source.error(path, f"expected at least 1 seed, got {value}")
        value = list(range(1, value + 1))
    return [_plain(source, path, SEED, value)]


def _check_key(source: Source, path: KeyPath, key: str) -> None:
    if key.partition(".")[0] in NOT_SWEPT:
        raise source.error(path, f"{key} cannot be swept", key=True)


def _check(source: Source, axes: list[Axis]) -> None:
    seen: dict[str, int] = {}
    for axis in axes:
        for name in axis.names:
            if name in seen:
                raise source.error(("sweep",), f"{name} is swept twice", key=True)
            seen[name] = 1
        _refuse_twice(source, axis)
    cells = prod(len(axis.steps) for axis in axes)
    if cells > MOST_CELLS:
        raise source.error(("sweep",), f"makes {cells} cells, more than {MOST_CELLS}", key=True)


def _refuse_twice(source: Source, axis: Axis) -> None:
    """A value that stands twice on one axis would be two rows of one cell."""
    known = set()
    for values, changes in axis.steps:
        label = tuple(map(str, values))
        if label in known:
            what = ", ".join(label)
            raise source.error(changes[0][2], f"{what} stands here twice", key=True)
        known.add(label)


def _conditions(source: Source, word: str, given: Mapping[str, Any]) -> tuple[Condition, ...]:
    value = given.get(word)
    if value is None:
        return ()
    texts = value if isinstance(value, list) else [value]
    found = []
    for number, text in enumerate(texts):
        path: KeyPath = ("sweep", word, number) if isinstance(value, list) else ("sweep", word)
        if not isinstance(text, str):
            raise source.error(path, f"expected a condition such as 'cluster.nodes > 4', "
                               f"got {shown(text)}")  # fmt: skip
        try:
            found.append(parse_condition(text, path))
        except ValueError as error:
            raise source.error(path, str(error)) from None
    return tuple(found)


def _with_base(source: Source, sweep: Sweep, given: Mapping[str, Any]) -> Sweep:
    """The sweep with its base line: values of some axes, which some point has."""
    base = given.get("base")
    if base is None:
        return sweep
    path: KeyPath = ("sweep", "base")
    if not isinstance(base, Mapping) or not base:
        raise source.error(path, "expected values of axes, such as {cluster.nodes: 4}")
    for name, value in base.items():
        if name not in sweep.names:
            hint = suggest(str(name), sweep.names)
            raise source.error((*path, name), f"{name} is no axis of this sweep{hint}", key=True)
        values = _values(sweep, str(name))
        if _label(value) not in values:
            listed = ", ".join(map(str, values[:12]))
            raise source.error((*path, name), f"expected one of {listed}, got {shown(value)}")
    return Sweep(sweep.axes, sweep.skip, sweep.only, {k: _label(v) for k, v in base.items()})


def _values(sweep: Sweep, name: str) -> list[Any]:
    axis = next(axis for axis in sweep.axes if name in axis.names)
    place = axis.names.index(name)
    return list(dict.fromkeys(step[0][place] for step in axis.steps))


def _label(value: Any) -> Any:
    """A value as results show it: mappings and lists in one line of text."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_label(one)}" for key, one in value.items())
    if isinstance(value, list | tuple):
        return " ".join(str(_label(one)) for one in value)
    return getattr(value, "text", value)  # 2.20 is not 2.2, if it is a version
