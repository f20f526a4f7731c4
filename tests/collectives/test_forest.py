"""Trees that fill links, and searches over time: right on any graph, and as fast as links allow."""

from dataclasses import replace

import numpy as np
import pytest

from netsim.base.memo import digest
from netsim.collectives.collective import ROOTED, CollectiveError, collective_of
from netsim.collectives.forest import TreeLinks, links_of, mesh, packed, searched
from netsim.collectives.table import ALGORITHMS, algorithm, build
from netsim.collectives.verify import check_races, verify
from netsim.engines import compiled, engine, simpy
from netsim.metrics.bound import limit_of
from netsim.program.place import place
from netsim.topology.graph import GraphSketch, Topology
from netsim.topology.routing import StaticRouter, full_mesh, ring, switch, torus
from tests.collectives.numeric_run import Numbers

BOTH = [
    (name, packed) for name in ("all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce")
]
BOTH += [(name, searched) for name in ("all_gather", "reduce_scatter", "all_reduce")]
IDS = [f"{name}-{function.__name__}" for name, function in BOTH]
# NVLinks of DGX-1 with V100s: two GPUs are joined by one or by two.
DGX_1 = {
    (0, 1): 1, (0, 2): 1, (0, 3): 2, (0, 4): 2, (1, 2): 2, (1, 3): 1, (1, 5): 2, (2, 3): 2,
    (2, 6): 1, (3, 7): 1, (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 2,
}  # fmt: skip


def joined(
    name: str, gpus: int, links: dict[tuple[int, int], float], both: bool = True
) -> Topology:
    graph = GraphSketch()
    for gpu in range(gpus):
        graph.node(f"gpu{gpu}", kind="gpu", forwards=True)
    for (a, b), rate in links.items():
        for tail, head in ((a, b), (b, a))[: 1 + both]:
            ends = f"gpu{tail}", f"gpu{head}"
            graph.edge(*ends, bandwidth=rate, latency=1e-6, kind="fabric")
    return Topology(name, graph, tuple(f"gpu{n}" for n in range(gpus)), StaticRouter())


def one_way(gpus: int, seed: int) -> Topology:
    """A ring each way, and other links, all of different rates."""
    random = np.random.default_rng(seed)
    pairs = [(r, (r + 1) % gpus) for r in range(gpus)]
    pairs += [(b, a) for a, b in pairs]
    pairs += [tuple(random.choice(gpus, 2, replace=False).tolist()) for _ in range(gpus)]
    rates = {pair: float(random.choice([10e9, 25e9, 50e9])) for pair in pairs}
    return joined(f"one-way {seed}", gpus, rates, both=False)


def nodes(hosts: int, gpus: int) -> Topology:
    """Hosts with a switch inside and a NIC a GPU, all on one switch."""
    graph, names = GraphSketch(), [f"node{h}.gpu{g}" for h in range(hosts) for g in range(gpus)]
    graph.node("spine", kind="switch")
    for name in names:
        host, _, gpu = name.partition(".gpu")
        if gpu == "0":
            graph.node(f"{host}.nvs", kind="nvswitch")
        graph.node(name, kind="gpu")
        graph.node(f"{host}.nic{gpu}", kind="nic")
        for a, b, rate in (
            (name, f"{host}.nvs", 200e9),
            (name, f"{host}.nic{gpu}", 60e9),
            (f"{host}.nic{gpu}", "spine", 50e9),
        ):
            for tail, head in ((a, b), (b, a)):
                graph.edge(tail, head, bandwidth=rate, latency=5e-7, kind="fabric")
    return Topology(f"{hosts} hosts", graph, tuple(names), StaticRouter())


GRAPHS = [
    switch(8, 50e9, 1e-6),
    joined("dgx-1", 8, {pair: 25e9 * count for pair, count in DGX_1.items()}),
    nodes(2, 4),
    torus([4, 4], 50e9, 1e-6),
    torus([2, 3], [50e9, 25e9], 1e-6),
    ring(5, 50e9, 1e-6),
    joined("missing", 6, {(a, b): 20e9 for a in range(6) for b in range(a) if (a, b) != (4, 1)}),
    one_way(5, 5),
    one_way(7, 7),
]


def links_between(topology: Topology) -> TreeLinks:
    return links_of(topology, np.arange(len(topology), dtype=np.int32))


def checked(name, function, links, n, count, in_place, **given):
    root = n // 2 if name in ROOTED else 0
    collective = collective_of(name, n, 4 * count, root=root, in_place=in_place)
    made = function(collective, links=links, **given)
    verify(made, collective)
    check_races(made, collective)
    numbers = Numbers(collective)
    numbers.run(made)
    assert numbers.right()


@pytest.mark.sample(10)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "function"), BOTH, ids=IDS)
@pytest.mark.parametrize("topology", GRAPHS, ids=lambda one: one.name)
def test_every_rank_gets_what_it_should(topology, name, function) -> None:
    links, n = links_between(topology), len(topology)
    pieces = {"chunks": 3} if function is packed else {"seed": 7}
    for count, in_place in ((0, False), (5 * n + 3, True), (17 * n, False)):
        checked(name, function, links, n, count, in_place, **pieces if count else {})


@pytest.mark.sample(13)
@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2, 3, 6, 9, 12])
@pytest.mark.parametrize(("name", "function"), BOTH, ids=IDS)
def test_any_number_of_ranks_on_rings_and_switches(name, function, n) -> None:
    for topology in (switch(n, 50e9), *([ring(n, 25e9)] if n > 1 else [])):
        checked(name, function, links_between(topology), n, 8 * n + 1, in_place=True)


def seconds(topology: Topology, name: str, function, nbytes: int = 1 << 30) -> tuple[float, float]:
    """The time of a collective, and the least that is known."""
    n = len(topology)
    collective = collective_of(name, n, nbytes)
    program = place(function(collective, links=links_between(topology)), topology, range(n))
    gpus = np.arange(n, dtype=np.int32)
    limit = limit_of(topology, gpus, name, float(collective.count * collective.element_bytes))
    took = float(compiled.engine.run(program).end.max())
    assert took >= limit.bandwidth * (1 - 1e-9)
    return took, max(limit.bandwidth, limit.best or 0.0)


@pytest.mark.sample(8)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["all_gather", "reduce_scatter", "all_reduce", "broadcast"])
@pytest.mark.parametrize("topology", GRAPHS[:7], ids=lambda one: one.name)
def test_packed_trees_come_within_a_hundredth_of_the_limit(topology, name) -> None:
    took, least = seconds(topology, name, packed)
    assert took <= 1.01 * least


def test_sums_and_results_that_go_at_once_may_beat_one_after_the_other() -> None:
    took, least = seconds(GRAPHS[6], "all_reduce", packed)
    assert took < 0.92 * least  # what sends least receives as much as others, and the reverse


@pytest.mark.slow
@pytest.mark.parametrize("topology", GRAPHS[3:7], ids=lambda one: one.name)
def test_a_search_fills_links_between_gpus(topology) -> None:
    took, least = seconds(topology, "all_gather", searched)
    assert took <= 1.03 * least


def test_a_search_needs_few_hops_where_latency_counts() -> None:
    took, _ = seconds(torus([4, 4], 50e9, 1e-6), "all_gather", searched, 16 * 1024)
    assert took < 8e-6  # the farthest rank is four hops away, and a ring takes fifteen


def test_both_engines_agree() -> None:
    topology, collective = one_way(5, 5), collective_of("all_reduce", 5, 1 << 20)
    for function in (packed, searched):
        made = function(collective, links=links_between(topology))
        program = place(made, topology, range(5))
        ends = [engine(program).end for engine in (simpy.run, compiled.engine.run)]
        np.testing.assert_allclose(ends[0], ends[1], rtol=1e-9)


def test_the_same_seed_finds_the_same() -> None:
    links, collective = links_between(one_way(7, 7)), collective_of("all_gather", 7, 1 << 20)
    one, other, third = (searched(collective, links=links, seed=seed) for seed in (1, 1, 2))
    assert (one.dst == other.dst).all()
    assert len(one.dst) != len(third.dst) or (one.dst != third.dst).any()


def test_links_tell_topologies_apart_but_not_places() -> None:
    two = joined("two rings", 8, {(a, a - a % 4 + (a + 1) % 4): 25e9 for a in range(8)})
    one, other = (links_of(two, np.arange(first, first + 4, dtype=np.int32)) for first in (0, 4))
    assert one == other
    assert repr(one) == repr(other)
    slower = links_between(ring(4, 24e9))
    assert slower != one
    assert digest(slower) != digest(one)
    assert repr(slower) != repr(one)
    assert links_between(torus([4, 4], 50e9)).reversed_links == links_between(torus([4, 4], 50e9))
    assert links_between(one_way(5, 5)).reversed_links != links_between(one_way(5, 5))


def test_ways_through_other_ranks_and_dead_links_are_none() -> None:
    links = links_between(ring(6, 25e9))
    assert len(links.src) == 12
    dead = joined("dead", 3, {(0, 1): 1e9, (1, 2): 1e9, (2, 0): 0.0})
    assert len(links_between(dead).src) == 4
    apart = TreeLinks(3, (0,), (1,), (0,), (0.0,), (((0, 1.0),),), (1e9,))
    for function in (packed, searched):
        with pytest.raises(CollectiveError, match="some ranks are not connected by links"):
            function(collective_of("all_gather", 3, 1024), links=apart)


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [5])
def test_stars_over_hosts_come_near_the_limit(hosts: int) -> None:
    """Of few hosts some go over NICs more than once, as GPUs take less from within."""
    graph = nodes(hosts, 8)
    gpus = np.arange(8 * hosts, dtype=np.int32)
    small = collective_of("reduce_scatter", 8 * hosts, 8 * hosts * 16)
    made = packed(small, links=links_of(graph, gpus))
    verify(made, small)
    check_races(made, small)
    large = collective_of("all_gather", 8 * hosts, 2**31)
    made = packed(large, links=links_of(graph, gpus))
    least = limit_of(graph, gpus, "all_gather", 2**31 / 8 / hosts).bandwidth
    found = engine.simulate(place(made, graph)).makespan
    assert least <= found <= 1.015 * least


def test_what_cannot_be_is_refused() -> None:
    large = collective_of("all_gather", 65, 65 * 16)
    with pytest.raises(CollectiveError, match=r"up to 64 ranks, not 65; synth takes more"):
        packed(large, links=replace(mesh(65), rate=(2.0, *[1.0] * (65 * 64 - 1))))
    with pytest.raises(CollectiveError, match="ways are listed between up to 128 ranks, not 130"):
        links_between(ring(130, 1e9))
    with pytest.raises(CollectiveError, match="seed: expected a whole number from 0 up, got 'x'"):
        build(collective_of("all_gather", 4, 64), "synth", seed="x")
    with pytest.raises(CollectiveError, match="links: follow from the cluster; leave them out"):
        build(collective_of("all_gather", 4, 64), "forest", links=[1])
    with pytest.raises(CollectiveError, match="has one of chunks, chunk_bytes, got 'chunk'"):
        build(collective_of("all_gather", 4, 64), "forest", chunk=1)


def test_an_algorithm_of_ones_own_is_given_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ALGORITHMS, "all_gather", {**ALGORITHMS["all_gather"]})
    seen = []

    @algorithm("all_gather", ranks=[2, 4])
    def like_forest(collective, *, links):
        """What the packed trees are."""
        seen.append(links)
        return packed(collective, links=links)

    assert mesh(4) in seen
    assert full_mesh(4, 1.0).gpus  # the same, as a topology
    assert links_between(full_mesh(4, 1.0)) == mesh(4)
