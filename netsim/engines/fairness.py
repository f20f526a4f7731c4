"""Weighted max-min fairness by progressive filling, in the plainest code.

All flows rise together, each at its share times a common level, until a resource is full or a flow
reaches its cap; those stop, the rest rise on. This is the definition that the SimPy engine uses.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class Demand:
    """What one flow draws on: (resource, weight) pairs, its highest rate and its share."""

    draws: tuple[tuple[int, float], ...]
    cap: float = inf
    share: float = 1.0


def fair_rates(demands: Sequence[Demand], capacity: Mapping[int, float]) -> list[float]:
    """Rates with Σ weight·rate ≤ capacity on every resource and rate ≤ cap, such that no rate ÷
    share can grow except at the expense of one that is equal or smaller.
    """
    if len(demands) == 1:
        return [_alone(demands[0], capacity)]
    rates = [0.0] * len(demands)
    rising = set(range(len(demands)))
    left, users = _resources(demands, capacity)
    while rising:
        level, full = _next_level(demands, rising, left, users)
        stopping = {i for i in rising if demands[i].cap <= demands[i].share * level}
        for resource in full:
            stopping |= users[resource] & rising
        if level == inf:
            stopping = set(rising)
        for i in sorted(stopping):
            rates[i] = min(demands[i].share * level, demands[i].cap)
            for resource, weight in demands[i].draws:
                users[resource].discard(i)
                left[resource] = max(0.0, left[resource] - weight * rates[i])
        rising -= stopping
    return rates


def _alone(demand: Demand, capacity: Mapping[int, float]) -> float:
    """The rate of a flow that shares with nobody: its narrowest resource, or its cap."""
    rate = demand.cap
    for resource, weight in demand.draws:
        rate = min(rate, capacity[resource] / weight)
    return rate


def _resources(
    demands: Sequence[Demand], capacity: Mapping[int, float]
) -> tuple[dict[int, float], dict[int, set[int]]]:
    """Capacity left on, and flows rising on, every resource of finite capacity in use."""
    left: dict[int, float] = {}
    users: dict[int, set[int]] = {}
    for i, demand in enumerate(demands):
        for resource, _ in demand.draws:
            left[resource] = capacity[resource]
            users.setdefault(resource, set()).add(i)
    return left, users


def _next_level(
    demands: Sequence[Demand],
    rising: set[int],
    left: Mapping[int, float],
    users: Mapping[int, set[int]],
) -> tuple[float, list[int]]:
    """The lowest level at which something stops the rise, and the resources full at it."""
    levels = {}
    load: dict[int, float] = dict.fromkeys((r for r, flows in users.items() if flows), 0.0)
    for i in sorted(rising):
        for resource, weight in demands[i].draws:
            load[resource] += weight * demands[i].share
    for resource, total in load.items():
        levels[resource] = left[resource] / total
    level = min(levels.values(), default=inf)
    level = min(level, min((demands[i].cap / demands[i].share for i in rising), default=inf))
    return level, [resource for resource, full in levels.items() if full <= level < inf]
