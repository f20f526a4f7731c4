"""How certain the sign of a predicted difference is: sure, likely, or cannot tell.

Two predictions for one system share most of their error. So it is easier to predict which one is
faster than how long either takes. The signs of predicted ratios were compared with pairs of
measured runs, by the size of the ratio (`python -m tests.bench.differences` writes
`differences.csv`):

- `same collective`: two runs of one system and one collective (other GPUs, settings or versions);
- `same machine`: two runs of one system, of different collectives;
- `other machine`: runs of two systems, of one collective and the same number of ranks;
- `measured`: both times were measured; their noise is that of repeats, 1 % each.

A difference is "sure" if the sign was right in at least 95 % of the pairs whose predicted ratio is
as large, "likely" from 80 % on. Every system has the same weight.
"""

import csv
from functools import lru_cache
from math import log, log1p
from statistics import NormalDist
from typing import Literal

from netsim.base.files import preset_folder
from netsim.base.values import dataclass

DIFFERENCES = "differences.csv"
PROBABILITIES = {"likely": 0.8, "sure": 0.95}
REPEAT_NOISE = 0.01  # standard deviation of the log of a measured time between repeats
Certainty = Literal["sure", "likely", "cannot tell"]
PairKind = Literal["same collective", "same machine", "other machine", "measured"]


@dataclass(frozen=True)
class SignThresholds:
    """The ratios of the longer to the shorter of two times from which a difference counts as
    likely, and as sure.
    """

    likely: float
    sure: float


@lru_cache(maxsize=1)
def thresholds() -> dict[str, SignThresholds]:
    """The thresholds for each kind of pair, from the corpus that comes with netsim."""
    path = preset_folder("scenarios") / "measured" / DIFFERENCES
    with path.open(encoding="utf-8", newline="") as file:
        table = {
            line["kind"]: SignThresholds(float(line["likely"]), float(line["sure"]))
            for line in csv.DictReader(file)
        }
    return table | {"measured": _of_repeats()}


def _of_repeats() -> SignThresholds:
    """The thresholds for two measured times, from the noise of repeats.

    The difference of two times has a standard deviation sqrt(2) times that of one; the sign of a
    difference is right with the probability that the normal distribution gives.
    """
    normal = NormalDist(sigma=REPEAT_NOISE * 2**0.5)
    likely, sure = (normal.inv_cdf(probability) for probability in PROBABILITIES.values())
    return SignThresholds(1 + likely, 1 + sure)


def pair_kind(*, same_machine: bool, same_collective: bool, measured: int) -> PairKind:
    """The kind of a pair of times, of which `measured` (0, 1 or 2) were measured and the others
    predicted.

    The error of a measured and that of a predicted time have nothing in common, so such a pair
    counts as one of two machines.
    """
    if measured == 2:
        return "measured"
    if measured == 1 or not same_machine:
        return "other machine"
    return "same collective" if same_collective else "same machine"


def certainty_of(ratio: float, kind: PairKind, error_bound: float = 0.0) -> Certainty:
    """How certain it is which of two times is shorter: sure, likely or cannot tell.

    `ratio` is one time over the other, and `error_bound` the relative error that approximations may
    add to it.

    >>> certainty_of(2.0, "same collective")
    'sure'
    >>> certainty_of(1.001, "same collective")
    'cannot tell'
    """
    limits = thresholds()[kind]
    size = abs(log(ratio)) - log1p(error_bound)
    if size >= log(limits.sure):
        return "sure"
    return "likely" if size >= log(limits.likely) else "cannot tell"
