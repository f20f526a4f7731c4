"""The search for what is wrong: posterior probabilities of suspects, given the times of node tests.

Single faults are compared exactly. Several faults are found one after the other: the best one
first, then the best one given the first, then each of them anew given the others. The effect of two
faults on one test is the larger of their effects."""

from collections.abc import Iterator, Sequence
from dataclasses import field
from math import exp, inf, log

import numpy as np

from netsim.base.startup import at
from netsim.base.values import dataclass
from netsim.localize.evidence import (
    COARSE_SPREAD,
    FAULT_SPREAD,
    NOISY_COLLECTIVES,
    Evidence,
    Floats,
    Longs,
    Observations,
    normalized,
)
from netsim.localize.node_tests import COMPUTE, SizeQuestion, TimedTest
from netsim.localize.parts import DEAD, KINDS, Suspect, common_pattern
from netsim.localize.predictions import EXACT_NODES, SETTING, Key, Predictor, is_by_nodes
from netsim.localize.settings import SETTINGS

MOST_SIZES = 3  # of a test that are simulated
LEAST_SIZE = 2**16  # bytes below which times say little of parts
PRIOR_OF_FAULT = 0.2  # that something is wrong, before the logs are read
PRIOR_OF_SETTING = 0.1  # of it, that it is a setting
PRIOR_OF_DEAD = 0.25  # that a part that may be dead is dead, not slow
LEAST_EFFECT = 0.05  # log ratio that a fault must have on some test to be one
SEVERITY_STEPS = 96
SIMULATED_STEPS = 32  # of the strain, at which effects are simulated anew
SLOW_SCORE = 3.0  # standard deviations from which a test is slow
MOST_FAST = 0.2  # fraction of a class that may be faster than its center by noise and outliers
SAME_EFFECT = 0.025  # log ratio within which the effects of parts of one class agree
SAME_SCORE = 1.5  # log evidence within which they do
REFINED = 10  # classes of suspects that are simulated anew at the severity that fits
REFINEMENTS = 3
EXACT_GROUPS = 3  # classes that are simulated at their own positions in large tests
MOST_FAULTS = 6
MOST_STARTS = 3
UNEXPLAINED = 5.0  # standard deviations from which an observation is not explained
HOPELESS = 14.0  # log evidence behind the best one from which a suspect is left


@dataclass(frozen=True)
class FittedSuspect:
    """A suspect with the severity that fits best, its log evidence against no further fault
    (`score`), and its effects on all observations at that severity."""

    suspect: Suspect
    severity: float
    score: float
    effects: Floats

    @property
    def change(self) -> tuple[Suspect, float]:
        """The suspect with its severity."""
        return self.suspect, self.severity


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
    most probable first; it is empty if nothing is wrong. `common` lists by shape of tests what all
    of them deviate by."""

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


@dataclass(frozen=True)
class EffectGroups:
    """The observations that a suspect can have an effect on (`places`), in groups of equal effects:
    `group` numbers the group of each, `first` is the first observation of each group."""

    places: Longs
    group: Longs
    first: tuple[int, ...]


@dataclass(frozen=True)
class SeverityRows:
    """The severities of a suspect that are compared, their log prior weights, the effects of each
    (severities x observations), and how far these may differ."""

    severities: list[float]
    weights: Floats
    effects: Floats
    spreads: Floats


class FaultSearch:
    """The search on some timed tests."""

    def __init__(self, predictor: Predictor, tests: Sequence[TimedTest]) -> None:
        self.predictor = predictor
        self.tests = tests
        self._questions: list[tuple[int, SizeQuestion]] = []
        self._curves: dict[Suspect, dict[float, Floats]] = {}
        self._groups: dict[Suspect, EffectGroups] = {}
        self._above: Floats | None = None
        self._coarse: dict[
            object, FittedSuspect
        ] = {}  # the best fit by node or kind, of the last fits
        self._has_large_tests = any(timed.test.node_count > EXACT_NODES for timed in tests)
        self.observations = self._observe()
        everyone = list(predictor.parts.suspects())
        self.suspects = everyone + list(self._settings())
        self._prior = _priors(self.suspects)
        self._logs_of_node: dict[int, list[int]] = {}
        for number, timed in enumerate(tests):
            for node in timed.test.nodes:
                self._logs_of_node.setdefault(node, []).append(number)

    def _settings(self) -> Iterator[Suspect]:
        """Settings of the whole cluster, and of one node where that is possible."""
        nodes = sorted({node for timed in self.tests for node in timed.test.nodes})
        for setting in SETTINGS.values():
            if setting.is_modeled:
                yield Suspect("setting", "cluster", setting=setting.id)
                if setting.on_one_node and len(nodes) > 1:
                    for node in nodes:
                        yield Suspect("setting", f"node{node}", node, setting=setting.id)

    def _observe(self) -> Observations:
        """The deviations of all tests at the sizes that are simulated."""
        deviation: list[float] = []
        log_of: list[int] = []
        class_of: list[int] = []
        is_noisy: list[bool] = []
        is_free: list[bool] = []
        classes: dict[tuple[Key, SizeQuestion], int] = {}
        for number, timed in enumerate(self.tests):
            at(timed.label, number, len(self.tests))
            for question in simulated_sizes(timed):
                healthy = self.predictor.healthy(timed.test, question)
                key = (self.predictor.shape(timed.test), question)
                if timed.test.collective == COMPUTE:
                    key = ((COMPUTE,), question)
                if key not in classes:
                    classes[key] = len(classes)
                    is_free.append(timed.test.collective == COMPUTE)
                self._questions.append((number, question))
                deviation.append(log(timed.times[question] / healthy))
                log_of.append(number)
                class_of.append(classes[key])
                is_noisy.append(timed.test.collective in NOISY_COLLECTIVES)
        self.classes: list[tuple[Key, SizeQuestion]] = list(classes)
        return Observations(
            np.array(deviation, dtype=float),
            np.array(log_of, dtype=np.int64),
            np.array(class_of, dtype=np.int64),
            np.array(is_noisy, dtype=bool),
            np.array(is_free, dtype=bool),
        )

    def verdict(self) -> Conclusion:
        """What is wrong: the faults, each with its suspects."""
        nothing = np.zeros(len(self.observations))
        fits = self._fits(nothing) if len(nothing) else []
        healthy = self._probability_of_none(fits)
        if healthy >= 0.5 or not fits:
            slow = self.slow_logs(nothing) if len(nothing) else []
            return Conclusion(healthy, (), tuple(slow), nothing)
        starts = list(self._coarse.values())
        chosen = self._with_further(fits)
        if self._is_unexplained(chosen):
            # Two faults may look like a third one: begin with other suspects, too.
            starts.sort(key=lambda fit: -self._rank(fit))
            others = [fit for fit in starts if fit.suspect != fits[0].suspect][:MOST_STARTS]
            tried = [chosen, *(self._with_further([fit]) for fit in others)]
            chosen = max(tried, key=self._posterior)
        return self._verdict_of(healthy, chosen)

    def _with_further(self, fits: list[FittedSuspect]) -> list[list[FittedSuspect]]:
        """The fits of a first fault, and those of further ones, found one after the other."""
        chosen = [fits]
        while len(chosen) < MOST_FAULTS:
            baseline = _combined([slot[0].effects for slot in chosen])
            further = self._fits(baseline)
            if not further or self._probability_of_none(further) >= 0.5:
                break
            chosen = self._revisited([*chosen, further])
        return chosen

    def _is_unexplained(self, chosen: Sequence[Sequence[FittedSuspect]]) -> bool:
        """Whether faults leave tests that are slower or faster than they explain."""
        evidence = Evidence(self.observations, _combined([slot[0].effects for slot in chosen]))
        spread = np.hypot(self.observations.noise, self.observations.log_noise)
        spread = np.hypot(spread, FAULT_SPREAD * evidence.baseline)
        return bool((np.abs(evidence.residual()) > UNEXPLAINED * spread).any())

    def _posterior(self, chosen: Sequence[Sequence[FittedSuspect]]) -> float:
        """The log probability of some faults at once, up to a constant."""
        effects = _combined([slot[0].effects for slot in chosen])
        odds = log(PRIOR_OF_FAULT / (1 - PRIOR_OF_FAULT))
        priors = sum(self._prior[slot[0].suspect] + odds for slot in chosen)
        evidence = Evidence(self.observations, np.zeros(len(self.observations)))
        places = np.arange(len(self.observations))
        ratios = evidence.ratios(places, effects[None, :], FAULT_SPREAD)
        return float(evidence.mixed(ratios)[0]) + priors

    def _revisited(self, chosen: list[list[FittedSuspect]]) -> list[list[FittedSuspect]]:
        """Each of several faults anew, given the others."""
        for place in range(len(chosen)):
            others = [slot[0].effects for number, slot in enumerate(chosen) if number != place]
            fits = self._fits(_combined(others))
            if fits:
                chosen[place] = fits
        return chosen

    def _probability_of_none(self, fits: Sequence[FittedSuspect]) -> float:
        """The probability that there is no further fault."""
        scores = [fit.score + self._prior[fit.suspect] for fit in fits]
        best = max(scores, default=-inf)
        if best == -inf:
            return 1.0
        any_fault = best + log(sum(exp(score - best) for score in scores))
        odds = any_fault + log(PRIOR_OF_FAULT / (1 - PRIOR_OF_FAULT))
        return 1 / (1 + exp(min(odds, 700.0)))

    def _verdict_of(self, healthy: float, chosen: Sequence[Sequence[FittedSuspect]]) -> Conclusion:
        everything = _combined([slot[0].effects for slot in chosen])
        nothing = np.zeros(len(self.observations))
        before = Evidence(self.observations, nothing)
        all_residuals = Evidence(self.observations, everything)
        center = all_residuals.center[self.observations.class_of]
        deviation = self.observations.deviation - center
        faults = []
        for place, slot in enumerate(chosen):
            others = [fits[0].effects for number, fits in enumerate(chosen) if number != place]
            without = _combined(others) if others else nothing
            probability = 1 - self._probability_of_none(slot)
            faults.append(self._classes(slot, probability, deviation, without))
        order = sorted(range(len(faults)), key=lambda place: -faults[place][0].explains)
        del before
        return Conclusion(
            healthy,
            tuple(faults[place] for place in order),
            tuple(self.slow_logs(nothing)),
            everything,
        )

    def _classes(
        self, fits: Sequence[FittedSuspect], probability: float, deviation: Floats, without: Floats
    ) -> tuple[SuspectClass, ...]:
        """The suspects of one fault as classes that no test separates."""
        weights = normalized([fit.score + self._prior[fit.suspect] for fit in fits]) * probability
        groups: list[list[int]] = []
        for number, fit in enumerate(fits):
            for group in groups:
                first = fits[group[0]]
                near = abs(first.score - fit.score) < SAME_SCORE
                if near and np.abs(first.effects - fit.effects).max() < SAME_EFFECT:
                    group.append(number)
                    break
            else:
                groups.append([number])
        noise = self.observations.noise
        slow = deviation > SLOW_SCORE * noise
        total = float(deviation[slow].sum())
        classes = []
        for group in groups:
            effects = np.maximum(fits[group[0]].effects, without)
            left = float(np.abs(deviation - effects)[slow].sum())
            before = float(np.abs(deviation - without)[slow].sum())
            explains = max(0.0, (before - left) / total) if total > 0 else 0.0
            members = tuple(fits[number] for number in group)
            classes.append(SuspectClass(members, float(weights[group].sum()), explains))
        return tuple(sorted(classes, key=lambda item: -item.probability))

    def slow_logs(self, baseline: Floats) -> list[int]:
        """The numbers of tests that are slower than a baseline explains."""
        evidence = Evidence(self.observations, baseline)
        return np.flatnonzero(self._scores(evidence) > SLOW_SCORE).tolist()

    def _scores(self, evidence: Evidence) -> Floats:
        """By test, how many standard deviations its slowest size is above the center of its class.

        In a class of few tests the center is unreliable: there, above the simulation."""
        observations = self.observations
        count = np.bincount(observations.class_of)[observations.class_of]
        absolute = observations.deviation - evidence.baseline
        residual = evidence.residual()
        spread = np.hypot(observations.noise, observations.log_noise)
        # The center may have followed the fault: in classes of few tests, and in those of which a
        # part is much faster than the center. A bad node is in 3 of 5 pairs of 4 nodes.
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

    def _fits(self, baseline: Floats) -> list[FittedSuspect]:
        """The suspects of a further fault, the best one first; those that are far behind it, or
        that are in no slow test, are left out."""
        evidence = Evidence(self.observations, baseline)
        slow = set(np.flatnonzero(self._scores(evidence) > SLOW_SCORE).tolist())
        if not slow and not self._classes_move(evidence):
            return []
        fits: list[FittedSuspect] = []
        best = 0.0
        candidates = self._candidates(evidence, slow)
        for done, (suspect, bound) in enumerate(candidates):
            at(f"suspect {suspect.part}", done, len(candidates))
            if bound < best - HOPELESS:
                continue
            fit = self._fit(suspect, evidence, COARSE_SPREAD)
            if fit is not None:
                fits.append(fit)
                best = max(best, fit.score)
        fits.sort(key=lambda fit: -self._rank(fit))
        self._coarse = {}
        for fit in fits:
            place = fit.suspect.node if fit.suspect.node >= 0 else fit.suspect.kind_name
            self._coarse.setdefault(place, fit)
        return self._refined(fits, evidence)

    def _rank(self, fit: FittedSuspect) -> float:
        return fit.score + self._prior[fit.suspect]

    def _refined(self, fits: list[FittedSuspect], evidence: Evidence) -> list[FittedSuspect]:
        """The best fits with effects simulated at the severities that fit them, three times; at
        their own positions in large tests in the end."""
        for turn in range(REFINEMENTS):
            if not fits:
                return fits
            best = self._rank(fits[0])
            fits = [fit for fit in fits if self._rank(fit) > best - HOPELESS]
            groups = self._equal_fits(fits)[:REFINED]
            is_last = turn == REFINEMENTS - 1
            for place, group in enumerate(groups):
                for fit in group:
                    exact = is_last and self._has_large_tests and place < EXACT_GROUPS
                    severity = simulated_severity(fit.suspect, group[0].severity)
                    self._curve_at(fit.suspect, severity, exact=exact)
            refined = [
                again
                for group in groups
                for fit in group
                if (again := self._fit(fit.suspect, evidence, FAULT_SPREAD)) is not None
            ]
            fits = sorted(refined, key=lambda fit: -self._rank(fit))
        return fits

    @staticmethod
    def _equal_fits(fits: Sequence[FittedSuspect]) -> list[list[FittedSuspect]]:
        """The fits in groups of equal kind and effects, in the order of the best of each."""
        groups: dict[object, list[FittedSuspect]] = {}
        for fit in fits:
            key = (fit.suspect.kind, fit.suspect.setting, fit.effects.round(3).tobytes())
            groups.setdefault(key, []).append(fit)
        return list(groups.values())

    def _classes_move(self, evidence: Evidence) -> bool:
        """Whether all tests of some class deviate by more than noise."""
        spread = np.hypot(self.observations.noise, self.observations.log_noise)
        deviation = self.observations.deviation - evidence.baseline
        free = self.observations.is_free[self.observations.class_of]
        medians = [
            np.median((deviation / spread)[self.observations.class_of == number])
            for number in np.unique(self.observations.class_of[~free])
        ]
        return max(medians, default=0.0) > SLOW_SCORE

    def _candidates(self, evidence: Evidence, slow: set[int]) -> list[tuple[Suspect, float]]:
        """The suspects that may explain slow tests, each with the largest log evidence that it can
        have: first the parts of nodes in slow tests, those with the largest bounds in front."""
        nodes = {node for number in slow for node in self.tests[number].test.nodes}
        bounds = {
            node: self._bound(Suspect("slow-node", f"node{node}", node), evidence)
            for node in sorted(nodes)
        }
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
        """The largest log evidence that a switch or link above the leaves can have: that of effects
        between none and those of all of them at once."""
        if self._above is None:
            self._above = self._effects_above()
        places = np.flatnonzero(self._above)
        if not len(places):
            return -inf
        left = evidence.observations.deviation[places]
        effects = np.clip(left, evidence.baseline[places], self._above[places])[None, :]
        ratios = evidence.ratios(places, effects, COARSE_SPREAD)
        return float(evidence.mixed(ratios)[0] - evidence.total)

    def _effects_above(self) -> Floats:
        """The effects if all links above the leaves have the least bandwidth that is tried."""
        links = self.predictor.parts.above
        if not links:
            return np.zeros(len(self.observations))
        everything = Suspect("fabric-links", "", local=common_pattern(links))
        severity = KINDS["fabric-link"].severities[-1]
        effects: dict[int, float] = {}
        result = np.zeros(len(self.observations))
        for place, (number, question) in enumerate(self._questions):
            test = self.tests[number].test
            group = int(self.observations.class_of[place])
            if not self.predictor.parts.crosses(test):
                continue
            if group not in effects:
                effects[group] = self.predictor.effect(test, question, everything, severity)
            result[place] = max(effects[group], 0.0)
        return result

    def _bound(self, suspect: Suspect, evidence: Evidence) -> float:
        """The largest log evidence that any suspect at the place of this one can have: that of free
        effects, which are equal on tests of one shape and size in which it has the same seat."""
        groups = self._groups_of(suspect)
        places = groups.places
        baseline = evidence.baseline[places]
        absolute = self.observations.deviation[places]
        relative = absolute - evidence.center[self.observations.class_of[places]]
        # The effect of a group shows where no other fault hides it.
        visible = (baseline < LEAST_EFFECT).astype(float)
        count = np.maximum(np.bincount(groups.group, weights=visible), 1e-9)
        rows = [
            (np.bincount(groups.group, weights=deviation * visible) / count)[groups.group]
            for deviation in (absolute, relative)
        ]
        effects = np.maximum(baseline, rows)
        ratios = evidence.ratios(groups.places, effects, COARSE_SPREAD)
        return float(evidence.mixed(ratios).max() - evidence.total)

    def places_of(self, suspect: Suspect) -> Longs:
        """The observations that a suspect can have an effect on."""
        return self._groups_of(suspect).places

    def _groups_of(self, suspect: Suspect) -> EffectGroups:
        """The observations that a suspect can have an effect on, those with equal effects as one
        group."""
        if suspect not in self._groups:
            self._groups[suspect] = self._make_groups(suspect)
        return self._groups[suspect]

    def _make_groups(self, suspect: Suspect) -> EffectGroups:
        numbers: Sequence[int] = range(len(self.tests))
        if suspect.node >= 0:
            numbers = self._logs_of_node.get(suspect.node, [])
        predictor = self.predictor
        seats = {
            number: predictor.seat(self.tests[number].test, suspect)
            for number in numbers
            if predictor.parts.touches(suspect, self.tests[number].test)
        }
        places = np.concatenate(
            [np.zeros(0, np.int64), *(self._places_of_log(number) for number in seats)]
        )
        places.sort()
        keys: dict[object, int] = {}
        first: list[int] = []
        group = np.zeros(len(places), np.int64)
        for index, place in enumerate(places.tolist()):
            number = int(self.observations.log_of[place])
            key = (int(self.observations.class_of[place]), seats[number])
            if key not in keys:
                keys[key] = len(keys)
                first.append(place)
            group[index] = keys[key]
        return EffectGroups(places, group, tuple(first))

    def _places_of_log(self, number: int) -> Longs:
        start, end = np.searchsorted(self.observations.log_of, [number, number + 1])
        return np.arange(start, end)

    def _curve_at(self, suspect: Suspect, severity: float, *, exact: bool) -> Floats:
        """The effects of a suspect at a severity, by its places."""
        curve = self._curves.setdefault(suspect, {})
        if severity not in curve or exact:
            groups = self._groups_of(suspect)
            effects = []
            without: set[int] = set()  # tests on which the suspect has no effect at all
            for place in groups.first[::-1]:  # the largest size of each test first
                number, question = self._questions[place]
                test = self.tests[number].test
                effect = 0.0
                if number not in without:
                    effect = self.predictor.effect(test, question, suspect, severity, exact=exact)
                if effect == 0.0 and is_by_nodes(suspect.kind, suspect.setting):
                    without.add(number)
                effects.append(effect)
            effects.reverse()
            curve[severity] = np.array(effects)[groups.group]
        return curve[severity]

    def _rows(self, suspect: Suspect) -> SeverityRows:
        """The severities of a suspect that are compared, with the effects of each."""
        if suspect.setting:
            effects = self._curve_at(suspect, SETTING, exact=False)[None, :]
            return SeverityRows([SETTING], np.zeros(1), effects, np.zeros_like(effects))
        kind = KINDS[suspect.kind]
        for severity in kind.severities:
            self._curve_at(suspect, severity, exact=False)
        curve = self._curves[suspect]
        knots = sorted((kind.strain(severity), severity) for severity in curve if severity != DEAD)
        strains = np.array([0.0, *(strain for strain, _ in knots)])
        table = np.array([np.zeros(len(self.places_of(suspect))), *(curve[s] for _, s in knots)])
        steps = np.union1d(
            np.linspace(strains[-1] / SEVERITY_STEPS, strains[-1], SEVERITY_STEPS), strains[1:]
        )
        # Each severity twice: with the largest and with the least effects between simulated ones.
        line, least = interpolated(strains, table, steps)
        effects = np.vstack([line, least])
        spreads = np.vstack([(line - least) / 4] * 2)
        severities = [float(np.exp(s if kind.is_slowdown else -s)) for s in steps] * 2
        weights = np.full(len(severities), -log(len(severities)))
        if kind.may_be_dead:
            dead = self._curve_at(suspect, DEAD, exact=False)
            effects = np.vstack([effects, dead])
            spreads = np.vstack([spreads, np.zeros_like(dead)])
            severities.append(DEAD)
            weights += log(1 - PRIOR_OF_DEAD)
            weights = np.append(weights, log(PRIOR_OF_DEAD))
        return SeverityRows(severities, weights, effects, spreads)

    def _fit(self, suspect: Suspect, evidence: Evidence, spread: float) -> FittedSuspect | None:
        """The fit of a suspect; None if it has no effect worth the name."""
        places = self.places_of(suspect)
        if not len(places):
            return None
        rows = self._rows(suspect)
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
        return FittedSuspect(suspect, severity, float(np.logaddexp.reduce(scores)), everywhere)


def simulated_severity(suspect: Suspect, severity: float) -> float:
    """The severity next to a given one of those that are simulated: few, so that suspects whose
    best severities are near each other share simulations.

    >>> round(simulated_severity(Suspect("gpu", "node0.gpu0", 0, "gpu0"), 2.51), 3)
    2.473
    """
    if suspect.setting or severity == DEAD:
        return severity
    kind = KINDS[suspect.kind]
    step = kind.strain(kind.severities[-1]) / SIMULATED_STEPS
    strain = max(round(kind.strain(severity) / step), 1) * step
    return exp(strain if kind.is_slowdown else -strain)


def interpolated(strains: Floats, table: Floats, steps: Floats) -> tuple[Floats, Floats]:
    """The largest and the least effects (steps x observations) at strains between simulated ones.

    Effects are convex in the strain with slopes of at most 1, as the time is the largest of times
    of several parts: they lie below the line between two simulated strains, and above the line of
    slope 1 that ends in the upper one.

    >>> line, least = interpolated(np.array([0.0, 1.0]), np.array([[0.0], [0.5]]), np.array([0.5]))
    >>> float(line[0, 0]), float(least[0, 0])
    (0.25, 0.0)
    """
    upper = np.clip(np.searchsorted(strains, steps), 1, len(strains) - 1)
    part = ((steps - strains[upper - 1]) / (strains[upper] - strains[upper - 1]))[:, None]
    low, high = table[upper - 1], table[upper]
    line = low + part * (high - low)
    rising = high - (strains[upper] - steps)[:, None]
    least = np.minimum(np.maximum(rising, low), line)
    return line, least


def simulated_sizes(timed: TimedTest) -> list[SizeQuestion]:
    """The sizes of a test that are compared: a few, the largest and smaller ones, evenly spaced."""
    if timed.test.collective == COMPUTE:
        return list(timed.times)
    large = sorted(
        (question for question in timed.times if question.size_bytes >= LEAST_SIZE),
        key=lambda question: (question.size_bytes, question.is_in_place),
    )
    questions = large or sorted(timed.times, key=lambda question: question.size_bytes)
    if len(questions) <= MOST_SIZES:
        return questions
    places = np.linspace(len(questions) / 3, len(questions) - 1, MOST_SIZES).round().astype(int)
    return [questions[place] for place in places]


def _combined(effects: Sequence[Floats]) -> Floats:
    """The effects of several faults at once: the largest on each observation."""
    return np.asarray(np.max(np.array(effects), axis=0))


def _priors(suspects: Sequence[Suspect]) -> dict[Suspect, float]:
    """The logarithm of the prior probability of each suspect, given that there is a fault."""
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
