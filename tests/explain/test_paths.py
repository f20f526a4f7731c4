"""Collisions of hashed paths: by hand on small graphs, over seeds against balls into bins."""

import json
from math import comb
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from netsim.engines.engine import simulate
from netsim.program.place import place
from netsim.schedule.builder import Builder
from netsim.schedule.schedule import Style
from netsim.tasks.explained import _queue_pairs
from netsim.topology.figures import loads_by_routing, route_statistics
from netsim.topology.graph import TopologyError
from netsim.topology.network import Policy
from tests.cli.command import netsim
from tests.topology.test_fabrics import hosts
from tests.topology.topology_tools import cluster, route

SWITCH = 5
PAIR = (
    "{kind: custom, routing: %s, seed: %d, qps: %d, switches: [a, b, s0, s1], links: ["
    "{from: 'node[01].nic0', to: a}, {from: 'node[23].nic0', to: b}, {from: '[ab]', to: 's*'}]}"
)


def flows(made, shift):
    """How many flows each link between switches carries when all send to the one so far on."""
    topology = made.topology
    gpus = np.arange(len(topology), dtype=np.int32)
    found = route_statistics(topology, gpus, (gpus + shift) % len(gpus)).flows
    inner = topology.node_kinds == SWITCH
    return found[inner[topology.links.tail] & inner[topology.links.head]]


def small(routing, seed=0, qps=1):
    more = "gpus_per_node: 1\nnics_per_node: 1\n"
    return cluster(hosts(4, PAIR % (routing, seed, qps), "dgx-h100", more))


@pytest.mark.slow
def test_two_flows_on_two_spines_by_hand():
    """Static and sprayed ones never meet; hashed ones meet going up for one seed in two."""
    assert flows(small("static"), 2).tolist() == [1] * 8
    assert flows(small("spray"), 2).tolist() == [1] * 8
    hashed = [small("ecmp", seed) for seed in range(100)]
    assert {flows(made, 2).reshape(-1, 2)[:, 0].max() for made in hashed} == {1, 2}
    spine = [[route(made.topology, n, n + 2)[3] for n in (0, 1)] for made in hashed]
    alike = sum(one == other for one, other in spine)
    assert 35 <= alike <= 65  # 50 expected, 3 standard deviations


@pytest.mark.slow
def test_flows_over_seeds_are_balls_into_bins():
    """32 connections of a leaf hash onto its 32 uplinks: how many of these carry k is binomial."""
    seeds, uplinks = 60, 32
    counts = np.zeros(8)
    fullest = []
    for seed in range(seeds):
        made = cluster(hosts(8, f"{{kind: leaf-spine, routing: ecmp, seed: {seed}}}", "dgx-h100"))
        carried = flows(made, 32).reshape(-1, 2)[:uplinks, 0].astype(int)
        assert carried.sum() == 32
        fullest.append(carried.max())
        counts += np.bincount(carried, minlength=8)[:8]
    total = seeds * uplinks
    for k in range(5):
        part = comb(32, k) * (1 / uplinks) ** k * (1 - 1 / uplinks) ** (32 - k)
        assert abs(counts[k] - total * part) < 4 * np.sqrt(total * part * (1 - part))
    # The fullest of 32 bins with 32 balls has 3.5 in the mean (Monnot and others tabulate 3 to 4).
    assert 3.2 < np.mean(fullest) < 3.9


@pytest.mark.parametrize("shift", [1, 7, 8, 13, 32, 40, 63])
@pytest.mark.parametrize(
    "fabric",
    [
        "leaf-spine",
        "leaf-spine, nodes_per_leaf: 2, spines: 8",
        "fat-tree, k: 8",
        "rail-optimized, nodes_per_unit: 4, units_per_pod: 1",
        "custom, switches: [a, b, c, d, w, x, y, z, s, t], links: [{from: 'node[01].*', to: a}, "
        "{from: 'node[23].*', to: b}, {from: 'node[45].*', to: c}, {from: 'node[67].*', to: d}, "
        "{from: '[ab]', to: '[wx]', count: 8}, {from: '[cd]', to: '[yz]', count: 8}, "
        "{from: '[wxyz]', to: '[st]', count: 8}]",
    ],
)
def test_shifts_on_full_trees_never_meet(fabric, shift):
    made = cluster(hosts(8 if "k: 8" not in fabric else 16, f"{{kind: {fabric}}}", "dgx-h100"))
    assert flows(made, shift).max() <= 1


def test_permutations_that_meet_meet_where_theory_says():
    """D-mod-k: of two flows out of a leaf to ports with one slot, both take one uplink, no more."""
    static = "{kind: leaf-spine, nodes_per_leaf: 2, routing: static}"
    made = cluster(hosts(8, static, "dgx-h100")).topology
    src = np.arange(4, dtype=np.int32)
    dst = np.array([16, 32, 48, 17], np.int32)  # slot 0 of three other leaves, and slot 1 of one
    found = route_statistics(made, src, dst)
    names = [made.link_name(int(link)) for link in found.collisions]
    assert [name.partition("->")[0] for name in names] == ["leaf0"]
    assert found.flows.max() == 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_adaptive_paths_meet_less_than_any_others(seed):
    """Of random permutations between two leaves, and with cables that are dead."""
    there = np.random.default_rng(seed).permutation(32).astype(np.int32) + 32
    most = {}
    for routing in ("static", "adaptive", "ecmp"):
        fabric = f"{{kind: leaf-spine, routing: {routing}, seed: {seed}}}"
        dead = (
            "faults: [{link: leaf0-spine0#1, bandwidth: 0%}, {link: leaf1-spine3, bandwidth: 0%}]"
        )
        made = cluster(hosts(8, fabric, "dgx-h100", dead)).topology
        found = route_statistics(made, np.arange(32, dtype=np.int32), there)
        inner = made.node_kinds == SWITCH
        most[routing] = found.flows[inner[made.links.tail] & inner[made.links.head]].max()
    assert most["adaptive"] == 2  # 32 flows on 31 cables up, and on 24 down
    assert most["adaptive"] <= min(most.values())


def test_in_order_delivery_refuses_to_part_messages():
    fabric = "{kind: leaf-spine, transport: %s, routing: spray%s}"
    with pytest.raises(TopologyError, match=r"^fabric\.routing: spray lets packets of a message"):
        cluster(hosts(4, fabric % ("roce", "")))
    cluster(hosts(4, fabric % ("roce", ", delivery: out-of-order")))
    cluster(hosts(4, fabric % ("infiniband", "")))
    planes = cluster(hosts(4, "{kind: dual-plane, transport: roce}"))
    assert planes.routing == "ecmp"
    ends = np.arange(16, dtype=np.int32), np.arange(16, 32, dtype=np.int32)
    for made, sprayed in ((planes, False), (cluster(hosts(4, fabric % ("infiniband", ""))), True)):
        assert ("spray" in loads_by_routing(made, *ends)) == sprayed


def messages(split, count):
    """A placed connection of so many messages over two queue pairs, on a graph of two spines."""
    fabric = (PAIR % ("ecmp", 1, 2)).replace("qps: 2", f"qps: 2, split_on_qps: {split}")
    made = cluster(hosts(4, fabric, "dgx-h100", "gpus_per_node: 1\nnics_per_node: 1\n")).topology
    b = Builder(4)
    for _ in range(count):
        b.rows(Style(), src=[0], dst=[2], piece=b.pieces(count=[1_000_000]))
    return place(b.finish(), made)


def test_queue_pairs_part_messages_or_are_taken_in_turn():
    """Two queue pairs on two spines: split, every message is on both; in turn, on one each."""
    split, turns = messages("true", 4), messages("false", 4)
    between = [
        {n for n in range(len(one.links)) if "s0" in one.links.name(n) or "s1" in one.links.name(n)}
        for one in (split, turns)
    ]
    assert len(set(split.path.tolist())) == 1
    assert turns.path.tolist() == [0, 1, 0, 1]
    spans = [turns.paths.link[turns.paths.ptr[n] : turns.paths.ptr[n + 1]] for n in (0, 1)]
    whole = split.paths.link[split.paths.ptr[0] : split.paths.ptr[1]]
    spines = [between[1] & set(span.tolist()) for span in spans]
    assert len(between[0] & set(whole.tolist())) == 4
    assert [len(one) for one in spines] == [2, 2]
    assert not spines[0] & spines[1]
    for program in (split, turns):
        one, other = (simulate(program, engine).end for engine in ("simpy", "compiled"))
        assert one == pytest.approx(other, rel=1e-9)


def test_more_queue_pairs_are_tried_and_used_the_other_way() -> None:
    """By the keys of a fabric; of NCCL's jobs by its variables, whose version splits or not."""
    assert _queue_pairs(None, Policy("ecmp"), "f") == {
        "2 queue pairs": {"f.qps": 2},
        "4 queue pairs": {"f.qps": 4},
        "8 queue pairs": {"f.qps": 8},
        "4 queue pairs, in turn": {"f.qps": 4, "f.split_on_qps": 0},
    }
    assert _queue_pairs(None, Policy("ecmp", qps=8, split=False), "f") == {
        "8 queue pairs, split": {"f.qps": 8, "f.split_on_qps": 1}
    }
    count, parts = "nccl.env.NCCL_IB_QPS_PER_CONNECTION", "nccl.env.NCCL_IB_SPLIT_DATA_ON_QPS"
    comm = SimpleNamespace(facts=SimpleNamespace(split_on_qps=False))
    one, two = (_queue_pairs(comm, Policy("ecmp", qps=qps), "f") for qps in (1, 2))
    assert one["4 queue pairs, split"] == {count: 4, parts: 1}
    assert list(two) == ["4 queue pairs", "8 queue pairs", "4 queue pairs, in turn"]
    assert two["4 queue pairs, in turn"] == {count: 4, parts: 0}


CALL = [
    "explain",
    "dgx-h100",
    "alltoall",
    "--nodes",
    "4",
    "--fabric",
    "leaf-spine",
    "--size",
    "16M",
]


@pytest.mark.full
def test_what_would_help_is_tried(capsys):
    hashed = ["--set", "cluster.fabric.routing=ecmp", "--paths", "--seeds", "3"]
    told = json.loads(netsim(capsys, *CALL, *hashed, "--format", "json").out)
    assert [one["links"] for one in told["spread"]] == ["leaf -> spine", "spine -> leaf"]
    assert all(one["connections"] == 512 for one in told["spread"])  # 16 x 16 pairs each way
    tried = {one["what"]: one for one in told["tried"]}
    assert len(tried["now"]["us"]) == 3
    assert tried["static routing"]["fullest_over_mean"] == pytest.approx(1)
    assert tried["static routing"]["median_us"] < tried["now"]["median_us"]
    assert tried["8 queue pairs"]["fullest_over_mean"] < tried["now"]["fullest_over_mean"]
    assert tried["4 queue pairs, split"]["settings"]["nccl.env.NCCL_IB_SPLIT_DATA_ON_QPS"] == 1
    assert tried["4 queue pairs, split"]["median_us"] < tried["now"]["median_us"]
    assert tried["PXN off"]["settings"] == {"nccl.env.NCCL_PXN_DISABLE": 1}
    hashed[-1] = "2"
    table = netsim(capsys, *CALL, *hashed).out
    assert "Time over 2 seeds of the hashes" in table
    assert "What would help, each tried" in table
    assert netsim(capsys, *CALL, *hashed, "--format", "csv").out.startswith("what,settings,time_us")


def test_paths_need_links_between_switches(capsys):
    done = netsim(capsys, "explain", "dgx-h100", "all_reduce", "--nodes", "1", "--paths")
    assert done.code == 2
    assert "--paths: no links between switches" in done.err


def test_crossing_rails_costs_while_messages_are_small(capsys, tmp_path):
    """Measured on two p5 with EFA: 17.9 GB/s across rails in messages of 512 KiB. Here it takes the
    cost of senders at a NIC; without it crossing is slower, too, while messages are small.
    """
    run = ["run", "rail-or-cross-rail", "--output", tmp_path / "out", "--set", "outputs=[csv]"]
    netsim(capsys, *run, "--set", "workload.sizes=[4MiB]")
    rows = pd.read_csv(tmp_path / "out" / "results.csv").query("size_bytes == 4194304")
    rate = dict(zip(rows["axis:pattern"], rows["algbw_GBps"], strict=True))
    assert rate["cross-rail"] < rate["rail-aligned"] < 43.8  # EFA's usable part of 400 Gb/s
    assert rate["cross-rail-incast"] == pytest.approx(16.2, abs=0.1)  # of 17.9 measured
