"""When every rank is done, call by call: a message after what came before, rings in one go."""

import numpy as np
from numpy.typing import NDArray

from netsim.collectives import Relay
from netsim.collectives.relay import Laps, Message
from netsim.relay.free import Costs
from netsim.relay.laps import after

Floats = NDArray[np.float64]


def replayed(relay: Relay, costs: Costs, begin: Floats, *, short: bool = False) -> Floats:
    """When ranks that begin at such times are done; `short`: of the steps that are written."""
    lanes = 1 + max(int(_lanes_of(call).max(initial=0)) for call in relay.calls)
    rank = np.arange(lanes) % relay.ranks
    times = _Times(begin[rank].copy(), np.full(lanes, -np.inf))
    for call in relay.calls:
        if isinstance(call, Message):
            _send(times, call, costs, begin[rank])
        else:
            _pass_on(times, call, costs, call.written if short else call.steps)
    done = begin.copy()
    np.maximum.at(done, rank, np.maximum(times.last, times.arrived))
    for ranks, rows in relay.kept:
        done[ranks] = np.maximum(done[ranks], begin[ranks] + costs.took[rows])
    return done


class _Times:
    """By lane: the end of its last row, and the last arrival that its next one waits for."""

    def __init__(self, last: Floats, arrived: Floats) -> None:
        self.last, self.arrived = last, arrived


def _lanes_of(call: Message | Laps) -> NDArray[np.integer]:
    return call.sender if isinstance(call, Message) else call.lanes


def _send(times: _Times, call: Message, costs: Costs, begin: Floats) -> None:
    sender, receiver = call.sender, call.receiver
    start = np.maximum(times.last[sender], times.arrived[sender])
    start = np.maximum(start, begin[receiver])  # where it does not follow from what it waits for
    if call.ready:
        start = np.maximum(start, times.arrived[receiver])
    end = start + costs.took[call.rows]
    times.arrived[sender] = -np.inf
    times.last[sender] = end
    np.maximum.at(times.arrived, receiver, end + costs.way[call.rows])


def _pass_on(times: _Times, call: Laps, costs: Costs, steps: int) -> None:
    """What the steps of a ring wait for besides one another was in the way of its first already."""
    way = costs.way[call.rows]
    end = after(times.last[call.lanes], costs.took[call.rows], way, steps)
    times.arrived[call.lanes] = np.roll(end + way, 1, axis=-1)
    times.last[call.lanes] = end
