"""The time of a very long run, from shorter ones of the same period.

A huge message goes through its buffers loop after loop, and operations follow each other back to
back; after some loops every further one adds the same time. What that time is, is found by running
a few loops in full: no closed form is assumed, and how far the answer can be off is part of it.
This module knows neither schedules nor engines; it is given functions of the number of loops.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from netsim.errors import InputError

AGREE = 1e-6  # increments that differ by less, relatively, are those of the steady state
LONGEST_PERIOD = 4  # loops after which the pattern may repeat
_FIRST = 8  # loops that the first attempt runs
_COARSEST = 1 << 20


class BudgetError(InputError):
    """A run that does not fit into the budget of rows in any way."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A long run: `rows(loops, grain)` and `seconds(loops, grain)` of it with that many loops and
    with chunks `grain` times as large as they are. `grains`: whether chunks can be larger at all.
    """

    loops: int
    rows: Callable[[int, int], int]
    seconds: Callable[[int, int], float]
    grains: bool = False


@dataclass(frozen=True, slots=True)
class Estimate:
    """The time of a long run.

    `approximation` says in words what was done instead of running it all ("" if nothing was), and
    `uncertainty` by how much, relatively, `seconds` may be off for that.
    """

    seconds: float
    uncertainty: float = 0.0
    approximation: str = ""


def estimate(plan: Plan, budget: int) -> Estimate:
    """The time of a plan with at most `budget` rows at a time: in full where it fits, else
    extrapolated from its steady state, else with larger chunks.
    """
    if plan.rows(plan.loops, 1) <= budget:
        return Estimate(plan.seconds(plan.loops, 1))
    found = extrapolate(
        plan.loops, lambda k: plan.seconds(k, 1), lambda k: plan.rows(k, 1) <= budget
    )
    return found or _coarser(plan, budget)


def extrapolate(
    loops: int, seconds: Callable[[int], float], fits: Callable[[int], bool]
) -> Estimate | None:
    """The time of `loops` loops, from the shortest run that has a steady state and fits."""
    once = cache(seconds)
    size = _FIRST
    while size < loops and fits(size):
        found = _steady(loops, size, once)
        if found is not None:
            return found
        size *= 2
    return None


def _steady(loops: int, size: int, seconds: Callable[[int], float]) -> Estimate | None:
    """An estimate from runs of up to `size` loops, if what a period adds does not depend on where
    it begins. The run that is extended differs from the whole by a multiple of the period.

    If the start dies away at least by half from period to period, the error is smaller than if all
    that is added were off by as much as what was seen to be added differs.
    """
    for period in range(1, LONGEST_PERIOD + 1):
        last = size - (size - loops) % period
        if last < period + LONGEST_PERIOD:
            break
        ends = [last - k for k in range(LONGEST_PERIOD)]
        added = [seconds(end) - seconds(end - period) for end in ends]
        spread = max(added) - min(added)
        if min(added) > 0 and spread <= AGREE * added[0]:
            periods = (loops - last) // period
            total = seconds(last) + periods * added[0]
            words = f"steady state of {last} of {loops} loops"
            return Estimate(total, periods * spread / total, words)
    return None


def _coarser(plan: Plan, budget: int) -> Estimate:
    """The whole run with the smallest larger chunks that fit, and what doubling them changes."""
    grain = 2
    while plan.grains and grain <= _COARSEST:
        if plan.rows(plan.loops, grain) <= budget:
            fine, coarse = (plan.seconds(plan.loops, g) for g in (grain, 2 * grain))
            words = f"chunks {grain} times as large"
            return Estimate(fine, abs(coarse - fine) / fine, words)
        grain *= 2
    raise BudgetError(
        f"{plan.loops} loops take {plan.rows(plan.loops, 1):,} rows, more than the budget of "
        f"{budget:,}, and no steady state was found in fewer",
        hint="a larger budget of rows, fewer ranks or channels, or a smaller message",
    )
