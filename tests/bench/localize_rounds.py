"""Count the tests until `netsim localize` names all faulty nodes, test by test.

    python -m tests.bench.localize_rounds --nodes 232 --faulty 1 --draws 20

For each draw, faults of so many nodes are injected (a NIC, all NICs of a node, all GPUs, one GPU,
NVLinks, each with at least 20 % effect on the test of all nodes if it were alone). The first log is
an all_reduce of all nodes. Then `netsim localize` is asked for the next test, whose log is added,
until it asks which part of a node is at fault, or nothing. The answer is right if the named nodes
are the faulty ones.

Nodes have one GPU and one NIC on one switch, so that a simulation takes 0.05 s of processor time:
which of 232 nodes is at fault is asked, not which of its parts.

Times are healthy ones times the largest effect of a fault, with 1 % of noise. The effect is
simulated at the severity and the position of the fault in tests of up to 12 nodes, and on the
stand-in of the search in larger ones, there with an error of 10 % (1 sigma), as simulations of all
nodes take a minute each. All times of tests of about equally many nodes (within 15 %) are off by a
common factor, drawn anew for each draw and node count: 10 % (1 sigma) that the simulation is wrong.

Printed beside it: bisection on the same draws, which knows without noise whether a group is slow.
It tests one half of each slow group; and the other half if the first is slow, as it may be, too.
Tests count one by one, although tests of a round have no node in common and run at the same time. A
node-test is one node in one test.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from netsim.cli.localize import localize
from netsim.localize.answer import LocalizeResult
from netsim.localize.halving import MOST_UNEQUAL
from netsim.localize.next_test import PART, place_probabilities
from netsim.localize.node_tests import HostTest, NodeTest, SizeQuestion
from netsim.localize.parts import DEAD, KINDS, Suspect
from netsim.localize.predictions import LARGE_NODES, Predictor
from netsim.yamlio.read import Source
from tests.bench.localize import LEAST_EFFECT, NOISE, lab

SIZE = 2**30
MOST_TESTS = 150
MODEL_ERROR = 0.1  # log ratio of all tests of about equally many nodes to the simulation (1 sigma)
EFFECT_ERROR = 0.1  # of effects on tests of many nodes, relative
DRAWN_KINDS = ("nic", "node-network", "slow-node", "gpu", "nvlink")

Injected = tuple[Suspect, float]


@dataclass
class Search:
    """What one draw took, and whether the answer is right."""

    test_count: int
    round_count: int
    node_test_count: int
    bisection_count: int
    is_right: bool
    seconds: float
    words: str = ""


class LightPredictor(Predictor):
    """A predictor that takes any healthy time of large tests: it is on both sides."""

    def healthy(self, test: NodeTest, question: SizeQuestion) -> float:
        """The simulated time of a small test; that of the wire alone of a large one."""
        if test.node_count > LARGE_NODES:
            return question.size_bytes / 50e9
        return super().healthy(test, question)


@dataclass
class Cluster:
    """A cluster with faults, in which tests are run."""

    predictor: Predictor
    hosts: Sequence[str]
    faults: Sequence[Injected]
    rng: np.random.Generator
    tests: list[HostTest] = field(default_factory=list)
    model_errors: dict[int, float] = field(default_factory=dict)

    def run(self, test: NodeTest, question: SizeQuestion) -> None:
        """Add the log of a test."""
        effect = 0.0
        for suspect, severity in self.faults:
            effect = max(effect, effect_of(self.predictor, test, question, (suspect, severity)))
        if test.node_count > LARGE_NODES:
            effect *= 1 + float(self.rng.normal(0, EFFECT_ERROR))
        seconds = self.predictor.healthy(test, question)
        deviation = effect + self.model_error(test.node_count) + self.rng.normal(0, NOISE)
        seconds *= float(np.exp(deviation))
        hosts = tuple(self.hosts[node] for node in test.nodes)
        label = f"test {len(self.tests)}"
        count = len(test.gpus) or None
        times = {question: seconds}
        self.tests.append(
            HostTest(
                label,
                hosts,
                test.collective,
                times,
                count,
                test.gpus,
                settings=test.settings,
            )
        )

    def model_error(self, node_count: int) -> float:
        """What the simulation is off by for tests of some number of nodes, as a log ratio: the same
        for numbers that differ by at most 15 %, independent for others."""
        for count, error in self.model_errors.items():
            smaller, larger = sorted((count, node_count))
            if larger <= MOST_UNEQUAL * smaller:
                return error
        self.model_errors[node_count] = float(self.rng.normal(0, MODEL_ERROR))
        return self.model_errors[node_count]


def effect_of(
    predictor: Predictor, test: NodeTest, question: SizeQuestion, fault: Injected
) -> float:
    """The effect of a fault on a test: at its own position in a small test."""
    suspect, severity = fault
    is_small = test.node_count <= LARGE_NODES
    return predictor.effect(test, question, suspect, severity, exact=is_small)


def drawn_faults(predictor: Predictor, count: int, rng: np.random.Generator) -> list[Injected]:
    """Faults of so many nodes, each with an effect on the test of all nodes."""
    everyone = NodeTest(tuple(range(predictor.node_count)), "all_reduce")
    faults: dict[int, Injected] = {}
    while len(faults) < count:
        node = int(rng.integers(predictor.node_count))
        kind = KINDS[DRAWN_KINDS[int(rng.integers(len(DRAWN_KINDS)))]]
        candidates = [s for s in predictor.parts.suspects_of_node(node) if s.kind == kind.id]
        left = int(rng.integers(15, 66)) / 100
        severity = 1 / left if kind.is_slowdown else left
        if kind.may_be_dead and rng.random() < 0.25:
            severity = DEAD
        if not candidates or node in faults:
            continue
        fault = (candidates[int(rng.integers(len(candidates)))], severity)
        effect = effect_of(predictor, everyone, SizeQuestion(SIZE), fault)
        if np.exp(effect) > 1 + LEAST_EFFECT:
            faults[node] = fault
    return list(faults.values())


def named_nodes(result: LocalizeResult) -> set[int | str]:
    """The most probable place of each fault."""
    named: set[int | str] = set()
    for classes in result.verdict.faults:
        places = place_probabilities(classes)
        named.add(max(places, key=lambda name: places[name]))
    return named


def searched(
    source: Source, predictor: Predictor, faults: Sequence[Injected], rng: np.random.Generator
) -> Search:
    """Search for the faulty nodes, test by test."""
    hosts = [f"host-{number:03d}" for number in range(predictor.node_count)]
    cluster = Cluster(predictor, hosts, faults, rng)
    everyone = NodeTest(tuple(range(predictor.node_count)), "all_reduce")
    cluster.run(everyone, SizeQuestion(SIZE))
    node_tests = predictor.node_count
    round_count = 1
    seconds = 0.0
    while True:
        begun = time.process_time()
        result = localize(source, cluster.tests, (), hosts, predictor)
        seconds += time.process_time() - begun
        proposal = result.proposal
        if proposal is None or proposal.purpose == PART or len(cluster.tests) >= MOST_TESTS:
            break
        round_count += 1
        for test in proposal.tests:
            cluster.run(test, proposal.question)
            node_tests += test.node_count
    named = named_nodes(result)
    faulty = {suspect.node for suspect, _ in faults}
    words = ", ".join(
        f"{suspect.part} {suspect.kind} {severity:.2f}" for suspect, severity in faults
    )
    return Search(
        len(cluster.tests),
        round_count,
        node_tests,
        bisection_tests(range(predictor.node_count), faulty),
        named == faulty,
        seconds,
        f"{words} -> {sorted(map(str, named))}",
    )


def bisection_tests(nodes: Sequence[int], faulty: set[int]) -> int:
    """The tests by which bisection finds all faulty nodes, with the first one of all nodes.

    Single nodes are tested together with a healthy one.

    >>> bisection_tests(range(8), {3})
    7
    """
    count = 1
    groups = [list(nodes)]
    while groups:
        group = groups.pop()
        if len(group) == 1:
            continue
        first = group[: len(group) // 2]
        second = group[len(group) // 2 :]
        count += 1
        if not faulty & set(first):
            groups.append(second)
            continue
        groups.append(first)
        count += 1  # the second half may be slow, too
        if faulty & set(second):
            groups.append(second)
    return count


def evaluate(
    source: Source, predictor: Predictor, faulty_count: int, draws: int, rng: np.random.Generator
) -> Iterator[str]:
    """The lines of the evaluation."""
    searches: list[Search] = []
    for number in range(draws):
        faults = drawn_faults(predictor, faulty_count, rng)
        search = searched(source, predictor, faults, rng)
        searches.append(search)
        verdict = "right" if search.is_right else f"WRONG {search.words}"
        yield (
            f"  draw {number}: {search.test_count} tests, "
            f"{search.round_count} rounds, {search.node_test_count} node-tests, "
            f"bisection {search.bisection_count}, {search.seconds:.1f} s, {verdict}"
        )
    right = sum(search.is_right for search in searches)
    counts = sorted(search.test_count for search in searches)
    rounds = sorted(search.round_count for search in searches)
    bisection = sorted(search.bisection_count for search in searches)
    node_tests = np.mean([search.node_test_count for search in searches])
    seconds = np.mean([search.seconds for search in searches])
    yield (
        f"{predictor.node_count} nodes, {faulty_count} faulty: right in {right} of {draws}; tests: "
        f"median {counts[len(counts) // 2]}, mean {np.mean(counts):.1f}, most {counts[-1]}; "
        f"rounds: median {rounds[len(rounds) // 2]}, most {rounds[-1]}; "
        f"bisection: median {bisection[len(bisection) // 2]}, most {bisection[-1]}; "
        f"node-tests: mean {node_tests:.0f}; {seconds:.1f} s of localize a draw"
    )


def main() -> None:
    """Print the evaluation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=232)
    parser.add_argument("--faulty", type=int, default=1)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gpus", type=int, default=1, help="of each node; 0 for all")
    parser.add_argument(
        "--fabric", default="single-switch", choices=("single-switch", "rail-optimized")
    )
    arguments = parser.parse_args()
    fabric = None if arguments.fabric == "rail-optimized" else {"kind": arguments.fabric}
    source = lab("dgx-h100", arguments.nodes, fabric, arguments.gpus).source
    predictor = LightPredictor(source, arguments.nodes)
    rng = np.random.default_rng(arguments.seed)
    for line in evaluate(source, predictor, arguments.faulty, arguments.draws, rng):
        print(line, flush=True)


if __name__ == "__main__":
    main()
