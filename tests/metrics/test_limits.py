"""What no algorithm beats: against all cuts of small graphs, known optima, and simulated times."""

from dataclasses import replace
from itertools import permutations

import networkx as nx
import numpy as np
import pytest

from netsim.collectives.collective import Collective
from netsim.collectives.table import ALGORITHMS, build
from netsim.engines.engine import simulate
from netsim.extent.invariants import ALWAYS, Answer, broken
from netsim.metrics.bound import Limit, limit_of
from netsim.program.place import place
from netsim.scenario.cells import expand
from netsim.tasks.limits import limit_at
from netsim.tasks.outcome import outcome_of
from netsim.tasks.resolve import resolve
from netsim.topology.graph import Topology, TopologyError, flow
from netsim.topology.routing import StaticRouter, full_mesh, ring, switch, torus
from netsim.yamlio.read import parse_source
from tests.cli.command import netsim

NAMES = ("all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter")
BLOCK = 1e6


def graph_of(edges, ranks: int) -> Topology:
    graph = nx.DiGraph()
    graph.add_nodes_from((f"gpu{k}" for k in range(ranks)), kind="gpu", forwards=True)
    for tail, head, rate in edges:
        graph.add_edge(tail, head, bandwidth=rate * 1e9, latency=1e-6, kind="fabric", duplex="full")
    names = [node for node in graph if node.startswith("s")]
    nx.set_node_attributes(graph, {one: {"kind": "switch", "forwards": True} for one in names})
    return Topology("random", graph, tuple(f"gpu{k}" for k in range(ranks)), StaticRouter())


def random_graph(seed: int) -> tuple[Topology, int, np.random.Generator]:
    """Two to five ranks and up to two switches, joined by a ring and by links at random."""
    random = np.random.default_rng(seed)
    ranks, switches = int(random.integers(2, 6)), int(random.integers(0, 3))
    names = [f"gpu{k}" for k in range(ranks)] + [f"s{k}" for k in range(switches)]
    pairs = {(names[k - 1], names[k]) for k in range(len(names))}
    pairs |= {pair for pair in permutations(names, 2) if random.random() < 0.4}
    edges = [(*pair, int(random.integers(1, 10))) for pair in sorted(pairs)]
    return graph_of(edges, ranks), ranks, random


def limit(topology: Topology, name: str, **more) -> Limit:
    return limit_of(topology, np.arange(len(topology)), name, BLOCK, **more)


def all_to_all(ranks: int) -> np.ndarray:
    return BLOCK * (1.0 - np.eye(ranks))


def over_all_cuts(topology: Topology, bytes_over) -> float:
    """The longest time of any cut; `bytes_over` tells what must leave a set of ranks."""
    links, nodes, longest = topology.links, len(topology.nodes), 0.0
    for number in range(1, 2**nodes - 1):
        side = (number >> np.arange(nodes)) & 1 == 1
        rate = links.bandwidth[side[links.tail] & ~side[links.head]].sum()
        crossing = bytes_over(side[topology.gpu_nodes])
        if crossing:
            longest = max(longest, crossing / rate)
    return longest


def test_a_cut_has_a_side_for_every_node_of_the_hops() -> None:
    """0 to 1 to 2, the second hop the narrower one."""
    found, side = flow([(np.array([0, 1]), np.array([1, 2]), np.array([5, 3]))], 0, 2)
    assert found == 3
    assert side.tolist() == [True, True, False]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_the_tightest_cut_is_that_of_all_cuts(seed: int) -> None:
    topology, ranks, random = random_graph(seed)
    root = int(random.integers(0, ranks))
    crossing = {
        "all_gather": lambda mine: mine.sum() * bool((~mine).any()),
        "reduce_scatter": lambda mine: (~mine).sum() * bool(mine.any()),
        "broadcast": lambda mine: mine[root] and (~mine).any(),
        "reduce": lambda mine: (not mine[root]) and mine.any(),
        "gather": lambda mine: mine.sum() * (not mine[root]),
        "scatter": lambda mine: (~mine).sum() * bool(mine[root]),
    }
    for name in NAMES:
        found = limit(topology, name, root=root)
        known = over_all_cuts(topology, lambda mine, name=name: BLOCK * crossing[name](mine))
        assert found.bandwidth == pytest.approx(known, rel=1e-6), name
        assert found.best == found.bandwidth
    both = limit(topology, "all_reduce")
    cut = over_all_cuts(topology, lambda mine: BLOCK * (mine.any() and (~mine).any()))
    parts = (
        2
        * (ranks - 1)
        * BLOCK
        / topology.links.bandwidth[np.isin(topology.links.head, topology.gpu_nodes)].sum()
    )
    assert both.bandwidth == pytest.approx(max(cut, parts), rel=1e-6)
    demand = all_to_all(ranks)
    pairs = limit(topology, "alltoall", demand=demand)
    cut = over_all_cuts(topology, lambda mine: demand[np.ix_(mine, ~mine)].sum())
    assert pairs.bandwidth >= cut * (1 - 1e-6)  # flows may need more than any cut tells


def test_known_optima() -> None:
    for n in (4, 8):
        line, plane = ring(n, 1e9, 1e-6), full_mesh(n, 1e9, 1e-6)
        assert limit(line, "all_gather").best == pytest.approx((n - 1) * BLOCK / 2e9)
        assert limit(line, "all_reduce").best == pytest.approx(2 * (n - 1) / n * BLOCK / 2e9)
        demand = all_to_all(n)
        assert limit(line, "alltoall", demand=demand).best == pytest.approx(n * n / 8 * BLOCK / 1e9)
        assert limit(plane, "alltoall", demand=demand).best == pytest.approx(BLOCK / 1e9)
        assert limit(plane, "broadcast").best == pytest.approx(BLOCK / ((n - 1) * 1e9))
        flat = switch(n, 1e9, 1e-6)
        assert limit(flat, "all_reduce").bandwidth == pytest.approx(2 * (n - 1) / n * BLOCK / 1e9)
    grid = limit(torus([4, 4], 1e9, 1e-6), "all_gather")
    assert grid.best == pytest.approx(15 * BLOCK / 4e9)
    assert grid.latency == pytest.approx(4e-6)


def dgx_1() -> Topology:
    """The NVLinks of eight V100: 25 GB/s each, a hybrid cube mesh with pairs of two links."""
    twice = [(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)]
    once = [(0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)]
    ways = [(a, b, rate) for some, rate in ((twice, 50), (once, 25)) for a, b in some]
    edges = [
        (f"gpu{a}", f"gpu{b}", rate)
        for one in ways
        for a, b, rate in (one, (one[1], one[0], one[2]))
    ]
    return graph_of(edges, 8)


def test_dgx_1_is_as_fast_as_its_six_links() -> None:
    """Six packed trees, as were found for it: 150 GB/s of broadcast."""
    found = dgx_1()
    assert limit(found, "broadcast").best == pytest.approx(BLOCK / 150e9)
    assert limit(found, "all_gather").best == pytest.approx(7 * BLOCK / 150e9)
    assert limit(found, "all_reduce").best == pytest.approx(2 * 7 / 8 * BLOCK / 150e9)


def both_ways(edges):
    return [pair for a, b, rate in edges for pair in ((a, b, rate), (b, a, rate))]


@pytest.mark.parametrize("boxes", [1, 2])
def test_a100_in_boxes_are_as_fast_as_a_gpu_s_links(boxes: int) -> None:
    """NVSwitches with 300 GB/s a GPU, and 25 GB/s of InfiniBand, as ForestColl's (arXiv 2402.06787)
    two DGX A100: what a GPU must take of the others, by all that enters it."""
    ranks = range(8 * boxes)
    edges = [(f"gpu{k}", f"s{k // 8}", 300) for k in ranks]
    edges += [(f"gpu{k}", "sib", 25) for k in ranks if boxes > 1]
    found, rate = graph_of(both_ways(edges), len(ranks)), 300e9 + 25e9 * (boxes > 1)
    assert limit(found, "all_gather").best == pytest.approx((len(ranks) - 1) * BLOCK / rate)
    reduced = limit(found, "all_reduce")
    assert reduced.best == pytest.approx(2 * (len(ranks) - 1) / len(ranks) * BLOCK / rate)


def mi250(boxes: int) -> Topology:
    """Boxes of eight MI250: a die has seven links of 50 GB/s, four of them to the other one of its
    pair, and 16 GB/s to other boxes. The other three go to the same dies of the next two pairs, and
    across."""
    edges = []
    for box in range(boxes):
        name = [f"gpu{16 * box + k}" for k in range(16)]
        for pair in range(8):
            one, other, after = 2 * pair, 2 * pair + 1, 2 * ((pair + 1) % 8)
            edges += [
                (name[one], name[other], 200),
                (name[one], name[after], 50),
                (name[other], name[after + 1], 50),
                (name[one], name[2 * ((pair + 4) % 8) + 1], 50),
            ]
        edges += [(one, "sib", 16) for one in name]
    return graph_of(both_ways(edges), 16 * boxes)


def test_two_boxes_of_mi250_are_as_fast_as_what_leaves_a_pair_of_dies() -> None:
    """ForestColl's 16 + 16 MI250: 354 GB/s of all-gather, whichever way the other links lie."""
    found = limit(mi250(2), "all_gather")
    assert found.best == pytest.approx(30 * BLOCK / (2 * (3 * 50e9 + 16e9)))
    assert 32 * BLOCK / found.best / 1e9 == pytest.approx(354, abs=0.5)


CELL = (
    "cluster: {machine: %s, nodes: %d}\nworkload: {collective: %s, algorithm: auto, sizes: [%s]}\n"
)


def resolved(machine: str, nodes: int, name: str, size: str = "1GiB"):
    return resolve(expand(parse_source(CELL % (machine, nodes, name, size), "x.yaml"))[0])


def test_switches_that_add_up_leave_half() -> None:
    """An NVSwitch of H100 adds up, so that a GPU sends its data once; one of A100 does not."""
    for machine, shown in (("dgx-h100", False), ("dgx-a100", True)):
        found = limit_at(resolved(machine, 1, "all_reduce"), 2**30)
        assert found.best is not None
        assert (found.best == pytest.approx(found.bandwidth)) == shown


def test_a_cluster_of_1024_is_bound_by_its_nics() -> None:
    found = limit_at(resolved("dgx-h100", 128, "all_reduce"), 2**30)
    rate = float(found.cut.rpartition(", ")[2].removesuffix(" GB/s")) * 1e9
    assert found.cut.startswith("8 nic links")
    assert found.bandwidth == pytest.approx(2 * 127 / 128 * 2**30 / rate, rel=1e-3)


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    "topology",
    [
        switch(5, 1e9, 1e-6),
        ring(6, 1e9, 1e-6),
        full_mesh(4, 1e9, 1e-6),
        torus([3, 3], 1e9, 1e-6),
        torus([2, 4], 2e9, 1e-6),
    ],
    ids=lambda one: one.name,
)
def test_no_simulated_time_is_below(topology: Topology) -> None:
    """Every textbook algorithm, for large data and for little."""
    ranks = len(topology)
    for name, algorithms in ALGORITHMS.items():
        if name in ("alltoallv", "p2p", "barrier", "sendrecv"):
            continue
        for count in (ranks, 1000 * ranks * ranks):
            collective = Collective(name, ranks=ranks, count=count, element_bytes=4)
            demand = all_to_all(ranks) * (4 * count / BLOCK) if name == "alltoall" else None
            least = limit_of(topology, np.arange(ranks), name, 4.0 * count, demand=demand)
            for algorithm in algorithms:
                if algorithm in ("hierarchical", "scatter-allgather", "reduce-scatter-gather"):
                    continue
                if algorithm == "swing" and ranks & (ranks - 1):
                    continue
                program = place(build(collective, algorithm), topology)
                told = simulate(program).makespan
                assert broken(Answer(told, limit=least.bandwidth), ALWAYS) == [], algorithm
                if algorithm != "parameter-server":
                    assert told >= least.latency * (1 - 1e-9), algorithm


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machine", "nodes"), [("dgx-h100", 1), ("dgx-1-v100", 2), ("rtx4090-x8", 2)]
)
def test_nor_is_one_of_nccl(machine: str, nodes: int) -> None:
    """Operations in a row, by the process that ends last; its NICs are full up to 0.1 %."""
    for name in ("all_reduce", "all_gather", "broadcast", "alltoall", "sendrecv"):
        ready, size = resolved(machine, nodes, name), 2**28
        least, found = limit_at(ready, size).bandwidth, outcome_of(ready, size)
        answer = Answer(found.seconds, limit=least, slowest=found.slowest)
        assert broken(answer, ALWAYS) == [], name


def test_a_time_below_is_refused() -> None:
    assert broken(Answer(1.0, limit=1.001), ALWAYS)[0].startswith("limit: 1.0 s, though no")
    assert broken(Answer(1.0, uncertainty=0.01, limit=1.001), ALWAYS) == []


def test_ranks_that_are_not_joined_are_told() -> None:
    with pytest.raises(TopologyError, match="some ranks are not connected by links"):
        limit(
            graph_of([("gpu0", "gpu1", 1), ("gpu1", "gpu0", 1), ("gpu2", "gpu0", 1)], 3),
            "all_gather",
        )


def test_links_count_at_their_best() -> None:
    flat = switch(4, 1e9, 1e-6)
    later = replace(flat, changes=tuple((1.0, link, 4e9) for link in range(len(flat.links))))
    found, now = limit(later, "all_gather"), limit(flat, "all_gather")
    assert found.bandwidth == pytest.approx(now.bandwidth / 4)


def test_nothing_has_to_move_alone() -> None:
    found = limit_of(switch(2, 1e9, 1e-6), np.arange(1), "all_reduce", BLOCK)
    assert (found.bandwidth, found.latency, found.best) == (0.0, 0.0, 0.0)


@pytest.mark.slow
def test_run_and_explain_tell_the_limit(tmp_path, capsys) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        "cluster: {machine: dgx-h100, nodes: 2}\nlimits: true\noutputs: [csv, plots]\n"
        "workload: {collective: all_reduce, sizes: [1MiB, 1GiB]}\n"
    )
    outcome = netsim(capsys, "run", path, "-o", tmp_path / "out", "-q", "--format", "json")
    assert outcome.code == 0, outcome.err
    lines = [one.split(",") for one in (tmp_path / "out/results.csv").read_text().splitlines()]
    rows = [dict(zip(lines[0], one, strict=False)) for one in lines[1:]]
    for row in rows:
        least, known, part, took = (
            float(row[name]) for name in ("limit_us", "best_known_us", "of_limit_pct", "time_us")
        )
        assert 0 < least <= known
        assert part == pytest.approx(100 * least / took)
        assert part < 100
    told = netsim(capsys, "explain", "dgx-h100", "all_reduce", "--nodes", "2", "--algo", "Tree")
    assert "NCCL's Tree reaches " in told.out
    assert " % of what these links allow: no algorithm takes less than " in told.out
    assert "the limit is set by 8 nic links out of 8 GPUs (node0.gpu0 …), 39" in told.out


def test_flows_of_a_large_torus_are_the_best() -> None:
    """Every byte goes a shortest way, over as many on each link: 108 hops to all, over 4 links."""
    graph, gpus = torus((6, 6), bandwidth=50e9), np.arange(36, dtype=np.int32)
    found = limit_of(graph, gpus, "alltoall", 1.0, demand=1.0 - np.eye(36))
    assert found.bandwidth == pytest.approx(108 / 4 / 50e9, rel=1e-6)
    assert found.best == pytest.approx(found.bandwidth, rel=1e-6)


def test_a_cut_has_all_that_a_unit_more_would_reach() -> None:
    """Three units reach the second node, two go on: one is left, so that it is on the side sent."""
    most, side = flow([(np.array([0, 1]), np.array([1, 2]), np.array([3, 2]))], 0, 2)
    assert (most, side.tolist()) == (2, [True, True, False])
