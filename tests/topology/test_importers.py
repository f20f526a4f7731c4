"""Foreign files other than NCCL's: read, and refused with the place of what is wrong."""

import json

import pytest

from netsim.base.errors import InputError
from netsim.base.files import preset_names
from netsim.topology.foreign.formats import (
    read_astra,
    read_foreign,
    read_node_link,
    write_node_link,
)
from netsim.topology.foreign.smi import read_smi
from netsim.topology.host import make_host, relations
from netsim.topology.load import load_machine
from tests.topology.topology_tools import route, topology

DGX_A100 = """\
\x1b[4m\tGPU0\tGPU1\tGPU2\tGPU3\tmlx5_0\tmlx5_1\tCPU Affinity\tNUMA Affinity\x1b[0m
GPU0\t X \tNV12\tNV12\tNV12\tPXB\tSYS\t48-63,176-191\t3
GPU1\tNV12\t X \tNV12\tNV12\tPXB\tSYS\t48-63,176-191\t3
GPU2\tNV12\tNV12\t X \tNV12\tSYS\tPXB\t16-31,144-159\t1
GPU3\tNV12\tNV12\tNV12\t X \tSYS\tPXB\t16-31,144-159\t1
mlx5_0\tPXB\tPXB\tSYS\tSYS\t X \tSYS
mlx5_1\tSYS\tSYS\tPXB\tPXB\tSYS\t X

Legend:

  X    = Self
  PIX  = Connection traversing at most a single PCIe bridge
"""
PASTED = """\
        GPU0    GPU1    NIC0    CPU Affinity    NUMA Affinity   GPU NUMA ID
GPU0     X      PHB     NODE    0-15            0               N/A
GPU1    PHB      X      SYS     0-15            0               N/A
NIC0    NODE    SYS      X

NIC Legend:

  NIC0: mlx5_bond_0
"""


def test_tabs_and_colours():
    machine = read_smi(DGX_A100, "topo.txt", "A100", 25e9)
    assert machine.gpu.count == 4
    assert machine.scale_up.links == 12
    assert machine.scale_up.switches
    assert machine.nics.rates == (25e9, 25e9)
    cells = relations(make_host(machine, range(4))).cells
    assert cells[0] == ("X", "NV12", "NV12", "NV12", "PXB", "SYS")
    assert cells[4] == ("PXB", "PXB", "SYS", "SYS", "X", "SYS")


def test_blanks_and_legends():
    machine = read_smi(PASTED, "topo.txt", "rtx 4090")
    assert machine.scale_up is None
    assert machine.nics.model == "mlx5_bond"
    assert make_host(machine, range(2)).local.shape == (2, 1)


def test_four_links_to_each_of_three_are_a_mesh():
    rows = [f"GPU{a} " + " ".join("X" if a == b else "NV4" for b in range(4)) for a in range(4)]
    machine = read_smi("\n".join([" GPU0 GPU1 GPU2 GPU3", *rows]), "t", "A100")
    assert machine.scale_up.switches is None
    assert len(machine.scale_up.peers) == 6


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [n for n in preset_names("topologies") if n[:2] not in ("mi", "r9")]
)
def test_the_matrix_of_every_preset_reads_back(name):
    machine = load_machine(name)
    shown = relations(make_host(machine, range(machine.gpu.count)))
    lines = ["\t" + "\t".join([*shown.devices, "CPU Affinity", "NUMA Affinity"])]
    for device, row, cpu in zip(shown.devices, shown.cells, shown.affinity, strict=True):
        tail = [cpu.removeprefix("cpu")] * 2 if device.startswith("GPU") else []
        lines.append("\t".join([device, *row, *tail]))
    back = read_smi("\n".join(lines) + "\n", "m", machine.gpu.model)
    again = relations(make_host(back, range(back.gpu.count)))
    assert again.cells == shown.cells


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("GPU1\tNV12", "GPU1\tNV13", "topo.txt:1: GPU1 to GPU0 is NV13, but GPU0 to GPU1 is NV12"),
        ("PXB\tSYS\t48-63,176-191\t3\nGPU1", "PXC\tSYS\t4\t3\nGPU1", "topo.txt:2: GPU0 to mlx5_0"),
        ("mlx5_1\tSYS\tSYS\tPXB\tPXB\tSYS\t X \n", "", "topo.txt:1: no row for mlx5_1"),
        ("mlx5_1\tSYS\tSYS\tPXB\tPXB\tSYS\t X ", "mlx5_1\tSYS", "topo.txt:7: mlx5_1: expected 6"),
        ("GPU0\t X ", "GPU0\tPIX", "topo.txt:2: GPU0 to itself is not X"),
        ("\tGPU0\t", "\tGPU9\t", "no matrix of nvidia-smi topo -m"),
    ],
)
def test_broken_matrices_are_refused_with_the_line(old, new, message):
    text = DGX_A100.replace("X\n\nLegend", "X \n\nLegend")
    assert old in text
    with pytest.raises(InputError) as caught:
        read_smi(text.replace(old, new, 1), "topo.txt", "A100")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("GPU0\t X \t0-15\t0\n", "no matrix of nvidia-smi topo -m"),
        ("GPU0\tGPU1\n", "no row for GPU0"),
    ],
)
def test_a_matrix_starts_with_a_line_of_names(text, message):
    with pytest.raises(InputError, match=message):
        read_smi(text, "topo.txt", "A100")


def test_node_link_goes_out_and_in():
    t = topology("machine: dgx-h100\nnodes: 2\n")
    back = read_node_link(write_node_link(t), "x.json")
    assert set(back.gpus) == set(t.gpus)
    assert back.graph.number_of_edges() == t.graph.number_of_edges()
    edge = ("node0.gpu1", "node0.nvswitch0")
    assert back.graph.edges[edge]["bandwidth"] == t.graph.edges[edge]["bandwidth"]
    assert route(back, 0, 5) == route(t, 0, 5)


def test_node_link_of_others():
    graph = {
        "nodes": [{"id": 0, "color": "red"}, {"id": 1}, {"id": 2, "kind": "switch"}],
        "links": [
            {"source": 0, "target": 2, "bandwidth": "400Gbps"},
            {"source": 1, "target": 2, "bandwidth": 5e10, "latency": "1us"},
        ],
    }
    t = read_node_link(json.dumps(graph), "x.json")
    assert route(t, 0, 1) == ["0->2", "2->1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"nodes": [{"id": 0}, {"id": 0}]}', "x.json:1:30: nodes.1.id: two nodes are called '0'"),
        (
            '{"nodes": [{"id": 0}],\n "edges": [{"source": 0, "target": 1, "bandwidth": 1}]}',
            "x.json:2:36: edges.0.target: there is no node '1'",
        ),
        (
            '{"nodes": [{"id": 0}, {"id": 1}],\n "edges": [{"source": 0, "target": 1}]}',
            "edges.0: missing key 'bandwidth'",
        ),
        ('{"nodes": [{"id": 0, "kind": "cat"}]}', "nodes.0.kind: expected one of gpu"),
        ('{"nodes": [', "x.json:"),
        ('{"nodes": []}', "nodes: expected a list of length at least 1"),
    ],
)
def test_broken_graphs_are_refused_with_the_place(text, message):
    with pytest.raises(InputError) as caught:
        read_node_link(text, "x.json")
    assert message in str(caught.value)


ASTRA = """
topology: [ Ring, FullyConnected, Switch ]
npus_count: [ 4, 2, 3 ]
bandwidth: [ 400.0, 200.0, 50.0 ]  # GB/s
latency: [ 500, 600.0, 2000.0 ]  # ns
"""


def test_astra_sim():
    t = read_astra(ASTRA, "net.yml")
    assert len(t) == 24
    assert t.graph.number_of_nodes() == 24 + 8
    assert t.graph.number_of_edges() == 2 * (24 + 12 + 24)
    assert route(t, 0, 2) == ["gpu0->gpu1", "gpu1->gpu2"]
    assert route(t, 0, 8) == ["gpu0->switch2.0", "switch2.0->gpu8"]
    grid = "topology: [Switch, Switch]\nnpus_count: [2, 2]\nbandwidth: [9, 9]\nlatency: [5, 5]\n"
    assert len(route(read_astra(grid, "net.yml"), 0, 3)) == 4  # through another GPU


@pytest.mark.parametrize(("more", "gb"), [("", 2**30), ("gb_bytes: 1e9", 1e9)])
def test_a_gb_of_astra_sim_is_two_to_the_thirty(more: str, gb: float) -> None:
    links = read_astra(ASTRA + more, "net.yml").links
    assert sorted({rate / gb for rate in links.bandwidth.tolist()}) == [50.0, 200.0, 400.0]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "[ 4, 2, 3 ]",
            "[ 4, 2 ]",
            "net.yml:3:13: npus_count: expected 3 entries as topology, got 2",
        ),
        ("Ring", "Rink", "did you mean Ring?"),
        ("400.0", "0.0", "bandwidth.0: expected more than 0"),
        ("[ 4,", "[ 0,", "npus_count.0: expected at least 1, got 0"),
        ("latency", "lat", "missing key 'latency'"),
        ("[ 4, 2, 3 ]", "[ 4000, 2000, 3 ]", "npus_count: more than 65536 NPUs"),
    ],
)
def test_broken_astra_files_are_refused(old, new, message):
    with pytest.raises(InputError) as caught:
        read_astra(ASTRA.replace(old, new, 1), "net.yml")
    assert message in str(caught.value)


def test_formats_are_told_from_the_content(tmp_path):
    files = {"a.txt": DGX_A100, "b.yml": ASTRA, "c.json": '{"nodes": [{"id": 0}], "edges": []}'}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert read_foreign(tmp_path / "a.txt", gpu="A100").gpu.count == 4
    assert len(read_foreign(tmp_path / "b.yml")) == 24
    assert len(read_foreign(tmp_path / "c.json")) == 1
    (tmp_path / "d").write_bytes(b"\x00\x01\xff")
    for name, kwargs, message in (
        ("a.txt", {}, "name the GPU model"),
        ("a.txt", {"form": "nvidia-sm"}, "did you mean nvidia-smi"),
        ("d", {}, "of no known format"),
        ("none", {}, "no such file"),
    ):
        with pytest.raises(InputError, match=message):
            read_foreign(tmp_path / name, **kwargs)
