"""Tests that use links above the leaves in the same way share their simulation."""

from itertools import combinations, product

import pytest

from netsim.localize.fabric_use import uses_of_fabric
from netsim.localize.node_tests import NodeTest, SizeQuestion
from netsim.localize.parts import DEAD, Suspect
from netsim.localize.predictions import Predictor
from tests.bench.localize import lab

NODES = 4
QUESTION = SizeQuestion(2**26)


def predictor_of(routing: str) -> Predictor:
    """Two leaves with two nodes each, of two GPUs and NICs."""
    fabric = {"kind": "leaf-spine", "nodes_per_leaf": 2, "routing": routing}
    return lab("dgx-h100", NODES, fabric, gpu_count=2).predictor


def uses(predictor: Predictor, nodes: tuple[int, ...]) -> dict[str, str] | None:
    """How an all_reduce of some nodes uses the fabric above the leaves."""
    names = {*predictor.parts.above, *predictor.parts.spines}
    found = uses_of_fabric(predictor.resolved(NodeTest(nodes, "all_reduce")), names)
    return None if found is None else dict(found)


def test_nodes_of_one_leaf_use_nothing_above_it() -> None:
    assert uses(predictor_of("static"), (0, 1)) == {}


def test_sprayed_packets_use_all_spines_in_the_same_way() -> None:
    predictor = predictor_of("spray")
    found = uses(predictor, (0, 2))
    assert found is not None
    assert set(found) == {*predictor.parts.above, *predictor.parts.spines}
    assert len({found[spine] for spine in predictor.parts.spines}) == 1
    assert found == uses(predictor, (1, 3))


def test_the_use_is_unknown_where_hashes_choose_paths() -> None:
    assert uses(predictor_of("ecmp"), (0, 2)) is None


@pytest.mark.parametrize("routing", ["static", "spray"])
def test_a_shared_simulation_has_the_effect_of_one_of_its_own(routing: str) -> None:
    """Of every spine, and of every link, on every pair of nodes."""
    shared = predictor_of(routing)
    pairs = [NodeTest(pair, "all_reduce") for pair in combinations(range(NODES), 2)]
    suspects = [Suspect("spine", name, local=name) for name in shared.parts.spines[:2]]
    suspects += [Suspect("fabric-link", name, local=name) for name in shared.parts.above[:2]]
    for test, suspect, severity in product(pairs, suspects, (0.2, DEAD)):
        effect = shared.effect(test, QUESTION, suspect, severity)
        own = predictor_of(routing)
        own._use = lambda *_: None  # type: ignore[method-assign]
        assert effect == pytest.approx(own.effect(test, QUESTION, suspect, severity), abs=1e-9)
