"""The flows of a seat, ordered by their end on its clock: a pairing heap in the flow records.

Flows of equal length join in the order in which they end, which costs nothing here; any other order
costs the logarithm of their number.
"""

from math import inf

from netsim.engines.compiled.jit import Inner
from netsim.engines.compiled.state import Records


@Inner
def join(core: Records, flows: Records, seat: Records, row: int, work: float) -> None:
    """Let a row start its work (amount ÷ share) in a seat whose clock shows the present."""
    new = core.free_flow
    if new >= 0:
        core.free_flow = flows[new].sibling
    else:
        new = core.flows
        core.flows += 1
    flow = flows[new]
    flow.row, flow.child = row, -1
    flow.finish = seat.clock + work
    seat.root = new if seat.flows == 0 else _meld(flows, seat.root, new)
    seat.flows += 1


@Inner
def leave(core: Records, flows: Records, seat: Records) -> int:
    """Take out the flow of a seat that ends first; its row."""
    old = seat.root
    row = flows[old].row
    seat.root = _without_root(flows, old)
    seat.flows -= 1
    flows[old].sibling = core.free_flow
    core.free_flow = old
    return int(row)


@Inner
def next_end(flows: Records, seat: Records) -> float:
    """The time at which the next flow of a seat ends, at its present level."""
    left = flows[seat.root].finish - seat.clock
    if seat.level == inf or left <= 0.0:
        return float(seat.since)
    return float(seat.since + left / seat.level) if seat.level > 0.0 else inf


@Inner
def advance(seat: Records, now: float) -> None:
    """Set the clock of a seat to the present."""
    if now > seat.since and seat.level < inf:
        seat.clock += seat.level * (now - seat.since)
    seat.since = now


@Inner
def _meld(flows: Records, a: int, b: int) -> int:
    if flows[b].finish < flows[a].finish:
        a, b = b, a
    flows[b].sibling = flows[a].child
    flows[a].child = b
    return a


@Inner
def _without_root(flows: Records, root: int) -> int:
    """Meld the children in pairs, then the pairs from the last to the first."""
    pairs, child = -1, flows[root].child
    while child >= 0:
        a, b = child, flows[child].sibling
        child = -1
        if b >= 0:
            child = flows[b].sibling
            a = _meld(flows, a, b)
        flows[a].sibling = pairs
        pairs = a
    heap = -1
    while pairs >= 0:
        pair, pairs = pairs, flows[pairs].sibling
        heap = pair if heap < 0 else _meld(flows, heap, pair)
    return heap
