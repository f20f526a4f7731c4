"""Rows in nccl-tests' text and JSON: line by line as its own logs have them."""

import json
import re
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import yaml

from netsim.base.files import table_beside
from netsim.measured.logs import parse_json, parse_log
from netsim.results import nccl_tests
from netsim.results.nccl_tests import (
    Device,
    TestRun,
    average_busbw,
    closing,
    device_name,
    document,
    half,
    line,
    opening,
)
from netsim.results.row import Row
from tests.cli.command import netsim

TOPOLOGIES = Path(__file__).parent.parent.parent / "topologies"
LOGS = Path(__file__).parent.parent / "data" / "nccl_tests"
TIMES = 52  # the column where figures begin


def run_of_log(text: str, collective: str) -> TestRun:
    """The header of a log as a value, read by splitting at blanks."""
    lines = text.splitlines()
    title = next(one.split() for one in lines if one.startswith("# nThread"))
    devices = []
    for one in lines:
        if one.startswith("#  Rank"):
            left, _, right = one.partition("[")
            words = left.split()
            bus, _, model = right.partition("] ")
            numbers = (int(words[2]), int(words[4]), int(words[6]))
            devices.append(Device(*numbers, words[8], int(words[10]), bus, model))
    first, last = int(title[6]), int(title[8])
    sizes = tuple(first * 2**step for step in range((last // first).bit_length()))
    return TestRun(collective, sizes, tuple(devices), n_gpus=int(title[4]))


def row_of_log(words: list[str], collective: str) -> Row:
    factor = 7 / 8 if collective == "alltoall" else 1.0
    return Row(
        collective=collective,
        size_bytes=int(words[0]),
        count=int(words[1]),
        dtype=words[2],
        time_us=float(words[5]),
        inplace_time_us=float(words[9]),
        algbw_GBps=int(words[0]) / float(words[5]) / 1e3,
        busbw_GBps=int(words[0]) / float(words[5]) / 1e3 * factor,
    )


@pytest.mark.parametrize("collective", ["sendrecv", "alltoall"])
def test_a_log_of_nccl_tests_is_written_again_as_it_was(collective: str) -> None:
    log = (LOGS / f"h100_dgx_8_{collective}.txt").read_text()
    lines = log.splitlines()
    mine = opening(run_of_log(log, collective)).splitlines()
    assert [one for one in lines if one.startswith(("#  ", "# Using"))] == [
        one for one in mine if one.startswith(("#  ", "# Using"))
    ]
    rows = [one for one in lines if one and not one.startswith("#")]
    assert len(rows) == 10
    for text in rows:
        written = line(row_of_log(text.split(), collective))
        first, second = TIMES + 33, TIMES + 66  # where each half ends, with its `#wrong`
        for part in (slice(0, TIMES), slice(TIMES, first), slice(first, second)):
            mine, theirs = written[part], text[part]
            assert [len(word) for word in mine.split(" ")] == [
                len(word) for word in theirs.split(" ")
            ]
            if part.start == 0:
                assert mine == theirs
                continue
            assert mine.split()[0] == theirs.split()[0]  # the time, as it was printed
            # From a time to two decimals follows a bandwidth to two decimals, but for the last.
            assert mine.split()[3] == theirs.split()[3]  # `0`, and `N/A` in place
            figures = [float(word) for word in theirs.split()[:3]]
            assert [float(word) for word in mine.split()[:3]] == pytest.approx(figures, abs=0.011)


def test_the_header_has_the_lines_of_the_newest_layout() -> None:
    device = Device(0, 0, 12345, "hostname", 0, "0000:04:00.0", "NVIDIA H100 80GB HBM3")
    run = TestRun("all_reduce", (8, 16, 32), (device,), n_gpus=8, nccl_code=23007)
    lines = opening(run).splitlines()
    assert lines[1:8] == [
        "# nccl-tests version 2.19.6 nccl-headers=23007 nccl-library=23007",
        "# Collective test starting: all_reduce_perf",
        "# nThread 1 nGpus 8 minBytes 8 maxBytes 32 step: 2(factor) warmup iters: 1 iters: 20 "
        "agg iters: 1 validation: 1 graph: 0 unalign: 0",
        "#",
        "# Using devices",
        "#  Rank  0 Group  0 Pid  12345 on   hostname device  0 [0000:04:00] NVIDIA H100 80GB HBM3",
        "#",
    ]
    assert lines[0].endswith("not measured")


@pytest.mark.parametrize(
    ("sizes", "factor", "step"),
    [((8,), None, 2**20), ((8, 16), 2, 8), ((4, 8, 12), None, 4), ((8, 2**20, 2**21), None, 0)],
)
def test_steps(sizes: tuple[int, ...], factor: int | None, step: int) -> None:
    run = TestRun("all_reduce", sizes, ())
    assert (run.factor, run.step) == (factor, step)


GOOD = Row(
    collective="all_reduce",
    size_bytes=1000,
    count=250,
    dtype="float",
    time_us=10.0,
    inplace_time_us=5.0,
    algbw_GBps=0.1,
    busbw_GBps=0.175,
)
BAD = Row(collective="all_reduce", size_bytes=2000, status="error", error="too large")


def test_no_wrong_values_are_printed_as_nccl_tests_prints_them() -> None:
    words = line(GOOD).split()
    assert (words[8], words[12]) == ("0", "0")
    for collective in ("alltoall", "alltoallv", "sendrecv"):
        unchecked = replace(GOOD, collective=collective)
        words = line(unchecked).split()
        assert (words[8], words[12]) == ("0", "N/A")
        result = document(TestRun(collective, (1000,), ()), [unchecked])["results"][0]
        assert result["out_of_place"]["nwrong"] == 0.0
        assert result["in_place"]["nwrong"] is None


def test_the_largest_size_is_the_one_that_was_asked_for(capsys, tmp_path: Path) -> None:
    """8, 16, … 64 bytes are the sizes up to 100 bytes."""
    target = tmp_path / "out.json"
    sizes = "workload.sizes={from: 8, to: 100}"
    outcome = netsim(
        capsys,
        "expect",
        "dgx-a100",
        "all_reduce",
        "--set",
        sizes,
        "--format",
        "nccl-tests",
        "-J",
        target,
    )
    assert "minBytes 8 maxBytes 100 step: 2(factor)" in outcome.out
    found = json.loads(target.read_text())
    assert [one["size"] for one in found["results"]] == [8, 16, 32, 64]
    assert found["config"]["maximum_bytes"] == 100
    assert found["args"][found["args"].index("-e") + 1] == "100"


def test_json_has_the_times_of_day_that_nccl_tests_has(
    capsys, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    question = ("expect", "dgx-a100", "broadcast", "--sizes", "1M", "-J")
    netsim(capsys, *question, tmp_path / "now.json")
    found = json.loads((tmp_path / "now.json").read_text())
    started, ended = (
        datetime.strptime(found[key], "%Y-%m-%d %H:%M:%S") for key in ("start_time", "end_time")
    )
    assert started <= ended <= datetime.now() <= started + timedelta(minutes=10)
    assert list(found) == [
        "version",
        "start_time",
        "args",
        "env",
        "nccl_version",
        "config",
        "results",
        "out_of_bounds",
        "average_bus_bandwidth",
        "errors",
        "end_time",
    ]
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    netsim(capsys, *question, tmp_path / "fixed.json")
    found = json.loads((tmp_path / "fixed.json").read_text())
    assert (found["start_time"], found["end_time"]) == ("1970-01-02 00:00:00",) * 2
    (read,) = parse_json((tmp_path / "fixed.json").read_text(), "fixed.json")
    assert [row.size_bytes for row in read.rows] == [2**20]


def test_every_machine_preset_has_the_device_name_of_its_driver() -> None:
    table = {row["model"]: row for row in table_beside(nccl_tests.__file__, "device_names.csv")}
    models = set()
    for path in sorted(TOPOLOGIES.glob("*.yaml")):
        content = yaml.safe_load(path.read_text())
        if "gpu" in content:
            models.add(content["gpu"]["model"])
    assert len(models) > 20
    assert set(table) == models
    assert all(row["source"] for row in table.values())
    assert device_name("H100 SXM5 80GB") == "NVIDIA H100 80GB HBM3"
    assert device_name("A100 SXM4 80GB") == "NVIDIA A100-SXM4-80GB"
    assert device_name("a GPU of one's own") == "a GPU of one's own"


def test_device_names_that_cite_a_log_are_those_of_the_log() -> None:
    cited = 0
    for row in table_beside(nccl_tests.__file__, "device_names.csv"):
        match = re.search(r"tests/data/logs/\S+", row["source"])
        if match is not None:
            cited += 1
            assert row["name"] in (TOPOLOGIES.parent / match[0]).read_text()
    assert cited >= 4


def test_expect_prints_the_device_name_of_the_driver(capsys) -> None:
    outcome = netsim(
        capsys, "expect", "dgx-h100", "all_reduce", "--sizes", "8", "--format", "nccl-tests"
    )
    (run,) = parse_log(outcome.out, "log.txt")
    assert {device.name for device in run.devices} == {"NVIDIA H100 80GB HBM3"}


def test_failures_are_comments_and_no_part_of_the_mean() -> None:
    assert line(BAD) == "# 2000 B: too large"
    assert average_busbw([GOOD, BAD]) == pytest.approx((0.175 + 0.35) / 2)
    run = TestRun("all_reduce", (1000, 2000), ())
    assert closing(run, [GOOD, BAD]).splitlines() == [
        "# Out of bounds values : 0 OK",
        "# Avg bus bandwidth    : 0.2625 ",
        "#",
        "# Collective test concluded: all_reduce_perf",
    ]
    written = document(run, [GOOD, BAD])
    assert written["errors"] == ["2000 B: too large"]
    assert written["average_bus_bandwidth"]["bandwidth"] == pytest.approx(0.2625)
    assert [row["size"] for row in written["results"]] == [1000]
    assert written["results"][0]["in_place"] == {
        "time": 5.0,
        "alg_bw": 0.2,
        "bus_bw": 0.35,
        "nwrong": 0.0,
    }


@pytest.mark.slow
def test_expect_writes_text_and_json_that_agree(capsys, tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    outcome = netsim(
        capsys,
        "expect",
        "dgx-a100",
        "broadcast",
        "--sizes",
        "1M,2M",
        "--launch",
        "single_process",
        "--format",
        "nccl-tests",
        "-J",
        target,
        "--env",
        "NCCL_PROTO=LL",
        "--set",
        "workload.root=3",
    )
    rows = [one.split() for one in outcome.out.splitlines() if not one.startswith("#")]
    found = json.loads(target.read_text())
    assert [row[:5] for row in rows] == [
        f"{size} {size // 4} float none 3".split() for size in (2**20, 2**21)
    ]
    assert [(row["size"], row["count"], row["redop"], row["root"]) for row in found["results"]] == [
        (2**20, 2**18, "none", "3"),
        (2**21, 2**19, "none", "3"),
    ]
    for row, result in zip(rows, found["results"], strict=True):
        assert float(row[5]) == pytest.approx(result["out_of_place"]["time"], abs=0.01)
        assert float(row[11]) == pytest.approx(result["in_place"]["bus_bw"], abs=0.01)
    assert found["args"] == (
        [
            "broadcast_perf",
            "-g",
            "8",
            "-b",
            "1048576",
            "-e",
            "2097152",
            "-f",
            "2",
            "-d",
            "float",
            "-r",
            "3",
        ]
    )
    assert found["env"] == ["NCCL_PROTO=LL"]
    assert found["config"]["ngpus"] == 8
    assert [one["pid"] for one in found["config"]["devices"]] == [1] * 8
    again = netsim(capsys, "expect", "dgx-a100", "broadcast", "--sizes", "1M", "-J", target)
    assert f"wrote {target}.1" in again.err
    assert json.loads(Path(f"{target}.1").read_text())["config"]["step_bytes"] == 2**20
    missing = netsim(
        capsys, "expect", "dgx-a100", "broadcast", "--sizes", "1M", "-J", tmp_path / "no" / "x.json"
    )
    assert missing.code == 2
    assert missing.err.endswith("no\n")


def test_a_run_of_several_cells_is_several_logs(capsys, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.yaml").write_text(
        "cluster: {graph: {kind: switch, gpus: 4, bandwidth: 50GB/s, latency: 1us}}\n"
        "workload: {collective: all_reduce, algorithm: ring, sizes: [1MiB, 2MiB]}\n"
        "sweep: {workload.collective: [all_reduce, all_gather]}\noutputs: [csv]\n"
    )
    out = netsim(capsys, "run", "x.yaml", "-q", "--format", "nccl-tests").out
    started = [one for one in out.splitlines() if "Collective test" in one]
    assert started == [
        f"# Collective test {what}: {test}_perf"
        for test in ("all_reduce", "all_gather")
        for what in ("starting", "concluded")
    ]
    assert out.count("# Avg bus bandwidth") == 2
    assert out.count("#  Rank  3 Group  0 Pid      4 on      graph device  3 ") == 2


@pytest.mark.slow
@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_the_file_has_all_rows_whatever_is_printed(capsys, tmp_path, form: str) -> None:
    target = tmp_path / "out.json"
    netsim(
        capsys,
        "expect",
        "dgx-a100",
        "broadcast",
        "--sizes",
        "8,1M",
        "--format",
        form,
        "-J",
        str(target),
    )
    assert [one["size"] for one in json.loads(target.read_text())["results"]] == [8, 2**20]


def test_half_a_line_has_rates_of_its_own_time_and_none_without_one() -> None:
    """Bandwidths are those of the time out of place, for as long as the other took."""
    row = Row(time_us=10.0, algbw_GBps=4.0, busbw_GBps=7.0)
    both = replace(row, inplace_time_us=20.0)
    assert half(both, "time_us") == (10.0, 4.0, 7.0)
    assert half(both, "inplace_time_us") == (20.0, 2.0, 3.5)
    assert half(row, "inplace_time_us") == (10.0, 4.0, 7.0)
    told = ({"algbw_GBps": None}, {"busbw_GBps": None}, {"time_us": None}, {"time_us": 0.0})
    for gone in told:
        found = half(replace(row, **gone), "time_us")
        assert found == (gone.get("time_us", 10.0) or 0.0, 0.0, 0.0)


@pytest.mark.parametrize("time", [0.25, 1.0, 8.0])
def test_bandwidths_are_bytes_over_time_also_below_a_microsecond(time: float) -> None:
    row = Row(size_bytes=4000, time_us=time, algbw_GBps=4 / time, busbw_GBps=7 / time)
    assert half(row, "time_us") == (time, 4 / time, 7 / time)
    assert half(replace(row, inplace_time_us=2 * time), "inplace_time_us") == (
        2 * time,
        2 / time,
        3.5 / time,
    )
    assert half(replace(row, time_us=0.0), "time_us") == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("sizes", "factor", "step"),
    [
        ((8, 16, 32), 2, 0),
        ((8, 16, 24), None, 8),
        ((8, 24), 3, 16),
        ((8, 8), None, 0),
        ((8, 20), None, 12),
        ((0, 8), None, 8),
        ((8, 9), None, 0),
    ],
)
def test_sizes_follow_one_another_by_a_factor_a_step_or_neither(
    sizes: tuple[int, ...], factor: int | None, step: int
) -> None:
    """A factor or a step is more than 1: by one byte and by one times nothing goes on."""
    run = TestRun("all_reduce", sizes, ())
    assert (run.factor, run.step) == (factor, step)
