"""Schedules with the same routes on a topology share their paths; other schedules never do."""

from dataclasses import replace

import numpy as np

from netsim.base.memo import Memo
from netsim.collectives.collective import collective_of
from netsim.collectives.table import build
from netsim.program.path_choices import choices_of
from netsim.program.place import place
from netsim.program.program import Program
from netsim.topology.graph import Topology
from netsim.topology.routing import switch

KIB = 1024


def topology() -> Topology:
    return switch(gpus=4, bandwidth=50e9, latency=1e-6)


def placed(where: Topology, size: int, algorithm: str = "ring", **given: object) -> Program:
    collective = collective_of("all_reduce", 4, size, 4)
    return place(build(collective, algorithm), where, **given)  # type: ignore[arg-type]


def same(one: Program, other: Program) -> bool:
    columns = ("ptr", "link", "weight", "active", "latency")
    equal = all(np.array_equal(getattr(one.paths, c), getattr(other.paths, c)) for c in columns)
    names = [[p.links.name(k) for k in range(len(p.links))] for p in (one, other)]
    return equal and names[0] == names[1] and np.array_equal(one.path, other.path)


def test_sizes_share_their_paths() -> None:
    where = topology()
    small, large = placed(where, 4 * KIB), placed(where, 64 * KIB)
    assert small.paths is large.paths
    assert same(large, placed(topology(), 64 * KIB))


def test_other_routes_have_other_paths() -> None:
    where = topology()
    first = placed(where, 4 * KIB)
    others = [
        placed(where, 4 * KIB, "halving-doubling"),
        placed(where, 4 * KIB, gpus=[3, 1, 2, 0]),
        placed(where, 4 * KIB, "tree"),
    ]
    assert all(other.paths is not first.paths for other in others)
    assert same(others[0], placed(topology(), 4 * KIB, "halving-doubling"))
    assert same(others[1], placed(topology(), 4 * KIB, gpus=[3, 1, 2, 0]))
    assert same(others[2], placed(topology(), 4 * KIB, "tree"))


def test_another_topology_has_a_cache_of_its_own() -> None:
    where = topology()
    first = placed(where, 4 * KIB)
    slower = replace(where, capacities={"hbm": np.full(4, 1e9)})
    assert placed(slower, 4 * KIB).paths is not first.paths


def test_a_topology_caches_the_paths_of_eight_schedules() -> None:
    where = topology()
    orders = [[a, b, *({0, 1, 2, 3} - {a, b})] for a in range(4) for b in range(4) if a != b]
    for order in [*orders, *(order[::-1] for order in orders)]:
        placed(where, 4 * KIB, gpus=order)
    assert len(where.memo.of("paths of routes", Memo)) == 8


def test_paths_are_chosen_by_the_links_that_not_all_paths_of_a_route_share() -> None:
    """Route 0 has the paths 0, 2 and 3 over link 0, route 1 has path 1."""
    way, ptr = np.array([0, 1, 0, 0], np.int32), np.array([0, 2, 3, 5, 7])
    choices = choices_of(way, 2, ptr, np.array([0, 1, 4, 0, 2, 0, 3], np.int32))
    assert choices.more.tolist() == [2, 4, 4]
    assert choices.link.tolist() == [1, 2, 3]
    assert (choices.ptr.tolist(), choices.slot.tolist()) == ([0, 1, 1, 2, 3], [0, 1, 2])
    assert choices.apart.all()
