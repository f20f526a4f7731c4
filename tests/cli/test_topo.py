"""`netsim topo` as people use it: list, show, lint, import and export."""

import re
from pathlib import Path

import pytest

from netsim.base.files import preset_names
from netsim.report.rows import run
from netsim.topology.config import InlineGraph
from netsim.topology.foreign.formats import read_node_link
from netsim.yamlio.read import read_source
from netsim.yamlio.validate import validate
from tests.cli.command import netsim

MATRIX = """\
        GPU0    GPU1    NIC0    CPU Affinity    NUMA Affinity   GPU NUMA ID
GPU0     X      NV18    PIX     0-15            0               N/A
GPU1    NV18     X      SYS     16-31           1               N/A
NIC0    PIX     SYS      X

NIC Legend:

  NIC0: mlx5_0
"""
ASTRA = """\
topology: [Ring, Switch]
npus_count: [4, 2]
bandwidth: [100, 50]
latency: [500, 700]
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "118")
    Path("topo.txt").write_text(MATRIX)
    Path("net.yml").write_text(ASTRA)


def figure(text: str, label: str) -> str:
    found = re.search(rf"^  {label} +(.*)$", text, re.MULTILINE)
    assert found, text
    return found.group(1)


def test_list_has_all_machines_on_narrow_lines(capsys) -> None:
    outcome = netsim(capsys, "topo", "list")
    lines = outcome.out.splitlines()
    assert {line.split()[0] for line in lines} >= set(preset_names("topologies"))
    assert max(map(len, lines)) <= 118
    assert next(x for x in lines if x.startswith("dgx-h100")).split("  ")[-1].startswith("training")


def test_list_has_what_lies_in_topologies(capsys) -> None:
    assert netsim(capsys, "topo", "import", "topo.txt", "--gpu", "H100").code == 0
    assert netsim(capsys, "topo", "import", "net.yml").code == 0
    out = netsim(capsys, "topo", "list").out
    assert re.search(r"^topo +2 +H100", out, re.MULTILINE)
    assert re.search(r"^net +a cluster or graph: see topo show$", out, re.MULTILINE)


def test_show_a_machine(capsys) -> None:
    out = netsim(capsys, "topo", "show", "dgx-h100").out
    assert figure(out, "scale-up per GPU").startswith("370.8 GB/s (18 NVLink links to switches)")
    assert figure(out, "NICs") == "8 x 400 Gb/s ConnectX-7"
    assert re.search(r"^GPU3 +NVL +NVL +NVL +X .* PIX +SYS .* 0 +NIC3$", out, re.MULTILINE)
    assert re.search(r"^GPU3 +NV18 +NV18 +NV18 +X ", out, re.MULTILINE)
    assert re.search(r"^NIC7 .* X +1$", out, re.MULTILINE)


@pytest.mark.parametrize(("ratio", "usable"), [("1", "49.1 GB/s"), ("2", "24.55 GB/s")])
def test_show_full_and_half_bisection(capsys, ratio: str, usable: str) -> None:
    """One 400G NIC a GPU: full bisection gives each GPU its NIC's rate across, 2:1 half of it."""
    more = [
        "--nodes",
        8,
        "--fabric",
        "leaf-spine",
        "--set",
        f"cluster.fabric.oversubscription={ratio}",
    ]
    out = netsim(
        capsys, "topo", "show", "dgx-h100", *more, "--set", "cluster.fabric.nodes_per_leaf=4"
    ).out
    assert figure(out, "scale-out per GPU") == "400 Gb/s of NIC, 49.1 GB/s usable"
    assert figure(out, "bisection").endswith(f", {usable} per GPU")
    assert figure(out, "oversubscription") == f"{ratio}:1 between halves"
    assert figure(out, "diameter") == "3 switches"
    up = 32 // int(ratio)
    assert re.search(rf"^leaf +2 .* 32 x 400 Gb/s +- +{up} x 400 Gb/s +{ratio} : 1$", out, re.M)


def test_show_follows_options(capsys) -> None:
    options = ["--nodes", 4, "--fabric", "rail-only", "--nic", "200Gbps", "--nics-per-node", 4]
    out = netsim(capsys, "topo", "show", "dgx-h100", *options, "--gpus-per-node", 4).out
    assert out.startswith("dgx-h100: 4 hosts, 16 GPUs, rail-only over infiniband\n")
    assert figure(out, "scale-out per GPU") == "200 Gb/s of NIC, 24.55 GB/s usable"
    assert re.search(r"^nic3 +4 +200 Gb/s +1 +leaf3$", out, re.MULTILINE)


@pytest.mark.parametrize(
    ("fabric", "dims", "far", "diameter"),
    [
        ("ring", [], 8, 9),
        ("torus", ["--set", "cluster.fabric.dims=[4,4]"], 10, 5),
        ("fat-tree", [], 15, 5),
    ],
)
def test_show_names_the_longest_route(capsys, fabric, dims, far, diameter) -> None:
    """The last host is a neighbour of the first in a ring; the farthest is half way round."""
    out = netsim(capsys, "topo", "show", "dgx-h100", "--nodes", 16, "--fabric", fabric, *dims).out
    assert figure(out, "longest route").startswith(f"node0.gpu0 to node{far}.gpu7: ")
    assert figure(out, "diameter") == f"{diameter} switches"


def test_show_has_the_leaves_of_both_planes(capsys) -> None:
    out = netsim(capsys, "topo", "show", "dgx-h100", "--nodes", 8, "--fabric", "dual-plane").out
    assert re.search(r"^nic3 +8 +400 Gb/s +1 +leaf3, leaf11$", out, re.MULTILINE)


@pytest.mark.slow
def test_show_65536_gpus(capsys) -> None:
    out = netsim(capsys, "topo", "show", "dgx-h100", "--nodes", 8192).out
    assert figure(out, "oversubscription") == "1:1 between halves"
    assert "65536 GPUs" in out
    assert len(out.splitlines()) < 70


def test_show_a_scenario_and_a_graph(capsys) -> None:
    out = netsim(capsys, "topo", "show", "two-hosts").out
    assert out.startswith("two-hosts: 2 hosts, 16 GPUs, rail-optimized over infiniband\n")
    out = netsim(capsys, "topo", "show", "ring-of-five").out
    assert figure(out, "bisection").startswith("100 GB/s")
    assert figure(out, "diameter") == "2 links, 2 us"


def test_show_mixed_hosts(capsys) -> None:
    Path("mixed.yaml").write_text(
        "cluster:\n  groups:\n    - {machine: dgx-h100, nodes: 2}\n    - {machine: dgx-a100}\n"
    )
    out = netsim(capsys, "topo", "show", "mixed.yaml").out
    assert figure(out, "scale-up per GPU") == "240 GB/s to 370.8 GB/s in each direction, usable"
    assert "\nInside node0 and 1 more: NVIDIA DGX H100" in out
    assert "\nInside node2: NVIDIA DGX A100" in out


def test_lint_says_what_is_wrong_and_exits_with_1(capsys) -> None:
    clean = netsim(capsys, "topo", "lint", "dgx-h100", "--nodes", 4)
    assert (clean.code, clean.out) == (0, "dgx-h100: nothing found (4 hosts, 32 GPUs)\n")
    found = netsim(capsys, "topo", "lint", "topo.txt", "--gpu", "H100", "--nic", "400Gbps")
    assert found.code == 1
    assert re.search(r"^node0.gpu1 +far-nic +its nearest NIC, nic0, is in another", found.out, re.M)
    assert found.err.endswith("topo: 2 findings (1 host, 2 GPUs)\n")
    half = [
        "--fabric",
        "leaf-spine",
        "--set",
        "cluster.fabric={kind: leaf-spine, oversubscription: 2}",
    ]
    found = netsim(capsys, "topo", "lint", "dgx-h100", "--nodes", 2, *half)
    assert found.code == 1
    assert found.out.startswith("fabric  oversubscription  oversubscribed 2:1")


def test_lint_finds_an_isolated_node(capsys) -> None:
    Path("g.json").write_text(
        '{"nodes": [{"id": "a"}, {"id": "b"}, {"id": "c"}],\n'
        ' "edges": [{"source": "a", "target": "b", "bandwidth": "50GB/s"}]}'
    )
    found = netsim(capsys, "topo", "lint", "g.json")
    message = "has no link at all: nothing reaches it, no collective with it ends"
    assert (found.code, found.out) == (1, f"c  isolated  {message}\n")


@pytest.mark.slow
def test_import_a_matrix_and_use_it(capsys) -> None:
    done = netsim(capsys, "topo", "import", "topo.txt", "--gpu", "h100", "-o", "topologies/my.yaml")
    wrote, *found = done.out.splitlines()
    assert wrote == "wrote topologies/my.yaml: a machine with 2 GPUs; use it as machine: my"
    assert found == netsim(capsys, "topo", "lint", "my").out.splitlines()
    assert "my: 2 findings (1 host, 2 GPUs)" in done.err
    assert "assumed: NICs of 200 Gb/s (--nic tells another rate)" in done.err  # of h100-x4
    assert re.search(r"^GPU1 +NVL +X +SYS", netsim(capsys, "topo", "show", "my").out, re.M)
    Path("x.yaml").write_text(
        "cluster: {machine: my}\nworkload: {collective: all_reduce, algorithm: ring, sizes: [1MiB]}"
    )
    assert netsim(capsys, "run", "x.yaml", "-q", "-o", "out").code == 0


def test_import_says_what_it_leaves_out(capsys) -> None:
    file = Path(__file__).parent.parent / "data" / "smi" / "a100_hgx.txt"
    done = netsim(capsys, "topo", "import", str(file), "--gpu", "A100", "-o", "a.yaml")
    left = "left out as storage or management, not below a GPU's PCIe switch: mlx5_8, mlx5_9"
    assert left in done.err
    chosen = ("--gpu", "A100", "--nics", "all", "-o", "b.yaml")
    assert "left out" not in netsim(capsys, "topo", "import", str(file), *chosen).err
    counts = [
        f"{n} x 200 Gb/s" in netsim(capsys, "topo", "show", f"{name}.yaml").out
        for name, n in (("a", 8), ("b", 10))
    ]
    assert all(counts)
    refused = netsim(capsys, "topo", "import", "net.yml", "--nics", "all")
    assert refused.code == 2
    assert "is no matrix of nvidia-smi" in refused.err


@pytest.mark.slow
def test_import_a_network_and_run_it(capsys) -> None:
    done = netsim(capsys, "topo", "import", "net.yml")
    assert done.out == (
        "wrote topologies/net.yaml: a scenario with a graph of 8 GPUs; use it as "
        "netsim run topologies/net.yaml\nnet: nothing found (1 host, 8 GPUs)\n"
    )
    ran = netsim(capsys, "run", "topologies/net.yaml", "-q", "-o", "out")
    assert ran.code == 0
    assert (
        netsim(capsys, "topo", "show", "net").out == netsim(capsys, "topo", "show", "net.yml").out
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dgx-h100", "dgx-1-v100", "rtx2080ti-x2", "gb200-nvl72"])
def test_what_is_exported_imports_as_the_same_graph(capsys, name: str) -> None:
    assert netsim(capsys, "topo", "export", name, "--format", "json", "-o", "a.json").code == 0
    assert netsim(capsys, "topo", "import", "a.json", "-o", "a.yaml").code == 0
    assert netsim(capsys, "topo", "export", "a.yaml", "--format", "json", "-o", "b.json").code == 0
    one, other = (read_node_link(Path(f).read_text(), f) for f in ("a.json", "b.json"))
    assert one.gpus == other.gpus
    assert dict(one.graph.nodes(data=True)) == dict(other.graph.nodes(data=True))
    assert {(a, b): d for a, b, d in one.graph.edges(data=True)} == {
        (a, b): d for a, b, d in other.graph.edges(data=True)
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dgx-h100", "dgx-1-v100", "l40s-pcie-x8", "a100-x4"])
def test_exported_xml_imports_as_the_same_host(capsys, name: str) -> None:
    first = netsim(capsys, "topo", "export", name, "--format", "nccl").out
    Path("a.xml").write_text(first)
    assert netsim(capsys, "topo", "import", "a.xml", "-o", "a.yaml").code == 0
    assert netsim(capsys, "topo", "export", "a.yaml", "--format", "nccl").out == first


def test_a_graph_with_one_way_and_half_duplex_links_keeps_them(capsys) -> None:
    Path("g.json").write_text(
        '{"directed": true, "nodes": [{"id": "a", "forwards": true}, {"id": "b"}], "edges": ['
        '{"source": "a", "target": "b", "bandwidth": 123456789.123, "duplex": "half"},'
        '{"source": "b", "target": "a", "bandwidth": "5GB/s", "latency": 1.23456789e-7}]}'
    )
    assert netsim(capsys, "topo", "import", "g.json", "-o", "g.yaml").code == 0
    source = read_source("g.yaml")
    back = validate(InlineGraph, source, ("cluster", "graph")).build()
    once = read_node_link(Path("g.json").read_text(), "g.json")
    assert list(back.graph.edges(data=True)) == list(once.graph.edges(data=True))
    assert back.graph.nodes["a"]["forwards"]


def test_switches_of_astra_sim_pass_data_on_or_store_it(capsys) -> None:
    """A ring of n has n - 1 steps; in each, a message is whole at the switch before it goes on."""
    one = "topology: [Switch]\nnpus_count: [4]\nbandwidth: [10]\nlatency: [0]\ngb_bytes: 1e9\n"
    Path("cut.yml").write_text(one)
    Path("stored.yml").write_text(one + "switching: store-and-forward\n")
    took = {}
    for name in ("cut", "stored"):
        assert netsim(capsys, "topo", "import", f"{name}.yml").code == 0
        given = ["workload.collective=all_gather", "workload.sizes=4MB"]
        for engine in ("simpy", "compiled"):
            (row,) = run(f"topologies/{name}.yaml", given, engine=engine)
            took[name, engine] = row.time_us
    assert took["cut", "simpy"] == pytest.approx(3 * 100)
    assert took["stored", "simpy"] == pytest.approx(6 * 100)
    assert took["stored", "compiled"] == pytest.approx(6 * 100)


def test_many_switches_of_a_rail_are_shown_by_the_first_two_the_last_and_their_number(
    capsys: pytest.CaptureFixture[str],
) -> None:
    one_node_a_leaf = ("--fabric", "leaf-spine", "--set", "cluster.fabric.nodes_per_leaf=1")
    for nodes, switches in ((3, "leaf0, leaf1, leaf2"), (5, "leaf0, leaf1, … leaf4 (5)")):
        shown = netsim(capsys, "topo", "show", "dgx-h100", "--nodes", nodes, *one_node_a_leaf).out
        (line,) = (line for line in shown.splitlines() if line.startswith("nic0 … nic7, each"))
        assert line.endswith(f"  {switches}")
