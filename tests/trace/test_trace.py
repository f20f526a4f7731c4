"""trace.json: the rules of trace events, what is in it, and the same bytes for the same run."""

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest

from netsim.cli.questions import QuestionOptions, source_of_question
from netsim.collectives.collective import NAMES
from netsim.engines.engine import simulate
from netsim.program.place import place
from netsim.program.program import Program, Timeline
from netsim.schedule.builder import Builder
from netsim.schedule.repeat import Launch, repeat
from netsim.schedule.schedule import ARRIVED, TRANSFER, Style
from netsim.tasks.answer import checked_cells
from netsim.tasks.explained import shown_of
from netsim.tasks.resolve import resolve
from netsim.topology.routing import switch
from netsim.trace.chrome import write_trace
from netsim.trace.names import (
    KERNEL_NAMES,
    TracedOperation,
    kineto_args,
    short_size,
    stream_numbers,
)
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
RING = TracedOperation("all_reduce", "ring", "Simple", in_elements=1 << 16, out_elements=1 << 16)


@pytest.mark.parametrize("make", RUNS)
def test_traces_keep_the_rules_of_trace_events(make, tmp_path: Path) -> None:
    program, timeline, _ = make()
    written = write_trace(tmp_path / "trace.json", program, timeline)
    assert written.note == ""
    check(load(written.path))


def test_a_process_a_rank_and_threads_by_what_it_does_in_order(tmp_path: Path) -> None:
    program, timeline, _ = ring_run(4, 1 << 16, 2)
    trace = load(write_trace(tmp_path / "t.json", program, timeline).path)
    names = [(e["pid"], e["args"]["name"]) for e in of_phase(trace, "M") if "name" in e["args"]]
    assert names[:4] == [(rank, f"rank {rank} (gpu{rank})") for rank in range(4)]
    assert [name for pid, name in names[4:] if pid == 2] == ["collectives", "send", "recv"]


def test_equal_channels_are_one_slice_that_says_all_of_them(tmp_path: Path) -> None:
    program, timeline, _ = ring_run(4, 1 << 16, 2)
    trace = load(write_trace(tmp_path / "t.json", program, timeline, [RING]).path)
    check(trace)
    sends = [e for e in of_phase(trace, "X") if e["cat"] == "send" and e["pid"] == 1]
    assert sends[0]["name"] == "ring all_reduce s0 →gpu2 (2 × 32 KiB)"
    first = sends[0]["args"]
    assert (first["channel"], first["bytes"], len(first["rows"])) == ([0, 1], 65536, 2)
    assert first["GB/s"] == pytest.approx(50.0)
    arrows = [e for e in of_phase(trace, "s") if (e["pid"], e["ts"]) == (1, sends[0]["ts"])]
    assert len(arrows) == 2
    assert len(of_phase(trace, "s")) == (program.schedule.kind == TRANSFER).sum()


@pytest.mark.slow
def test_slices_hold_every_row_once_and_all_of_its_bytes(tmp_path: Path) -> None:
    program, trace = _of_h100s(tmp_path, "all_gather", "4M")
    check(trace)
    sends = [e["args"] for e in of_phase(trace, "X") if e["cat"] == "send"]
    rows = [row for args in sends for row in args.get("rows", [args.get("row")])]
    moving = np.flatnonzero(program.schedule.kind == TRANSFER)
    assert sorted(rows) == moving.tolist()
    sent = sum(args["bytes"] for args in sends)
    assert sent == pytest.approx(program.schedule.amount[moving].sum())
    names = [e["args"]["name"] for e in of_phase(trace, "M") if e["name"] == "thread_name"]
    assert {"collectives", "send NIC", "send NVLink", "recv NIC", "recv NVLink"} <= set(names)
    over = {e["args"]["name"]: set() for e in of_phase(trace, "M") if e["name"] == "thread_name"}
    threads = {
        (e["pid"], e["tid"]): e["args"]["name"]
        for e in of_phase(trace, "M")
        if e["name"] == "thread_name"
    }
    for event in of_phase(trace, "X"):
        if event["cat"] == "send":
            paths = event["args"]["path"]
            paths = paths if isinstance(paths, list) else [paths]
            over[threads[event["pid"], event["tid"]]] |= {
                "->nic" in p or ".nic" in p for p in paths
            }
    assert over["send NIC"] == {True}
    assert over["send NVLink"] == {False}


def test_16_ranks_are_16_processes_of_few_threads(tmp_path: Path) -> None:
    """A thread for each channel, sending, receiving and copying, would be 45 a process."""
    _, trace = _of_h100s(tmp_path, "all_reduce", "64M")
    check(trace)
    threads = [e for e in of_phase(trace, "M") if e["name"] == "thread_name"]
    assert len({e["pid"] for e in threads}) == 16
    assert len(threads) <= 16 * 14


def _of_h100s(folder: Path, collective: str, size: str) -> tuple[Program, dict]:
    """One operation on two hosts of 8 H100s, whose channels go over NVLink and NICs."""
    source, _ = source_of_question("dgx-h100", collective, QuestionOptions(nodes=2, sizes=size))
    resolved = resolve(checked_cells(source)[0])
    shown = shown_of(resolved, resolved.cell.scenario.collective.size_list()[0])
    program = place(shown.schedule, resolved.topology, resolved.gpus.tolist())
    written = write_trace(folder / "t.json", program, simulate(program, "compiled"))
    return program, load(written.path)


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
    assert {e["name"] for e in kernels} == {"ncclDevKernel_AllReduce_Sum_f32_RING_SIMPLE"}
    assert kernels[3]["args"] == {
        "External id": 28 + 4,  # the kernels of collectives come after those of the 28 rows
        "device": 3,
        "stream": 20,
        "correlation": 28 + 4,
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


PARAMETERS = "(ncclDevKernelArgsStorage<4096ul>)"


@pytest.mark.parametrize(
    ("operation", "kernel"),
    [
        (
            TracedOperation("all_gather", "Ring", "LL128"),
            f"ncclDevKernel_AllGather_RING_LL128{PARAMETERS}",
        ),
        (
            TracedOperation("reduce", "Ring", "LL", "half"),
            f"ncclDevKernel_Reduce_Sum_f16_RING_LL{PARAMETERS}",
        ),
        (
            TracedOperation("reduce", "Ring", "LL", "f8e5m2"),
            f"ncclDevKernel_Reduce_Sum_f8e5m2_RING_LL{PARAMETERS}",
        ),
        (
            TracedOperation("all_gather", "Ring", "Simple"),
            f"ncclDevKernel_AllGather_RING_SIMPLE{PARAMETERS}",
        ),
        (TracedOperation("alltoall", "SendRecv", "Simple"), f"ncclDevKernel_SendRecv{PARAMETERS}"),
        (TracedOperation("alltoall", "pairwise"), "ncclDevKernel_AllToAll_PAIRWISE"),
        (TracedOperation("all_reduce", "ring"), "ncclDevKernel_AllReduce_Sum_f32_RING"),
        (
            TracedOperation("all_reduce", "double-binary-tree"),
            "ncclDevKernel_AllReduce_Sum_f32_DOUBLE_BINARY_TREE",
        ),
        (TracedOperation("all_gather", "my_file.py:two"), "ncclDevKernel_AllGather_MY_FILE_PY_TWO"),
        (TracedOperation("barrier", "dissemination"), "ncclDevKernel_Barrier_DISSEMINATION"),
        (TracedOperation("backward"), "backward"),
        (TracedOperation(""), "operation"),
    ],
)
def test_names_of_kernels(operation: TracedOperation, kernel: str) -> None:
    assert operation.kernel == kernel


def test_every_collective_has_a_kernel_that_profile_readers_count_as_communication() -> None:
    """HolisticTraceAnalysis takes `^nccl.*Kernel` for communication (hta/utils/utils.py)."""
    assert set(KERNEL_NAMES) == set(NAMES)
    for collective in KERNEL_NAMES:
        for algorithm in ("", "Ring", "linear-shift", "a file.xml"):
            kernel = TracedOperation(collective, algorithm).kernel
            assert re.match(r"^nccl.*Kernel", kernel)
            assert " " not in kernel.removesuffix(PARAMETERS)


def test_stream_numbers_are_those_of_pytorch_s_profiles() -> None:
    assert stream_numbers(["dp", "compute", "tp", "dp"], "compute") == {
        "compute": 7,
        "dp": 20,
        "tp": 21,
    }


def test_kernels_that_compute_say_their_stream_and_launch(tmp_path: Path) -> None:
    program, timeline, _ = mixed_run()
    trace = load(write_trace(tmp_path / "t.json", program, timeline).path)
    kernels = [e for e in of_phase(trace, "X") if e["cat"] == "kernel"]
    computing = [e for e in kernels if "Collective name" not in e["args"]]
    assert computing
    assert {e["args"]["stream"] for e in computing} == {7}
    assert all(e["args"]["device"] == e["pid"] for e in kernels)
    correlations = [e["args"]["correlation"] for e in kernels]
    assert len(set(correlations)) == len(kernels)
    assert correlations == [e["args"]["External id"] for e in kernels]


def test_long_groups_are_cut_as_kineto_cuts_them() -> None:
    args = kineto_args(TracedOperation("all_gather"), 0, range(64), 0)
    assert args["Process Group Ranks"].startswith("[0, 1, 2,")
    assert args["Process Group Ranks"].endswith("28, ..., 63]")
    assert args["Collective name"] == "_allgather_base"
    assert (
        kineto_args(TracedOperation("all_gather", dtype="f8e4m3"), 0, range(2), 0)["dtype"]
        == "Float8_e4m3fn"
    )


def test_overlapping_slices_are_put_on_lanes(tmp_path: Path) -> None:
    b = Builder(2)
    b.rows(Style(), [0, 0, 0], [1, 1, 1], b.pieces([1000, 2000, 3000]))
    program, timeline, _ = run(b.finish(), switch(2, 50e9))
    trace = load(write_trace(tmp_path / "t.json", program, timeline).path)
    check(trace)
    names = [e["args"]["name"] for e in of_phase(trace, "M") if e["name"] == "thread_name"]
    assert [n for n in names if "send" in n] == ["send", "send · 2", "send · 3"]


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


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (2**30, "1 GiB"),
        (2**30 - 2**20, "1023 MiB"),
        (2**20, "1 MiB"),
        (4 * 2**20 // 3, "1.333 MiB"),
        (2**19, "512 KiB"),
        (2**10, "1 KiB"),
        (1023, "1023 B"),
        (8, "8 B"),
        (0, "0 B"),
    ],
)
def test_sizes_in_names_are_short(nbytes: int, text: str) -> None:
    assert short_size(nbytes) == text
