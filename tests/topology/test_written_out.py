"""Fabrics of every kind against the same fabric written out, cable by cable."""

import numpy as np
import pytest

from netsim.collectives.collective import Collective
from netsim.collectives.table import build
from netsim.engines.engine import simulate
from netsim.metrics.links import link_amounts
from netsim.program.place import place
from netsim.topology.cluster import build_cluster
from netsim.topology.config import ClusterConfig
from netsim.topology.graph import TopologyError
from netsim.topology.load import custom_yaml
from netsim.yamlio.read import Source, parse_source
from netsim.yamlio.validate import validate
from tests.topology.test_fabrics import FABRICS, hosts, with_routing
from tests.topology.topology_tools import cluster, routes

ROUTINGS = ["static", "ecmp", "spray", "adaptive", "rail"]
DRAGONFLY = "{kind: dragonfly, routers: 4, ports_per_router: 4, global_links: 2}"
CASES = [(kind, routing) for kind in FABRICS for routing in ROUTINGS]
CASES += [(DRAGONFLY, "minimal"), (DRAGONFLY, "valiant")]


def written_out(text):
    """A cluster, and the one that its export describes."""
    made, section = cluster(text), parse_source(text, "x.yaml").data
    exported = custom_yaml(section, made.fabric, made.ports, made.routing)
    inner = parse_source(exported, "y.yaml").data["cluster"]
    return made, build_cluster(validate(ClusterConfig, Source("y.yaml", inner)))


def ways_of(made, src, dst):
    """The part of the bytes on each link of every route, by name."""
    found = routes(made.topology, src, dst, channel=3)
    name = made.topology.link_name
    return [
        {name(int(found.link[n])): found.fraction[n] for n in range(first, last)}
        for first, last in zip(found.ptr[:-1], found.ptr[1:], strict=True)
    ]


def loads_and_time(made, size=4):
    ranks = np.arange(0, len(made.topology), max(1, len(made.topology) // size))[:size]
    schedule = build(Collective("alltoall", ranks=len(ranks), count=1 << 16), "linear-shift")
    program = place(schedule, made.topology, ranks.tolist())
    amount = link_amounts(program)
    loads = {program.links.name(int(n)): amount[n] for n in np.flatnonzero(amount)}
    return loads, simulate(program, "compiled").makespan


@pytest.mark.sample(11)
@pytest.mark.slow
@pytest.mark.parametrize(("fabric", "routing"), CASES)
def test_a_fabric_equals_its_export(fabric, routing):
    more = "faults: [{gpu: node3.gpu1, slowdown: 2}]\nseed: 3\n"
    built, exported = written_out(hosts(12, with_routing(fabric, routing), more=more))
    assert exported.fabric.kind == "custom"
    src, dst = np.random.default_rng(1).integers(0, 96, (2, 60))
    ways = [ways_of(made, src, dst) for made in (built, exported)]
    assert [sorted(way) for way in ways[0]] == [sorted(way) for way in ways[1]]
    for one, other in zip(*ways, strict=True):
        assert one == pytest.approx(other, rel=1e-12)
    loads, seconds = loads_and_time(built)
    same, again = loads_and_time(exported)
    assert loads.keys() == same.keys()
    assert list(same.values()) == pytest.approx([loads[name] for name in same], rel=1e-12)
    assert again == pytest.approx(seconds, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["tcp", "roce", "efa"])
@pytest.mark.parametrize("kind", ["dual-plane", "leaf-spine", "torus, dims: [12]"])
def test_transports_and_figures_survive_the_export(kind, transport):
    fabric = f"{{kind: {kind}, transport: {transport}, nic: 100Gbps, link: 300Gbps, latency: 1us, "
    built, exported = written_out(hosts(12, fabric + "cable_metres: 30, nodes: 12}"))
    for name in ("bandwidth", "latency"):
        a, b = (np.sort(getattr(made.topology.links, name)) for made in (built, exported))
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_parallel_cables_have_names_and_all_are_used():
    fabric = (
        "{kind: custom, routing: spray, switches: [a, b], links: [{from: 'node[01].nic*', to: a}, "
        "{from: 'node[23].nic*', to: b}, {from: a, to: b, count: 3}, {from: a, to: b}]}"
    )
    made = cluster(hosts(4, fabric))
    found = routes(made.topology, 0, 31)
    used = [made.topology.link_name(int(link)) for link in found.link]
    assert [name for name in used if name.startswith("a->b")] == [
        "a->b",
        "a->b#1",
        "a->b#2",
        "a->b#3",
    ]


PATTERNS = (
    "{kind: custom, switches: [leaf0, leaf1, spine0, spine1, spine2], links: ["
    "{from: 'node[01].nic*', to: leaf0}, {from: 'node[23].nic*', to: leaf1}, %s]%s}"
)


def test_patterns_stand_for_switches_as_for_nics():
    made = cluster(hosts(4, PATTERNS % ("{from: 'leaf*', to: 'spine*', count: 2}", "")))
    assert made.fabric.tiers == ("leaf", "spine")
    assert made.fabric.level.tolist() == [0, 0, 1, 1, 1]
    between = np.minimum(made.fabric.tail, made.fabric.head) >= made.fabric.ports
    assert between.sum() == 2 * 2 * 3 * 2
    mesh = cluster(hosts(4, PATTERNS % ("{from: '*[0-9]', to: '*[0-9]'}", "")))
    between = np.minimum(mesh.fabric.tail, mesh.fabric.head) >= mesh.fabric.ports
    assert between.sum() == 5 * 4  # every two switches once, both ways


@pytest.mark.parametrize(
    ("links", "more", "message"),
    [
        ("{from: 'leaf*', to: 'spien*'}", "", "links.2.to: there is no switch or NIC 'spien*'"),
        ("{from: leaf0, to: spine4}", "", "'spine4' (did you mean spine"),
        ("{from: leaf0, to: leaf0}", "", "links.2: a cable from 'leaf0' to itself"),
        ("{from: leaf0, to: spine0}", "", "links: no way from node0 to node2: no NICs of theirs"),
        ("{from: 'leaf*', to: 'spine*'}", ", routing: minimal", "routing: minimal chooses among"),
        (
            "{from: 'leaf*', to: 'spine*'}",
            ", groups: {g: [leaf0, leaf7]}",
            "groups.g.1: there is no switch 'leaf7' (did you mean leaf",
        ),
        (
            "{from: 'leaf*', to: 'spine*'}",
            ", groups: {g: [leaf0], h: ['leaf*']}",
            "groups.h.0: 'leaf0' is in another group already",
        ),
        (
            "{from: 'leaf*', to: 'spine*'}",
            ", routing: valiant, groups: {g: [leaf0]}",
            "groups: 'leaf1' has NICs and is in no group, as valiant needs",
        ),
        (
            "{from: 'leaf*', to: 'spine*'}",
            ", routing: minimal, groups: {g: [leaf0], h: [leaf1]}",
            "no link between the groups of 'leaf0' and 'leaf1', which minimal needs",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(links, more, message):
    with pytest.raises(TopologyError) as caught:
        cluster(hosts(4, PATTERNS % (links, more)))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_valiant_goes_over_a_third_group_and_minimal_does_not():
    counts = {}
    for routing in ("minimal", "valiant"):
        made, _ = written_out(hosts(12, with_routing(DRAGONFLY, routing)))
        src, dst = np.arange(8), np.arange(8) + 56
        found = routes(made.topology, src, dst)
        first = len(made.topology.links) - len(made.fabric.tail)
        link = found.link[found.link >= first] - first
        ends = [end[link] - made.fabric.ports for end in (made.fabric.tail, made.fabric.head)]
        inner = (ends[0] >= 0) & (ends[1] >= 0)
        groups = [made.fabric.groups[end[inner]] for end in ends]
        counts[routing] = int((groups[0] != groups[1]).sum())
    assert counts == {"minimal": 8, "valiant": 16}
