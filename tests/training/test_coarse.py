"""Collectives of a step in few rows: what a few of many targets stand for."""

from collections import Counter

import numpy as np
import pytest

from netsim.scenario.cells import expand
from netsim.schedule.schedule import MULTICAST, TRANSFER, Style, Use
from netsim.tasks.cluster import wishes_of
from netsim.tasks.resolve import resolve
from netsim.training.costs import MOST_TARGETS, Costs, _thinned, _Way
from netsim.workloads.tape import TapeEntry
from netsim.yamlio.read import parse_source


def ways_of(rank: int, targets: int, near: int) -> list[_Way]:
    """A rank's ways to others, of which the first ones are near: of 1, 2, 3, … bytes."""
    found = []
    for number in range(targets):
        style = Style(
            TRANSFER, route="nvlink" if number < near else "", uses=(Use("hbm", "src", 1.0),)
        )
        found.append(_Way(style, rank, rank + 1 + number))
        found[-1].add(style, float(number + 1))
    return found


@pytest.mark.parametrize(("targets", "near"), [(9, 0), (40, 7), (127, 7), (127, 126)])
def test_a_few_that_stand_for_all_carry_what_all_do(targets: int, near: int) -> None:
    ways = ways_of(3, targets, near)
    expected = Counter[str]()
    for way in ways:
        expected[way.style.route] += int(way.nbytes)
    kept = _thinned(ways)
    assert len(kept) <= MOST_TARGETS + 1
    found = Counter[str]()
    for way in kept:
        found[way.style.route] += int(way.nbytes)
        assert (way.wire, way.uses["hbm", "src"]) == (way.nbytes, way.nbytes)
    assert found == expected


def test_targets_that_stand_for_others_are_spread_over_all() -> None:
    kept = _thinned(ways_of(0, 80, 0))
    assert [way.dst for way in kept] == list(range(1, 81, 10))
    assert [way.nbytes for way in kept] == [sum(range(k, k + 10)) for k in range(1, 81, 10)]


def test_few_targets_and_switches_are_written_as_they_are() -> None:
    ways = [*ways_of(0, MOST_TARGETS, 2), _Way(Style(MULTICAST), 0, 1, 5.0)]
    assert Counter(map(id, _thinned(ways))) == Counter(map(id, ways))


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
