"""The critical path of a run: the slack of rows, what limits their rates, and which rows share
their links.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.base.values import dataclass
from netsim.metrics.bound import critical_path, on_host, rates_alone
from netsim.metrics.links import Loads, room_until, utilisation_of
from netsim.program.program import Program, Timeline
from netsim.schedule.schedule import COMPUTE, MARK


def slacks(program: Program, timeline: Timeline) -> NDArray[np.float64]:
    """Return the slack of every row in seconds: how much later it could finish without making the
    run longer.

    It is computed from the end of the run back over all dependencies.
    """
    schedule = program.schedule
    end = timeline.end
    start = timeline.start
    earlier = schedule.dep_row
    lag = schedule.dep_lag
    later = np.repeat(np.arange(len(program)), np.diff(schedule.dep_ptr))
    wait = program.lag_seconds[lag]
    wait += program.lag_arrival[lag] * program.path_latency[program.path[earlier]]
    room = (start[later] - end[earlier] - wait).tolist()  # how long the later row waited longer
    slack = (timeline.makespan - end).tolist()
    pointers = schedule.dep_ptr.tolist()
    rows = earlier.tolist()
    for row in range(len(program) - 1, -1, -1):
        row_slack = slack[row]
        for place in range(pointers[row], pointers[row + 1]):
            spare = row_slack + room[place]
            slack[rows[place]] = min(slack[rows[place]], spare)
    least: NDArray[np.float64] = np.maximum(np.array(slack), 0.0)
    return least


EQUAL_LIMITS = 1e-6  # links count as equally full or slow up to this relative difference


def _rates(program: Program, path: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Two arrays for the path with a number: its links, and the rate in bytes/s that each link
    allows to a row which has the link to itself.
    """
    paths = program.paths
    span = slice(int(paths.ptr[path]), int(paths.ptr[path + 1]))
    link = paths.link[span]
    return link, program.links.capacity[link] / paths.weight[span]


@dataclass(frozen=True)
class Limits:
    """What limits the rate of some rows, one entry for each.

    Args:
        link: number of the fullest link of the row's path if other rows slowed it, else of the
            slowest link; -1 if the row's own highest rate limits it, -2 if nothing does.
        equal_links: all links that are equally full or slow, with -1 for the own rate.
    """

    link: NDArray[np.int64]
    equal_links: list[tuple[int, ...]]


def limits(
    program: Program,
    timeline: Timeline,
    rows: NDArray[np.int64],
    slowed: NDArray[np.bool_],
    loads: Loads,
) -> Limits:
    """What limits each of `rows`.

    - `slowed`: by entry of `rows`, whether other rows on the same links slowed it.
    - `loads`: the loads of links over time.
    """
    result = Limits(np.full(len(rows), -2, np.int64), [()] * len(rows))
    begin, end = loads.flow(rows)
    cap = program.caps[program.schedule.style[rows]]
    path = program.path[rows]
    for number in np.unique(path).tolist():
        members = np.flatnonzero((path == number) & (program.schedule.amount[rows] > 0))
        if number < 0:
            _note(result, members, np.array([-1]), np.ones((1, len(members)), bool))
            continue
        link, alone = _rates(program, number)
        busy = members[slowed[members]]
        free = members[~slowed[members]]
        rates = np.concatenate([[cap[free], *([rate] * len(free) for rate in alone)]])
        is_slowest = (rates <= rates.min(axis=0) * (1 + EQUAL_LIMITS)) & np.isfinite(rates)
        _note(result, free, np.concatenate([[-1], link]), is_slowest)
        if len(busy) and len(link):
            share = _shares(program, loads, link, begin[busy], end[busy])
            _note(result, busy, link, share >= share.max(axis=0) - EQUAL_LIMITS)
    return result


def _note(
    result: Limits, rows: NDArray[np.int64], links: NDArray[Any], limiting: NDArray[np.bool_]
) -> None:
    """Store in `result` what limits some rows.

    - `rows`: positions of these rows in `result`.
    - `links`: numbers of links; the first may be -1, the row's own highest rate.
    - `limiting`: mask [link, row]: whether the link limits the row.

    The first limiting link becomes the row's `link`; -1 only if no other entry limits it as well.
    """
    for row, column in zip(rows.tolist(), limiting.T, strict=True):
        equal_links = tuple(links[column].tolist())
        result.equal_links[row] = equal_links
        if equal_links:
            result.link[row] = (
                equal_links[1] if equal_links[0] < 0 < len(equal_links) - 1 else equal_links[0]
            )


def _shares(
    program: Program,
    loads: Loads,
    link: NDArray[np.int32],
    begin: NDArray[np.float64],
    end: NDArray[np.float64],
) -> NDArray[np.float64]:
    """The utilization of links while rows moved, as a fraction [link, row].

    `begin` and `end` say when each row moved, in seconds.
    """
    use = np.array([loads.between(number, begin, end) for number in link.tolist()])
    rooms = [
        room_until(program.links, number, end) - room_until(program.links, number, begin)
        for number in link.tolist()
    ]
    return utilisation_of(use, np.array(rooms))


# The critical path in parts: every second of a run belongs to one row and one cause. The causes are
# `launch` (the start by a host and of a kernel), `wire` (the latency of links), `protocol`
# (synchronization and start-up before bytes move), `transfer` (bytes at the rate that the row has
# without other rows), `sharing` (the delay by other rows on the same links), `waiting` (for a
# credit of the peer, or for a release time) and `compute`.

CAUSES = ("launch", "wire", "protocol", "transfer", "sharing", "waiting", "compute")

OWN_RATE = -1  # in place of a link: the row's own highest rate limits it


@dataclass(frozen=True, slots=True)
class Segment:
    """One row of the critical path, and the time between the previous row of the path and this one;
    times in seconds.

    Args:
        row: number of the row.
        before: the row for which it waited (-1: none).
        lag: number in the schedule of the lag of that dependency.
        begin: start time.
        end: finish time.
        link: what limits its rate: a number of the link table, `OWN_RATE`, or -2 (nothing).
        seconds: seconds by cause, from the end of `before` to `end`.
        equal_links: all links that limit it equally, each of which would slow it by itself.
    """

    row: int
    before: int
    lag: int
    begin: float
    end: float
    link: int
    seconds: dict[str, float]
    equal_links: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Split:
    """All segments of the critical path in order, and the seconds of every cause, whose sum is
    `total`.
    """

    segments: tuple[Segment, ...]
    total: float
    seconds: dict[str, float]


def split_path(
    program: Program, timeline: Timeline, *, launch: float = 0.0, loads: Loads | None = None
) -> Split:
    """Split the critical path of a run into segments. A launch of `launch` seconds precedes the
    run.
    """
    rows = critical_path(program, timeline).rows
    flows = _flows(program, timeline, rows, loads or Loads(program, timeline))
    segments = []
    for place, row in enumerate(rows.tolist()):
        before = int(rows[place - 1]) if place else -1
        lag, seconds = _lead(program, timeline, row, before)
        for cause, spent in flows.causes(place):
            seconds[cause] = seconds.get(cause, 0.0) + spent
        begin = float(timeline.start[row])
        end = float(timeline.end[row])
        limit = int(flows.limits.link[place])
        equal_links = flows.limits.equal_links[place]
        segments.append(
            Segment(
                row=row,
                before=before,
                lag=lag,
                begin=begin,
                end=end,
                link=limit,
                seconds=seconds,
                equal_links=equal_links,
            )
        )
    if segments and segments[0].seconds.get("launch") and "waiting" in segments[0].seconds:
        first = segments[0].seconds  # the kernel waits until the host has launched it
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
    """(number of a lag, seconds by cause) for the time between the row `before` and the row `row`,
    which waited for it.

    The lag is that of the dependency between both rows. If `before` is -1, `row` waited for its
    release only, and the number is -1.
    """
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
    waits = [schedule.lags[lag].seconds + latency * schedule.lags[lag].arrival for lag in lags]
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
    """The time of each row of the critical path, divided into parts; the arrays have an entry for
    each row.

    - `kind`: kind of the row.
    - `launched`: whether the row is work of a host (a launch).
    - `startup`: seconds before bytes move.
    - `alone`: seconds for its bytes at the rate that it has without other rows.
    - `shared`: further seconds, by which other rows delayed it.
    - `limits`: what limits its rate.
    """

    kind: NDArray[np.generic]
    launched: NDArray[np.bool_]
    startup: NDArray[np.float64]
    alone: NDArray[np.float64]
    shared: NDArray[np.float64]
    limits: Limits

    def causes(self, place: int) -> list[tuple[str, float]]:
        """Return (cause, seconds) of the time from start to finish of row number `place` of the
        path.
        """
        startup = float(self.startup[place])
        alone = float(self.alone[place])
        shared = float(self.shared[place])
        kind = self.kind[place]
        begun = "launch" if kind == MARK else "protocol"
        if kind == COMPUTE:
            moves = "compute"
        else:
            moves = "launch" if self.launched[place] else "transfer"
        rest = "launch" if moves == "launch" else "sharing"
        parts = [(begun, startup), (moves, alone), (rest, shared)]
        return [(cause, spent) for cause, spent in parts if spent > 0]


def _flows(program: Program, timeline: Timeline, rows: NDArray[np.int64], loads: Loads) -> _Flows:
    """Divide the time of each row into start-up, time at full rate, and delay by other rows."""
    style = program.schedule.style[rows]
    spent = timeline.end[rows] - timeline.start[rows]
    startup = np.minimum(program.style_values("latency")[style], spent)
    flow = spent - startup
    amount = program.schedule.amount[rows]
    rate = rates_alone(program)[rows]
    alone = np.divide(amount, rate, out=np.zeros_like(amount), where=rate > 0)
    alone = np.where(alone >= flow * (1 - 1e-9), flow, alone)
    return _Flows(
        kind=program.schedule.kind[rows],
        launched=on_host(program, rows),
        startup=startup,
        alone=alone,
        shared=flow - alone,
        limits=limits(program, timeline, rows, flow - alone > flow * 1e-6, loads),
    )


_MOST = 400  # rows of the path that are examined; those with the largest delay are taken
_NAMED = 3  # most GPUs of a group that are named


@dataclass(frozen=True, slots=True)
class Sharer:
    """The seconds by which the rows on a hop delayed the critical path on a link."""

    link: str
    hop: str
    seconds: float


def sharers(program: Program, split: Split, loads: Loads) -> list[Sharer]:
    """The seconds by which other rows delayed the critical path: an entry for each link and each
    hop of such rows, the largest delay first.

    If more than `_MOST` rows of the path were delayed, only those with the largest delays are
    examined.
    """
    slowed = [
        segment
        for segment in split.segments
        if segment.seconds.get("sharing", 0.0) > 0 and segment.link >= 0
    ]
    slowed.sort(key=lambda segment: -segment.seconds["sharing"])
    seconds_of: dict[tuple[str, str], float] = {}
    for segment in slowed[:_MOST]:
        rows, drawn = loads.users(segment.link)
        begin, end = loads.flow(rows)
        flow = loads.flow(np.array([segment.row]))[0][0]
        lasting = np.maximum(end - begin, 1e-300)
        overlap = np.minimum(end, segment.end) - np.maximum(begin, flow)
        took = np.where((overlap > 0) & (rows != segment.row), drawn * overlap / lasting, 0.0)
        if not took.sum() > 0:
            continue
        labels = _labels(program, segment.row, rows)
        part = segment.seconds["sharing"] / took.sum()
        for name in dict.fromkeys(labels):
            chosen = np.array([label == name for label in labels])
            key = (program.links.name(segment.link), name)
            seconds_of[key] = seconds_of.get(key, 0.0) + float(part * took[chosen].sum())
    listed = [
        Sharer(link, labels, seconds)
        for (link, labels), seconds in seconds_of.items()
        if seconds > 0
    ]
    return sorted(listed, key=lambda sharer: (-sharer.seconds, sharer.link, sharer.hop))


def _labels(
    program: Program, row: int, others: "np.ndarray[tuple[int], np.dtype[np.int64]]"
) -> list[str]:
    """A label for each row of `others`: the hop over which it moves data, or `other channels of
    HOP` if that is also the hop of `row`.
    """
    ends = hop_label(program, row)
    labels = []
    label_of = dict[tuple[int, int, int], str]()
    schedule = program.schedule
    columns = (schedule.style[others], schedule.src[others], schedule.dst[others])
    values = zip(others.tolist(), *(column.tolist() for column in columns), strict=True)
    for rival, style, src, dst in values:
        key = (schedule.styles[style].kind, src, dst)
        if key not in label_of:
            hop = hop_label(program, rival)
            label_of[key] = f"other channels of {hop}" if hop == ends else hop
        labels.append(label_of[key])
    return labels


def hop_label(program: Program, row: int) -> str:
    """Return the hop over which a row moves data as text, `node0.gpu1 -> node0.gpu2`, or the GPU on
    which it works.
    """
    sources, targets = program.schedule.members(row)
    if sources == targets:
        return _named(program, sources)
    return f"{_named(program, sources)} -> {_named(program, targets)}"


def _named(program: Program, ranks: tuple[int, ...]) -> str:
    """Return the names of a few ranks, or the number of many, as text."""
    if len(ranks) > _NAMED:
        return f"{len(ranks)} GPUs"
    return ", ".join(program.gpus[rank] for rank in ranks)
