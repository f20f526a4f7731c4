"""The search for what is wrong: posterior probabilities of suspects, given the times of node tests.

Single faults are compared exactly. Several faults are found one after the other: first the best
one, then the best one given the first; then each of them is fitted again given the others. The
effect of two faults on one test is the larger of their effects.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import exp, inf, log

import numpy as np

from netsim.base.startup import at
from netsim.localize.conclusion import Conclusion, FittedSuspect, suspect_classes
from netsim.localize.effects import SuspectEffects, simulated_severity
from netsim.localize.evidence import (
    COARSE_SPREAD,
    FAULT_SPREAD,
    Evidence,
    Floats,
    Longs,
    normalized,
)
from netsim.localize.node_tests import TimedTest
from netsim.localize.observed import ObservedTests
from netsim.localize.parts import Suspect
from netsim.localize.predictions import EXACT_NODES, LARGE_NODES, Predictor, is_by_nodes
from netsim.localize.priors import ODDS_OF_FAULT, prior_logarithms
from netsim.localize.settings import SETTINGS

LEAST_EFFECT = 0.05  # log ratio that a fault must have on some test to be one
SLOW_SCORE = 3.0  # standard deviations from which a test is slow
MOST_FAST = 0.2  # fraction of a class that may be faster than its center by noise and outliers
REFINED = 10  # classes of suspects that are simulated anew at the severity that fits
MOST_REFINED = 40  # of them, if many are nearly as probable as the best one
NEARLY_AS_PROBABLE = 6.0  # log evidence behind the best one
REFINEMENTS = 3
EXACT_GROUPS = 3  # classes that are simulated at their own positions in large tests
MOST_EXACT = 12  # members of such a class
MOST_FAULTS = 8
MOST_STARTS = 3
UNEXPLAINED = 5.0  # standard deviations from which an observation is not explained
HOPELESS = 14.0  # log evidence behind the best one from which a suspect is left


class FaultSearch:
    """The search for faults, given some timed tests."""

    def __init__(self, predictor: Predictor, tests: Sequence[TimedTest]) -> None:
        self.predictor = predictor
        self.tests = tests
        self.observed = ObservedTests(predictor, tests)
        self.observations = self.observed.observations
        self.effects = SuspectEffects(self.observed)
        self._above: Floats | None = None
        # The best fits of the last call of `_fits` by place (node or kind): those of one suspect
        # and its twins.
        self._coarse: dict[object, list[FittedSuspect]] = {}
        self._fits_of_baseline: dict[tuple[bytes, bool], list[FittedSuspect]] = {}
        counts = [timed.test.node_count for timed in tests]
        self._has_large_tests = any(EXACT_NODES < count <= LARGE_NODES for count in counts)
        everyone = list(predictor.parts.suspects())
        self.suspects = everyone + list(self._settings())
        self._prior = prior_logarithms(self.suspects)

    def _settings(self) -> Iterator[Suspect]:
        """Yield as suspects the settings of the whole cluster, and those of one node if a single
        node may have them.
        """
        nodes = sorted({node for timed in self.tests for node in timed.test.nodes})
        for setting in SETTINGS.values():
            if setting.is_modeled:
                yield Suspect("setting", "cluster", setting=setting.id)
                if setting.on_one_node and len(nodes) > 1:
                    for node in nodes:
                        yield Suspect("setting", f"node{node}", node, setting=setting.id)

    def verdict(self) -> Conclusion:
        """Return the faults that the tests show, each with its suspects."""
        nothing = np.zeros(len(self.observations))
        fits = self._fits(nothing) if len(nothing) else []
        healthy = self._probability_of_none(fits)
        if healthy >= 0.5 or not fits:
            slow = self.slow_logs(nothing) if len(nothing) else []
            return Conclusion(healthy, (), tuple(slow), nothing)
        starts = list(self._coarse.values())
        chosen = self._with_further(fits)
        if self._is_unexplained(chosen):
            # Two faults may look like a third one, so the search is also begun with other suspects.
            starts.sort(key=lambda group: -self._rank(group[0]))
            others = [group for group in starts if group[0].twin != fits[0].twin][:MOST_STARTS]
            tried = [chosen, *(self._with_further(group) for group in others)]
            # Faults that are all taken for too large fit a simulation that is too slow as well.
            tried.append(self._as_if_calibrated())
            chosen = max(tried, key=self._posterior)
        return self._verdict_of(healthy, chosen)

    def _with_further(
        self, fits: list[FittedSuspect], *, is_calibrated: bool = False
    ) -> list[list[FittedSuspect]]:
        """Return the fits of each fault: those of the first one, `fits`, and those of further
        faults, searched one after the other; `is_calibrated` as in `_fits`.
        """
        chosen = [fits]
        # Each fault makes a test slow that the others do not explain.
        slow_count = len(self.slow_logs(np.zeros(len(self.observations))))
        while len(chosen) < min(MOST_FAULTS, max(slow_count, 1)):
            baseline = _combined([slot[0].effects for slot in chosen])
            further = self._fits(baseline, is_calibrated=is_calibrated)
            if not further or self._probability_of_none(further) >= 0.5:
                break
            chosen = self._revisited([*chosen, further], is_calibrated=is_calibrated)
        return chosen

    def _as_if_calibrated(self) -> list[list[FittedSuspect]]:
        """Return the fits of each fault if the search takes the simulation to be right, each fitted
        again with the usual uncertainty of the simulation.
        """
        nothing = np.zeros(len(self.observations))
        first = self._fits(nothing, is_calibrated=True)
        chosen = self._with_further(first, is_calibrated=True) if first else []
        return self._revisited(chosen) if len(chosen) > 1 else [self._fits(nothing)]

    def _is_unexplained(self, chosen: Sequence[Sequence[FittedSuspect]]) -> bool:
        """Whether some tests are slower or faster than the faults `chosen` (fits of each)
        explain.
        """
        evidence = Evidence(self.observations, _combined([slot[0].effects for slot in chosen]))
        spread = np.hypot(self.observations.noise, self.observations.log_noise)
        everywhere = np.arange(len(self.observations))
        errors = np.hypot(FAULT_SPREAD, self.effects.stand_in_errors(everywhere))
        spread = np.hypot(spread, errors * evidence.baseline)
        return bool((np.abs(evidence.residual()) > UNEXPLAINED * spread).any())

    def _posterior(self, chosen: Sequence[Sequence[FittedSuspect]]) -> float:
        """Return the log probability that all the faults `chosen` (fits of each) are present, up to
        a constant.
        """
        effects = _combined([slot[0].effects for slot in chosen])
        priors = sum(self._prior[slot[0].suspect] + ODDS_OF_FAULT for slot in chosen)
        evidence = Evidence(self.observations, np.zeros(len(self.observations)))
        places = np.arange(len(self.observations))
        ratios = evidence.ratios(places, effects[None, :], FAULT_SPREAD)
        return float(evidence.mixed(ratios)[0]) + priors

    def _revisited(
        self, chosen: list[list[FittedSuspect]], *, is_calibrated: bool = False
    ) -> list[list[FittedSuspect]]:
        """Return the fits of several faults, each fitted again given the others; `is_calibrated` as
        in `_fits`.
        """
        for place in range(len(chosen)):
            others = [slot[0].effects for number, slot in enumerate(chosen) if number != place]
            fits = self._fits(_combined(others), is_calibrated=is_calibrated)
            if fits:
                chosen[place] = fits
        return chosen

    def _probability_of_none(self, fits: Sequence[FittedSuspect]) -> float:
        """Return the probability that there is no further fault, given the fits of its suspects."""
        scores = [fit.score + self._prior[fit.suspect] for fit in fits]
        best = max(scores, default=-inf)
        if best == -inf:
            return 1.0
        any_fault = best + log(sum(exp(score - best) for score in scores))
        odds = any_fault + ODDS_OF_FAULT
        return 1 / (1 + exp(min(odds, 700.0)))

    def _verdict_of(self, healthy: float, chosen: Sequence[Sequence[FittedSuspect]]) -> Conclusion:
        everything = _combined([slot[0].effects for slot in chosen])
        nothing = np.zeros(len(self.observations))
        all_residuals = Evidence(self.observations, everything)
        center = all_residuals.center[self.observations.class_of]
        deviation = self.observations.deviation - center
        slow = deviation > SLOW_SCORE * self.observations.noise
        # By the centers that the faults leave: if a fault makes most tests of a class slow, the
        # class is not merely slower than simulated.
        slow_logs = np.unique(self.observations.log_of[slow])
        faults = []
        for place, fits in enumerate(chosen):
            others = [slot[0].effects for number, slot in enumerate(chosen) if number != place]
            without = _combined(others) if others else nothing
            weights = normalized([self._rank(fit) for fit in fits])
            weights *= 1 - self._probability_of_none(fits)
            faults.append(suspect_classes(fits, weights, deviation, slow, without))
        faults.sort(key=lambda classes: -classes[0].explains)
        return Conclusion(
            healthy,
            tuple(faults),
            tuple(slow_logs.tolist()),
            everything,
        )

    def slow_logs(self, baseline: Floats) -> list[int]:
        """Return the numbers of the tests that are slower than the effects `baseline` explain."""
        evidence = Evidence(self.observations, baseline)
        return np.flatnonzero(self._scores(evidence) > SLOW_SCORE).tolist()

    def _scores(self, evidence: Evidence) -> Floats:
        """Return for each test by how many standard deviations its slowest size is above the center
        of its class.

        In a class of few tests the center is unreliable: there it is the distance above the
        simulation, if larger.
        """
        observations = self.observations
        count = np.bincount(observations.class_of)[observations.class_of]
        absolute = observations.deviation - evidence.baseline
        residual = evidence.residual()
        spread = np.hypot(observations.noise, observations.log_noise)
        # The fault may have shifted the center: in classes of few tests, and in those of which a
        # part is much faster than the center. For example, a bad node is in 3 of the 6 pairs of 4
        # nodes.
        is_fast = residual < -SLOW_SCORE * spread
        fast_count = np.bincount(observations.class_of, weights=is_fast)[observations.class_of]
        is_misplaced = (count < 5) | (fast_count > MOST_FAST * count)
        is_simulated = ~observations.is_free[observations.class_of]
        larger = np.maximum(residual, absolute)
        relative = np.where(is_misplaced & is_simulated, larger, residual)
        scores = relative / spread
        result = np.zeros(len(self.tests))
        np.maximum.at(result, observations.log_of, scores)
        return result

    def _fits(self, baseline: Floats, *, is_calibrated: bool = False) -> list[FittedSuspect]:
        """Return the suspects of a further fault, the best one first; they are searched once for
        the same arguments.

        Args:
            baseline: the effects of the faults so far on every observation.
            is_calibrated: whether the simulation is taken to be right.
        """
        key = (baseline.tobytes(), is_calibrated)
        if key not in self._fits_of_baseline:
            evidence = Evidence(self.observations, baseline, is_calibrated=is_calibrated)
            self._fits_of_baseline[key] = self._found_fits(evidence)
        return self._fits_of_baseline[key]

    def _found_fits(self, evidence: Evidence) -> list[FittedSuspect]:
        """Return the suspects of a further fault, the best one first, given the evidence of the
        faults so far.

        Suspects that are far less probable than the best one, or that are in no slow test, are left
        out.
        """
        slow = set(np.flatnonzero(self._scores(evidence) > SLOW_SCORE).tolist())
        if not slow and not self._classes_move(evidence):
            return []
        fits: list[FittedSuspect] = []
        best = 0.0
        candidates = self._candidates(evidence, slow)
        of_twins: dict[Suspect, FittedSuspect | None] = {}
        for done, (suspect, bound) in enumerate(candidates):
            at(f"suspect {suspect.part}", done, len(candidates))
            if bound < best - HOPELESS:
                continue
            twin = self.effects.twin_of(suspect)
            is_new_setting = bool(suspect.setting) and twin not in of_twins
            if is_new_setting and self._is_hopeless(twin, evidence, best):
                of_twins[twin] = None
            fit = self._fit(suspect, evidence, COARSE_SPREAD, of_twins)
            if fit is not None:
                fits.append(fit)
                best = max(best, fit.score)
        fits.sort(key=lambda fit: -self._rank(fit))
        self._coarse = {}
        for fit in fits:
            place = fit.twin.node if fit.twin.node >= 0 else fit.twin.kind_name
            group = self._coarse.setdefault(place, [])
            if not group or group[0].twin == fit.twin:
                group.append(fit)
        return self._refined(fits, evidence)

    def _is_hopeless(self, suspect: Suspect, evidence: Evidence, best: float) -> bool:
        """Whether a setting is far less probable than the best suspect, whose log evidence is
        `best`, whatever its effects on tests are that were not simulated.

        The tests are simulated one after the other until that is certain, as most settings are
        ruled out by a single test.
        """
        groups = self.effects.groups_of(suspect)
        free = self._free_effects(suspect, evidence)
        for effects in self.effects.setting_effects(suspect):
            is_open = np.isnan(effects)
            rows = np.where(is_open, free, np.maximum(effects, evidence.baseline[groups.places]))
            if self._score_of_rows(groups.places, rows, evidence) < best - HOPELESS:
                return True
        return False

    def _rank(self, fit: FittedSuspect) -> float:
        return fit.score + self._prior[fit.suspect]

    def _refined(self, fits: list[FittedSuspect], evidence: Evidence) -> list[FittedSuspect]:
        """Return the best fits, fitted again to effects that are simulated at the severities that
        fit them.

        This is done three times; the last time suspects of large tests are simulated at their own
        positions.
        """
        for turn in range(REFINEMENTS):
            if not fits:
                return fits
            best = self._rank(fits[0])
            fits = [fit for fit in fits if self._rank(fit) > best - HOPELESS]
            groups = self._groups_to_refine(fits)
            is_last = turn == REFINEMENTS - 1
            for place, group in enumerate(groups):
                exact = is_last and self._has_large_tests and place < EXACT_GROUPS
                self._simulate_group(group, exact=exact and len(group) <= MOST_EXACT)
            of_twins: dict[Suspect, FittedSuspect | None] = {}
            refined = [
                again
                for group in groups
                for fit in group
                if (again := self._fit(fit.suspect, evidence, FAULT_SPREAD, of_twins)) is not None
            ]
            fits = sorted(refined, key=lambda fit: -self._rank(fit))
        return fits

    def _groups_to_refine(self, fits: Sequence[FittedSuspect]) -> list[list[FittedSuspect]]:
        """Return the groups of equal fits that are simulated again, the best first.

        These are the first few, and all that are nearly as probable, because suspects that are left
        out have probability 0 in the end.
        """
        groups = self._equal_fits(fits)
        best = self._rank(groups[0][0])
        near = [group for group in groups if self._rank(group[0]) > best - NEARLY_AS_PROBABLE]
        return groups[: max(REFINED, min(len(near), MOST_REFINED))]

    def _simulate_group(self, group: Sequence[FittedSuspect], *, exact: bool) -> None:
        """Simulate suspects of equal effects at the severity that fits the first of them best."""
        if exact:
            simulated = [fit.suspect for fit in group]
        else:
            simulated = list(dict.fromkeys(self.effects.twin_of(fit.suspect) for fit in group))
        for suspect in simulated:
            severity = simulated_severity(suspect, group[0].severity)
            self.effects.simulate(suspect, severity, exact=exact)

    @staticmethod
    def _equal_fits(fits: Sequence[FittedSuspect]) -> list[list[FittedSuspect]]:
        """Return the fits in groups of equal kind and effects, sorted by the best of each."""
        groups: dict[object, list[FittedSuspect]] = {}
        for fit in fits:
            key = (fit.suspect.kind, fit.suspect.setting, fit.effects.round(3).tobytes())
            groups.setdefault(key, []).append(fit)
        return list(groups.values())

    def _classes_move(self, evidence: Evidence) -> bool:
        """Whether all tests of some class are slower than the baseline explains by more than
        noise.
        """
        spread = np.hypot(self.observations.noise, self.observations.log_noise)
        deviation = self.observations.deviation - evidence.baseline
        free = self.observations.is_free[self.observations.class_of]
        medians = [
            np.median((deviation / spread)[self.observations.class_of == number])
            for number in np.unique(self.observations.class_of[~free])
        ]
        return max(medians, default=0.0) > SLOW_SCORE

    def _candidates(self, evidence: Evidence, slow: set[int]) -> list[tuple[Suspect, float]]:
        """Return the suspects that may explain slow tests, each with an upper bound of its log
        evidence.

        First come the parts of nodes in slow tests (numbers `slow`), those with the largest bounds
        first; links above the leaves, which need the most simulations, come last.
        """
        nodes = {node for number in slow for node in self.tests[number].test.nodes}
        bounds = {}
        of_twins: dict[Suspect, float] = {}
        for node in sorted(nodes):
            twin = self.effects.twin_of(Suspect("slow-node", f"node{node}", node))
            if twin not in of_twins:
                of_twins[twin] = self._bound(twin, evidence)
            bounds[node] = of_twins[twin]
        of_nodes = [
            (suspect, bounds[suspect.node])
            for suspect in self.suspects
            if bounds.get(suspect.node, 0.0) > 0.0
        ]
        of_nodes.sort(key=lambda entry: -entry[1])
        equal = self._bound(Suspect("setting", "cluster", setting=next(iter(SETTINGS))), evidence)
        above = self._bound_above(evidence)
        others = []
        links = []
        for suspect in self.suspects:
            if suspect.node >= 0:
                continue
            if is_by_nodes(suspect.kind, suspect.setting):
                links.append((suspect, above))
            elif suspect.kind == "leaf":
                others.append((suspect, inf))
            else:
                others.append((suspect, equal))
        return of_nodes + others + links  # links need the most simulations

    def _bound_above(self, evidence: Evidence) -> float:
        """Return an upper bound of the log evidence of any switch or link above the leaves.

        It is the evidence of the effects that fit best on every test in which these links have an
        effect. Effects have no upper limit there, as a link may have less bandwidth left than any
        that was simulated.
        """
        if self._above is None:
            self._above = self.effects.above_leaves()
        places = np.flatnonzero(self._above)
        if not len(places):
            return -inf
        effects = np.maximum(evidence.baseline[places], self._possible_effects(places, evidence))
        return self._score_of_rows(places, effects, evidence)

    def _bound(self, suspect: Suspect, evidence: Evidence) -> float:
        """Return an upper bound of the log evidence of all suspects at the place of this one.

        It is the evidence of effects that are fitted freely, but are equal on tests of one shape
        and size in which the suspect has the same seat.
        """
        places = self.effects.groups_of(suspect).places
        return self._score_of_rows(places, self._free_effects(suspect, evidence), evidence)

    def _free_effects(self, suspect: Suspect, evidence: Evidence) -> Floats:
        """Return effects that fit the observations of a suspect best, in a row for each of several
        centers of the classes (`_possible_effects`).

        Observations of one group have the same effect.
        """
        groups = self.effects.groups_of(suspect)
        places = groups.places
        baseline = evidence.baseline[places]
        # The effect of a group can be seen where no other fault hides it. If others hide all of its
        # tests, its effect is at most what they show.
        is_visible = baseline < LEAST_EFFECT
        is_hidden = np.bincount(groups.group, weights=is_visible) == 0
        visible = (is_visible | is_hidden[groups.group]).astype(float)
        count = np.bincount(groups.group, weights=visible)
        rows = [
            (np.bincount(groups.group, weights=effects * visible) / count)[groups.group]
            for effects in self._possible_effects(places, evidence)
        ]
        return np.asarray(np.maximum(baseline, rows))

    def _possible_effects(self, places: Longs, evidence: Evidence) -> Floats:
        """Return the effects on the observations `places` that would explain their deviations, in a
        row for each of three centers of their classes: 0, the centers that the evidence has, and
        those of the observations of a class that are not in `places`.
        """
        deviation = self.observations.deviation
        class_of = self.observations.class_of
        is_other = np.ones(len(deviation), dtype=bool)
        is_other[places] = False
        centers = np.zeros(len(evidence.center))
        for number in np.unique(class_of[places]).tolist():
            others = is_other & (class_of == number)
            if others.any():
                centers[number] = np.median((deviation - evidence.baseline)[others])
        shifts = [
            np.zeros(len(places)),
            evidence.center[class_of[places]],
            centers[class_of[places]],
        ]
        return deviation[places] - np.array(shifts)

    def _score_of_rows(self, places: Longs, effects: Floats, evidence: Evidence) -> float:
        """Return the largest log evidence of several rows of effects on the observations
        `places`.
        """
        # Effects that are fitted later may have uncertainties; the bound has to hold for them, too.
        spreads = self.effects.stand_in_errors(places) * effects
        scores = [
            evidence.mixed(evidence.ratios(places, effects, COARSE_SPREAD)).max(),
            evidence.mixed(evidence.ratios(places, effects, COARSE_SPREAD, spreads)).max(),
        ]
        return float(max(scores) - evidence.total)

    def _fit(
        self,
        suspect: Suspect,
        evidence: Evidence,
        spread: float,
        of_twins: dict[Suspect, FittedSuspect | None],
    ) -> FittedSuspect | None:
        """Return the fit of a suspect; None if it has no noticeable effect.

        Args:
            suspect: the suspect.
            evidence: the evidence given the faults so far.
            spread: relative standard deviation of effects.
            of_twins: fits of twins (suspects with the same effects), which are reused and extended.
        """
        twin = self.effects.twin_of(suspect)
        if twin not in of_twins:
            of_twins[twin] = self._fit_of_twin(twin, evidence, spread)
        fit = of_twins[twin]
        if fit is None or fit.suspect == suspect:
            return fit
        return replace(fit, suspect=suspect)

    def _fit_of_twin(
        self, suspect: Suspect, evidence: Evidence, spread: float
    ) -> FittedSuspect | None:
        places = self.effects.groups_of(suspect).places
        if not len(places):
            return None
        rows = self.effects.rows(suspect)
        is_fault = rows.effects.max(1) >= LEAST_EFFECT
        if not is_fault.any():
            return None
        suspect_effects = rows.effects[is_fault]
        effects = np.maximum(suspect_effects, evidence.baseline[places])
        ratios = evidence.ratios(places, effects, spread, rows.spreads[is_fault])
        scores = evidence.mixed(ratios) - evidence.total + rows.weights[is_fault]
        best = int(np.argmax(scores))
        everywhere = np.zeros(len(self.observations))
        everywhere[places] = suspect_effects[best]
        severity = float(np.array(rows.severities)[is_fault][best])
        score = float(np.logaddexp.reduce(scores))
        return FittedSuspect(suspect, severity, score, everywhere, suspect)


def _combined(effects: Sequence[Floats]) -> Floats:
    """Return the effects of several faults at once: the largest one on each observation."""
    return np.asarray(np.max(np.array(effects), axis=0))
