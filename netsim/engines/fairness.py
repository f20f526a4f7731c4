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
    left, loads = _resources(demands, capacity)
    full_at = {resource: left[resource] / sum(loads[resource].values()) for resource in loads}
    capped_at = sorted(((d.cap / d.share, i) for i, d in enumerate(demands)), reverse=True)
    while rising:
        level = min(capped_at[-1][0], min(full_at.values(), default=inf))
        stopping = set()
        while capped_at and capped_at[-1][0] <= level:
            stopping.add(capped_at.pop()[1])
        for resource in [r for r, full in full_at.items() if full <= level < inf]:
            stopping.update(loads[resource])
        changed = set()
        for i in sorted(stopping & rising):
            rates[i] = min(demands[i].share * level, demands[i].cap)
            for resource, weight in demands[i].draws:
                del loads[resource][i]
                left[resource] = max(0.0, left[resource] - weight * rates[i])
                changed.add(resource)
        for resource in changed:
            load = sum(loads[resource].values())
            full_at[resource] = left[resource] / load if load else inf
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
) -> tuple[dict[int, float], dict[int, dict[int, float]]]:
    """The capacity left on every resource in use, and what each rising flow draws on it per unit
    of the common level.
    """
    left: dict[int, float] = {}
    loads: dict[int, dict[int, float]] = {}
    for i, demand in enumerate(demands):
        for resource, weight in demand.draws:
            left[resource] = capacity[resource]
            loads.setdefault(resource, {})[i] = weight * demand.share
    return left, loads
