"""Ranks that begin at times of their own: none of a rank's rows starts before the rank does.

As no row starts before one that it follows, it is enough for all of them to be told so; which of
them come first on their ranks need not be known.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from netsim.program.rows import Program
from netsim.schedule import MULTICAST, SWITCH_REDUCE, Schedule, spelled_out

Floats = NDArray[np.float64]


def released(program: Program, begins: Floats) -> Program:
    """The program with rows that may start only when their ranks have begun."""
    schedule, times = program.schedule, row_begins(program.schedule, begins)
    held = schedule.release_row
    times[held] = np.maximum(times[held], schedule.release_time)
    every = np.arange(len(times), dtype=np.int32)
    return replace(program, schedule=replace(schedule, release_row=every, release_time=times))


def row_begins(schedule: Schedule, begins: Floats) -> Floats:
    """By row, when the last of its ranks begins; `begins` is by rank."""
    begins = begins[schedule.stand_in(np.arange(schedule.ranks, dtype=np.int32))]
    kinds = {style.kind for style in schedule.styles}
    if kinds.isdisjoint((MULTICAST, SWITCH_REDUCE)):
        times = begins[schedule.src]
        return np.maximum(times, begins[schedule.dst], out=times)
    return np.maximum(
        _of_ends(schedule, begins, schedule.src, SWITCH_REDUCE),
        _of_ends(schedule, begins, schedule.dst, MULTICAST),
    )


def _of_ends(schedule: Schedule, begins: Floats, end: NDArray[np.int32], grouped: int) -> Floats:
    """At one end of each row, which for rows of one kind is a group."""
    mine, times = schedule.kind == grouped, np.empty(len(end))
    times[~mine] = begins[end[~mine]]
    place, member = spelled_out(schedule.groups, np.arange(len(schedule.groups)))
    of_group = np.zeros(len(schedule.groups))
    np.maximum.at(of_group, place, begins[member])
    times[mine] = of_group[end[mine]]
    return times
