"""Every place where a person types something, with a typo in it: one message, exit code 2."""

import os
from pathlib import Path

import pytest

from tests.cli.command import netsim

GOOD = """\
name: x
cluster:
  graph: {kind: switch, gpus: 4, bandwidth: 50GB/s, latency: 1us}
workload:
  collective: all_reduce
  algorithm: ring
  sizes: [1MiB]
"""
GRAPH = "graph: {kind: switch, gpus: 4, bandwidth: 50GB/s, latency: 1us}"
ALIASES = "\n".join(
    [
        "a: &a [x, x, x, x, x, x, x, x, x]",
        *(f"{b}: &{b} [{', '.join(['*' + a] * 9)}]" for a, b in zip("abcde", "bcdef", strict=True)),
        "",
    ]
)

# Part of the good file, what stands there instead, and the whole message.
TYPOS = {
    "unknown key": (
        "algorithm: ring",
        "algoritm: ring",
        "6:3: workload.algoritm: unknown key 'algoritm' (did you mean algorithm?)",
    ),
    "unknown section": (
        "name: x",
        "x: {}",
        "1:1: x: unknown key 'x' "
        "(known: name, cluster, workload, jobs, job, background, nccl, launch, sweep, outputs, "
        "measured, seed, prices, report, fold, exact, noise, samples, limits)",
    ),
    "duplicate key": ("name: x", "name: x\nname: y", "2:1: duplicate key 'name', first in line 1"),
    "wrong type": (
        "gpus: 4",
        "gpus: four",
        "3:31: cluster.graph.gpus: expected a whole number, got 'four'",
    ),
    "missing unit": (
        "50GB/s",
        "50",
        "3:45: cluster.graph.bandwidth: expected a bandwidth such as 400Gbps or 50GB/s, got 50 "
        "(the unit is missing; did you mean 50Gbps?)",
    ),
    "half a unit": (
        "50GB/s",
        "400Gb",
        "3:45: cluster.graph.bandwidth: expected a bandwidth such as 400Gbps or 50GB/s, "
        "got '400Gb' (did you mean 400Gbps?)",
    ),
    "wrong unit": (
        "50GB/s",
        "50us",
        "3:45: cluster.graph.bandwidth: expected a bandwidth such as 400Gbps or 50GB/s, "
        "got '50us' (that is a time)",
    ),
    "negative bandwidth": (
        "50GB/s",
        "-50GB/s",
        "3:45: cluster.graph.bandwidth: expected a bandwidth such as 400Gbps or 50GB/s, "
        "got '-50GB/s' (it cannot be negative)",
    ),
    "no bandwidth at all": (
        "50GB/s",
        "0GB/s",
        "3:45: cluster.graph.bandwidth: expected a bandwidth such as 400Gbps or 50GB/s, "
        "got '0GB/s' (it cannot be zero)",
    ),
    "size 0": (
        "[1MiB]",
        "[0]",
        "7:11: workload.sizes.0: expected a size such as 64MiB, 64MB or 8B, got 0 "
        "(it cannot be zero)",
    ),
    "absurd size": (
        "[1MiB]",
        "[9000PiB]",
        "7:11: workload.sizes.0: expected a size such as 64MiB, 64MB or 8B, got '9000PiB' "
        "(that is too large to be meant)",
    ),
    "no sizes": (
        "[1MiB]",
        "[]",
        "7:10: workload.sizes: expected at least one size, got an empty list",
    ),
    "sizes that end before they begin": (
        "[1MiB]",
        "{from: 1GiB, to: 8B}",
        "7:27: workload.sizes.to: ends at 8 B, before it begins at 1073741824 B",
    ),
    "unknown algorithm": (
        "algorithm: ring",
        "algorithm: rign",
        "6:14: workload.algorithm: expected one of ring, tree, double-binary-tree, "
        "halving-doubling, direct, hierarchical, parameter-server, bucket, multi-ring, "
        "swing, forest, synth for all_reduce, got 'rign' "
        "(did you mean ring?)",
    ),
    "algorithm of another collective": (
        "algorithm: ring",
        "algorithm: bruck",
        "6:14: workload.algorithm: expected one of ring, tree, double-binary-tree, "
        "halving-doubling, direct, hierarchical, parameter-server, bucket, multi-ring, "
        "swing, forest, synth for all_reduce, got 'bruck' "
        "(it exists for all_gather, alltoall, alltoallv)",
    ),
    "algorithm that does not fit n": (
        "algorithm: ring",
        "algorithm: hierarchical\n  parameters: {node_size: 3}",
        "7:27: workload.parameters.node_size: expected a divisor of 4 ranks, got 3",
    ),
    "unknown parameter": (
        "algorithm: ring",
        "algorithm: ring\n  parameters: {chanels: 3}",
        "7:25: workload.parameters.chanels: ring all_reduce has one of channels, got 'chanels' "
        "(did you mean channels?)",
    ),
    "unknown collective": (
        "all_reduce",
        "all_redcue",
        "5:15: workload.collective: expected one of all_reduce, all_gather, reduce_scatter, "
        "broadcast, reduce, alltoall, alltoallv, gather, scatter, sendrecv, p2p, barrier, "
        "got 'all_redcue' (did you mean all_reduce?)",
    ),
    "more GPUs than the machine has": (
        GRAPH,
        "machine: dgx-h100\n  gpus_per_node: 9",
        "4:18: cluster.gpus_per_node: the machine has 8 GPUs, got 9",
    ),
    "a GPU that is not there": (
        "[1MiB]",
        "[1MiB]\n  ranks: [0, 1, 7]",
        "8:17: workload.ranks.2: expected GPUs in 0..3, got 7",
    ),
    "a graph that is not connected": (
        GRAPH,
        "graph:\n    nodes: [{name: a}, {name: b}, {name: c}]\n"
        "    links: [{from: a, to: b, bandwidth: 1GB/s}]",
        "5:12: cluster.graph.links: not connected: there is no path from 'a' to 'c' "
        "(a GPU passes on traffic of others only with forwards: true)",
    ),
    "a link without bandwidth": (
        GRAPH,
        "graph:\n    nodes: [{name: a}, {name: b}]\n    links: [{from: a, to: b}]",
        "5:13: cluster.graph.links.0: missing key 'bandwidth'",
    ),
    "YAML that is not YAML": (
        "  collective",
        "\tcollective",
        "5:1: a tab indents this line; YAML takes spaces only",
    ),
    "a tag": (
        "name: x",
        "name: !!python/object/apply:os.system [ls]",
        "1:7: YAML tags ('!') are refused",
    ),
    "a sweep over a key that does not exist": (
        "name: x",
        "sweep:\n  cluster.graph.gpu: [2, 4]",
        "2:3: sweep.cluster.graph.gpu: cluster.graph.gpu: unknown key 'gpu' (did you mean gpus?)",
    ),
    "a sweep over nothing": (
        "name: x",
        "sweep:\n  cluster.graph.gpus: []",
        "2:23: sweep.cluster.graph.gpus: expected at least one value, got an empty list",
    ),
    "a data type that does not exist": (
        "[1MiB]",
        "[1MiB]\n  dtype: flot",
        "8:10: workload.dtype: expected one of int8, uint8, int32, uint32, int64, uint64, "
        "half, float, double, bfloat16, f8e4m3, f8e5m2, got 'flot' (did you mean float?)",
    ),
    "a split that is none": (
        "[1MiB]",
        "[1MiB]\n  split: MOO 2",
        "8:10: workload.split: expected a split such as 'MOD 8', 'DIV 4' or 'AND 0x7', got 'MOO 2'",
    ),
    "a graph in a file": (
        "{kind: switch, gpus: 4, bandwidth: 50GB/s, latency: 1us}",
        "net.yml",
        "3:10: cluster.graph: expected a kind of switch, ring, full-mesh, torus, or nodes and "
        "links; `netsim topo import net.yml` makes a scenario of another tool's network",
    ),
    "an unknown output": (
        "name: x",
        "outputs: [csv, plot]",
        "1:16: outputs.1: expected one of csv, plots, trace, trace_per_rank, parquet, chakra, "
        "connections, goal, msccl, mscclpp, report, got 'plot' (did you mean plots?)",
    ),
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.yaml").write_text(GOOD)


@pytest.mark.sample(23)
@pytest.mark.slow
@pytest.mark.parametrize("typo", TYPOS)
@pytest.mark.parametrize("verb", ["run", "check"])
def test_a_typo_is_named_with_file_line_and_field(capsys, verb: str, typo: str) -> None:
    old, new, message = TYPOS[typo]
    assert old in GOOD
    Path("x.yaml").write_text(GOOD.replace(old, new, 1))
    outcome = netsim(capsys, verb, "x.yaml")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == f"x.yaml:{message}\n"
    assert not Path("reports").exists()


@pytest.mark.sample(4)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"# only a remark\n", "the file is empty"),
        (bytes(range(256)), "expected a text file with YAML, got a binary file"),
        (b"hello\n", "1:1: expected 'key: value' lines at the top level, got 'hello'"),
        (b"- a\n", "1:1: expected 'key: value' lines at the top level, got a list"),
        (ALIASES.encode(), "1:4: the file unfolds to more than 250000 values; use fewer aliases"),
    ],
)
def test_files_that_are_no_scenarios(capsys, content: bytes, message: str) -> None:
    Path("x.yaml").write_bytes(content)
    outcome = netsim(capsys, "run", "x.yaml")
    assert outcome.code == 2
    assert outcome.err.startswith("x.yaml:")
    assert message.split(": ", 1)[-1] in outcome.err


def test_unknown_machine_comes_with_the_list(capsys) -> None:
    Path("x.yaml").write_text(GOOD.replace(GRAPH, "machine: dgx-h10"))
    outcome = netsim(capsys, "run", "x.yaml")
    expected = "x.yaml:3:12: cluster.machine: unknown machine 'dgx-h10' (did you mean dgx-h100?)"
    assert outcome.err.startswith(expected)
    assert "dgx-a100" in outcome.err


def test_missing_files_and_directories(capsys) -> None:
    outcome = netsim(capsys, "run", "y.yaml")
    assert (outcome.code, outcome.err) == (2, "y.yaml: no such file (did you mean x.yaml?)\n")
    Path("d.yaml").mkdir()
    outcome = netsim(capsys, "run", "d.yaml")
    assert outcome.err == "d.yaml: expected a file, got a directory\n"
    Path("folder").mkdir()
    for verb in ("run", "check", "explain"):
        outcome = netsim(capsys, verb, "folder")
        assert (outcome.code, outcome.err) == (
            2,
            "folder: expected a file or a name, got a directory\n",
        )
    outcome = netsim(capsys, "run", "quickstrat")
    assert outcome.err.startswith("unknown scenario 'quickstrat' (did you mean quickstart?)")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("workload.sizs=1MiB", "--set workload.sizs=1MiB: workload.sizs: unknown key 'sizs'"),
        ("workload.sizes", "--set workload.sizes: expected KEY=VALUE such as cluster.nodes=4"),
        ("workload.sizes.3=1MiB", "--set workload.sizes.3=1MiB: workload.sizes is a list of 1"),
        (
            "cluster.fabric=rail_optimised",
            "--set cluster.fabric=rail_optimised: cluster.fabric: expected a mapping of keys and "
            "values, got 'rail_optimised' (did you mean fabric: {kind: rail-optimized}?)",
        ),
        (
            "cluster.graph=swich",
            "--set cluster.graph=swich: cluster.graph: expected a mapping of keys and values, got "
            "'swich' (did you mean graph: {kind: switch}?)",
        ),
        (
            "workload.trace=x.et",
            "--set workload.trace=x.et: workload.trace: a collective has no trace; "
            "`workload={trace: …}` replaces all of it",
        ),
        ("seed=-1", "--set seed=-1: seed: expected at least 0, got -1"),
    ],
)
def test_settings_with_a_typo(capsys, setting: str, message: str) -> None:
    outcome = netsim(capsys, "run", "x.yaml", "--set", setting)
    assert outcome.code == 2
    assert outcome.err.startswith(message)


@pytest.mark.parametrize("verb", ["run", "check", "explain"])
def test_hosts_that_nothing_joins_are_refused_before_anything_runs(capsys, verb: str) -> None:
    """A box of two cards without a NIC; each host by itself is fine."""
    text = "cluster: {{machine: rtx2080ti-x2, nodes: 2, fabric: {{kind: torus, dims: [2]}}}}\n"
    text += "workload: {{collective: alltoall, algorithm: pairwise, sizes: [1KiB]{split}}}\n"
    Path("x.yaml").write_text(text.format(split=""))
    outcome = netsim(capsys, verb, "x.yaml")
    assert outcome.code == 2
    assert outcome.err == "x.yaml:1:1: cluster: nothing joins these hosts: they have no NIC\n"
    assert not Path("reports").exists()
    Path("x.yaml").write_text(text.format(split=", split: DIV 2"))
    assert netsim(capsys, "check", "x.yaml").code == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["rnu", "x.yaml"],
        ["run"],
        ["run", "x.yaml", "--enginee", "simpy"],
        ["run", "x.yaml", "--engine", "fast"],
        ["topo", "shwo"],
    ],
)
def test_commands_with_a_typo(capsys, arguments: list[str]) -> None:
    outcome = netsim(capsys, *arguments)
    assert outcome.code == 2
    assert outcome.err
    assert "Traceback" not in outcome.err


def test_folders_that_hold_something_else(capsys) -> None:
    Path("full").mkdir()
    Path("full/thesis.tex").write_text("years of work")
    outcome = netsim(capsys, "run", "x.yaml", "-o", "full", "-q")
    message = "full: holds files that are no results (choose another folder with -o)\n"
    assert (outcome.code, outcome.err) == (2, message)
    assert Path("full/thesis.tex").read_text() == "years of work"
    outcome = netsim(capsys, "run", "x.yaml", "-o", "x.yaml", "-q")
    assert outcome.err == "x.yaml: expected a folder for results, got a file\n"
    assert Path("x.yaml").read_text() == GOOD


@pytest.mark.slow
def test_results_of_another_scenario_are_not_overwritten(capsys) -> None:
    assert netsim(capsys, "run", "x.yaml", "-o", "out", "-q").code == 0
    before = Path("out/results.csv").read_bytes()
    Path("y.yaml").write_text(GOOD.replace("name: x", "name: y"))
    outcome = netsim(capsys, "run", "y.yaml", "-o", "out", "-q")
    message = "out: holds the results of scenario 'x' (choose another folder with -o)\n"
    assert (outcome.code, outcome.err) == (2, message)
    assert Path("out/results.csv").read_bytes() == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written(capsys) -> None:
    Path("locked").mkdir(mode=0o500)
    outcome = netsim(capsys, "run", "x.yaml", "-o", "locked/out", "-q")
    assert (outcome.code, outcome.err) == (2, "locked/out: cannot be made: Permission denied\n")


@pytest.mark.full
def test_a_run_that_would_not_fit_says_so_before_it_starts(capsys) -> None:
    Path("x.yaml").write_text(GOOD.replace("gpus: 4", "gpus: 40000"))
    outcome = netsim(capsys, "run", "x.yaml")
    assert (outcome.code, outcome.out) == (2, "")
    assert "x.yaml:4:1: workload: about 3.2e+09 rows would take 320 GB of memory" in outcome.err
    assert "ranks would fit, else take one with fewer steps or larger chunks" in outcome.err
    assert "not folded: 262144 elements on 40000 ranks are unequal chunks" in outcome.err


MANY = """\
cluster: {machine: dgx-h1000, nodes: two, fabric: {kind: leaf-spin}}
workload: {collective: all_reduce, sizes: [1MiBB], dtpye: float}
nccl: {version: "2.99", env: {NCCL_ALGOO: Ring, NCCL_PROTO: LLL}}
sweep: {SWEEP}
"""
TOLD = (
    "x.yaml:2:44: workload.sizes.0:",
    "x.yaml:2:52: workload.dtpye:",
    "x.yaml:3:17: nccl.version:",
    "x.yaml:3:43: nccl.env.NCCL_ALGOO: NCCL_ALGOO is no NCCL variable",
    "x.yaml:3:61: nccl.env.NCCL_PROTO: expected one of LL, LL128, Simple",
    "x.yaml:1:20: cluster.machine: unknown machine",
    "x.yaml:1:38: cluster.nodes: expected",
    "x.yaml:1:58: cluster.fabric.kind: expected one of",
)


@pytest.mark.parametrize(
    ("sweep", "also"),
    [
        ("cluster.nodse: [1, 2]", "x.yaml:4:9: sweep.cluster.nodse: cluster.nodse: unknown key"),
        ("zip: 3", "x.yaml:4:14: sweep.zip: expected two or more keys"),
    ],
)
def test_all_mistakes_of_a_file_are_told_at_once(capsys, sweep: str, also: str) -> None:
    Path("x.yaml").write_text(MANY.replace("SWEEP", sweep))
    for verb in ("check", "run"):
        done = netsim(capsys, verb, "x.yaml")
        assert done.code == 2
        for text in (*TOLD, also):
            assert done.err.count(text) == 1, (text, done.err)
        assert len(done.err.splitlines()) == len(TOLD) + 1


def test_all_that_does_not_fit_of_a_step_is_told_at_once(capsys) -> None:
    Path("x.yaml").write_text(
        "cluster: {machine: dgx-h100}\n"
        "workload:\n  model: llama3-8b\n  batch: 7\n  micro_batch: 2\n  replicas: {shard: 3}\n"
    )
    done = netsim(capsys, "check", "x.yaml")
    assert done.code == 2
    assert "x.yaml:4:10: workload.batch: 7 samples cannot be divided" in done.err
    assert "x.yaml:6:21: workload.replicas.shard: only FSDP and ZeRO-3" in done.err
