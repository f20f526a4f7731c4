"""Conditions on the cells of a sweep, such as `cluster.nodes > 4 and workload.algorithm == 'Tree'`.

Comparisons of keys and values, joined by and, or and not; nothing else can be written, so nothing
is executed. Quantities compare as what they measure: `cluster.nic < 400Gbps`.
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from netsim.errors import shown
from netsim.units import UnitError, parse_bandwidth, parse_size, parse_time
from netsim.values import dataclass
from netsim.yamlio.scalars import plain_scalar
from netsim.yamlio.source import KeyPath

_COMPARE: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
}
_WORK: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}
# A quantity without quotes, so that 400Gbps can be written as elsewhere.
_BARE = re.compile(
    r"('[^']*'|\"[^\"]*\")|(?<![\w.])(?![0-9.]+[eE][0-9]+\b)([0-9][0-9.]*[A-Za-z%][\w/%]*)"
)
_EXAMPLE = "expected a condition such as cluster.nodes > 4 and workload.algorithm == 'Tree'"


@dataclass(frozen=True)
class Condition:
    """A condition as it was written, where, and what was read."""

    text: str
    path: KeyPath
    tree: ast.expr

    def holds(self, lookup: Callable[[str], Any]) -> bool:
        """Whether it holds where `lookup` gives the value of a key."""
        return bool(_value(self.tree, lookup, self.text))

    @property
    def names(self) -> tuple[str, ...]:
        """The keys that it speaks of."""
        found: list[str] = []
        _value(self.tree, found.append, self.text, trial=True)
        return tuple(dict.fromkeys(found))


def parse_condition(text: str, path: KeyPath) -> Condition:
    """A condition from its text; `ValueError` says what cannot be read."""
    quoted = _BARE.sub(lambda found: found[1] or repr(found[2]), text)
    try:
        tree = ast.parse(quoted.strip(), mode="eval").body
    except SyntaxError:
        raise ValueError(f"{_EXAMPLE}, got {shown(text)}") from None
    _value(tree, lambda key: None, text, trial=True)
    return Condition(text, path, tree)


def _value(node: ast.expr, lookup: Callable[[str], Any], text: str, *, trial: bool = False) -> Any:
    def inside(one: ast.expr) -> Any:
        return _value(one, lookup, text, trial=trial)

    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.List | ast.Tuple):
        return [inside(one) for one in node.elts]
    if isinstance(node, ast.Name | ast.Attribute):
        return lookup(_key(node, text))
    if isinstance(node, ast.BoolOp):
        values = [inside(one) for one in node.values]
        return all(values) if isinstance(node.op, ast.And) else any(values)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not inside(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _WORK:
        one, other = inside(node.left), inside(node.right)
        return None if trial else _worked(_WORK[type(node.op)], one, other, text)
    if isinstance(node, ast.Compare) and all(type(op) in _COMPARE for op in node.ops):
        values = [inside(one) for one in (node.left, *node.comparators)]
        if trial:
            return True
        pairs = zip(values[:-1], values[1:], node.ops, strict=True)
        return all(_compared(_COMPARE[type(op)], one, other, text) for one, other, op in pairs)
    raise ValueError(f"{_EXAMPLE}, got {shown(text)}")


def _key(node: ast.expr, text: str) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_key(node.value, text)}.{node.attr}"
    raise ValueError(f"{_EXAMPLE}, got {shown(text)}")


def _worked(work: Callable[[Any, Any], Any], one: Any, other: Any, text: str) -> Any:
    try:
        return work(_number(one), _number(other))
    except (TypeError, ZeroDivisionError):
        raise ValueError(f"cannot compute with {shown(one)} and {shown(other)} in {text}") from None


def _compared(compare: Callable[[Any, Any], bool], one: Any, other: Any, text: str) -> bool:
    if isinstance(one, str) and isinstance(other, str) and one != other:
        one, other = _measured(one, other)
    elif isinstance(one, int | float) != isinstance(other, int | float):
        one, other = _as_number(one), _as_number(other)
    try:
        return compare(one, other)
    except TypeError:
        raise ValueError(f"cannot compare {shown(one)} with {shown(other)} in {text}") from None


def _as_number(value: Any) -> Any:
    """A number that stands on an axis as it was written, such as 2.20."""
    if isinstance(value, str):
        with suppress(ValueError):
            return plain_scalar(value)
    return value


def _measured(one: str, other: str) -> tuple[Any, Any]:
    """Two quantities of one kind as numbers; other texts as they are."""
    for parse in (parse_bandwidth, parse_time, parse_size):
        try:
            return parse(one), parse(other)
        except UnitError:
            continue
    return one, other


def _number(value: Any) -> Any:
    if isinstance(value, str):
        for parse in (parse_bandwidth, parse_time, parse_size):
            try:
                return parse(value)
            except UnitError:
                continue
    return value


def looked_up(data: Mapping[str, Any], axes: Mapping[str, Any], key: str) -> Any:
    """The value of a key: of an axis, or of the scenario; `KeyError` where neither has it."""
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
