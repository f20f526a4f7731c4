"""The section `sweep` of a scenario: the values of its axes, variants and conditions."""

import ast
import glob
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from fractions import Fraction
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from netsim.base.errors import shown, suggest
from netsim.base.files import preset_folder
from netsim.base.units import UnitError, parse_bandwidth, parse_size, parse_time
from netsim.base.values import dataclass
from netsim.scenario.each_part import HEALTHY, names_each_part, part_steps
from netsim.scenario.models import Scenario
from netsim.yamlio.read import KeyPath, Source, plain_scalar

MOST_VALUES = 100_000
_QUANTITY = re.compile(r"([-+]?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*([A-Za-z/%µ]*)")
_KEYS = ("from", "to", "step", "factor")
_HINT = "a list, {from, to, step}, {from, to, factor}, or {files: 'topologies/*.yaml'}"


def axis_values(source: Source, path: KeyPath, value: Any) -> list[Any]:
    """Return the values of an axis, at least one. `value` is what the file has at `path`: a list, a
    range, or a pattern of files.
    """
    if isinstance(value, Mapping) and "files" in value:
        return _files(source, path, value)
    if isinstance(value, Mapping) and {"from", "to"} & set(value):
        return _range(source, path, value)
    if not isinstance(value, list):
        raise source.error(path, f"expected {_HINT}, got {shown(value)}")
    if not value:
        raise source.error(path, "expected at least one value, got an empty list")
    return value


def _files(source: Source, path: KeyPath, value: Mapping[str, Any]) -> list[Any]:
    """Return the paths of the files that match a pattern; presets are also searched."""
    pattern = value["files"]
    if len(value) > 1 or not isinstance(pattern, str):
        raise source.error(path, "expected {files: PATTERN} such as {files: 'topologies/*.yaml'}")
    paths = sorted(glob.glob(pattern, recursive=True))
    if not paths and not Path(pattern).is_absolute():  # the presets that come with netsim
        shipped = preset_folder("topologies").parent
        paths = sorted(str(file) for file in shipped.glob(pattern) if file.is_file())
    files = [Path(file).as_posix() for file in paths if Path(file).is_file()]
    if not files:
        raise source.error((*path, "files"), f"no file matches {pattern!r}")
    return list(files)


def _range(source: Source, path: KeyPath, value: Mapping[str, Any]) -> list[Any]:
    """Return the values of a range such as `{from: 8, to: 64, step: 8}` or `{from: 1K, to: 1M,
    factor: 2}`.

    Raises:
        ScenarioError: a key is wrong or missing; the error has its position.
    """
    _check_range_keys(source, path, value)
    first, unit = _quantity(source, (*path, "from"), value["from"])
    last, last_unit = _quantity(source, (*path, "to"), value["to"])
    if unit != last_unit:
        return _sizes(source, path, value)
    if last < first:
        raise source.error(
            (*path, "to"), f"ends at {value['to']}, before it begins at {value['from']}"
        )
    if "factor" in value:
        factor, _ = _quantity(source, (*path, "factor"), value["factor"])
        if factor <= 1 or first <= 0:
            raise source.error((*path, "factor"), "expected a factor above 1, from above 0")
        numbers = _geometric(first, last, factor)
    else:
        step, step_unit = _quantity(source, (*path, "step"), value["step"])
        if step <= 0 or step_unit not in ("", unit):
            raise source.error((*path, "step"), f"expected a positive step in {unit or 'numbers'}")
        if (last - first) / step >= MOST_VALUES:
            raise source.error((*path, "step"), f"makes more than {MOST_VALUES} values")
        numbers = [first + step * k for k in range(int((last - first) / step) + 1)]
    return [_written(number, unit) for number in numbers]


def _check_range_keys(source: Source, path: KeyPath, value: Mapping[str, Any]) -> None:
    """Raise an error for an unknown key, a missing end, or not exactly one of step and factor."""
    for key in value:
        if key not in _KEYS:
            hint = suggest(str(key), _KEYS)
            raise source.error((*path, key), f"unknown key '{key}'{hint}", key=True)
    for key in ("from", "to"):
        if key not in value:
            raise source.error(path, f"a range needs '{key}' as well")
    if ("step" in value) == ("factor" in value):
        raise source.error(path, "a range needs either a step or a factor")


def _geometric(first: Fraction, last: Fraction, factor: Fraction) -> list[Fraction]:
    """Return values that grow by a factor. A last value that exceeds the end only by rounding is
    included.
    """
    values = [first]
    while values[-1] * factor <= last * (1 + Fraction(1, 10**12)) and len(values) < MOST_VALUES:
        values.append(values[-1] * factor)
    return values


def _sizes(source: Source, path: KeyPath, value: Mapping[str, Any]) -> list[Any]:
    """Return the values in bytes of a range of sizes whose ends have different units."""
    try:
        first = parse_size(value["from"])
        last = parse_size(value["to"])
    except UnitError:
        message = f"expected both ends in one unit, got {value['from']} and {value['to']}"
        raise source.error(path, message) from None
    return _range(source, path, {**value, "from": first, "to": last})


def _quantity(source: Source, path: KeyPath, value: Any) -> tuple[Fraction, str]:
    """Return the number and the unit of a quantity such as `400Gbps`."""
    text = str(getattr(value, "text", value))
    match = _QUANTITY.fullmatch(text.strip()) if not isinstance(value, bool) else None
    if not match:
        raise source.error(path, f"expected a number or a quantity, got {shown(value)}")
    return Fraction(match[1]), match[2]


def _written(number: Fraction, unit: str) -> Any:
    """Return a number with its unit as text; a number without a unit stays a number."""
    plain = int(number) if number.denominator == 1 else float(number)
    return f"{plain:.12g}{unit}" if unit else plain


# Conditions on the cells of a sweep, such as `cluster.nodes > 4 and workload.algorithm == 'Tree'`.
# A condition consists of comparisons of keys and values, joined by and, or and not; everything else
# is an error, so that no code of a file is executed. Quantities are compared with their units:
# `cluster.nic < 400Gbps`.

_COMPARE: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda member, values: member in values,
    ast.NotIn: lambda member, values: member not in values,
}
_WORK: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}
# A quantity without quotes, such as 400Gbps, as files have it in other places.
_BARE = re.compile(
    r"('[^']*'|\"[^\"]*\")|(?<![\w.])(?![0-9.]+[eE][0-9]+\b)([0-9][0-9.]*[A-Za-z%][\w/%]*)"
)
_EXAMPLE = "expected a condition such as cluster.nodes > 4 and workload.algorithm == 'Tree'"


@dataclass(frozen=True)
class Condition:
    """A condition: its text, its path in the file, and its syntax tree."""

    text: str
    path: KeyPath
    tree: ast.expr

    def holds(self, lookup: Callable[[str], Any]) -> bool:
        """Return whether the condition holds; `lookup` returns the value of a key."""
        return bool(_value(self.tree, lookup, self.text))

    @property
    def names(self) -> tuple[str, ...]:
        """The keys that occur in the condition."""
        names: list[str] = []
        _value(self.tree, names.append, self.text, trial=True)
        return tuple(dict.fromkeys(names))


def parse_condition(text: str, path: KeyPath) -> Condition:
    """Parse a condition.

    Raises:
        ValueError: the text is no condition.
    """
    quoted = _BARE.sub(lambda match: match[1] or repr(match[2]), text)
    try:
        tree = ast.parse(quoted.strip(), mode="eval").body
    except SyntaxError:
        raise ValueError(f"{_EXAMPLE}, got {shown(text)}") from None
    _value(tree, lambda key: None, text, trial=True)
    return Condition(text, path, tree)


def _value(node: ast.expr, lookup: Callable[[str], Any], text: str, *, trial: bool = False) -> Any:
    """Return the value of a node of a condition's syntax tree.

    With `trial`, all keys are looked up and nothing is compared: to list keys and find syntax
    errors. `text` is the condition, for messages.
    """

    def inside(child: ast.expr) -> Any:
        return _value(child, lookup, text, trial=trial)

    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.List | ast.Tuple):
        return [inside(element) for element in node.elts]
    if isinstance(node, ast.Name | ast.Attribute):
        return lookup(_key(node, text))
    if isinstance(node, ast.BoolOp):
        values = [inside(child) for child in node.values]
        return all(values) if isinstance(node.op, ast.And) else any(values)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not inside(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _WORK:
        left = inside(node.left)
        right = inside(node.right)
        return None if trial else _worked(_WORK[type(node.op)], left, right, text)
    if isinstance(node, ast.Compare) and all(type(op) in _COMPARE for op in node.ops):
        values = [inside(child) for child in (node.left, *node.comparators)]
        if trial:
            return True
        pairs = zip(values[:-1], values[1:], node.ops, strict=True)
        return all(_compared(_COMPARE[type(op)], left, right, text) for left, right, op in pairs)
    raise ValueError(f"{_EXAMPLE}, got {shown(text)}")


def _key(node: ast.expr, text: str) -> str:
    """Return the dotted key that a name or an attribute in the syntax tree means."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_key(node.value, text)}.{node.attr}"
    raise ValueError(f"{_EXAMPLE}, got {shown(text)}")


def _worked(work: Callable[[Any, Any], Any], left: Any, right: Any, text: str) -> Any:
    """Return the result of an arithmetic operation on two numbers or quantities; `text` is the
    condition, for messages.
    """
    try:
        return work(_number(left), _number(right))
    except (TypeError, ZeroDivisionError):
        raise ValueError(
            f"cannot compute with {shown(left)} and {shown(right)} in {text}"
        ) from None


def _compared(compare: Callable[[Any, Any], bool], left: Any, right: Any, text: str) -> bool:
    """Return the result of a comparison of two values; two texts are compared as quantities if both
    are such.
    """
    if isinstance(left, str) and isinstance(right, str) and left != right:
        left, right = _measured(left, right)
    elif isinstance(left, int | float) != isinstance(right, int | float):
        left = _as_number(left)
        right = _as_number(right)
    try:
        return compare(left, right)
    except TypeError:
        raise ValueError(f"cannot compare {shown(left)} with {shown(right)} in {text}") from None


def _as_number(value: Any) -> Any:
    """Return the number that a text such as 2.20 means (axes keep the text as written); else the
    value itself.
    """
    if isinstance(value, str):
        with suppress(ValueError):
            return plain_scalar(value)
    return value


def _measured(left: str, right: str) -> tuple[Any, Any]:
    """Return two quantities of one kind (rates, times or sizes) as numbers; else the texts
    themselves.
    """
    for parse in (parse_bandwidth, parse_time, parse_size):
        try:
            return parse(left), parse(right)
        except UnitError:
            continue
    return left, right


def _number(value: Any) -> Any:
    """Return the number of a quantity; else the value itself."""
    return _measured(value, value)[0] if isinstance(value, str) else value


def looked_up(data: Mapping[str, Any], axes: Mapping[str, Any], key: str) -> Any:
    """Return the value of a key: that of the axis with this name, else that in the scenario.

    Raises:
        KeyError: neither has the key.
    """
    if key in axes:
        return axes[key]
    value: Any = data
    for part in key.split("."):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            raise KeyError(key)
    return value


# The section `sweep` of a scenario: axes and their values, zipped axes, named variants, conditions,
# a base line and seeds. Most dotted keys and their values are not interpreted in this module.

MOST_CELLS = 1_000_000
NOT_SWEPT = ("name", "sweep", "outputs", "prices", "report")
# Keys whose axes are conditions rather than choices; results are compared under equal conditions.
CONDITIONS = (
    "workload.collective", "workload.sizes", "workload.root", "workload.ranks", "workload.pairs",
    "workload.matrix", "workload.split", "workload.model", "workload.batch", "workload.sequence",
    "cluster.nodes", "cluster.gpus_per_node", "cluster.gpus", "cluster.graph.gpus", "job",
)  # fmt: skip
SEED = "seed"
JOB = "job"
WORDS = ("zip", "variants", "skip", "only", "base", "seeds")

Change = tuple[str, Any, KeyPath]  # a dotted key, its value, and the place of that in the file


@dataclass(frozen=True)
class Axis:
    """An axis of a sweep: alternative steps, each of which changes keys of the scenario.

    Each step is (values, changes). The values, one for each of the `names`, are shown in results: a
    zipped axis has several names.
    """

    names: tuple[str, ...]
    steps: tuple[tuple[tuple[Any, ...], tuple[Change, ...]], ...]

    def changed(self, name: str) -> set[str]:
        """Return the keys that a name changes: the name itself if it is a key, else the keys of all
        its variants.
        """
        keys = {key for _, changes in self.steps for key, _, _ in changes}
        return {name} if name in keys else keys


@dataclass(frozen=True)
class SweepPoint:
    """One combination of steps: the value of every axis by name, and the changes of keys."""

    axes: dict[str, Any]
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class Sweep:
    """All axes, of which the last changes fastest, the conditions on points, and the base line."""

    axes: tuple[Axis, ...] = ()
    skip: tuple[Condition, ...] = ()
    only: tuple[Condition, ...] = ()
    base: Mapping[str, Any] | None = None
    report: Mapping[str, Any] = field(default_factory=dict)  # conditions and choices by name
    part_axes: tuple[str, ...] = ()  # axes over failing parts, such as `faults: each nic`

    @property
    def conditions(self) -> list[str]:
        """The names of the axes that are conditions; for each other axis, the user wants to choose
        a value.

        Nobody chooses which part fails: an axis over failing parts is a condition of the other
        choices. If there is no other choice, its parts are compared with the healthy cluster.
        """
        conditions = [
            name for axis in self.axes for name in axis.names if self._is_condition(axis, name)
        ]
        chosen = [name for name in self.names if name not in (*conditions, *self.part_axes, SEED)]
        if not chosen:
            return conditions
        return [name for name in self.names if name in conditions or self._is_part_condition(name)]

    def _is_condition(self, axis: Axis, name: str) -> bool:
        """Whether the name of an axis is a condition: because the scenario says so, or by
        default.
        """
        if name in self.report.get("conditions", ()):
            return True
        if name in (SEED, *self.report.get("choices", ())):
            return False
        return all(key in CONDITIONS for key in axis.changed(name))

    def _is_part_condition(self, name: str) -> bool:
        """Whether an axis is over failing parts, and the scenario does not call it a choice."""
        return name in self.part_axes and name not in self.report.get("choices", ())

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all axes, in order."""
        return tuple(name for axis in self.axes for name in axis.names)

    def points(self) -> Iterator[SweepPoint]:
        """Yield every combination of steps, before `skip` and `only` exclude any."""
        for steps in product(*(axis.steps for axis in self.axes)):
            values = [value for step in steps for value in step[0]]
            changes = tuple(change for step in steps for change in step[1])
            yield SweepPoint(dict(zip(self.names, values, strict=True)), changes)


def read_sweep(source: Source) -> Sweep:
    """Return the sweep of a scenario; errors have their position in the file."""
    section = source.data.get("sweep") or {}
    if not isinstance(section, Mapping):
        raise source.error(("sweep",), f"expected keys and their values, got {shown(section)}")
    axes: list[Axis] = []
    for key, value in section.items():
        path: KeyPath = ("sweep", key)
        if key == "zip":
            axes += _zipped(source, path, value)
        elif key == "variants":
            axes += _variants(source, path, value)
        elif key in FAULTS and names_each_part(value):
            axes.append(_each_part(source, path, str(key), value))
        elif key not in WORDS:
            axes.append(_plain(source, path, str(key), value))
    axes += _seeds(source, section)
    jobs = source.data.get("jobs")
    if isinstance(jobs, list) and len(jobs) > 1 and "job" not in source.data:
        names = dict.fromkeys(str(job["name"]) for job in jobs if "name" in job)
        axes.append(Axis((JOB,), tuple(((name,), ((JOB, name, ("jobs",)),)) for name in names)))
    _check(source, axes)
    skip, only = (_conditions(source, word, section) for word in ("skip", "only"))
    part_axes = tuple(name for name in FAULTS if names_each_part(section.get(name)))
    sweep = Sweep(
        tuple(axes), skip, only, report=_reported_kinds(source, axes), part_axes=part_axes
    )
    if "base" in section:
        return _with_base(source, sweep, section)
    return replace(sweep, base=dict.fromkeys(part_axes, HEALTHY)) if part_axes else sweep


FAULTS = ("faults", "cluster.faults")


def _each_part(source: Source, path: KeyPath, name: str, value: str) -> Axis:
    """Return an axis such as `faults: each nic`: the healthy cluster, and the cluster with each of
    the parts failing.
    """
    steps = []
    for step in part_steps(source, path, value):
        changes = tuple((key, changed, path) for key, changed in step.changes)
        steps.append(((step.label,), changes))
    return Axis((name,), tuple(steps))


def _reported_kinds(source: Source, axes: Sequence[Axis]) -> Mapping[str, Any]:
    """Return the names that `report` lists as conditions and as choices; they may be keys that are
    not swept.
    """
    report = source.data.get("report")
    names = [name for axis in axes for name in axis.names]
    listed = report if isinstance(report, Mapping) else {}
    for kind, values in listed.items():
        for place, name in enumerate(values if isinstance(values, list) else ()):
            try:
                looked_up(source.data, dict.fromkeys(names), str(name))
            except KeyError:
                message = f"{name} is no axis of this sweep{suggest(str(name), names)}"
                raise source.error(("report", kind, place), message) from None
    return listed


def _plain(source: Source, path: KeyPath, key: str, value: Any) -> Axis:
    """Return the axis of one key."""
    _check_key(source, path, key)
    if key not in Scenario.model_fields and (near := suggest(key, WORDS)):
        words = ", ".join(WORDS)
        message = f"'{key}' is neither a key of scenarios nor one of {words}{near}"
        raise source.error(path, message, key=True)
    values = axis_values(source, path, value)
    steps = [((_label(value),), ((key, value, path),)) for value in values]
    return Axis((key,), tuple(steps))


def _zipped(source: Source, path: KeyPath, value: Any) -> list[Axis]:
    """Return the axes of `zip`: several keys change together."""
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
        steps = []
        for row in zip(*columns.values(), strict=True):
            pairs = zip(columns, row, strict=True)
            changes = tuple((key, key_value, (*here, key)) for key, key_value in pairs)
            steps.append((tuple(map(_label, row)), changes))
        axes.append(Axis(tuple(columns), tuple(steps)))
    return axes


def _variants(source: Source, path: KeyPath, value: Any) -> list[Axis]:
    """Return the axes of `variants`: each value is a name for several changes."""
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
            named_changes = tuple(
                (str(key), changed, (*here, name, key)) for key, changed in (changes or {}).items()
            )
            steps.append(((str(name),), named_changes))
        axes.append(Axis((str(axis),), tuple(steps)))
    return axes


def _seeds(source: Source, section: Mapping[str, Any]) -> list[Axis]:
    """Return the axis of `seeds`, a list or a number of seeds; no axis without this key."""
    if "seeds" not in section:
        return []
    value = section["seeds"]
    path = ("sweep", "seeds")
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 1:
            raise source.error(path, f"expected at least 1 seed, got {value}")
        value = list(range(1, value + 1))
    return [_plain(source, path, SEED, value)]


def _check_key(source: Source, path: KeyPath, key: str) -> None:
    """Raise an error for a key that cannot be swept."""
    if key.partition(".")[0] in NOT_SWEPT:
        raise source.error(path, f"{key} cannot be swept", key=True)


def _check(source: Source, axes: list[Axis]) -> None:
    """Raise an error for a key or a value that occurs twice, and for too many cells."""
    seen = set[str]()
    for axis in axes:
        for name in axis.names:
            if name in seen:
                raise source.error(("sweep",), f"{name} is swept twice", key=True)
            seen.add(name)
        seen_names = set()
        for values, changes in axis.steps:
            label = tuple(map(str, values))
            if label in seen_names:
                raise source.error(changes[0][2], f"{', '.join(label)} stands here twice", key=True)
            seen_names.add(label)
    cells = prod(len(axis.steps) for axis in axes)
    if cells > MOST_CELLS:
        raise source.error(("sweep",), f"makes {cells} cells, more than {MOST_CELLS}", key=True)


def _conditions(source: Source, word: str, section: Mapping[str, Any]) -> tuple[Condition, ...]:
    """Return the conditions of `skip` or `only` (`word`)."""
    value = section.get(word)
    if value is None:
        return ()
    texts = value if isinstance(value, list) else [value]
    conditions = []
    for number, text in enumerate(texts):
        path: KeyPath = ("sweep", word, number) if isinstance(value, list) else ("sweep", word)
        if not isinstance(text, str):
            raise source.error(
                path, f"expected a condition such as 'cluster.nodes > 4', got {shown(text)}"
            )
        try:
            conditions.append(parse_condition(text, path))
        except ValueError as error:
            raise source.error(path, str(error)) from None
    return tuple(conditions)


def _with_base(source: Source, sweep: Sweep, section: Mapping[str, Any]) -> Sweep:
    """Return the sweep with the base line that its section states."""
    base = section.get("base")
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
    return replace(sweep, base={name: _label(value) for name, value in base.items()})


def _values(sweep: Sweep, name: str) -> list[Any]:
    """Return the different values of the axis `name`, in order."""
    axis = next(axis for axis in sweep.axes if name in axis.names)
    place = axis.names.index(name)
    return list(dict.fromkeys(step[0][place] for step in axis.steps))


def _label(value: Any) -> Any:
    """Return the value of an axis as results show it: mappings and lists as text, others as
    written.
    """
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_label(entry)}" for key, entry in value.items())
    if isinstance(value, list | tuple):
        return " ".join(str(_label(entry)) for entry in value)
    return getattr(value, "text", value)  # as written, since version 2.20 is not 2.2
