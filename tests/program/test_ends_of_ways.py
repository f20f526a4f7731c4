"""At which GPU and which NIC a way ends, held against a walk along its nodes.

The two directions of a half-duplex link draw on one capacity, which has the number of the direction
that was declared first: what a way draws on does not tell where it leads.
"""

from itertools import permutations
from typing import Any

import networkx as nx
import numpy as np
import pytest

from netsim.engines.engine import simulate
from netsim.program.place import place
from netsim.program.program import Program
from netsim.schedule.builder import Builder
from netsim.schedule.schedule import MULTICAST, SWITCH_REDUCE, Style, Use
from netsim.topology.graph import Topology
from netsim.topology.routing import StaticRouter

USES = (Use("proxy", "src", 0.5), Use("nic_msg", "src", 0.25), Use("nic_msg", "dst", 0.125))
GPUS = ("a0", "a1", "b0", "b1")
PAIRS = tuple(permutations(range(len(GPUS)), 2))
WIRES = (  # of two hosts a and b: a1 and b0 leave theirs by another GPU
    ("a1", "a0"), ("a0", "nic a"), ("nic a", "fabric"), ("fabric", "nic b"), ("nic b", "b1"),
    ("b1", "b0"),
)  # fmt: skip


def line(seed: int) -> Topology:
    """The wires in an order, with first directions and duplexes that `seed` draws."""
    rng = np.random.default_rng(seed)
    graph: nx.DiGraph[Any] = nx.DiGraph()
    for node in rng.permutation(sorted({end for wire in WIRES for end in wire})).tolist():
        kind = node.split()[0] if node not in GPUS else "gpu"
        given = {"kind": {"fabric": "switch"}.get(kind, kind), "forwards": True}
        graph.add_node(node, **given)
    for number in rng.permutation(len(WIRES)).tolist():
        ends = WIRES[number][:: rng.choice((1, -1))]
        duplex = str(rng.choice(("half", "half", "full")))
        for tail, head in (ends, ends[::-1]):
            graph.add_edge(tail, head, bandwidth=4.0, duplex=duplex)
    return Topology("line", graph, GPUS, StaticRouter())


def one_row(topology: Topology, src: int, dst: int) -> Program:
    builder = Builder(len(GPUS))
    builder.rows(Style(uses=USES), src, dst, builder.work(8.0)[0])
    return place(builder.finish(), topology)


def drawn(program: Program) -> dict[str, float]:
    names = [program.links.name(int(link)) for link in program.paths.link]
    found = dict(zip(names, program.paths.weight.tolist(), strict=True))
    return {name: weight for name, weight in found.items() if name.startswith(("proxy", "nic_"))}


def walked(topology: Topology, src: int, dst: int) -> dict[str, float]:
    """The same, from the nodes that a search of networkx passes."""
    nodes = nx.shortest_path(topology.graph, GPUS[src], GPUS[dst])
    relays = [node for node in nodes[:-1] if node in GPUS]
    found = {f"proxy({relays[-1]})": 0.5}
    nics = [node for node in nodes if node.startswith("nic")]
    if nics:
        found |= {f"nic_msg({nics[0]})": 0.25, f"nic_msg({nics[-1]})": 0.125}
    return found


@pytest.mark.sample(14)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_the_relay_and_the_nics_are_those_that_the_way_passes(seed: int) -> None:
    topology = line(seed)
    for src, dst in PAIRS:
        assert drawn(one_row(topology, src, dst)) == walked(topology, src, dst), (src, dst)


@pytest.mark.parametrize("seed", range(24))
def test_several_ways_at_once_are_told_apart(seed: int) -> None:
    topology = line(seed)
    builder = Builder(len(GPUS))
    for src, dst in PAIRS:
        builder.rows(Style(uses=USES), src, dst, builder.work(8.0)[0])
    program = place(builder.finish(), topology)
    for row, (src, dst) in enumerate(PAIRS):
        path = program.path[row]
        entries = slice(int(program.paths.ptr[path]), int(program.paths.ptr[path + 1]))
        names = [program.links.name(int(link)) for link in program.paths.link[entries]]
        ends = {name for name in names if name.startswith(("proxy", "nic_"))}
        assert ends == set(walked(topology, src, dst)), (src, dst)


@pytest.mark.parametrize("ends", [("g0", "g1"), ("g1", "g0")])
def test_a_receiver_posts_nothing(ends: tuple[str, str]) -> None:
    """Two sends to one GPU take the time of one: each sender has a thread of its own."""
    graph: nx.DiGraph[Any] = nx.DiGraph()
    graph.add_nodes_from(("g0", "g1", "g2"), kind="gpu")
    for tail, head in (ends, ends[::-1], ("g2", "g1"), ("g1", "g2")):
        graph.add_edge(tail, head, bandwidth=100.0, duplex="half")
    builder = Builder(3)
    style = Style(uses=(Use("proxy", "src", 1.0),))
    builder.rows(style, (0, 2), (1, 1), builder.work(8.0)[0])
    program = place(builder.finish(), Topology("vee", graph, ("g0", "g1", "g2"), StaticRouter()))
    for engine in ("simpy", "compiled"):
        assert simulate(program, engine).makespan == pytest.approx(8.0, rel=1e-12)


@pytest.mark.parametrize("kind", [MULTICAST, SWITCH_REDUCE])
@pytest.mark.parametrize("turned", [False, True])
def test_a_tree_draws_once_on_what_it_crosses(kind: int, turned: bool) -> None:
    """Whichever direction was declared first, also where its root is in the group."""
    graph: nx.DiGraph[Any] = nx.DiGraph()
    graph.add_nodes_from(("g0", "g1", "g2"), kind="gpu")
    graph.add_node("switch", kind="nvswitch")
    for gpu in ("g0", "g1", "g2"):
        ends = ("switch", gpu) if turned else (gpu, "switch")
        for tail, head in (ends, ends[::-1]):
            graph.add_edge(tail, head, bandwidth=4.0, duplex="half")
    builder = Builder(3)
    group = builder.group(range(3))
    src, dst = (0, group) if kind == MULTICAST else (group, 0)
    builder.rows(Style(kind), src, dst, builder.work(8.0)[0])
    program = place(builder.finish(), Topology("star", graph, ("g0", "g1", "g2"), StaticRouter()))
    assert program.paths.weight.tolist() == [1.0, 1.0, 1.0]
    assert len(set(program.paths.link.tolist())) == 3
    for engine in ("simpy", "compiled"):
        assert simulate(program, engine).makespan == pytest.approx(2.0, rel=1e-12)
