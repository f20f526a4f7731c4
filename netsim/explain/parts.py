"""The critical path in parts: every second of a run falls to one row and one cause.

The causes are `launch` (a host's and a kernel's start), `wire` (the latency of links), `protocol`
(synchronisation and start-up before bytes move), `transfer` (bytes at the rate that the row would
have alone), `sharing` (what others on the same links cost), `waiting` (for a credit of the peer, or
a given time) and `compute`.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from netsim.explain.rates import Limits, Loads, full_rates, limits
from netsim.metrics.critical import critical_path, on_host
from netsim.program import Program, Timeline
from netsim.schedule import COMPUTE, MARK

CAUSES = ("launch", "wire", "protocol", "transfer", "sharing", "waiting", "compute")

OWN_RATE = -1  # the link of a row that its own cap limits
NOTHING = -2  # and of one that nothing limits


@dataclass(frozen=True, slots=True)
class Segment:
    """One row of the path with what led up to it; all times in seconds.

    `before` is the row that it waited for (-1: none) and `lag` the number of that dependency's lag
    in the schedule. `link` limits its flow: a number of the link table, `OWN_RATE` or `NOTHING`;
    `alike` are all that limit it alike, any of which would slow it alone.
    """

    row: int
    before: int
    lag: int
    begin: float
    end: float
    link: int
    seconds: dict[str, float]
    alike: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Split:
    """All segments from first to last, and the seconds of every cause; they add up to `total`."""

    segments: tuple[Segment, ...]
    total: float
    seconds: dict[str, float]


def split_path(
    program: Program, timeline: Timeline, *, launch: float = 0.0, loads: Loads | None = None
) -> Split:
    """Split the critical path of a run that a launch of so many seconds comes before."""
    rows = critical_path(program, timeline).rows
    flows = _flows(program, timeline, rows, loads or Loads(program, timeline))
    segments = []
    for place, row in enumerate(rows.tolist()):
        before = int(rows[place - 1]) if place else -1
        lag, seconds = _lead(program, timeline, row, before)
        for cause, spent in flows.causes(place):
            seconds[cause] = seconds.get(cause, 0.0) + spent
        begin = float(timeline.start[row])
        end, limit = float(timeline.end[row]), int(flows.limits.link[place])
        alike = flows.limits.alike[place]
        segments.append(Segment(row, before, lag, begin, end, limit, seconds, alike))
    if segments and segments[0].seconds.get("launch") and "waiting" in segments[0].seconds:
        first = segments[0].seconds  # a kernel that a host launches at a given time
        first["launch"] += first.pop("waiting")
    totals = dict.fromkeys(CAUSES, 0.0)
    totals["launch"] += launch
    for segment in segments:
        for cause, value in segment.seconds.items():
            totals[cause] += value
    return Split(tuple(segments), launch + timeline.makespan, totals)


def _lead(
    program: Program, timeline: Timeline, row: int, before: int
) -> tuple[int, dict[str, float]]:
    """What passes between the end of the row before and the start of a row, by cause."""
    start = float(timeline.start[row])
    if before < 0:
        return -1, ({"waiting": start} if start > 0 else {})
    schedule = program.schedule
    span = slice(int(schedule.dep_ptr[row]), int(schedule.dep_ptr[row + 1]))
    lags = [
        int(lag)
        for earlier, lag in zip(schedule.dep_row[span], schedule.dep_lag[span], strict=True)
        if earlier == before
    ]
    latency = float(program.path_latency[program.path[before]])
    waits = [
        schedule.lags[lag].seconds + (latency if schedule.lags[lag].arrival else 0.0)
        for lag in lags
    ]
    lag = lags[int(np.argmax(waits))]
    gap = max(0.0, start - float(timeline.end[before]))
    if not schedule.lags[lag].arrival:
        return lag, ({"waiting": gap} if gap > 0 else {})
    wire = min(latency, gap) if schedule.lags[lag].seconds > 0 else gap
    return lag, {
        cause: spent for cause, spent in (("wire", wire), ("protocol", gap - wire)) if spent > 0
    }


@dataclass(frozen=True, slots=True)
class _Flows:
    """By row of the path: its kind, start-up, time at full rate, the rest, and what limits it."""

    kind: NDArray[np.generic]
    launched: NDArray[np.bool_]
    startup: NDArray[np.float64]
    alone: NDArray[np.float64]
    shared: NDArray[np.float64]
    limits: Limits

    def causes(self, place: int) -> list[tuple[str, float]]:
        """The causes of the time from start to end of one row."""
        startup, alone = float(self.startup[place]), float(self.alone[place])
        shared, kind = float(self.shared[place]), self.kind[place]
        begun = "launch" if kind == MARK else "protocol"
        moves = "compute" if kind == COMPUTE else "launch" if self.launched[place] else "transfer"
        rest = "launch" if moves == "launch" else "sharing"
        parts = [(begun, startup), (moves, alone), (rest, shared)]
        return [(cause, spent) for cause, spent in parts if spent > 0]


def _flows(program: Program, timeline: Timeline, rows: NDArray[np.int64], loads: Loads) -> _Flows:
    style = program.schedule.style[rows]
    spent = timeline.end[rows] - timeline.start[rows]
    startup = np.minimum(program.style_values("latency")[style], spent)
    flow = spent - startup
    amount = program.schedule.amount[rows]
    rate = full_rates(program, rows)
    alone = np.divide(amount, rate, out=np.zeros_like(amount), where=rate > 0)
    alone = np.where(alone >= flow * (1 - 1e-9), flow, alone)
    return _Flows(
        program.schedule.kind[rows],
        on_host(program, rows),
        startup,
        alone,
        flow - alone,
        limits(program, timeline, rows, flow - alone > flow * 1e-6, loads),
    )
