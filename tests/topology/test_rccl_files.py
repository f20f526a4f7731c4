"""RCCL's topology XML (version 2): read into machines with AMD's GPUs, and written of them."""

from itertools import combinations

import pytest

from netsim.base.errors import InputError
from netsim.base.files import preset_names
from netsim.topology.foreign.nccl import machine_of
from netsim.topology.foreign.nccl_xml import parse_elements, parse_system, write_system
from netsim.topology.host import host_graph
from netsim.topology.load import load_machine
from netsim.topology.machine import Machine
from netsim.topology.nccl_view import exported_system, node_system
from tests.topology.topology_tools import cluster

AMD_PRESETS = [name for name in preset_names("topologies") if not load_machine(name).gpu.sm]


def rccl_file(
    gcn: str, compute_units: int, pairs: dict[tuple[int, int], int], *, gpus: int = 4
) -> str:
    """A file as RCCL dumps it, with two sockets; `pairs` are xGMI links between two GPUs."""
    lines = ['<system version="2">']
    for socket in range(2):
        lines.append(
            f'<cpu numaid="{socket}" affinity="ffff" arch="x86_64" vendor="AuthenticAMD" '
            'familyid="143" modelid="49">'
        )
        for gpu in range(socket * gpus // 2, (socket + 1) * gpus // 2):
            peers = {
                b if a == gpu else a: count for (a, b), count in pairs.items() if gpu in (a, b)
            }
            links = "".join(
                f'<xgmi target="0000:{0x20 + peer:02x}:00.0" count="{count}" tclass="0x038000"/>'
                for peer, count in peers.items()
            )
            lines.append(
                f'<pci busid="0000:{0x20 + gpu:02x}:00.0" class="0x038000" vendor="0x1002" '
                f'link_speed="16 GT/s" link_width="16"><gpu dev="{gpu}" sm="{compute_units}" '
                f'gcn="{gcn}" arch="38911" rank="{gpu}" gdr="1">{links}</gpu></pci>'
            )
        lines.append("</cpu>")
    return "\n".join([*lines, "</system>"])


def read(text: str, gpu: str = "") -> Machine:
    return machine_of(parse_system(text, "rccl.xml"), gpu, "rccl.xml")


@pytest.mark.parametrize(
    ("gcn", "compute_units", "model", "arch", "rate"),
    [
        ("906", 64, "MI60", "gfx906", 24e9),
        ("908", 120, "MI100", "gfx908", 24e9),
        ("910", 104, "MI200", "gfx90a", 36e9),
        ("gfx90a:sramecc+:xnack-", 110, "MI250X", "gfx90a", 36e9),
        ("gfx942", 304, "MI300X", "gfx942", 48e9),
        ("940", 228, "MI300A", "gfx942", 48e9),
        ("gfx950", 256, "MI350X", "gfx950", 57.6e9),
        ("gfx942", 80, "MI300X", "gfx942", 48e9),  # no model with so few units is known
    ],
)
def test_the_architecture_and_its_compute_units_name_the_gpu(gcn, compute_units, model, arch, rate):
    machine = read(rccl_file(gcn, compute_units, dict.fromkeys(combinations(range(4), 2), 1)))
    assert model in machine.gpu.model
    assert (machine.gpu.arch, machine.gpu.sms) == (arch, compute_units)
    assert (machine.scale_up.kind, machine.scale_up.link_bandwidth) == ("xgmi", rate)
    assert len(machine.scale_up.peers) == 6


def test_an_unknown_architecture_asks_for_the_gpu():
    text = rccl_file("gfx1234", 40, {(0, 1): 1})
    with pytest.raises(InputError, match=r"'gfx1234'; name it, as --gpu MI300X .*gfx906, gfx908"):
        read(text)
    assert read(text, "MI100").gpu.model == "Instinct MI100 32GB"


def test_unequal_links_of_pairs_are_kept():
    pairs = {(0, 1): 4, (2, 3): 4, (0, 2): 1, (1, 3): 2}
    machine = read(rccl_file("gfx90a", 104, pairs))
    assert {(a, b): count for a, b, count in machine.scale_up.peers} == pairs


def test_bridges_with_equal_bus_ids_are_read_in_files_of_rccl_only():
    twice = '<pci busid="0000:c5:00.0" class="0x060400"><pci busid="0000:{}:00.0" class="0x020000">'
    twice += '<nic><net name="mlx5_{}" dev="0" speed="200000"/></nic></pci></pci>'
    more = twice.format("01", 0) + twice.format("02", 1) + "</cpu>\n</system>"
    text = rccl_file("gfx90a", 104, {}).replace("</cpu>\n</system>", more)
    assert read(text).nics.count == 2
    with pytest.raises(InputError, match=r"busid 0000:c5:00.0 is already used"):
        read(text.replace('version="2"', 'version="1"'))
    same_gpu = rccl_file("gfx90a", 104, {}).replace("0000:21:", "0000:20:")
    with pytest.raises(InputError, match=r"busid 0000:20:00.0 is already used"):
        read(same_gpu)


@pytest.mark.parametrize("name", AMD_PRESETS)
def test_an_exported_machine_has_what_rccl_reads_and_imports_to_the_same_graph(name):
    here = load_machine(name)
    text = write_system(exported_system(cluster(f"machine: {name}\n"), 0))
    root = parse_elements(text.encode(), "x.xml")
    assert root.attributes["version"] == "2"
    elements = list(root.walk())
    gpus = [element.attributes for element in elements if element.name == "gpu"]
    assert {gpu["sm"] for gpu in gpus} == {str(here.gpu.sms)}
    assert {gpu["gcn"] for gpu in gpus} == {here.gpu.arch}
    assert all(gpu["arch"].isdigit() for gpu in gpus)
    links = [element for element in elements if element.name in ("nvlink", "xgmi")]
    assert all(link.name == "xgmi" for link in links)
    count = here.gpu.count
    pairs = here.scale_up.pairs(count) if here.scale_up else ()
    assert sum(int(link.attributes["count"]) for link in links) == 2 * sum(n for *_, n in pairs)
    back = machine_of(parse_system(text))
    assert back.gpu.arch == here.gpu.arch
    there, edges = host_graph(back).edges, host_graph(here).edges
    assert set(there) == set(edges)
    for ends in edges:
        assert there[ends]["kind"] == edges[ends]["kind"]
        assert there[ends]["bandwidth"] == pytest.approx(edges[ends]["bandwidth"], rel=1e-9)


def test_an_exported_rccl_file_reads_back_equal():
    system = exported_system(cluster("machine: mi300x\n"), 0)
    assert parse_system(write_system(system)) == system


def test_nvidias_machines_are_exported_as_nccl_reads_them():
    made = cluster("machine: dgx-h100\n")
    assert exported_system(made, 0) == node_system(made, 0)
    assert write_system(exported_system(made, 0)).startswith('<system version="1">')
