"""`netsim expect --gate`: groups of nodes, formats, and what is refused."""

import csv
import io
import json
from pathlib import Path

import pytest
import yaml

from tests.cli.command import Outcome, netsim

SMALL = ("expect", "h100-x4", "all_reduce", "--sizes", "64M,1G", "-q")
RACKS = (
    *("--nodes", "5", "--fabric", "leaf-spine"),
    *("--set", "cluster.fabric.nodes_per_leaf=2"),
)


def rows_of(outcome: Outcome) -> list[dict[str, str]]:
    assert outcome.code == 0, outcome.err
    return list(csv.DictReader(io.StringIO(outcome.out)))


def test_groups_are_a_node_racks_pairs_of_racks_and_all_nodes(capsys) -> None:
    rows = rows_of(netsim(capsys, *SMALL, *RACKS, "--gate", "95%"))
    assert list(dict.fromkeys((row["group"], int(row["nodes"])) for row in rows)) == [
        ("one node", 1),
        ("one rack of 2 nodes", 2),
        ("a pair of racks of 2 and 2 nodes", 4),
        ("a pair of racks of 2 and 1 nodes", 3),
        ("all 5 nodes", 5),
    ]
    assert {row["fabric"] for row in rows} == {"NVLink inside a node", "infiniband"}


def test_a_gate_is_below_the_expectation_that_the_table_prints(capsys) -> None:
    expected = json.loads(netsim(capsys, *SMALL, *RACKS, "--format", "json").out)
    rows = rows_of(netsim(capsys, *SMALL, *RACKS, "--gate", "95%"))
    everyone = [row for row in rows if row["group"] == "all 5 nodes"]
    for row, full in zip(everyone, expected, strict=True):
        assert float(row["expected_busbw_gbps"]) == pytest.approx(full["busbw_GBps"], rel=1e-4)
        assert float(row["oop_busbw_gbps"]) < full["busbw_GBps"]


def test_a_node_of_a_gate_is_what_expect_says_of_one_node(capsys) -> None:
    (expected, _) = json.loads(netsim(capsys, *SMALL, "--format", "json").out)
    rows = rows_of(netsim(capsys, *SMALL, *RACKS, "--gate", "80%"))
    assert rows[0]["group"] == "one node"
    assert float(rows[0]["expected_busbw_gbps"]) == pytest.approx(expected["busbw_GBps"], rel=1e-4)


def test_a_higher_confidence_gives_a_lower_gate(capsys) -> None:
    values = []
    for confidence in ("98%", "95%", "80%", "50%"):
        rows = rows_of(netsim(capsys, *SMALL, "--gate", confidence))
        values.append([float(row["oop_busbw_gbps"]) for row in rows])
    assert values == sorted(values)


def test_a_certification_has_all_collectives_that_are_named(capsys) -> None:
    outcome = netsim(
        capsys,
        *("expect", "h100-x4", "all_reduce,alltoall", "--nodes", "2", "--sizes", "1G", "-q"),
        *("--gate", "95%", "--gate-format", "cre"),
    )
    categories = yaml.safe_load(outcome.out)["spec"]["categories"]
    variants = [(one["variant"], one["options"]["testScale"]) for one in categories]
    assert variants == [
        ("nccl-all-reduce", "intra-node"),
        ("nccl-all-reduce", "full-scale"),
        ("nccl-alltoall", "intra-node"),
        ("nccl-alltoall", "full-scale"),
    ]


def test_the_suffix_of_the_file_tells_the_format(capsys, tmp_path: Path) -> None:
    for name, start in (("gate.csv", "size_bytes,"), ("gate.xml", "<?xml ")):
        outcome = netsim(capsys, *SMALL, "--gate", "95%", "--gate-out", tmp_path / name)
        assert outcome.code == 0, outcome.err
        assert outcome.out == ""
        assert (tmp_path / name).read_text().startswith(start)


def test_nvlink_domains_are_the_racks_of_an_nvlink_system(capsys) -> None:
    outcome = netsim(
        capsys,
        *("expect", "gb200-nvl72", "all_reduce", "--nodes", "2", "--sizes", "1G", "-q"),
        *("--gate", "95%", "--gate-format", "aicr"),
    )
    assert "nccl-all-reduce-bw-nvls" in outcome.out
    assert "warning: aicr takes the largest message, 16 GiB" in outcome.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--gate", "95"), "--gate 95: expected a probability of 50% to 98%"),
        (("--gate", "99.9%"), "--gate 99.9%: expected a probability of 50% to 98%"),
        (("--gate", "x"), "--gate x: expected a ratio such as"),
        (("--gate-format", "cre"), "--gate-format cre: goes with --gate"),
        (("--gate-out", "g.csv"), "--gate-out g.csv: goes with --gate"),
        (("--gate", "95%", "--gate-out", "g.yaml"), "its suffix does not tell the format"),
        (("--gate", "95%", "--acceptance", "90%"), "are different answers"),
        (("--gate", "95%", "--gate-format", "aicr"), "needs at least two nodes, got one"),
        (("--gate", "95%", "--algo", "ring"), "ring is a textbook algorithm"),
        (
            (
                "--gate",
                "95%",
                "--nodes",
                "2",
                "--set",
                "cluster.faults=[{link: node1.nic0}]",
            ),
            "the cluster has faults",
        ),
    ],
)
def test_what_has_no_gate_is_refused(capsys, tmp_path, monkeypatch, options, message) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = netsim(capsys, *SMALL, *options)
    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.out == ""
    assert not list(tmp_path.iterdir())


def test_quiet_prints_results_and_warnings_only(capsys) -> None:
    loud = netsim(capsys, *SMALL[:-1])
    quiet = netsim(capsys, *SMALL)
    assert "assumed: " in loud.err
    assert quiet.err == ""
    assert quiet.out == loud.out
    fewer = netsim(capsys, *SMALL, "--nodes", "2", "--nics-per-node", "8")
    assert "warning: --nics-per-node 8" in fewer.err
