"""Grouped sends and receives: rounds in batches, each part of a send on a channel of its own.

The operations of a batch on one block progress together, each by its share of the warps; the next
batch of that block begins when all of them are done.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from netsim.collectives.collective import Collective
from netsim.nccl.names import Protocol
from netsim.nccl.schedules.cuts import chunk_table, segments
from netsim.nccl.schedules.exchange import Exchange, Part, Seat
from netsim.nccl.schedules.output import Output, Turn
from netsim.nccl.schedules.plan import Plan, Transfer, Work
from netsim.schedule import IN_ORDER, Schedule


def send_recv(collective: Collective, plan: Plan) -> Schedule:
    """All transfers of a plan, batch after batch on every block."""
    output = Output(collective, places=plan.places, keep=False)
    doors: dict[Seat, int] = {}
    assert plan.transfers is not None
    for batch in plan.transfers.batches():
        _batch(output, plan, batch, doors)
    return output.close()


def _batch(output: Output, plan: Plan, transfers: list[Transfer], doors: dict[Seat, int]) -> None:
    """Append one batch; `doors` are the marks after which each block may begin the next."""
    element_bytes = output.collective.element_bytes
    groups: dict[tuple[Protocol, int, int, int, bool], list[Part]] = {}
    crowd: dict[Seat, int] = {}
    for one, folds in zip(transfers, _foldable(plan, transfers), strict=True):
        for part in _parts(one, element_bytes, folds=folds):
            alone = part.src == part.dst
            key = (one.protocol, one.chunk, part.count, part.multiplicity, alone)
            groups.setdefault(key, []).append(part)
            for seat in part.seats:
                crowd[seat] = crowd.get(seat, 0) + 1
    ends: dict[Seat, list[int]] = {}
    for (protocol, chunk, *_), parts in groups.items():
        own = replace(plan, protocol=protocol)
        table = chunk_table(Work(0, 0, parts[0].count, chunk), element_bytes)
        exchange = Exchange(own, parts, crowd, segments(own, element_bytes, table))
        for seat, row in _append(output, exchange, doors):
            ends.setdefault(seat, []).append(row)
    seats = list(ends)
    ptr = np.cumsum([0, *(len(ends[seat]) for seat in seats)])
    rows = np.array([row for seat in seats for row in ends[seat]], np.int32)
    marks = output.builder.marks([rank for rank, _ in seats], joins=(ptr, rows, IN_ORDER))
    doors.update(zip(seats, marks.tolist(), strict=True))


def _append(output: Output, exchange: Exchange, doors: dict[Seat, int]) -> list[tuple[Seat, int]]:
    """Append parts of equal size; returns the last rows of every block."""
    passes = exchange.passes()
    gates = np.full(len(exchange.woven), -1, np.int32)
    for rows, seats in passes:
        gates[rows] = [doors.get(seat, -1) for seat in seats]
    gated = [(gates, IN_ORDER)] if gates.max() >= 0 else []
    last = np.concatenate([rows[-1] for rows, _ in passes])
    seats = [seat for _, some in passes for seat in some]
    ranks = [rank for rank, _ in seats]
    regions = 2 * len(exchange.parts)
    made = output.add(Turn(exchange.woven, (ranks, last)), exchange.cut, regions, gated)
    return list(zip(seats, made[-1][last].tolist(), strict=True))


def _foldable(plan: Plan, transfers: Sequence[Transfer]) -> Iterable[bool]:
    """Whether the parts of each transfer are equal, and meet equal parts on all their channels."""
    sets = {frozenset(one.channels) for one in transfers}
    apart = sum(map(len, sets)) == len(frozenset().union(*sets))
    for one in transfers:
        yield plan.fold and apart and len(set(one.parts)) == 1 < len(one.parts)


def _parts(one: Transfer, element_bytes: int, *, folds: bool) -> Iterable[Part]:
    if folds:
        count, times = one.parts[0] // element_bytes, len(one.parts)
        yield Part(one.src, one.dst, one.offset, one.target, count, min(one.channels), times)
        return
    start = 0
    for nbytes, channel in zip(one.parts, one.channels, strict=True):
        count = nbytes // element_bytes
        if count:
            offset, target = one.offset + start, one.target + start
            yield Part(one.src, one.dst, offset, target, count, channel, 1)
        start += count
