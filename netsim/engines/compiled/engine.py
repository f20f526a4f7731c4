"""Running a Program on the compiled engine: set up its arrays, let it run, report on it."""

from collections.abc import Callable
from functools import cached_property
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netsim.engines.compiled.agenda import empty_agenda, grown, places_for
from netsim.engines.compiled.attended import attended
from netsim.engines.compiled.followers import Followers, followers_of
from netsim.engines.compiled.groups import Grouping, group_rows
from netsim.engines.compiled.loop import MORE_ALARMS, MORE_SEATS, STALLED, advance_rows
from netsim.engines.compiled.memory import keep_freed, untouched
from netsim.engines.compiled.queue import empty_queue, longer
from netsim.engines.compiled.state import (
    CHANGE,
    CORE,
    LAG,
    NOBODY,
    SEAT,
    STYLE,
    Future,
    Net,
    Rows,
)
from netsim.engines.stalled import stalled
from netsim.program import Operations, Program, Timeline, beginnings
from netsim.values import dataclass

Floats = NDArray[np.float64]
Progress = Callable[[int, int, float], None]

_PLACES = 1 << 10  # seats and alarms to begin with
MANY = 1_000_000  # rows for which memory that is freed is worth keeping
BRIEF = 5000  # rows that are simulated before anybody could interrupt


@dataclass(frozen=True)
class Simulator:
    """Simulates a program several times. Its groups and who waits for whom are found once."""

    program: Program

    def timeline(
        self, begins: Floats | None = None, *, progress: Progress | None = None
    ) -> Timeline:
        """The Timeline if ranks begin at these times, and `progress(rows done, rows, now)` is told
        how far it is now and then.
        """
        return _simulated(Operations(self.program, np.zeros((1, 0))), self._laid, begins, progress)

    @cached_property
    def _laid(self) -> "_Laid":
        return _laid_out(self.program)


def run(program: Program, *, progress: Progress | None = None) -> Timeline:
    """Simulate a program once."""
    return Simulator(program).timeline(progress=progress)


def run_operations(many: Operations) -> Timeline:
    """Simulate operations in a row: the times of the rows of each, one after the other."""
    return _simulated(many, _laid_out(many.once))


class _Laid(NamedTuple):
    """What runs of a program have in common."""

    grouping: Grouping
    followers: Followers


def _laid_out(program: Program) -> _Laid:
    if len(program) >= MANY:
        keep_freed()
    return _Laid(group_rows(program), followers_of(program.schedule))


def _simulated(
    many: Operations, laid: _Laid, begins: Floats | None = None, progress: Progress | None = None
) -> Timeline:
    program, found = many.once, laid.grouping
    rows = _rows(many, laid, begins)
    ready, free = _list_free_rows(rows)
    places = _places(min(free, len(found.groups) - 1))
    net, future = _net(found, places), _future(many, found, places)
    core = net.core[0]
    core["ready"], core["span"], core["marks"] = ready, len(program), many.launched.shape[1]

    def look() -> None:
        if progress is not None:
            progress(int(core["done"]), len(many), float(core["now"]))

    def stop() -> None:
        core["stop"] = 1

    while True:
        call = advance_rows.ready(rows, net, future)
        state = call() if len(many) < BRIEF else attended(call, stop, look)
        if state == MORE_SEATS:
            net = net._replace(looks=longer(net.looks)) if _has_caps(found) else net
            future = future._replace(ends=grown(future.ends))
        elif state == MORE_ALARMS:
            future = future._replace(alarms=grown(future.alarms))
        else:
            break
    if state == STALLED:
        whole = program if len(many.launched) == 1 else many.unrolled()
        raise _stalled(whole, rows, max(float(core["now"]), float(rows.end.max())))
    return Timeline(rows.start, rows.end)


def _places(seats: int) -> int:
    """Places for so many seats: as many as an agenda of them has, for `looks` knows every seat that
    `ends` has room for.
    """
    return places_for(max(seats, _PLACES))


def _rows(many: Operations, laid: _Laid, begins: Floats | None) -> Rows:
    program, schedule = many.once, many.once.schedule
    times, marks = many.launched.shape
    if begins is None:
        start = np.zeros(len(many))
        start[schedule.release_row] = schedule.release_time
    else:
        start = beginnings.earliest(schedule, begins)
    begins = start.reshape(times, -1)[:, :marks]
    np.maximum(begins, many.launched, out=begins)
    waits = np.tile(np.diff(schedule.dep_ptr), times)
    waits.reshape(times, -1)[1:, :marks] += 1
    styles = np.zeros(len(schedule.styles), STYLE)
    styles["latency"], styles["cap"] = program.style_values("latency"), program.caps
    styles["kind"] = laid.grouping.kind
    lags = np.zeros(len(schedule.lags), LAG)
    lags["seconds"], lags["arrival"] = program.lag_seconds, program.lag_arrival
    return Rows(
        style=schedule.style,
        piece=schedule.piece,
        path=program.path,
        start=start,
        end=np.full(len(many), -1.0),
        waits=waits,
        child=untouched(len(many), np.int32),
        next_ptr=laid.followers.ptr,
        next_row=laid.followers.row,
        next_lag=laid.followers.lag,
        styles=styles,
        lags=lags,
        amount=schedule.pieces.amount,
        path_latency=program.path_latency,
        group=laid.grouping.group,
    )


def _net(found: Grouping, places: int) -> Net:
    """All at rest, as if there had been no run before. What is not touched of the seats takes no
    memory.
    """
    core = np.zeros(1, CORE)
    for name in ("ready", "over", "free_seat", "free_alarm", "dirty", "moved"):
        core[name] = NOBODY
    core["kinds"] = found.kinds
    return Net(
        core=core,
        links=found.links.copy(),
        kinds=found.limits,
        groups=found.groups.copy(),
        draws=found.draws,
        members=found.members,
        seats=untouched(len(found.groups) - 1, SEAT),
        looks=empty_queue(len(found.links) + _has_caps(found) * places),
    )


def _has_caps(found: Grouping) -> bool:
    return bool(np.isfinite(found.limits["cap"]).any())


def _future(many: Operations, found: Grouping, places: int) -> Future:
    """Nothing but the changes of capacity, closed by one that never comes; with room for so many
    seats at first.
    """
    known = [
        (time, capacity, found.number[link])
        for time, link, capacity in many.once.links.changes
        if found.number[link] >= 0
    ]
    return Future(
        ends=empty_agenda(places),
        alarms=empty_agenda(_PLACES),
        alarm_row=untouched(len(many), np.int32),
        changes=np.array([*known, (inf, 0.0, 0)], CHANGE),
    )


def _list_free_rows(rows: Rows) -> tuple[int, int]:
    """Link the rows that wait for nothing, in row order; the first of them, and their number."""
    free = np.flatnonzero(rows.waits == 0).astype(np.int32)
    rows.waits[free] = np.append(free[1:], np.int32(NOBODY))
    return int(free[0]) if len(free) else NOBODY, len(free)


def _stalled(program: Program, rows: Rows, now: float) -> Exception:
    """Rows that never ended, and of those the ones that wait for another such."""
    schedule = program.schedule
    end = np.where(rows.end < 0, inf, rows.end)
    edge = np.repeat(np.arange(len(program)), np.diff(schedule.dep_ptr))
    start = rows.start.copy()
    start[edge[end[schedule.dep_row] == inf]] = inf
    return stalled(program, start.tolist(), end.tolist(), now)
