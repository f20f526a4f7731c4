"""Options that complete a file of another program, and output files that are also inputs."""

import os
from pathlib import Path

import pytest

from tests.cli.command import netsim
from tests.cli.test_topo import MATRIX

SWITCH = '<nvlink target="fffffff:ffff:ff" count="18" tclass="0x068000"/>'
XML = '<system version="1"><cpu numaid="0">{}</cpu></system>'.format(
    "".join(
        f'<pci busid="0000:0{gpu}:00.0" class="0x030200"><gpu dev="{gpu}" sm="90">{SWITCH}</gpu>'
        f'</pci><pci busid="0000:1{gpu}:00.0" class="0x020000"><nic><net name="mlx5_{gpu}" '
        f'dev="{gpu}" speed="400000" gdr="1"/></nic></pci>'
        for gpu in range(2)
    )
)
GRAPH = '{"nodes": [{"id": "a"}, {"id": "b"}], "edges": [{"source": "a", "target": "b", "bandwidth": 1e9}]}'  # noqa: E501


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("topo.txt").write_text(MATRIX)
    Path("host.xml").write_text(XML)
    Path("net.json").write_text(GRAPH)


def table(out: str) -> list[str]:
    return [line for line in out.splitlines() if not line.startswith("#")]


@pytest.mark.slow
def test_expect_reads_a_matrix_as_topo_import_does(capsys):
    options = ("--gpu", "H100", "--nic", "100Gbps", "--nics", "all")
    imported = netsim(capsys, "topo", "import", "topo.txt", *options, "-o", "m.yaml")
    question = ("all_reduce", "--sizes", "1M:64M:8", "--nodes", "2")
    direct = netsim(capsys, "expect", "topo.txt", *question, *options)
    by_file = netsim(capsys, "expect", "m.yaml", *question)
    assert (imported.code, direct.code, by_file.code) == (0, 0, 0)
    assert table(direct.out) == table(by_file.out)
    speeds = next(line for line in imported.err.splitlines() if line.startswith("speeds of GPUs"))
    assert speeds in direct.err.splitlines()


@pytest.mark.parametrize(
    "options",
    [(), ("--gpu", "Z9"), ("--gpu", "H100", "--nics", "x"), ("--gpu", "H100", "--nic", "4")],
)
def test_expect_refuses_what_topo_import_refuses_with_the_same_message(capsys, options):
    imported = netsim(capsys, "topo", "import", "topo.txt", *options)
    direct = netsim(capsys, "expect", "topo.txt", "all_reduce", *options)
    assert (imported.code, direct.code) == (2, 2)
    assert direct.err == imported.err


def test_explain_reads_a_matrix_with_the_model_of_its_gpus(capsys):
    done = netsim(capsys, "explain", "topo.txt", "all_reduce", "--gpu", "H100", "--size", "1M")
    assert done.code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("topo", "show", "dgx-h100", "--gpu", "A100"), "--gpu A100: has no effect on dgx-h100"),
        (("topo", "lint", "dgx-h100", "--gpu", "A100"), "--gpu A100: has no effect on dgx-h100"),
        (
            ("expect", "dgx-h100", "all_reduce", "--gpu", "A100"),
            "--gpu A100: has no effect on dgx-h100",
        ),
        (
            ("expect", "dgx-h100", "all_reduce", "--nics", "all"),
            "--nics all: has no effect on dgx-h100",
        ),
        (("topo", "import", "net.json", "--gpu", "A100"), "net.json: a whole network; --gpu has"),
        (("topo", "import", "net.json", "--nic", "9Gbps"), "net.json: a whole network; --nic has"),
    ],
)
def test_options_for_foreign_files_are_refused_where_they_have_no_effect(
    capsys, arguments, message
):
    done = netsim(capsys, *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(message)


def test_options_without_effect_say_so(capsys):
    done = netsim(capsys, "topo", "import", "host.xml", "--nic", "100Gbps", "-o", "m.yaml")
    assert "--nic 100Gbps has no effect: host.xml tells the rates of its NICs" in done.err
    done = netsim(capsys, "topo", "show", "dgx-h100", "--fabric", "fat-tree")
    assert "the fabric (fat-tree) has no effect on one host" in done.err
    done = netsim(capsys, "topo", "show", "dgx-h100", "--fabric", "fat-tree", "--nodes", "2")
    assert "no effect" not in done.err


def linked(kind: str, source: str) -> str:
    """Another name of the file: itself by a longer path, a symbolic or a hard link."""
    if kind == "path":
        return f"../{Path.cwd().name}/{source}"
    name = f"link{Path(source).suffix}"
    (os.symlink if kind == "symlink" else os.link)(source, name)
    return name


@pytest.mark.sample(14)
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["path", "symlink", "hardlink"])
@pytest.mark.parametrize(
    "command",
    [
        ("topo", "export", "m.yaml", "--format", "nccl", "-o"),
        ("topo", "export", "m.yaml", "--format", "json", "-o"),
        ("topo", "export", "cluster.yaml", "--format", "nccl", "-o"),  # it names m.yaml
        ("expect", "./m.yaml", "all_reduce", "--sizes", "8", "--graph-out"),
        ("expect", "./m.yaml", "all_reduce", "--sizes", "8", "--tuner-out"),
        ("expect", "cluster.yaml", "all_reduce", "--sizes", "8", "-J"),
        ("topo", "import", "m.yaml", "-o"),
    ],
    ids=" ".join,
)
def test_an_output_that_is_an_input_is_refused_before_anything_is_written(capsys, command, kind):
    netsim(capsys, "topo", "import", "host.xml", "-o", "m.yaml")
    Path("cluster.yaml").write_text("cluster:\n  machine: ./m.yaml\n")
    before = Path("m.yaml").read_bytes()
    done = netsim(capsys, *command, linked(kind, "m.yaml"))
    assert (done.code, done.out) == (2, "")
    assert "would be overwritten" in done.err
    assert Path("m.yaml").read_bytes() == before


def test_a_foreign_file_is_not_overwritten_by_its_export_or_import(capsys):
    for command in (
        ("topo", "export", "host.xml", "--format", "nccl", "-o", "host.xml"),
        ("topo", "export", "net.json", "--format", "json", "-o", "net.json"),
        ("topo", "import", "host.xml", "-o", "host.xml"),
    ):
        done = netsim(capsys, *command)
        assert done.code == 2
        assert "would be overwritten" in done.err
    assert Path("host.xml").read_text() == XML
    assert Path("net.json").read_text() == GRAPH


def test_an_export_to_nccl_xml_says_that_faults_of_links_are_not_in_it(capsys):
    fault = "cluster.faults=[{link: node0.gpu3-node0.nvswitch0, bandwidth: 50%}]"
    command = ("topo", "export", "dgx-h100", "--format", "nccl", "--set")
    assert "node0.gpu3-node0.nvswitch0" in netsim(capsys, *command, fault).err
    assert "faults" not in netsim(capsys, *command, "cluster.nodes=1").err
