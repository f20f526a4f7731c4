"""The constants of execution with those that were calibrated on a system in their place."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from netsim.errors import InputError, suggest
from netsim.nccl.mechanism import Mechanism
from netsim.topology.stamped import BOTH_WAYS, MACHINE, TRANSPORT, Figure, value_of

LAUNCHES = ("launch.host", "launch.kernel", "launch.each_channel", "launch.each_send")
ELSEWHERE = (*LAUNCHES, *MACHINE, *TRANSPORT, BOTH_WAYS)  # figures that are not of execution


def calibrated(mechanism: Mechanism, figures: Mapping[str, Figure]) -> Mechanism:
    """The mechanism with some of its constants replaced, by names such as `nvlink.sync.ll`."""
    for name, figure in figures.items():
        if name in ELSEWHERE:
            continue
        if name not in names_of(mechanism):
            known = [*ELSEWHERE, *names_of(mechanism)]
            raise InputError(f"calibration: there is no figure {name}{suggest(name, known)}")
        mechanism = _replaced(mechanism, name.split("."), value_of(name, figure))
    return mechanism


def names_of(value: Any, prefix: str = "") -> list[str]:
    """The dotted names of all constants that are numbers."""
    found: list[str] = []
    for field in fields(value):
        inside = getattr(value, field.name)
        if is_dataclass(inside):
            found += names_of(inside, f"{prefix}{field.name}.")
        elif isinstance(inside, float):
            found.append(prefix + field.name)
    return found


def constant(mechanism: Mechanism, name: str) -> float:
    """One constant by its dotted name."""
    found: Any = mechanism
    for part in name.split("."):
        found = getattr(found, part)
    return float(found)


def _replaced(value: Any, path: list[str], new: float) -> Any:
    if len(path) == 1:
        return replace(value, **{path[0]: new})
    return replace(value, **{path[0]: _replaced(getattr(value, path[0]), path[1:], new)})
