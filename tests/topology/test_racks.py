"""Which hosts are in one rack."""

import pytest

from netsim.cli.questions import QuestionOptions, source_of_question
from netsim.tasks.answer import checked_cells
from netsim.tasks.resolve import resolve
from netsim.topology.racks import BELOW_ONE_LEAF, NVLINK_DOMAIN, Racks, racks_of


def racks(machine: str, nodes: int, fabric: str | None = None, *settings: str) -> Racks:
    given = QuestionOptions(nodes=nodes, fabric=fabric, sizes="1M", settings=list(settings))
    source = source_of_question(machine, "all_reduce", given).source
    return racks_of(resolve(checked_cells(source)[0]).jobs[0].cluster)


@pytest.mark.parametrize(
    ("fabric", "settings", "sizes"),
    [
        ("leaf-spine", ("cluster.fabric.nodes_per_leaf=4",), [4, 4, 2]),
        ("rail-optimized", ("cluster.fabric.nodes_per_unit=5",), [5, 5]),
        ("single-switch", (), [10]),
        ("fat-tree", (), [1] * 10),
    ],
)
def test_hosts_below_the_same_leaves_are_one_rack(fabric, settings, sizes) -> None:
    found = racks("dgx-h100", 10, fabric, *settings)
    assert [len(hosts) for hosts in found.hosts] == sizes
    assert [host for hosts in found.hosts for host in hosts] == list(range(10))
    assert found.meaning == BELOW_ONE_LEAF


def test_racks_of_an_nvlink_system_are_its_domains_whatever_the_leaves() -> None:
    found = racks("gb200-nvl72", 20, "leaf-spine", "cluster.fabric.nodes_per_leaf=5")
    assert [len(hosts) for hosts in found.hosts] == [18, 2]
    assert found.meaning == NVLINK_DOMAIN


def test_a_single_host_is_a_rack() -> None:
    assert racks("dgx-h100", 1).hosts == ((0,),)
