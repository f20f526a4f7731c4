"""How much later each row could end without the whole ending later, all else equal."""

import numpy as np
from numpy.typing import NDArray

from netsim.program import Program, Timeline


def slacks(program: Program, timeline: Timeline) -> NDArray[np.float64]:
    """The slack of every row in seconds: from the end of the run back over all dependencies."""
    schedule = program.schedule
    end, start = timeline.end, timeline.start
    earlier, lag = schedule.dep_row, schedule.dep_lag
    later = np.repeat(np.arange(len(program)), np.diff(schedule.dep_ptr))
    wait = program.lag_seconds[lag]
    wait += np.where(program.lag_arrival[lag], program.path_latency[program.path[earlier]], 0.0)
    room = (start[later] - end[earlier] - wait).tolist()  # how long the later row waited for others
    slack = (timeline.makespan - end).tolist()
    pointers, rows = schedule.dep_ptr.tolist(), earlier.tolist()
    for row in range(len(program) - 1, -1, -1):
        mine = slack[row]
        for place in range(pointers[row], pointers[row + 1]):
            spare = mine + room[place]
            slack[rows[place]] = min(slack[rows[place]], spare)
    least: NDArray[np.float64] = np.maximum(np.array(slack), 0.0)
    return least
