"""trace.json: the rules of trace events, what is in it, and the same bytes for the same run."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from netsim.program.program import Timeline
from netsim.schedule.builder import Builder
from netsim.schedule.repeat import Launch, repeat
from netsim.schedule.schedule import ARRIVED, Style
from netsim.topology.routing import switch
from netsim.trace.chrome import write_trace
from netsim.trace.names import Operation, kineto_args
from tests.trace.output_runs import (
    chain_run,
    launched_run,
    mixed_run,
    ring_all_reduce,
    ring_run,
    run,
)
from tests.trace.trace_rules import check, load, of_phase

RUNS = [ring_run, launched_run, mixed_run, chain_run, lambda: ring_run(3, 7, 2)]
RING = Operation("all_reduce", "ring", "Simple", in_elements=1 << 16, out_elements=1 << 16)


@pytest.mark.parametrize("make", RUNS)
def test_traces_keep_the_rules_of_trace_events(make, tmp_path: Path) -> None:
    program, timeline, _ = make()
    written = write_trace(tmp_path / "trace.json", program, timeline)
    assert written.note == ""
    check(load(written.path))


def test_a_process_a_rank_and_a_thread_a_channel_in_order(tmp_path: Path) -> None:
    program, timeline, _ = ring_run(4, 1 << 16, 2)
    trace = load(write_trace(tmp_path / "t.json", program, timeline).path)
    names = [(e["pid"], e["args"]["name"]) for e in of_phase(trace, "M") if "name" in e["args"]]
    assert names[:4] == [(rank, f"rank {rank} (gpu{rank})") for rank in range(4)]
    assert [name for pid, name in names[4:] if pid == 2] == [
        "collectives",
        "ch0 send",
        "ch0 recv",
        "ch1 send",
        "ch1 recv",
    ]


def test_slices_say_what_goes_where(tmp_path: Path) -> None:
    program, timeline, _ = ring_run()
    trace = load(write_trace(tmp_path / "t.json", program, timeline, [RING]).path)
    slices = {e["name"]: e for e in of_phase(trace, "X")}
    send = slices["ring all_reduce s3 →gpu2 (64 KiB)"]
    assert send["args"]["path"] == "gpu1->switch0;switch0->gpu2"
    assert (send["args"]["bytes"], send["args"]["GB/s"]) == (65536, 50.0)
    receive = slices["ring all_reduce s3 ←gpu1 (64 KiB)"]
    assert receive["pid"] == 2
    assert receive["ts"] == pytest.approx(send["ts"] + 1.0)  # the switch takes 1 µs
    assert receive["dur"] == pytest.approx(send["dur"], abs=1e-3)


def test_arrows_lead_from_the_sender_to_the_receiver(tmp_path: Path) -> None:
    program, timeline, _ = ring_run()
    trace = load(write_trace(tmp_path / "t.json", program, timeline).path)
    ends = {e["id"]: e["pid"] for e in of_phase(trace, "f")}
    assert len(ends) == 24
    for start in of_phase(trace, "s"):
        assert ends[start["id"]] == (start["pid"] + 1) % 4


def test_groups_have_an_arrow_for_each_member(tmp_path: Path) -> None:
    program, timeline, _ = mixed_run()  # 3 transfers, 1 to 3 others, 3 others to 1
    trace = load(write_trace(tmp_path / "t.json", program, timeline).path)
    assert len(of_phase(trace, "s")) == 3 + 3 + 3
    assert [e["pid"] for e in of_phase(trace, "X") if "s2 ←gpu0" in e["name"]] == [0, 1, 2, 3]


def test_collectives_carry_the_arguments_that_kineto_writes(tmp_path: Path) -> None:
    program, timeline, _ = ring_run()
    trace = load(write_trace(tmp_path / "t.json", program, timeline, [RING]).path)
    kernels = [e for e in of_phase(trace, "X") if e["cat"] == "kernel"]
    assert [e["pid"] for e in kernels] == [0, 1, 2, 3]
    assert {e["name"] for e in kernels} == {"ring all_reduce"}
    assert kernels[3]["args"] == {
        "device": 3,
        "stream": 0,
        "algorithm": "ring",
        "protocol": "Simple",
        "Collective name": "allreduce",
        "In msg nelems": 65536,
        "Out msg nelems": 65536,
        "In split size": "[]",
        "Out split size": "[]",
        "Group size": 4,
        "dtype": "Float",
        "Process Group Name": "0",
        "Process Group Description": "default_pg",
        "Process Group Ranks": "[0, 1, 2, 3]",
        "Rank": 3,
        "Seq": 0,
    }
    assert trace["schemaVersion"] == 1
    assert trace["distributedInfo"]["world_size"] == 4
    assert trace["distributedInfo"]["pg_config"][0]["ranks"] == [0, 1, 2, 3]


def test_kernels_enclose_the_rows_of_their_rank(tmp_path: Path) -> None:
    program, timeline, _ = ring_run()
    trace = load(write_trace(tmp_path / "t.json", program, timeline).path)
    kernels = {e["pid"]: e for e in of_phase(trace, "X") if e["cat"] == "kernel"}
    for event in of_phase(trace, "X"):
        around = kernels[event["pid"]]
        assert around["ts"] <= event["ts"]
        assert event["ts"] + event["dur"] <= around["ts"] + around["dur"] + 2e-3


def test_repeated_operations_are_kernels_of_their_own(tmp_path: Path) -> None:
    schedule = repeat(ring_all_reduce(4, 1000), 3, Launch(kernel=5e-6)).schedule
    program, timeline, _ = run(schedule, switch(4, 50e9, 1e-7))
    trace = load(write_trace(tmp_path / "t.json", program, timeline).path)
    check(trace)
    kernels = [e for e in of_phase(trace, "X") if e["cat"] == "kernel" and e["pid"] == 1]
    assert [e["args"]["Seq"] for e in kernels] == [0, 1, 2]
    assert len([e for e in of_phase(trace, "X") if e["name"] == "launch"]) == 12


@pytest.mark.parametrize(
    ("operation", "kernel"),
    [
        (Operation("all_gather", "Ring", "LL128"), "ncclDevKernel_AllGather_RING_LL128"),
        (Operation("reduce", "Ring", "LL", "half"), "ncclDevKernel_Reduce_Sum_f16_RING_LL"),
        (Operation("alltoall", "SendRecv", "Simple"), "ncclDevKernel_SendRecv"),
        (Operation("alltoall", "pairwise"), "pairwise alltoall"),
        (Operation("all_reduce", "ring"), "ring all_reduce"),
        (Operation("all_gather", "Ring", "Simple"), "ncclDevKernel_AllGather_RING_SIMPLE"),
        (Operation("backward"), "backward"),
        (Operation(""), "operation"),
    ],
)  # fmt: skip
def test_names_of_kernels(operation: Operation, kernel: str) -> None:
    assert operation.kernel == kernel


def test_long_groups_are_cut_as_kineto_cuts_them() -> None:
    args = kineto_args(Operation("all_gather"), 0, range(64), 0)
    assert args["Process Group Ranks"].startswith("[0, 1, 2,")
    assert args["Process Group Ranks"].endswith("28, ..., 63]")
    assert args["Collective name"] == "_allgather_base"


def test_overlapping_slices_are_put_on_lanes(tmp_path: Path) -> None:
    b = Builder(2)
    b.rows(Style(), [0, 0, 0], [1, 1, 1], b.pieces([1000, 2000, 3000]))
    program, timeline, _ = run(b.finish(), switch(2, 50e9))
    trace = load(write_trace(tmp_path / "t.json", program, timeline).path)
    check(trace)
    names = [e["args"]["name"] for e in of_phase(trace, "M") if e["name"] == "thread_name"]
    assert [n for n in names if "send" in n] == ["ch0 send", "ch0 send · 2", "ch0 send · 3"]


def test_counters_of_links_in_a_group_of_their_own(tmp_path: Path) -> None:
    program, timeline, _ = mixed_run()
    trace = load(write_trace(tmp_path / "t.json", program, timeline).path)
    counters = of_phase(trace, "C")
    first = [e for e in counters if e["name"] == "gpu0->switch0"]
    assert first[0]["args"] == {"GB/s": 50.0}
    assert first[-1]["args"] == {"GB/s": 0.0}
    assert first[-1]["ts"] == pytest.approx(timeline.end[program.path >= 0].max() * 1e6, abs=1e-3)
    assert {"%"} == set().union(*(e["args"] for e in counters if e["name"].startswith("sms")))
    names = {
        e["pid"]: e["args"].get("name") for e in of_phase(trace, "M") if "process_name" in e["name"]
    }
    assert names[first[0]["pid"]] == "links: fabric"
    assert min(e["pid"] for e in counters) > 4


def test_counters_change_when_flows_do(tmp_path: Path) -> None:
    b = Builder(3, 1.0)
    first = b.rows(Style(), [0], [2], b.pieces([3_000]))
    b.rows(Style(), [1], [2], b.pieces([1_000]))
    b.rows(Style(), [1], [0], b.pieces([500]), after=[(first, ARRIVED)])
    program, timeline, _ = run(b.finish(), switch(3, 1e9, 0.0))
    trace = load(write_trace(tmp_path / "t.json", program, timeline).path)
    shown = {}
    for event in of_phase(trace, "C"):
        shown.setdefault(event["name"], []).append((event["ts"], event["args"]["GB/s"]))
    assert shown["gpu1->switch0"] == [(0.0, 0.5), (2.0, 0.0), (4.0, 1.0), (4.5, 0.0)]
    assert shown["switch0->gpu0"] == [(0.0, 0.0), (4.0, 1.0), (4.5, 0.0)]
    into = shown["switch0->gpu2"]
    assert [when for when, _ in into] == [0.0, 4.0]
    assert into[0][1] == 1.0


def test_same_run_same_bytes_and_compressed_by_suffix(tmp_path: Path) -> None:
    program, timeline, _ = mixed_run()
    plain = write_trace(tmp_path / "a.json", program, timeline).path.read_bytes()
    packed = [
        write_trace(tmp_path / name, program, timeline).path.read_bytes()
        for name in ("b.json.gz", "other.json.gz")
    ]
    assert packed[0] == packed[1]
    assert gzip.decompress(packed[0]) == plain
    assert packed[0][4:8] == bytes(4)  # no time of writing


def test_long_runs_say_what_they_leave_out(tmp_path: Path) -> None:
    program, timeline, _ = ring_run()
    written = write_trace(tmp_path / "t.json", program, timeline, rows=10)
    assert written.note == "holds the first 10 of 28 rows, those that start before 4.62144 us"
    trace = load(written.path)
    check(trace)
    assert trace["otherData"]["left_out"] == f"this trace {written.note}"
    kernels = [e for e in of_phase(trace, "X") if e["cat"] == "kernel"]
    assert kernels[0]["dur"] == pytest.approx(timeline.makespan * 1e6, abs=1e-3)


def test_a_trace_of_nothing_is_a_trace(tmp_path: Path) -> None:
    program, _, _ = run(Builder(2).finish(), switch(2, 50e9))
    nothing = Timeline(np.zeros(0), np.zeros(0))
    trace = load(write_trace(tmp_path / "t.json", program, nothing).path)
    check(trace)
    assert of_phase(trace, "X") == []


def test_operations_must_fit_the_schedule(tmp_path: Path) -> None:
    program, timeline, _ = ring_run()
    with pytest.raises(ValueError, match="operations: expected one for each of 1, got 2"):
        write_trace(tmp_path / "t.json", program, timeline, [RING, RING])


def test_lines_are_events_so_that_tools_can_read_them_one_by_one(tmp_path: Path) -> None:
    program, timeline, _ = ring_run()
    text = write_trace(tmp_path / "t.json", program, timeline).path.read_text(encoding="utf-8")
    lines = text.splitlines()[1:-1]
    assert [json.loads(line.rstrip(",")) for line in lines] == json.loads(text)["traceEvents"]
