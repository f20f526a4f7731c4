"""The noise of a scenario, and the time that it adds to an operation."""

from __future__ import annotations

from netsim.extent.noise import NoiseDraws, disturbed
from netsim.extent.result import Result
from netsim.scenario.models import Scenario


def noise_of(scenario: Scenario) -> NoiseDraws | None:
    """The random draws of a scenario's noise; None if it has no noise."""
    disturbances = scenario.disturbances
    return None if disturbances is None else NoiseDraws(*disturbances)


def sampled_seconds(noise: NoiseDraws | None, timing: Result) -> tuple[float, ...]:
    """The time of an operation in each sample of noise, in seconds; empty without noise.

    Noise is simulated for one operation from an idle cluster; the seconds that it adds there are
    added to the time of `timing`.
    """
    if noise is None:
        return ()
    added = disturbed(timing.program, noise, timing.engine) - timing.timeline.makespan
    return tuple((timing.seconds + added).tolist())
