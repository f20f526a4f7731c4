"""Single values of a source replaced: `--set cluster.nodes=4`, or one point of a sweep.

Keys are not checked here: validation finds a misspelt one, and names the override as its place.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from netsim.errors import InputError, shown
from netsim.yamlio.source import KeyPath, Source, parse_value


def apply_overrides(source: Source, assignments: Iterable[str]) -> Source:
    """The source with every `a.b=value` applied in turn, values read by the rules of YAML."""
    for assignment in assignments:
        origin = f"--set {assignment}"
        dotted, equals, text = assignment.partition("=")
        if not equals or not all(part.strip() for part in dotted.split(".")):
            raise InputError(f"{origin}: expected KEY=VALUE such as cluster.nodes=4")
        source = override(source, dotted.strip(), parse_value(text, origin), origin)
    return source


def override(source: Source, dotted: str, value: Any, origin: str) -> Source:
    """The source with one value replaced or added; errors about it name `origin` as its place."""
    path = _path(source.data, dotted.split("."), origin)
    data = _replaced(source.data, path, value)
    kept = {known: text for known, text in source.origins.items() if known[: len(path)] != path}
    return replace(source, data=data, origins={**kept, path: origin})


def _path(data: dict[str, Any], parts: list[str], origin: str) -> KeyPath:
    """The keys and indices that dotted parts mean; a key of the file may itself contain dots."""
    path: KeyPath = ()
    values: Any = data
    while parts:
        if isinstance(values, list):
            index = _index(parts[0], len(values), path, origin)
            path, values, parts = (*path, index), values[index], parts[1:]
        elif isinstance(values, dict) or values is None:
            whole = ".".join(parts)
            key = whole if values and whole in values else parts[0]
            path, parts = (*path, key), [] if key == whole else parts[1:]
            values = None if values is None else values.get(key)
        else:
            message = f"{_dotted(path)} is {shown(values)}, which has nothing inside to set"
            raise InputError(f"{origin}: {message}")
    return path


def _index(part: str, length: int, path: KeyPath, origin: str) -> int:
    if part.isascii() and part.isdigit() and len(part) < 10 and int(part) < length:
        return int(part)
    message = f"{_dotted(path)} is a list of {length}; expected an index below that, got '{part}'"
    raise InputError(f"{origin}: {message}")


def _replaced(values: Any, path: KeyPath, value: Any) -> Any:
    """A copy of the values along the path only, with the one at its end replaced."""
    if not path:
        return value
    head, rest = path[0], path[1:]
    if isinstance(values, list):
        return [_replaced(one, rest, value) if n == head else one for n, one in enumerate(values)]
    inside = values or {}
    return {**inside, head: _replaced(inside.get(head), rest, value)}


def _dotted(path: KeyPath) -> str:
    return ".".join(map(str, path))
