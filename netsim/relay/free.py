"""Whether lanes are ever in each other's way, and how long every row takes where they are not."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from netsim.arrays import different
from netsim.collectives import Relay
from netsim.collectives.relay import Message
from netsim.program import Program
from netsim.relay.laps import MOST_KINDS

Floats = NDArray[np.float64]
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
    rates = _rates(program)
    if not (rates > 0).all():
        return "a link has no bandwidth"
    if crowded := _crowded(program, _lanes(program, relay), rates):
        return crowded
    style = program.schedule.style
    took = program.style_values("latency")[style] + program.schedule.amount / rates
    if any(len(different(took[call.rows])) > MOST_KINDS for call in relay.calls):
        return f"rows take more than {MOST_KINDS} different times"
    return Costs(took, program.path_latency[program.path])


def _rates(program: Program) -> Floats:
    """The rate of every row that is alone."""
    paths = program.paths
    with np.errstate(divide="ignore"):
        limits = program.links.capacity[paths.link] / paths.weight
    by_path = np.full(len(paths) + 1, np.inf)
    owner = np.repeat(np.arange(len(paths)), np.diff(paths.ptr))
    np.minimum.at(by_path, owner, limits)
    rates: Floats = np.minimum(by_path[program.path], program.caps[program.schedule.style])
    return rates


def _lanes(program: Program, relay: Relay) -> Ints:
    """Which rows come one after the other: those of a lane; every copy is one by itself."""
    lane = np.full(len(program), -1, np.int64)
    for call in relay.calls:
        rows, owner = (
            (call.rows, call.sender) if isinstance(call, Message) else (call.rows, call.lanes)
        )
        lane[rows] = owner
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
    most = order[np.append(np.diff(key[order]) > 0, [True] * (len(order) > 0))]
    over = np.bincount(link[most], asked[most], len(links)) / links.capacity
    worst = int(np.argmax(over))
    if over[worst] <= 1 + ROOM:
        return ""
    return f"{links.name(worst)} is asked for {over[worst]:.3g} times what it has"
