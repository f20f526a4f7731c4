"""Gates as other programs read them: CSV of nccl-tests, aicr, Cluster Readiness Engine, JUnit."""

import csv
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
import yaml

from netsim.base.errors import InputError
from netsim.results.gates import (
    GroupGate,
    SizeGate,
    aicr_warnings,
    gate_text,
    min_bandwidth_lines,
)
from netsim.results.junit import JunitCase, junit_text
from netsim.results.nccl_tests import COLUMNS
from netsim.results.row import Row


def size_gate(size: int, busbw: float, fraction: float = 0.8) -> SizeGate:
    algbw = busbw / 1.75
    time = size / algbw / 1e3
    row = Row(
        collective="all_reduce",
        dtype="float",
        size_bytes=size,
        count=size // 4,
        time_us=time,
        inplace_time_us=time,
        algbw_GBps=algbw,
        busbw_GBps=busbw,
    )
    return SizeGate(row, fraction)


def group(**changes: object) -> GroupGate:
    gate = GroupGate(
        kind="all",
        name="all 8 nodes",
        nodes=8,
        ranks=64,
        collective="all_reduce",
        fabric="infiniband",
        confidence=0.95,
        sizes=(size_gate(2**20, 100.0), size_gate(2**34, 400.0)),
    )
    return replace(gate, **changes)


NODE = group(kind="node", name="one node", nodes=1, ranks=8, fabric="NVLink inside a node")
DOMAIN = group(kind="rack", name="one rack of 8 nodes", fabric="nvlink", has_nvlink_racks=True)


def test_csv_has_the_columns_of_measured_runs_and_the_group() -> None:
    rows = list(csv.DictReader(gate_text([NODE, group()], "nccl-tests").splitlines()))
    assert [row["group"] for row in rows] == ["one node"] * 2 + ["all 8 nodes"] * 2
    assert list(rows[0])[: len(COLUMNS)] == list(COLUMNS)
    assert float(rows[0]["oop_busbw_gbps"]) == pytest.approx(80)
    assert float(rows[0]["expected_busbw_gbps"]) == pytest.approx(100)
    assert rows[0]["confidence"] == "0.95"


def test_nccl_tests_passes_from_the_average_of_the_gates_on() -> None:
    (line,) = min_bandwidth_lines([group()])
    value = float(re.match(r"NCCL_TESTS_MIN_BW=([0-9.]+) ", line)[1])
    assert value * 0.9 == pytest.approx((80 + 320) / 2, rel=1e-3)


def test_aicr_constraint_is_of_the_largest_size_and_allows_for_its_tolerance() -> None:
    values = yaml.safe_load(gate_text([NODE, group()], "aicr"))
    performance = values["spec"]["validation"]["performance"]
    assert performance["checks"] == ["nccl-all-reduce-bw"]
    (constraint,) = performance["constraints"]
    assert constraint["name"] == "nccl-all-reduce-bw"
    threshold = float(constraint["value"].removeprefix(">= "))
    assert threshold * 0.9 == pytest.approx(320, rel=1e-3)
    assert threshold * 0.9 <= 320


def test_aicr_check_is_that_of_nvls_within_an_nvlink_domain() -> None:
    everyone = group(has_nvlink_racks=True)
    text = gate_text([DOMAIN, everyone], "aicr")
    assert "name: nccl-all-reduce-bw-nvls" in text
    assert "one rack of 8 nodes" in text
    assert "name: nccl-all-reduce-bw-net" in gate_text([everyone], "aicr")


def test_aicr_warns_of_a_smaller_message_than_its_own() -> None:
    assert list(aicr_warnings([group()])) == []
    small = group(sizes=(size_gate(2**30, 400.0),))
    assert "--sizes 16G" in next(aicr_warnings([small]))


@pytest.mark.parametrize(
    ("gate", "form", "message"),
    [
        (NODE, "aicr", "needs at least two nodes, got one"),
        (group(collective="alltoall"), "aicr", "checks all_reduce only, got alltoall"),
        (group(collective="broadcast"), "cre", "has categories for all_reduce"),
    ],
)
def test_formats_refuse_what_their_programs_cannot_check(gate, form, message) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        gate_text([gate], form)


def test_certification_has_a_category_with_a_threshold_for_each_scale() -> None:
    values = yaml.safe_load(gate_text([NODE, DOMAIN, group()], "cre"))
    assert values["kind"] == "Certification"
    assert values["apiVersion"] == "nvcre.nvidia.com/v1alpha1"
    categories = values["spec"]["categories"]
    assert [one["options"]["testScale"] for one in categories] == [
        "intra-node",
        "intra-rack",
        "full-scale",
    ]
    for category in categories:
        assert (category["domain"], category["variant"]) == ("communication", "nccl-all-reduce")
        assert category["options"]["thresholds"] == {"busBandwidthGBps": "value >= 320"}
        assert category["options"]["maxBytes"] == "16G"


def test_certification_leaves_out_racks_that_are_no_nvlink_domain_and_says_so() -> None:
    rack = group(kind="rack", name="one rack of 4 nodes")
    pair = group(kind="racks", name="a pair of racks of 4 and 4 nodes")
    text = gate_text([rack, pair, group()], "cre")
    assert "Left out: one rack of 4 nodes: testScale intra-rack takes NVLink domains" in text
    assert "Left out: a pair of racks of 4 and 4 nodes" in text
    assert "intra-rack\n" not in text


def test_certification_takes_the_slowest_of_racks_of_several_sizes() -> None:
    slow = replace(DOMAIN, sizes=(size_gate(2**34, 300.0),))
    (category,) = yaml.safe_load(gate_text([DOMAIN, slow], "cre"))["spec"]["categories"]
    assert category["options"]["thresholds"] == {"busBandwidthGBps": "value >= 240"}


def test_junit_of_a_gate_has_a_skipped_case_for_each_size() -> None:
    root = ElementTree.fromstring(gate_text([NODE, group()], "junit"))
    cases = root.findall("./testsuite/testcase")
    assert [case.get("name") for case in cases] == ["1 MiB", "16 GiB"] * 2
    assert all(case.find("skipped") is not None for case in cases)
    assert root.get("skipped") == "4"


def test_junit_counts_failures_and_escapes_what_xml_cannot_hold() -> None:
    cases = [
        JunitCase("a<b>.txt", '>=64MiB "x"', "failed", "too slow & \x00 more", {"error": "<5 %"}),
        JunitCase("a<b>.txt", "1-64MiB"),
    ]
    root = ElementTree.fromstring(junit_text("netsim", cases))
    suite = root.find("testsuite")
    assert suite.get("name") == "a<b>.txt"
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("2", "1", "0")
    assert suite[0].find("failure").get("message") == "too slow & ? more"
    assert suite[1].find("failure") is None
