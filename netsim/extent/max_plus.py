"""The ends of a ring's lanes after many steps: a power of a matrix of sums and maxima.

In a step every lane waits for its own last row and for what the lane before has sent, which arrives
`way` later, and then takes `took`. After m steps a lane's end is the greatest, over the lane q from
which its wait comes, of q's end at first, the ways and rows from there, and as many rows as are
left (of m) of the slowest lane in between, for rows may wait at any of them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.base.memo import different
from netsim.base.values import dataclass
from netsim.collectives.collective import Collective
from netsim.collectives.reduced import Laps, Message, Relay
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

Floats = NDArray[np.float64]
MOST_STEPS = 64  # up to which they are taken one by one
MOST_KINDS = 64  # different times that rows of a ring may take, each of which is looked at


def after(ends: Floats, took: Floats, way: Floats, steps: int) -> Floats:
    """The ends of rings (a ring each line) after so many further steps."""
    if steps <= MOST_STEPS:
        return one_by_one(ends, took, way, steps)
    each = zip(ends, took, way, strict=True)
    return np.stack([in_closed_form(e, t, w, steps) for e, t, w in each])


def one_by_one(ends: Floats, took: Floats, way: Floats, steps: int) -> Floats:
    """The same from its definition."""
    for _ in range(steps):
        arrived = np.roll(ends + way, 1, axis=-1)
        ends = np.maximum(ends, arrived) + took
    return ends


def in_closed_form(ends: Floats, took: Floats, way: Floats, steps: int) -> Floats:
    """The same of one ring, however many steps."""
    size = len(ends)
    laps = -(-steps // size) + 1
    hop = np.roll(way, 1) + took  # from the lane before to the end of the row here
    # Positions along all laps: the last lap is the one of interest.
    along = np.cumsum(np.tile(hop, laps))
    here = np.arange((laps - 1) * size, laps * size)
    position = np.arange(laps * size, dtype=np.float64)
    start = np.tile(ends, laps) - along
    slow = np.tile(took, laps)
    best = np.full(size, -np.inf)
    for kind in np.unique(took).tolist():
        last = np.maximum.accumulate(np.where(slow >= kind, np.arange(laps * size), -1))[here]
        worth = start + position * kind
        found = _greatest(worth, here - steps, last)
        best = np.maximum(best, found + along[here] + (steps - position[here]) * kind)
    return best


def _greatest(values: Floats, first: NDArray[np.int64], last: NDArray[np.int64]) -> Floats:
    """The greatest of the values from `first` to `last`; -inf where there are none."""
    result = np.full(len(first), -np.inf)
    length = last - first + 1
    table, width = values, 1
    while True:
        mine = np.flatnonzero((length >= width) & (length < 2 * width))
        result[mine] = np.maximum(table[first[mine]], table[last[mine] - width + 1])
        if 2 * width > length.max(initial=0):
            return result
        table, width = np.maximum(table[:-width], table[width:]), 2 * width


# **** Free ****
# Whether lanes are ever in each other's way, and how long every row takes where they are not.

Ints = NDArray[np.int64]
ROOM = 1e-9  # by which what is asked of a link may exceed what it has: rounding


@dataclass(frozen=True, slots=True)
class Costs:
    """By row: the seconds that it takes, and those until what it sent has arrived."""

    took: Floats
    way: Floats


def costs_of(program: Program, relay: Relay) -> Costs | str:
    """How long rows take, none of which slows another whatever the rest does; or why they may."""
    if program.links.changes:
        return "rates of links change"
    if program.schedule.release_row.size:
        return "rows wait for given times"
    rates = rates_alone(program)
    if not (rates > 0).all():
        return "a link has no bandwidth"
    if crowded := _crowded(program, _lanes(program, relay), rates):
        return crowded
    style = program.schedule.style
    took = program.style_values("latency")[style] + program.schedule.amount / rates
    if any(len(different(took[call.rows])) > MOST_KINDS for call in relay.calls):
        return f"rows take more than {MOST_KINDS} different times"
    return Costs(took, program.path_latency[program.path])


def _lanes(program: Program, relay: Relay) -> Ints:
    """Which rows come one after the other: those of a lane; every copy is one by itself."""
    lane = np.full(len(program), -1, np.int64)
    for call in relay.calls:
        lane[call.rows] = call.lanes
    most = int(lane.max(initial=-1)) + 1
    for ranks, rows in relay.kept:
        lane[rows] = most + ranks
        most += relay.ranks
    return lane


def _crowded(program: Program, lane: Ints, rates: Floats) -> str:
    """The link of which most more is asked than it has, were all lanes under way at once."""
    paths, links = program.paths, program.links
    moving = np.flatnonzero((lane >= 0) & (program.path >= 0))
    pairs = np.unique(lane[moving] * len(paths) + program.path[moving], return_index=True)[1]
    moving = moving[pairs]
    path = program.path[moving]
    count = np.diff(paths.ptr)[path]
    entry = np.repeat(paths.ptr[path] - np.cumsum(count) + count, count) + np.arange(count.sum())
    owner = np.repeat(moving, count)
    bounded = np.isfinite(links.capacity[paths.link[entry]])
    entry, owner = entry[bounded], owner[bounded]
    link, asked = paths.link[entry], paths.weight[entry] * rates[owner]
    # A lane does one thing at a time: of a link it asks as much as it asks at most.
    key = lane[owner] * len(links) + link
    order = np.lexsort((asked, key))
    last = np.ones(len(order), bool)
    last[:-1] = np.diff(key[order]) > 0
    most = order[last]
    over = np.bincount(link[most], asked[most], len(links)) / links.capacity
    worst = int(np.argmax(over))
    if over[worst] <= 1 + ROOM:
        return ""
    return f"{links.name(worst)} is asked for {over[worst]:.3g} times what it has"


# **** Replay ****
# When every rank is done, call by call: a message after what came before, rings in one go.


def replayed(relay: Relay, costs: Costs, begin: Floats, *, short: bool = False) -> Floats:
    """When ranks that begin at such times are done; `short`: of the steps that are written."""
    lanes = 1 + max(int(call.lanes.max(initial=0)) for call in relay.calls)
    rank = np.arange(lanes) % relay.ranks
    times = _Times(begin[rank].copy(), np.full(lanes, -np.inf))
    for call in relay.calls:
        if isinstance(call, Message):
            _send(times, call, costs, begin[rank])
        else:
            # What its steps wait for besides one another was in the way of its first already.
            steps, way = call.written if short else call.steps, costs.way[call.rows]
            end = after(times.last[call.lanes], costs.took[call.rows], way, steps)
            times.arrived[call.lanes] = np.roll(end + way, 1, axis=-1)
            times.last[call.lanes] = end
    done = begin.copy()
    np.maximum.at(done, rank, np.maximum(times.last, times.arrived))
    for ranks, rows in relay.kept:
        done[ranks] = np.maximum(done[ranks], begin[ranks] + costs.took[rows])
    return done


class _Times:
    """By lane: the end of its last row, and the last arrival that its next one waits for."""

    def __init__(self, last: Floats, arrived: Floats) -> None:
        self.last, self.arrived = last, arrived


def _send(times: _Times, call: Message, costs: Costs, begin: Floats) -> None:
    sender, receiver = call.lanes, call.receiver
    start = np.maximum(times.last[sender], times.arrived[sender])
    start = np.maximum(start, begin[receiver])  # where it does not follow from what it waits for
    if call.ready:
        start = np.maximum(start, times.arrived[receiver])
    end = start + costs.took[call.rows]
    times.arrived[sender] = -np.inf
    times.last[sender] = end
    np.maximum.at(times.arrived, receiver, end + costs.way[call.rows])


# **** Relayed ****
# The time of an algorithm of long rings whose lanes are never in each other's way.

AGREE = 1e-9  # what is followed from sums and maxima differs by less from what the engine says
BIT = 1e-6  # by which part costs are raised to see what the time owes them


@dataclass(frozen=True)
class Relayed:
    """A few steps of an algorithm, placed; what is left of it; and how long its rows take."""

    relay: Relay
    program: Program
    costs: Costs

    @property
    def seconds(self) -> float:
        """The time of one operation from standstill."""
        return float(replayed(self.relay, self.costs, np.zeros(self.relay.ranks)).max())

    @property
    def schedule(self) -> Schedule:
        """The steps that are written."""
        return self.program.schedule


def relayed(
    collective: Collective,
    algorithm: str,
    parameters: Mapping[str, Any],
    topology: Topology,
    gpus: NDArray[np.int32],
) -> Relayed | str:
    """An algorithm of long rings on a topology, or why its steps do not follow from a few."""
    relay = Relay()
    schedule = build(collective, algorithm, fold=relay, **parameters)
    if relay.refused:
        return relay.refused
    program = place(schedule, topology, gpus.tolist())
    costs = costs_of(program, relay)
    if isinstance(costs, str):
        return costs
    begin = np.zeros(relay.ranks)
    told = ends_of(program, simulate(program)).max(axis=0)
    if not np.allclose(replayed(relay, costs, begin, short=True), told, rtol=AGREE, atol=0.0):
        return "its first steps end at other times than sums of their parts"
    return Relayed(relay, program, costs)


def whole_use(work: Relayed, seconds: float) -> LinkUse:
    """What passes over the links in all steps, in so many seconds."""
    # How often every row is there, with the steps that are not written.
    times = np.ones(len(work.program))
    for call in work.relay.calls:
        if isinstance(call, Laps):
            times[call.rows.ravel()] += call.steps - call.written
    return use_of(work.program, link_amounts(work.program, times), seconds)


def causes_of(work: Relayed) -> Causes:
    """What the time goes to: by how much it grows with every part of it, for it is a sum."""
    begin, costs = np.zeros(work.relay.ranks), work.costs
    whole = work.seconds

    def part(took: Floats, way: Floats) -> float:
        more = Costs(costs.took + BIT * took, costs.way + BIT * way)
        return (float(replayed(work.relay, more, begin).max()) - whole) / BIT

    def transfers() -> dict[str, float]:
        rows, found = work.relay.rows, {}
        path, place = np.unique(work.program.path[rows], return_inverse=True)
        example = np.zeros(len(path), np.int64)
        example[place] = rows
        kinds = np.array([narrowest_kind(work.program, row) for row in example.tolist()])[place]
        for kind in different(kinds).tolist():
            mine = np.zeros_like(costs.took)
            mine[rows[kinds == kind]] = 1.0
            found[kind] = part(costs.took * mine, np.zeros_like(mine))
        return found

    latency = part(np.zeros_like(costs.took), costs.way) / whole
    return Causes({"latency": latency, "transfer": 1 - latency}, transfers)


def relayed_in_a_row(work: Relayed, launch: Launch, times: int) -> Floats:
    """When operations (first axis) are over by busy rank, one after the other on every rank."""
    done, found, busy = np.zeros(work.relay.ranks), list[Floats](), taking_part(work.schedule)
    for launched in launch.times(times, work.relay.ranks):
        begin = np.maximum(done, launched) + launch.kernel
        done = replayed(work.relay, work.costs, begin)
        found.append(done[busy])
    return np.stack(found)
