"""Textbook algorithms written once for all that is alike take the times of those in full."""

import pytest

from netsim.prepared import Prepared, prepare
from netsim.scenario.cells import expand
from netsim.yamlio.source import parse_source
from tests.nccl.test_folding import compare

MIB = 1 << 20

FABRICS = {
    "switch": "graph: {kind: switch, gpus: 12, bandwidth: 50GB/s, latency: 1us}",
    "odd switch": "graph: {kind: switch, gpus: 9, bandwidth: 50GB/s, latency: 1us}",
    "torus": "graph: {kind: torus, dims: [4, 4], bandwidth: 50GB/s, latency: 1us}",
    "ring": "graph: {kind: ring, gpus: 6, bandwidth: 50GB/s, latency: 1us}",
    "one switch": "machine: dgx-h100, nodes: 4, fabric: {kind: single-switch}",
    "rails": "machine: dgx-h100, nodes: 4",
    "three nodes": "machine: dgx-h100, nodes: 3",
    "rail-only": "machine: dgx-h100, nodes: 4, fabric: {kind: rail-only}",
    "leaf-spine": "machine: dgx-h100, nodes: 4, fabric: {kind: leaf-spine, nodes_per_leaf: 2, "
    "oversubscription: 2}",
    "hashed": "machine: dgx-h100, nodes: 4, fabric: {kind: leaf-spine, nodes_per_leaf: 1, "
    "routing: ecmp, oversubscription: 2}",
    "fat-tree": "machine: dgx-a100, nodes: 6, fabric: {kind: fat-tree, k: 8, levels: 3}",
    "slow link": "machine: dgx-h100, nodes: 4, faults: [{link: node1.nic3-leaf3, bandwidth: 50%}]",
    "slow GPU": "machine: dgx-h100, nodes: 4, faults: [{gpu: node1.gpu2, slowdown: 1.5}]",
    "uneven": "machine: dgx-h100, nodes: 4, overrides: [{node: 1, nics: [0, 1, 2, 3, 4, 5, 6]}]",
    "scattered": "machine: dgx-h100, nodes: 4, placement: random",
}
ALGORITHMS = [
    ("all_reduce", "ring"),
    ("all_gather", "ring"),
    ("reduce_scatter", "ring"),
    ("all_reduce", "tree"),
    ("broadcast", "binomial"),
    ("reduce", "binomial"),
    ("all_reduce", "hierarchical"),
    ("all_reduce", "halving-doubling"),
    ("all_gather", "recursive-doubling"),
    ("reduce_scatter", "recursive-halving"),
]


def ready(cluster: str, collective: str, algorithm: str, size: int, more: str = "") -> Prepared:
    work = f"collective: {collective}, algorithm: {algorithm}, sizes: [{size}B]{more}"
    text = f"cluster: {{{cluster}}}\nworkload: {{{work}}}\n"
    return prepare(expand(parse_source(text, "scene.yaml"))[0])


def even(one: Prepared) -> int:
    """A size that everybody has an equal part of."""
    return 4 * 64 * len(one.gpus) * 48


@pytest.mark.parametrize(("collective", "algorithm"), ALGORITHMS)
@pytest.mark.parametrize("fabric", FABRICS)
def test_every_transfer_and_link_as_in_full(fabric: str, collective: str, algorithm: str) -> None:
    one = ready(FABRICS[fabric], collective, algorithm, MIB)
    for size in (even(one), even(one) + 4 * 7):
        found = one.alikeness(one.collective(size))
        assert found is not None
        if found.stands is not None:
            assert compare(one, size) > 1
        else:
            assert found.rows == found.full


def test_engines_agree() -> None:
    for algorithm in ("ring", "hierarchical"):
        one = ready(FABRICS["rails"], "all_reduce", algorithm, MIB)
        assert compare(one, even(one), "simpy") > 1
