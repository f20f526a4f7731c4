"""What a program's time depends on, and how it answers: rates and latencies of classes of links.

Each parameter can be scaled by a factor, which gives another program with the same rows."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import inf

import numpy as np
from numpy.typing import NDArray

from netsim.base.startup import at
from netsim.base.values import dataclass
from netsim.engines.engine import COMPILED_FROM, at_hand, simulate
from netsim.explain.path import OWN_RATE, Split
from netsim.metrics.bound import SPOKEN
from netsim.metrics.links import IN_SECONDS
from netsim.program.program import Program
from netsim.program.ways import active_entries, owners_of
from netsim.schedule.schedule import COMPUTE, MARK

LABELS = {
    **SPOKEN, "upi": "CPU interconnect", "sm": "channel's SM", "hbm": "GPU memory",
    "proxy": "proxy thread", "nic_msg": "NIC message", "nvls": "in-switch reduction",
    "host": "host launch",
}  # fmt: skip
ONE_FIGURE = {"bus": "pcie"}  # both ways together follow from the rate of one PCIe link
LATENCIES = {**LABELS, "nic": "entry to a NIC", "fabric": "fabric hop"}


@dataclass(frozen=True, slots=True)
class Case:
    """A program and the seconds of launch that come before its first row."""

    program: Program
    launch: float = 0.0


@dataclass(frozen=True, slots=True)
class Parameter:
    """One figure that the time depends on. More of a rate is faster, more of a time is slower.
    `value` is what all of its class have, in `unit`; None where they differ. `scaled` gives the
    case with the figure times a factor."""

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
    parameters = [_rate(case.program, kinds, name) for name in names]
    own_rate = _own_rate(case.program)
    parameters = [
        _both(one, own_rate) if own_rate and one and one.key == "sm.rate" else one
        for one in parameters
    ]
    if own_rate is not None and own_rate_key(case.program) == "own.rate":
        parameters.append(own_rate)
    names = list(dict.fromkeys(entered[case.program.paths.link].tolist()))
    parameters += [_latency(case.program, entered, name) for name in names]
    parameters += _of_styles(case)
    parameters += _of_lags(case.program)
    return [one for one in parameters if one is not None]


def link_kinds(program: Program) -> NDArray[np.str_]:
    """The kind of every link that paths draw on, by the figure that sets its rate; "" of others."""
    kinds = np.full(len(program.links), "", dtype="<U8")
    for link in np.unique(program.paths.link).tolist():
        kind = program.links.kind(link)
        kinds[link] = ONE_FIGURE.get(kind, kind)
    return kinds


def latency_kinds(program: Program) -> NDArray[np.str_]:
    """By the figure that sets its latency, that of the node it enters: a switch takes a hop."""
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
    latency_here = np.where(kinds[paths.link] == name, latency, 0.0)
    every = np.bincount(owner, latency * paths.weight, len(paths))
    part = np.bincount(owner, latency_here * paths.weight, len(paths))
    share = np.divide(part, every, out=np.zeros(len(paths)), where=every > 0)
    return share * paths.latency


def _common(values: NDArray[np.float64]) -> float | None:
    return float(values[0]) if len(values) and np.ptp(values) <= 1e-9 * values[0] else None


def _rate(program: Program, kinds: NDArray[np.str_], name: str) -> Parameter | None:
    is_kind = kinds == name
    capacity = program.links.capacity[is_kind]
    capacity = capacity[np.isfinite(capacity) & (capacity > 0)]
    if not len(capacity):
        return None

    def scaled(case: Case, factor: float) -> Case:
        links = case.program.links
        room = links.capacity.copy()
        room[is_kind & (room > 0)] *= factor  # a dead link stays dead
        changes = tuple((t, n, c * factor if is_kind[n] and c else c) for t, n, c in links.changes)
        paths = case.program.paths
        active = active_entries(paths.link, room, changes)
        active |= paths.active & (room == inf)[paths.link]  # senders
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
    is_kind = kinds == name
    latency = program.links.latency[is_kind]
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
    caps = [s.cap for s in program.schedule.styles if s.cap < inf and s.kind != COMPUTE]
    if not caps:
        return None

    def scaled(case: Case, factor: float) -> Case:
        return _restyled(case, lambda s: replace(s, cap=s.cap * factor) if s.kind != COMPUTE else s)

    value = _common(np.array(caps))
    return Parameter("own.rate", "rate of one flow", True, scaled, value and value / 1e9, "GB/s")


def _both(first: Parameter, second: Parameter) -> Parameter:
    return replace(
        first, scaled=lambda case, factor: second.scaled(first.scaled(case, factor), factor)
    )


def _of_styles(case: Case) -> list[Parameter | None]:
    styles = case.program.schedule.styles
    begun = any(s.latency > 0 and s.kind != MARK for s in styles)
    launched = case.launch > 0 or any(s.latency > 0 and s.kind == MARK for s in styles)

    def later(old: Case, factor: float, *, marks: bool) -> Case:
        factors = {marks: factor, not marks: 1.0}
        return _restyled(old, lambda s: replace(s, latency=s.latency * factors[s.kind == MARK]))

    def launch(old: Case, factor: float) -> Case:
        return replace(later(old, factor, marks=True), launch=old.launch * factor)

    startup, value = partial(later, marks=False), case.launch * 1e6 or None
    return [
        Parameter("startup.latency", "start-up of a slice", False, startup) if begun else None,
        Parameter("launch", "launch", False, launch, value, "us") if launched else None,
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
        if not any(lag.seconds > 0 and (lag.arrival == 1) == arrival for lag in lags):
            return None

        def scaled(case: Case, factor: float) -> Case:
            schedule = case.program.schedule
            new = tuple(
                replace(lag, seconds=lag.seconds * factor) if (lag.arrival == 1) == arrival else lag
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


STEP = 0.01  # by which a parameter is changed to see how steep the answer is
SWING = 0.10  # and to draw a tornado chart
_NOTICED = 1e-3  # of the time: an anomaly that is less is not worth a word
MOST_ROWS = 4_000_000  # simulated again in all, to confirm what the critical path says


@dataclass(frozen=True, slots=True)
class Answer:
    """What one parameter does to the time; all times in seconds, None where not simulated.

    - `on_path`: the part of the critical path that it sets. One percent more of the parameter is
      one percent of `on_path`, less for a rate and more for a latency. Where kinds of links are
      equally full, less of either is slower and more of one by itself is no faster: half counts
      for each.
    - `better`, `worse`: the times with the parameter one step to each side.
    - `swing`: the times with ten steps; `ideal`: infinitely fast."""

    parameter: Parameter
    on_path: float
    better: float | None = None
    worse: float | None = None
    swing: tuple[float, float] | None = None
    ideal: float | None = None

    def slope(self) -> float | None:
        """Seconds that the time changes by with a parameter twice as large, by small steps."""
        if self.better is None or self.worse is None:
            return None
        change = (self.worse - self.better) / (2 * STEP)
        return -change if self.parameter.rate else change

    def expected(self) -> float:
        """The same slope by the critical path."""
        return -self.on_path if self.parameter.rate else self.on_path

    def anomalous(self, now: float) -> bool:
        """Whether the time, `now`, answers in a way that no single path could: a better figure is
        slower, a worse one faster, or the time changes by more than the figure does. Rows that
        share links then meet others than before, and no slope can be read out of it."""
        if self.better is None or self.worse is None or self.swing is None or self.ideal is None:
            return False
        faster, slower = self.swing
        least = now * _NOTICED
        if (
            max(self.better, faster, self.ideal) > now + least
            or min(self.worse, slower) < now - least
        ):
            return True
        steps = ((self.better, STEP), (self.worse, STEP), (faster, SWING), (slower, SWING))
        return any(abs(time - now) > now * step / (1 - step) + least for time, step in steps)


def what_if(case: Case, split: Split, *, engine: str, most_rows: int) -> list[Answer]:
    """An answer for every parameter, those that matter most first. Parameters are confirmed in that
    order as long as no more than `most_rows` rows are simulated."""
    parameters = parameters_of(case)
    seconds = path_seconds(case.program, split)
    parameters.sort(key=lambda entry: -seconds.get(entry.key, 0.0))
    able = min(len(parameters), most_rows // max(1, 5 * len(case.program)))
    engine = at_hand(engine, many=5 * able * len(case.program) >= COMPILED_FROM)

    def time(parameter: Parameter, factor: float) -> float:
        new = parameter.scaled(case, factor)
        return new.launch + simulate(new.program, engine).makespan

    answers = []
    for number, parameter in enumerate(parameters):
        on_path = seconds.get(parameter.key, 0.0)
        at(f"{parameter.label} changed", number, len(parameters))
        if number >= able:
            answers.append(Answer(parameter, on_path))
            continue
        sign = 1 if parameter.rate else -1
        times = [time(parameter, 1 + sign * step) for step in (STEP, -STEP, SWING, -SWING)]
        ideal = time(parameter, inf if parameter.rate else 0.0)
        answers.append(Answer(parameter, on_path, times[0], times[1], (times[2], times[3]), ideal))
    return sorted(answers, key=lambda entry: -_weight(entry))


def _weight(answer: Answer) -> float:
    slope = answer.slope()
    return max(answer.on_path if slope is None else abs(slope), 1e-9 * answer.on_path)


def path_seconds(program: Program, split: Split) -> dict[str, float]:
    """Seconds of the critical path by the parameter that sets them."""
    kinds = link_kinds(program)
    seconds_of: dict[str, float] = {}

    def add(key: str, seconds: float) -> None:
        seconds_of[key] = seconds_of.get(key, 0.0) + seconds

    wires = _wire_parts(program, split)
    for name, seconds in wires.items():
        add(f"{name}.latency", seconds)
    add("launch", split.seconds["launch"])
    schedule, own_rate = program.schedule, own_rate_key(program)
    for segment in split.segments:
        style, parts = schedule.styles[int(schedule.style[segment.row])], segment.seconds
        flow = sum(parts.get(cause, 0.0) for cause in ("transfer", "sharing", "compute"))
        named = {f"{kinds[link]}.rate" if link >= 0 else own_rate for link in segment.equal_links}
        if named and not (style.kind == COMPUTE and segment.link == OWN_RATE):
            for key in sorted(named):
                add(key, flow if len(named) == 1 else flow / 2)
        protocol = parts.get("protocol", 0.0)
        if style.kind != MARK and protocol:
            startup = min(style.latency, protocol)
            add("startup.latency", startup)
            protocol -= startup
        add("sync.latency", protocol)
        if segment.lag >= 0 and not schedule.lags[segment.lag].arrival:
            add("credit.latency", parts.get("waiting", 0.0))
    return seconds_of


def _wire_parts(program: Program, split: Split) -> dict[str, float]:
    """Wire latency on the path by the figure that sets it."""
    kinds = latency_kinds(program)
    before = np.array([s.before for s in split.segments if s.seconds.get("wire")], np.int64)
    seconds = np.array([s.seconds["wire"] for s in split.segments if s.seconds.get("wire")])
    if not len(before):
        return {}
    path = program.path[before]
    parts_of = {}
    for name in np.unique(kinds[program.paths.link]).tolist():
        parts = latency_parts(program, kinds, name)[path]
        path_latency = program.paths.latency[path]
        parts_of[name] = float((seconds * parts / path_latency).sum())
    return parts_of
