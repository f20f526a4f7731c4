"""The noise model: how probable the measured times are, given what a hypothesis predicts.

An observation is the deviation log(measured / healthy simulation) of one size of one test. If a
hypothesis predicts the effects e (log ratios; 0 if nothing is wrong), the residuals are

    deviation - e = center of the class + noise of the log + noise of the size

A class is one size of tests of one shape. Its center is the error of the simulation itself, a
normal variable whose standard deviation is one of the three `CENTER_SPREADS`, each with a prior
weight. With many tests in a class, its center is their median, so that only relative deviations
count; with few, it is near 0. The noise of one log is multivariate Student with `TAIL` degrees of
freedom: single outliers are rare, but not impossible.
"""

from collections.abc import Mapping, Sequence
from math import lgamma, log, pi

import numpy as np
from numpy.typing import NDArray

from netsim.base.values import dataclass

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]

SIZE_NOISE = 0.012  # spread of log times of one size on healthy nodes (1 % published, 1.2 % taken)
LOG_NOISE = 0.006  # spread that all sizes of one log share
ALLTOALL_FACTOR = 5.0  # alltoall spreads by 6 % instead of 1 %
NOISY_COLLECTIVES = ("alltoall", "alltoallv")
TAIL = 7.0  # degrees of freedom of the noise of one log
CENTER_SPREADS = (0.01, 0.05, 0.15)  # of what the simulation is off by: calibrated, usual, bad
CENTER_WEIGHTS = (0.5, 0.3, 0.2)
CALIBRATED_WEIGHTS = (1.0, 1e-9, 1e-9)  # if the simulation is taken to be right
FREE_SPREAD = 1.0  # of classes without a simulation (step times)
FAULT_SPREAD = 0.03  # relative error of a predicted effect
COARSE_SPREAD = 0.08  # the same before it is simulated at the severity that fits
MEDIAN_EFFICIENCY = 1.57  # variance of a median over that of a mean
# A class keeps its center if suspects have an effect on at most this fraction of its observations
# (and if it has at least `FEWEST_FOR_MEDIAN`); otherwise its center is estimated for each suspect.
FEW_TOUCHED = 0.1
FEWEST_FOR_MEDIAN = 5
FEWEST_WITH_SHARED_ERROR = 3  # tests of a class whose effects share an error
UNTOUCHED = 0.05  # log ratio below which an effect leaves a test as it is


@dataclass(frozen=True)
class Observations:
    """Observations, sorted by their logs. Columns have one entry for each observation.

    Args:
        deviation: log(measured / healthy simulation).
        log_of: number of the log.
        class_of: number of the class (one size of tests of one shape).
        is_noisy: whether it is of a collective with larger noise.
        is_free: for each class, whether its center is unknown, as nothing is simulated.
    """

    deviation: Floats
    log_of: Longs
    class_of: Longs
    is_noisy: NDArray[np.bool_]
    is_free: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.deviation)

    @property
    def noise(self) -> Floats:
        """The standard deviation of the noise of each observation that is independent of all
        others.
        """
        return np.where(self.is_noisy, SIZE_NOISE * ALLTOALL_FACTOR, SIZE_NOISE)

    @property
    def log_noise(self) -> Floats:
        """The standard deviation of the noise that each observation shares with all others of its
        log.
        """
        return np.where(self.is_noisy, LOG_NOISE * ALLTOALL_FACTOR, LOG_NOISE)


@dataclass(frozen=True)
class SharedErrors:
    """Errors of effects that all tests of a class share (hypotheses x observations).

    Args:
        errors: the error of each observation, in log ratios.
        is_member: whether the observation has such an error.
        terms: log density of all shared errors, for each hypothesis.
    """

    errors: Floats
    is_member: NDArray[np.bool_]
    terms: Floats


class Evidence:
    """The probability of observations if certain faults are present, and the ratio of it for
    further hypotheses.

    `baseline` has the effects of those faults on every observation (0 without faults). With
    `is_calibrated` the simulation is taken to be right.
    """

    def __init__(
        self, observations: Observations, baseline: Floats, *, is_calibrated: bool = False
    ) -> None:
        self.observations = observations
        self._spread_priors = np.log(CALIBRATED_WEIGHTS if is_calibrated else CENTER_WEIGHTS)
        self.baseline = baseline
        self._noise = observations.noise
        self._starts = _starts_of(observations.log_of)
        self._members = _members_of(observations.class_of)
        residual = observations.deviation - baseline
        self.centers = np.zeros((len(CENTER_SPREADS), len(self._members)))
        class_terms = np.zeros((len(CENTER_SPREADS), len(self._members)))
        for number, members in enumerate(self._members):
            medians = self._medians(residual[None, members], baseline[None, members])
            for spread in range(len(CENTER_SPREADS)):
                center = self._center(medians, number, spread)
                self.centers[spread, number] = center[0]
                class_terms[spread, number] = self._class_term(center, number, spread)[0]
        everything = np.arange(len(observations))
        self._is_explained = baseline > UNTOUCHED
        self._logs = []
        self._shared_terms = np.zeros(len(CENTER_SPREADS))
        for spread in range(len(CENTER_SPREADS)):
            left = (residual - self.centers[spread][observations.class_of])[None, :]
            effects = baseline[None, :]
            shared = self._shared_errors(left, everything, effects, np.zeros_like(left))
            self._shared_terms[spread] = shared.terms[0]
            uncertain = np.where(shared.is_member, 0.0, effects)
            self._logs.append(self._log_terms(left - shared.errors, everything, uncertain))
        self._classes = class_terms
        self.by_spread = np.array([terms.sum() for terms in self._logs]) + self._classes.sum(1)
        self.by_spread += self._shared_terms

    @property
    def total(self) -> float:
        """The logarithm of the probability density of all observations given the baseline."""
        return float(self.mixed(np.zeros((1, len(CENTER_SPREADS))))[0])

    def mixed(self, ratios: Floats) -> Floats:
        """Return the log density of all observations for each hypothesis, averaged over the center
        spreads.

        `ratios` are log ratios to the baseline (hypotheses x center spreads).
        """
        weighted = self.by_spread + self._spread_priors + ratios
        return np.asarray(np.logaddexp.reduce(weighted, axis=1))

    @property
    def spread_weights(self) -> Floats:
        """The posterior probability of each center spread."""
        weighted = self.by_spread + self._spread_priors
        weights = np.exp(weighted - weighted.max())
        return np.asarray(weights / weights.sum())

    @property
    def center(self) -> Floats:
        """The center of each class (error of the simulation), averaged over the center spreads."""
        return self.spread_weights @ self.centers

    def residual(self) -> Floats:
        """Return the deviation of every observation that neither the baseline nor the center of its
        class explains.
        """
        left: Floats = self.observations.deviation - self.baseline
        return left - self.center[self.observations.class_of]

    def extended(self, places: Longs, effects: Floats) -> tuple[Longs, Floats, list[int]]:
        """Add the observations whose probability also changes under some hypotheses.

        Returns the numbers of all these observations, the effects on them (hypotheses x
        observations), and the classes whose centers change. `places` and `effects` are the
        observations that the hypotheses change directly, and the effects on them.

        All sizes of a log are judged together. If hypotheses change more than a small part of a
        class, or the class is small, its center changes as well, so all tests of the class are
        judged anew. The error that effects of the baseline share is also judged anew, with all
        observations that have it.
        """
        observations = self.observations
        touched = np.unique(observations.class_of[places[np.abs(effects).max(0) > 0.003]])
        count = np.bincount(observations.class_of[places], minlength=len(self._members))
        changed = [
            int(number)
            for number in touched
            if count[number] > FEW_TOUCHED * len(self._members[number])
            or len(self._members[number]) < FEWEST_FOR_MEDIAN
        ]
        needed = np.isin(observations.class_of, changed)
        needed[places] = True
        needed |= self._is_explained
        every = np.flatnonzero(np.isin(observations.log_of, observations.log_of[needed]))
        wide = np.broadcast_to(self.baseline[every], (len(effects), len(every))).copy()
        wide[:, np.searchsorted(every, places)] = effects
        return every, wide, changed

    def ratios(
        self,
        places: Longs,
        effects: Floats,
        fault_spread: float = FAULT_SPREAD,
        spreads: Floats | None = None,
    ) -> Floats:
        """Return the log ratio of the probability of the observations under hypotheses to that
        under the baseline (hypotheses x center spreads).

        Args:
            places: numbers of the observations that the hypotheses change.
            effects: effects on them (hypotheses x observations), in place of the baseline.
            fault_spread: relative standard deviation of the effects.
            spreads: additional standard deviation of each effect.
        """
        if not len(places):
            return np.zeros((len(effects), len(CENTER_SPREADS)))
        every, wide, changed = self.extended(places, effects)
        observations = self.observations
        residual = observations.deviation[every] - wide
        extra = np.zeros_like(wide)
        if spreads is not None:
            extra[:, np.searchsorted(every, places)] = spreads
        result = np.zeros((len(effects), len(CENTER_SPREADS)))
        logs = np.unique(observations.log_of[every])
        position = {
            number: np.flatnonzero(observations.class_of[every] == number) for number in changed
        }
        medians = {
            number: self._medians(residual[:, columns], wide[:, columns])
            for number, columns in position.items()
        }
        for spread in range(len(CENTER_SPREADS)):
            centers = self.centers[spread]
            shift = np.zeros_like(residual)
            for number, columns in position.items():
                center = self._center(medians[number], number, spread)
                shift[:, columns] = (center - centers[number])[:, None]
                result[:, spread] += self._class_term(center, number, spread)
                result[:, spread] -= self._classes[spread, number]
            left = residual - shift - centers[observations.class_of[every]]
            shared = self._shared_errors(left, every, wide, extra, fault_spread)
            result[:, spread] += shared.terms - self._shared_terms[spread]
            terms = self._log_terms(
                left - shared.errors,
                every,
                np.where(shared.is_member, 0.0, wide),
                fault_spread,
                np.where(shared.is_member, 0.0, extra),
            )
            result[:, spread] += terms.sum(1) - self._logs[spread][0, logs].sum()
        return result

    def _spread(self, number: int, spread: int) -> float:
        return FREE_SPREAD if self.observations.is_free[number] else CENTER_SPREADS[spread]

    def _variance(self, number: int) -> float:
        """Return the variance of the median of class `number` if nothing is wrong."""
        members = self._members[number]
        noise = float(self._noise[members[0]] ** 2 + self.observations.log_noise[members[0]] ** 2)
        efficiency = MEDIAN_EFFICIENCY if len(members) > 2 else 1.0
        return efficiency * noise / len(members)

    def _center(self, medians: Floats | float, number: int, spread: int) -> Floats:
        """Return the most probable centers of class `number`, given medians of its residuals.
        `spread` is the number of the center spread.
        """
        prior = self._spread(number, spread) ** 2
        shrunk = np.atleast_1d(medians) * prior / (prior + self._variance(number))
        return np.asarray(shrunk, dtype=float)

    @staticmethod
    def _medians(residual: Floats, effects: Floats) -> Floats:
        """Return the median of the residuals of a class for each hypothesis; `residual` and
        `effects` are hypotheses x observations.

        In a class of few tests only those count on which a hypothesis has no effect, if there are
        any: the residual of a large effect says little about the center.
        """
        count = residual.shape[1]
        if count == 1:
            return np.asarray(residual[:, 0])
        if count >= FEWEST_FOR_MEDIAN:
            return np.asarray(np.median(residual, axis=1))
        is_untouched = effects < UNTOUCHED
        is_used = is_untouched | ~is_untouched.any(1, keepdims=True)
        return masked_medians(residual, is_used)

    def _class_term(self, center: Floats, number: int, spread: int) -> Floats:
        """Return the log density of the center of class `number` for each hypothesis, integrated by
        Laplace's method.

        `center` is the most probable center for each hypothesis, `spread` is the number of the
        center spread.
        """
        prior = self._spread(number, spread) ** 2
        variance = self._variance(number)
        posterior = prior * variance / (prior + variance)
        term: Floats = -0.5 * center**2 / prior
        return term + 0.5 * log(posterior / prior)

    def _shared_errors(
        self,
        left: Floats,
        places: Longs,
        effects: Floats,
        spreads: Floats,
        fault_spread: float = FAULT_SPREAD,
    ) -> SharedErrors:
        """Return the errors that the effects on all tests of a class share.

        A prediction that is 3 % too slow is 3 % too slow for each of 80 equal tests. Counted as 80
        independent errors, it would make a slow rail less probable than a wrong simulation. The
        error of a class is estimated by the median of what is left, and integrated by Laplace's
        method. It is not done for fewer than `FEWEST_WITH_SHARED_ERROR` tests.

        Args:
            left: residuals without the centers (hypotheses x observations).
            places: numbers of the observations.
            effects: effects on the observations (hypotheses x observations).
            spreads: additional standard deviation of each effect.
            fault_spread: relative standard deviation of the effects.
        """
        errors = np.zeros_like(left)
        is_member = np.zeros(left.shape, dtype=bool)
        terms = np.zeros(len(left))
        class_of = self.observations.class_of[places]
        is_touched = effects > UNTOUCHED
        for number in np.unique(class_of[is_touched.any(0)]).tolist():
            columns = np.flatnonzero(class_of == number)
            is_used = is_touched[:, columns]
            count = is_used.sum(1)
            rows = np.flatnonzero(count >= FEWEST_WITH_SHARED_ERROR)
            if not len(rows):
                continue
            is_used = is_used[rows]
            block = np.ix_(rows, columns)
            level = masked_medians(effects[block], is_used)
            error = masked_medians(left[block], is_used)
            spread = masked_medians(spreads[block], is_used)
            prior = (fault_spread * level) ** 2 + spread**2
            member = self._members[number][0]
            noise = float(self._noise[member] ** 2 + self.observations.log_noise[member] ** 2)
            variance = MEDIAN_EFFICIENCY * noise / count[rows]
            shared = error * prior / (prior + variance)
            relative = (shared / level)[:, None]
            errors[block] = np.where(is_used, relative * effects[block], 0.0)
            is_member[block] = is_used
            terms[rows] += 0.5 * np.log(variance / (prior + variance)) - 0.5 * shared**2 / prior
        return SharedErrors(errors, is_member, terms)

    def _log_terms(
        self,
        left: Floats,
        places: Longs,
        effects: Floats,
        fault_spread: float = FAULT_SPREAD,
        spreads: Floats | float = 0.0,
    ) -> Floats:
        """Return the log density of the residuals of whole logs (hypotheses x logs).

        It is multivariate Student; the noise that all sizes of a log share is included by the
        Sherman-Morrison formula.

        Args:
            left: residuals without the centers (hypotheses x observations).
            places: numbers of the observations, those of a log together.
            effects: effects on the observations (hypotheses x observations).
            fault_spread: relative standard deviation of the effects.
            spreads: additional standard deviation of each effect.
        """
        observations = self.observations
        variance = self._noise[places] ** 2 + (fault_spread * effects) ** 2 + spreads**2
        shared = observations.log_noise[places]
        starts = _starts_of(observations.log_of[places])
        weights = 1.0 / variance
        squares = np.add.reduceat(left**2 * weights, starts, axis=1)
        sums = np.add.reduceat(left * shared * weights, starts, axis=1)
        scale = 1.0 + np.add.reduceat(shared**2 * weights, starts, axis=1)
        distance = squares - sums**2 / scale
        determinant = np.add.reduceat(np.log(variance), starts, axis=1) + np.log(scale)
        count = np.diff(np.append(starts, len(places)))
        constant = np.array([lgamma((TAIL + n) / 2) - n / 2 * log(pi * TAIL) for n in count])
        constant -= lgamma(TAIL / 2)
        tail = (TAIL + count) / 2 * np.log1p(distance / TAIL)
        return np.asarray(constant - determinant / 2 - tail)


def masked_medians(values: Floats, is_used: NDArray[np.bool_]) -> Floats:
    """Return the median of the used values of each row; each row has one at least.

    >>> masked_medians(np.array([[1.0, 2.0, 9.0]]), np.array([[True, True, False]])).tolist()
    [1.5]
    """
    # Values that do not count are sorted behind all others; numpy's nanmedian is slow.
    ascending = np.sort(np.where(is_used, values, np.inf), axis=1)
    used_count = is_used.sum(1)
    rows = np.arange(len(values))
    lower = ascending[rows, (used_count - 1) // 2]
    upper = ascending[rows, used_count // 2]
    return np.asarray((lower + upper) / 2)


def _starts_of(numbers: Longs) -> Longs:
    """Return the positions in sorted numbers at which a new number begins."""
    return np.flatnonzero(np.append(True, np.diff(numbers) != 0))


def _members_of(numbers: Longs) -> list[Longs]:
    """Return for each number that occurs, in ascending order, the positions at which it occurs."""
    order = np.argsort(numbers, kind="stable")
    return [part.astype(np.int64) for part in np.split(order, _starts_of(numbers[order])[1:])]


def normalized(logarithms: Sequence[float] | Floats) -> Floats:
    """Return probabilities whose sum is 1, given logarithms of relative probabilities."""
    values = np.asarray(logarithms, dtype=float)
    weights = np.exp(values - values.max())
    return np.asarray(weights / weights.sum())


def as_percentages(values: Mapping[str, float]) -> dict[str, float]:
    """Return fractions as percentages with one decimal."""
    return {name: round(100 * value, 1) for name, value in values.items()}
