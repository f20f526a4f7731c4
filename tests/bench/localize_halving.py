"""Count the tests by which halving alone finds all faulty nodes, without any simulation.

    python -m tests.bench.localize_halving --nodes 232 --draws 100

Each faulty node makes the tests that it is in slower by 20 % to 400 %, with an error of 10 % in
each test; of several the largest effect counts. Times have 1 % of noise. The tests of each node
count are off by a common factor of 10 % (1 sigma): what a simulation may be wrong by. This counts
what the choice of tests is worth; `tests.bench.localize_rounds` has the whole search in it.
"""

import argparse
from collections.abc import Mapping, Sequence

import numpy as np

from netsim.localize.halving import GroupResult, group_state, next_groups

NOISE = 0.01
MODEL_ERROR = 0.1
EFFECT_ERROR = 0.1


def result_of(nodes: Sequence[int], deviation: float) -> GroupResult:
    """The result of a test of some nodes."""
    return GroupResult(frozenset(nodes), deviation, 0.0134, "all_reduce")


def halved(
    node_count: int, effects: Mapping[int, float], rng: np.random.Generator
) -> tuple[set[int], int, int]:
    """The nodes that halving finds, the number of tests and of rounds, for the effects of faulty
    nodes. Tests of one node count share an error of the simulation."""
    model_errors: dict[int, float] = {}
    results: list[GroupResult] = []
    slow_nodes: set[int] = set()
    groups: list[tuple[int, ...]] = [tuple(range(node_count))]
    round_count = 0
    while groups and round_count < 3 * node_count:
        round_count += 1
        for group in groups:
            error = model_errors.setdefault(len(group), rng.normal(0, MODEL_ERROR))
            effect = max((effects[node] for node in group if node in effects), default=0.0)
            effect *= 1 + rng.normal(0, EFFECT_ERROR)
            results.append(result_of(group, error + effect + rng.normal(0, NOISE)))
        alone = [nodes for nodes in group_state(results, set()).slow if len(nodes) == 1]
        slow_nodes = {node for nodes in alone for node in nodes}
        groups = next_groups(results, slow_nodes, range(node_count))
    return slow_nodes, len(results), round_count


def drawn_effects(node_count: int, count: int, rng: np.random.Generator) -> dict[int, float]:
    """Effects of some faulty nodes, each of at least 20 %."""
    nodes = rng.choice(node_count, count, replace=False).tolist()
    return {node: float(rng.uniform(np.log(1.2), 1.6)) for node in nodes}


def equal_effects(node_count: int, effect: float, rng: np.random.Generator) -> dict[int, float]:
    """Equal effects of two faulty nodes, one in each half of the nodes."""
    half = node_count // 2
    return {int(rng.integers(half)): effect, half + int(rng.integers(half)): effect}


def main() -> None:
    """Print a line for each number of faulty nodes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=232)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    for faulty_count in (0, 1, 2, 5):
        print(f"{faulty_count} faulty: {words_of_draws(arguments, faulty_count)}")
    for percent in (8, 10, 12, 20):
        print(f"2 of {percent} %, one in each half: {words_of_draws(arguments, 2, percent)}")


def words_of_draws(
    arguments: argparse.Namespace, faulty_count: int, percent: int | None = None
) -> str:
    """What halving takes over all draws, as text; with `percent` the faults are of this size, one
    in each half."""
    rng = np.random.default_rng(arguments.seed)
    right_count = 0
    tests: list[int] = []
    rounds: list[int] = []
    for _ in range(arguments.draws):
        effects = drawn_effects(arguments.nodes, faulty_count, rng)
        if percent is not None:
            effects = equal_effects(arguments.nodes, float(np.log1p(percent / 100)), rng)
        slow_nodes, test_count, round_count = halved(arguments.nodes, effects, rng)
        right_count += slow_nodes == set(effects)
        tests.append(test_count)
        rounds.append(round_count)
    return (
        f"right in {right_count} of {arguments.draws}; tests: mean {np.mean(tests):.1f}, most "
        f"{max(tests)}; rounds: median {np.median(rounds):.0f}, most {max(rounds)}"
    )


if __name__ == "__main__":
    main()
