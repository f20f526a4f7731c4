"""What a program's time depends on: the rates and latencies of its classes of links, and more.

Each parameter can be scaled by a factor, which gives another program with the same rows.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from netsim.metrics.links import IN_SECONDS
from netsim.program import Program
from netsim.program.active import active_entries
from netsim.program.pack import owners_of
from netsim.schedule import COMPUTE, MARK

LABELS = {
    "nvlink": "NVLink",
    "xgmi": "xGMI",
    "c2c": "C2C",
    "pcie": "PCIe",
    "upi": "CPU interconnect",
    "hostmem": "host memory",
    "nic": "NIC",
    "fabric": "fabric",
    "sm": "channel's SM",
    "sms": "compute",
    "hbm": "GPU memory",
    "proxy": "proxy thread",
    "nic_msg": "NIC message",
    "nvls": "in-switch reduction",
    "host": "host launch",
}
ONE_FIGURE = {"bus": "pcie"}  # both ways together follow from the rate of one PCIe link
LATENCIES = {**LABELS, "nic": "entry to a NIC", "fabric": "fabric hop"}


@dataclass(frozen=True, slots=True)
class Case:
    """A program and the seconds of launch that come before its first row."""

    program: Program
    launch: float = 0.0


@dataclass(frozen=True, slots=True)
class Parameter:
    """One figure that the time depends on.

    More of a rate is faster, more of a time is slower. `value` is what all of its class have, in
    `unit`; None where they differ. `scaled` gives the case with the figure times a factor.
    """

    key: str
    label: str
    rate: bool
    scaled: Callable[[Case, float], Case]
    value: float | None = None
    unit: str = ""


def parameters_of(case: Case) -> list[Parameter]:
    """All parameters of a program that are anything but zero or infinite."""
    kinds, entered = link_kinds(case.program), latency_kinds(case.program)
    names = list(dict.fromkeys(kinds[case.program.paths.link].tolist()))
    found = [_rate(case.program, kinds, name) for name in names]
    own = _own_rate(case.program)
    found = [_both(one, own) if own and one and one.key == "sm.rate" else one for one in found]
    if own is not None and own_rate_key(case.program) == "own.rate":
        found.append(own)
    names = list(dict.fromkeys(entered[case.program.paths.link].tolist()))
    found += [_latency(case.program, entered, name) for name in names]
    found += _of_styles(case)
    found += _of_lags(case.program)
    return [one for one in found if one is not None]


def link_kinds(program: Program) -> NDArray[np.str_]:
    """The kind of every link that paths draw on, by the figure that sets its rate; "" of others."""
    kinds = np.full(len(program.links), "", dtype="<U8")
    for link in np.unique(program.paths.link).tolist():
        kind = program.links.kind(link)
        kinds[link] = ONE_FIGURE.get(kind, kind)
    return kinds


def latency_kinds(program: Program) -> NDArray[np.str_]:
    """The same by the figure that sets its latency, which is that of the node it enters: a switch
    of the fabric takes a hop, whether a NIC or a switch comes before it.
    """
    kinds = link_kinds(program)
    for link in np.flatnonzero(np.isin(kinds, ("nic", "pcie"))).tolist():
        head = program.links.name(link).partition("->")[2]
        if head.rpartition(".")[2].startswith("nic"):
            kinds[link] = "nic"
        elif kinds[link] == "nic":
            kinds[link] = "fabric"
    return kinds


def latency_parts(program: Program, kinds: NDArray[np.str_], name: str) -> NDArray[np.float64]:
    """What the links of one kind contribute to the latency of every path."""
    paths = program.paths
    owner, latency = owners_of(paths.ptr), program.links.latency[paths.link]
    mine = np.where(kinds[paths.link] == name, latency, 0.0)
    every = np.bincount(owner, latency * paths.weight, len(paths))
    part = np.bincount(owner, mine * paths.weight, len(paths))
    share = np.divide(part, every, out=np.zeros(len(paths)), where=every > 0)
    return share * paths.latency


def _common(values: NDArray[np.float64]) -> float | None:
    return float(values[0]) if len(values) and np.ptp(values) <= 1e-9 * values[0] else None


def _rate(program: Program, kinds: NDArray[np.str_], name: str) -> Parameter | None:
    mine = kinds == name
    capacity = program.links.capacity[mine]
    capacity = capacity[np.isfinite(capacity) & (capacity > 0)]
    if not len(capacity):
        return None

    def scaled(case: Case, factor: float) -> Case:
        links = case.program.links
        room = links.capacity.copy()
        room[mine & (room > 0)] *= factor  # a dead link stays dead
        changes = tuple((t, n, c * factor if mine[n] and c else c) for t, n, c in links.changes)
        paths = case.program.paths
        active = active_entries(paths.ptr, paths.link, paths.weight, room, changes)
        program = replace(
            case.program,
            links=replace(links, capacity=room, changes=changes),
            paths=replace(paths, active=active),
        )
        return replace(case, program=program)

    in_seconds = name in IN_SECONDS
    common = _common(capacity)
    value = None if common is None or in_seconds else common / 1e9
    label = f"{LABELS.get(name, name)} {'speed' if in_seconds else 'rate'}"
    return Parameter(f"{name}.rate", label, True, scaled, value, "" if in_seconds else "GB/s")


def _latency(program: Program, kinds: NDArray[np.str_], name: str) -> Parameter | None:
    mine = kinds == name
    latency = program.links.latency[mine]
    if not (latency > 0).any():
        return None
    parts = latency_parts(program, kinds, name)

    def scaled(case: Case, factor: float) -> Case:
        paths = case.program.paths
        paths = replace(paths, latency=np.maximum(paths.latency + (factor - 1) * parts, 0.0))
        return replace(case, program=replace(case.program, paths=paths))

    common = _common(latency[latency > 0])
    value = None if common is None else common * 1e6
    return Parameter(
        f"{name}.latency", f"{LATENCIES.get(name, name)} latency", False, scaled, value, "us"
    )


def own_rate_key(program: Program) -> str:
    """The parameter that rows' own rates belong to: of a block's SM where there are such."""
    links = np.unique(program.paths.link).tolist()
    return "sm.rate" if any(program.links.kind(link) == "sm" for link in links) else "own.rate"


def _own_rate(program: Program) -> Parameter | None:
    """The highest rates of the rows themselves, apart from compute."""
    own = [s.cap for s in program.schedule.styles if s.cap < inf and s.kind != COMPUTE]
    if not own:
        return None

    def scaled(case: Case, factor: float) -> Case:
        return _restyled(case, lambda s: replace(s, cap=s.cap * factor) if s.kind != COMPUTE else s)

    value = _common(np.array(own))
    return Parameter("own.rate", "rate of one flow", True, scaled, value and value / 1e9, "GB/s")


def _both(one: Parameter, other: Parameter) -> Parameter:
    """Two parameters that are one figure of the hardware."""
    return replace(one, scaled=lambda case, factor: other.scaled(one.scaled(case, factor), factor))


def _of_styles(case: Case) -> list[Parameter | None]:
    """Start-up latencies and launches."""
    styles = case.program.schedule.styles
    begun = any(s.latency > 0 and s.kind != MARK for s in styles)
    launched = case.launch > 0 or any(s.latency > 0 and s.kind == MARK for s in styles)

    def startup(old: Case, factor: float) -> Case:
        return _restyled(
            old, lambda s: replace(s, latency=s.latency * factor) if s.kind != MARK else s
        )

    def launch(old: Case, factor: float) -> Case:
        new = _restyled(
            old, lambda s: replace(s, latency=s.latency * factor) if s.kind == MARK else s
        )
        return replace(new, launch=old.launch * factor)

    return [
        Parameter("startup.latency", "start-up of a slice", False, startup) if begun else None,
        Parameter("launch", "launch", False, launch, case.launch * 1e6 or None, "us")
        if launched
        else None,
    ]


def _restyled(case: Case, change: Callable[..., object]) -> Case:
    schedule = case.program.schedule
    styles = tuple(change(style) for style in schedule.styles)
    new = replace(schedule, styles=styles)  # type: ignore[arg-type]
    return replace(case, program=replace(case.program, schedule=new))


def _of_lags(program: Program) -> list[Parameter | None]:
    """Synchronisation comes with arrivals; credits without."""
    lags = program.schedule.lags

    def parameter(arrival: bool, key: str, label: str) -> Parameter | None:
        if not any(lag.seconds > 0 and lag.arrival == arrival for lag in lags):
            return None

        def scaled(case: Case, factor: float) -> Case:
            schedule = case.program.schedule
            new = tuple(
                replace(lag, seconds=lag.seconds * factor) if lag.arrival == arrival else lag
                for lag in schedule.lags
            )
            return replace(
                case, program=replace(case.program, schedule=replace(schedule, lags=new))
            )

        return Parameter(key, label, False, scaled)

    return [
        parameter(True, "sync.latency", "protocol synchronisation"),
        parameter(False, "credit.latency", "return of credits"),
    ]
