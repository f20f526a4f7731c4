"""The search beyond its oracle: shortcuts that change nothing, subsets, odd machines, speed."""

from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import pytest

from netsim.base.errors import InputError
from netsim.nccl import search
from netsim.nccl.communicator import BALANCED_TREE, NVLS, RING, TREE
from netsim.nccl.environment import NO_SETTINGS, Settings
from netsim.nccl.facts import facts_of
from netsim.nccl.node import communicator, search_node
from netsim.nccl.paths import path_table
from netsim.nccl.search import Arena, Attempt, Request, _Relaxation, most_channels, nets_of
from netsim.nccl.search import search as search_channels
from netsim.nccl.system import system_graph
from netsim.nccl.tuning import cost_entry
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
from tests.nccl.nccl_nodes import node_of, system_of


def arena_of(system: XmlSystem, *, networked: bool, settings: Settings = NO_SETTINGS) -> Arena:
    graph = system_graph(system, facts_of(), networked=networked)
    return Arena(path_table(graph, settings), settings)


@pytest.mark.sample(4)
@pytest.mark.slow
@pytest.mark.parametrize("config", ["a100x4_1nic", "h100_1nic", "v100pcie4sw", "a10pcie8_amd"])
@pytest.mark.parametrize("networked", [False, True], ids=["alone", "networked"])
def test_shortcuts_change_nothing(config, networked, monkeypatch):
    fast = node_of(config, networked=networked)
    monkeypatch.setattr(search, "most_channels", lambda arena, attempt: attempt.max_channels)
    monkeypatch.setattr(search, "cannot_improve", lambda arena, attempt, limit, best: False)
    monkeypatch.setattr(search, "walk_key", lambda arena, kinds, attempt: (attempt, (id(attempt),)))
    slow = search_node(system_of(config), networked=networked)
    assert (slow.ring, slow.tree, slow.nvls) == (fast.ring, fast.tree, fast.nvls)


@pytest.mark.slow
def test_as_many_rings_leave_by_ports_as_all_links_of_all_gpus_allow() -> None:
    """Seven links of each are taken by eight rings, each of which leaves another GPU by its port;
    that is what the search finds without any shortcut too."""

    def fewer(pci: XmlPci) -> XmlPci:
        links = tuple(replace(one, count=8) for one in pci.gpu.nvlinks) if pci.gpu else ()
        return replace(pci, gpu=pci.gpu and replace(pci.gpu, nvlinks=links))

    ring = search_node(system_of("h100_8nic").changed(fewer), networked=True).ring
    assert (ring.n_channels, ring.bw_intra, ring.cross_nic) == (8, 22, 2)


@pytest.mark.slow
@pytest.mark.parametrize("config", ["dgxa100", "h100_8nic", "dgx1v_4nic", "l40s8sw"])
def test_what_is_found_is_within_the_bounds_and_the_capacities(config):
    node = node_of(config, networked=True)
    arena = arena_of(system_of(config), networked=True)
    before = list(arena.left)
    ring = search_channels(arena, Request(RING, 1, 32))
    assert arena.left == before
    assert ring == node.ring
    ladder = search._Relaxation(arena, Request(RING, 1, 32), NO_SETTINGS)
    attempt = replace(ladder.start, bw_intra=ring.bw_intra, bw_inter=ring.bw_inter, type_intra=9)
    assert ring.n_channels <= most_channels(arena, attempt)


@pytest.mark.parametrize(("pattern", "most"), [(RING, 15), (BALANCED_TREE, 35), (NVLS, 0)])
@pytest.mark.parametrize(("intra", "inter"), [(10.0, 20.0), (20.0, 10.0)])
def test_channels_are_at_most_what_links_out_of_gpus_hold_at_the_lower_rate(
    pattern: int, most: int, intra: float, inter: float
) -> None:
    """A ring leaves every GPU, by links of 100 and 59 GB/s of one, 200 of the other; trees two GPUs
    between them; through a switch a channel takes the whole rate, and one place stays free."""
    left = [[100_000, 59_000], [200_000]]
    arena = SimpleNamespace(nets=(), gpus=(0, 1), left_of_gpu=lambda gpu, kind: left[gpu])
    asked = SimpleNamespace(
        max_channels=64, pattern=pattern, type_intra=0, bw_intra=intra, bw_inter=inter
    )
    expected = 200 // int(intra) - 1 if pattern == NVLS else most
    assert most_channels(arena, asked) == expected


@pytest.mark.parametrize(
    ("config", "kinds"),
    [
        ("h100_8nic", {"LOC": 1, "NVL": 1, "NVB": 1, "C2C": 1, "PIX": 2, "PXB": 2, "SYS": 2}),
        ("v100pcie4", {"NVL": 0, "C2C": 0, "PIX": 1, "SYS": 1}),
    ],
)
def test_what_is_left_of_a_gpu_is_of_links_that_such_paths_may_use(config, kinds) -> None:
    """PCIe's from PIX on, and NVLink's always."""
    graph = system_graph(system_of(config), facts_of(), networked=True)
    arena = Arena(path_table(graph, NO_SETTINGS), NO_SETTINGS)
    found = {name: len(arena.left_of_gpu(0, arena.facts.rank(name))) for name in kinds}
    assert found == kinds


def test_some_gpus_of_a_node():
    node = search_node(system_of("h100_8nic"), networked=False, devices=[0, 2, 5])
    assert node.local_ranks == 3
    assert sorted(node.ring.channels[0].gpus) == [0, 1, 2]
    pair = search_node(system_of("h100x2"), networked=True)
    assert pair.ring.n_channels >= 2
    with pytest.raises(InputError, match="no GPU elements, or none of the devices in use"):
        search_node(system_of("h100_8nic"), networked=False, devices=[9])


def test_ranks_of_the_file_number_the_channels():
    cpu = system_of("h100x4").cpus[0]
    one, two = cpu.pcis[0].pcis[0], cpu.pcis[1].pcis[0]
    swapped = (
        replace(one, gpu=replace(one.gpu, rank=9)),
        replace(two, gpu=replace(two.gpu, rank=4)),
    )
    node = search_node(XmlSystem((replace(cpu, pcis=swapped),)), networked=False)
    assert node.table.graph.local_ranks == (1, 0)
    assert node.ring.channels[0].gpus == (1, 0)


def gpu_pci(dev: int, sm: int = 100, **more) -> XmlPci:
    gpu = XmlGpu(dev, sm, dev, True, **more)
    return XmlPci(f"0000:{0x80 + dev:02x}:00.0", "0x030200", link_speed="32 GT/s", gpu=gpu)


def nic_pci(dev: int, guid: str = "0x1", port: int = 1) -> XmlPci:
    net = XmlNet(f"mlx5_{dev}", dev, 400000, port=port, guid=guid, gdr=True, coll=True)
    return XmlPci(
        f"0000:{0x40 + dev:02x}:00.0", "0x020700", link_speed="32 GT/s", nics=(XmlNic((net,)),)
    )


SWITCH = (XmlNvLink("fffffff:ffff:ff", 18, "0x068000"),)


def superchips(hosts: int) -> XmlSystem:
    cpus = []
    for host in range(hosts):
        chip = (XmlC2c(44000, 10),)
        pcis = [gpu_pci(2 * host + dev, nvlinks=SWITCH, c2c=chip) for dev in range(2)]
        cpus.append(XmlCpu(0, hex(host), arch="arm64", pcis=(*pcis, nic_pci(host, hex(host + 1)))))
    return XmlSystem(tuple(cpus))


@pytest.mark.slow
def test_one_node_of_several_hosts_with_chip_links():
    node = search_node(superchips(4), networked=False)
    assert (node.local_ranks, node.ring.type_intra) == (8, "NVL")
    networked = search_node(superchips(4), networked=True)
    assert networked.table.type_of(networked.table.gpus[0], networked.table.nets[0]) == "P2C"
    assert networked.ring.n_channels > 1
    far = networked.table.type_of(networked.table.gpus[0], networked.table.nets[3])
    assert far == "DIS"


@pytest.mark.slow
def test_a_rack_is_searched_as_one_node():
    node = search_node(superchips(36), networked=False)
    assert node.ring.channels[0].gpus == tuple(range(72))
    assert (node.ring.n_channels, node.ring.bw_intra) == (16, 45)


def test_links_beside_the_pci_tree():
    bridges = [
        XmlPci(
            f"0000:{number:02x}:00.0",
            "0x060400",
            link_speed="16 GT/s",
            link_width=16,
            pcis=(gpu_pci(number, 80),),
            pci_links=(XmlPciLink(f"0000:{1 - number:02x}:00.0"),),
        )
        for number in range(2)
    ]
    alone = [replace(bridge, pci_links=()) for bridge in bridges]
    types = [
        node.table.type_of(*node.table.gpus)
        for node in (
            search_node(XmlSystem((XmlCpu(0, pcis=tuple(pcis)),)), networked=False)
            for pcis in (bridges, alone)
        )
    ]
    assert types == ["PXB", "PHB"]


def test_ports_of_one_card_share_its_budget():
    card = nic_pci(0)
    second = replace(card.nics[0].nets[0], dev=1, name="mlx5_1")
    both = replace(card, nics=(XmlNic((card.nics[0].nets[0], second)),))
    system = XmlSystem(
        (XmlCpu(0, pcis=(gpu_pci(0, nvlinks=SWITCH), gpu_pci(1, nvlinks=SWITCH), both)),)
    )
    arena = arena_of(system, networked=True)
    assert arena.ports == [(0, 1), (0, 1)]
    assert arena.rails[0] == arena.rails[1]


@pytest.mark.parametrize(("config", "total"), [("dgxa100", 240.0), ("dgx2_8nic", 120.0)])
def test_a_search_ends_with_all_that_a_gpu_can_send(monkeypatch, config, total):
    """No wish is given up for more than there is."""

    def give_up(self, budget):
        raise AssertionError(f"{self.best} is not enough, after {budget}")

    monkeypatch.setattr(_Relaxation, "_relaxed", give_up)
    node = search_node(system_of(config), networked=False)
    assert node.ring.n_channels * node.ring.bw_inter == total
    assert node.tree.n_channels * node.tree.bw_inter == total


@pytest.mark.slow
def test_collnet_graphs_where_the_network_reduces():
    cpus = system_of("h100_8nic").cpus
    wanted = Settings(collnet=True)
    plain = search_node(system_of("h100_8nic"), networked=True, settings=wanted)
    assert plain.collnet_chain.n_channels == plain.collnet_direct.n_channels == 0
    able = tuple(replace(cpu, pcis=tuple(map(with_collectives, cpu.pcis))) for cpu in cpus)
    node = search_node(XmlSystem(able), networked=True, settings=wanted)
    assert node.collnet_chain.n_channels == node.ring.n_channels
    assert node.collnet_direct.n_channels == 8
    comm = communicator(node, 4, settings=wanted, network_collectives=True)
    for algorithm in ("CollNetDirect", "CollNetChain", "NVLS"):
        cost = cost_entry(comm, "AllReduce", algorithm, "Simple")
        assert not cost.disabled
        assert cost.bandwidth > 0
    assert cost_entry(comm, "AllGather", "NVLS", "Simple").disabled == ""


def with_collectives(pci: XmlPci) -> XmlPci:
    nics = tuple(XmlNic(tuple(replace(net, coll=True) for net in nic.nets)) for nic in pci.nics)
    return replace(pci, nics=nics, pcis=tuple(map(with_collectives, pci.pcis)))


def test_what_cannot_be_connected_falls_back_to_the_plain_order():
    lonely = [XmlCpu(0, hex(host), arch="arm64", pcis=(gpu_pci(host),)) for host in range(2)]
    node = search_node(XmlSystem(tuple(lonely)), networked=False)
    assert (node.ring.n_channels, node.ring.bw_intra, node.ring.type_intra) == (1, 0.1, "SYS")
    assert node.ring.channels[0].gpus == (0, 1)


def test_ports_are_tried_own_first_then_by_type_up_to_the_limit() -> None:
    """No port is tried over a path of a worse type than is asked for, and none twice."""
    by_type = [{0: [3], 1: [1], 2: [0], 3: [2]}, {1: [2, 0], 3: [1]}]
    arena = SimpleNamespace(local_ports=[[1, 4], [5]], ports_by_type=by_type)
    for limit, more in enumerate(([3], [3], [3, 0], [3, 0, 2])):
        assert nets_of(arena, limit, [0]) == [1, 4, *more]
    assert nets_of(arena, 1, [1, 0]) == [5, 1, 4, 3, 2, 0]


def test_a_channel_crosses_at_least_the_links_of_its_nearest_rail() -> None:
    """One port is two links from both GPUs, the other five, on a rail of its own."""
    far = {"ab": 3, "ba": 3, **dict.fromkeys(("am", "bm", "ma", "mb"), 2),
           **dict.fromkeys(("an", "bn", "na", "nb"), 5)}  # fmt: skip
    arena = SimpleNamespace(
        gpus="ab",
        nets="mn",
        rails=[("m", "", 0), ("n", "", 0)],
        hops=lambda one, two: far[one + two],
    )
    for cross_nic, pattern in product((0, 1), (RING, BALANCED_TREE)):
        attempt = SimpleNamespace(pattern=pattern, cross_nic=cross_nic)
        assert search.fewest_hops(arena, attempt) == 3 + 2 + 2
    arena.nets = ""
    assert search.fewest_hops(arena, SimpleNamespace(pattern=RING, cross_nic=0)) == 3 * 2


def test_only_a_tree_of_channels_of_its_own_walks_alike_whatever_rails_it_may_cross() -> None:
    arena = SimpleNamespace(gpus="ab", local_ports=[[0], [0]], ports_by_type=[{}, {}])
    kinds = search.PresentTypes(*map(frozenset, ({1}, {3, 5}, {3, 4}, {3})))

    def alike(pattern: int, same: bool) -> tuple[bool, int]:
        some = [Attempt(pattern, 1.0, 1.0, 3, 5, same, cross, 1, 1) for cross in (0, 1)]
        one, other = (search.walk_key(arena, kinds, each) for each in some)
        return one == other, one[0].type_inter

    assert alike(TREE, same=False) == (True, 3)
    assert alike(TREE, same=True) == (False, 4)
    assert alike(BALANCED_TREE, same=False) == (False, 4)
    assert alike(RING, same=False) == (False, 5)


def test_types_of_paths_that_are_tried_are_those_that_there_are_up_to_that_over_sockets() -> None:
    """Between GPUs, and between GPUs and ports either way; what cannot be at all is not tried."""
    rank = {"LOC": 0, "PIX": 3, "SYS": 7}.__getitem__
    types = {"ab": 1, "ba": 9, "an": 4, "bn": 6, "na": 8, "nb": 5}

    def arena(gpus: str, nets: str) -> SimpleNamespace:
        kind = lambda one, two: types[one + two]  # noqa: E731
        return SimpleNamespace(facts=SimpleNamespace(rank=rank), gpus=gpus, nets=nets, type_of=kind)

    assert search._type_limits(arena("ab", "n")) == (1, 7, 4, 7)
    assert search._type_limits(arena("a", "n")) == (0, 7, 4, 7)
    assert search._type_limits(arena("b", "n")) == (0, 7, 5, 6)
    assert search._type_limits(arena("ab", "")) == (1, 7, 3, 7)
