"""Long textbook rings in closed form: finish times of ranks by sums and maxima, instead of an
engine.

A lane is what one rank does for one ring. In each step a lane waits for two things: the end of its
own last row, and the arrival of the row that the lane before it has sent. Then its row takes some
seconds:

    end[lane, step] = max(end[lane, step - 1], end[before, step - 1] + flight[before]) + took[lane]

With + and max in the place of * and +, that is a product of a vector and a matrix, and `steps`
steps are a power of the matrix: (max,+) algebra. Its entries are the largest sums over all paths
through the steps, which are found without taking the steps one by one: a path begins at some lane q
and passes every lane from q to the lane in question, each with its flight and its row. In the steps
that are left over it stays at a lane, which adds most at the slowest lane that it passes.

That holds only if no row is slowed by another one, which `row_times` checks: the demand on no link
may exceed its capacity, even if all lanes send at once. `long_rings_of` compares the sums with the
engine for the first steps.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.base.memo import different
from netsim.base.values import dataclass
from netsim.collectives.collective import Collective
from netsim.collectives.first_steps import FirstSteps, Message, RingSteps
from netsim.collectives.table import build
from netsim.engines.engine import simulate
from netsim.extent.engine_runs import ends_of, taking_part
from netsim.metrics.bound import Causes, narrowest_kind, rates_alone
from netsim.metrics.links import LinkUse, link_amounts, use_of
from netsim.program.place import place
from netsim.program.program import Program
from netsim.schedule.repeat import Launch
from netsim.schedule.schedule import Schedule
from netsim.topology.graph import Topology
from netsim.topology.network import entries_of

Floats = NDArray[np.float64]
MAX_SINGLE_STEPS = 64
"""Steps up to which they are taken one by one: that is as fast."""
MAX_DIFFERENT_TIMES = 64
"""Different times that the rows of a ring may take; the closed form looks at each of them."""


def ends_after_steps(ends: Floats, took: Floats, flight: Floats, steps: int) -> Floats:
    """The finish times of lanes after `steps` further steps, as [ring, lane] in seconds.

    `ends`, `took` and `flight` are such arrays as well:

    - `ends`: the finish times before these steps.
    - `took`: the seconds that a row of the lane takes.
    - `flight`: the latency from the lane to the next one.
    """
    if steps <= MAX_SINGLE_STEPS:
        return ends_step_by_step(ends, took, flight, steps)
    rings = zip(ends, took, flight, strict=True)
    return np.stack([ends_in_closed_form(*ring, steps) for ring in rings])


def ends_step_by_step(ends: Floats, took: Floats, flight: Floats, steps: int) -> Floats:
    """`ends_after_steps` by the definition, step by step, for one ring or several."""
    for _ in range(steps):
        arrived = np.roll(ends + flight, 1, axis=-1)
        ends = np.maximum(ends, arrived) + took
    return ends


def ends_in_closed_form(ends: Floats, took: Floats, flight: Floats, steps: int) -> Floats:
    """`ends_after_steps` for one ring (arrays by lane), in a time that hardly depends on the number
    of steps.

    The ring is unrolled into laps, enough of them for a path of `steps` steps. For each different
    time of a row (`slowest`), the longest path that stays at a lane with that time is found.
    """
    size = len(ends)
    laps = -(-steps // size) + 1
    hop = np.roll(flight, 1) + took  # from the end of the lane before to the end of this row
    seconds_along = np.cumsum(np.tile(hop, laps))
    lanes = np.arange((laps - 1) * size, laps * size)  # of the last lap, whose ends are wanted
    position = np.arange(laps * size, dtype=np.float64)
    start = np.tile(ends, laps) - seconds_along
    took_along = np.tile(took, laps)
    latest = np.full(size, -np.inf)
    for slowest in np.unique(took).tolist():
        slow_positions = np.where(took_along >= slowest, np.arange(laps * size), -1)
        last_slow = np.maximum.accumulate(slow_positions)[lanes]
        best_start = _greatest(start + position * slowest, lanes - steps, last_slow)
        waits = (steps - position[lanes]) * slowest
        latest = np.maximum(latest, best_start + seconds_along[lanes] + waits)
    return latest


def _greatest(values: Floats, first: NDArray[np.int64], last: NDArray[np.int64]) -> Floats:
    """For each entry of `first` and `last`, the greatest of `values[first]`, …, `values[last]`;
    -inf if `last` is less than `first`.

    In the loop, `table` holds the greatest of each `width` consecutive values, for widths of 1, 2,
    4, …
    """
    result = np.full(len(first), -np.inf)
    length = last - first + 1
    table = values
    width = 1
    while True:
        fits = np.flatnonzero((length >= width) & (length < 2 * width))
        result[fits] = np.maximum(table[first[fits]], table[last[fits] - width + 1])
        if 2 * width > length.max(initial=0):
            return result
        table = np.maximum(table[:-width], table[width:])
        width = 2 * width


# **** The time of every row, if no row is ever slowed by another ****

Ints = NDArray[np.int64]
ROUNDING = 1e-9
"""The fraction by which the demand on a link may exceed its capacity."""


@dataclass(frozen=True, slots=True)
class RowTimes:
    """By row, in seconds: `took` is the time that it takes, `flight` the latency until its data
    arrives.
    """

    took: Floats
    flight: Floats


def row_times(program: Program, first_steps: FirstSteps) -> RowTimes | str:
    """The time of each row if it does not depend on other rows; otherwise the reason, as a
    clause.
    """
    if program.links.changes:
        return "rates of links change"
    if program.schedule.release_row.size:
        return "rows wait for given times"
    rates = rates_alone(program)
    if not (rates > 0).all():
        return "a link has no bandwidth"
    if crowded := _crowded(program, _lanes(program, first_steps), rates):
        return crowded
    style = program.schedule.style
    took = program.style_values("latency")[style] + program.schedule.amount / rates
    if any(len(different(took[call.rows])) > MAX_DIFFERENT_TIMES for call in first_steps.calls):
        return f"rows take more than {MAX_DIFFERENT_TIMES} different times"
    return RowTimes(took, program.path_latency[program.path])


def _lanes(program: Program, first_steps: FirstSteps) -> Ints:
    """By row, the number of its lane; -1 for rows without one, such as marks.

    Rows of a lane run one after the other. The copies of each rank for itself have lanes of their
    own.
    """
    lane = np.full(len(program), -1, np.int64)
    for call in first_steps.calls:
        lane[call.rows] = call.lanes
    next_lane = int(lane.max(initial=-1)) + 1
    for ranks, rows in first_steps.copies:
        lane[rows] = next_lane + ranks
        next_lane += first_steps.ranks
    return lane


def _crowded(program: Program, lane: Ints, rates: Floats) -> str:
    """The most overloaded link if all lanes send at once, as a clause; empty if no link is
    overloaded.

    - `lane`: by row, the number of its lane, or -1.
    - `rates`: by row, its rate if no other row moves, in bytes/s.
    """
    paths = program.paths
    links = program.links
    moving = np.flatnonzero((lane >= 0) & (program.path >= 0))
    pairs = np.unique(lane[moving] * len(paths) + program.path[moving], return_index=True)[1]
    moving = moving[pairs]
    number, entry = entries_of(paths.ptr, program.path[moving])
    owner = moving[number]
    bounded = np.isfinite(links.capacity[paths.link[entry]])
    entry = entry[bounded]
    owner = owner[bounded]
    link = paths.link[entry]
    demand = paths.weight[entry] * rates[owner]
    # A lane sends one row at a time, so its demand on a link is the largest of its rows.
    key = lane[owner] * len(links) + link
    order = np.lexsort((demand, key))
    is_largest = np.ones(len(order), bool)
    is_largest[:-1] = np.diff(key[order]) > 0
    largest = order[is_largest]
    load = np.bincount(link[largest], demand[largest], len(links)) / links.capacity
    worst = int(np.argmax(load))
    if load[worst] <= 1 + ROUNDING:
        return ""
    return f"{links.name(worst)} is asked for {load[worst]:.3g} times what it has"


# **** Finish times of ranks **** They are computed call by call: a message, or all further steps of
# a ring at once.


def ends_of_ranks(
    first_steps: FirstSteps, times: RowTimes, begin: Floats, *, short: bool = False
) -> Floats:
    """By rank, its finish time in seconds if it begins at `begin[rank]`.

    `short`: only the steps that are written are counted, instead of all.
    """
    lanes = 1 + max(int(call.lanes.max(initial=0)) for call in first_steps.calls)
    rank = np.arange(lanes) % first_steps.ranks
    state = _LaneTimes(begin[rank].copy(), np.full(lanes, -np.inf))
    for call in first_steps.calls:
        if isinstance(call, Message):
            _send(state, call, times, begin[rank])
        else:
            # The first step of the ring, which was a message, has waited for everything else.
            steps = call.written if short else call.steps
            flight = times.flight[call.rows]
            took = times.took[call.rows]
            end = ends_after_steps(state.last[call.lanes], took, flight, steps)
            state.arrived[call.lanes] = np.roll(end + flight, 1, axis=-1)
            state.last[call.lanes] = end
    done = begin.copy()
    np.maximum.at(done, rank, np.maximum(state.last, state.arrived))
    for ranks, rows in first_steps.copies:
        done[ranks] = np.maximum(done[ranks], begin[ranks] + times.took[rows])
    return done


class _LaneTimes:
    """Times by lane, in seconds.

    - `last`: the end of the last row that the lane has sent.
    - `arrived`: the arrival of the last row that the lane has received since then; -inf: none.
    """

    def __init__(self, last: Floats, arrived: Floats) -> None:
        self.last = last
        self.arrived = arrived


def _send(state: _LaneTimes, call: Message, times: RowTimes, begin: Floats) -> None:
    """Update `state` for messages: the times of the lanes that send, and of those that receive.

    - `call`: the messages.
    - `times`: by row, its time and latency.
    - `begin`: by lane, when its rank begins the operation, in seconds.
    """
    sender = call.lanes
    receiver = call.receiver
    start = np.maximum(state.last[sender], state.arrived[sender])
    start = np.maximum(start, begin[receiver])  # a receiver may begin later than its sender
    if call.ready:
        start = np.maximum(start, state.arrived[receiver])
    end = start + times.took[call.rows]
    state.arrived[sender] = -np.inf
    state.last[sender] = end
    np.maximum.at(state.arrived, receiver, end + times.flight[call.rows])


# **** Long rings on a topology ****

AGREE = 1e-9
"""The relative difference up to which sums and maxima agree with the engine."""
SMALL_FRACTION = 1e-6
"""The fraction by which times are raised to see how much of the whole time depends on them."""


@dataclass(frozen=True)
class LongRings:
    """A long ring algorithm on a topology where no lane slows another one.

    - `first_steps`: the calls of the algorithm, with the number of steps that are not written.
    - `program`: the first steps of the rings.
    - `times`: the times of the rows of `program`.
    """

    first_steps: FirstSteps
    program: Program
    times: RowTimes

    @property
    def seconds(self) -> float:
        """The seconds of one operation if all ranks begin at once."""
        return float(
            ends_of_ranks(self.first_steps, self.times, np.zeros(self.first_steps.ranks)).max()
        )

    @property
    def schedule(self) -> Schedule:
        """The schedule of the first steps."""
        return self.program.schedule


def long_rings_of(
    collective: Collective,
    algorithm: str,
    parameters: Mapping[str, Any],
    topology: Topology,
    gpus: NDArray[np.int32],
) -> LongRings | str:
    """A ring algorithm on a topology, if its later steps follow from its first ones; otherwise the
    reason why they do not, as a clause.
    """
    first_steps = FirstSteps()
    schedule = build(collective, algorithm, writer=first_steps, **parameters)
    if first_steps.refused:
        return first_steps.refused
    program = place(schedule, topology, gpus.tolist())
    times = row_times(program, first_steps)
    if isinstance(times, str):
        return times
    simulated = ends_of(program, simulate(program)).max(axis=0)
    computed = ends_of_ranks(first_steps, times, np.zeros(first_steps.ranks), short=True)
    if not np.allclose(computed, simulated, rtol=AGREE, atol=0.0):
        return "its first steps end at other times than sums of their parts"
    return LongRings(first_steps, program, times)


def use_of_all_steps(work: LongRings, seconds: float) -> LinkUse:
    """The use of links by all steps, including those that are not written, if they take
    `seconds`.
    """
    repeats = np.ones(len(work.program))  # of every row, with the steps that are not written
    for call in work.first_steps.calls:
        if isinstance(call, RingSteps):
            repeats[call.rows.ravel()] += call.steps - call.written
    return use_of(work.program, link_amounts(work.program, repeats), seconds)


def causes_of(work: LongRings) -> Causes:
    """The fractions of the time that are latency, and transfers on each kind of link.

    The time is a sum of times of rows and of latencies. How much of each is in it follows from its
    growth if they are raised by a small fraction.
    """
    begin = np.zeros(work.first_steps.ranks)
    times = work.times
    seconds = work.seconds

    def seconds_due_to(took: Floats, flight: Floats) -> float:
        """How many seconds of the time are due to `took` and `flight`, parts of the times and
        latencies of rows.

        The parts are raised by a small fraction; the growth of the time, divided by this fraction,
        is the result.
        """
        raised = RowTimes(
            times.took + SMALL_FRACTION * took, times.flight + SMALL_FRACTION * flight
        )
        growth = float(ends_of_ranks(work.first_steps, raised, begin).max()) - seconds
        return growth / SMALL_FRACTION

    def transfers() -> dict[str, float]:
        """By kind of link, the seconds of the time that are transfers bounded by such links."""
        rows = work.first_steps.rows
        seconds_by_kind = {}
        path, place = np.unique(work.program.path[rows], return_inverse=True)
        example = np.zeros(len(path), np.int64)
        example[place] = rows
        kinds = np.array([narrowest_kind(work.program, row) for row in example.tolist()])[place]
        for kind in different(kinds).tolist():
            is_of_kind = np.zeros_like(times.took)
            is_of_kind[rows[kinds == kind]] = 1.0
            no_latency = np.zeros_like(is_of_kind)
            seconds_by_kind[kind] = seconds_due_to(times.took * is_of_kind, no_latency)
        return seconds_by_kind

    latency = seconds_due_to(np.zeros_like(times.took), times.flight) / seconds
    return Causes({"latency": latency, "transfer": 1 - latency}, transfers)


def ends_back_to_back(work: LongRings, launch: Launch, operations: int) -> Floats:
    """The finish times in seconds of operations back to back, as `ends[operation, rank]` for the
    ranks that take part.
    """
    done = np.zeros(work.first_steps.ranks)
    busy = taking_part(work.schedule)
    ends = list[Floats]()
    for launched in launch.times(operations, work.first_steps.ranks):
        begin = np.maximum(done, launched) + launch.kernel
        done = ends_of_ranks(work.first_steps, work.times, begin)
        ends.append(done[busy])
    return np.stack(ends)
