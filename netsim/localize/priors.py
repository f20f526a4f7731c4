"""How probable each suspect is before any log is read."""

from collections.abc import Sequence
from math import log

from netsim.localize.parts import KINDS, Suspect

PRIOR_OF_FAULT = 0.2  # that something is wrong, before the logs are read
PRIOR_OF_SETTING = 0.1  # of it, that it is a setting
PRIOR_OF_DEAD = 0.25  # that a part that may be dead is dead, not slow
ODDS_OF_FAULT = log(PRIOR_OF_FAULT / (1 - PRIOR_OF_FAULT))  # as a logarithm


def prior_logarithms(suspects: Sequence[Suspect]) -> dict[Suspect, float]:
    """The logarithm of the prior probability of each suspect, given that there is a fault.

    >>> two = [Suspect("rail", "rail0"), Suspect("leaf", "leaf0")]
    >>> [round(value, 2) for value in prior_logarithms(two).values()]
    [-1.06, -0.59]
    """
    settings = [suspect for suspect in suspects if suspect.setting]
    priors = {suspect: log(PRIOR_OF_SETTING / len(settings)) for suspect in settings}
    kinds: dict[str, list[Suspect]] = {}
    for suspect in suspects:
        if not suspect.setting:
            kinds.setdefault(suspect.kind, []).append(suspect)
    total = sum(KINDS[kind].weight for kind in kinds)
    for kind, members in kinds.items():
        share = KINDS[kind].weight / total * (1 - PRIOR_OF_SETTING)
        priors.update((suspect, log(share / len(members))) for suspect in members)
    return priors
