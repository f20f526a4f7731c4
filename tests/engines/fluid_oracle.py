"""A third opinion on small programs: the fluid model of docs/model.md in the shortest plain code.

It shares nothing with the engines: at every event it solves all rates anew by raising a common
level until a link or a cap stops each flow. That takes time that grows with the square of the rows,
so it is for programs of a few hundred rows."""

from math import inf

import numpy as np

from netsim.program.program import Program

SAME_INSTANT = 1e-13  # relative: events so close happen together
FULL = 1e-12  # relative: so little capacity left is none


def row_ends(program: Program) -> np.ndarray | None:
    """The end of every row in seconds; None if the program cannot finish."""
    schedule = program.schedule
    count = len(program)
    latency = program.style_values("latency")[schedule.style]
    cap = program.caps[schedule.style]
    share = program.style_values("share")[schedule.style]
    path_latency = np.append(program.paths.latency, 0.0)
    ready = np.zeros(count)
    ready[schedule.release_row] = schedule.release_time
    waiting = np.diff(schedule.dep_ptr)
    followers = _followers(program, path_latency)
    capacity = program.links.capacity.astype(float).copy()
    changes = sorted(program.links.changes)
    left = schedule.amount.astype(float).copy()
    end = np.full(count, inf)
    joins = {row: ready[row] + latency[row] for row in np.flatnonzero(waiting == 0).tolist()}
    moving: dict[int, float] = {}  # rate by row
    now = 0.0
    while joins or moving:
        finish = {row: now + left[row] / rate for row, rate in moving.items() if rate > 0}
        events = [*joins.values(), *finish.values(), *(time for time, _, _ in changes[:1])]
        if not events:
            return None
        when = min(events)
        horizon = when * (1 + SAME_INSTANT)
        _move(left, moving, when - now)
        now = when
        while changes and changes[0][0] <= horizon:
            _, link, value = changes.pop(0)
            capacity[link] = value
        ended = [row for row, time in finish.items() if time <= horizon]
        for row in ended:
            del moving[row]
        begun = [row for row, time in joins.items() if time <= horizon]
        for row in begun:
            del joins[row]
            if left[row] > 0:
                moving[row] = 0.0
            else:
                ended.append(row)
        for row in ended:
            end[row] = now
            for follower in _released(followers[row], now, ready, waiting):
                joins[follower] = ready[follower] + latency[follower]
        moving = _rates(program, list(moving), capacity, cap, share)
        if moving and not joins and not changes and not any(moving.values()):
            return None
    return end if np.isfinite(end).all() else None


def _move(left: np.ndarray, moving: dict[int, float], seconds: float) -> None:
    """Reduce the bytes that are left of every moving row by what moves in so many seconds."""
    for row, rate in moving.items():
        left[row] = left[row] - rate * seconds if rate < inf else 0.0


def _released(
    followers: list[tuple[int, float]], now: float, ready: np.ndarray, waiting: np.ndarray
) -> list[int]:
    """The followers of a row that ends now which wait for no other row, in order."""
    released = []
    for follower, lag in followers:
        ready[follower] = max(ready[follower], now + lag)
        waiting[follower] -= 1
        if waiting[follower] == 0:
            released.append(follower)
    return released


def _followers(program: Program, path_latency: np.ndarray) -> list[list[tuple[int, float]]]:
    """For every row, the rows that wait for it and the seconds that they wait after its end."""
    schedule = program.schedule
    followers: list[list[tuple[int, float]]] = [[] for _ in range(len(program))]
    for row in range(len(program)):
        for entry in range(schedule.dep_ptr[row], schedule.dep_ptr[row + 1]):
            earlier = int(schedule.dep_row[entry])
            lag = schedule.lags[schedule.dep_lag[entry]]
            seconds = lag.seconds + lag.arrival * path_latency[program.path[earlier]]
            followers[earlier].append((row, seconds))
    return followers


def _rates(
    program: Program, rows: list[int], capacity: np.ndarray, cap: np.ndarray, share: np.ndarray
) -> dict[int, float]:
    """Weighted max-min rates of rows: raise one level, rate = level x share, until each stops."""
    paths = program.paths
    uses = {}
    for row in rows:
        entries = slice(*paths.ptr[program.path[row] : program.path[row] + 2]) if row >= 0 else None
        links = paths.link[entries].tolist() if program.path[row] >= 0 else []
        weights = paths.weight[entries].tolist() if program.path[row] >= 0 else []
        uses[row] = list(zip(links, weights, strict=True))
    room = {link: float(capacity[link]) for links in uses.values() for link, _ in links}
    rates: dict[int, float] = {}
    rising = set(rows)
    while rising:
        slope: dict[int, float] = {}
        for row in rising:
            for link, weight in uses[row]:
                slope[link] = slope.get(link, 0.0) + weight * share[row]
        used: dict[int, float] = dict.fromkeys(room, 0.0)
        for row, rate in rates.items():
            for link, weight in uses[row]:
                used[link] += weight * rate
        levels = {link: (room[link] - used[link]) / slope[link] for link in slope}
        caps = {row: cap[row] / share[row] for row in rising}
        level = max(0.0, min([*levels.values(), *caps.values()]))
        full = {link for link, at in levels.items() if at <= level + FULL * abs(level)}
        stopped = {
            row
            for row in rising
            if caps[row] <= level * (1 + FULL) or any(link in full for link, _ in uses[row])
        }
        for row in stopped:
            rates[row] = level * share[row]
        rising -= stopped
        if not stopped:
            raise AssertionError("the level rises for ever: a row has neither link nor cap")
    return rates
