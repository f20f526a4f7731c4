"""How the time of a program depends on its parameters: rates and latencies of classes of links, and
times of the protocol.

A parameter can be scaled by a factor, which gives another program with the same rows.
"""

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
from netsim.program.path_entries import active_entries, owners_of
from netsim.program.program import Program
from netsim.schedule.schedule import COMPUTE, MARK, Style

LABELS = {
    **SPOKEN, "upi": "CPU interconnect", "sm": "channel's SM", "hbm": "GPU memory",
    "proxy": "proxy thread", "nic_msg": "NIC message", "nvls": "in-switch reduction",
    "host": "host launch",
}  # fmt: skip
ONE_FIGURE = {"bus": "pcie"}  # the rate of both directions follows from that of one PCIe link
LATENCIES = {**LABELS, "nic": "entry to a NIC", "fabric": "fabric hop"}


@dataclass(frozen=True, slots=True)
class Case:
    """A program, and the seconds of the launch that precedes its first row."""

    program: Program
    launch: float = 0.0


@dataclass(frozen=True, slots=True)
class Parameter:
    """A rate or a latency on which the time depends. A larger rate is faster, a larger latency is
    slower.

    Args:
        key: name in files, such as `nvlink.rate`.
        label: name for the user.
        rate: whether it is a rate.
        scaled: returns a case with the parameter multiplied by a factor.
        value: its value in `unit`; None if the links of the class differ.
    """

    key: str
    label: str
    rate: bool
    scaled: Callable[[Case, float], Case]
    value: float | None = None
    unit: str = ""


def parameters_of(case: Case) -> list[Parameter]:
    """Return all parameters of a program that are neither zero nor infinite."""
    kinds = link_kinds(case.program)
    entered = latency_kinds(case.program)
    names = list(dict.fromkeys(kinds[case.program.paths.link].tolist()))
    parameters = [_rate(case.program, kinds, name) for name in names]
    own_rate = _own_rate(case.program)
    if own_rate is not None:
        parameters = [
            _both(rate, own_rate) if rate and rate.key == "sm.rate" else rate for rate in parameters
        ]
    if own_rate is not None and own_rate_key(case.program) == "own.rate":
        parameters.append(own_rate)
    names = list(dict.fromkeys(entered[case.program.paths.link].tolist()))
    parameters += [_latency(case.program, entered, name) for name in names]
    parameters += _of_styles(case)
    parameters += _of_lags(case.program)
    return [parameter for parameter in parameters if parameter is not None]


def link_kinds(program: Program) -> NDArray[np.str_]:
    """Return for every link that paths use the kind of link whose parameter sets its rate; "" for
    other links.
    """
    kinds = np.full(len(program.links), "", dtype="<U8")
    for link in np.unique(program.paths.link).tolist():
        kind = program.links.kind(link)
        kinds[link] = ONE_FIGURE.get(kind, kind)
    return kinds


def latency_kinds(program: Program) -> NDArray[np.str_]:
    """By link, the kind of link whose parameter sets its latency; "" for links that no path uses.

    A link into a NIC has the latency of NICs; another link of the kind nic, which enters a switch,
    has that of the fabric.
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
    """By path, the seconds of its latency that are due to links of the kind `name`.

    `kinds` is the kind of every link.
    """
    paths = program.paths
    owner = owners_of(paths.ptr)
    latency = program.links.latency[paths.link]
    latency_here = np.where(kinds[paths.link] == name, latency, 0.0)
    total = np.bincount(owner, latency * paths.weight, len(paths))
    part = np.bincount(owner, latency_here * paths.weight, len(paths))
    share = np.divide(part, total, out=np.zeros(len(paths)), where=total > 0)
    return share * paths.latency


def _common(values: NDArray[np.float64]) -> float | None:
    """Return the value that all values have, or None if they differ."""
    return float(values[0]) if len(values) and np.ptp(values) <= 1e-9 * values[0] else None


def _rate(program: Program, kinds: NDArray[np.str_], name: str) -> Parameter | None:
    """Return the parameter for the rate of the links of one kind.

    None if all these links are dead or unlimited.

    - `kinds`: the kind of every link, as `link_kinds` returns it.
    - `name`: the kind.
    """
    is_kind = kinds == name
    rates = program.links.capacity[is_kind]
    limited_rates = rates[np.isfinite(rates) & (rates > 0)]
    if not len(limited_rates):
        return None
    scaled = partial(_with_scaled_rates, is_scaled=is_kind)
    label = LABELS.get(name, name)
    if name in IN_SECONDS:
        return Parameter(key=f"{name}.rate", label=f"{label} speed", rate=True, scaled=scaled)
    common_rate = _common(limited_rates)
    return Parameter(
        key=f"{name}.rate",
        label=f"{label} rate",
        rate=True,
        scaled=scaled,
        value=None if common_rate is None else common_rate / 1e9,
        unit="GB/s",
    )


def _with_scaled_rates(case: Case, factor: float, *, is_scaled: NDArray[np.bool_]) -> Case:
    """Return the case with the rates of some links multiplied by `factor`, now and at all times.

    - `is_scaled`: by link, whether its rate is multiplied. A dead link stays dead.
    """
    links = case.program.links
    capacity = links.capacity.copy()
    capacity[is_scaled & (capacity > 0)] *= factor  # 0 times infinity would not be a number
    changes = tuple(
        (time, link, rate * factor if is_scaled[link] and rate else rate)
        for time, link, rate in links.changes
    )
    paths = case.program.paths
    active = active_entries(paths.link, capacity, changes)
    active |= paths.active & (capacity == inf)[paths.link]  # unlimited links of senders
    program = replace(
        case.program,
        links=replace(links, capacity=capacity, changes=changes),
        paths=replace(paths, active=active),
    )
    return replace(case, program=program)


def _latency(program: Program, kinds: NDArray[np.str_], name: str) -> Parameter | None:
    """The parameter for the latency of the links of the kind `name`; None if their latency is 0.

    `kinds` is the kind of every link, as `latency_kinds` returns it.
    """
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
        key=f"{name}.latency",
        label=f"{LATENCIES.get(name, name)} latency",
        rate=False,
        scaled=scaled,
        value=value,
        unit="us",
    )


def own_rate_key(program: Program) -> str:
    """The key of the parameter that sets the highest rate of a row by itself: "sm.rate" if SMs are
    links of the program, otherwise "own.rate".
    """
    links = np.unique(program.paths.link).tolist()
    return "sm.rate" if any(program.links.kind(link) == "sm" for link in links) else "own.rate"


def _own_rate(program: Program) -> Parameter | None:
    """The parameter for the highest rates of rows that are set by their style, without those of
    computations; None if no row has such a rate.
    """
    caps = [
        style.cap for style in program.schedule.styles if style.cap < inf and style.kind != COMPUTE
    ]
    if not caps:
        return None

    def scaled(case: Case, factor: float) -> Case:
        return _restyled(
            case,
            lambda style: (
                style if style.kind == COMPUTE else replace(style, cap=style.cap * factor)
            ),
        )

    value = _common(np.array(caps))
    return Parameter(
        key="own.rate",
        label="rate of one flow",
        rate=True,
        scaled=scaled,
        value=value and value / 1e9,
        unit="GB/s",
    )


def _both(first: Parameter, second: Parameter) -> Parameter:
    """The first parameter, changed so that scaling it also scales the second one by the same
    factor.
    """
    return replace(
        first, scaled=lambda case, factor: second.scaled(first.scaled(case, factor), factor)
    )


def _of_styles(case: Case) -> list[Parameter | None]:
    """Two parameters: the start-up of slices, and the launch. Each is None if it takes no time."""
    styles = case.program.schedule.styles
    has_startup = any(style.latency > 0 and style.kind != MARK for style in styles)
    launched = case.launch > 0 or any(style.latency > 0 and style.kind == MARK for style in styles)

    def scale_latency(old: Case, factor: float, *, marks: bool) -> Case:
        def scaled(style: Style) -> Style:
            if (style.kind == MARK) is not marks:
                return style
            return replace(style, latency=style.latency * factor)

        return _restyled(old, scaled)

    def launch(old: Case, factor: float) -> Case:
        return replace(scale_latency(old, factor, marks=True), launch=old.launch * factor)

    startup = partial(scale_latency, marks=False)
    value = case.launch * 1e6 or None
    return [
        Parameter("startup.latency", "start-up of a slice", False, startup)
        if has_startup
        else None,
        Parameter(key="launch", label="launch", rate=False, scaled=launch, value=value, unit="us")
        if launched
        else None,
    ]


def _restyled(case: Case, change: Callable[[Style], Style]) -> Case:
    """Return the case with every style of its schedule replaced by `change(style)`."""
    schedule = case.program.schedule
    changed = replace(schedule, styles=tuple(change(style) for style in schedule.styles))
    return replace(case, program=replace(case.program, schedule=changed))


def _of_lags(program: Program) -> list[Parameter | None]:
    """Two parameters: the synchronization of the protocol (lags after arrivals), and the return of
    credits (other lags). Each is None if it takes no time.
    """
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


STEP = 0.01  # the relative change of a parameter from which a slope is computed
SWING = 0.10  # the relative change of a parameter for a tornado chart
_NOTICED = 1e-3  # an anomaly that is a smaller fraction of the time is not reported
MOST_ROWS = 4_000_000  # most rows that are simulated to confirm the critical path's slopes


@dataclass(frozen=True, slots=True)
class ParameterAnswer:
    """How the time depends on one parameter; all times in seconds, None if not simulated.

    - `on_path`: the part of the critical path that the parameter determines. If the parameter grows
      by one percent, the time changes by one percent of `on_path`: it falls for a rate and grows
      for a latency. If two kinds of links are equally full, a lower rate of either is slower, but a
      higher rate of one is not faster; half of the time is attributed to each.
    - `better`, `worse`: the times with the parameter changed by `STEP` in each direction.
    - `swing`: the times with the parameter changed by `SWING` (better, worse).
    - `ideal`: the time if the parameter is infinitely fast.
    """

    parameter: Parameter
    on_path: float
    better: float | None = None
    worse: float | None = None
    swing: tuple[float, float] | None = None
    ideal: float | None = None

    def slope(self) -> float | None:
        """Return the seconds by which the time changes if the parameter doubles, extrapolated
        linearly from small steps.
        """
        if self.better is None or self.worse is None:
            return None
        change = (self.worse - self.better) / (2 * STEP)
        return -change if self.parameter.rate else change

    def expected(self) -> float:
        """Return the slope that follows from the critical path (see `slope`)."""
        return -self.on_path if self.parameter.rate else self.on_path

    def anomalous(self, now: float) -> bool:
        """Whether the time changes in a way that no single path explains.

        It does if a better parameter makes it longer, if a worse one makes it shorter, or if it
        changes by a larger fraction than the parameter. Then rows that share links overlap with
        other rows than before, and no slope can be stated. `now` is the time with unchanged
        parameters, in seconds.
        """
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


def what_if(case: Case, split: Split, *, engine: str, most_rows: int) -> list[ParameterAnswer]:
    """Return how the time depends on every parameter, those with the largest effect first.

    Parameters are simulated in the order of their time on the critical path, as long as no more
    than `most_rows` rows are simulated; for the others only `on_path` is known.
    """
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
            answers.append(ParameterAnswer(parameter, on_path))
            continue
        sign = 1 if parameter.rate else -1
        times = [time(parameter, 1 + sign * step) for step in (STEP, -STEP, SWING, -SWING)]
        ideal = time(parameter, inf if parameter.rate else 0.0)
        answers.append(
            ParameterAnswer(
                parameter=parameter,
                on_path=on_path,
                better=times[0],
                worse=times[1],
                swing=(times[2], times[3]),
                ideal=ideal,
            )
        )
    return sorted(answers, key=lambda entry: -_weight(entry))


def _weight(answer: ParameterAnswer) -> float:
    """Return the size of a parameter's effect in seconds, by which answers are sorted."""
    slope = answer.slope()
    return max(answer.on_path if slope is None else abs(slope), 1e-9 * answer.on_path)


def path_seconds(program: Program, split: Split) -> dict[str, float]:
    """Return the seconds of the critical path that each parameter determines, by the key of the
    parameter.
    """
    kinds = link_kinds(program)
    seconds_of: dict[str, float] = {}

    def add(key: str, seconds: float) -> None:
        seconds_of[key] = seconds_of.get(key, 0.0) + seconds

    wires = _wire_parts(program, split)
    for name, seconds in wires.items():
        add(f"{name}.latency", seconds)
    add("launch", split.seconds["launch"])
    schedule = program.schedule
    own_rate = own_rate_key(program)
    for segment in split.segments:
        style = schedule.styles[int(schedule.style[segment.row])]
        parts = segment.seconds
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
    """Return the seconds of link latency on the critical path by the kind of link that sets it."""
    kinds = latency_kinds(program)
    segments = [segment for segment in split.segments if segment.seconds.get("wire")]
    before = np.array([segment.before for segment in segments], np.int64)
    seconds = np.array([segment.seconds["wire"] for segment in segments])
    if not len(before):
        return {}
    path = program.path[before]
    parts_of = {}
    for name in np.unique(kinds[program.paths.link]).tolist():
        parts = latency_parts(program, kinds, name)[path]
        path_latency = program.paths.latency[path]
        parts_of[name] = float((seconds * parts / path_latency).sum())
    return parts_of
