"""`netsim topo` with a mistake in every place that can have one: one message, exit code 2."""

from pathlib import Path

import pytest

from tests.cli.command import netsim
from tests.cli.test_topo import MATRIX

FILES = {
    "m.txt": MATRIX,
    "odd.txt": MATRIX.replace("NV18     X ", "NV17     X "),
    "cell.txt": MATRIX.replace("PIX     0-15", "PIZ     0-15"),
    "words.txt": "hello there\n",
    "empty.xml": "",
    "cut.xml": '<system version="1">\n  <cpu numaid="0">\n',
    "bomb.xml": '<!DOCTYPE s [<!ENTITY a "aaaa">]>\n<system version="1">&a;</system>',
    "none.xml": '<system version="1"></system>',
    "g.json": '{"nodes": [{"id": "a"}], "edges": [{"source": "a", "target": "b"}]}',
    "astra.yml": "topology: [Ring]\nnpus_count: [4, 2]\nbandwidth: [100]\nlatency: [500]\n",
    "other.yaml": "hello: 1\n",
    "bad.yaml": "cluster:\n  machine: dgx-h100\n  nods: 4\n",
    "no.yaml": "cluster: 4\n",
}
KINDS = (
    "single-switch, leaf-spine, rail-optimized, rail-only, dual-plane, fat-tree, dragonfly, torus, "
    "ring, custom, nvlink-domain"
)

# Arguments, and the whole message; one that ends in … is only the beginning.
MISTAKES = {
    ("show", "dgx-h10"): "unknown machine 'dgx-h10' (did you mean dgx-h100?); known: …",
    ("show", "empt.xml"): "empt.xml: no such file (did you mean empty.xml?)",
    ("show", "words.txt"): (
        "words.txt: of no known format; known: nccl, nvidia-smi, amd-smi, infragraph, node-link, "
        "astra-sim"
    ),
    ("show", "."): ".: expected a file or a name, got a directory",
    ("show", "other.yaml"): (
        "other.yaml: neither a machine (with gpu) nor a scenario (with cluster) nor a topology "
        "file of NCCL, nvidia-smi, networkx, ASTRA-sim or InfraGraph"
    ),
    ("show", "bad.yaml"): ("bad.yaml:3:3: cluster.nods: unknown key 'nods' (did you mean nodes?)"),
    ("show", "no.yaml"): (
        "no.yaml:1:10: cluster: expected a section with machine, groups or graph"
    ),
    ("show", "dgx-h100", "--nodes", "0"): "--nodes 0: cluster.nodes: expected at least 1, got 0",
    ("show", "dgx-h100", "--fabric", "leafspine"): (
        f"--fabric leafspine: cluster.fabric.kind: expected one of {KINDS}, got 'leafspine' "
        "(did you mean leaf-spine?)"
    ),
    ("show", "dgx-h100", "--nic", "400"): (
        "--nic 400: cluster.nic: expected a bandwidth such as 400Gbps or 50GB/s, got 400 "
        "(the unit is missing; did you mean 400Gbps?)"
    ),
    ("show", "dgx-h100", "--gpus-per-node", "9"): (
        "--gpus-per-node 9: cluster.gpus_per_node: the machine has 8 GPUs, got 9"
    ),
    ("show", "dgx-h100", "--set", "fabrik.k=3"): (
        "--set fabrik.k=3: expected a key such as cluster.nodes (did you mean cluster.fabric.k?)"
    ),
    ("show", "dgx-h100", "--set", "fabric"): (
        "--set fabric: expected KEY=VALUE such as cluster.nodes=4"
    ),
    ("show", "dgx-h100", "--nodes", "4", "--fabric", "fat-tree", "--set", "cluster.fabric.k=3"): (
        "--set cluster.fabric.k=3: cluster.fabric.k: a fat tree needs an even k, got 3"
    ),
    ("show", "ring-of-five", "--nodes", "2"): (
        "--nodes 2: cluster.nodes: has no meaning beside graph"
    ),
    ("lint", "m.txt"): (
        "m.txt: a matrix of nvidia-smi has no speeds: name the GPU model, as --gpu H100"
    ),
    ("import", "m.txt", "--gpu", "H1000"): "unknown GPU 'H1000'; known: A10 24GB, …",
    ("import", "m.txt", "--gpu", "H100", "--nic", "4"): (
        "--nic 4: expected a bandwidth such as 400Gbps or 50GB/s, got '4' "
        "(the unit is missing; did you mean 4Gbps?)"
    ),
    ("import", "m.txt", "--gpu", "H100", "-o", "m.xml"): (
        "m.xml: expected a file that ends in .yaml"
    ),
    ("import", "odd.txt", "--gpu", "H100"): (
        "odd.txt:1: GPU1 to GPU0 is NV17, but GPU0 to GPU1 is NV18"
    ),
    ("import", "cell.txt", "--gpu", "H100"): (
        "cell.txt:2: GPU0 to NIC0: expected X, NV4, PIX, PXB, PHB, NODE or SYS, got 'PIZ'"
    ),
    ("import", "missing.xml"): "missing.xml: no such file",
    ("import", "empty.xml"): "empty.xml: the file is empty",
    ("import", "cut.xml"): "cut.xml:3:1: not XML: no element found",
    ("import", "bomb.xml"): "bomb.xml…",
    ("import", "none.xml"): "none.xml:1:1: system: no cpu element",
    ("import", "g.json"): ("g.json:1:36: edges.0: missing key 'bandwidth'"),
    ("import", "astra.yml"): "astra.yml:2:13: npus_count: expected 1 entries as topology, got 2",
    ("export", "dgx-h100", "--nodes", "2", "--format", "nccl"): (
        "dgx-h100: 2 hosts; NCCL XML describes one, so leave --nodes out"
    ),
    ("export", "ring-of-five", "--format", "nccl"): (
        "ring-of-five: a graph without hosts; NCCL XML describes a host"
    ),
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", MISTAKES, ids=" ".join)
def test_a_mistake_gets_one_message(capsys, arguments: tuple[str, ...]) -> None:
    outcome = netsim(capsys, "topo", *arguments)
    message = MISTAKES[arguments]
    assert (outcome.code, outcome.out) == (2, "")
    assert "bug in netsim" not in outcome.err
    if message.endswith("…"):
        assert outcome.err.startswith(message[:-1])
    else:
        assert outcome.err == message + "\n"
    assert not Path("topologies").exists()


def test_import_keeps_what_is_there(capsys) -> None:
    Path("topologies").mkdir()
    Path("topologies/m.yaml").write_text("years of work")
    outcome = netsim(capsys, "topo", "import", "m.txt", "--gpu", "H100")
    message = "topologies/m.yaml: exists already (name another file with -o)\n"
    assert (outcome.code, outcome.err) == (2, message)
    outcome = netsim(capsys, "topo", "import", "astra.yml", "-o", "astra.yml")
    assert outcome.code == 2
    assert Path("topologies/m.yaml").read_text() == "years of work"


@pytest.mark.parametrize(
    "arguments",
    [
        ["show"],
        ["show", "dgx-h100", "--nodes", "two"],
        ["shwo", "dgx-h100"],
        ["export", "dgx-h100"],
        ["export", "dgx-h100", "--format", "xml"],
    ],
)
def test_usage(capsys, arguments: list[str]) -> None:
    outcome = netsim(capsys, "topo", *arguments)
    assert outcome.code == 2
    assert outcome.err
    assert "Traceback" not in outcome.err
