"""Imports keep the bandwidth of every single GPU's NVLinks, or refuse the file with its name."""

import json
from itertools import combinations
from random import Random

import pytest

from netsim.base.errors import InputError
from netsim.nccl.node import search_node
from netsim.topology.foreign.formats import read_node_link
from netsim.topology.foreign.nccl import machine_of
from netsim.topology.foreign.nccl_xml import parse_system, write_system
from netsim.topology.foreign.smi import read_smi
from netsim.topology.graph import GPU_LINKS, LINK_KINDS
from netsim.topology.host import host_graph, make_host, relations
from netsim.topology.lint import lint_host
from netsim.topology.load import load_machine, machine_yaml
from netsim.topology.machine import Machine
from netsim.topology.nccl_view import host_system
from netsim.yamlio.read import parse_source
from tests.topology.topology_tools import cluster, route, topology

SWITCH = 'tclass="0x068000"'
FAST_KINDS = [LINK_KINDS[kind] for kind in GPU_LINKS]


def links_out(machine: Machine) -> list[int]:
    """The NVLink or xGMI links out of every GPU in the graph of the machine's host."""
    edges = host_graph(machine).edges
    assert machine.scale_up is not None
    out = [0.0] * machine.gpu.count
    for (tail, _), edge in edges.items():
        if edge["kind"] in FAST_KINDS and str(tail).startswith("gpu"):
            out[int(str(tail).removeprefix("gpu"))] += edge["bandwidth"]
    return [round(rate / machine.scale_up.link_bandwidth) for rate in out]


def nccl_file(elements: list[str], sm: int = 90) -> str:
    """NCCL's XML of a host with two sockets; `elements` are the nvlink elements of every GPU."""
    lines = ['<system version="1">']
    for socket in range(2):
        lines.append(f'<cpu numaid="{socket}" arch="x86_64" vendor="GenuineIntel" familyid="6">')
        for gpu, links in enumerate(elements):
            if gpu * 2 // len(elements) == socket:
                lines.append(
                    f'<pci busid="0000:{0x40 + gpu:02x}:00.0" class="0x030200" '
                    f'link_speed="32.0 GT/s PCIe" link_width="16"><gpu dev="{gpu}" sm="{sm}" '
                    f'rank="{gpu}" gdr="1">{links}</gpu></pci>'
                )
        lines.append("</cpu>")
    return "\n".join([*lines, "</system>"])


def switch_elements(counts: list[int]) -> str:
    """One nvlink element for each switch, as NCCL dumps them on bare metal."""
    return "".join(
        f'<nvlink target="0000:{0xC0 + switch:02x}:00.0" count="{count}" {SWITCH}/>'
        for switch, count in enumerate(counts)
        if count
    )


def peer_element(gpu: int, count: int) -> str:
    return f'<nvlink target="0000:{0x40 + gpu:02x}:00.0" count="{count}" tclass="0x030200"/>'


def read_nccl(text: str, gpu: str = "") -> Machine:
    return machine_of(parse_system(text, "host.xml"), gpu, "host.xml")


def matrix_file(links: list[int], *, legend: str = "") -> str:
    """The matrix of `nvidia-smi topo -m` of GPUs with so many links to NVSwitches."""
    count = len(links)
    names = [f"GPU{gpu}" for gpu in range(count)]
    lines = ["\t".join(["", *names, "CPU Affinity", "NUMA Affinity"])]
    for a in range(count):
        cells = []
        for b in range(count):
            shared = min(links[a], links[b])
            far = "NODE" if a * 2 // count == b * 2 // count else "SYS"
            if a == b:
                cells.append(" X ")
            else:
                cells.append(f"NV{shared}" if shared else far)
        lines.append("\t".join([f"GPU{a}", *cells, "0-55", str(a * 2 // count)]))
    return "\n".join(lines) + "\n" + legend


PCIE_LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
"""
LEGEND = PCIE_LEGEND + "  NV#  = Connection traversing a bonded set of # NVLinks\n"


@pytest.mark.parametrize(
    ("counts", "sm", "links"),
    [([2] * 6, 80, 12), ([5, 5, 4, 4], 90, 18), ([18], 90, 18), ([9, 9], 100, 18)],
)
def test_nvlink_elements_to_several_switches_add_up(counts, sm, links):
    machine = read_nccl(nccl_file([switch_elements(counts)] * 8, sm))
    assert machine.scale_up.links == links
    assert machine.scale_up.links_each is None
    assert links_out(machine) == [links] * 8


def drawn_links(random: Random) -> list[list[int]]:
    """Links of every GPU to every switch: equal ones, but for one GPU in two of three draws."""
    gpus = random.choice([2, 3, 4, 8, 16])
    usual = [random.randint(1, 5) for _ in range(random.randint(1, 6))]
    hosts = [list(usual) for _ in range(gpus)]
    odd = random.randrange(3)
    if odd:
        hosts[random.randrange(gpus)] = [0 if odd == 1 else max(0, n - 2) for n in usual]
    return hosts


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_nccl_xml_keeps_the_links_of_every_gpu_of_a_drawn_host(seed):
    links = drawn_links(Random(seed))
    machine = read_nccl(nccl_file([switch_elements(counts) for counts in links]))
    assert links_out(machine) == [sum(counts) for counts in links]
    back = machine_of(host_system(make_host(machine, range(machine.gpu.count))))
    assert links_out(back) == links_out(machine)
    assert load_machine(parse_source(machine_yaml(machine), "m.yaml")) == machine


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_a_matrix_of_nvidia_smi_keeps_the_links_of_every_gpu_of_a_drawn_host(seed):
    random = Random(seed)
    usual = random.choice([12, 18])
    links = [usual] * random.choice([4, 8, 16])
    if seed % 3:
        links[random.randrange(len(links))] = random.choice([0, usual // 3, usual - 2])
    machine = read_smi(matrix_file(links), "topo.txt", "A100" if usual == 12 else "B200")
    assert links_out(machine) == links
    shown = relations(make_host(machine, range(len(links)))).cells
    asked = [line.split("\t")[1:] for line in matrix_file(links).splitlines()[1:]]
    assert [list(row) for row in shown] == [
        [cell.strip() for cell in row[: len(links)]] for row in asked
    ]


@pytest.mark.parametrize("count", [0, 8])
def test_nccl_sees_the_gpu_with_fewer_nvlinks(count):
    usual, odd = ([12] * 8, [12] * 5 + [count] + [12] * 2)
    rings = []
    for links in (usual, odd):
        machine = read_smi(matrix_file(links), "topo.txt", "A100")
        system = host_system(make_host(machine, range(8)))
        assert [sum(x.count for x in gpu.nvlinks) for gpu in system.gpus()] == links
        rings.append(search_node(system, networked=False).ring)
    speeds = [ring.n_channels * ring.bw_intra for ring in rings]
    assert speeds[1] <= speeds[0] * max(8, count) / 12
    assert (rings[1].type_intra == "NVL") is (count > 0)


def test_lint_names_the_gpu_with_fewer_nvlinks():
    for count, message in ((8, "33% less"), (0, "has no link to other GPUs but PCIe")):
        machine = read_smi(matrix_file([12] * 5 + [count] + [12] * 2), "topo.txt", "A100")
        found = [one for one in lint_host(make_host(machine, range(8)), "") if one.place == "gpu5"]
        assert [one.rule for one in found] == ["asymmetric"]
        assert message in found[0].message


def test_a_gpu_without_nvlinks_leaves_an_nvlink_domain_over_its_nic():
    config = (
        "machine: gb200-nvl72\nnodes: 2\noverrides:\n"
        "- {node: 1, machine: {scale_up: {links_each: [18, 0, 18, 18]}}}\n"
    )
    for ends in ((0, 5), (5, 0)):
        links = route(topology(config), *ends)
        assert any("nic" in name for name in links)
        assert all("nvswitch" not in name for name in links)
    assert cluster(config).hosts[1].egress[1] == -1


@pytest.mark.parametrize(
    ("scale_up", "message"),
    [
        ("links: 18, switches: 4, links_each: [18, 18]", "one number for each of 8 GPUs, got 2"),
        ("links: 18, switches: 4, links_each: [9, 9, 9, 9, 9, 9, 9, 9]", "the most of links_each"),
        ("links: 2, links_each: [2, 2, 2, 2, 2, 2, 2, 2]", "links of single GPUs need switches"),
    ],
)
def test_links_of_single_gpus_that_make_no_sense_are_refused(scale_up, message):
    text = machine_yaml(load_machine("dgx-h100"))
    plain = parse_source(text, "m.yaml")
    kept = {"kind": "nvlink", "link_bandwidth": "20GB/s"}
    changed = parse_source(f"scale_up: {{{scale_up}}}", "x").data["scale_up"]
    plain.data["scale_up"] = {**kept, **changed}
    with pytest.raises(InputError, match=message):
        load_machine(plain)


def test_parallel_nvlink_elements_to_one_gpu_add_up():
    pair = [peer_element(1, 2) + peer_element(1, 3), peer_element(0, 5)]
    assert read_nccl(nccl_file(pair)).scale_up.peers == ((0, 1, 5),)


@pytest.mark.parametrize(
    ("elements", "message"),
    [
        (
            [peer_element(1, 4), peer_element(0, 3)],
            r"host.xml: GPU 0 \(0000:40:00.0\) has 4 links to GPU 1 \(0000:41:00.0\), which has 3",
        ),
        ([peer_element(1, 4), ""], "GPU 0 .* has 4 links to GPU 1 .*, which has 0 back"),
        (
            [peer_element(1, 4), peer_element(0, 4), switch_elements([18])],
            "GPU 0 .* has NVLinks to GPU 1 .*, and GPU 2 .* to NVSwitches",
        ),
        (
            ['<c2c bw="44800" count="10"/>', '<c2c bw="44800" count="5"/>'],
            "GPU 1 .* has another C2C bandwidth in MB/s .224000. than GPU 0 .* .448000.",
        ),
    ],
)
def test_what_differs_between_gpus_and_no_machine_has_is_refused_with_their_names(
    elements, message
):
    with pytest.raises(InputError, match=message):
        read_nccl(nccl_file(elements))


def test_gpus_of_two_kinds_in_one_file_are_refused():
    text = nccl_file([switch_elements([18])] * 4).replace('dev="2" sm="90"', 'dev="2" sm="80"')
    with pytest.raises(InputError, match=r"GPU 2 .* another compute capability .80. than GPU 0"):
        read_nccl(text)
    bare = nccl_file([""] * 2).replace('<gpu dev="1" sm="90" rank="1" gdr="1"></gpu>', "")
    with pytest.raises(InputError, match="has no gpu element, but other GPUs have"):
        read_nccl(bare, "H100")


def test_hosts_of_one_domain_with_other_nvlinks_are_refused_with_the_gpu():
    hosts = [
        f'<cpu numaid="0" host_hash="{number:#x}" arch="arm64"><pci busid="0000:01:00.0" '
        f'class="0x030200"><gpu dev="0" sm="100">{switch_elements([links])}</gpu></pci></cpu>'
        for number, links in enumerate([18, 18, 9])
    ]
    text = f'<system version="1">{"".join(hosts)}</system>'
    with pytest.raises(InputError, match=r"GPU 0 .*of host 2 has 9 NVLinks, of host 0 18"):
        read_nccl(text)


def test_nvlinks_that_differ_by_pair_behind_a_switch_are_refused_with_the_gpus():
    halves = matrix_file([18] * 8).splitlines()
    rows = [line.split("\t") for line in halves]
    for a, b in combinations(range(8), 2):
        if a < 4 <= b:
            rows[1 + a][1 + b] = rows[1 + b][1 + a] = "SYS"
    with pytest.raises(InputError, match=r"GPU0 to GPU4 is SYS, .* so NV18 was expected"):
        read_smi("\n".join("\t".join(row) for row in rows), "topo.txt", "B200")


def test_the_pcie_matrix_of_nvidia_smi_is_refused_where_gpus_have_nvlinks():
    text = matrix_file([0] * 8, legend=PCIE_LEGEND)
    for model in ("B200", "A100", "V100", "H100 PCIe"):
        with pytest.raises(InputError, match=r"nvidia-smi topo -mp.*nvidia-smi topo -m,"):
            read_smi(text, "topo.txt", model)
    for model in ("L40S", "RTX 4090", "RTX 5090"):  # both commands print the same
        assert read_smi(text, "topo.txt", model).scale_up is None
    lost = matrix_file([0] * 8, legend=LEGEND)  # all NVLinks are down
    assert read_smi(lost, "topo.txt", "B200").scale_up is None


def test_nvlinks_of_a_gpu_model_without_any_are_refused():
    with pytest.raises(InputError, match="GPU0 to GPU1 has NVLinks, but a GPU of model L40S"):
        read_smi(matrix_file([4, 4]), "topo.txt", "L40S")


def amd_tables(rates: dict[tuple[int, int], int], gpus: int) -> str:
    """What amd-smi topology says of a full mesh with these bandwidths of pairs, in MB/s."""
    names = [f"0000:{gpu + 1:02x}:00.0" for gpu in range(gpus)]
    parts = []
    for title, cell in (
        ("HOPS", lambda a, b: "1"),
        ("LINK TYPE", lambda a, b: "XGMI"),
        ("NUMA BW", lambda a, b: f"50000-{rates[min(a, b), max(a, b)]}"),
    ):
        parts += ["", f"{title} TABLE:", " ".join(names)]
        for a in range(gpus):
            cells = ["SELF" if a == b else cell(a, b) for b in range(gpus)]
            parts.append(" ".join([names[a], *cells]))
    return "\n".join(parts) + "\n"


def test_a_slow_xgmi_link_does_not_double_all_others():
    pairs = list(combinations(range(8), 2))
    equal = dict.fromkeys(pairs, 64000)
    assert links_out(read_smi(amd_tables(equal, 8), "amd.txt", "MI300X")) == [7] * 8
    for slow in (32000, 48000):
        one_gpu = {pair: slow if 5 in pair else 64000 for pair in pairs}
        with pytest.raises(InputError, match=f"xGMI bandwidth of 0000:06:00.0.* is {slow}"):
            read_smi(amd_tables(one_gpu, 8), "amd.txt", "MI300X")
        one_pair = {pair: slow if pair == (2, 5) else 64000 for pair in pairs}
        with pytest.raises(InputError, match=r"0000:03:00.0 and 0000:06:00.0"):
            read_smi(amd_tables(one_pair, 8), "amd.txt", "MI300X")


def node_link_file(edges: list[tuple[str, str]], *, multigraph: bool | None) -> str:
    graph = {
        "directed": False,
        "nodes": [{"id": "a"}, {"id": "b"}, {"id": "s", "kind": "switch"}],
        "edges": [{"source": a, "target": b, "bandwidth": "100GB/s"} for a, b in edges],
    }
    if multigraph is not None:
        graph["multigraph"] = multigraph
    return json.dumps(graph)


def test_parallel_edges_of_a_node_link_file_add_up_or_are_refused():
    edges = [("a", "s"), ("s", "a"), ("a", "s"), ("b", "s")]
    found = read_node_link(node_link_file(edges, multigraph=True), "x.json").graph.edges
    assert found["a", "s"]["bandwidth"] == found["s", "a"]["bandwidth"] == 300e9
    assert found["b", "s"]["bandwidth"] == 100e9
    for multigraph in (False, None):
        with pytest.raises(InputError, match=r"edges.1: a second edge between 's' and 'a'"):
            read_node_link(node_link_file(edges, multigraph=multigraph), "x.json")


def test_what_nccl_xml_exports_of_a_machine_with_an_odd_gpu_has_its_links():
    machine = read_smi(matrix_file([18] * 3 + [0] + [18] * 4), "topo.txt", "B200")
    back = read_nccl(write_system(host_system(make_host(machine, range(8)))))
    assert links_out(back) == [18] * 3 + [0] + [18] * 4


def test_machines_whose_gpus_do_not_differ_are_written_as_before_the_key_existed():
    usual = load_machine("dgx-h100").model_dump()["scale_up"]
    assert "links_each" not in usual
    odd = read_smi(matrix_file([18] * 7 + [9]), "topo.txt", "B200").model_dump()["scale_up"]
    assert odd["links_each"] == (18,) * 7 + (9,)
