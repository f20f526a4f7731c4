"""NCCL's graph of a node, by hand: what each link counts for, in which order, and who is in."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from netsim.base.errors import InputError
from netsim.nccl import paths
from netsim.nccl.environment import Settings, VariableError, nic_names, settings_from
from netsim.nccl.facts import facts_of, parse_version
from netsim.nccl.system import (
    CPU_CLASS,
    LOCAL,
    SWITCH_CLASS,
    SystemGraph,
    net_bandwidth,
    pci_bandwidth,
    socket_bandwidth,
    system_graph,
    with_nics,
)
from netsim.topology.foreign.nccl_xml import (
    XmlC2c,
    XmlCpu,
    XmlGpu,
    XmlNet,
    XmlNic,
    XmlNvLink,
    XmlPci,
    XmlPciLink,
    XmlSystem,
)

GEN5 = "32.0 GT/s PCIe"
INTEL = XmlCpu(0, vendor="GenuineIntel", modelid=0x8F)


@pytest.mark.parametrize(
    ("speed", "width", "gbps"),
    [
        ("2.5 GT/s PCIe", 16, 3.0),
        ("5.0 GT/s PCIe", 16, 6.0),
        ("8.0 GT/s PCIe", 16, 12.0),
        ("16.0 GT/s PCIe", 16, 24.0),
        (GEN5, 16, 48.0),
        ("64 GT/s PCIe", 16, 96.0),
        (GEN5, 4, 12.0),
        (GEN5, 0, 48.0),
        ("", 8, 6.0),
        ("Unknown speed", 0, 12.0),
    ],
)
def test_a_pcie_link_counts_for_its_lanes_at_80_percent(speed, width, gbps) -> None:
    assert pci_bandwidth(XmlPci("1", link_speed=speed, link_width=width)) == pytest.approx(gbps)


@pytest.mark.parametrize(("mbps", "gbps"), [(400_000, 50.0), (1, 1 / 8000), (0, 1.25), (-1, 1.25)])
def test_a_port_of_unknown_speed_is_one_of_10_gigabits(mbps, gbps) -> None:
    assert net_bandwidth(XmlNet("mlx5_0", 0, speed=mbps)) == gbps


@pytest.mark.parametrize(
    ("cpu", "version", "gbps"),
    [
        (INTEL, "2.27", 22.0),
        (replace(INTEL, modelid=0x55), "2.27", 10.0),
        (replace(INTEL, modelid=0x55), "2.10", 9.0),
        (replace(INTEL, modelid=0x54), "2.10", 6.0),
        (XmlCpu(0, vendor="AuthenticAMD"), "2.27", 16.0),
        (XmlCpu(0, vendor="AuthenticAMD"), "2.10", LOCAL),
        (XmlCpu(0, vendor="CentaurHauls", modelid=0x5B), "2.27", 9.0),
        (XmlCpu(0, vendor="  Shanghai  ", modelid=0x5B), "2.27", 9.0),
        (XmlCpu(0, vendor="CentaurHauls", modelid=0x5C), "2.27", 6.0),
        (XmlCpu(0, vendor="someone", modelid=0x5B), "2.27", 6.0),
        (XmlCpu(0, arch="ppc64", vendor="AuthenticAMD"), "2.27", 32.0),
        (XmlCpu(0, arch="arm64", vendor="AuthenticAMD"), "2.27", 6.0),
    ],
)
def test_sockets_count_by_vendor_model_and_version(cpu, version, gbps) -> None:
    assert socket_bandwidth(cpu, facts_of(parse_version(version))) == gbps


def nic(busid: str, *ports: XmlNet, width: int = 16) -> XmlPci:
    return XmlPci(busid, link_speed=GEN5, link_width=width, nics=(XmlNic(ports),))


def host() -> XmlSystem:
    """Two sockets with a PCIe switch each, which are linked; below each a GPU on the switch and one
    port; below the second socket a third GPU, which has no switch above it. The first two GPUs
    have NVLinks to an NVSwitch, two to each other, and chip-to-chip links to their CPU."""
    pairs = [(0, "a0", "a1"), (1, "b0", "b1")]
    sockets = []
    for number, here, there in pairs:
        peer = ("a1", "b1")[1 - number]
        gpu = XmlGpu(
            number,
            90,
            gdr=True,
            c2c=(XmlC2c(50_000, 2),),
            nvlinks=(
                XmlNvLink("sw", 18, SWITCH_CLASS),
                XmlNvLink(peer.upper(), 2, "0x030200"),
                XmlNvLink("elsewhere", 1, "0x030200"),
            ),
        )
        below = (
            XmlPci(there, link_speed=GEN5, link_width=8, gpu=gpu),
            nic(f"{here}n.0", XmlNet(f"mlx5_{number}", number, 400_000)),
        )
        other = pairs[1 - number][1]
        switch = XmlPci(
            here,
            link_speed=GEN5,
            link_width=16,
            pcis=below,
            pci_links=(XmlPciLink(other.upper()),) if number == 0 else (),
        )
        alone = XmlPci("c1", link_speed="8.0 GT/s PCIe", gpu=XmlGpu(2, 90))
        sockets.append(replace(INTEL, numaid=number, pcis=(switch, *[alone][:number])))
    return XmlSystem(tuple(sockets))


def links(graph: SystemGraph) -> dict[tuple[str, str, str], list[float]]:
    """Bandwidths by kind of link and of its ends."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for link in graph.links:
        ends = (graph.nodes[link.source].kind, graph.nodes[link.target].kind)
        found.setdefault((link.kind, *ends), []).append(link.bandwidth)
    return found


def test_every_link_has_its_bandwidth_both_ways() -> None:
    found = links(system_graph(host(), facts_of(parse_version("2.21")), networked=True))
    nvlink = 20.6
    assert found == {
        ("PCI", "GPU", "PCI"): [24.0] * 2,
        ("PCI", "PCI", "GPU"): [24.0] * 2,
        ("PCI", "GPU", "CPU"): [12.0],
        ("PCI", "CPU", "GPU"): [12.0],
        ("PCI", "NIC", "PCI"): [48.0] * 2,
        ("PCI", "PCI", "NIC"): [48.0] * 2,
        ("PCI", "PCI", "CPU"): [48.0] * 2,
        ("PCI", "CPU", "PCI"): [48.0] * 2,
        ("NET", "NIC", "NET"): [50.0] * 2,
        ("NET", "NET", "NIC"): [50.0] * 2,
        ("NVL", "GPU", "NVS"): [18 * nvlink] * 2,
        ("NVL", "NVS", "GPU"): [18 * nvlink] * 2,
        ("NVL", "GPU", "GPU"): [2 * nvlink] * 2,
        ("C2C", "GPU", "CPU"): [100.0] * 2,
        ("C2C", "CPU", "GPU"): [100.0] * 2,
        ("SYS", "CPU", "CPU"): [10.0] * 2,
        ("LOC", "PCI", "PCI"): [LOCAL] * 2,
    }


def test_faster_links_come_first_and_the_way_up_last() -> None:
    graph = system_graph(host(), facts_of(parse_version("2.21")), networked=True)
    for node, out in enumerate(graph.links_out):
        links_out = [graph.links[number] for number in out]
        rates = [link.bandwidth for link in links_out]
        if graph.nodes[node].kind in ("GPU", "PCI"):
            assert links_out[-1].kind == "PCI"
            assert graph.nodes[links_out[-1].target].kind in ("PCI", "CPU")
            rates.pop()
        assert rates == sorted(rates, reverse=True)


def test_one_node_alone_has_no_ports_and_nor_have_cards_without() -> None:
    graph = system_graph(host(), facts_of(), networked=False)
    assert not graph.of_kind("NET")
    assert not graph.of_kind("NIC")
    without = host().with_ports(lambda net: replace(net, net=False))
    assert not system_graph(without, facts_of(), networked=True).of_kind("NIC")


def test_ports_of_one_card_share_it_whichever_function_they_are() -> None:
    cpu = replace(
        INTEL,
        pcis=(
            XmlPci("9", gpu=XmlGpu(0, 80)),
            nic("5.0", XmlNet("a", 0, 8000)),
            nic("5.1", XmlNet("b", 1, 16000), width=4),
            nic("6.0", XmlNet("c", 2, 24000)),
        ),
    )
    found = links(system_graph(XmlSystem((cpu,)), facts_of(), networked=True))
    assert found["NET", "NIC", "NET"] == [1.0, 2.0, 3.0]
    assert found["PCI", "NIC", "CPU"] == [48.0, 48.0]
    # Below a CPU itself there is no PCIe link to count.
    bare = replace(INTEL, nics=(XmlNic((XmlNet("a", 0, 8000),)),), pcis=cpu.pcis[:1])
    found = links(system_graph(XmlSystem((bare,)), facts_of(), networked=True))
    assert found["PCI", "NIC", "CPU"] == [LOCAL]


def test_ranks_are_those_of_devices_in_use() -> None:
    def ranks(system: XmlSystem, devices=None) -> tuple[list[int], tuple[int, ...]]:
        graph = system_graph(system, facts_of(), networked=False, devices=devices)
        return [graph.gpu(node).dev for node in graph.of_kind("GPU")], graph.local_ranks

    assert ranks(host()) == ([0, 1, 2], (0, 1, 2))
    assert ranks(host(), [0, 2]) == ([0, 2], (0, 1))
    given = {0: 7, 1: None, 2: 3}
    told = host().changed(
        lambda pci: (
            pci if pci.gpu is None else replace(pci, gpu=replace(pci.gpu, rank=given[pci.gpu.dev]))
        )
    )
    assert ranks(told) == ([0, 2], (1, 0))
    assert ranks(told, [1, 2]) == ([1, 2], (0, 1))
    with pytest.raises(InputError, match="no GPU elements"):
        ranks(host(), [5])


def test_hosts_of_one_nvlink_domain_have_no_socket_link_between_them() -> None:
    sockets = host().cpus
    apart = XmlSystem(tuple(replace(cpu, host_hash=f"0x{n}") for n, cpu in enumerate(sockets)))
    found = links(system_graph(apart, facts_of(), networked=True))
    assert ("SYS", "CPU", "CPU") not in found
    assert ("LOC", "PCI", "PCI") not in found
    assert ("NVL", "GPU", "GPU") not in found
    assert len(found["NVL", "GPU", "NVS"]) == 2


def test_nvlinks_to_a_cpu_are_no_pcie() -> None:
    gpu = XmlGpu(0, 70, nvlinks=(XmlNvLink("cpu", 3, CPU_CLASS),))
    cpu = replace(INTEL, arch="ppc64", pcis=(XmlPci("1", gpu=gpu),))
    found = links(system_graph(XmlSystem((cpu,)), facts_of(parse_version("2.10")), networked=False))
    assert found["NVL", "GPU", "CPU"] == found["NVL", "CPU", "GPU"] == [66.0]


@pytest.mark.parametrize(
    ("text", "transport", "left"),
    [
        ("mlx5_1", "infiniband", ["mlx5_1"]),
        ("^mlx5_1", "infiniband", ["mlx5_0"]),
        ("mlx5", "roce", ["mlx5_0", "mlx5_1"]),
        ("eth1", "tcp", ["mlx5_1"]),
        ("^eth1", "tcp", ["mlx5_0"]),
        ("=mlx5_0", "infiniband", ["mlx5_0"]),
        ("mlx5_0:0,mlx5_1:1", "infiniband", ["mlx5_0"]),
    ],
)
def test_nics_are_those_that_are_named(text, transport, left) -> None:
    sockets = transport == "tcp"
    names = nic_names(text)
    given = Settings(interfaces=names) if sockets else Settings(hcas=names)
    assert [net.name for net in with_nics(host(), transport, given).nets()] == left
    other = Settings(hcas=names) if sockets else Settings(interfaces=names)
    assert with_nics(host(), transport, other) == host()  # a variable of the other transport


def test_names_of_none_of_the_nics_are_refused_by_the_variable_that_named_them() -> None:
    with pytest.raises(VariableError, match=r"none of the NICs mlx5_0, mlx5_1") as found:
        with_nics(host(), "infiniband", Settings(hcas=nic_names("ib")))
    assert "NCCL_IB_HCA" in found.value.variable
    with pytest.raises(VariableError, match=r"none of the NICs eth0, eth1") as found:
        with_nics(host(), "tcp", Settings(interfaces=nic_names("^eth")))
    assert "NCCL_SOCKET_IFNAME" in found.value.variable
    bare = host().with_ports(lambda _: None)
    assert with_nics(bare, "tcp", Settings(interfaces=nic_names("ib"))) == bare


@pytest.mark.parametrize(
    ("across", "near", "direct", "same_host", "through"),
    [
        ("NVL", ("PXB", 20.0), ("PXB", 10.0), True, True),
        ("NVL", ("PXB", 10.0), ("PXB", 10.0), True, False),  # no wider
        ("NVL", ("PXB", 10.0), ("PXN", 10.0), True, False),
        ("NVL", ("PXB", 10.0), ("PHB", 10.0), True, True),  # not over the CPU
        ("NVL", ("PXB", 10.0), None, True, True),
        ("NVB", ("PXB", 20.0), ("SYS", 10.0), True, False),
        (None, ("PXB", 20.0), ("SYS", 10.0), True, False),
        ("NVL", ("PHB", 20.0), ("SYS", 10.0), True, False),
        ("NVL", ("PXB", 20.0), ("SYS", 10.0), False, False),
    ],
)
def test_a_neighbour_sends_where_that_is_wider_or_avoids_the_cpu(
    across, near, direct, same_host, through, monkeypatch
) -> None:
    facts, via = facts_of(), []
    monkeypatch.setattr(paths, "_via", lambda _, *ends: via.append(ends))

    def path(kind: str, bandwidth: float = 1.0) -> SimpleNamespace:
        return SimpleNamespace(type=facts.rank(kind), bandwidth=bandwidth)

    gpu, beside, net = 0, 1, 2
    known = {(beside, net): path(*near)}
    known |= {(gpu, beside): path(across)} if across else {}
    known |= {(gpu, net): path(*direct)} if direct else {}
    nodes = [SimpleNamespace(host=0, gdr=True), SimpleNamespace(host=int(not same_host), gdr=True)]
    graph = SimpleNamespace(
        facts=facts, nodes=nodes, gpu=nodes.__getitem__, net=lambda _: SimpleNamespace(gdr=True)
    )
    table = SimpleNamespace(graph=graph, paths=known)
    paths._through_neighbour(table, gpu, net, beside, settings_from({"NCCL_NET_GDR_C2C": "0"}))
    assert via == [(beside, gpu, net, facts.rank("PXN"))] * through
