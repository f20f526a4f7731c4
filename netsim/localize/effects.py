"""The effect of each suspect on the observations, at every severity.

An effect is the logarithm of the factor by which a test becomes slower. A few severities are
simulated; effects at other severities are interpolated. Suspects that have the same effect on every
test are *twins* (all nodes, if only a test of all nodes was run): the first of them, which is
called the twin of all, is simulated and fitted for all.

The *strain* of a severity is the logarithm of the factor by which the part itself is slower. The
*seat* of a suspect in a test is the position that determines its effect (`Predictor.seat`).
"""

from collections.abc import Hashable, Iterator, Sequence
from math import exp, inf, log, nan

import numpy as np

from netsim.base.values import dataclass
from netsim.localize.evidence import Floats, Longs
from netsim.localize.node_tests import COMPUTE
from netsim.localize.observed import ObservedTests
from netsim.localize.parts import DEAD, KINDS, Suspect, common_pattern
from netsim.localize.predictions import ABOVE_LEAVES, LARGE_NODES, SETTING, is_by_nodes
from netsim.localize.priors import PRIOR_OF_DEAD

SEVERITY_STEPS = 96
SIMULATED_STEPS = 32  # of the strain, at which effects are simulated anew
NEGLIGIBLE = 0.003  # log ratio below which an effect is none, nor that of a less severe fault
MOST_STRAIN = log(20)  # of the severities that are compared: 5 % of a bandwidth left
EXTRAPOLATED_STEPS = 24  # of the strain, beyond the most severe of the first severities
NEAR_STEPS = 1.5  # of them, below which two severities are near each other
STAND_IN_SPREAD = 0.15  # relative error of an effect on a large test, taken from a smaller one


@dataclass(frozen=True)
class EffectGroups:
    """The observations that a suspect can have an effect on, grouped.

    Args:
        places: numbers of these observations.
        group: number of the group of each; all observations of a group have the same effect.
        first: the first observation of each group.
    """

    places: Longs
    group: Longs
    first: tuple[int, ...]


@dataclass(frozen=True)
class SeverityRows:
    """The severities of a suspect that are compared, one for each row.

    Args:
        severities: the severities.
        weights: logarithms of their prior probabilities.
        effects: effect of each severity on each observation of the suspect (rows: severities).
        spreads: standard deviation of each of these effects.
    """

    severities: list[float]
    weights: Floats
    effects: Floats
    spreads: Floats


class SuspectEffects:
    """The effects of suspects on the observations of some tests, simulated when needed and
    cached.
    """

    def __init__(self, observed: ObservedTests) -> None:
        self.observed = observed
        self.predictor = observed.predictor
        self._curves: dict[Suspect, dict[float, Floats]] = {}
        self._groups: dict[Suspect, EffectGroups] = {}
        self._signatures: dict[int, int] = {}
        self._signature_numbers: dict[Hashable, int] = {}
        self._twins: dict[Hashable, Suspect] = {}
        self._twins_by_locals: dict[Hashable, Suspect] = {}
        self._twin_of_suspect: dict[Suspect, Suspect] = {}
        self._exact: set[Suspect] = set()

    def twin_of(self, suspect: Suspect) -> Suspect:
        """Return the first suspect with the same effects on all tests; the suspect itself if it was
        simulated exactly, at its own position.
        """
        if suspect in self._exact:
            return suspect
        if suspect not in self._twin_of_suspect:
            self._twin_of_suspect[suspect] = self._find_twin(suspect)
        return self._twin_of_suspect[suspect]

    def _find_twin(self, suspect: Suspect) -> Suspect:
        """Return the first suspect with the same effects on all tests."""
        if suspect.node >= 0:
            place: Hashable = self._signature_of(suspect.node)
            key = (place, suspect.kind, suspect.local, suspect.setting)
        elif suspect.kind in ABOVE_LEAVES:
            key = (-1, suspect.kind, suspect.local, "")
        else:
            return suspect
        if key not in self._twins:
            shared = (key[0], suspect.kind, suspect.setting, self._locals_of(suspect))
            self._twins[key] = self._twins_by_locals.setdefault(shared, suspect)
        return self._twins[key]

    def _signature_of(self, node: int) -> int:
        """Return a number that is equal for nodes which are in the same tests at equivalent
        positions.
        """
        if node not in self._signatures:
            anything = Suspect("slow-node", "", node)
            tests = self.observed.tests
            seats = tuple(
                (number, self.predictor.seat(tests[number].test, anything))
                for number in self.observed.tests_of_node.get(node, [])
            )
            count = len(self._signature_numbers)
            self._signatures[node] = self._signature_numbers.setdefault(seats, count)
        return self._signatures[node]

    def _locals_of(self, suspect: Suspect) -> Hashable:
        """Return for each test of a suspect the GPU, NIC or link that is simulated in its place."""
        tests = self.observed.tests
        return tuple(
            (number, self.predictor.local_in(tests[number].test, suspect))
            for number in self._touched_tests(suspect)
        )

    def _touched_tests(self, suspect: Suspect) -> list[int]:
        """Return the numbers of the tests that a suspect can make slower."""
        tests = self.observed.tests
        numbers: Sequence[int] = range(len(tests))
        if suspect.node >= 0:
            numbers = self.observed.tests_of_node.get(suspect.node, [])
        parts = self.predictor.parts
        return [number for number in numbers if parts.touches(suspect, tests[number].test)]

    def groups_of(self, suspect: Suspect) -> EffectGroups:
        """Return the observations that a suspect can have an effect on, those with equal effects as
        one group.
        """
        if suspect not in self._groups:
            self._groups[suspect] = self._make_groups(suspect)
        return self._groups[suspect]

    def _make_groups(self, suspect: Suspect) -> EffectGroups:
        tests = self.observed.tests
        observations = self.observed.observations
        numbers = self._touched_tests(suspect)
        seats = {number: self.predictor.seat(tests[number].test, suspect) for number in numbers}
        empty = np.zeros(0, np.int64)
        lists = [self.observed.places_of_test(number) for number in numbers]
        places = np.concatenate([empty, *lists])
        places.sort()
        keys: dict[object, int] = {}
        first: list[int] = []
        group = np.zeros(len(places), np.int64)
        for index, place in enumerate(places.tolist()):
            number = int(observations.log_of[place])
            key = (int(observations.class_of[place]), seats[number])
            if key not in keys:
                keys[key] = len(keys)
                first.append(place)
            group[index] = keys[key]
        return EffectGroups(places, group, tuple(first))

    def simulate(self, suspect: Suspect, severity: float, *, exact: bool = False) -> None:
        """Simulate the effects of a suspect at one more severity, which `rows` then includes.

        Nothing is simulated if a severity near it was simulated before.

        With `exact`, the suspect itself is simulated in each test of few nodes, rather than its
        twin, and `twin_of` returns the suspect itself from then on.
        """
        if not exact and self._has_near(suspect, severity):
            return
        if exact and suspect not in self._exact:
            twin = self.twin_of(suspect)
            self._curves.setdefault(suspect, dict(self._curves.get(twin, {})))
            self._exact.add(suspect)
        self._curve_at(suspect, severity, exact=exact)

    def _has_near(self, suspect: Suspect, severity: float) -> bool:
        """Whether a suspect was simulated at a severity so near that interpolation is exact
        enough.
        """
        curve = self._curves.get(suspect, {})
        if suspect.setting or severity == DEAD:
            return severity in curve
        kind = KINDS[suspect.kind]
        strain = kind.strain(severity)
        most = NEAR_STEPS * kind.strain(kind.severities[-1]) / SIMULATED_STEPS
        return any(
            abs(kind.strain(simulated) - strain) < most for simulated in curve if simulated != DEAD
        )

    def _curve_at(self, suspect: Suspect, severity: float, *, exact: bool) -> Floats:
        """Return the effects of a suspect at a severity, one for each observation of
        `groups_of(suspect).places`.

        They are not a number on tests of many nodes at a severity that is not among the first ones:
        there the error of the stand-in is larger than that of an interpolation.
        """
        curve = self._curves.setdefault(suspect, {})
        if severity not in curve or exact:
            groups = self.groups_of(suspect)
            limits = self._limits_of_groups(suspect, severity)
            effects = []
            without: set[int] = set()  # tests on which the suspect has no effect at all
            # The largest size of each test comes first.
            for place, limit in zip(groups.first[::-1], limits[::-1], strict=True):
                number, question = self.observed.questions[place]
                test = self.observed.tests[number].test
                is_small = test.node_count <= LARGE_NODES or test.collective == COMPUTE
                effect = 0.0
                if not is_small and not is_simulated_first(suspect, severity):
                    effect = nan
                elif number not in without and limit >= NEGLIGIBLE:
                    # In a test of many nodes the position matters little, and each simulation takes
                    # a minute.
                    effect = self.predictor.effect(
                        test, question, suspect, severity, exact=exact and is_small, brief=True
                    )
                if effect == 0.0 and is_by_nodes(suspect.kind, suspect.setting):
                    without.add(number)
                effects.append(effect)
            effects.reverse()
            curve[severity] = np.array(effects)[groups.group]
        return curve[severity]

    def _limits_of_groups(self, suspect: Suspect, severity: float) -> list[float]:
        """Return an upper bound of the effect of a suspect at a severity on each of its groups:
        the effect at the most severe of the first severities, if it is simulated already.
        """
        groups = self.groups_of(suspect)
        unlimited = [inf] * len(groups.first)
        if suspect.setting or severity == DEAD:
            return unlimited
        kind = KINDS[suspect.kind]
        most_severe = kind.severities[-1]
        strongest = self._curves[suspect].get(most_severe)
        if strongest is None or kind.strain(severity) >= kind.strain(most_severe):
            return unlimited
        places = np.searchsorted(groups.places, groups.first)
        return [float(effect) for effect in strongest[places]]

    def setting_effects(self, suspect: Suspect) -> Iterator[Floats]:
        """Yield the effects of a setting on the observations of `groups_of(suspect).places`,
        simulated group by group: not a number on the observations of groups that are to come.

        The last ones that are yielded are complete. What needs no simulation comes first, all at
        once; then tests of few nodes.
        """
        curve = self._curves.setdefault(suspect, {})
        groups = self.groups_of(suspect)
        if SETTING in curve:
            yield curve[SETTING]
            return
        tests = self.observed.tests
        effects = np.full(len(groups.first), nan)
        without: set[int] = set()  # tests on which the setting has no effect at all
        places = [
            (not self._is_known(suspect, place), *self._size_of_test(place), number_of_group, place)
            for number_of_group, place in enumerate(groups.first)
        ]
        places.sort()
        is_begun = False
        for is_new, *_, number_of_group, place in places:
            number, question = self.observed.questions[place]
            effect = 0.0
            if is_new and not is_begun and np.isfinite(effects).any():
                yield effects[groups.group]
            is_begun = is_new
            if number not in without:
                effect = self.predictor.effect(
                    tests[number].test, question, suspect, SETTING, exact=False
                )
            if effect == 0.0 and is_by_nodes(suspect.kind, suspect.setting):
                without.add(number)
            effects[number_of_group] = effect
            if np.isfinite(effects).all():
                curve[SETTING] = effects[groups.group]
                yield curve[SETTING]
            elif is_new:
                yield effects[groups.group]

    def _is_known(self, suspect: Suspect, place: int) -> bool:
        """Whether the effect of a setting on an observation needs no further simulation."""
        number, question = self.observed.questions[place]
        test = self.observed.tests[number].test
        return self.predictor.is_simulated(test, question, suspect, SETTING)

    def _size_of_test(self, place: int) -> tuple[int, int]:
        """Return by what the simulation of an observation is long: nodes, and how much smaller the
        size is than others (the largest size comes first).
        """
        number, question = self.observed.questions[place]
        return self.observed.tests[number].test.node_count, -question.size_bytes

    def rows(self, suspect: Suspect) -> SeverityRows:
        """Return the severities of a suspect that are compared, with the effects of each."""
        places = self.groups_of(suspect).places
        errors = self.stand_in_errors(places)
        if suspect.setting:
            effects = self._curve_at(suspect, SETTING, exact=False)[None, :]
            return SeverityRows([SETTING], np.zeros(1), effects, errors * effects)
        kind = KINDS[suspect.kind]
        for severity in kind.severities[::-1]:  # an effect of the most severe one limits the others
            self._curve_at(suspect, severity, exact=False)
        curve = self._curves[suspect]
        knots = sorted((kind.strain(severity), severity) for severity in curve if severity != DEAD)
        strains = np.array([0.0, *(strain for strain, _ in knots)])
        table = np.array([np.zeros(len(places)), *(curve[s] for _, s in knots)])
        most = kind.strain(kind.severities[-1])
        steps = np.union1d(np.linspace(most / SEVERITY_STEPS, most, SEVERITY_STEPS), strains[1:])
        steps = np.union1d(steps, np.linspace(most, MOST_STRAIN, EXTRAPOLATED_STEPS + 1))
        # Each severity has two rows: the largest and the least effects that are possible between
        # the simulated ones, and beyond them.
        line, least = _interpolated_columns(strains, table, steps)
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
        return SeverityRows(severities, weights, effects, np.hypot(spreads, errors * effects))

    def stand_in_errors(self, places: Longs) -> Floats:
        """Return the relative error of effects on some observations (numbers `places`).

        It is 0 for tests of few nodes, which are simulated themselves; effects on tests of many
        nodes are those on a smaller test.
        """
        numbers = self.observed.observations.log_of[places].tolist()
        counts = [self.observed.tests[number].test.node_count for number in numbers]
        return np.where(np.array(counts, dtype=np.int64) > LARGE_NODES, STAND_IN_SPREAD, 0.0)

    def above_leaves(self) -> Floats:
        """Return for every observation the effect if all links above the leaves have the least
        bandwidth that is tried.
        """
        result = np.zeros(len(self.observed.observations))
        links = self.predictor.parts.above
        if not links:
            return result
        everything = Suspect("fabric-links", "", local=common_pattern(links))
        severity = KINDS["fabric-link"].severities[-1]
        effects: dict[int, float] = {}
        for place, (number, question) in enumerate(self.observed.questions):
            test = self.observed.tests[number].test
            group = int(self.observed.observations.class_of[place])
            if not self.predictor.parts.crosses(test):
                continue
            if group not in effects:
                effects[group] = self.predictor.effect(
                    test, question, everything, severity, exact=False
                )
            result[place] = max(effects[group], 0.0)
        return result


def simulated_severity(suspect: Suspect, severity: float) -> float:
    """Return the severity nearest to a given one among those that are simulated.

    These are few, so that suspects whose best severities are close to each other share simulations.

    >>> round(simulated_severity(Suspect("gpu", "node0.gpu0", 0, "gpu0"), 2.65), 3)
    2.6
    >>> simulated_severity(Suspect("nic", "node0.nic0", 0, "nic0"), 0.203)
    0.2
    """
    if suspect.setting or severity == DEAD:
        return severity
    kind = KINDS[suspect.kind]
    step = kind.strain(kind.severities[-1]) / SIMULATED_STEPS
    strain = max(round(kind.strain(severity) / step), 1) * step
    # A severity that is simulated first is returned as it is, not with an error of rounding.
    near = [first for first in kind.severities if abs(kind.strain(first) - strain) < step / 4]
    if near:
        return near[0]
    return exp(strain if kind.is_slowdown else -strain)


def is_simulated_first(suspect: Suspect, severity: float) -> bool:
    """Whether a severity is one of those at which each suspect of a kind is simulated first, or
    more severe, so that an effect cannot be interpolated between them.
    """
    if suspect.setting or severity == DEAD:
        return True
    kind = KINDS[suspect.kind]
    most_severe = kind.severities[-1]
    return severity in kind.severities or kind.strain(severity) > kind.strain(most_severe)


def _interpolated_columns(strains: Floats, table: Floats, steps: Floats) -> tuple[Floats, Floats]:
    """Return what `interpolated` returns, for a table in which some columns are not a number at
    some strains; all these columns lack the same strains.
    """
    is_incomplete = np.isnan(table).any(0)
    line = np.zeros((len(steps), table.shape[1]))
    least = np.zeros_like(line)
    for is_member in (is_incomplete, ~is_incomplete):
        part = table[:, is_member]
        if part.size:
            is_known = ~np.isnan(part).any(1)
            results = interpolated(strains[is_known], part[is_known], steps)
            line[:, is_member], least[:, is_member] = results
    return line, least


def interpolated(strains: Floats, table: Floats, steps: Floats) -> tuple[Floats, Floats]:
    """Return the largest and the least possible effects (steps x observations) at strains between
    simulated ones.

    Args:
        strains: the simulated strains, ascending.
        table: the effects at these strains (strains x observations).
        steps: the strains at which effects are wanted.

    Effects are convex in the strain with slopes of at most 1, as the time is the largest of times
    of several parts: they lie below the line between two simulated strains, and above the line of
    slope 1 that ends in the upper one. Beyond the last simulated strain they rise at least as
    there, and at most with slope 1; but a part without an effect there has none beyond.

    >>> line, least = interpolated(np.array([0.0, 1.0]), np.array([[0.0], [0.5]]), np.array([0.5]))
    >>> float(line[0, 0]), float(least[0, 0])
    (0.25, 0.0)
    >>> line, least = interpolated(np.array([0.0, 1.0]), np.array([[0.0], [0.5]]), np.array([2.0]))
    >>> float(line[0, 0]), float(least[0, 0])
    (1.5, 1.0)
    """
    upper = np.clip(np.searchsorted(strains, steps), 1, len(strains) - 1)
    part = ((steps - strains[upper - 1]) / (strains[upper] - strains[upper - 1]))[:, None]
    low = table[upper - 1]
    high = table[upper]
    line = low + part * (high - low)
    rising = high - (strains[upper] - steps)[:, None]
    least = np.minimum(np.maximum(rising, low), line)
    beyond = np.maximum(steps - strains[-1], 0.0)[:, None]
    last_slope = (table[-1] - table[-2]) / (strains[-1] - strains[-2])
    is_beyond = beyond > 0
    steepest = np.where(table[-1] < NEGLIGIBLE, last_slope, np.maximum(last_slope, 1.0))
    line = np.where(is_beyond, table[-1] + beyond * steepest, line)
    least = np.where(is_beyond, table[-1] + beyond * last_slope, least)
    return line, least
