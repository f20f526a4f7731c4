"""Collectives of a step in few rows: what a few of many targets stand for."""

from collections import Counter

import numpy as np
import pytest

from netsim.engines.engine import simulate
from netsim.program.place import place
from netsim.scenario.cells import expand
from netsim.schedule.schedule import MULTICAST, TRANSFER, Style, Use
from netsim.tasks.cluster import wishes_of
from netsim.tasks.resolve import resolve
from netsim.training.costs import MOST_TARGETS, Costs, _thinned, _Traffic
from netsim.workloads.lower import Coarse, lower
from netsim.workloads.tape import Tape, TapeEntry
from netsim.yamlio.read import parse_source

FABRICS = (
    "{kind: rail-optimized}",
    "{kind: leaf-spine, oversubscription: 2}",
    "{kind: leaf-spine, oversubscription: 2, nodes_per_leaf: 3, transport: roce, routing: ecmp}",
    "{kind: dragonfly}",
)


def ways_of(rank: int, targets: int, near: int) -> list[_Traffic]:
    """A rank's ways to others, of which the first ones are near: of 1, 2, 3, … bytes."""
    found = []
    for number in range(targets):
        style = Style(
            TRANSFER, route="nvlink" if number < near else "", uses=(Use("hbm", "src", 1.0),)
        )
        found.append(_Traffic(style, rank, rank + 1 + number))
        found[-1].add(style, float(number + 1))
    return found


@pytest.mark.parametrize(("targets", "near"), [(9, 0), (40, 7), (127, 7), (127, 126)])
def test_a_few_that_stand_for_all_carry_what_all_do(targets: int, near: int) -> None:
    ways = ways_of(3, targets, near)
    expected = Counter[str]()
    for way in ways:
        expected[way.style.route] += int(way.nbytes)
    kept = _thinned(ways, ranks=200)
    assert len(kept) <= MOST_TARGETS + 1
    found = Counter[str]()
    for way in kept:
        found[way.style.route] += way.nbytes
        assert way.wire == pytest.approx(way.nbytes)
        assert way.uses["hbm", "src"] == pytest.approx(way.nbytes)
    assert found == pytest.approx(expected)


def test_targets_that_carry_the_bytes_of_others_are_spread_over_all() -> None:
    kept = _thinned(ways_of(0, 80, 0), ranks=81)
    assert [way.dst for way in kept] == list(range(6, 81, 10))
    assert [way.nbytes for way in kept] == pytest.approx([sum(range(1, 81)) / 8] * 8)


def test_few_targets_and_switches_are_written_as_they_are() -> None:
    ways = [*ways_of(0, MOST_TARGETS, 2), _Traffic(Style(MULTICAST), 0, 1, 5.0)]
    assert Counter(map(id, _thinned(ways, ranks=20))) == Counter(map(id, ways))


def all_to_all(nodes: int, fabric: str, gpus: int) -> tuple[Coarse, float]:
    """The few rows of an all-to-all of 1 MiB, and the seconds that they take alone in a step."""
    text = (
        f"cluster: {{machine: dgx-h100, nodes: {nodes}, gpus_per_node: {gpus}, fabric: {fabric}}}\n"
        "workload: {collective: alltoall, sizes: [64KiB]}\n"
    )
    ready = resolve(expand(parse_source(text, "x.yaml"))[0])
    costs = Costs(ready.jobs[0].cluster, wishes_of(ready.cell.scenario))
    ranks = nodes * gpus
    entry = TapeEntry(
        "x",
        "ep",
        "",
        "",
        np.arange(ranks, dtype=np.int32).reshape(1, ranks),
        (),
        collective="alltoall",
        nbytes=1 << 20,
    )
    made = costs(entry, tuple(range(ranks)))
    lowered = lower(Tape((entry,)), ranks, costs)
    return made, simulate(place(lowered.schedule, ready.topology)).makespan


@pytest.mark.slow
@pytest.mark.sample(4)
@pytest.mark.parametrize("fabric", FABRICS)
@pytest.mark.parametrize(("nodes", "gpus"), [(5, 8), (16, 8), (9, 4), (20, 1)])
def test_a_few_targets_take_as_long_alone_as_all_of_them(nodes, gpus, fabric) -> None:
    made, seconds = all_to_all(nodes, fabric, gpus)
    assert seconds == pytest.approx(made.seconds, rel=1e-4)


@pytest.mark.parametrize(("nodes", "gpus"), [(6, 4), (9, 2), (20, 1)])
def test_all_ranks_receive_the_same_from_few_targets(nodes: int, gpus: int) -> None:
    made, _ = all_to_all(nodes, FABRICS[0], gpus)
    received = np.bincount(made.dst, made.amount)
    assert np.ptp(received) <= len(made.amount)  # bytes of each row are rounded
    assert (np.bincount(made.dst) == np.bincount(made.src)).all()


def test_groups_whose_ways_are_alike_use_their_own_nics() -> None:
    """They take as long as each other, and each is beside another NIC."""
    text = (
        "cluster: {machine: dgx-h100, nodes: 2}\nworkload: {collective: all_reduce, sizes: [64KiB]}"
    )
    ready = resolve(expand(parse_source(text, "x.yaml"))[0])
    costs = Costs(ready.jobs[0].cluster, wishes_of(ready.cell.scenario))
    groups = np.array([[gpu, 8 + gpu] for gpu in (0, 3)])
    task = TapeEntry("x", "dp", "", "", groups, (), collective="all_reduce", nbytes=1 << 20)
    found = [costs(task, tuple(group)) for group in groups.tolist()]
    assert [{style.route for style in one.styles} for one in found] == [
        {f"nic:{gpu}:{gpu}"} for gpu in (0, 3)
    ]
    assert len({one.seconds for one in found}) == 1
