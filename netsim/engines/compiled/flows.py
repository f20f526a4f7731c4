"""The flows of a seat, ordered by their end on its clock: a pairing heap in the columns of rows.

Flows of equal length join in the order in which they end, which costs nothing here; any other order
costs the logarithm of their number. A row's columns serve while it is under way: `end` holds its
finish, `waits` its next sibling and `child` its first child. So what happens at once takes no
memory of its own.
"""

from math import inf

from netsim.engines.compiled.jit import Inner
from netsim.engines.compiled.state import NOBODY, Records, Rows


@Inner
def join(rows: Rows, seat: Records, row: int, work: float) -> None:
    """Let a row start its work (amount ÷ share) in a seat whose clock shows the present."""
    rows.end[row] = -(seat.clock + work)
    rows.waits[row] = NOBODY
    seat.root = row if seat.flows == 0 else _meld(rows, seat.root, row)
    seat.flows += 1


@Inner
def leave(rows: Rows, seat: Records) -> int:
    """Take out the flow of a seat that ends first; its row."""
    row = seat.root
    seat.root = _without_root(rows, row)
    seat.flows -= 1
    return int(row)


@Inner
def next_end(rows: Rows, seat: Records) -> float:
    """The time at which the next flow of a seat ends, at its present level."""
    left = -rows.end[seat.root] - seat.clock
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
def _meld(rows: Rows, a: int, b: int) -> int:
    if rows.end[b] > rows.end[a]:  # negative: b finishes first
        a, b = b, a
    rows.waits[b] = rows.child[a] - 1
    rows.child[a] = b + 1
    return a


@Inner
def _without_root(rows: Rows, root: int) -> int:
    """Meld the children in pairs, then the pairs from the last to the first."""
    pairs, child = NOBODY, rows.child[root] - 1
    while child >= 0:
        a, b = child, rows.waits[child]
        child = NOBODY
        if b >= 0:
            child = rows.waits[b]
            a = _meld(rows, a, b)
        rows.waits[a] = pairs
        pairs = a
    heap = NOBODY
    while pairs >= 0:
        pair, pairs = pairs, rows.waits[pairs]
        heap = pair if heap < 0 else _meld(rows, heap, pair)
    return heap
