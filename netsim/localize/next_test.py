"""The next test: which hosts, collective and size separate the remaining suspects best.

Three questions are answered one after the other: on which nodes are the faults that were found, do
the remaining nodes have further faults, and which parts of the nodes are at fault? For each
candidate test the effect of each remaining suspect (and of none) is simulated. The value of a test
is the expected reduction of the entropy of the suspects by its result.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import log

import numpy as np

from netsim.base.values import dataclass
from netsim.localize.candidates import candidate_tests, common_settings, next_size
from netsim.localize.conclusion import Conclusion, SuspectClass
from netsim.localize.evidence import LOG_NOISE, SIZE_NOISE, Floats
from netsim.localize.halving import GroupResult, group_state, has_contrast, next_groups
from netsim.localize.node_tests import COMPUTE, NodeTest, SizeQuestion
from netsim.localize.parts import DEAD, Suspect
from netsim.localize.predictions import IMPOSSIBLE, Predictor, is_by_nodes
from netsim.localize.priors import PRIOR_OF_FAULT
from netsim.localize.search import LEAST_EFFECT, FaultSearch

PLACE = "place"  # on which node, or on which part of the fabric, is a fault?
OTHERS = "others"  # do the nodes without a fault that was found have another one?
PART = "part"  # which part of a node is at fault?

FEWEST_TO_HALVE = 5  # nodes of the largest test from which groups of nodes are halved
FEWEST_IN_GROUP = 2  # nodes of a test that is compared with others
CERTAIN = 0.95  # probability from which the place of a fault is certain
MOST_LINKS = 12  # links and switches above the leaves that the next test is to split
LEAST_WEIGHT = 1e-5  # probability below which a suspect is left out
WORTH_BITS = 0.05  # information below which no test is worth running
TEST_NOISE = float(np.hypot(SIZE_NOISE, LOG_NOISE)) * 1.4  # of a result against its expectation
COST_BITS = 0.02  # information that a test has to add for each doubling of its nodes
SAME_RESULT = 0.005  # log ratio within which two suspects are expected to give one result


@dataclass(frozen=True)
class NextTest:
    """A test to run next.

    Args:
        test: the test.
        question: its size.
        purpose: the question that it answers: `PLACE`, `OTHERS` or `PART`.
        bits: the information that it is expected to give.
        entropy: the information in bits that is missing.
        slow: the suspects with which the test would be slow.
        not_slow: the suspects with which it would not.
        together: further tests that run at the same time on other nodes, and are compared with it.
    """

    test: NodeTest
    question: SizeQuestion
    purpose: str
    bits: float
    entropy: float
    slow: tuple[Suspect, ...] = ()
    not_slow: tuple[Suspect, ...] = ()
    together: tuple[NodeTest, ...] = ()

    @property
    def tests(self) -> tuple[NodeTest, ...]:
        """All tests that run at the same time."""
        return (self.test, *self.together)


@dataclass(frozen=True)
class _Model:
    """A remaining suspect with its severity and probability; without a suspect: that nothing is
    wrong.
    """

    suspect: Suspect | None
    severity: float
    weight: float


def propose(search: FaultSearch, verdict: Conclusion) -> NextTest | None:
    """Return the next test; None if no test would give enough further information."""
    by_place = [place_probabilities(classes) for classes in verdict.faults]
    certainties = [max(places.values()) for places in by_place]
    halves = halving_round(search, verdict)
    if halves is not None:
        return halves
    if not verdict.faults:
        return None
    number = int(np.argmin(certainties))
    if certainties[number] < CERTAIN:
        proposal = _split(search, verdict, number, PLACE)
        if proposal is not None:
            return proposal
    others = remaining_test(search, verdict)
    if others is not None:
        return others
    by_certainty = sorted(range(len(verdict.faults)), key=lambda n: _certainty(verdict.faults[n]))
    for number in by_certainty:
        proposal = _split(search, verdict, number, PART)
        if proposal is not None:
            return proposal
    return None


def halving_round(search: FaultSearch, verdict: Conclusion) -> NextTest | None:
    """Return the halves of all groups of nodes that are slow for an unknown reason, as tests that
    run at the same time.

    None if there is no such group, or if no test of the logs is of many nodes.
    """
    results = group_results(search)
    most = max((len(result.nodes) for result in results), default=0)
    if most < FEWEST_TO_HALVE:
        return None
    if has_certain_fabric_fault(verdict, results):
        return None
    # Only a node that is alone in a slow group is at fault for certain: before that, an error of
    # the simulation at one position may make the search too sure of a node.
    alone = {
        node for nodes in group_state(results, set()).slow if len(nodes) == 1 for node in nodes
    }
    at_fault = nodes_at_fault(verdict) & alone
    leaves = search.predictor.parts.leaves
    order = sorted(range(search.predictor.node_count), key=lambda node: (leaves[node], node))
    tested = {result.nodes for result in results}
    groups = next_groups(results, at_fault, order)
    if all(frozenset(group) in tested for group in groups):
        return None
    tests = [make_half_test(search, group) for group in groups]
    bits = float(len(tests) // 2)
    entropy = sum(log(len(group), 2) for group in groups)
    first, *rest = tests
    question = SizeQuestion(next_size(search))
    return NextTest(first, question, PLACE, bits, entropy, together=tuple(rest))


def make_half_test(search: FaultSearch, nodes: tuple[int, ...]) -> NodeTest:
    """Return a test of some nodes with the algorithm and the protocol of the test that had most of
    these nodes.

    NCCL may choose others for fewer nodes. A fault that shows with one protocol may not show with
    the other: with LL128, GPUs copy what the network sends, and a slow GPU delays it.
    """
    tests = [timed.test for timed in search.tests if timed.test.collective != COMPUTE]
    parent = max(tests, key=lambda test: (len(set(nodes) & set(test.nodes)), -test.node_count))
    test = NodeTest(nodes, "all_reduce", settings=parent.settings)
    if parent.collective != test.collective:
        return test
    size = next_size(search)
    plan = search.predictor.resolved(parent).planned(size)
    own_plan = search.predictor.resolved(test).planned(size)
    if plan is None or own_plan is None or plan.algorithm == "SendRecv":
        return test
    if (plan.algorithm, plan.protocol) == (own_plan.algorithm, own_plan.protocol):
        return test
    settings = dict(parent.settings)
    settings["nccl.env.NCCL_ALGO"] = plan.algorithm
    settings["nccl.env.NCCL_PROTO"] = plan.protocol
    return replace(test, settings=tuple(settings.items()))


def has_certain_fabric_fault(verdict: Conclusion, results: Sequence[GroupResult]) -> bool:
    """Whether a part that does not belong to a node (a leaf, a rail, a setting of all nodes) is at
    fault for certain.

    A rail or a setting of all nodes makes all tests of a kind equally slow. If they are not, each
    of them may have a faulty node instead, even though the setting fits them best.
    """
    are_unequal = has_contrast(results)
    for classes in verdict.faults:
        places = place_probabilities(classes)
        place = max(places, key=lambda name: places[name])
        if not isinstance(place, str) or places[place] < CERTAIN:
            continue
        members = [fit.suspect for group in classes for fit in group.members]
        suspect = next(suspect for suspect in members if place_of(suspect) == place)
        is_of_all_nodes = bool(suspect.setting) or suspect.kind == "rail"
        if not (is_of_all_nodes and are_unequal):
            return True
    return False


def place_of(suspect: Suspect) -> int | str:
    """Return the node of a suspect, or the name of a part of the fabric with its setting."""
    return suspect.node if suspect.node >= 0 else f"{suspect.part} {suspect.setting}"


def group_results(search: FaultSearch) -> list[GroupResult]:
    """Return the tests of groups of nodes, with the deviation of the largest size of each."""
    observations = search.observations
    results = []
    for number, timed in enumerate(search.tests):
        test = timed.test
        if test.node_count < FEWEST_IN_GROUP or test.collective == COMPUTE:
            continue
        places = search.observed.places_of_test(number)
        if not len(places):
            continue
        place = int(places[-1])
        noise = float(np.hypot(observations.noise[place], observations.log_noise[place]))
        question = search.observed.questions[place][1]
        kind = (test.collective, test.gpus, test.dtype, test.settings, question)
        deviation = float(observations.deviation[place])
        results.append(GroupResult(frozenset(test.nodes), deviation, noise, kind))
    return results


def place_probabilities(classes: Sequence[SuspectClass]) -> dict[int | str, float]:
    """Return the probability that a fault is in each node (by its number) or in each part of the
    fabric (by its name).
    """
    places: dict[int | str, float] = {}
    for group in classes:
        share = group.probability / len(group.members)
        for fit in group.members:
            place = place_of(fit.suspect)
            places[place] = places.get(place, 0.0) + share
    return places


def _certainty(classes: Sequence[SuspectClass]) -> float:
    """Return the probability of the most probable single suspect of a fault."""
    return classes[0].probability / len(classes[0].members)


def _split(search: FaultSearch, verdict: Conclusion, number: int, purpose: str) -> NextTest | None:
    """Return the test that separates the suspects of fault number `number` best; None if none gives
    enough information. `purpose` is the question that it answers.
    """
    models = _models(verdict.faults[number])
    if len(models) < 2:
        return None
    weights = np.array([model.weight for model in models])
    total = float(weights.sum())
    weights /= total
    entropy = entropy_bits(weights)
    excluded = nodes_at_fault(verdict, without=number)
    # The other faults hide effects that are smaller than theirs.
    other_faults = [
        _Model(classes[0].best.suspect, classes[0].best.severity, 1.0)
        for place, classes in enumerate(verdict.faults)
        if place != number
    ]
    suspects = [model.suspect for model in models if model.suspect is not None]
    shares: dict[int, float] = {}
    for model in models:
        if model.suspect is not None and model.suspect.node >= 0:
            node = model.suspect.node
            shares[node] = shares.get(node, 0.0) + model.weight / total
    best: tuple[float, NextTest] | None = None
    for test, question in candidate_tests(search, suspects, shares, excluded):
        hidden = max(_effects(search.predictor, test, question, other_faults), default=0.0)
        effects = np.array(_effects(search.predictor, test, question, models))
        effects = np.maximum(effects, hidden)
        bits = expected_bits(weights, effects)
        value = bits - COST_BITS * log(test.node_count, 2)
        if bits > WORTH_BITS and (best is None or value > best[0] + 1e-9):
            proposal = _proposal(test, question, models, effects, (bits, entropy), purpose)
            best = value, proposal
    return None if best is None else best[1]


def nodes_at_fault(verdict: Conclusion, without: int = -1) -> frozenset[int]:
    """Return the nodes that certainly have one of the faults that were found, except for fault
    number `without`.
    """
    nodes = set()
    for number, classes in enumerate(verdict.faults):
        places = place_probabilities(classes)
        place = max(places, key=lambda name: places[name])
        if number != without and isinstance(place, int) and places[place] >= CERTAIN:
            nodes.add(place)
    return frozenset(nodes)


def remaining_test(search: FaultSearch, verdict: Conclusion) -> NextTest | None:
    """Return a test of the nodes that were only in tests with a fault that was found, as such a
    fault hides smaller ones.

    None if there are no such nodes, or if it is not certain which nodes are at fault and have to be
    left out.
    """
    at_fault = nodes_at_fault(verdict)
    if len(at_fault) < len(verdict.faults):
        return None
    hidden = np.zeros(len(search.tests))
    np.maximum.at(hidden, search.observations.log_of, verdict.baseline)
    tested: set[int] = set()
    cleared: set[int] = set()
    for number, timed in enumerate(search.tests):
        if timed.test.node_count < 2 or timed.test.collective == COMPUTE:
            continue
        tested |= set(timed.test.nodes)
        if hidden[number] < LEAST_EFFECT:
            cleared |= set(timed.test.nodes)
    cleared |= group_state(group_results(search), at_fault).clear
    open_nodes = sorted(tested - cleared - at_fault)
    if len(open_nodes) == 1:
        open_nodes += sorted(cleared - at_fault)[:1]
    if len(open_nodes) < 2:
        return None
    nodes = tuple(open_nodes)
    test = NodeTest(nodes, "all_reduce", settings=common_settings(search))
    bits = entropy_bits(np.array([PRIOR_OF_FAULT, 1 - PRIOR_OF_FAULT]))
    return NextTest(test, SizeQuestion(next_size(search)), OTHERS, bits, bits)


def _models(classes: Sequence[SuspectClass]) -> list[_Model]:
    """Return the suspects of a fault that the next test has to separate, the most probable
    first.
    """
    models: list[_Model] = []
    for group in classes:
        weight = group.probability / len(group.members)
        if weight > LEAST_WEIGHT:
            models += [_Model(fit.suspect, fit.severity, weight) for fit in group.members]
    models.sort(key=lambda model: -model.weight)
    models = _without_rare_links(models)
    nothing = 1 - sum(group.probability for group in classes)
    if nothing > LEAST_WEIGHT:
        models.append(_Model(None, DEAD, nothing))
    return models


def _without_rare_links(models: Sequence[_Model]) -> list[_Model]:
    """Return the models with only the most probable of the links above the leaves, each of which
    needs simulations of its own.
    """
    result = []
    link_count = 0
    for model in models:
        assert model.suspect is not None
        if is_by_nodes(model.suspect.kind, model.suspect.setting):
            link_count += 1
            if link_count > MOST_LINKS:
                continue
        result.append(model)
    return result


def entropy_bits(weights: Floats) -> float:
    """Return the entropy of probabilities in bits.

    >>> entropy_bits(np.array([0.5, 0.5]))
    1.0
    """
    positive = weights[weights > 0]
    return float(-(positive * np.log2(positive)).sum())


def expected_bits(weights: Floats, effects: Floats) -> float:
    """Return the information in bits that a test is expected to give about models.

    The result of the test is assumed to be the effect of the true model plus noise. Models with
    equal effects are not separated: they count as one with the sum of their weights.

    Args:
        weights: probability of each model.
        effects: effect of each model on the test (log ratio).

    >>> round(expected_bits(np.array([0.25, 0.25, 0.5]), np.array([0.0, 0.0, 0.3])), 3)
    1.0
    """
    results, group = np.unique((effects / SAME_RESULT).round(), return_inverse=True)
    effects = results * SAME_RESULT
    shares: Floats = np.bincount(group, weights=weights) / weights.sum()
    spread = np.hypot(TEST_NOISE, 0.1 * np.minimum(np.abs(effects)[:, None], np.abs(effects)))
    distance = (effects[:, None] - effects[None, :]) / spread
    overlap = np.exp(-(distance**2) / 4)
    posterior = shares[None, :] * overlap
    posterior /= posterior.sum(1, keepdims=True)
    after = [entropy_bits(row) for row in posterior]
    return entropy_bits(shares) - float(shares @ np.array(after))


def _effects(
    predictor: Predictor, test: NodeTest, question: SizeQuestion, models: Sequence[_Model]
) -> list[float]:
    """Return the effect of each model on a test (log ratio); models with equal positions in the
    test are simulated once.
    """
    effects: dict[object, float] = {}
    result = []
    for model in models:
        suspect = model.suspect
        if suspect is None or not predictor.parts.touches(suspect, test):
            result.append(0.0)
            continue
        key = (
            suspect.kind,
            suspect.setting,
            suspect.local,
            round(model.severity, 4),
            predictor.seat(test, suspect),
        )
        if key not in effects:
            effects[key] = _effect(predictor, test, question, model)
        result.append(effects[key])
    return result


def _effect(predictor: Predictor, test: NodeTest, question: SizeQuestion, model: _Model) -> float:
    assert model.suspect is not None
    effect = predictor.effect(test, question, model.suspect, model.severity, exact=False)
    return min(effect, IMPOSSIBLE)


def _proposal(
    test: NodeTest,
    question: SizeQuestion,
    models: Sequence[_Model],
    effects: Floats,
    information: tuple[float, float],
    purpose: str,
) -> NextTest:
    """Return a proposal for a test, with the suspects divided by whether the test would be slow
    with them.

    `effects` are those of the models on the test, `information` is (expected bits, missing bits).
    """
    middle = float(effects.max() + effects.min()) / 2
    slow: list[Suspect] = []
    not_slow: list[Suspect] = []
    for model, effect in zip(models, effects.tolist(), strict=True):
        if model.suspect is not None:
            (slow if effect > middle else not_slow).append(model.suspect)
    bits, entropy = information
    return NextTest(test, question, purpose, bits, entropy, tuple(slow), tuple(not_slow))
