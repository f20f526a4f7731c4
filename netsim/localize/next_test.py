"""The next test: which hosts, collective and size split the remaining suspects best.

For each candidate test the effect of each remaining suspect (and of none) is simulated. A test is
worth the entropy of the suspects that its result is expected to take away."""

from collections.abc import Iterator, Sequence
from math import log

import numpy as np

from netsim.base.values import dataclass
from netsim.localize.conclusion import Conclusion, SuspectClass
from netsim.localize.evidence import LOG_NOISE, SIZE_NOISE, Floats
from netsim.localize.node_tests import COMPUTE, NodeTest, SizeQuestion
from netsim.localize.parts import DEAD, Suspect
from netsim.localize.predictions import Predictor
from netsim.localize.search import FaultSearch

MOST_MODELS = 16  # suspects that are compared
LEAST_WEIGHT = 0.002  # probability below which a suspect is left out
WORTH_BITS = 0.05  # information below which no test is worth running
TEST_NOISE = float(np.hypot(SIZE_NOISE, LOG_NOISE)) * 1.4  # of a result against its expectation
TEST_SIZE = 2**27  # bytes of the next test, unless all sizes of the logs are smaller
COST_BITS = 0.02  # information that a test has to add for each doubling of its nodes


@dataclass(frozen=True)
class NextTest:
    """A test to run next. `bits` is the information that it is expected to give; `splits` are the
    suspects that would be slow in it, `others` those that would not."""

    test: NodeTest
    question: SizeQuestion
    bits: float
    entropy: float
    slow: tuple[Suspect, ...] = ()
    not_slow: tuple[Suspect, ...] = ()


@dataclass(frozen=True)
class _Model:
    """A remaining suspect with its severity and probability; nothing is wrong without a suspect."""

    suspect: Suspect | None
    severity: float
    weight: float


def propose(search: FaultSearch, verdict: Conclusion) -> NextTest | None:
    """The next test; None if no test would tell much more than is known."""
    models = _models(verdict)
    if len(models) < 2:
        return None
    weights = np.array([model.weight for model in models])
    entropy = entropy_bits(weights / weights.sum())
    best: tuple[float, NextTest] | None = None
    for test, question in _candidates(search, models):
        effects = np.array([_effect(search.predictor, test, question, model) for model in models])
        bits = expected_bits(weights, effects)
        value = bits - COST_BITS * log(test.node_count, 2)
        if bits > WORTH_BITS and (best is None or value > best[0] + 1e-9):
            best = value, _proposal(test, question, models, effects, bits, entropy)
    return None if best is None else best[1]


def _models(verdict: Conclusion) -> list[_Model]:
    """The suspects that the next test is to split: members of the classes of the fault that is the
    least certain, and what else is as probable."""
    if not verdict.faults:
        return []
    uncertain = min(verdict.faults, key=_certainty)
    models: list[_Model] = []
    for group in uncertain:
        for member in group.members:
            weight = group.probability / len(group.members)
            if weight > LEAST_WEIGHT:
                models.append(_Model(member.suspect, member.severity, weight))
    models.sort(key=lambda model: -model.weight)
    models = models[:MOST_MODELS]
    nothing = 1 - sum(group.probability for group in uncertain)
    if nothing > LEAST_WEIGHT:
        models.append(_Model(None, DEAD, nothing))
    return models


def _certainty(classes: Sequence[SuspectClass]) -> float:
    """The probability of the most probable single suspect of a fault."""
    return classes[0].probability / len(classes[0].members)


def entropy_bits(weights: Floats) -> float:
    """The entropy of probabilities, in bits.

    >>> entropy_bits(np.array([0.5, 0.5]))
    1.0
    """
    positive = weights[weights > 0]
    return float(-(positive * np.log2(positive)).sum())


def expected_bits(weights: Floats, effects: Floats) -> float:
    """The information in bits that a test is expected to give about models with some weights, if
    its result is the effect of the true one and noise.

    >>> round(expected_bits(np.array([0.5, 0.5]), np.array([0.0, 0.3])), 3)
    1.0
    """
    weights = weights / weights.sum()
    spread = np.hypot(TEST_NOISE, 0.1 * np.minimum(np.abs(effects)[:, None], np.abs(effects)))
    distance = (effects[:, None] - effects[None, :]) / spread
    overlap = np.exp(-(distance**2) / 4)
    posterior = weights[None, :] * overlap
    posterior /= posterior.sum(1, keepdims=True)
    after = [entropy_bits(row) for row in posterior]
    return entropy_bits(weights) - float(weights @ np.array(after))


def _effect(predictor: Predictor, test: NodeTest, question: SizeQuestion, model: _Model) -> float:
    if model.suspect is None:
        return 0.0
    return predictor.effect(test, question, model.suspect, model.severity, exact=False)


def _candidates(
    search: FaultSearch, models: Sequence[_Model]
) -> Iterator[tuple[NodeTest, SizeQuestion]]:
    """Tests that may split the models: single nodes, pairs with a node that is not suspected,
    halves of the suspected nodes, tests within and across leaves, and tests of single GPUs and
    their NICs."""
    predictor = search.predictor
    settings = _common_settings(search)
    size = _largest_size(search)
    suspects = [model.suspect for model in models if model.suspect is not None]
    nodes = list(dict.fromkeys(suspect.node for suspect in suspects if suspect.node >= 0))
    healthy = [node for node in range(predictor.node_count) if node not in nodes]
    groups: list[tuple[int, ...]] = [(node,) for node in nodes[:4]]
    groups += [(node, partner) for node in nodes[:4] for partner in _partners(search, node, nodes)]
    groups += list(_halves(nodes, healthy))
    groups += list(_by_leaves(search, models))
    seen: set[tuple[int, ...]] = set()
    for group in groups:
        if not group or group in seen:
            continue
        seen.add(group)
        for collective in ("all_reduce", "sendrecv"):
            # sendrecv of all GPUs crosses the network only at the ends of a node.
            is_ring = collective == "sendrecv" and len(group) > 1 and predictor.gpus_per_node > 1
            if predictor.gpus_per_node * len(group) > 1 and not is_ring:
                test = NodeTest(group, collective, settings=settings)
                yield test, SizeQuestion(size)
        if len(group) == 2 and predictor.gpus_per_node > 1:
            for gpu in _gpus_in_question(predictor, models):
                test = NodeTest(group, "sendrecv", (gpu,), settings=settings)
                yield test, SizeQuestion(size)
            half = tuple(range(predictor.gpus_per_node // 2))
            yield NodeTest(group, "all_reduce", half, settings=settings), SizeQuestion(size)


def _gpus_in_question(predictor: Predictor, models: Sequence[_Model]) -> list[int]:
    """The numbers of suspected GPUs and NICs, the most probable first; a few."""
    numbers = [
        int(model.suspect.local.lstrip("gpunic"))
        for model in models
        if model.suspect is not None and model.suspect.local[:3] in ("gpu", "nic")
    ]
    return [n for n in dict.fromkeys(numbers) if n < predictor.gpus_per_node][:4]


def _partners(search: FaultSearch, node: int, nodes: Sequence[int]) -> list[int]:
    """Nodes that are not suspected, to test with: one on the leaves of a node, one on others."""
    leaves = search.predictor.parts.leaves
    free = [other for other in range(search.predictor.node_count) if other not in nodes]
    free = free or [other for other in range(search.predictor.node_count) if other != node]
    near = [other for other in free if leaves[other] == leaves[node]]
    far = [other for other in free if leaves[other] != leaves[node]]
    return near[:1] + far[:1]


def _halves(nodes: Sequence[int], healthy: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Halves and quarters of suspected nodes; a single one with a node that is not suspected."""
    for parts in (2, 4):
        count = -(-len(nodes) // parts)
        if count >= 1 and len(nodes) > 1:
            group = sorted(nodes[:count])
            if len(group) == 1:
                group += list(healthy[:1])
            yield tuple(group)


def _by_leaves(search: FaultSearch, models: Sequence[_Model]) -> Iterator[tuple[int, ...]]:
    """Pairs within a suspected leaf, and across it and another one."""
    leaves = search.predictor.parts.leaves
    for model in models[:8]:
        if model.suspect is None or model.suspect.node >= 0:
            continue
        name = model.suspect.local.partition("-")[0]
        inside = [node for node in range(len(leaves)) if name in leaves[node]]
        outside = [node for node in range(len(leaves)) if name not in leaves[node]]
        yield tuple(inside[:2])
        if inside and outside:
            yield inside[0], outside[0]
        yield tuple(outside[:2])
        if len(outside) > 1:
            across = [node for node in outside if leaves[node] != leaves[outside[0]]]
            yield (outside[0], *across[:1])


def _common_settings(search: FaultSearch) -> tuple[tuple[str, str], ...]:
    """What the first log says about NCCL, which the next test keeps."""
    tests = [timed.test for timed in search.tests if timed.test.collective != COMPUTE]
    return tests[0].settings if tests else ()


def _largest_size(search: FaultSearch) -> int:
    """The largest size of the logs, at most `TEST_SIZE`."""
    sizes = [
        question.size_bytes
        for timed in search.tests
        if timed.test.collective != COMPUTE
        for question in timed.times
    ]
    return min(max(sizes, default=TEST_SIZE), TEST_SIZE)


def _proposal(
    test: NodeTest,
    question: SizeQuestion,
    models: Sequence[_Model],
    effects: Floats,
    bits: float,
    entropy: float,
) -> NextTest:
    """The proposal, with the suspects by whether the test would be slow with them."""
    middle = float(effects.max() + effects.min()) / 2
    slow: list[Suspect] = []
    not_slow: list[Suspect] = []
    for model, effect in zip(models, effects.tolist(), strict=True):
        if model.suspect is not None:
            (slow if effect > middle else not_slow).append(model.suspect)
    return NextTest(test, question, bits, entropy, tuple(slow), tuple(not_slow))
