"""How a time answers to each parameter: from the critical path, and by simulating again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from netsim.engines import COMPILED_FROM, simulate
from netsim.explain.parameters import (
    Case,
    Parameter,
    latency_kinds,
    latency_parts,
    link_kinds,
    own_rate_key,
    parameters_of,
)
from netsim.explain.parts import OWN_RATE, Split
from netsim.program import Program
from netsim.schedule import COMPUTE, MARK

STEP = 0.01  # by which a parameter is changed to see how steep the answer is
SWING = 0.10  # and to draw a tornado chart
_NOTICED = 1e-3  # of the time: an anomaly that is less is not worth a word
MOST_ROWS = 4_000_000  # simulated again in all, to confirm what the critical path says


@dataclass(frozen=True, slots=True)
class Answer:
    """What one parameter does to the time; all times in seconds, None where not simulated.

    `on_path` is the part of the critical path that it sets: one percent more of it is one percent
    of `on_path`, less for a rate and more for a latency. Where kinds of links are full alike, less
    of either is slower and more of one alone is no faster: half counts for each. `better` and
    `worse` are the times with the parameter a step to each side, `swing` with ten steps, `ideal`
    infinitely fast.
    """

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
        share links then meet others than before, and no slope can be read out of it.
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


Advance = Callable[[int, int], None]


def what_if(
    case: Case,
    split: Split,
    *,
    engine: str = "auto",
    most_rows: int = MOST_ROWS,
    advance: Advance = lambda done, of: None,
) -> list[Answer]:
    """An answer for every parameter, those that matter most first.

    Parameters are confirmed in that order as long as no more than `most_rows` rows are simulated.
    """
    parameters = parameters_of(case)
    seconds = path_seconds(case.program, split)
    parameters.sort(key=lambda one: -seconds.get(one.key, 0.0))
    able = min(len(parameters), most_rows // max(1, 5 * len(case.program)))
    if engine == "auto" and 5 * able * len(case.program) >= COMPILED_FROM:
        engine = "compiled"

    def time(parameter: Parameter, factor: float) -> float:
        new = parameter.scaled(case, factor)
        return new.launch + simulate(new.program, engine).makespan

    answers = []
    for number, parameter in enumerate(parameters):
        on_path = seconds.get(parameter.key, 0.0)
        advance(number, len(parameters))
        if number >= able:
            answers.append(Answer(parameter, on_path))
            continue
        sign = 1 if parameter.rate else -1
        times = [time(parameter, 1 + sign * step) for step in (STEP, -STEP, SWING, -SWING)]
        ideal = time(parameter, inf if parameter.rate else 0.0)
        answers.append(Answer(parameter, on_path, times[0], times[1], (times[2], times[3]), ideal))
    return sorted(answers, key=lambda one: -_weight(one))


def _weight(answer: Answer) -> float:
    slope = answer.slope()
    return max(answer.on_path if slope is None else abs(slope), 1e-9 * answer.on_path)


def path_seconds(program: Program, split: Split) -> dict[str, float]:
    """Seconds of the critical path by the parameter that sets them."""
    kinds = link_kinds(program)
    found: dict[str, float] = {}

    def add(key: str, seconds: float) -> None:
        found[key] = found.get(key, 0.0) + seconds

    wires = _wire_parts(program, split)
    for name, seconds in wires.items():
        add(f"{name}.latency", seconds)
    add("launch", split.seconds["launch"])
    schedule, own = program.schedule, own_rate_key(program)
    for segment in split.segments:
        style, parts = schedule.styles[int(schedule.style[segment.row])], segment.seconds
        flow = sum(parts.get(cause, 0.0) for cause in ("transfer", "sharing", "compute"))
        named = {f"{kinds[link]}.rate" if link >= 0 else own for link in segment.alike}
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
    return found


def _wire_parts(program: Program, split: Split) -> dict[str, float]:
    """Wire latency on the path by the figure that sets it."""
    kinds = latency_kinds(program)
    before = np.array([s.before for s in split.segments if s.seconds.get("wire")], np.int64)
    seconds = np.array([s.seconds["wire"] for s in split.segments if s.seconds.get("wire")])
    if not len(before):
        return {}
    path = program.path[before]
    found = {}
    for name in np.unique(kinds[program.paths.link]).tolist():
        parts = latency_parts(program, kinds, name)[path]
        whole = program.paths.latency[path]
        found[name] = float((seconds * parts / whole).sum())
    return found


def confirmed(answers: Sequence[Answer]) -> int:
    """How many answers were simulated."""
    return sum(answer.ideal is not None for answer in answers)
