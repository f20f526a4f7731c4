"""The noise of a scenario, and what it adds to the time of an operation."""

from __future__ import annotations

from netsim.extent.bench import Noise, disturbed
from netsim.extent.ladder import Timing
from netsim.scenario.models import Scenario


def noise_of(scenario: Scenario) -> Noise | None:
    """The noise that a scenario asks for; None if it asks for none."""
    disturbances = scenario.disturbances
    return None if disturbances is None else Noise(*disturbances)


def sampled_seconds(noise: Noise | None, timing: Timing) -> tuple[float, ...]:
    """The time of an operation in each sample of noise, in seconds; empty without noise.

    Noise makes an operation longer by as much as it makes one from an idle cluster longer.
    """
    if noise is None:
        return ()
    added = disturbed(timing.program, noise, timing.engine) - timing.timeline.makespan
    return tuple((timing.seconds + added).tolist())
