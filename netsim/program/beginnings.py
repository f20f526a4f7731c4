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
    times = earliest(program.schedule, begins)
    every = np.arange(len(times), dtype=np.int32)
    schedule = replace(program.schedule, release_row=every, release_time=times)
    return replace(program, schedule=schedule)


def earliest(schedule: Schedule, begins: Floats) -> Floats:
    """By row, when it may start at the earliest; `begins` is by rank."""
    times, held = _last_of_ranks(schedule, begins), schedule.release_row
    times[held] = np.maximum(times[held], schedule.release_time)
    return times


def _last_of_ranks(schedule: Schedule, begins: Floats) -> Floats:
    """By row, when the last of its ranks begins."""
    begins = begins[schedule.stand_in(np.arange(schedule.ranks, dtype=np.int32))]
    kinds = {style.kind for style in schedule.styles}
    if kinds.isdisjoint((MULTICAST, SWITCH_REDUCE)):
        times = begins[schedule.src]
        return np.maximum(times, begins[schedule.dst], out=times)
    place, member = spelled_out(schedule.groups, np.arange(len(schedule.groups)))
    of_group = np.zeros(len(schedule.groups))
    np.maximum.at(of_group, place, begins[member])
    # Ranks and groups side by side: at one end of rows of one kind there is a group.
    both, kind = np.concatenate([begins, of_group]), schedule.kind
    src = schedule.src + schedule.ranks * (kind == SWITCH_REDUCE)
    dst = schedule.dst + schedule.ranks * (kind == MULTICAST)
    last: Floats = np.maximum(both[src], both[dst])
    return last
