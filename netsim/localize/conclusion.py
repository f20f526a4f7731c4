"""What the search concludes: faults, each with classes of suspects that no test separates."""

from collections.abc import Sequence
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from netsim.base.values import dataclass
from netsim.localize.evidence import Floats
from netsim.localize.parts import Suspect

SAME_EFFECT = 0.025  # log ratio within which the effects of parts of one class agree
SAME_SCORE = 1.5  # log evidence within which they do


@dataclass(frozen=True)
class FittedSuspect:
    """A suspect with the severity that fits best.

    Args:
        suspect: the suspect.
        severity: the severity that fits best.
        score: log evidence for this fault against no further fault.
        effects: its effects on all observations at that severity (log ratios).
        twin: the suspect that was fitted in its place, as it has the same effects on every test.
    """

    suspect: Suspect
    severity: float
    score: float
    effects: Floats
    twin: Suspect


@dataclass(frozen=True)
class SuspectClass:
    """Suspects that no test separates.

    Args:
        members: the suspects, the best first.
        probability: that of all members together.
        explains: the fraction of the deviation of slow tests that they explain.
    """

    members: tuple[FittedSuspect, ...]
    probability: float
    explains: float

    @property
    def best(self) -> FittedSuspect:
        """The member that represents the class."""
        return self.members[0]


@dataclass(frozen=True)
class Conclusion:
    """The faults that the tests show.

    Args:
        healthy_probability: the probability that nothing is wrong.
        faults: for each fault its classes of suspects, the most probable first; empty if nothing is
            wrong.
        slow_logs: numbers of the slow tests.
        baseline: the effects of all these faults together on every observation (log ratios).
    """

    healthy_probability: float
    faults: tuple[tuple[SuspectClass, ...], ...] = ()
    slow_logs: tuple[int, ...] = ()
    baseline: Floats = field(default_factory=lambda: np.zeros(0))

    @property
    def ranking(self) -> list[SuspectClass]:
        """All classes: the best class of each fault, then all further classes by probability."""
        first = [classes[0] for classes in self.faults]
        rest = [group for classes in self.faults for group in classes[1:]]
        return first + sorted(rest, key=lambda group: -group.probability)


def suspect_classes(
    fits: Sequence[FittedSuspect],
    weights: Floats,
    deviation: Floats,
    slow: NDArray[np.bool_],
    without: Floats,
) -> tuple[SuspectClass, ...]:
    """Return the suspects of one fault, grouped in classes that no test separates, the most
    probable first.

    Args:
        fits: the suspects with their fits.
        weights: probability of each fit.
        deviation: deviation of every observation (log ratio).
        slow: mask of the observations that are slow.
        without: effects of the other faults on every observation.
    """
    total = float(deviation[slow].sum())
    before = float(np.abs(deviation - without)[slow].sum())
    classes = []
    for group in inseparable(fits):
        effects = np.maximum(fits[group[0]].effects, without)
        left = float(np.abs(deviation - effects)[slow].sum())
        explains = max(0.0, (before - left) / total) if total > 0 else 0.0
        members = tuple(fits[number] for number in group)
        classes.append(SuspectClass(members, float(weights[group].sum()), explains))
    return tuple(sorted(classes, key=lambda item: -item.probability))


def inseparable(fits: Sequence[FittedSuspect]) -> list[list[int]]:
    """Return groups of fits (their numbers) that no test separates: they have about the same score
    and the same effects.
    """
    twins: dict[Suspect, list[int]] = {}
    for number, fit in enumerate(fits):
        twins.setdefault(fit.twin, []).append(number)
    groups: list[list[int]] = []
    for numbers in twins.values():
        fit = fits[numbers[0]]
        for group in groups:
            first = fits[group[0]]
            is_near = abs(first.score - fit.score) < SAME_SCORE
            if is_near and np.abs(first.effects - fit.effects).max() < SAME_EFFECT:
                group.extend(numbers)
                break
        else:
            groups.append(list(numbers))
    return [sorted(group) for group in groups]
