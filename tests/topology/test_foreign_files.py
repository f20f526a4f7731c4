"""Files as they are found: matrices from terminals and web pages, NCCL XML with odd attributes."""

import json
from pathlib import Path

import pytest

from netsim.base.errors import InputError
from netsim.base.files import preset_names
from netsim.topology.foreign.formats import detect, read_foreign
from netsim.topology.foreign.nccl import machine_of
from netsim.topology.foreign.nccl_xml import parse_system, write_system
from netsim.topology.foreign.smi import parse_matrix
from netsim.topology.host import host_graph, make_host, relations
from netsim.topology.load import load_machine
from netsim.topology.nccl_view import host_system

SMI = Path(__file__).parent.parent / "data" / "smi"
# File, GPU model, and: links a GPU to a switch or pairs of GPUs with links, NICs, NUMA domains.
MATRICES = {
    "dgx1v": ("V100", ("pairs", 16), 4, 2),
    "dgx2": ("V100", ("switch", 6), 10, 2),
    "a100_hgx": ("A100", ("switch", 12), 10, 5),
    "a100_pcie_pairs": ("A100", ("pairs", 2), 0, 2),
    "h100_spaces": ("H100", ("switch", 18), 12, 2),
    "h100_wrapped": ("H100", ("switch", 18), 12, 2),
    "gh200": ("GH200", ("pairs", 6), 4, 4),
    "epyc_phb_node": ("L40S", None, 1, 1),
    "rtx4090_sys": ("RTX 4090", None, 0, 2),
    "vm_only_gpus": ("A100", ("switch", 12), 0, 1),
    "k80_soc": ("RTX 2080 Ti", None, 0, 2),
    "one_gpu": ("A10", None, 1, 2),
    "single": ("H100", None, 0, 1),
    "markdown": ("L40S", None, 0, 1),
}


@pytest.mark.parametrize("name", MATRICES)
def test_matrices_become_machines_that_show_the_same_matrix(name):
    gpu, joined, nics, domains = MATRICES[name]
    file = SMI / f"{name}.txt"
    assert detect(file.read_text()) == "nvidia-smi"
    machine = read_foreign(file, gpu=gpu, nics="all")
    asked = parse_matrix(file.read_text(), name)
    shown = relations(make_host(machine, range(machine.gpu.count)))
    assert shown.cells == asked.cells
    up = machine.scale_up
    found = up and (("switch", up.links) if up.switches else ("pairs", len(up.peers)))
    assert found == joined
    assert (machine.nics.count if machine.nics else 0) == nics
    assert machine.cpu.domains == domains


def test_the_model_decides_what_the_matrix_does_not_tell():
    consumer = read_foreign(SMI / "rtx4090_sys.txt", gpu="RTX 4090")
    assert not consumer.p2p
    assert read_foreign(SMI / "a100_hgx.txt", gpu="A100").gpu.memory_bandwidth == 2039e9  # SXM
    assert read_foreign(SMI / "a100_pcie_pairs.txt", gpu="A100").gpu.memory_bandwidth == 1935e9
    rate = read_foreign(SMI / "h100_spaces.txt", gpu="H100", nic_rate=25e9).nics.rates
    assert set(rate) == {25e9}


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("a100_hgx", "NIC8 NIC9"),  # NODE or SYS to all GPUs: storage
        ("h100_spaces", "NIC2 NIC3 NIC8 NIC9"),
        ("dgx2", "mlx5_8 mlx5_9"),
        ("epyc_phb_node", ""),  # no NIC is below a GPU's switch: all are kept
        ("gh200", ""),
    ],
)
def test_nics_of_storage_are_left_out(name: str, left: str) -> None:
    every = parse_matrix((SMI / f"{name}.txt").read_text(), name)
    kept = every.computing()
    assert sorted({*every.devices} - {*kept.devices}) == left.split()
    for n in kept.nics if left else ():
        assert any(kept.cells[n][gpu] in ("PIX", "PXB") for gpu in kept.gpus)
    machine = read_foreign(SMI / f"{name}.txt", gpu="A100")
    assert machine.nics is not None
    assert machine.nics.count == len(kept.nics)


def test_nics_are_chosen_by_their_names() -> None:
    file = SMI / "a100_hgx.txt"
    for names in ("NIC0,NIC8", "mlx5_0, mlx5_8"):
        assert read_foreign(file, gpu="A100", nics=names).nics.count == 2
    assert read_foreign(file, gpu="A100", nics="all").nics.count == 10
    with pytest.raises(InputError, match=r"there is no NIC 'mlx5_77' .did you mean"):
        read_foreign(file, gpu="A100", nics="mlx5_77")


def test_a_full_mesh_of_rocm_smi_is_that_of_the_preset() -> None:
    file = SMI / "mi300x_rocm.txt"
    assert detect(file.read_text()) == "amd-smi"
    machine, usual = read_foreign(file, gpu="MI300X"), load_machine("mi300x")
    assert machine.scale_up == usual.scale_up
    assert (machine.cpu.domains, machine.nics.count) == (2, 8)
    ours, theirs = (relations(make_host(one, range(8))) for one in (machine, usual))
    assert ours.cells == theirs.cells


def amd_json(text: str) -> str:
    """The same as `amd-smi topology --json` has it."""
    blocks = {one.splitlines()[0]: one.splitlines()[1:] for one in text.split("\n\n")}
    names = blocks["HOPS TABLE:"][0].split()
    kinds = {"HOPS": "num_hops", "LINK TYPE": "link_type", "NUMA BW": "bandwidth"}
    links = [
        {"gpu": n, "bdf": name, "links": [{"bdf": b} for b in names]}
        for n, name in enumerate(names)
    ]
    for title, key in kinds.items():
        for one, row in zip(links, blocks[f"{title} TABLE:"][1:], strict=True):
            for link, cell in zip(one["links"], row.split()[1:], strict=True):
                link[key] = cell
    return json.dumps(links)


@pytest.mark.parametrize("form", ["text", "json"])
def test_amd_smi_tells_links_of_packages_by_bandwidth(form: str, tmp_path: Path) -> None:
    """Eight dies of four packages: four links within one, one or two to others, or none."""
    text = (SMI / "mi250x_amd.txt").read_text()
    file = tmp_path / "topology"
    file.write_text(text if form == "text" else amd_json(text))
    up = read_foreign(file, gpu="MI300X").scale_up
    assert up.kind == "xgmi"
    assert len(up.peers) == 12
    assert {count for _, _, count in up.peers} == {1, 2, 4}
    assert (0, 1, 4) in up.peers
    assert all({0, 7} != {a, b} for a, b, _ in up.peers), "two hops away"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("GPU1   XGMI         0", "GPU1   XGMI", "rocm.txt:12: GPU1: expected 2 cells, got 1"),
        ("GPU1   XGMI         0", "GPU1   PCIE         0", "GPU0 to GPU1: missing, or different"),
        ("Link Type", "Hops", "no table of link types; expected what rocm-smi --showtopo"),
    ],
)
def test_broken_tables_of_amd_say_where(old: str, new: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "rocm.txt"
    file.write_text((SMI / "rocm.txt").read_text().replace(old, new))
    with pytest.raises(InputError, match=message):
        read_foreign(file, gpu="MI300X")


def test_a_model_of_another_maker_is_refused() -> None:
    with pytest.raises(InputError, match=r"--gpu H100: .* is of GPUs of AMD"):
        read_foreign(SMI / "rocm.txt", gpu="H100")
    with pytest.raises(InputError, match=r"--gpu MI300X: .* is of GPUs of NVIDIA"):
        read_foreign(SMI / "single.txt", gpu="MI300X")


HEAD = '<system version="1">\n'
EPYC = '<cpu numaid="0" arch="x86_64" vendor="AuthenticAMD" familyid="25" modelid="1">'
SPEED = 'link_speed="16.0 GT/s PCIe" link_width="16"'


def gpu(number, inside="", gdr=1, sm=80, more=""):
    bus = f'busid="0000:{number + 16:02x}:00.0" class="0x030200" {SPEED}'
    return f'<pci {bus}><gpu dev="{number}" sm="{sm}" gdr="{gdr}"{more}>{inside}</gpu></pci>\n'


def nic(number, nets):
    bus = f'busid="0000:{number + 64:02x}:00.0" class="0x020000" {SPEED}'
    return f"<pci {bus}><nic>{nets}</nic></pci>\n"


def machine(text, model="", **more):
    return machine_of(parse_system(f"{HEAD}{text}\n</system>", "x.xml"), model, "x", **more)


@pytest.mark.parametrize("name", preset_names("topologies"))
def test_what_is_exported_imports_to_the_same_graph(name):
    here = load_machine(name)
    text = write_system(host_system(make_host(here, range(here.gpu.count))))
    back = machine_of(parse_system(text))
    assert dict(host_graph(back).nodes.items()) == dict(host_graph(here).nodes.items())
    there, edges = host_graph(back).edges, host_graph(here).edges
    assert set(there) == set(edges)
    for ends in edges:
        assert there[ends]["kind"] == edges[ends]["kind"]
        assert there[ends]["duplex"] == edges[ends]["duplex"]
        assert there[ends]["bandwidth"] == pytest.approx(edges[ends]["bandwidth"], rel=1e-9)
    assert back.p2p == here.p2p
    assert (back.nics is None) == (here.nics is None)
    if here.nics:
        assert back.nics.gpudirect == here.nics.gpudirect
        assert back.nics.rates == here.nics.rates
        assert back.transport == here.transport


def test_consumer_cards_have_no_peer_access():
    text = EPYC + "".join(gpu(n, gdr=0, sm=89) for n in range(8)) + "</cpu>"
    found = machine(text)
    assert not found.p2p
    assert "4090" in found.gpu.model
    server = machine(EPYC + "".join(gpu(n, gdr=1, sm=89) for n in range(8)) + "</cpu>")
    assert server.p2p
    assert "L40S" in server.gpu.model
    cloud = machine(EPYC + "".join(gpu(n, gdr=0) for n in range(4)) + "</cpu>")
    assert cloud.p2p  # an A100 without nvidia-peermem reaches its peers all the same


def test_a_gpu_without_gpudirect_makes_nics_stage():
    net = nic(0, '<net name="mlx5_0" dev="0" speed="200000" gdr="1"/>')
    assert not machine(EPYC + gpu(0, gdr=0) + net + "</cpu>").nics.gpudirect
    assert machine(EPYC + gpu(0, gdr=1) + net + "</cpu>").nics.gpudirect


def test_handwritten_files_without_gpu_elements():
    """As cloud images bring them: PCI functions by class, below made-up bridges."""
    bridge = '<pci busid="ffff:ff:0{}.0" class="0x060400" {}>\n{}</pci>\n'
    pair = (
        '<pci busid="000{0}:00:00.0" class="0x030200" ' + SPEED + "/>\n"
        '<pci busid="010{0}:00:00.0" class="0x020700" ' + SPEED + "/>\n"
    )
    below = "".join(bridge.format(n + 1, SPEED, pair.format(n)) for n in range(8))
    text = f'<cpu numaid="0" affinity="0000ffff">\n{below}</cpu>'
    with pytest.raises(InputError, match="name it, as --gpu A100"):
        machine(text)
    found = machine(text, "A100", nic_rate=25e9)
    assert found.gpu.count == 8
    assert found.scale_up.links == 12
    assert found.nics.rates == (25e9,) * 8
    assert found.pcie.switches == ("cpu0",) * 8
    cells = relations(make_host(found, range(8))).cells
    assert cells[0][8:] == ("PIX",) + ("NODE",) * 7


def test_power9_has_nvlink_to_its_cpus():
    up = '<nvlink target="0004:00:00.0" count="3" tclass="0x068001"/>'
    peer = '<nvlink target="0000:{}:00.0" count="3" tclass="0x030200"/>'
    cpu = '<cpu numaid="{}" arch="ppc64" affinity="f">{}</cpu>'
    pairs = [gpu(n, up + peer.format(f"{(n ^ 1) + 16:02x}"), sm=70) for n in range(4)]
    found = machine(cpu.format(0, pairs[0] + pairs[1]) + cpu.format(8, pairs[2] + pairs[3]))
    assert found.c2c.bandwidth == 60e9
    assert found.scale_up.peers == ((0, 1, 3), (2, 3, 3))
    assert (found.cpu.vendor, found.cpu.link) == ("ibm", 32e9)
    graph = host_graph(found)
    assert graph.edges["gpu0", "cpu0"]["kind"] == "c2c"


def test_rccl_files_have_xgmi():
    links = "".join(
        f'<xgmi target="0000:{n + 16:02x}:00.0" count="1" tclass="0x038000"/>' for n in range(8)
    )
    body = "".join(gpu(n, links, sm=94, more=' gcn="gfx942:sramecc+"') for n in range(8))
    found = machine(EPYC + body + "</cpu>")
    assert found.gpu.arch == "gfx942"
    assert found.scale_up.kind == "xgmi"
    assert len(found.scale_up.peers) == 28
    assert {count for *_, count in found.scale_up.peers} == {1}
    assert found.scale_up.link_bandwidth == load_machine("mi300x").scale_up.link_bandwidth


def test_c2c_several_ports_and_odd_attributes():
    nets = (
        '<net name="mlx5_0" dev="0" speed="100000" keep="1" gdr="1"/>'
        '<net name="mlx5_1" dev="1" speed="-1" keep="1"/>'
    )
    text = (
        '<cpu numaid="-1" keep="1">'
        + gpu(0, '<c2c bw="44800" count="10"/>', sm=90, more=' keep="1" rank="-1"')
        + nic(0, nets)
        + '<nic><net name="eth0" dev="2" speed="10000"/></nic></cpu>'
    )
    found = machine(text)
    assert found.c2c.bandwidth == 448e9
    assert found.nics.rates == (12.5e9, 1.25e9, 1.25e9)  # unknown speed: as NCCL takes it
    assert found.nics.at == ("cpu0", "cpu0", "cpu0")


@pytest.mark.parametrize(
    ("name", "transport"),
    [("mlx5_0", "infiniband"), ("rdmap0s6", "efa"), ("hsn0", "slingshot"), ("ens5", "tcp")],
)
def test_the_name_of_a_port_tells_its_network(name, transport):
    net = nic(0, f'<net name="{name}" dev="0" speed="200000" gdr="1"/>')
    assert machine(EPYC + gpu(0) + net + "</cpu>").transport == transport


def test_hosts_of_one_nvlink_domain_are_read_once_if_alike():
    one = '<cpu numaid="0" host_hash="{}" arch="arm64">{}</cpu>'
    switch = '<nvlink target="fffffff:ffff:ff" count="18" tclass="0x068000"/>'
    body = gpu(0, switch, sm=100)
    found = machine(one.format("0x1", body) + one.format("0x2", body))
    assert (found.gpu.count, found.scale_up.hosts) == (1, 2)
    with pytest.raises(InputError, match="holds hosts that differ"):
        machine(one.format("0x1", body) + one.format("0x2", body + nic(0, '<net dev="0"/>')))


BOMB = (
    '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    '<system version="1">&b;</system>'
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (BOMB, "h.xml:1: a document type, entity or external reference is not allowed"),
        ('<?xml version="1.0"?><!DOCTYPE s SYSTEM "file:///etc/passwd"><system/>', "document type"),
        (
            '<system version="3"><cpu numaid="0"/></system>',
            "expected version 1 (NCCL) or 2 (RCCL), got '3'",
        ),
        ('<system version="1">\n<cpu numaid="0">\n<pci busid="0000:', "h.xml:3"),
        ('<system version="1"></system>', "no cpu element"),
        ('<system version="1"><cpu numaid="0"/></system>', "has no GPUs"),
        ('<system version="1"><cpu numaid="0" arch="riscv"/></system>', "expected one of x86_64"),
        ('<graphs version="1"><graph/><system version="1"/></graphs>', "expected a system element"),
    ],
)
def test_harmful_and_broken_files_are_refused(tmp_path, monkeypatch, text, told):
    monkeypatch.chdir(tmp_path)
    Path("h.xml").write_text(text)
    with pytest.raises(InputError) as caught:
        read_foreign(Path("h.xml"))
    assert told in str(caught.value)
    assert "h.xml" in str(caught.value)
