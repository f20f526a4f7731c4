"""Adaptive routing: what every message takes by what is under way when it starts, in both engines.

By hand on two leaves and two spines; on other fabrics, engines agree on every row and every path.
"""

import csv
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from netsim.collectives.collective import Collective
from netsim.collectives.table import build
from netsim.engines import simpy
from netsim.engines.compiled.engine import run_operations
from netsim.engines.engine import simulate
from netsim.metrics.links import link_amounts
from netsim.program.place import place
from netsim.program.program import operations
from netsim.schedule.builder import Builder
from netsim.schedule.repeat import Launch
from netsim.schedule.schedule import ARRIVED, Style
from netsim.topology.fault_times import Retries, in_time
from tests.cli.command import netsim
from tests.topology.test_fabrics import hosts
from tests.topology.topology_tools import cluster

MORE = "gpus_per_node: 1\nnics_per_node: 1\n"
# Six hosts; a cable carries what a NIC does, 49.1 GB/s, or a tenth of a microsecond for 4910 bytes.
PAIR = (
    "{kind: custom, routing: adaptive, switches: [a, b, s0, s1], links: ["
    "{from: 'node[012].nic0', to: a}, {from: 'node[345].nic0', to: b}, %s]}"
)
BOTH = "{from: '[ab]', to: 's*'}"
RATE = 400e9 / 8 * 0.982


def spines(program, timeline):
    """The spine of every message."""
    run, found = program.as_run(timeline), []
    for path in run.path.tolist():
        span = slice(int(run.paths.ptr[path]), int(run.paths.ptr[path + 1]))
        names = [run.links.name(link) for link in run.paths.link[span].tolist()]
        found += [name[3:5] for name in names if name.startswith("a->s")]
    return found


def messages(sends, topology):
    """Messages of (source, destination, bytes), each after those with these numbers."""
    b = Builder(6)
    rows = []
    for src, dst, size, *before in sends:
        after = [(rows[n], ARRIVED) for n in before]
        piece = b.pieces(count=[size])
        rows.append(b.rows(Style(), src=[src], dst=[dst], piece=piece, after=after))
    return place(b.finish(), topology)


def both(program):
    """The timeline, on which engines agree in rows and paths."""
    one, other = (simulate(program, engine) for engine in ("simpy", "compiled"))
    np.testing.assert_allclose(one.end, other.end, rtol=1e-9)
    np.testing.assert_array_equal(one.path, other.path)
    return one


def test_messages_that_start_together_choose_in_their_order():
    made = cluster(hosts(6, PAIR % BOTH, "dgx-h100", MORE)).topology
    program = messages([(0, 3, 10**8), (1, 4, 10**8), (2, 5, 10**8)], made)
    done = both(program)
    taken = spines(program, done)
    assert taken[0] != taken[1]
    assert taken[2] in taken[:2]  # as full as the other: its usual one
    ends = sorted((done.end - done.start).tolist())
    assert ends[1] == pytest.approx(2 * ends[0], rel=1e-3)  # two share a spine


def test_a_message_takes_what_is_free_when_it_starts():
    """1 -> 4 has the spine of 0 -> 3 while that sends, and its own again when nobody does."""
    made = cluster(hosts(6, PAIR % BOTH, "dgx-h100", MORE)).topology
    sends = [(0, 3, 10**8), (2, 5, 10**6), (1, 4, 10**6, 1), (1, 4, 10**6, 0)]
    taken = spines(program := messages(sends, made), done := both(program))
    first, other = taken[0], {"s0": "s1", "s1": "s0"}[taken[0]]
    assert taken[1:3] == [other, other]  # one after the other, beside the long one
    assert done.end[2] < done.end[0] < done.end[3]
    alone = both(again := messages([(1, 4, 10**6)], made))
    assert taken[3] == spines(again, alone)[0]
    assert first in ("s0", "s1")
    np.testing.assert_allclose(done.end[0], 10**8 / RATE, rtol=1e-2)


def test_faster_cables_are_less_full():
    """A cable of four times the rate takes three messages before a slow one takes one."""
    links = "{from: '[ab]', to: s0}, {from: '[ab]', to: s1, bandwidth: 1600Gbps}"
    made = cluster(hosts(6, PAIR % links, "dgx-h100", MORE)).topology
    program = messages([(0, 3, 10**8), (1, 4, 10**8), (2, 5, 10**8)], made)
    assert spines(program, both(program)) == ["s1", "s1", "s1"]


@pytest.mark.parametrize(("dead", "other"), [("s0", "s1"), ("s1", "s0")])
def test_a_cable_that_grows_slow_is_left_by_what_starts_later(dead, other):
    faults = f"faults: [{{link: a-{dead}, bandwidth: 5%, at: 100us}}]\n"
    text = hosts(6, PAIR % BOTH, "dgx-h100", MORE + faults)
    made = in_time(cluster(text).topology, Retries(1.0, 7))
    b = Builder(6)
    first = b.rows(Style(), src=[0], dst=[3], piece=b.pieces(count=[10**7]))  # for 204 us
    for sender in (1, 2, 1, 2):
        first = b.rows(
            Style(),
            src=[sender],
            dst=[sender + 3],
            piece=b.pieces(count=[10**6]),
            after=[(first, ARRIVED)],
        )
    program = place(b.finish(), made)
    assert set(spines(program, both(program))[1:]) == {other}


KINDS = [
    "leaf-spine, nodes_per_leaf: 1, oversubscription: 2",
    "fat-tree, k: 8",
    "rail-optimized",
    "dual-plane",
    "torus, dims: [3, 4]",
    "dragonfly, routers: 4, ports_per_router: 4, global_links: 2",
]


def placed(kind, seed, routing="adaptive"):
    """An all-to-all of unequal messages among some GPUs in any order, with ends out of step."""
    made = cluster(hosts(12, f"{{kind: {kind}, routing: {routing}}}"))
    random = np.random.default_rng(seed)
    ranks = random.permutation(len(made.topology))[:10]
    b = Builder(10)
    last = None
    for _ in range(12):
        src = random.permutation(10)
        dst = (src + random.integers(1, 10)) % 10
        pieces = b.pieces(count=random.integers(10**4, 10**6, 10))
        after = [] if last is None or random.random() < 0.3 else [(last, ARRIVED)]
        last = b.rows(Style(), src=src, dst=dst, piece=pieces, after=after)
    return place(b.finish(), made.topology, ranks.tolist())


@pytest.mark.sample(6)
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(2))
def test_engines_agree_on_every_row_and_path(kind, seed):
    program = placed(kind, seed)
    done = both(program)
    assert (done.path != program.path).any()
    # All bytes leave and arrive, over other links: what each NIC sends and receives is the same.
    usual, run = (link_amounts(one) for one in (program, program.as_run(done)))
    if "dual-plane" not in kind:  # there NICs have two cables
        nics = [n for n in range(len(program.links)) if program.links.kind(n) in ("nic", "pcie")]
        np.testing.assert_allclose(run[nics], usual[nics])
    assert run.sum() > 0
    # What ran is the same question: from its paths, it runs the same again.
    again = simulate(program.as_run(done), "compiled")
    np.testing.assert_array_equal(again.path, done.path)


@pytest.mark.slow
def test_operations_in_a_row_choose_anew():
    many = operations(placed(KINDS[0], 3), 4, Launch(1e-6, 2e-6))
    one, other = simpy.run(many.unrolled()), run_operations(many)
    np.testing.assert_allclose(one.end, other.end, rtol=1e-9)
    np.testing.assert_array_equal(one.path, other.path)
    under_way = []
    for launched in (many.launched[:1], many.launched[:3], many.launched):
        more = run_operations(replace(many, launched=launched), under_way)
    np.testing.assert_array_equal(more.end, other.end)
    np.testing.assert_array_equal(more.path, other.path)


@pytest.mark.slow
def test_it_is_never_far_behind_the_best_of_fixed_paths():
    """Of an all-to-all over oversubscribed leaves: not slower than paths laid by destination."""
    for seed in range(3):
        took = {
            routing: simulate(placed(KINDS[0], seed, routing)).makespan
            for routing in ("static", "ecmp", "adaptive", "spray")
        }
        assert took["adaptive"] < 1.02 * min(took["static"], took["ecmp"])
        assert took["adaptive"] < 1.3 * took["spray"]


def test_where_there_is_one_path_nothing_is_chosen():
    made = cluster(hosts(4, "{kind: single-switch, routing: adaptive}"))
    program = place(
        build(Collective("alltoall", ranks=4, count=64), "linear-shift"),
        made.topology,
        [0, 8, 16, 24],
    )
    assert program.paths.choices is None
    assert not made.topology.router.by_load


def test_a_run_takes_it_from_the_command_line(capsys):
    fabric = ["--fabric", "leaf-spine", "--set", "cluster.fabric.oversubscription=2"]
    call = ["expect", "dgx-h100", "alltoall", "--nodes", "4", "--sizes", "16M", "--format", "csv"]
    took = {}
    for routing in ("adaptive", "ecmp"):
        setting = ["--set", f"cluster.fabric.routing={routing}"]
        (row,) = csv.DictReader(netsim(capsys, *call, *fabric, *setting).out.splitlines())
        took[routing] = float(row["time_us"])
    assert took["adaptive"] < took["ecmp"]


def test_a_path_is_as_full_as_the_fullest_of_its_links_that_others_do_not_share() -> None:
    """By the messages on each, this one included, over its rate; dead links are full."""
    choices = SimpleNamespace(
        ptr=np.array([0, 3, 5, 6]),
        slot=np.array([0, 1, 2, 0, 3, 4]),
        link=np.arange(10, 15),
        apart=np.array([False, True, True, False, True, True]),
    )
    rates = np.zeros(15)
    rates[10:14] = 1.0, 4.0, 2.0, 8.0
    engine = SimpleNamespace(choices=choices, healthy=rates, messages={0: 100, 1: 1, 2: 2, 3: 7})
    found = [simpy.Simulation._fullest(engine, path) for path in range(3)]
    assert found == [max(2 / 4, 3 / 2), 8 / 8, np.inf]
