"""Rows through switches of a fabric that reduce: the links they take, and their time."""

import pytest

from netsim.base.errors import InputError
from netsim.engines.engine import simulate
from netsim.program.place import place
from netsim.schedule.builder import Builder
from netsim.schedule.schedule import IN, MULTICAST, SCRATCH, SWITCH_REDUCE, Schedule, Style
from tests.topology.topology_tools import topology

FABRIC = "machine: dgx-h100\nnodes: 4\nfabric: {kind: leaf-spine, nodes_per_leaf: 2, sharp: true}"
HEADS = (3, 11, 19, 27)
COUNT = 1 << 20


def one_row(kind: int, route: str) -> Schedule:
    builder = Builder(32, 4.0, ("all_reduce",))
    group = builder.group(HEADS)
    style = Style(kind, src_buffer=IN, dst_buffer=SCRATCH, route=route)
    ends = (group, HEADS[1]) if kind == SWITCH_REDUCE else (HEADS[1], group)
    builder.rows(style, *ends, builder.pieces(COUNT))
    return builder.finish()


def used(kind: int, route: str) -> list[str]:
    t = topology(FABRIC)
    program = place(one_row(kind, route), t)
    return sorted(t.link_name(int(n)) for n in program.paths.link)


def fabric(names: list[str]) -> list[str]:
    return [name for name in names if "leaf" in name]


def test_one_gets_the_sum_of_all():
    found = fabric(used(SWITCH_REDUCE, "sharp:nic:3"))
    up = ["leaf0->spine0", "leaf1->spine0", *(f"node{n}.nic3->leaf{n // 2}" for n in range(4))]
    assert found == sorted([*up, "spine0->leaf0", "leaf0->node1.nic3"])


def test_one_gives_to_all():
    found = fabric(used(MULTICAST, "sharp:nic:3"))
    down = ["spine0->leaf0", "spine0->leaf1", *(f"leaf{n // 2}->node{n}.nic3" for n in range(4))]
    assert found == sorted([*down, "leaf0->spine0", "node1.nic3->leaf0"])


def test_a_stream_goes_up_and_down_at_once():
    both = used(SWITCH_REDUCE, "sharp-all:nic:3")
    assert len(fabric(both)) == 12
    assert len(both) == len(set(both))
    program = place(one_row(SWITCH_REDUCE, "sharp-all:nic:3"), topology(FABRIC))
    rate = program.links.capacity[program.paths.link].min()
    assert simulate(program).makespan == pytest.approx(COUNT * 4 / rate, rel=1e-9)
    t = topology(FABRIC)
    seconds = t.links.latency[program.paths.link].sum() / 4  # four like branches, up and down
    assert program.path_latency[0] == pytest.approx(seconds, rel=0.5)


def test_a_fabric_that_does_not_reduce_is_named():
    plain = topology(FABRIC.replace(", sharp: true", ""))
    with pytest.raises(InputError, match=r"cluster\.fabric\.sharp"):
        place(one_row(SWITCH_REDUCE, "sharp:net"), plain)


def test_parts_of_one_tree_are_alike_for_all():
    """Every head's own branch is part of the common tree, wherever it is."""
    t = topology(FABRIC)
    tree = set(place(one_row(SWITCH_REDUCE, "sharp-all:nic:3"), t).paths.link.tolist())
    for kind in (SWITCH_REDUCE, MULTICAST):
        assert set(place(one_row(kind, "sharp:nic:3"), t).paths.link.tolist()) <= tree
