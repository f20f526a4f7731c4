"""Rows of a run as slices: sends with arrows to their receives, copies, compute and launches."""

from itertools import count

import numpy as np

from netsim.program import Program, Timeline
from netsim.schedule import COMPUTE, LOCAL_COPY, MARK, OP_NAMES, Style
from netsim.trace.names import Names
from netsim.trace.selection import Selection
from netsim.trace.slices import CHANNELS, COMPUTES, LAUNCH, LOCAL, RECEIVE, SEND, Slice, span


def row_slices(
    program: Program, timeline: Timeline, names: Names, selection: Selection
) -> list[Slice]:
    """The slices of all rows shown; what takes no time and moves nothing is left out."""
    schedule, arrows = program.schedule, count(1)
    slices: list[Slice] = []
    delays = program.path_latency[program.path]
    amounts = schedule.amount
    for row in selection.rows.tolist():
        style = schedule.styles[int(schedule.style[row])]
        begin, end = float(timeline.start[row]), float(timeline.end[row])
        if end <= begin and (style.kind == MARK or amounts[row] == 0):
            continue
        if style.kind in (MARK, COMPUTE, LOCAL_COPY):
            slices.append(_local(program, names, row, style, (begin, end)))
            continue
        flow = (min(begin + style.latency, end), end)
        slices += _sent(program, names, row, style, (begin, end), flow, float(delays[row]), arrows)
    return slices


def _local(
    program: Program, names: Names, row: int, style: Style, when: tuple[float, float]
) -> Slice:
    track = {
        MARK: (LAUNCH, style.stream or "marks", 0, 0),
        COMPUTE: (COMPUTES, style.stream, 0, 0),
        LOCAL_COPY: (CHANNELS, style.stream, style.channel, LOCAL),
    }[style.kind]
    category = {MARK: "launch", COMPUTE: "kernel", LOCAL_COPY: "gpu_memcpy"}[style.kind]
    rank = int(program.schedule.src[row])
    args = {"row": row, "step": int(program.schedule.step[row]), "stream": style.stream}
    return Slice(rank, track, *span(*when), names.row(row), category, args)


def _sent(
    program: Program,
    names: Names,
    row: int,
    style: Style,
    when: tuple[float, float],
    flow: tuple[float, float],
    delay: float,
    arrows: "count[int]",
) -> list[Slice]:
    """A slice for each sender and, later by the latency of the path, for each receiver."""
    sources, targets = program.schedule.members(row)
    pairs = {(a, b): next(arrows) for a in sources for b in targets if a != b}
    leaving = {rank: tuple(pairs[a, b] for a, b in pairs if a == rank) for rank in sources}
    reaching = {rank: tuple(pairs[a, b] for a, b in pairs if b == rank) for rank in targets}
    begin, end = span(*when)
    track = (CHANNELS, style.stream, style.channel)
    name, args = names.row(row), _details(program, names, row, style, flow)
    sends = [
        Slice(rank, (*track, SEND), begin, end, name, "send", args, leaving=leaving[rank])
        for rank in sources
    ]
    begin, end = span(flow[0] + delay, flow[1] + delay)
    name, args = names.row(row, receiving=True), {"row": row}
    return sends + [
        Slice(rank, (*track, RECEIVE), begin, end, name, "recv", args, reaching=reaching[rank])
        for rank in targets
    ]


def _details(
    program: Program, names: Names, row: int, style: Style, flow: tuple[float, float]
) -> dict[str, object]:
    schedule = program.schedule
    nbytes = float(schedule.pieces.amount[int(schedule.piece[row])])
    rate = nbytes / (flow[1] - flow[0]) / 1e9 if flow[1] > flow[0] else 0.0
    return {
        "row": row,
        "bytes": int(nbytes) if nbytes.is_integer() else nbytes,
        "GB/s": float(np.format_float_positional(rate, 4, fractional=False)),
        "op": OP_NAMES[style.op],
        "channel": style.channel,
        "step": int(schedule.step[row]),
        "path": names.path(int(program.path[row])),
    }
