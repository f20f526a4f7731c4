import pytest

from netsim.base.errors import ScenarioError
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
    parse_system,
    write_system,
)
from tests.nccl.nccl_oracles import DATA

FILES = sorted((DATA / "topo").glob("*.xml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_is_written_reads_back_equal(path):
    system = parse_system(path.read_bytes())
    assert parse_system(write_system(system)) == system


def test_every_attribute_survives_a_round_trip():
    net = XmlNet("mlx5_0", 3, 400000, 1.5, 1, "0x1f", 131072, True, True, False, 1, 0, 2, 1)
    links = (XmlNvLink("0000:08:00.0", 18, "0x030200"), XmlNvLink("fffffff:ffff:ff", 1, "0x068000"))
    gpu = XmlGpu(1, 90, 4, True, 2, links, (XmlC2c(45000, 10),))
    device = XmlPci(
        "0000:07:00.0", "0x030200", "0x10de", gpu=gpu, link_speed="32 GT/s", link_width=16
    )
    bridge = XmlPci(
        "0000:01:00.0",
        "0x060400",
        "0x1",
        "0x2",
        "0x3",
        "0x4",
        pcis=(device,),
        nics=(XmlNic((net,)),),
        pci_links=(XmlPciLink("0000:02:00.0"),),
    )
    cpus = (
        XmlCpu(0, "0xa1", "ff,00", "arm64", "", 1, 2, (bridge,)),
        XmlCpu(1, nics=(XmlNic((XmlNet("eth0", 4),)),)),
    )
    system = XmlSystem(cpus, 'a "name" & <more>')
    assert parse_system(write_system(system)) == system
    assert [net.name for net in system.nets()] == ["mlx5_0", "eth0"]


def test_counts_of_a_known_file():
    system = parse_system((DATA / "topo" / "h100_8nic.xml").read_bytes())
    assert [gpu.sm for gpu in system.gpus()] == [90] * 8
    assert {net.speed for net in system.nets()} == {400000}
    assert [cpu.modelid for cpu in system.cpus] == [143, 143]


PCI = '<system version="1">\n <cpu numaid="0">\n  {}\n </cpu>\n</system>'
BUS = 'busid="0000:07:00.0"'

REFUSED = {
    "": "x.xml:1:1: not XML: no element found",
    "<a>": "x.xml:1:4: not XML: no element found",
    "<a/>": "x.xml:1:1: a: expected a system element at the top, got a",
    '<system version="3"/>': "x.xml:1:1: system.version: expected version 1 (NCCL) or 2 (RCCL), "
    "got '3'",
    "<system/>": "x.xml:1:1: system.version: missing attribute",
    '<system version="1"/>': "x.xml:1:1: system: no cpu element",
    '<system version="1"><cpus numaid="0"/></system>': (
        "x.xml:1:21: cpus: unknown element in system (did you mean cpu?)"
    ),
    '<!DOCTYPE s [<!ENTITY e "e">]><system version="1">&e;</system>': (
        "x.xml:1: a document type, entity or external reference is not allowed"
    ),
    PCI.format('<pci busid="7"/>'): (
        "x.xml:3:3: pci.busid: expected a bus id such as 0000:07:00.0, got '7'"
    ),
    PCI.format(f'<pci {BUS} link_sped="1"/>'): (
        "x.xml:3:3: pci.link_sped: unknown attribute (did you mean link_speed?)"
    ),
    PCI.format(f'<pci {BUS} link_speed="fast"/>'): (
        "x.xml:3:3: pci.link_speed: expected a speed such as '16.0 GT/s PCIe', got 'fast'"
    ),
    PCI.format(f'<pci {BUS}><gpu dev="0"/></pci>'): "x.xml:3:29: gpu.sm: missing attribute",
    PCI.format(f'<pci {BUS}><gpu dev="-1" sm="90"/></pci>'): (
        "x.xml:3:29: gpu.dev: expected a whole number from 0 to 2147483648, got '-1'"
    ),
    PCI.format(f'<pci {BUS}><gpu dev="0" sm="90" rank="-2"/></pci>'): (
        "x.xml:3:29: gpu.rank: expected a whole number from -1 to 2147483648, got '-2'"
    ),
    PCI.format(f'<pci {BUS}>\n<nic><net dev="0" latency="nan"/></nic></pci>'): (
        "x.xml:4:6: net.latency: expected a number of at least 0, got 'nan'"
    ),
    PCI.format(f"<pci {BUS}/>\n<pci {BUS}/>"): (
        "x.xml:4:1: pci.busid: busid 0000:07:00.0 is already used in line 3"
    ),
    PCI.format('<nic><net dev="0"/></nic><nic><net dev="0" gdr="2"/></nic>'): (
        "x.xml:3:33: net.dev: dev 0 is already used in line 3"
    ),
    PCI.format('<nic><net dev="0" gdr="2"/></nic>'): (
        "x.xml:3:8: net.gdr: expected a whole number from 0 to 1, got '2'"
    ),
    PCI.format("<pci>" * 40): "x.xml:3:153: pci: nested deeper than 32 elements",
    PCI.format(f'<pci {BUS} vendor="{"a" * 5000}"/>'): (
        "x.xml:3:3: pci.vendor: longer than 4096 characters"
    ),
}


@pytest.mark.parametrize("xml", REFUSED)
def test_malformed_files_name_place_and_reason(xml):
    with pytest.raises(ScenarioError) as error:
        parse_system(xml, "x.xml")
    assert str(error.value) == REFUSED[xml]


@pytest.mark.parametrize(("given", "rank"), [("", None), ('rank="-1"', None), ('rank="3"', 3)])
def test_a_gpu_has_a_rank_where_the_file_gives_one(given, rank):
    system = parse_system(PCI.format(f'<pci {BUS}><gpu dev="0" sm="90" {given}/></pci>'))
    assert [gpu.rank for gpu in system.gpus()] == [rank]


def test_what_a_file_leaves_out_of_a_cpu_is_zero_or_empty():
    (cpu,) = parse_system('<system version="1"><cpu numaid="1"/></system>').cpus
    assert cpu == XmlCpu(1, "0x0", "", "x86_64", "", 0, 0, (), ())


def test_unknown_attributes_of_newer_releases_are_let_through():
    parse_system('<system version="1"><cpu numaid="0" zzz="1"><other/></cpu></system>')


def test_bytes_that_are_no_text_are_refused():
    with pytest.raises(ScenarioError, match="not XML"):
        parse_system(b"\xff\xfe\x00<system", "x.xml")
