"""How far below its expected bandwidth a healthy machine may be, at a given probability.

The error of a size is the log of measured over simulated time (above 0: slower than expected).
Every constant that was fitted to the system of the error is estimated again without that system.
`netsim accuracy --page` writes `margins.csv` from the errors of the healthy runs of the corpus:

- `scale` is the root mean square error of a class; every system has the same weight. The error of a
  class with few systems is a weighted mean with that of the next wider class: mean square =
  (n * own + SHRINKAGE * wider) / (n + SHRINKAGE), where n is the number of systems in the class.
- `quantile` is, by size band and probability, the quantile of errors divided by their scale, where
  the scale is computed without the system of the error (a normalized conformal prediction: Lei et
  al., JASA 2018).

A healthy machine is slower than `exp(quantile * scale)` times the expected time with a probability
of at most 1 - confidence. `python -m tests.bench.gates` measures how often that holds.
"""

import csv
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import exp, log1p, sqrt

from netsim.base.files import preset_folder
from netsim.base.values import dataclass
from netsim.results.row import ONE_HOST, Class, Joined, band_of

MARGINS = "margins.csv"
SCALE = "scale"
QUANTILE = "quantile"
BETWEEN_HOSTS = "between hosts"  # in place of the transport: any that joins hosts
SHRINKAGE = 4.0  # the next wider class counts as this many systems; chosen by tests.bench.gates
LEAST_SCALE = 0.01  # the noise of repeats of one system: standard deviation of the log of a time
CONFIDENCES = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.925, 0.95, 0.965, 0.98)
SMALLEST_CONFIDENCE = CONFIDENCES[0]
# The errors of about 30 measured systems do not determine the quantile of a higher confidence.
LARGEST_CONFIDENCE = CONFIDENCES[-1]


@dataclass(frozen=True)
class ClassError:
    """The mean square of the errors (log ratios) of a class, and the number of its systems."""

    mean_square: float
    systems: int


@dataclass(frozen=True)
class Margins:
    """The errors by class, and for each size band the quantiles of scaled errors at
    `CONFIDENCES`.
    """

    errors: Mapping[Class, ClassError]
    quantiles: Mapping[str, Sequence[float]]

    def scale(self, classes: Sequence[Class]) -> float:
        """The scale of errors for a case, whose `classes` are in order from the narrowest to the
        widest.

        Each class with errors is averaged with the next wider one, as the module describes.
        """
        mean_square = 0.0
        weight = 0.0
        for name in reversed(classes):
            error = self.errors.get(name)
            if error is not None:
                total = error.systems * error.mean_square + weight * mean_square
                mean_square = total / (error.systems + weight)
                weight = SHRINKAGE
        return max(sqrt(mean_square), LEAST_SCALE)

    def quantile(self, band: str, confidence: float) -> float:
        """The quantile of scaled errors of a size band at a confidence (0 to 1), interpolated
        between stored ones.

        It is at least 0, because a machine that is as fast as expected must pass.
        """
        values = self.quantiles[band]
        place = bisect_left(CONFIDENCES, confidence)
        if place == 0:
            return max(0.0, values[0])
        low = CONFIDENCES[place - 1]
        high = CONFIDENCES[place]
        part = (confidence - low) / (high - low)
        return max(0.0, values[place - 1] + part * (values[place] - values[place - 1]))


def margin_classes(where: Joined, collective: str, band: str) -> tuple[Class, ...]:
    """Return the classes whose errors apply to a case, from the narrowest to the widest.

    `where` is the machine and what joins its GPUs, `band` the size band. A case of unknown machine
    has only the widest class.
    """
    widest = ("", "", "", band)
    if not where.machine:
        return (widest,)
    joined_by = ONE_HOST if where.transport == ONE_HOST else BETWEEN_HOSTS
    return (
        (where.machine, where.transport, collective, band),
        (where.machine, where.transport, "", band),
        ("", where.transport, "", band),
        (where.kind, joined_by, "", band),
        (where.kind, "", "", band),
        widest,
    )


@lru_cache(maxsize=1)
def margins() -> Margins:
    """The margins that follow from the corpus that comes with netsim."""
    path = preset_folder("scenarios") / "measured" / MARGINS
    errors: dict[Class, ClassError] = {}
    quantiles: dict[str, list[float]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            name = (line["machine"], line["transport"], line["collective"], line["band"])
            if line["of"] == SCALE:
                errors[name] = ClassError(float(line["value"]) ** 2, int(line["systems"]))
            else:
                quantiles.setdefault(line["band"], []).append(float(line["value"]))
    return Margins(errors, quantiles)


def least_fraction(
    where: Joined, collective: str, size_bytes: int, confidence: float, uncertainty: float = 0.0
) -> float:
    """Return the fraction of its expected bandwidth that a healthy machine reaches with the
    probability `confidence`.

    `where` is the machine and what joins its GPUs. `uncertainty` is the relative error bound of an
    approximate simulation, which is added because measurements do not include it.
    """
    band = band_of(size_bytes)
    corpus = margins()
    classes = margin_classes(where, collective, band)
    return exp(-corpus.quantile(band, confidence) * corpus.scale(classes) - log1p(uncertainty))
