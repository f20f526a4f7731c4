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
    """A suspect with the severity that fits best, its log evidence against no further fault
    (`score`), and its effects on all observations at that severity. `twin` is the suspect that was
    fitted for it, as it has the same effects on every test."""

    suspect: Suspect
    severity: float
    score: float
    effects: Floats
    twin: Suspect


@dataclass(frozen=True)
class SuspectClass:
    """Suspects that no test separates. `probability` is that of all members together, `explains`
    the fraction of the deviation of slow tests that they explain."""

    members: tuple[FittedSuspect, ...]
    probability: float
    explains: float

    @property
    def best(self) -> FittedSuspect:
        """The member that represents the class."""
        return self.members[0]


@dataclass(frozen=True)
class Conclusion:
    """What the tests say. `faults` has for each fault that was found the classes of suspects, the
    most probable first; it is empty if nothing is wrong. `slow_logs` are the numbers of slow tests;
    `baseline` has the effects of all faults that were found, by observation."""

    healthy_probability: float
    faults: tuple[tuple[SuspectClass, ...], ...] = ()
    slow_logs: tuple[int, ...] = ()
    baseline: Floats = field(default_factory=lambda: np.zeros(0))

    @property
    def ranking(self) -> list[SuspectClass]:
        """All classes: the best of each fault first, then the others by probability."""
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
    """The suspects of one fault as classes that no test separates, the most probable first.

    `weights` are the probabilities of the fits, `deviation` what the observations deviate by,
    `slow` says which of them are slow, `without` are the effects of the other faults."""
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
    """The numbers of fits in groups that no test separates: they explain the tests as well, by the
    same effects."""
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
