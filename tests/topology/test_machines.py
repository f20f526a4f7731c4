"""Machine files: what they say, what is refused, and where they are found."""

from typing import get_args

import pytest

from netsim.base.errors import InputError
from netsim.base.files import find_preset, preset_names
from netsim.topology.host import host_graph, make_host
from netsim.topology.load import find_machine, load_machine, with_nics
from netsim.topology.machine import TRANSPORTS, TransportName
from netsim.yamlio.read import parse_source


def test_every_preset_is_a_machine_with_routes():
    for name in preset_names("topologies"):
        machine = load_machine(name)
        host = make_host(machine, range(machine.gpu.count))
        links = sum(1 for _ in host_graph(machine).edges)
        assert host.peer.shape[:2] == (machine.gpu.count,) * 2
        assert links == len(host.layout.links)


@pytest.mark.parametrize(
    ("name", "egress", "nic", "sm"),
    [("dgx-a100", 240e9, 25e9, 80), ("dgx-h100", 370.8e9, 50e9, 90)],
)
def test_dgx_internals(name, egress, nic, sm):
    machine = load_machine(name)
    graph = host_graph(machine)
    assert machine.gpu.sm == sm
    assert machine.nics.rates == (nic,) * 8
    assert graph.edges["gpu3", "nvswitch0"]["bandwidth"] == pytest.approx(egress)
    assert graph.edges["nvswitch0", "gpu3"]["bandwidth"] == pytest.approx(egress)
    assert graph.edges["cpu0", "mem0"]["duplex"] == "half"


def test_gpu_and_nic_pairs_share_a_switch_in_a_dgx_a100():
    host = make_host(load_machine("dgx-a100"), range(8))
    assert host.local[:, 0].tolist() == list(range(8))
    assert (host.out[:2, :2] >= 0).sum(axis=2).tolist() == [[2, 2], [2, 2]]


def test_unknown_machine_is_refused_with_the_list():
    with pytest.raises(
        InputError, match=r"unknown machine 'dgx-h10' \(did you mean dgx-h100\?\); "
    ):
        load_machine("dgx-h10")


def test_a_file_of_the_working_directory_wins_and_says_so(tmp_path, monkeypatch):
    text = find_preset("topologies", "dgx-a100").path.read_text()
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "topologies"
    folder.mkdir()
    (folder / "dgx-h100.yaml").write_text(text)
    (folder / "mine.yaml").write_text(text)
    found = find_machine("dgx-h100")
    assert found.machine.gpu.sm == 80
    assert found.note == "topologies/dgx-h100.yaml is used instead of the preset dgx-h100"
    assert find_machine("mine").note == ""
    assert find_machine("topologies/mine.yaml").machine == found.machine
    with pytest.raises(InputError, match=r"did you mean mine\?"):
        load_machine("mime")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[pcie0, pcie0,", "[pcie9, pcie0,", "gpu.at.0: expected a CPU or a PCIe switch above"),
        ("[pcie0, pcie0,", "[pcie0,", "gpu.at: expected one place, or one for each of 8, got 7"),
        ("switches: [cpu0, cpu0,", "switches: [pcie1, cpu0,", "pcie.switches.0: expected a CPU"),
        ("links: 12 ", "peers: [[0, 1, 2]] #", "scale_up.peers: GPUs on switches have links"),
        ("  link: 16GB/s", "  #", "cpu: two domains need a link"),
        ("generation: 4", "generation: 7", "pcie.generation: expected at most 6, got 7"),
        ("2039GB/s", "2039GB", "gpu.memory_bandwidth: expected a bandwidth"),
        ("transport: infiniband", "transport: infinband", "did you mean infiniband?"),
        ("domains: 2", f"domains: {2**40}", "cpu.domains: expected at most 1024, got"),
        ("count: 8", "count: 0", "gpu.count: expected at least 1, got 0"),
        ("arch: sm_80", "arc: sm_80", "unknown key 'arc' (did you mean arch?)"),
    ],
)
def test_mistakes_in_a_machine_are_named(old, new, message):
    text = find_preset("topologies", "dgx-a100").path.read_text()
    assert old in text
    with pytest.raises(InputError) as caught:
        load_machine(parse_source(text.replace(old, new, 1), "m.yaml"))
    assert message in str(caught.value)


def test_transports_are_those_that_files_may_name():
    assert set(TRANSPORTS) == set(get_args(TransportName))
    for one in TRANSPORTS.values():
        assert 0 < one.usable <= 1


@pytest.mark.parametrize(
    ("name", "gpus", "relayed"), [("dgx-1-v100", (0, 7), True), ("a100-x4", (0, 3), False)]
)
def test_meshes_reach_every_gpu_over_nvlink(name, gpus, relayed):
    host = make_host(load_machine(name), range(load_machine(name).gpu.count))
    hops = host.peer[gpus]
    assert (host.layout.links.kind[hops[hops >= 0]] == 0).all()
    assert (hops >= 0).sum() == (2 if relayed else 1)


def test_of_no_nics_none_are_left() -> None:
    machine, usual = load_machine("dgx-h100"), TRANSPORTS["infiniband"]
    assert with_nics(machine, 0, None, range(8), usual).nics is None
    alone = machine.model_copy(update={"nics": None})
    assert with_nics(alone, 4, 1e9, range(8), usual).nics is None
    assert with_nics(alone, None, None, range(8), usual).nics is None
    few = with_nics(machine, 2, 1e9, range(8), usual).nics
    assert (few.count, few.rates) == (2, (1e9, 1e9))
    assert with_nics(machine, None, None, range(8), usual).nics.rates == machine.nics.rates
