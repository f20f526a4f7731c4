"""NCCL's topology XML: read into machines, shown of machines, and both ways round."""

from dataclasses import replace
from pathlib import Path

import pytest

from netsim.base.errors import InputError
from netsim.base.files import preset_names
from netsim.nccl.node import search_node
from netsim.topology.foreign.nccl import machine_of
from netsim.topology.foreign.nccl_xml import parse_system, write_system
from netsim.topology.host import make_host
from netsim.topology.load import load_machine, machine_yaml
from netsim.topology.nccl_view import host_system, node_system
from netsim.yamlio.read import parse_source
from tests.topology.topology_tools import cluster

FOLDER = Path(__file__).parent.parent / "data" / "nccl" / "topo"
FILES = sorted(FOLDER.glob("*.xml"))


def shape(pci):
    """A branch without bus ids and PCI codes."""
    gpu = pci.gpu
    links = () if gpu is None else tuple(sorted((x.count, x.tclass) for x in gpu.nvlinks))
    nets = tuple((n.dev, n.speed, n.gdr) for nic in pci.nics for n in nic.nets)
    below = tuple(sorted(shape(one) for one in pci.pcis))
    speed = (pci.link_speed.replace(".0", ""), pci.link_width)
    return (
        None if gpu is None else (gpu.dev, gpu.sm, gpu.gdr),
        links,
        nets,
        speed,
        below,
    ).__repr__()


def shapes(system):
    return [
        (cpu.arch, cpu.vendor, cpu.familyid, cpu.modelid, sorted(map(shape, cpu.pcis)))
        for cpu in system.cpus
    ]


def read_nccl(file, gpu=""):
    return machine_of(parse_system(file.read_bytes()), gpu, file.stem)


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_file_becomes_a_machine_and_comes_back(file):
    system = parse_system(file.read_bytes())
    machine = read_nccl(file)
    host = make_host(machine, range(machine.gpu.count))
    assert host.peer.shape[0] == len(list(system.gpus()))
    assert host.nics == len(list(system.nets()))
    assert shapes(host_system(host)) == shapes(system)
    assert parse_system(write_system(host_system(host))) == host_system(host)


@pytest.mark.parametrize("file", FILES[::5], ids=lambda file: file.stem)
def test_a_machine_can_be_written_and_read(file):
    machine = read_nccl(file)
    assert load(machine_yaml(machine)) == machine


@pytest.mark.slow
@pytest.mark.parametrize("name", preset_names("topologies"))
def test_presets_can_be_written_and_read(name):
    machine = load_machine(name)
    assert load(machine_yaml(machine)) == machine
    back = parse_system(write_system(node_system(cluster(f"machine: {name}\n"), 0)))
    assert len(list(back.gpus())) == machine.gpu.count


def load(text):
    return load_machine(parse_source(text, "m.yaml"))


@pytest.mark.parametrize(
    ("name", "file"),
    [("dgx-a100", "dgxa100"), ("dgx-h100", "h100_8nic"), ("dgx-1-v100", "dgx1v_4nic")],
)
def test_nccl_finds_the_same_channels_on_a_preset_as_on_its_file(name, file):
    preset = node_system(cluster(f"machine: {name}\n"), 0)
    found = [
        search_node(one, networked=False).ring
        for one in (preset, parse_system((FOLDER / f"{file}.xml").read_bytes()))
    ]
    assert replace(found[0], channels=()) == replace(found[1], channels=())


def test_an_nvlink_domain_is_one_node():
    system = node_system(cluster("machine: gb200-nvl72\nnodes: 18\n"), 0)
    assert [gpu.rank for gpu in system.gpus()] == list(range(72))
    assert len({cpu.host_hash for cpu in system.cpus}) == 18
    assert machine_of(system).scale_up.hosts == 18


def test_the_gpu_model_can_be_named():
    file = FOLDER / "h100_8nic.xml"
    assert read_nccl(file, "H200").gpu.memory_bandwidth == 4800e9
    assert read_nccl(file).gpu.memory_bandwidth == 3350e9
    with pytest.raises(InputError, match="unknown GPU 'Z9000'"):
        read_nccl(file, "Z9000")
