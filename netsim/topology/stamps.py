"""Where every figure of a machine is from: `stamps` of its file, one of five words for each.

A path names a figure (`gpu.sms`) or a part (`gpu.flops`), for all within it; the longest that holds
counts. What no stamp names is assumed. Figures of a `calibration` have a stamp of their own.
"""

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from netsim.errors import suggest
from netsim.topology.stamped import Figure, Stamp
from netsim.values import dataclass
from netsim.yamlio.model import FieldError, Model

WORDS: tuple[Stamp, ...] = get_args(Stamp)
PROSE = ("description", "purpose", "stamps", "calibration")  # these hold no figures
NAMES = ("family", "model_id")  # nor are the numbers by which a CPU is called
Stamps = Mapping[Stamp, tuple[str, ...]]


@dataclass(frozen=True)
class Stamped:
    """One figure of a machine: its path, its value in SI units, where it is from."""

    path: str
    value: Any
    stamp: Stamp


def figures_of(parts: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Path and value of every figure that was given; names and models of parts are none."""
    for name, value in parts.items():
        if name not in PROSE:
            yield from _figures(value, name)


def _figures(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Model):
        for name in type(value).model_fields:
            if name in value.model_fields_set and name not in NAMES:
                yield from _figures(getattr(value, name), f"{path}.{name}")
    elif isinstance(value, Mapping):
        for key, inside in value.items():
            yield f"{path}.{key}", inside
    elif value is not None and not isinstance(value, str):
        yield path, value


def stamped(
    parts: Mapping[str, Any], stamps: Stamps, calibration: Mapping[str, Figure]
) -> list[Stamped]:
    """Every figure with its stamp; a calibrated one takes the place of the nominal one."""
    words = {path: word for word, paths in stamps.items() for path in paths}
    found = [
        Stamped(path, value, _word(path, words))
        for path, value in figures_of(parts)
        if path not in calibration
    ]
    return found + [Stamped(name, one.value, one.stamp) for name, one in calibration.items()]


def _word(path: str, words: Mapping[str, Stamp]) -> Stamp:
    """The stamp of a figure or else of the nearest part that it belongs to."""
    return next((words[part] for part in _upwards(path) if part in words), "assumed")


def check_stamps(parts: Mapping[str, Any], stamps: Stamps) -> None:
    """Every path is a figure or a part with figures, and is there once."""
    known = sorted({part for path, _ in figures_of(parts) for part in _upwards(path)})
    seen: dict[str, str] = {}
    for word, paths in stamps.items():
        for number, path in enumerate(paths):
            if path not in known:
                message = f"this machine has no figure '{path}'{suggest(path, known)}"
                raise FieldError(message, word, number)
            if path in seen:
                raise FieldError(f"'{path}' is stamped {seen[path]} already", word, number)
            seen[path] = word


def _upwards(path: str) -> Iterator[str]:
    """A path and all parts that it lies in, the nearest first."""
    while path:
        yield path
        path = path.rpartition(".")[0]
