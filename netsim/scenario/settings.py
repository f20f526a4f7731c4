"""Settings of the command line (`--set`) on a scenario that may sweep the very keys that they set.

A swept key that is set is an axis no more; the name of an axis of variants chooses one of these.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from netsim.errors import InputError, nearest
from netsim.scenario.axes import WORDS
from netsim.yamlio.overrides import apply_overrides
from netsim.yamlio.source import Source


def with_settings(source: Source, assignments: Iterable[str]) -> Source:
    """The source with every `KEY=VALUE` applied in turn."""
    for assignment in assignments:
        key, _, value = (part.strip() for part in assignment.partition("="))
        sweep = source.data.get("sweep")
        if not isinstance(sweep, Mapping):
            source = apply_overrides(source, [assignment])
        elif key in _variants(sweep):
            source = _swept(source, _with_variant(sweep, key, value, assignment))
        else:
            _refuse_in_vain(sweep, key, assignment)
            source = _swept(apply_overrides(source, [assignment]), _without_axis(sweep, key), key)
    return source


def _swept(source: Source, sweep: Mapping[str, Any], key: str = "") -> Source:
    """The source with another sweep; one that was set itself is as it was set."""
    if key.partition(".")[0] == "sweep":
        return source
    data = {**source.data, "sweep": dict(sweep)} if sweep else _without(source.data, "sweep")
    return replace(source, data=data)


def _without(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != key}


def _variants(sweep: Mapping[str, Any]) -> Mapping[str, Any]:
    found = sweep.get("variants")
    return found if isinstance(found, Mapping) else {}


def _with_variant(
    sweep: Mapping[str, Any], axis: str, name: str, assignment: str
) -> dict[str, Any]:
    """The sweep with one variant of an axis."""
    named = _variants(sweep)[axis]
    names = {str(one): one for one in named} if isinstance(named, Mapping) else {}
    if name not in names:
        near = nearest(name, list(names))
        hint = f" (did you mean {near}?)" if near else ""
        known = ", ".join(names)
        raise InputError(f"--set {assignment}: expected a variant ({known}), got '{name}'{hint}")
    chosen = {**_variants(sweep), axis: {names[name]: named[names[name]]}}
    return _without_base({**sweep, "variants": chosen}, axis, unless=name)


def _without_axis(sweep: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The sweep without the axis of a key that is set."""
    if key in WORDS or key not in sweep:
        return dict(sweep)
    return _without_base(_without(sweep, key), key)


def _without_base(sweep: dict[str, Any], axis: str, unless: str | None = None) -> dict[str, Any]:
    """The sweep with a base line that says nothing of an axis, unless it says this."""
    base = sweep.get("base")
    if not isinstance(base, Mapping) or axis not in base or str(base[axis]) == unless:
        return sweep
    left = _without(base, axis)
    return {**sweep, "base": left} if left else _without(sweep, "base")


def _refuse_in_vain(sweep: Mapping[str, Any], key: str, assignment: str) -> None:
    """Say so if every point of the sweep sets a key again."""
    for axis, others in _set_by(sweep):
        for other in others:
            if (key == other and axis != f"sweep.{key}") or key.startswith(f"{other}."):
                raise InputError(
                    f"--set {assignment}: every point of {axis} sets {other} again",
                    hint=f"--set '{axis}=…' replaces that, --set sweep=null all axes",
                )


def _set_by(sweep: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """By axis, the keys that all of its points set."""
    for key in sweep:
        if key not in WORDS:
            yield f"sweep.{key}", [str(key)]
    zipped = sweep.get("zip")
    for group in zipped if isinstance(zipped, list) else [zipped]:
        if isinstance(group, Mapping):
            yield "sweep.zip", [str(key) for key in group]
    for axis, named in _variants(sweep).items():
        points = list(named.values()) if isinstance(named, Mapping) else []
        if points and all(isinstance(point, Mapping) for point in points):
            shared = set.intersection(*(set(map(str, point)) for point in points))
            yield f"sweep.variants.{axis}", sorted(shared)
