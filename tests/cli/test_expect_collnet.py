"""`netsim expect` where the switches of the fabric reduce: what NCCL chooses, and why it cannot."""

import csv
from io import StringIO

import pytest

from tests.cli.command import netsim

SHARP = ("--set", "cluster.fabric.sharp=true")
ENABLED = (*SHARP, "--env", "NCCL_COLLNET_ENABLE=1")


def rows(capsys, *arguments: object) -> list[dict[str, str]]:
    outcome = netsim(capsys, "expect", *arguments, "--format", "csv")
    assert outcome.code == 0, outcome.err
    return list(csv.DictReader(StringIO(outcome.out)))


@pytest.mark.slow
def test_switches_of_the_fabric_are_used_where_they_are_enabled(capsys):
    wanted = ("dgx-h100", "all_reduce", "--nodes", 4, "--sizes", "1M,256M")
    found = rows(capsys, *wanted, *ENABLED)
    assert [row["algorithm"] for row in found] == ["NVLS", "NVLS"]
    plain = rows(capsys, *wanted, *SHARP)  # NCCL_COLLNET_ENABLE is 0 by default
    assert [row["algorithm"] for row in plain] == ["Tree", "NVLSTree"]
    assert all(float(a["time_us"]) < float(b["time_us"]) for a, b in zip(found, plain, strict=True))


@pytest.mark.slow
def test_ampere_scatters_to_heads(capsys):
    found = rows(capsys, "dgx-a100", "all_reduce", "--nodes", 3, "--sizes", "1M,64M", *ENABLED)
    assert [row["algorithm"] for row in found] == ["CollNetDirect", "CollNetDirect"]


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter"])
@pytest.mark.parametrize("algorithm", ["CollNetDirect", "NVLS"])
def test_blocks_are_shared_through_the_network(capsys, collective, algorithm):
    forced = ("--algo", algorithm, "--sizes", "1M,16M")
    found = rows(capsys, "dgx-h100", collective, "--nodes", 3, *forced, *ENABLED)
    assert [row["algorithm"] for row in found] == [algorithm] * 2
    # All blocks but those of its node come in over the NICs of a node, or leave over them.
    assert float(found[1]["time_us"]) > 16 * 2**20 * 2 / 3 / (8 * 50e9) * 1e6


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["CollNetChain", "CollNetDirect", "NVLS"])
@pytest.mark.parametrize(("nodes", "local"), [(2, 8), (3, 8), (5, 4)])
def test_every_algorithm_runs_when_it_is_forced(capsys, algorithm, nodes, local):
    shape = ("--nodes", nodes, "--gpus-per-node", local)
    forced = ("--algo", algorithm, "--sizes", "8,1000004,64M")
    found = rows(capsys, "dgx-h100", "all_reduce", *shape, *forced, *ENABLED)
    assert [row["algorithm"] for row in found] == [algorithm] * 3
    times = [float(row["time_us"]) for row in found]
    assert times == sorted(times)
    # Every head sends its share once: no time is below that of its NIC.
    assert times[2] > 64 * 2**20 / local / 50e9 * 1e6


def test_chains_need_no_nvswitch_but_a_node_each(capsys):
    lone = rows(
        capsys,
        *("dgx-h100", "all_reduce", "--nodes", 5, "--gpus-per-node", 1),
        *("--algo", "CollNetChain", "--sizes", "64M", *ENABLED),
    )
    time = float(lone[0]["time_us"])
    assert 64 * 2**20 / time / 1e3 == pytest.approx(49, rel=0.15)  # in-network: once over the NIC


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ((), "collective networks are off (NCCL_COLLNET_ENABLE)"),
        (("--env", "NCCL_COLLNET_ENABLE=1"), "the switches of the network do not reduce"),
        ((*ENABLED, "--nodes", 2, "--env", "NCCL_COLLNET_NODE_THRESHOLD=3"), "fewer than 3 nodes"),
        ((*ENABLED, "--nodes", 2, "--proto", "LL"), "runs with the Simple protocol only"),
        ((*ENABLED, "--nodes", 1), "fewer than 2 nodes"),
    ],
)
def test_an_algorithm_that_cannot_run_gets_the_reason(capsys, options, reason):
    nodes = () if "--nodes" in options else ("--nodes", 2)
    question = ("expect", "dgx-h100", "all_reduce", *nodes, "--sizes", "1M")
    outcome = netsim(capsys, *question, "--algo", "CollNetChain", *options)
    assert outcome.code == 2
    assert reason in outcome.err
    assert "Traceback" not in outcome.err


def test_why_shows_the_searches_of_collnet(capsys):
    question = ("expect", "dgx-h100", "all_reduce", "--nodes", 2, "--why", "1M", *ENABLED)
    out = netsim(capsys, *question, "--sizes", "1M").out
    for name in ("CollNetChain", "CollNetDirect"):
        line = next(line for line in out.splitlines() if line.startswith(f"{name}:"))
        assert "nChannels 8, bw 48.000000/48.000000" in line
