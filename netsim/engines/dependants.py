"""Who waits for whom: the dependencies of a Program turned around, for the SimPy engine."""

import numpy as np

from netsim.program import Program


def dependants(program: Program) -> list[list[tuple[int, float]]]:
    """For every row, those that wait for it, with the whole lag in seconds."""
    schedule = program.schedule
    owners = np.repeat(np.arange(len(program)), np.diff(schedule.dep_ptr))
    arrival = program.path_latency[program.path[schedule.dep_row]]
    lag = program.lag_seconds[schedule.dep_lag]
    lag = lag + np.where(program.lag_arrival[schedule.dep_lag], arrival, 0.0)
    after: list[list[tuple[int, float]]] = [[] for _ in range(len(program))]
    edges = zip(owners.tolist(), schedule.dep_row.tolist(), lag.tolist(), strict=True)
    for row, earlier, seconds in edges:
        after[earlier].append((row, seconds))
    return after
