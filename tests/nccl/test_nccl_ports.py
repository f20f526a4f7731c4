"""Ports of GPUs, GPUDirect and the paths around it."""

import pytest

from netsim.nccl.environment import NO_SETTINGS, Settings
from netsim.nccl.facts import facts_of
from netsim.nccl.paths import path_table, ports_of, reaches_directly
from netsim.nccl.system import system_graph
from tests.nccl.nccl_nodes import node_of, system_of


def table_of(config: str, settings: Settings = NO_SETTINGS):
    return path_table(system_graph(system_of(config), facts_of(), networked=True), settings)


def ports(config: str, settings: Settings = NO_SETTINGS) -> list[list[int]]:
    table = table_of(config, settings)
    return [[table.nets.index(net) for net in ports_of(table, gpu, settings)] for gpu in table.gpus]


def test_each_gpu_has_the_port_beside_it():
    assert ports("h100_8nic") == [[gpu] for gpu in range(8)]
    assert ports("h100_4nic")[:4] == [[0], [0], [1], [1]]
    assert ports("h100_1nic") == [[0]] * 8


def test_ports_shared_by_a_switch_are_taken_in_turn():
    assert ports("dgxa100")[:2] == [[0], [1]]
    assert [sorted(own) for own in ports("dgxa100", Settings(nics_policy="ALL"))[:4]] == [
        [0, 1],
        [0, 1],
        [2, 3],
        [2, 3],
    ]
    one = Settings(nics_policy="MAX", nics_at_most=1)
    assert ports("dgxa100", one) == ports("dgxa100")


def test_gpudirect_needs_support_and_nearness():
    table = table_of("h100_8nic")
    assert reaches_directly(table, table.gpus[0], table.nets[0], NO_SETTINGS)
    tcp = table_of("a100_tcp")
    assert not reaches_directly(tcp, tcp.gpus[0], tcp.nets[0], NO_SETTINGS)
    far = table_of("l40s8sw", Settings(gdr_level="SYS"))
    assert reaches_directly(far, far.gpus[7], far.nets[0], Settings(gdr_level="SYS"))
    assert far.type_of(far.gpus[0], far.nets[0]) == "PIX"


@pytest.mark.parametrize(("disabled", "kind"), [(False, "NVB"), (True, "SYS")])
def test_paths_through_another_gpu(disabled, kind):
    settings = Settings(nvb_disabled=disabled)
    table = path_table(system_graph(system_of("dgx1v_4nic"), facts_of(), networked=False), settings)
    assert table.type_of(table.gpus[0], table.gpus[7]) == kind


def test_without_peer_to_peer_traffic_stages_in_host_memory():
    table = node_of("l40s8sw", networked=False).table
    assert table.type_of(table.gpus[0], table.gpus[1]) == "PIX"
    assert table.type_of(table.gpus[0], table.gpus[7]) == "SYS"
    assert table.paths[table.gpus[0], table.gpus[7]].bandwidth == 16.0
