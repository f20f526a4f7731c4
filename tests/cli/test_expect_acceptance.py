"""`netsim expect --acceptance`: the least that passes, and the one number for nccl-tests."""

import csv
import json
import re

import pytest

from tests.cli.command import netsim

QUESTION = ("expect", "dgx-a100", "all_reduce", "--sizes", "1M,4M")


def test_the_least_bandwidth_is_the_part_asked_for(capsys) -> None:
    expected = json.loads(netsim(capsys, *QUESTION, "--format", "json").out)
    outcome = netsim(capsys, *QUESTION, "--acceptance", "80%")
    rows = list(csv.DictReader(outcome.out.splitlines()))
    assert [int(row["size_bytes"]) for row in rows] == [2**20, 2**22]
    for row, full in zip(rows, expected, strict=True):
        assert float(row["oop_busbw_gbps"]) == pytest.approx(0.8 * full["busbw_GBps"], rel=1e-5)
        assert float(row["oop_time_us"]) == pytest.approx(full["time_us"] / 0.8, rel=1e-5)
        assert float(row["ip_time_us"]) == pytest.approx(full["inplace_time_us"] / 0.8, rel=1e-5)
    found = re.search(r"^NCCL_TESTS_MIN_BW=([0-9.]+) ", outcome.err, re.MULTILINE)
    assert found
    mean = sum(float(row["oop_busbw_gbps"]) + float(row["ip_busbw_gbps"]) for row in rows) / 4
    assert float(found[1]) * 0.9 == pytest.approx(mean, rel=1e-3)  # nccl-tests passes from 0.9 on


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("90x", "--acceptance 90x: expected a ratio such as 2, 2:1 or 50%, got '90x'"),
        (
            "0%",
            "--acceptance 0%: expected a ratio such as 2, 2:1 or 50%, got '0%' (it cannot be zero)",
        ),
        ("90", "--acceptance 90: expected at most 100% (did you mean 90%?)"),
    ],
)
def test_parts_that_mean_nothing(capsys, text: str, message: str) -> None:
    outcome = netsim(capsys, *QUESTION, "--acceptance", text)
    assert (outcome.code, outcome.out, outcome.err) == (2, "", message + "\n")
