"""A typo in every option of `netsim expect`: one message, exit code 2."""

import csv
from pathlib import Path

import pytest

from tests.cli.command import netsim

# Options, and the whole message.
TYPOS = {
    ("--nodes", "0"): "--nodes 0: cluster.nodes: expected at least 1, got 0",
    ("--nodes", "100000"): "--nodes 100000: cluster.nodes: expected at most 65536, got 100000",
    ("--gpus-per-node", "9"): "--gpus-per-node 9: cluster.gpus_per_node: the machine has 8 GPUs, "
    "got 9",
    ("--nics-per-node", "-1"): "--nics-per-node -1: cluster.nics_per_node: expected at least 0, "
    "got -1",
    ("--nodes", "2", "--nics-per-node", "0"): "--nodes 2: cluster: NCCL cannot join "
    "these nodes: some have no NIC",
    ("--nic", "400Gb"): "--nic 400Gb: cluster.nic: expected a bandwidth such as 400Gbps or "
    "50GB/s, got '400Gb' (did you mean 400Gbps?)",
    ("--sizes", "8:8Q:2"): "--sizes 8:8Q:2: expected a size such as 64MiB, 64MB or 8B, got '8Q'",
    ("--sizes", "8:4:2"): "--sizes 8:4:2: expected a first size from 1 B to the last, 4 B, got 8",
    ("--why", "1Q"): "--why 1Q: expected a size such as 64MiB, 64MB or 8B, got '1Q'",
    ("--dtype", "flot"): "--dtype flot: workload.dtype: expected one of int8, uint8, int32, "
    "uint32, int64, uint64, half, float, double, bfloat16, f8e4m3, f8e5m2, got 'flot' "
    "(did you mean float?)",
    ("--algo", "NVSL"): "--algo NVSL: workload.algorithm: expected one of auto, Tree, "
    "Ring, CollNetDirect, CollNetChain, NVLS, NVLSTree, PAT, ring, tree, double-binary-tree, "
    "halving-doubling, direct, hierarchical, parameter-server, bucket, multi-ring, swing, forest, "
    "synth for all_reduce, got 'NVSL' (did you mean NVLS?)",
    ("--algo", "pet"): "--algo pet: workload.algorithm: expected one of ring, tree, double-binary-"
    "tree, halving-doubling, direct, hierarchical, parameter-server, bucket, multi-ring, swing, "
    "forest, synth, auto, Tree, Ring, CollNetDirect, CollNetChain, NVLS, NVLSTree, PAT for "
    "all_reduce, got 'pet' (did you mean PAT?)",
    ("--algo", "NVLSTree"): "--algo NVLSTree: workload.algorithm: no algorithm available for "
    "AllReduce (NVLSTree needs at least 2 nodes)",
    ("--algo", "PAT"): "--algo PAT: workload.algorithm: no algorithm available for AllReduce "
    "(PAT exists for AllGather and ReduceScatter only)",
    ("--algo", "ring", "--proto", "LL"): "--proto LL: workload.protocol: only NCCL's algorithms "
    "have protocols, ring has none",
    ("--algo", "ring", "--why", "1M"): "--why: ring is a textbook algorithm, which nobody chose",
    ("--algo", "NVLS", "--proto", "LL"): "--algo NVLS: workload.algorithm: no algorithm available "
    "for AllReduce (NVLS runs with the Simple protocol only)",
    ("--proto", "SS"): "--proto SS: workload.protocol: expected one of auto, LL, LL128, Simple, "
    "got 'SS'",
    ("--launch", "procss"): "--launch procss: launch: expected a mapping of keys and values or "
    "one of process_per_gpu, single_process, cuda_graph, unknown, got 'procss' "
    "(did you mean single_process?)",
    ("--nccl", "2.50"): "--nccl 2.50: nccl.version: NCCL 2.50 is outside the modelled versions "
    "2.10–2.30 (nearest: 2.30.7)",
    ("--nccl", "new"): "--nccl new: nccl.version: expected an NCCL version such as 2.27 or "
    "2.19.3, got 'new'",
    ("--env", "NCCL_ALGOO=Ring"): "--env NCCL_ALGOO=Ring: nccl.env.NCCL_ALGOO: NCCL_ALGOO is no "
    "NCCL variable (did you mean NCCL_ALGO?)",
    ("--env", "NCCL_ALGO=Rong"): "--env NCCL_ALGO=Rong: nccl.env.NCCL_ALGO: expected one of Tree, "
    "Ring, CollNetDirect, CollNetChain, NVLS, NVLSTree, PAT, got 'Rong' (did you mean Ring?)",
    ("--env", "NCCL_ALGO"): "--env NCCL_ALGO: expected NAME=VALUE such as NCCL_ALGO=Ring",
    ("--env", "NCCL_ALGO=Tree", "--algo", "Ring"): "--algo Ring: workload.algorithm: NCCL_ALGO is "
    "set, and an algorithm is forced as well: give one of them",
    ("--transport", "ib"): "--transport ib: cluster.fabric.transport: expected one of infiniband, "
    "roce, efa, tcpxo, slingshot, tcp, nvlink, got 'ib' (did you mean infiniband?)",
    ("--fabric", "clos"): "--fabric clos: cluster.fabric.kind: expected one of single-switch, "
    "leaf-spine, rail-optimized, rail-only, dual-plane, fat-tree, dragonfly, torus, ring, "
    "custom, nvlink-domain, got 'clos'",
    ("--set", "x=1"): "--set x=1: x: unknown key 'x' "
    "(known: name, cluster, workload, jobs, job, background, nccl, launch, host, timing, sweep, "
    "outputs, measured, seed, prices, report, fold, exact, noise, samples, limits)",
    ("--set", "cluster.nodes"): "--set cluster.nodes: expected KEY=VALUE such as cluster.nodes=4",
    ("--set", "sweep={cluster.nodes: [1, 2]}"): "expect answers one question; a sweep is for "
    "netsim run",
}


@pytest.mark.slow
@pytest.mark.parametrize("options", TYPOS)
def test_a_typo_in_an_option(capsys, options: tuple[str, ...]) -> None:
    outcome = netsim(capsys, "expect", "dgx-h100", "all_reduce", *options)
    assert (outcome.code, outcome.out) == (2, "")
    told = [
        line for line in outcome.err.splitlines() if not line.startswith(("assumed: ", "ring "))
    ]
    assert told == [TYPOS[options]]


def test_a_topology_or_collective_that_does_not_exist(capsys) -> None:
    outcome = netsim(capsys, "expect", "dgx-h10", "all_reduce")
    assert outcome.code == 2
    assert outcome.err.startswith("unknown machine 'dgx-h10' (did you mean dgx-h100?); known: ")
    outcome = netsim(capsys, "expect", "dgx-h100", "all_redcue")
    message = (
        "dgx-h100 all_redcue: workload.collective: expected one of all_reduce, all_gather, "
        "reduce_scatter, broadcast, reduce, alltoall, alltoallv, gather, scatter, sendrecv, p2p, "
        "barrier, got 'all_redcue' (did you mean all_reduce?)\n"
    )
    assert (outcome.code, outcome.err) == (2, message)
    outcome = netsim(capsys, "expect", "none.xml", "all_reduce")
    assert (outcome.code, outcome.err) == (2, "none.xml: no such file\n")


def test_files_that_have_no_machine(capsys, tmp_path: Path) -> None:
    other = tmp_path / "x.yaml"
    other.write_text("plots: {}\n")
    outcome = netsim(capsys, "expect", other, "all_reduce")
    message = f"{other}: neither a machine (with gpu) nor a scenario (with cluster)\n"
    assert (outcome.code, outcome.err) == (2, message)
    other.write_text("cluster: {graph: {kind: ring, gpus: 4, bandwidth: 1GB/s, latency: 1us}}\n")
    outcome = netsim(capsys, "expect", other, "all_reduce")
    message = (
        "workload.algorithm: NCCL's choice needs a machine, not a plain graph; choose one of "
        "ring, tree, double-binary-tree, halving-doubling, direct, hierarchical, parameter-server, "
        "bucket, multi-ring, swing, forest, synth (--algo ring, for example)\n"
    )
    assert outcome.code == 2
    assert outcome.err.endswith(message)


def test_what_has_no_choice_cannot_be_forced(capsys) -> None:
    outcome = netsim(capsys, "expect", "dgx-h100", "alltoall", "--algo", "Ring")
    message = (
        "--algo Ring: workload.algorithm: NCCL runs alltoall as sends and receives, without a "
        "choice of algorithm (leave algorithm at auto)\n"
    )
    assert (outcome.code, outcome.err) == (2, message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--sizes", "7EiB"],
            "--sizes 7EiB: expected a size such as 64MiB, 64MB or 8B, "
            "got '7EiB' (that is too large to be meant)",
        ),
        (
            [
                "--sizes",
                "1M",
                "--algo",
                "double-binary-tree",
                "--set",
                "workload.parameters.chunk_bytes=1Mib",
            ],
            "--set workload.parameters.chunk_bytes=1Mib: workload.parameters.chunk_bytes: expected "
            "a size such as 64MiB, 64MB or 8B, got '1Mib' (did you mean 1MiB?)",
        ),
        (
            ["--set", "workload.collective=p2p", "--set", "workload.pairs=[[0,1],[2,99]]"],
            "--set workload.pairs=[[0,1],[2,99]]: workload.pairs: expected ranks in 0..7, "
            "got 99 in [2, 99]",
        ),
    ],
)
def test_sizes_and_pairs_that_cannot_be(capsys, options: list[str], message: str) -> None:
    outcome = netsim(capsys, "expect", "dgx-h100", "all_reduce", *options)
    assert (outcome.code, outcome.out, outcome.err) == (2, "", message + "\n")


def test_a_chunk_may_be_written_as_a_size(capsys) -> None:
    question = [
        "expect",
        "dgx-a100",
        "all_reduce",
        "--sizes",
        "64M",
        "--algo",
        "double-binary-tree",
        "--format",
        "csv",
        "--set",
    ]
    texts = [
        netsim(capsys, *question, f"workload.parameters.chunk_bytes={size}").out
        for size in ("1MiB", str(2**20), "4MiB")
    ]
    rows = [next(csv.DictReader(text.splitlines())) for text in texts]
    assert rows[0]["time_us"] == rows[1]["time_us"] != rows[2]["time_us"]


@pytest.mark.slow
def test_old_versions_fall_back_to_rings_and_say_so(capsys):
    question = ("expect", "dgx-a100", "all_reduce", "--algo", "NVLS", "--sizes", "1M")
    old = netsim(capsys, *question, "--nccl", "2.20")
    assert old.code == 0
    assert "NCCL 2.20 falls back to Ring: NVLS needs multicast" in old.err
    assert "Ring" in old.out
    new = netsim(capsys, *question, "--nccl", "2.24")
    assert new.code == 2
    assert "no algorithm available for AllReduce (NVLS needs multicast" in new.err
    obeyed = netsim(capsys, *question[:-4], "--algo", "Tree", "--sizes", "1M", "--nccl", "2.20")
    assert "falls back" not in obeyed.err


@pytest.mark.slow
def test_old_versions_ignore_what_needs_a_collective_network_and_say_so(capsys):
    question = ("expect", "dgx-a100", "all_reduce", "--nodes", "16", "--sizes", "1M,4G")
    told = netsim(capsys, *question, "--nccl", "2.23", "--algo", "CollNetDirect", "--format", "csv")
    assert "NCCL 2.23 ignores NCCL_ALGO: collective networks are off" in told.err
    rows = list(csv.DictReader(told.out.splitlines()))
    assert [row["algorithm"] for row in rows] == ["Tree", "Ring"]


@pytest.mark.slow
def test_rings_that_old_versions_fall_back_to_run_in_their_fastest_protocol(capsys):
    question = ("expect", "h100-x4", "all_reduce", "--nodes", "4", "--algo", "NVLSTree",
                "--sizes", "1K,1M,1G", "--format", "csv", "--nccl")  # fmt: skip

    def protocols(version, *options):
        told = netsim(capsys, *question, version, *options)
        return [row["protocol"] for row in csv.DictReader(told.out.splitlines())]

    assert protocols("2.23") == ["LL", "LL128", "Simple"]
    assert protocols("2.23", "--proto", "Simple") == ["Simple"] * 3
    assert protocols("2.20", "--proto", "Simple") == ["LL", "LL128", "Simple"]


OTHERS = ("gpu1", "gpu2", "gpu3", "cpu0")
DEAD = ", ".join(f"{{link: node0.gpu0-node0.{other}, bandwidth: 0%}}" for other in OTHERS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "form", [("--format", "table"), ("--format", "csv"), ("--acceptance", 0.9)]
)
def test_sizes_that_cannot_finish_are_told_and_end_as_such(capsys, form) -> None:
    question = (
        "expect",
        "gh200-x4",
        "all_reduce",
        "--sizes",
        "8,1K",
        "--set",
        f"cluster.faults=[{DEAD}]",
    )
    outcome = netsim(capsys, *question, *form)
    assert outcome.code == 3
    assert "the simulation cannot finish" in outcome.err.splitlines()[-1]
    assert "(1 run)" not in outcome.out  # no measured run had this fault


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--why", "1M", "--acceptance", "90%"),
            "--why and --acceptance are different answers: give one of them",
        ),
        (
            ("--tuner-out", "a.csv", "-J", "b.json"),
            "--tuner-out and -J are different answers: give one of them",
        ),
        (("-J", "nowhere/b.json"), "-J nowhere/b.json: there is no folder nowhere"),
        (("--graph-out", "nowhere/g.xml"), "--graph-out nowhere/g.xml: there is no folder nowhere"),
    ],
)
def test_one_answer_and_a_place_for_it(capsys, options, message) -> None:
    outcome = netsim(capsys, "expect", "dgx-h100", "all_reduce", *options)
    assert (outcome.code, outcome.out, outcome.err) == (2, "", message + "\n")
