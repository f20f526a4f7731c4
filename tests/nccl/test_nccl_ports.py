"""Ports of GPUs, GPUDirect and the paths around it."""

from dataclasses import replace

import pytest

from netsim.nccl.environment import NO_SETTINGS, Settings
from netsim.nccl.facts import facts_of
from netsim.nccl.p2p import _to_network
from netsim.nccl.paths import PathTable, local_gpu, path_table, ports_of, reaches_directly
from netsim.nccl.system import system_graph
from netsim.topology.foreign.nccl_xml import XmlCpu, XmlGpu, XmlNet, XmlNic, XmlPci, XmlSystem
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


def below_one_switch(gpus: int, ports: int) -> PathTable:
    """Of a host whose GPUs and ports are all as near to each other."""
    speed = {"link_speed": "32.0 GT/s PCIe", "link_width": 16}
    below = [XmlPci(f"b{n}", **speed, gpu=XmlGpu(n, 90, gdr=True)) for n in range(gpus)]
    nets = [XmlNet(f"mlx5_{n}", n, 400_000, gdr=True) for n in range(ports)]
    below += [XmlPci(f"c{n}", **speed, nics=(XmlNic((net,)),)) for n, net in enumerate(nets)]
    cpu = XmlCpu(0, vendor="GenuineIntel", modelid=0x8F, pcis=(XmlPci("a0", **speed, pcis=below),))
    return path_table(system_graph(XmlSystem((cpu,)), facts_of(), networked=True))


@pytest.mark.parametrize(("count", "taken"), [(2, [0, 1]), (3, [0, 1, 2]), (4, [0, 2, 1, 3])])
def test_ports_as_near_are_taken_by_the_bits_of_a_gpu_in_reverse(count, taken):
    """So that neighbours are far apart; where they are no power of two, one after another."""
    table = below_one_switch(count, count)
    found = [ports_of(table, gpu, NO_SETTINGS) for gpu in table.gpus]
    assert found == [[table.nets[port]] for port in taken]


def test_a_port_is_used_first_by_the_gpu_whose_channels_come_to_it_first():
    alone = below_one_switch(1, 2)
    assert [local_gpu(alone, net, NO_SETTINGS) for net in alone.nets] == [alone.gpus[0]] * 2
    idle, one = below_one_switch(1, 2), Settings(nics_policy="MAX", nics_at_most=1)
    assert [local_gpu(idle, net, one) for net in idle.nets] == [idle.gpus[0], -1]


@pytest.mark.parametrize(("count", "channels"), [(1, 4), (3, 11), (4, 15)])
def test_channels_to_a_peer_over_the_network_cover_the_rate_of_the_ports(count, channels):
    """One channel moves 14 GB/s; ports have 50 GB/s. Before that, as many as there are ports."""
    table = below_one_switch(1, count)
    facts = replace(facts_of(), p2p_net_channels="by_bandwidth")
    assert _to_network(table, table.gpus[0], facts, NO_SETTINGS, 1) == channels
    older = replace(facts, p2p_net_channels="covering")
    assert _to_network(table, table.gpus[0], older, NO_SETTINGS, 1) == count
